"""Where the collections of the contract are: each store has a fixture ``create`` of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from crossbit import Collection, HashModel


@pytest.fixture
def create(tmp_path: Path) -> Iterator[Callable[[HashModel], Collection]]:
    """Make a collection, closed when the test ends."""
    with ExitStack() as stack:
        yield lambda made: stack.enter_context(
            Collection.create(tmp_path / "c", made, keep_features=True)
        )

"""Fixtures of the contract tests: each store has its own ``create``."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from crossbit import Collection, HashModel


@pytest.fixture
def create(tmp_path: Path) -> Iterator[Callable[[HashModel], Collection]]:
    """Create a collection, which is closed when the test ends."""
    with ExitStack() as stack:
        yield lambda model: stack.enter_context(
            Collection.create(tmp_path / "c", model, keep=("scores", "features"))
        )

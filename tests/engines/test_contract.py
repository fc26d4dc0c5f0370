"""The contract tests of collections, on a Milvus server and in a file of Milvus Lite."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from crossbit import Collection, HashModel
from tests.contracts.test_collections import *  # noqa: F403


@pytest.fixture
def create(address: str) -> Iterator[Callable[[HashModel], Collection]]:
    with ExitStack() as stack:
        yield lambda model: stack.enter_context(Collection.create(address, model))

"""The contract tests of collections: on a Milvus server, in Milvus Lite and in PostgreSQL."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from crossbit import Collection, HashModel
from tests.contracts.test_collections import *  # noqa: F403


@pytest.fixture
def create(any_address: str) -> Iterator[Callable[[HashModel], Collection]]:
    with ExitStack() as stack:
        yield lambda model: stack.enter_context(Collection.create(any_address, model))

"""Ray for the tests: clusters on the loopback whose callers need a token, and a limit of time for each test."""

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from crossbit.distributed.cluster import LOCAL, connected

LIMIT = 400  # seconds a test may take, its cluster included
HERE = Path(__file__).parent
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray warns of its own past, and leaves sockets to the garbage collector: neither is ours to mend."""
    for item in items:
        if HERE in item.path.parents:
            for ignored in (r"ignore::DeprecationWarning:ray\..*", "ignore::ResourceWarning"):
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    def over(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"a test took more than {LIMIT} seconds")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A local cluster, which all functions of a module use."""
    with connected(LOCAL, workers=2):
        yield

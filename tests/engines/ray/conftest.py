"""Fixtures of the Ray tests: local clusters with a token, and a time limit per test."""

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from crossbit.distributed.cluster import LOCAL, connected

LIMIT = 900  # seconds per test, including its cluster
HERE = Path(__file__).parent
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore Ray's deprecation warnings and unclosed sockets, which this project cannot fix."""
    for item in items:
        if HERE in item.path.parents:
            for rule in (r"ignore::DeprecationWarning:ray\..*", "ignore::ResourceWarning"):
                item.add_marker(pytest.mark.filterwarnings(rule))


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"a test took more than {LIMIT} seconds")

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A local cluster for all tests of a module."""
    with connected(LOCAL, workers=2):
        yield

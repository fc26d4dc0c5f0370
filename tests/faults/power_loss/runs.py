"""What the recorded runs share: steps, and the judgment of what a power failure left."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crossbit import Collection

RUNS: dict[str, "Run"] = {}
Step = Callable[[], object]


class Run(ABC):
    """Steps that write below a folder; each is acknowledged when it returns."""

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if not getattr(cls, "__abstractmethods__", None):
            RUNS[cls.name] = cls()

    def prepare(self, root: Path) -> None:  # noqa: B027 - most runs begin with an empty folder
        """Write what is on disk before the run."""

    def settings(self) -> AbstractContextManager[object]:
        """Return the settings of the library during the run."""
        return nullcontext()

    @abstractmethod
    def steps(self, root: Path) -> Iterator[Step]:
        """Yield the steps."""

    @abstractmethod
    def recovered(self, root: Path) -> set[int]:
        """Return the steps after which the content is as found; −1 is before the first step.

        Empty if there is no such step: something is lost, torn or unreadable. The run goes on from
        there: what a user does next works.
        """


def seeded(number: int) -> np.random.Generator:
    return np.random.default_rng((11, number))


@contextmanager
def patched(module: Any, name: str, value: Any) -> Iterator[None]:  # noqa: ANN401
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)


def check_repaired(collection: Collection) -> None:
    """Check a collection: at most derived files are wrong, and they are repaired."""
    findings = collection.check()
    for finding in findings:
        path = Path(finding.path)
        is_derived = path.name == "acknowledged" or path.suffix == ".index"
        assert is_derived, finding
        assert finding.repaired, finding
    assert not findings or collection.check() == [], "not repaired"

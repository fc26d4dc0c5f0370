"""Runs that write models, data sets, single files, the outputs of `learn` and a journal."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from crossbit import Codes, Collection, HammingIndex, HashModel
from crossbit._io import files
from crossbit.data import Dataset, synthetic
from tests.faults.operations import WIDTHS, model
from tests.faults.power_loss.runs import Run, Step, check_repaired, patched, seeded

if TYPE_CHECKING:
    from typer.testing import Result


class ModelRun(Run):
    """Models saved over each other and into new folders."""

    name = "model"

    def prepare(self, root: Path) -> None:
        """Save the first model."""
        model(100).save(root / "model")

    def steps(self, root: Path) -> Iterator[Step]:
        """Replace a model twice, then save one below folders that do not exist."""
        for number in range(2):
            yield partial(model(number).save, root / "model")
        yield partial(model(2).save, root / "new" / "folder" / "model")

    def recovered(self, root: Path) -> set[int]:
        """Load the models, then save another."""
        first = [model(number).fingerprint() for number in (100, 0, 1)]
        step = first.index(HashModel.load(root / "model").fingerprint()) - 1
        nested = root / "new" / "folder" / "model"
        if nested.exists():
            assert HashModel.load(nested).fingerprint() == model(2).fingerprint()
            step = 2
        for path in (root / "model", nested):
            model(3).save(path)
            assert HashModel.load(path).fingerprint() == model(3).fingerprint()
        return {step}


class TwoStepModelRun(ModelRun):
    """The same on a file system that cannot exchange two folders in one step."""

    name = "model in two steps"

    def settings(self) -> AbstractContextManager[object]:
        """Let the system have no call that exchanges names."""
        return patched(files, "_renameat2", None)


@cache
def _dataset(number: int) -> Dataset:
    return synthetic(n=40 + number, classes=4, seed=number)


class DatasetRun(Run):
    """Data sets saved over each other."""

    name = "dataset"

    def prepare(self, root: Path) -> None:
        """Save the first data set."""
        _dataset(0).save(root / "data")

    def steps(self, root: Path) -> Iterator[Step]:
        """Replace it twice."""
        for number in (1, 2):
            yield partial(_dataset(number).save, root / "data")

    def recovered(self, root: Path) -> set[int]:
        """Load the data set, then save another."""
        data = Dataset.load(root / "data", verify=True)
        step = len(data) - 41
        for name, view in _dataset(step + 1).views.items():
            np.testing.assert_array_equal(data.views[name], view)
        _dataset(3).save(root / "data")
        assert len(Dataset.load(root / "data", verify=True)) == 43
        return {step}


class FilesRun(Run):
    """Single files written over each other: codes, an index, an export."""

    name = "files"
    sizes: ClassVar[tuple[int, ...]] = (300, 20)

    def prepare(self, root: Path) -> None:
        """Create the collection that is exported."""
        with Collection.create(root / "collection", model(0)) as collection:
            collection.upsert(range(200), payload=[{"text": "x" * 20}] * 200)

    def steps(self, root: Path) -> Iterator[Step]:
        """Write each file twice."""
        for size in self.sizes:
            yield partial(self._codes(size).save, root / "all.codes")
            yield partial(self._index(size).save, root / "all.index")
            yield partial(
                _call,
                *("collection", "export", root / "collection"),
                *("--out", root / "items.jsonl", "--replace"),
            )
            with Collection.open(root / "collection") as collection:
                collection.delete(range(100, 200))

    def recovered(self, root: Path) -> set[int]:
        """Read each file; its content says how far the run came."""
        # Which steps are consistent with what each file holds.
        steps = set(range(-1, 6))
        sizes = {-1: None, 0: 300, 3: 20}
        steps &= _steps_with(sizes, self._stored_codes(root / "all.codes"))
        sizes = {-1: None, 1: 300, 4: 20}
        steps &= _steps_with(sizes, self._stored_index(root / "all.index"))
        sizes = {-1: None, 2: 200, 5: 100}
        return steps & _steps_with(sizes, _stored_items(root / "items.jsonl"))

    @staticmethod
    def _codes(size: int) -> Codes:
        return Codes.pack(seeded(size).random((size, 40)) < 0.5)

    def _index(self, size: int) -> HammingIndex:
        index = HammingIndex(40)
        index.add(range(size), self._codes(size))
        return index

    def _stored_codes(self, path: Path) -> int | None:
        if not path.exists():
            return None
        codes = Codes.load(path)
        assert codes == self._codes(len(codes))
        return len(codes)

    def _stored_index(self, path: Path) -> int | None:
        if not path.exists():
            return None
        index = HammingIndex.load(path)
        assert index.get(index.ids()) == self._codes(len(index))
        return len(index)


def _call(*arguments: object) -> None:
    """Run a command of the command line, which must succeed."""
    result = _invoke(arguments)
    assert result.exit_code == 0, result


def _invoke(arguments: Sequence[object]) -> "Result":
    from typer.testing import CliRunner

    from crossbit.cli.app import app

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def _stored_items(path: Path) -> int | None:
    if not path.exists():
        return None
    imported = path.with_name("imported")
    Collection.create(imported, model(0)).close()
    _call("collection", "import", imported, path)
    with Collection.open(imported) as collection:
        assert [item.id for item in collection] == list(range(len(collection)))
        return len(collection)


def _steps_with(sizes: dict[int, int | None], size: int | None) -> set[int]:
    """Return the steps after which a file has a size; ``sizes`` has the steps that change it."""
    steps: set[int] = set()
    current: int | None = None
    for step in range(-1, 6):
        current = sizes.get(step, current)
        if current == size:
            steps.add(step)
    return steps


class AddRun(Run):
    """``crossbit add`` of a file in several batches; --skip-existing goes on after a failure."""

    name = "add"
    items: ClassVar[int] = 30

    def prepare(self, root: Path) -> None:
        """Write the file beside the folder, where it keeps its path, and create the collection."""
        source = root.with_suffix(".jsonl")
        rows = seeded(0).normal(size=(self.items, WIDTHS["image"])).tolist()
        lines = [json.dumps({"id": i, "image": row, "n": i}) for i, row in enumerate(rows)]
        source.write_text("\n".join(lines) + "\n")
        (root / "source").write_text(str(source))
        Collection.create(root / "collection", model(0)).close()

    def steps(self, root: Path) -> Iterator[Step]:
        """Add the file."""
        yield partial(_call, *self._command(root))

    @staticmethod
    def _command(root: Path) -> list[object]:
        return ["add", root / "collection", (root / "source").read_text(), "--batch", 7]

    def recovered(self, root: Path) -> set[int]:
        """Go on: the command adds the rest, and nothing twice."""
        with Collection.open(root / "collection") as collection:
            count = len(collection)
            assert count % 7 == 0 or count == self.items, f"{count} items: a part of a batch"
            assert [item.payload["n"] for item in collection] == list(range(count))
            check_repaired(collection)
        result = _invoke([*self._command(root), "--skip-existing"])
        assert result.exit_code == 0, result
        with Collection.open(root / "collection") as collection:
            assert [item.payload["n"] for item in collection] == list(range(self.items))
            assert collection.check() == []
        return {0} if count == self.items else {-1}


@dataclass(frozen=True)
class _Gallery:
    """The folders of a call of `learn`."""

    root: Path

    def learn(self) -> None:
        from crossbit import CCAITQ
        from crossbit.learn import learn_table

        learn_table(
            self.root / "gallery" / "pictures",
            self.root / "out",
            captions=self.root / "gallery" / "captions.jsonl",
            extractors={"image": "histograms", "text": "tags"},
            hasher=CCAITQ(n_bits=16),
            test_size=0.2,
            cache=self.root / "cache",
        )


class LearnRun(Run):
    """The collection and the report of `learn`, and its cache of features."""

    name = "learn"

    def prepare(self, root: Path) -> None:
        """Draw the pictures."""
        from tests.learn.shapes import draw_gallery

        (root / "gallery").mkdir()
        draw_gallery(root / "gallery")

    def steps(self, root: Path) -> Iterator[Step]:
        """Learn once."""
        yield _Gallery(root).learn

    def recovered(self, root: Path) -> set[int]:
        """Open the collection, or learn again with whatever the cache holds."""
        step = 0 if (root / "out").exists() else -1
        if step == -1:
            _Gallery(root).learn()
        with Collection.open(root / "out") as collection:
            check_repaired(collection)
            report = json.loads((root / "out" / "report.json").read_text())
            assert len(collection) == 62  # that of the broken picture has captions
            assert report["learned from"] + report["held out"] == 60  # those with captions
        return {step}


class JournalRun(Run):
    """The journal of a hyper-parameter search."""

    name = "journal"

    def steps(self, root: Path) -> Iterator[Step]:
        """Start a search, then record trials that take more than one sector."""
        from crossbit.tune.trials import Journal

        journals: list[Journal] = []

        def start() -> None:
            journals.append(Journal(root / "search" / "trials.jsonl", {"seed": 0}))

        yield start
        (journal,) = journals
        for number in range(6):
            fields = {"number": number, "text": "x" * 400 * number}
            yield partial(journal.record, fields, [0.5], ended=True)

    def recovered(self, root: Path) -> set[int]:
        """Open the journal again and record another trial."""
        from crossbit.tune.trials import Journal

        path = root / "search" / "trials.jsonl"
        existed = path.exists()
        journal = Journal(path, {"seed": 0})
        steps = {len(journal.trials)}
        for number, trial in enumerate(journal.trials):
            assert trial.fields == {"number": number, "text": "x" * 400 * number}
        journal.record({"number": -1}, [0.5], ended=True)
        assert len(Journal(path, {"seed": 0}).trials) == len(journal.trials)
        # A search without trials starts again: nothing is lost with its first line.
        return steps | {-1, 0} if steps == {0} or not existed else steps

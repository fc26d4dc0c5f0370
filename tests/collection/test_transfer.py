"""Exports: of one moment and one model, complete and unmodified, or not imported at all."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbit import Collection, CrossbitError, DataError, FormatError
from crossbit.collection.stores import StaleModelError
from crossbit.collection.transfer import export_items, import_items
from crossbit.collection.values import Item
from tests.faults.operations import WIDTHS, half, model

N = 12
random = np.random.default_rng(4)
VIEWS = {name: half(random.normal(size=(N, width))) for name, width in WIDTHS.items()}


def fill(collection: Collection) -> None:
    """Items with both modalities, with one, and with none."""
    collection.upsert([f"é\x1b{i}" for i in range(N)], VIEWS, [{"n": i} for i in range(N)])
    collection.upsert([7], {"text": VIEWS["text"][:1]}, [{"line": "a\u2028b", "f": 0.1}])
    collection.upsert(["bare"])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = io.BytesIO()
    with Collection.create(tmp_path_factory.mktemp("source") / "c", model(0)) as source:
        fill(source)
        assert export_items(source, file) == N + 2
    return file.getvalue()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """A collection that no test writes."""
    return Collection.create(tmp_path_factory.mktemp("target") / "c", model(0))


def test_an_import_holds_the_same_items_in_the_same_order(tmp_path: Path) -> None:
    file = io.BytesIO()
    escaped = io.BytesIO()
    counts: list[int] = []
    with (
        Collection.create(tmp_path / "a", model(0)) as source,
        Collection.create(tmp_path / "b", model(0)) as copy,
    ):
        fill(source)
        export_items(source, file, on_items=counts.append)
        assert sum(counts) == N + 2
        assert import_items(copy, file, "file", on_items=counts.append) == N + 2
        assert sum(counts) == 2 * (N + 2)
        assert list(copy) == list(source)
        export_items(source, escaped, ascii_only=True)
        assert escaped.getvalue().isascii()
        assert import_items(copy, escaped, "file") == N + 2
        assert list(copy) == list(source)


def test_an_export_is_of_one_moment_and_one_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.collection.local.store._SCAN_BLOCK", 5)
    file = io.BytesIO()
    with (
        Collection.create(tmp_path / "c", model(0), keep="features") as source,
        Collection.open(tmp_path / "c") as other,
        Collection.create(tmp_path / "copy", model(0)) as copy,
    ):
        fill(source)
        before = list(source)

        def upgrade(_: int) -> None:
            if other.model == model(0):
                other.upgrade(model(1))
                other.delete(["bare"])

        export_items(source, file, on_items=upgrade)
        assert import_items(copy, file, "file") == N + 2
        assert list(copy) == before
        file = io.BytesIO()
        assert export_items(source, file) == N + 1  # the upgrade was noticed
        with pytest.raises(DataError, match="its codes come from another model"):
            import_items(copy, file, "file")
        assert list(copy) == before


def test_an_upgrade_of_the_target_stops_the_import(
    tmp_path: Path, exported: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.collection.transfer._BATCH", 5)
    with (
        Collection.create(tmp_path / "c", model(0)) as target,
        Collection.open(tmp_path / "c") as other,
    ):

        def upgrade(_: int) -> None:
            if other.model == model(0):
                ids = [item.id for item in other]
                rows = {name: X[: len(ids)] for name, X in VIEWS.items()}
                other.upgrade(model(1), [(ids, rows)])

        with pytest.raises(StaleModelError, match="upgraded to another model"):
            import_items(target, io.BytesIO(exported), "file", on_items=upgrade)
        for item in other:
            row = int(str(item.id)[2:])
            assert item.codes["text"] == model(1).encode("text", VIEWS["text"][row : row + 1])


Edit = Callable[[list[bytes]], list[bytes]]


def _edit_item(**fields: object) -> Edit:
    """Replace fields of the first item; None deletes one."""

    def edit(lines: list[bytes]) -> list[bytes]:
        record = {**json.loads(lines[1]), **fields}
        record = {key: value for key, value in record.items() if value is not None}
        return [lines[0], json.dumps(record).encode() + b"\n", *lines[2:]]

    return edit


def _move_digits(lines: list[bytes]) -> list[bytes]:
    """Two codes whose lengths are wrong, but add up."""
    a, b = (json.loads(line) for line in lines[1:3])
    digits = a["codes"]["image"] + b["codes"]["image"]
    a["codes"]["image"] = digits[:2]
    b["codes"]["image"] = digits[2:]
    return [lines[0], *(json.dumps(item).encode() + b"\n" for item in (a, b)), *lines[3:]]


def _edit_header(**fields: object) -> Edit:
    return lambda lines: [
        json.dumps({**json.loads(lines[0]), **fields}).encode(),
        b"\n",
        *lines[1:],
    ]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda lines: lines[:5], "truncated after 4 items"),
        (lambda lines: lines[:-1], f"truncated after {N + 2} items"),
        (lambda lines: [*lines[:4], lines[4][:-30]], "line 5 is not JSON"),
        (lambda lines: [*lines[:4], *lines[5:]], "do not match the number"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "do not match the number"),
        (lambda lines: [*lines, lines[1]], "there is more after its last line"),
        (lambda lines: [b"\n".join(lines)], "line 2 is not JSON"),
        (lambda lines: [], "line 1 is not JSON"),
        (lambda lines: [lines[0], b"[]\n"], "line 2: expected a JSON object, got list"),
        (lambda lines: [lines[0], b"[" * 10**5, b"\n"], "line 2 is not JSON"),
        (_edit_item(payload={"n": -1}), "do not match the number"),
        (
            _edit_item(id=None),
            "line 2 is not what 'collection export' writes \\(it has no 'id'",
        ),
        (_edit_item(id=True), "an id must be a string or an integer, got True"),
        (_edit_item(payload=None), "it has no 'payload'"),
        (_edit_item(payload=[1]), "payload must be|expected a mapping"),
        (_edit_item(payload={"n": float("nan")}), "not representable in JSON"),
        (_edit_item(codes=[1]), "line 2 is not what"),
        (_edit_item(codes={"image": "00"}), "hexadecimal"),
        (_edit_item(codes={"image": "00 00 "}), "hexadecimal"),
        (_edit_item(codes={"image": "no"}), "hexadecimal"),
        (_edit_item(codes={"image": "0000ff"}), "padding|do not match"),
        (_edit_item(codes={"image": 5}), "line 2 is not what"),
        (_edit_item(codes={"sound": "000000"}), "does not list the modality 'sound'"),
        (_move_digits, "hexadecimal"),
        (_edit_header(format="crossbit.export/5"), "format 'crossbit.export/5' in its first line"),
        (_edit_header(n_bits="20"), "the first line is corrupted"),
        (_edit_header(modalities=5), "the first line is corrupted"),
        (_edit_header(extra=1), "line 2 is not JSON|do not match the number"),
    ],
)
def test_a_file_that_is_not_valid_changes_nothing(
    target: Collection, exported: bytes, edit: Edit, problem: str
) -> None:
    edited = b"".join(edit(exported.splitlines(keepends=True)))
    with pytest.raises(FormatError, match=problem):
        import_items(target, io.BytesIO(edited), "file")
    assert len(target) == 0


def test_a_line_has_a_limit(
    target: Collection, exported: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.collection.transfer._MAX_LINE", 1000)
    lines = exported.splitlines(keepends=True)
    lines[1] = b" " * 2000 + lines[1]
    with pytest.raises(FormatError, match="line 2 has more than 1000 bytes"):
        import_items(target, io.BytesIO(b"".join(lines)), "file")


@settings(max_examples=150)
@given(data=st.data())
def test_every_change_of_a_byte_is_detected(
    target: Collection, exported: bytes, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(exported) - 1))
    end = data.draw(st.integers(start, len(exported)))
    new = data.draw(st.binary(max_size=8))
    edited = exported[:start] + new + exported[end:]
    if edited != exported:
        with pytest.raises(CrossbitError):
            import_items(target, io.BytesIO(edited), "file")
        assert len(target) == 0


def test_a_server_that_is_upgraded_meanwhile_stops_the_export(
    target: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(_: str, *, kept: bool) -> object:
        yield Item("a", {}, {})
        raise StaleModelError("the collection was upgraded to another model; open it again")

    monkeypatch.setattr(target._store, "scan", scan)
    file = io.BytesIO()
    with pytest.raises(StaleModelError, match="upgraded to another model"):
        export_items(target, file)
    monkeypatch.undo()
    with pytest.raises(FormatError, match="truncated after 1 items"):
        import_items(target, file, "file")

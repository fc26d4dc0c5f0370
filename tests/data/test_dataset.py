"""Data sets in memory and in folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit._io.folders import write_manifest
from crossbit.data import Dataset, Pairs, storage, training_set
from crossbit.errors import DataError, FormatError

RNG = np.random.default_rng(0)
X, Y = RNG.random((6, 3)), RNG.random((6, 2)).astype(np.float32)
CLASSES = np.array([0, 1, 2, 0, -1, 1])
SEVERAL = RNG.random((6, 11)) < 0.4


def aligned(**changes: object) -> Dataset:
    values: dict[str, Any] = {
        "views": {"image": X, "text": Y},
        "labels": CLASSES,
        "pairs": [
            Pairs(
                "image", "text", np.array([[0, 3], [1, 4], [5, 5]]), np.array([True, False, True])
            )
        ],
        "splits": {"train": np.array([0, 1, 2, 3]), "test": np.array([5, 4])},
        "payload": [{"title": f"№ {k}\u2028"} for k in range(6)],
        "name": "toy",
        "source": "synthetic",
        "license": "none",
        "classes": ["art", "biology", "sport"],
    }
    return Dataset(**values | changes)


def unpaired(**changes: object) -> Dataset:
    values: dict[str, Any] = {
        "views": {"image": X, "text": Y[:4]},
        "labels": {"image": SEVERAL, "text": SEVERAL[:4]},
        "pairs": [Pairs("image", "image", np.array([[0, 5]]), np.array([True]))],
        "splits": {"train": {"image": np.array([0, 5]), "text": np.array([1])}},
        "payload": {"text": [{"k": k} for k in range(4)]},
    }
    return Dataset(**values | changes)


def same(a: Dataset, b: Dataset) -> None:
    assert a.describe() == b.describe()
    for name in a.views:
        np.testing.assert_array_equal(a.views[name], b.views[name])
        assert a.views[name].dtype == b.views[name].dtype
    for name, labels in a.labels_by_modality().items():
        np.testing.assert_array_equal(labels, b.labels_by_modality()[name])
    for first, other in zip(a.pairs, b.pairs, strict=True):
        assert first.key == other.key
        np.testing.assert_array_equal(first.index, other.index)
        np.testing.assert_array_equal(first.similar, other.similar)
    for split, rows in a.splits.items():
        np.testing.assert_equal(b.splits[split], rows)
    assert a.payload == b.payload


@pytest.mark.parametrize(
    "data",
    [
        aligned(),
        unpaired(),
        aligned(labels=SEVERAL, classes=()),
        aligned(labels=None, pairs=(), splits={}, payload=None),
        Dataset(views={"image": np.zeros((0, 3))}),
        Dataset(views={"image": np.zeros((4, 2, 3, 3), np.uint8)}),
        Dataset(views={"image": np.asfortranarray(X).astype(">f4")}),
    ],
    ids=["aligned", "unpaired", "several labels", "bare", "empty", "pictures", "odd layout"],
)
def test_save_and_load(data: Dataset, tmp_path: Path) -> None:
    data.save(tmp_path / "set")
    if data.views["image"].dtype.byteorder == ">":
        data = Dataset(views={"image": data.views["image"].astype("<f4")})
    same(data, Dataset.load(tmp_path / "set"))
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_loaded_views_and_their_contiguous_parts_are_memory_mapped(tmp_path: Path) -> None:
    aligned().save(tmp_path / "set")
    data = Dataset.load(tmp_path / "set")
    assert isinstance(data.views["image"].base, np.memmap) or isinstance(
        data.views["image"], np.memmap
    )
    assert np.shares_memory(data.part("train").views["image"], data.views["image"])


def test_a_part_has_its_labels_payload_and_pairs() -> None:
    part = aligned().part("test")
    np.testing.assert_array_equal(part.views["text"], Y[[5, 4]])
    assert part.labels is not None
    np.testing.assert_array_equal(part.labels, [1, -1])
    assert part.payload == ({"title": "№ 5\u2028"}, {"title": "№ 4\u2028"})
    assert part.pairs[0].index.tolist() == [[0, 0]]
    assert part.pairs[0].similar.tolist() == [True]
    assert part.splits == {}
    assert aligned().part("train").pairs[0].index.tolist() == [[0, 3]]


def test_a_part_of_unpaired_views_renumbers_each_view() -> None:
    part = unpaired().part("train")
    np.testing.assert_array_equal(part.views["image"], X[[0, 5]])
    np.testing.assert_array_equal(part.views["text"], Y[[1]])
    np.testing.assert_array_equal(part.labels_by_modality()["text"], SEVERAL[[1]])
    assert part.pairs[0].index.tolist() == [[0, 1]]
    assert part.payload == {"text": ({"k": 1},)}
    assert len(part) == 3


def test_fit_arguments_make_a_training_set() -> None:
    train = training_set(**aligned().fit_arguments())
    assert train.aligned
    assert len(train.views["image"]) == 4
    assert len(train.pairs) == 1
    both = training_set(**unpaired().fit_arguments(None))
    assert not both.aligned
    assert (len(both.views["image"]), len(both.views["text"])) == (6, 4)
    alone = training_set(**aligned(labels=None, pairs=()).fit_arguments("test"))
    assert alone.aligned_supervision


def test_repr_and_description() -> None:
    assert repr(aligned()) == (
        "Dataset(toy: 6 rows; image 3, text 2; 3 classes; image-text: 2 similar,"
        " 1 dissimilar; train 4, test 2)"
    )
    facts = aligned().describe()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["labels"]["image"] == {"multi_label": False, "unknown": 1, "counts": [2, 2, 1]}
    assert unpaired().describe()["splits"] == {"train": 3}


def test_classes_may_have_any_numbers() -> None:
    data = aligned(labels=[1, 2, 3, 1, 2, 3], classes=())
    assert data.n_classes == 3
    assert data.describe()["labels"]["image"]["counts"] == [2, 2, 2]
    large = aligned(labels=np.array([7, 10**12, 10**12, 5, -1, 7]), classes=())
    assert "; 3 classes; " in repr(large)
    assert large.describe()["labels"]["text"]["counts"] == [1, 2, 2]
    apart = unpaired(labels={"image": [0, 1, 0, 1, 0, 1], "text": [1, 2, 2, 2]})
    assert apart.n_classes == 3


def test_the_description_counts_absent_rows() -> None:
    image = X.copy()
    image[[1, 4]] = np.nan
    views = aligned(views={"image": image, "text": Y}).describe()["views"]
    assert (views["image"]["absent"], views["text"]["absent"]) == (2, 0)


def test_a_mask_is_a_split() -> None:
    data = aligned(splits={"test": np.arange(6) > 3, "none": np.zeros(6, bool)})
    np.testing.assert_equal(data.splits, {"test": np.array([4, 5]), "none": np.empty(0, np.int64)})
    assert len(data.take(np.arange(6) < 2)) == 2


@pytest.mark.parametrize(
    "name", ["dataset.json", "image.npy", "labels.npy", "pairs.npz", "splits.json", "payload.jsonl"]
)
@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_a_corrupted_file_is_named(name: str, damage: str, tmp_path: Path) -> None:
    aligned().save(tmp_path / "set")
    path = tmp_path / "set" / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(raw if damage == "altered" else raw[:-5])
    with pytest.raises((FormatError, DataError), match=name.replace(".", r"\.")):
        Dataset.load(tmp_path / "set")


def test_without_verification_sizes_are_still_compared(tmp_path: Path) -> None:
    aligned().save(tmp_path / "set")
    path = tmp_path / "set" / "image.npy"
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + b"\0")
    Dataset.load(tmp_path / "set", verify=False)
    path.write_bytes(raw[:-8])
    with pytest.raises(FormatError, match=r"image\.npy.*truncated"):
        Dataset.load(tmp_path / "set", verify=False)


def test_a_newer_format_is_rejected(tmp_path: Path) -> None:
    aligned().save(tmp_path / "set")
    manifest = tmp_path / "set" / "dataset.json"
    manifest.write_text(manifest.read_text().replace("crossbit.dataset/1", "crossbit.dataset/9"))
    with pytest.raises(FormatError, match=r"'crossbit\.dataset/9'.*'crossbit\.dataset/1'"):
        Dataset.load(tmp_path / "set")


def test_only_a_data_set_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "diary.txt").write_text("dear")
    with pytest.raises(DataError, match=r"exists and has no dataset\.json"):
        aligned().save(tmp_path / "home")
    assert (tmp_path / "home" / "diary.txt").read_text() == "dear"
    aligned().save(tmp_path / "set")
    Dataset.load(tmp_path / "set").part("test").save(tmp_path / "set")
    assert len(Dataset.load(tmp_path / "set")) == 2


def test_a_failed_save_leaves_the_old_data_set(tmp_path: Path) -> None:
    aligned().save(tmp_path / "set")
    for value in (object(), float("nan")):
        with pytest.raises(DataError, match=r"payload: row 1 .* cannot be written as JSON"):
            aligned(payload=[{}, {"k": value}, *[{}] * 4]).save(tmp_path / "set")
    same(aligned(), Dataset.load(tmp_path / "set"))
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_missing_data_set_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such folder; expected one of format"):
        Dataset.load(tmp_path / "nowhere")


def test_an_array_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    aligned().save(tmp_path / "set")
    manifest = tmp_path / "set" / "dataset.json"
    np.save(tmp_path / "set" / "image.npy", np.array([{}], object), allow_pickle=True)
    facts = json.loads(manifest.read_text())
    manifest.unlink()
    write_manifest(
        tmp_path / "set",
        "dataset.json",
        {k: v for k, v in facts.items() if k not in ("files", "checksum")},
    )
    with pytest.raises(FormatError, match=r"image\.npy: .*it holds Python objects"):
        Dataset.load(tmp_path / "set")


def reseal(folder: Path, **changes: Any) -> None:  # noqa: ANN401
    """Rewrite the manifest with other entries and a valid checksum."""
    facts = json.loads((folder / "dataset.json").read_text()) | changes
    (folder / "dataset.json").unlink()
    write_manifest(
        folder, "dataset.json", {k: v for k, v in facts.items() if k not in ("files", "checksum")}
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"views": {}},
        {"views": [1]},
        {"views": {"image": 3}},
        {"pairs": [[1]]},
        {"pairs": None},
        {"classes": None},
        {"classes": "abc"},
        {"name": None},
        {"classes": ["art"]},
        {"views": {"sound": [6, 3]}},
        {"pairs": [["image", "sound"]]},
    ],
)
def test_an_invalid_manifest_is_rejected(changes: dict[str, Any], tmp_path: Path) -> None:
    aligned().save(tmp_path / "set")
    reseal(tmp_path / "set", **changes)
    with pytest.raises(
        FormatError, match=r"set/.*(invalid entries|cannot be read)|set: .*(inconsistent|corrupted)"
    ):
        Dataset.load(tmp_path / "set")


def test_a_corrupted_archive_is_named(tmp_path: Path) -> None:
    aligned().save(tmp_path / "set")
    path = tmp_path / "set" / "pairs.npz"
    path.write_bytes(path.read_bytes()[:-30])
    reseal(tmp_path / "set")
    with pytest.raises(FormatError, match=r"pairs\.npz: cannot be read as \.npz"):
        Dataset.load(tmp_path / "set")


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a.b", "a-b", "labels", "pairs", "dataset"])
def test_hostile_names_are_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="modality"):
        Dataset(views={name: X})


def test_hostile_names_in_a_manifest_are_rejected(tmp_path: Path) -> None:
    aligned(labels=None, pairs=(), payload=None).save(tmp_path / "set")
    manifest = tmp_path / "set" / "dataset.json"
    facts = json.loads(manifest.read_text())
    facts["views"] = {"../image": [6, 3]}
    manifest.unlink()
    write_manifest(
        tmp_path / "set",
        "dataset.json",
        {k: v for k, v in facts.items() if k not in ("files", "checksum")},
    )
    with pytest.raises(FormatError, match=r"corrupted.*letters, digits and underscores"):
        Dataset.load(tmp_path / "set")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"views": {}}, "a data set needs at least one view"),
        ({"views": {"Text": X, "text": Y}}, "differ in more than case"),
        ({"labels": CLASSES[:5]}, "labels: expected one for each of 6 rows"),
        (
            {"labels": np.arange(6)},
            r"the largest class is 5, but classes names only 3 of them \(0 to 2\)",
        ),
        ({"pairs": [[0, 1]]}, "pairs: expected Pairs objects, .* got list"),
        ({"splits": {"train": [True, False]}}, r"or a mask of shape \(6,\), got bool \(2,\)"),
        (
            {"splits": {"train": [6]}},
            "split 'train': row numbers must be between 0 and 5, got 6 … 6",
        ),
        ({"splits": {"train": [1, 1]}}, "split 'train': a row number occurs more than once"),
        (
            {"splits": {"train": [0.5]}},
            r"split 'train': expected row numbers of shape \(rows,\) or .*, got float64",
        ),
        (
            {"splits": {"train": {"image": [0]}}},
            "split 'train': the views are aligned, pass one list of row numbers",
        ),
        ({"payload": [{}]}, "payload: expected one JSON object for each of 6 rows, got 1"),
        (
            {"pairs": [Pairs("image", "text", np.array([[0, 6]]), np.array([True]))]},
            "pairs 'image-text' of 'text'",
        ),
        (
            {"pairs": [Pairs("image", "sound", np.array([[0, 0]]), np.array([True]))]},
            "unknown modality 'sound'",
        ),
    ],
)
def test_invalid_data_sets_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        aligned(**changes)


def test_unpaired_views_need_labels_and_rows_per_modality() -> None:
    with pytest.raises(DataError, match=r"labels: the views are unpaired, pass \{modality: …\}"):
        unpaired(labels=CLASSES)
    with pytest.raises(
        DataError,
        match=r"split 'train': the views are unpaired, pass \{modality: row numbers\}",
    ):
        unpaired(splits={"train": [0]})
    with pytest.raises(DataError, match=r"rows: no rows given for \['text'\]"):
        unpaired().take({"image": [0]})


def test_an_unknown_split_names_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"unknown split 'val'; known: \['test', 'train'\]"):
        aligned().part("val")


@given(st.lists(st.integers(0, 30), unique=True))
def test_row_numbers_survive_a_round_trip(rows: list[int]) -> None:
    assert storage._parse_rows(storage._format_rows(np.array(rows, np.int64)), 31).tolist() == rows


@pytest.mark.parametrize("text", ["0:99999999999999", "-1", "a", "3:b", "1,,2"])
def test_invalid_row_lists_are_rejected(text: str) -> None:
    with pytest.raises(FormatError, match="expected rows like"):
        storage._parse_rows(text, 10)


def test_runs_are_written_as_ranges() -> None:
    assert storage._format_rows(np.array([0, 1, 2, 7, 9, 8])) == "0:3,7,9,8"


def test_class_sizes_count_large_identifiers() -> None:
    data = Dataset(views={"image": X[:3]}, labels=np.array([10**15, 10**15, 7]))
    assert data.n_classes == 2
    assert data.describe()["labels"]["image"]["counts"] == [1, 2]

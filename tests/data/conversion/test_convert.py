"""Converters, against real files of each format."""

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse

from crossbit.data import Dataset, Pairs, convert, parse_map, read
from crossbit.data.conversion.lazy import HDF5Array
from crossbit.errors import DataError, FormatError, MissingExtraError

RNG = np.random.default_rng(0)
IMAGES, TEXTS = RNG.random((7, 4)), RNG.random((7, 3))
CLASSES = np.array([1, 2, 3, 1, 2, 3, 3])
SEVERAL = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 0, 0], [1, 0, 0], [0, 1, 1]])
PARTS = {"tr": slice(0, 5), "te": slice(5, 7)}


def wikilike(labels: Any = CLASSES[:, None]) -> dict[str, Any]:  # noqa: ANN401
    named = {"I": IMAGES, "T": TEXTS, "L": labels}
    return {
        f"{key}_{end}": value[rows] for key, value in named.items() for end, rows in PARTS.items()
    }


def write_v5(path: Path, arrays: dict[str, Any]) -> Path:
    scipy.io.savemat(path, arrays)
    return path


def write_v73(path: Path, arrays: dict[str, Any]) -> Path:
    """Write a file like MATLAB: HDF5 after a header of 512 bytes, axes reversed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in arrays.items():
            file.create_dataset(name, data=np.asarray(value).T)
    with open(path, "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


WRITERS = {"v5": write_v5, "v7.3": write_v73}


@pytest.fixture(params=WRITERS)
def matlab(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401
    return WRITERS[request.param]


def check_rows(data: Dataset) -> None:
    np.testing.assert_array_equal(data.views["image"], IMAGES)
    np.testing.assert_array_equal(data.views["text"], TEXTS)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (CLASSES[:, None], CLASSES - 1),
        (CLASSES[:, None] - 1, CLASSES - 1),
        (np.eye(4)[CLASSES], CLASSES),
        (SEVERAL, SEVERAL.astype(bool)),
    ],
    ids=["from 1", "from 0", "one-hot", "several"],
)
def test_parts_of_a_matlab_file_become_splits(
    labels: Any,  # noqa: ANN401
    expected: Any,  # noqa: ANN401
    matlab: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    data = convert(
        matlab(tmp_path / "set.mat", wikilike(labels)),
        tmp_path / "out",
        license="free",
        origin="a friend",
    )
    check_rows(data)
    np.testing.assert_array_equal(data.labels_by_modality()["text"], expected)
    np.testing.assert_equal(data.splits, {"train": np.arange(5), "test": np.arange(5, 7)})
    assert (data.name, data.source, data.license) == ("set", "a friend", "free")
    check_rows(Dataset.load(tmp_path / "out"))


@pytest.mark.parametrize(
    "names",
    [
        ("XAll", "YAll", "LAll"),
        ("IAll", "TAll", "LAll"),
        ("FAll", "YAll", "LAll"),
        ("images", "tags", "labels"),
    ],
)
def test_whole_arrays_of_a_matlab_file(
    names: tuple[str, str, str],
    matlab: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    arrays = dict(zip(names, (IMAGES, TEXTS, SEVERAL), strict=True))
    data = convert(
        matlab(tmp_path / "set.mat", arrays | {"epochs": np.ones((2, 2))}), tmp_path / "out"
    )
    check_rows(data)
    assert data.modalities == ["image", "text"]
    np.testing.assert_array_equal(data.labels_by_modality()["image"], SEVERAL.astype(bool))


@pytest.mark.parametrize("names", ["{}_{}", "{}{}"])
def test_other_names_of_parts(names: str, tmp_path: Path) -> None:
    words = {"Train": slice(0, 3), "Test": slice(3, 4), "Database": slice(4, 7)}
    arrays = {
        names.format(k, w): a[s] for k, a in (("X", IMAGES), ("Y", TEXTS)) for w, s in words.items()
    }
    data = convert(write_v5(tmp_path / "set.mat", arrays), tmp_path / "out")
    check_rows(data)
    assert {part: len(rows) for part, rows in data.splits.items()} == {
        "train": 3,
        "test": 1,
        "database": 3,
    }
    assert data.labels is None


def test_items_in_columns_are_transposed_if_consistent_or_mapped(
    matlab: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    pictures = RNG.random((2, 3, 7))
    columns = {"XAll": pictures, "YAll": TEXTS.T, "LAll": SEVERAL.T}
    data = convert(matlab(tmp_path / "columns.mat", columns), tmp_path / "out")
    np.testing.assert_array_equal(data.views["image"], np.moveaxis(pictures, -1, 0))
    np.testing.assert_array_equal(data.views["text"], TEXTS)
    mixed = matlab(tmp_path / "mixed.mat", {"XAll": IMAGES, "YAll": TEXTS.T, "LAll": CLASSES[None]})
    with pytest.raises(
        DataError, match=r"the numbers of rows differ: .*'text'.*map an array .* as <array>\.T"
    ):
        read(mixed)
    data = read(mixed, map={"image": "XAll", "text": "YAll.T", "labels": "LAll"})
    check_rows(data)
    np.testing.assert_array_equal(data.labels_by_modality()["text"], CLASSES - 1)


def test_views_of_one_width_that_lost_a_row_are_not_transposed(tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", np.ones((9, 4)))
    np.save(tmp_path / "text.npy", np.ones((8, 4)))
    with pytest.raises(DataError, match=r"rows differ: view 'image' \[\(9, 4\)\].*<array>\.T"):
        convert([tmp_path / "image.npy", tmp_path / "text.npy"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_lists_of_row_numbers_count_from_one_in_matlab(tmp_path: Path) -> None:
    arrays = {
        "XAll": IMAGES,
        "YAll": TEXTS,
        "param": {"indexQuery": [[1, 7]], "indexDatabase": [[2], [3]], "bits": 16},
    }
    data = convert(write_v5(tmp_path / "set.mat", arrays), tmp_path / "out")
    np.testing.assert_equal(data.splits, {"query": np.array([0, 6]), "database": np.array([1, 2])})
    mapped = read(tmp_path / "set.mat", map=parse_map(["image=XAll", "split:dev=param.indexQuery"]))
    np.testing.assert_equal(mapped.splits, {"dev": np.array([0, 6])})
    assert mapped.modalities == ["image"]


def test_structures_of_a_v73_file_are_named_with_dots(tmp_path: Path) -> None:
    path = write_v73(
        tmp_path / "set.mat", {"XAll": IMAGES, "param/indexTest": np.array([[1.0, 2.0]])}
    )
    np.testing.assert_equal(read(path).splits, {"test": np.array([0, 1])})


def test_sparse_matrices_of_both_versions(tmp_path: Path) -> None:
    sparse = scipy.sparse.csc_matrix(SEVERAL.astype(float))
    data = read(write_v5(tmp_path / "v5.mat", {"XAll": IMAGES, "YAll": sparse}))
    np.testing.assert_array_equal(data.views["text"], SEVERAL)
    path = write_v73(tmp_path / "v73.mat", {"XAll": IMAGES})
    with h5py.File(path, "r+") as file:
        group = file.create_group("YAll")
        group.attrs["MATLAB_sparse"] = np.uint64(7)
        group["data"], group["ir"], group["jc"] = (
            sparse.data,
            sparse.indices.astype("u8"),
            sparse.indptr.astype("u8"),
        )
    np.testing.assert_array_equal(read(path).views["text"], SEVERAL)
    np.testing.assert_array_equal(read(path, map={"text": "YAll.T"}).views["text"], SEVERAL.T)


def test_a_v73_file_is_copied_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.data.storage._BLOCK_BYTES", 64)  # two rows of images
    taken: list[int] = []
    plain = HDF5Array.__getitem__

    def watched(self: HDF5Array, rows: slice, /) -> Any:  # noqa: ANN401
        block = plain(self, rows)
        taken.append(len(block))
        return block

    monkeypatch.setattr(HDF5Array, "__getitem__", watched)
    check_rows(
        convert(write_v73(tmp_path / "set.mat", {"XAll": IMAGES, "YAll": TEXTS}), tmp_path / "out")
    )
    assert max(taken) == 2


def test_hdf5_written_by_others_is_not_reversed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["image"], file["text"], file["labels"], file["train"] = (
            IMAGES,
            TEXTS,
            CLASSES,
            np.array([0, 2]),
        )
    data = convert(tmp_path / "set.h5", tmp_path / "out")
    check_rows(data)
    np.testing.assert_array_equal(data.labels_by_modality()["image"], CLASSES)
    np.testing.assert_equal(data.splits, {"train": np.array([0, 2])})


def test_npz_names_its_modalities(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "set.npz",
        sound=IMAGES,
        text=TEXTS,
        labels=SEVERAL,
        train=[0, 1],
        test_idx=[2],
        mask=np.float64(3),
    )
    data = convert(tmp_path / "set.npz", tmp_path / "out", map=None)
    assert data.modalities == ["sound", "text"]
    np.testing.assert_equal(data.splits, {"train": np.array([0, 1]), "test": np.array([2])})
    np.savez(tmp_path / "parts.npz", sound_train=IMAGES[:5], sound_test=IMAGES[5:])
    np.testing.assert_array_equal(read(tmp_path / "parts.npz").views["sound"], IMAGES)


@pytest.mark.parametrize("first", [0, 1])
def test_zeros_and_ones_of_every_row_are_a_mask(first: int, tmp_path: Path) -> None:
    test = np.array([1, 0, 0, 0, 1, 0, 1])
    if first:
        path = write_v5(tmp_path / "set.mat", {"XAll": IMAGES, "indexTest": test[:, None] == 1})
    else:
        path = tmp_path / "set.npz"
        np.savez(path, image=IMAGES, test=test)
    np.testing.assert_equal(read(path).splits, {"test": np.array([0, 4, 6])})


def test_a_mask_of_another_length_is_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", image=IMAGES, test=np.ones(3, bool))
    with pytest.raises(
        DataError,
        match=r"'test': expected integer row numbers or a mask of 7 booleans, got bool",
    ):
        read(tmp_path / "set.npz")


@pytest.mark.parametrize(
    ("arrays", "modalities", "labels", "unused"),
    [
        ({"cnn": IMAGES, "bow": TEXTS, "y": CLASSES}, ["cnn", "bow"], CLASSES, []),
        ({"X": IMAGES, "Y": TEXTS, "L": SEVERAL}, ["X", "Y"], SEVERAL, []),
        ({"X": IMAGES, "Y": np.eye(4)[CLASSES]}, ["X"], CLASSES, []),
        ({"X": IMAGES, "Y": SEVERAL}, ["X", "Y"], None, []),
        ({"X": IMAGES, "y": CLASSES + 0.5}, ["X"], None, ["y (7,)"]),
        ({"X": IMAGES, "y": CLASSES[:5]}, ["X"], None, ["y (5,)"]),
        ({"X": IMAGES, "labels": CLASSES, "y": CLASSES}, ["X"], CLASSES, ["y (7,)"]),
        ({"X": IMAGES, "y": np.array(list("bcabcaa"))}, ["X"], [1, 2, 0, 1, 2, 0, 0], []),
        ({"image": IMAGES, "depth": IMAGES[:, :1]}, ["image", "depth"], None, []),
        (
            {"image": IMAGES, "depth": IMAGES[:5, :1], "ids": CLASSES},
            ["image"],
            None,
            ["depth (5, 1)", "ids (7,)"],
        ),
        (
            {"image": IMAGES, "notes": np.array([{}], object)},
            ["image"],
            None,
            ["notes () of object"],
        ),
        ({"my image": IMAGES, "grp.sound": TEXTS}, ["my_image", "sound"], None, []),
        ({"a.x": IMAGES, "b.x": TEXTS}, ["a_x", "b_x"], None, []),
    ],
)
def test_labels_narrow_views_and_unused_arrays(
    arrays: dict[str, Any],
    modalities: list[str],
    labels: Any,  # noqa: ANN401
    unused: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    np.savez(tmp_path / "set.npz", **arrays)
    reported: list[str] = []
    data = convert(tmp_path / "set.npz", tmp_path / "out", on_unused=reported.extend)
    assert data.modalities == modalities
    assert reported == unused
    if labels is None:
        assert data.labels is None
    else:
        np.testing.assert_array_equal(data.labels_by_modality()[modalities[0]], labels)
    read(tmp_path / "set.npz")
    assert [f"not used: {', '.join(unused)}" in record.message for record in caplog.records] == [
        True
    ] * bool(unused)


def test_a_target_with_one_number_per_row_is_labels(tmp_path: Path) -> None:
    parts = {"train": slice(0, 5), "test": slice(5, 7)}
    named = {"X": IMAGES, "y": CLASSES}
    arrays: dict[str, Any] = {
        f"{k}_{part}": a[rows] for k, a in named.items() for part, rows in parts.items()
    }
    np.savez(tmp_path / "set.npz", **arrays)
    data = read(tmp_path / "set.npz")
    assert data.modalities == ["image"]
    np.testing.assert_array_equal(data.labels_by_modality()["image"], CLASSES)


def test_an_array_that_cannot_name_a_modality_needs_a_map(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"image": IMAGES, "###": TEXTS}
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(
        DataError,
        match=r"set\.npz: '###' is not a valid modality name; name it with --map <modality>=###",
    ):
        read(tmp_path / "set.npz")
    assert read(tmp_path / "set.npz", map={"text": "###"}).modalities == ["text"]


def test_arrays_of_inner_groups_go_by_their_last_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["grp/sound"], file["grp/label"], file["note"] = IMAGES, CLASSES, "a word"
    data = read(tmp_path / "set.h5")
    assert data.modalities == ["sound"]
    np.testing.assert_array_equal(data.labels_by_modality()["sound"], CLASSES)


def make_data_set(folder: Path) -> Dataset:
    data = Dataset(
        views={"image": IMAGES, "text": TEXTS},
        labels=CLASSES,
        pairs=[Pairs("image", "text", np.array([[0, 1]]), np.array([True]))],
        splits={"train": np.arange(3)},
        payload=[{"k": k} for k in range(7)],
        name="toy",
        classes=["a", "b", "c", "d"],
    )
    data.save(folder)
    return data


def test_a_data_set_is_copied(tmp_path: Path) -> None:
    data = make_data_set(tmp_path / "set")
    copy = convert(tmp_path / "set", tmp_path / "out", license="free")
    check_rows(copy)
    assert copy.describe() == data.describe() | {"license": "free"}
    assert copy.payload == read(tmp_path / "set").payload == data.payload
    assert copy.classes == data.classes
    with pytest.raises(DataError, match="a data set needs no map"):
        convert(tmp_path / "set", tmp_path / "out", map={"image": "image"})


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("set", "set"),
        ("set", "set/inner"),
        ("set", "."),
        ("set/image.npy", "set"),
        ("set", "other/../set"),
    ],
)
def test_the_output_must_not_overlap_the_source(source: str, out: str, tmp_path: Path) -> None:
    make_data_set(tmp_path / "set")
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match="the output overlaps the source"):
        convert(tmp_path / source, tmp_path / out)
    assert Dataset.load(tmp_path / "set").name == "toy"


def test_npz_masks_and_words(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "set.npz", image=IMAGES, label=np.array(list("bcabcaa")), test=np.arange(7) > 4
    )
    data = read(tmp_path / "set.npz")
    assert data.classes == ("a", "b", "c")
    np.testing.assert_array_equal(data.labels_by_modality()["image"], [1, 2, 0, 1, 2, 0, 0])
    np.testing.assert_equal(data.splits, {"test": np.array([5, 6])})


def test_an_npz_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", image=np.array([{}], object))
    with pytest.raises(
        DataError,
        match=r"set\.npz: 'image' looks like image but holds object instead of real numbers",
    ):
        read(tmp_path / "set.npz")


def test_one_file_per_modality(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    np.save(folder / "image.npy", IMAGES)
    np.savetxt(folder / "text.csv", TEXTS, delimiter=",", header="0,1,2", comments="", fmt="%.18g")
    pyarrow.csv.write_csv(pyarrow.table({"label": CLASSES}), folder / "labels.csv")
    for source in (folder, sorted(folder.iterdir())):
        data = convert(source, tmp_path / "out", name="mine")
        check_rows(data)
        np.testing.assert_array_equal(data.labels_by_modality()["image"], CLASSES)
        assert data.name == "mine"


def test_parts_in_several_matlab_files(tmp_path: Path) -> None:
    both = wikilike()
    paths = [
        WRITERS[version](
            tmp_path / f"{end}.mat", {name: a for name, a in both.items() if name.endswith(end)}
        )
        for end, version in (("te", "v5"), ("tr", "v7.3"))
    ]
    data = convert(paths, tmp_path / "out")
    check_rows(data)
    np.testing.assert_array_equal(data.labels_by_modality()["image"], CLASSES - 1)


def test_a_map_stacks_arrays_and_names_parts(tmp_path: Path) -> None:
    path = write_v5(tmp_path / "set.mat", wikilike())
    data = convert(path, tmp_path / "a", map=parse_map(["picture=I_tr,I_te", "labels=L_tr,L_te"]))
    np.testing.assert_array_equal(data.views["picture"], IMAGES)
    assert data.splits == {}
    entries = ["sound:early=I_tr", "sound:late=I_te", "labels:early=L_tr", "labels:late=L_te"]
    assert convert(path, tmp_path / "b", map=parse_map(entries)).describe()["splits"] == {
        "early": 5,
        "late": 2,
    }


def test_unpaired_views_with_labels_per_modality(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", a=IMAGES, b=TEXTS[:4], la=CLASSES, lb=CLASSES[:4])
    names = {"image": "a", "text": "b", "labels.image": "la", "labels.text": "lb"}
    data = convert(tmp_path / "set.npz", tmp_path / "out", map=names)
    assert not data.aligned
    np.testing.assert_array_equal(data.labels_by_modality()["text"], CLASSES[:4])
    with pytest.raises(
        DataError,
        match=r"the numbers of rows differ: view 'image' \[\(7, 4\)\], view 'text' \[\(4, 3\)\]",
    ):
        convert(tmp_path / "set.npz", tmp_path / "out", map={"image": "a", "text": "b"})


def test_unpaired_views_in_parts(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", a=IMAGES, b=TEXTS, la=CLASSES, lb=CLASSES[:5])
    entries = ["image:train=a", "text:train=b", "labels.image:train=la", "labels.text:train=lb"]
    with pytest.raises(DataError, match=r"the numbers of rows differ in 'train': view 'text'"):
        read(tmp_path / "set.npz", map=parse_map(entries))
    np.savez(tmp_path / "set.npz", a=IMAGES, b=TEXTS[:5], la=CLASSES, lb=CLASSES[:5])
    data = read(tmp_path / "set.npz", map=parse_map(entries))
    np.testing.assert_equal(data.splits, {"train": {"image": np.arange(7), "text": np.arange(5)}})


@pytest.mark.parametrize(
    ("arrays", "names", "message"),
    [
        (
            {"XAll": IMAGES},
            {"image": "YAll"},
            r"there is no array 'YAll'; the arrays are XAll \(7, 4\)",
        ),
        (
            {"foo": IMAGES},
            None,
            r"no views found; the arrays are foo \(7, 4\); assign roles, such as --map",
        ),
        (
            {"I_tr": IMAGES, "T_te": TEXTS},
            None,
            "view 'image': nothing for 'test', others have 'train', 'test'",
        ),
        (
            {"XAll": IMAGES, "L_tr": CLASSES},
            None,
            "nothing for 'train', others have 'train', all rows",
        ),
        (
            {"XAll": IMAGES, "IAll": IMAGES},
            None,
            "'XAll' and 'IAll' both look like image; choose one with --map image=…",
        ),
        (
            {"I_tr": IMAGES, "I_te": TEXTS},
            None,
            r"view 'image': its parts have rows of different shapes",
        ),
        ({"XAll": IMAGES[:, 0]}, {"image": "XAll"}, "differ|expected"),
        ({"XAll": IMAGES, "LAll": IMAGES}, None, "labels: expected classes"),
        (
            {"I_tr": IMAGES, "L_tr": SEVERAL, "I_te": IMAGES, "L_te": CLASSES},
            None,
            "labels: the splits have different",
        ),
        ({"XAll": IMAGES, "LAll": CLASSES[:5]}, None, "the numbers of rows differ"),
        (
            {"XAll": np.where(IMAGES[3, 1] == IMAGES, np.nan, IMAGES)},
            None,
            r"'XAll', row 3 \(counted from 0\): the row of 'image' contains NaN",
        ),
        (
            {"XAll": IMAGES},
            {"../x": "XAll"},
            "the target of a map entry must be|letters, digits and underscores",
        ),
        ({"XAll": IMAGES}, {"image": "XAll", "split:a": "XAll"}, "expected integer row numbers"),
        (
            {"XAll": IMAGES, "indexTest": [9.0]},
            None,
            "'indexTest': row numbers in .mat files must be between 1 and 7, got 9",
        ),
        (
            {"XAll": IMAGES, "indexTest": [0, 3]},
            None,
            "row numbers in .mat files must be between 1 and 7, got 0 … 3",
        ),
        (
            {"XAll": IMAGES, "indexTest": [1, 0, 1]},
            None,
            "row numbers in .mat files must be between 1",
        ),
        ({"XAll": IMAGES, "indexTest": [np.inf]}, None, "expected integer row numbers"),
        (
            {"XAll": IMAGES * 1j},
            None,
            r"set\.mat: 'XAll' looks like image but holds complex128 instead of real numbers",
        ),
        (
            {"XAll": IMAGES, "tags": np.array(["a", "b"])},
            None,
            r"'tags' looks like text but holds <U1",
        ),
        (
            {"XAll": IMAGES, "c": np.array([[], {}], object)},
            {"image": "c"},
            "'c' looks like image but holds object",
        ),
    ],
)
def test_invalid_input_is_rejected_and_nothing_is_written(
    arrays: dict[str, Any], names: dict[str, str] | None, message: str, tmp_path: Path
) -> None:
    path = write_v5(tmp_path / "set.mat", arrays)
    if arrays.keys() == {"XAll"} and np.asarray(arrays["XAll"]).ndim == 1:
        path = tmp_path / "set.npz"
        np.savez(path, **arrays)
    with pytest.raises(DataError, match=message):
        convert(path, tmp_path / "out", map=names)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.mat: no such file"):
        read(tmp_path / "nowhere.mat")
    with pytest.raises(
        DataError,
        match=r"set\.xlsx: no such file; expected a file that ends with one of \['\.csv",
    ):
        read(tmp_path / "set.xlsx")
    (tmp_path / "set.xlsx").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"set\.xlsx: expected a file that ends with one of \['\.csv', "
    ):
        read(tmp_path / "set.xlsx")
    with pytest.raises(DataError, match="nothing to convert"):
        read([])
    with pytest.raises(DataError, match="no file in this folder ends with"):
        read(tmp_path)
    for suffix in ("mat", "npz", "npy", "parquet", "h5"):
        (tmp_path / f"bad.{suffix}").write_bytes(b"not what it claims to be" * 40)
        problem = "not a complete" if suffix == "npy" else "cannot be read as"
        with pytest.raises(FormatError, match=rf"bad\.{suffix}: {problem} \.?{suffix}"):
            read(tmp_path / f"bad.{suffix}")
    whole = write_v73(tmp_path / "whole.mat", {"XAll": IMAGES}).read_bytes()
    (tmp_path / "half.mat").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match=r"half\.mat: cannot be read as \.mat"):
        read(tmp_path / "half.mat")


@pytest.mark.parametrize("suffix", ["npz", "mat", "h5", "parquet"])
def test_every_kind_of_corruption_is_named(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"set.{suffix}"
    if suffix == "npz":
        np.savez_compressed(path, image=IMAGES, text=TEXTS)
    elif suffix == "mat":
        scipy.io.savemat(path, {"XAll": IMAGES, "YAll": TEXTS}, do_compression=True)
    elif suffix == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"image": IMAGES.tolist()}), path)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("image", data=np.zeros((200, 30)), compression="gzip")
    whole = path.read_bytes()
    damaged = [b"", whole[:20], whole[: len(whole) // 2], whole[:-3]]
    places = np.random.default_rng(1).integers(len(whole), size=40)
    damaged += [whole[:k] + bytes([whole[k] ^ 0x55]) + whole[k + 1 :] for k in places]
    seen = 0
    for raw in damaged:
        path.write_bytes(raw)
        try:
            read(path)
        except FormatError as error:
            assert f"set.{suffix}: " in str(error)  # noqa: PT017
            seen += 1
        except DataError:
            pass
    assert seen >= 4


def test_corruption_inside_an_hdf5_file_is_named_when_it_is_read(tmp_path: Path) -> None:
    for path, name in ((tmp_path / "set.h5", "image"), (tmp_path / "set.mat", "XAll")):
        with h5py.File(path, "w") as file:
            data = file.create_dataset(
                name, data=np.zeros((200, 30)), compression="gzip", chunks=(200, 30)
            )
            offset = data.id.get_chunk_info(0).byte_offset
        raw = bytearray(path.read_bytes())
        raw[offset : offset + 8] = b"\xff" * 8
        path.write_bytes(raw)
        with pytest.raises(FormatError, match=rf"set\.(h5|mat): /{name} cannot be read"):
            convert(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_two_arrays_of_one_name_are_rejected(tmp_path: Path) -> None:
    paths = [write_v5(tmp_path / f"{k}.mat", {"XAll": IMAGES}) for k in range(2)]
    with pytest.raises(DataError, match=r"1\.mat and .*0\.mat both hold 'XAll'"):
        read(paths)


@pytest.mark.parametrize(
    ("suffix", "library", "module"),
    [
        ("csv", "pyarrow", "pyarrow.csv"),
        ("parquet", "pyarrow", "pyarrow.parquet"),
        ("mat", "scipy", "scipy.io"),
        ("h5", "h5py", "h5py"),
    ],
)
def test_a_missing_library_says_what_to_install(
    suffix: str, library: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"set.{suffix}").write_text("anything")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingExtraError, match=rf"'{library}' is not installed\. .*pip install .*\[data\]'"
    ):
        read(tmp_path / f"set.{suffix}")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("image", "a map entry must be target=array"),
        ("image=", "a map entry must be target=array"),
        ("a:b:c=X", "the target of a map entry must be like image, image:train"),
        ("image.text=X", "the target of a map entry must be like image, image:train"),
    ],
)
def test_invalid_map_entries_are_rejected(entry: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_map([entry])
    with pytest.raises(DataError, match="the map contains 'image' twice"):
        parse_map(["image=A", "image=B"])


def test_labels_mapped_as_a_view_are_refused_with_the_remedy(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", a=np.ones((5, 3)), y=np.arange(5))
    with pytest.raises(DataError, match=r"view 'label': .* mapped as labels=<array>"):
        read(tmp_path / "set.npz", map={"text": "a", "label": "y"})

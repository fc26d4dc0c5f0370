"""Frames of pandas and polars: as views, labels and payloads, and as results."""

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet
import pytest

from crossbit import LSH, Codes, Collection, Dataset, HammingIndex, HashModel, Hit, _frames
from crossbit.collection import Results
from crossbit.data import read, synthetic, training_set
from crossbit.errors import DataError, MissingExtraError
from crossbit.metrics import evaluate, same_class
from crossbit.model import Affine

X = np.arange(8.0).reshape(4, 2) - 3
LIBRARIES = pytest.mark.parametrize("library", ["pandas", "polars"])


def frame(library: str, columns: dict[str, Any]) -> Any:  # noqa: ANN401
    return {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library](columns)


@LIBRARIES
def test_views_may_be_frames_and_columns_of_lists(library: str) -> None:
    wide = frame(library, {"a": X[:, 0], "b": X[:, 1]})
    lists = frame(library, {"row": X.tolist()})["row"]
    model = LSH(n_bits=8).fit({"image": wide, "text": lists})
    assert model == LSH(n_bits=8).fit({"image": X, "text": X})
    assert model.encode("image", wide) == model.encode("image", X)
    assert model.encode("text", lists) == model.encode("text", X)


@LIBRARIES
def test_missing_cells_are_nan(library: str) -> None:
    wide = frame(library, {"a": [1, None, 3], "b": [2, None, 4]})
    data = training_set({"image": wide, "text": X[:3]})
    assert data.present["image"].tolist() == [True, False, True]
    lists = frame(library, {"row": [[1.0, 2.0], None, [3.0, 4.0]]})["row"]
    assert training_set({"image": lists}).present["image"].tolist() == [True, False, True]
    nullable = pd.DataFrame({"a": [1, None, 3], "b": [2, None, 4]}, dtype="Float64")
    assert training_set({"image": nullable}).present["image"].tolist() == [True, False, True]
    with pytest.raises(DataError, match="view 'image': expected numbers, got an array of object"):
        training_set({"image": frame(library, {"a": [1, 2], "b": ["x", "y"]})})


@LIBRARIES
def test_labels_may_be_words_of_a_column(library: str) -> None:
    words = frame(library, {"label": ["dog", "cat", None, "dog"]})["label"]
    data = training_set({"image": X}, labels=words)
    assert data.labels["image"].tolist() == [1, 0, -1, 1]


def test_words_of_two_modalities_are_numbered_together() -> None:
    labels: dict[str, Any] = {
        "image": ["dog", "cat", "dog", "cat"],
        "text": np.array(["owl", "cat"]),
    }
    data = training_set({"image": X, "text": X[:2]}, labels=labels)
    assert data.labels["image"].tolist() == [1, 0, 1, 0]
    assert data.labels["text"].tolist() == [2, 0]
    relevant = same_class(["owl", "cat"], ["dog", "owl"]).levels(slice(0, 2))
    assert relevant.tolist() == [[0, 1], [0, 0]]


def test_several_words_per_row_are_several_classes() -> None:
    data = training_set({"image": X}, labels=[["dog", "cat"], [], ["owl"], ["cat"]])
    assert data.labels["image"].astype(int).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]


def test_a_data_set_keeps_the_words_as_class_names() -> None:
    data = Dataset(views={"image": X}, labels=np.array(["dog", "cat", "dog", "cat"]))
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [1, 0, 1, 0]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="so leave classes out"):
        Dataset(views={"image": X[:1]}, labels=np.array(["dog"]), classes=["x"])


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    model = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
    return Collection.create(tmp_path / "photos", model)


@LIBRARIES
def test_a_frame_of_payloads(library: str, collection: Collection) -> None:
    table = frame(
        library,
        {
            "id": ["a", "b"],
            "year": [2010, 2020],
            "title": ["x", None],
            "score": [0.5, float("nan")],
            "day": [datetime.date(2024, 5, 1), datetime.date(2024, 5, 2)],
        },
    )
    payload = table.drop(columns="id") if library == "pandas" else table.drop("id")
    collection.upsert(table["id"], {"image": X[:2]}, payload)
    first, second = collection.get(["a", "b"])
    assert first is not None
    assert second is not None
    assert first.payload == {"year": 2010, "title": "x", "score": 0.5, "day": "2024-05-01"}
    assert second.payload == {"year": 2020, "day": "2024-05-02"}
    (hits,) = collection.search("image", X[:1], filter={"year": {">=": 2015}})
    assert [hit.id for hit in hits] == ["b"]


def test_numpy_values_in_payloads_are_plain(collection: Collection) -> None:
    payload = {
        "year": np.int64(2010),
        "score": np.float32(0.5),
        "good": np.bool_(True),
        "tags": [np.str_("a"), "b"],
        "nested": {"sizes": [np.int8(1), 2]},
    }
    collection.index_field("year")
    collection.upsert(["a"], {"image": X[:1]}, [payload])
    (item,) = collection.get(["a"])
    assert item is not None
    plain = {
        "year": 2010,
        "score": 0.5,
        "good": True,
        "tags": ["a", "b"],
        "nested": {"sizes": [1, 2]},
    }
    assert item.payload == plain
    assert isinstance(item.payload["year"], int)
    (hits,) = collection.search("image", X[:1], filter={"year": 2010})
    assert len(hits) == 1
    for value, problem in ((np.float64("nan"), "not representable"), (np.uint64(2**64 - 1), "64")):
        with pytest.raises(DataError, match=problem):
            collection.upsert(["b"], payload=[{"x": value}])


@LIBRARIES
def test_hits_matches_and_reports_as_frames(library: str) -> None:
    hits = [
        Hit("a", 0, 1.0, "image", {"year": 2010, "id": 7}),
        Hit("b", 1, 0.5, "text", {"tags": ["x"]}),
    ]
    codes = Codes.pack([[True, False], [True, True]])
    table = Results(hits, codes).to_frame(library)
    names = ["id", "distance", "similarity", "modality", "year", "payload.id", "tags"]
    assert list(table.columns) == names
    assert list(table["id"]) == ["a", "b"]
    assert list(Results([], codes).to_frame(library).columns) == names[:4]
    index = HammingIndex(2)
    index.add([5, 9], codes)
    matches = index.search(codes, 3).to_frame(library)
    assert [list(matches[name]) for name in ("query", "rank", "id", "distance")] == [
        [0, 0, 1, 1],
        [1, 2, 1, 2],
        [5, 9, 9, 5],
        [0, 1, 0, 1],
    ]
    report = evaluate(codes, codes, same_class([0, 1], [0, 1])).to_frame(library)
    assert next(iter(report["name"])) == "mAP"
    assert {"value", "low", "high", "chance", "definition"} <= set(report.columns)


@LIBRARIES
def test_a_data_set_survives_a_frame_and_a_parquet_file(library: str, tmp_path: Path) -> None:
    views = {name: np.array(view) for name, view in synthetic(n=6, classes=2).views.items()}
    views["text"][2] = np.nan
    data = Dataset(
        views=views,
        labels=np.array(["dog", "cat"] * 3),
        splits={"train": np.arange(4), "test": np.arange(4, 6)},
        payload=[{"title": f"number {k}"} for k in range(6)],
    )
    table = data.to_frame(library)
    if library == "pandas":
        table.to_parquet(tmp_path / "set.parquet")
    else:
        table.write_parquet(tmp_path / "set.parquet")
    again = read(tmp_path / "set.parquet")
    for name, view in data.views.items():
        np.testing.assert_array_equal(again.views[name], view)
    assert again.classes == data.classes
    np.testing.assert_array_equal(again.labels, data.labels)
    assert {name: rows.tolist() for name, rows in again.splits.items()} == {  # type: ignore[union-attr]
        "train": [0, 1, 2, 3],
        "test": [4, 5],
    }
    assert again.payload == data.payload
    assert pyarrow.parquet.read_schema(tmp_path / "set.parquet").names[0] == "title"


def test_codes_as_an_array_are_zeros_and_ones() -> None:
    codes = Codes.pack([[True, False, True], [False, False, True]])
    bits = np.asarray(codes)
    assert bits.dtype == np.uint8
    assert bits.tolist() == [[1, 0, 1], [0, 0, 1]]
    assert np.asarray(codes, bool).dtype == bool
    assert Codes.pack(bits) == codes
    with pytest.raises(ValueError, match="always a copy"):
        np.array(codes, copy=False)


def test_an_unknown_or_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="library must be 'pandas' or 'polars', got 'duckdb'"):
        _frames.to_frame({}, "duckdb")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match="'polars' is not installed"):
        _frames.to_frame({}, "polars")


def test_no_frame_library_is_imported_unless_it_is_used() -> None:
    script = (
        "import sys, numpy as np, crossbit;"
        "model = crossbit.LSH(n_bits=8).fit({'image': np.eye(3)});"
        "print({'pandas', 'polars', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"

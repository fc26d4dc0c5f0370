"""Encoding on Ray: the codes of one machine, from files of either kind, to a file or into a collection."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from benchmarks._standalone import Standalone
from crossbit import LSH, Codes, Collection, DataError, HashModel
from crossbit.distributed import Work, encode, encode_into

pytestmark = pytest.mark.usefixtures("cluster")
COUNTS = (700, 1, 450)


@pytest.fixture(scope="module")
def rows() -> list[Any]:
    random = np.random.default_rng(0)
    made = [random.normal(size=(n, 16)).astype(np.float32) for n in COUNTS]
    made[0][5] = np.nan  # absent
    return made


@pytest.fixture(scope="module")
def model(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    LSH(n_bits=96).fit({"image": rows[2]}).save(folder)
    return folder


@pytest.fixture(scope="module")
def arrays(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for number, some in enumerate(rows):
        np.save(folder / f"{number}.npy", some)
    return folder


@pytest.fixture(scope="module")
def tables(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for number, some in enumerate(rows):
        lists = [None if np.isnan(row).all() else row.tolist() for row in some]
        ids = [f"{number}/{row}" for row in range(len(some))]
        table = pyarrow.table(
            {"id": ids, "embedding": pyarrow.array(lists, pyarrow.list_(pyarrow.float32()))}
        )
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=200)
    return folder


def here(model: Path, rows: list[Any]) -> Codes:
    X = np.concatenate(rows)
    return HashModel.load(model).encode("image", X[~np.isnan(X[:, 0])])


def test_arrays_and_tables_have_the_codes_of_one_machine(
    model: Path, arrays: Path, tables: Path, rows: list[Any]
) -> None:
    done: list[int] = []
    from_arrays = encode(
        Work(model, arrays, "image", block=300, skip_absent=True), on_rows=done.append
    )
    from_tables = encode(Work(model, tables, "image", column="embedding", skip_absent=True))
    assert from_arrays.codes == from_tables.codes == here(model, rows)
    np.testing.assert_array_equal(from_arrays.rows, np.delete(np.arange(sum(COUNTS)), 5))
    assert from_arrays.n_rows == sum(done) == sum(COUNTS)


def test_a_collection_has_every_item_once_however_often(
    model: Path, tables: Path, rows: list[Any], tmp_path: Path
) -> None:
    place = tmp_path / "items"
    with Collection.create(place, HashModel.load(model)) as made:
        made.upsert(["0/1"], payload=[{"kept": True}])
    for _ in range(2):
        assert (
            encode_into(place, Work(model, tables, "image", column="embedding")) == sum(COUNTS) - 1
        )
    ids = [
        f"{number}/{row}"
        for number, n in enumerate(COUNTS)
        for row in range(n)
        if (number, row) != (0, 5)
    ]
    with Collection.open(place) as opened:
        assert len(opened) == len(ids)
        items = opened.get(ids)
        assert items[1] is not None
        assert items[1].payload == {"kept": True}
        words = np.concatenate([item.codes["image"].words for item in items if item is not None])
        assert Codes(words, 96) == here(model, rows)


def test_rows_named_by_numbers_go_into_a_collection(
    model: Path, arrays: Path, tmp_path: Path
) -> None:
    with Collection.create(tmp_path / "items", HashModel.load(model)):
        pass
    assert (
        encode_into(tmp_path / "items", Work(model, arrays, "image", block=500)) == sum(COUNTS) - 1
    )
    with Collection.open(tmp_path / "items") as opened:
        assert 5 not in opened
        assert sum(COUNTS) - 1 in opened


def test_what_a_worker_refuses_is_told_as_it_is(
    model: Path, arrays: Path, tables: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"0\.npy, from row 0: rows of 'image': row 5 contains NaN"):
        encode(Work(model, arrays / "0.npy", "image"))
    with pytest.raises(
        DataError, match=r"0\.parquet: there is no column 'image'; it has \['id', 'embedding'\]"
    ):
        encode(Work(model, tables, "image"))
    np.save(tmp_path / "wide.npy", np.zeros((3, 5)))
    with pytest.raises(DataError, match=r"expected shape \(n, 16\), got \(3, 5\)"):
        encode(Work(model, tmp_path / "wide.npy", "image"))


def test_another_model_is_refused(
    model: Path, arrays: Path, rows: list[Any], tmp_path: Path
) -> None:
    with Collection.create(tmp_path / "items", LSH(n_bits=96, seed=1).fit({"image": rows[2]})):
        pass
    with pytest.raises(DataError, match=r"holds codes of the model .*, not of .*, which was given"):
        encode_into(tmp_path / "items", Work(model, arrays, "image"))
    with pytest.raises(DataError, match="unknown modality 'text'"):
        encode(Work(model, arrays, "text"))


def test_workers_write_to_a_server_themselves(
    model: Path, tables: Path, rows: list[Any], milvus_server: Standalone
) -> None:
    place, loaded = milvus_server.address("by_workers"), HashModel.load(model)
    Collection.create(place, loaded).close()
    for _ in range(2):
        assert (
            encode_into(place, Work(model, tables, "image", column="embedding")) == sum(COUNTS) - 1
        )
    ids = [
        f"{number}/{row}"
        for number, n in enumerate(COUNTS)
        for row in range(n)
        if (number, row) != (0, 5)
    ]
    with Collection.open(place, loaded) as opened:
        assert len(opened) == len(ids)
        words = np.concatenate(
            [item.codes["image"].words for item in opened.get(ids) if item is not None]
        )
    assert Codes(words, 96) == here(model, rows)

"""Encoding on Ray from .npy and parquet files, to codes or into a collection."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from benchmarks._standalone import Standalone
from crossbit import LSH, Codes, Collection, DataError, HashModel
from crossbit.distributed import EncodingJob, encode, encode_into

pytestmark = pytest.mark.usefixtures("cluster")
COUNTS = (700, 1, 450)


@pytest.fixture(scope="module")
def rows() -> list[Any]:
    random = np.random.default_rng(0)
    parts = [random.normal(size=(n, 16)).astype(np.float32) for n in COUNTS]
    parts[0][5] = np.nan  # absent
    return parts


@pytest.fixture(scope="module")
def model(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    LSH(n_bits=96).fit({"image": rows[2]}).save(folder)
    return folder


@pytest.fixture(scope="module")
def arrays(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for number, part in enumerate(rows):
        np.save(folder / f"{number}.npy", part)
    return folder


@pytest.fixture(scope="module")
def tables(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for number, part in enumerate(rows):
        lists = [None if np.isnan(row).all() else row.tolist() for row in part]
        ids = [f"{number}/{row}" for row in range(len(part))]
        table = pyarrow.table(
            {"id": ids, "embedding": pyarrow.array(lists, pyarrow.list_(pyarrow.float32()))}
        )
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=200)
    return folder


def encode_locally(model: Path, rows: list[Any]) -> Codes:
    X = np.concatenate(rows)
    return HashModel.load(model).encode("image", X[~np.isnan(X[:, 0])])


def item_ids() -> list[str]:
    """Ids of all rows but the absent one."""
    ids = [f"{number}/{row}" for number, n in enumerate(COUNTS) for row in range(n)]
    ids.remove("0/5")
    return ids


def test_arrays_and_tables_have_the_codes_of_one_machine(
    model: Path, arrays: Path, tables: Path, rows: list[Any]
) -> None:
    done: list[int] = []
    from_arrays = encode(
        EncodingJob(model, arrays, "image", block_rows=300, skip_absent=True), on_rows=done.append
    )
    from_tables = encode(EncodingJob(model, tables, "image", column="embedding", skip_absent=True))
    assert from_arrays.codes == from_tables.codes == encode_locally(model, rows)
    np.testing.assert_array_equal(from_arrays.rows, np.delete(np.arange(sum(COUNTS)), 5))
    assert from_arrays.n_rows == sum(done) == sum(COUNTS)


def test_encoding_twice_into_a_collection_writes_every_item_once(
    model: Path, tables: Path, rows: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "items"
    with Collection.create(path, HashModel.load(model)) as collection:
        collection.upsert(["0/1"], payload=[{"kept": True}])
    job = EncodingJob(model, tables, "image", column="embedding")
    for _ in range(2):
        assert encode_into(path, job) == sum(COUNTS) - 1
    ids = item_ids()
    with Collection.open(path) as collection:
        assert len(collection) == len(ids)
        items = collection.get(ids)
        assert items[1] is not None
        assert items[1].payload == {"kept": True}
        words = np.concatenate([item.codes["image"].words for item in items if item is not None])
        assert Codes(words, 96) == encode_locally(model, rows)


def test_rows_without_ids_are_numbered(model: Path, arrays: Path, tmp_path: Path) -> None:
    with Collection.create(tmp_path / "items", HashModel.load(model)):
        pass
    job = EncodingJob(model, arrays, "image", block_rows=500)
    assert encode_into(tmp_path / "items", job) == sum(COUNTS) - 1
    with Collection.open(tmp_path / "items") as collection:
        assert 5 not in collection
        assert sum(COUNTS) - 1 in collection


def test_errors_of_workers_are_raised(
    model: Path, arrays: Path, tables: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        DataError, match=r"0\.npy, row 5 \(counted from 0\): the row of 'image' contains NaN"
    ):
        encode(EncodingJob(model, arrays / "0.npy", "image"))
    with pytest.raises(
        DataError, match=r"0\.parquet: no column 'image'; it has \['id', 'embedding'\]"
    ):
        encode(EncodingJob(model, tables, "image"))
    np.save(tmp_path / "wide.npy", np.zeros((3, 5)))
    with pytest.raises(DataError, match=r"expected shape \(n, 16\), got \(3, 5\)"):
        encode(EncodingJob(model, tmp_path / "wide.npy", "image"))


def test_another_model_is_refused(
    model: Path, arrays: Path, rows: list[Any], tmp_path: Path
) -> None:
    with Collection.create(tmp_path / "items", LSH(n_bits=96, seed=1).fit({"image": rows[2]})):
        pass
    with pytest.raises(DataError, match=r"holds codes of the model \w+, not of the given model"):
        encode_into(tmp_path / "items", EncodingJob(model, arrays, "image"))
    with pytest.raises(DataError, match="unknown modality 'text'"):
        encode(EncodingJob(model, arrays, "text"))


def test_workers_write_to_a_server_themselves(
    model: Path, tables: Path, rows: list[Any], milvus_server: Standalone
) -> None:
    uri = milvus_server.address("by_workers")
    loaded = HashModel.load(model)
    Collection.create(uri, loaded).close()
    job = EncodingJob(model, tables, "image", column="embedding")
    for _ in range(2):
        assert encode_into(uri, job) == sum(COUNTS) - 1
    ids = item_ids()
    with Collection.open(uri, loaded) as collection:
        assert len(collection) == len(ids)
        items = [item for item in collection.get(ids) if item is not None]
        words = np.concatenate([item.codes["image"].words for item in items])
    assert Codes(words, 96) == encode_locally(model, rows)

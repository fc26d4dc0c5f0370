"""What only collections on Milvus do."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._standalone import Standalone
from crossbit import (
    BackendError,
    Codes,
    Collection,
    DataError,
    FormatError,
    HashModel,
    MissingExtraError,
)
from crossbit.collection import transfer
from crossbit.collection.filters import matches_all, parse_filter
from crossbit.collection.milvus import io, query
from crossbit.collection.milvus.io import MilvusTable
from crossbit.collection.milvus.schema import StoredItem
from crossbit.model import Affine
from tests.contracts.test_collections import FIELDS, VALUES, conditions
from tests.faults.operations import WIDTHS, model
from tests.test_docs import blocks

random = np.random.default_rng(5)


def views(n: int) -> dict[str, np.ndarray]:
    return {name: random.normal(size=(n, width)) for name, width in WIDTHS.items()}


def signs(n_bits: int) -> HashModel:
    """A model whose codes are signs of the rows."""
    return HashModel({"x": [Affine(np.eye(n_bits), np.zeros(n_bits))]}, n_bits)


def eventually(holds_now: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds_now():
            return True
        time.sleep(0.1)
    return False


# --- identity and model ---


def test_a_collection_has_one_model_and_one_name(address: str) -> None:
    with pytest.raises(
        DataError, match=r"there is no such collection; create one with Collection.create"
    ):
        Collection.open(address, model(0))
    assert not Collection.exists(address)
    Collection.create(address, model(0)).close()
    assert Collection.exists(address)
    with pytest.raises(
        DataError, match=r"exists already; open it with Collection.open, or choose another name"
    ):
        Collection.create(address, model(0))
    with pytest.raises(
        DataError,
        match=r"holds codes of the model \w{16}, not of the given model \w{16}; open it with",
    ):
        Collection.open(address, model(1))


def test_a_collection_of_another_program_is_not_touched(address: str) -> None:
    Collection.create(address, model(0)).close()
    with Collection.open(address, model(0)) as collection:
        table: MilvusTable = collection._store._table  # type: ignore[attr-defined]
        table.delete_rows(["!state"])
        assert table.rows(["!state"]) == []  # waits until the server has seen it
    with pytest.raises(FormatError, match=r"not a collection of crossbit .*; choose another name"):
        Collection.open(address, model(0))


def test_an_upgrade_invalidates_other_open_objects(address: str) -> None:
    X = views(4)
    with Collection.create(address, model(0)) as first, Collection.open(address, model(0)) as other:
        first.upsert(range(4), X)
        with pytest.raises(DataError, match="does not keep features; pass them: upgrade"):
            first.upgrade(model(1))
        with pytest.raises(
            DataError, match="holds codes of 3 bytes, the new model makes 100 bits; create another"
        ):
            first.upgrade(
                HashModel(
                    {
                        name: [Affine(np.ones((w, 100)), np.zeros(100))]
                        for name, w in WIDTHS.items()
                    },
                    100,
                ),
                [],
            )
        with pytest.raises(
            DataError, match="the new model has no modality 'image', which items have"
        ):
            first.upgrade(HashModel({"text": [Affine(np.ones((4, 20)), np.zeros(20))]}, 20), [])
        first.upgrade(model(1), [(range(4), X)])
        for call in (lambda: other.search("text", X["text"]), lambda: other.upsert(range(4), X)):
            with pytest.raises(DataError, match="open it with the model of its codes"):
                call()
        assert len(first.search("text", X["text"][:1])[0]) == 4


# --- search ---


@pytest.mark.parametrize("n_bits", [1, 7, 8, 20, 64, 65, 200])
def test_any_number_of_bits(tmp_path: Path, n_bits: int) -> None:
    X, queries = random.normal(size=(30, n_bits)), random.normal(size=(3, n_bits))
    with Collection.create(f"milvus://{tmp_path}/items.db/bits", signs(n_bits)) as collection:
        collection.upsert(range(30), {"x": X})
        expected = np.sort(((queries[:, None] >= 0) ^ (X[None] >= 0)).sum(axis=2), axis=1)
        results = collection.search("x", queries, k=30)
        assert [[hit.distance for hit in hits] for hits in results] == expected.tolist()
        assert [item.codes["x"] for item in collection.get(range(30)) if item] == [
            Codes.pack(x[None] >= 0) for x in X
        ]


def test_more_neighbors_and_items_than_a_server_returns_at_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "_MAX_LIMIT", 20)
    monkeypatch.setattr(io, "PAGE", 7)
    X = views(50)
    with Collection.create(address, model(0)) as collection:
        collection.upsert(range(50), X, [{"é": i % 2} for i in range(50)])
        hits = collection.search("text", X["text"][:1], k=1000)[0]
        assert {hit.id for hit in hits} == set(range(50))
        assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)
        # The server cannot filter by this field.
        odd = collection.search("text", X["text"][:1], k=1000, filter={"é": 1})[0]
        assert [hit for hit in hits if hit.id % 2] == odd
        assert collection.search("text", X["text"][:1], k=4, filter={"é": {"in": []}}) == [[]]
        assert {item.id for item in collection} == set(range(50))


def test_the_server_returns_everything_that_meets_a_filter(address: str) -> None:
    payloads = st.lists(st.dictionaries(FIELDS, VALUES, max_size=3), min_size=150, max_size=150)
    texts: list[dict[str, object]] = []

    @settings(max_examples=3)
    @given(payloads)
    def draw(results: list[dict[str, object]]) -> None:
        texts[:] = results

    draw()
    with Collection.create(address, model(0)) as collection:
        collection.upsert(range(150), {"text": views(150)["text"]}, texts)

        @settings(max_examples=150)
        @given(conditions())
        def agree(where: dict[str, object]) -> None:
            hits = collection.search("text", np.ones((1, WIDTHS["text"])), k=200, filter=where)[0]
            assert {hit.id for hit in hits} == {
                i for i, own in enumerate(texts) if matches_all(parse_filter(where), own)
            }

        agree()


def test_an_approximate_index_reports_its_recall(
    milvus_server: Standalone, unused_name: str
) -> None:
    X = random.normal(size=(3000, 64))
    address = milvus_server.address(unused_name, options="?index=ivf&nlist=64&nprobe=64")
    with Collection.create(address, signs(64)) as collection:
        collection.upsert(range(3000), {"x": X})
        assert collection.stats().recall == {"x": 1.0}
        expected = collection.search("x", X[:5], k=10)
    address = milvus_server.address(unused_name, options="?nprobe=1")
    with Collection.open(address, signs(64)) as collection:
        assert 0 < collection.stats().recall["x"] <= 1
        assert [hits[0] for hits in collection.search("x", X[:5], k=10)] == [
            hits[0] for hits in expected
        ]
        assert collection.stats().to_dict()["recall"].keys() == {"x"}


# --- visibility ---


def test_others_see_what_was_written(milvus_server: Standalone, unused_name: str) -> None:
    X, address = views(3), milvus_server.address(unused_name)
    with (
        Collection.create(address, model(0)) as writer,
        Collection.open(address, model(0)) as reader,
    ):
        writer.upsert(range(3), X)
        assert len(writer) == 3
        assert eventually(lambda: len(reader) == 3)
        with Collection.open(f"{address}?consistency=strong", model(0)) as strict:
            for i in range(3):
                writer.delete([i])
                assert len(writer) == len(strict) == 2 - i


# --- storage ---


def test_a_payload_that_is_too_large_for_the_server(address: str) -> None:
    with Collection.create(address, model(0)) as collection:
        with pytest.raises(
            DataError,
            match="payload of 'b': 70008 bytes of JSON; Milvus stores at most 65536; keep large",
        ):
            collection.upsert(["a", "b"], payload=[{}, {"t": "x" * 70_000}])
        assert len(collection) == 0


def test_responses_that_are_larger_than_a_server_sends(
    milvus_server: Standalone, unused_name: str
) -> None:
    n, text = 1200, "x" * 60_000
    with Collection.create(milvus_server.address(unused_name), signs(8), timeout=60) as collection:
        X = random.normal(size=(n, 8))
        collection.upsert(range(n), {"x": X}, [{"n": i, "t": text} for i in range(n)])
        assert sum(len(item.payload["t"]) for item in collection) == n * len(text)
        assert [item.payload["n"] for item in collection.get(range(n)) if item is not None] == list(
            range(n)
        )
        assert len(collection.search("x", X[:1], k=n)[0]) == n
        assert [len(hits) for hits in collection.search("x", X[:3], k=500)] == [500] * 3


def test_items_whose_rows_disagree_are_found_and_repaired(address: str) -> None:
    X = views(4)
    with Collection.create(address, model(0)) as collection:
        collection.upsert(range(4), X, [{"n": i} for i in range(4)])
        before = list(collection)
        table: MilvusTable = collection._store._table  # type: ignore[attr-defined]
        (row,) = table.rows(["n2/1"])
        torn = {**row, "code": row["code"][0], "payload": {"n": -1}, "first": True}
        table.connection.call("upsert", [torn])
        (finding,) = collection.check()
        assert str(finding).endswith("the rows of item 2 disagreed; rebuilt")
        assert collection.check() == []
        assert list(collection) == before
        assert len(collection) == 4


def test_copies_in_both_directions(address: str, tmp_path: Path) -> None:
    X = views(30)
    with (
        Collection.create(tmp_path / "here", model(0)) as here,
        Collection.create(address, model(0)) as there,
    ):
        here.upsert(range(30), X, [{"n": i, "x": i / 7, "tags": ["ü", None]} for i in range(30)])
        here.upsert(["bare"], payload=[{"a": True}])
        assert transfer.copy(here, there) == 31
        assert transfer.verify(here, there).items == 31
        there.delete([3, 4])
        assert transfer.copy(here, there) == 2
        with Collection.create(tmp_path / "back", model(0)) as back:
            transfer.copy(there, back)
            assert transfer.verify(here, back).items == 31


# --- connections ---


def test_a_missing_engine_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "milvus_lite", None)
    with pytest.raises(MissingExtraError, match=r"pip install milvus-lite"):
        Collection.create(f"milvus://{tmp_path}/items.db/c", model(0))


def test_a_wrong_password_fails_at_once(milvus_server: Standalone, unused_name: str) -> None:
    began = time.monotonic()
    for credentials in ("", "root:wrong@"):
        with pytest.raises(
            BackendError,
            match=r"the server denied access \(.*\); put user:password@ into the address",
        ):
            Collection.open(
                f"milvus://{credentials}127.0.0.1:{milvus_server.port}/{unused_name}", model(0)
            )
    assert time.monotonic() - began < 10


def test_credentials_from_the_environment(
    milvus_server: Standalone, unused_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSBIT_MILVUS_TOKEN", "root:Milvus")
    assert not Collection.exists(f"milvus://127.0.0.1:{milvus_server.port}/{unused_name}")


def test_an_encrypted_connection(
    milvus_server: Standalone, unused_name: str, tmp_path: Path
) -> None:
    import ssl

    from tests.engines.relay import Relay

    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
        " -addext subjectAltName=DNS:localhost"
    )
    subprocess.run(
        [*command.split(), "-out", certificate, "-keyout", key], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    with Relay(milvus_server.port, context) as line:
        address = f"milvus+tls://root:Milvus@localhost:{line.port}/{unused_name}"
        with Collection.create(f"{address}?ca={certificate}", model(0)) as collection:
            collection.upsert([1], views(1))
            assert len(collection) == 1
            assert str(collection.path).startswith("milvus+tls://localhost:")
        with pytest.raises(BackendError, match="no answer within 2 s"):
            Collection.open(address, model(0), timeout=2)  # an unknown authority


def test_one_row_is_the_first() -> None:
    rows = StoredItem({}, {4: b"b", 2: b"a"}).rows("t1", 1)
    assert [(row["key"], row["first"]) for row in rows] == [("t1/2", True), ("t1/4", False)]
    assert [row["key"] for row in StoredItem().rows("t1", 1)] == ["t1/-"]


def test_the_example_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "milvus.md"
    (code,) = blocks(page, "python")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {})

"""Clients: retries, errors, batches that need several requests, files, and the async verbs."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Codes, Collection, DataError, HashModel
from crossbit.client import AsyncClient, Client, connect, transport
from crossbit.collection import StaleModelError
from crossbit.errors import BackendError
from crossbit.features import BagOfTags, ColorHistogram
from crossbit.model import Affine
from crossbit.server.security import hash_token
from tests.client.conftest import AwaitedClient, Serve
from tests.coroutines import run as run_coroutine
from tests.features.images import encoded
from tests.server.shapes import draw

SIGNS = HashModel({"image": [Affine(np.eye(3), np.zeros(3))]}, n_bits=3)
Remote = Callable[..., Client]
ANSWER: dict[str, Any] = {
    "changed": 1,
    "items": 5,
    "modalities": {"image": None},
    "n_bits": 3,
    "capabilities": {},
    "keep": [],
    "results": [],
}


class Scripted:
    """A service that answers with a script: a status, or None to hang up."""

    def __init__(self, *script: int | None) -> None:
        self.script = list(script)
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.paths.append(self.path)
                status = outer.script.pop(0) if outer.script else 200
                if status is None:
                    self.connection.close()
                    return
                body = json.dumps(ANSWER).encode()
                if status != 200:
                    body = json.dumps({"error": f"status {status}"}).encode()
                self.send_response(status)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = answer  # noqa: N815
            do_POST = answer  # noqa: N815
            do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scripted]]:
    monkeypatch.setattr(transport, "_FIRST_DELAY", 0.001)
    services: list[Scripted] = []

    def start(*script: int | None) -> Scripted:
        services.append(Scripted(*script))
        return services[-1]

    yield start
    for service in services:
        service.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504, None])
def test_reads_are_repeated(scripted: Callable[..., Scripted], status: int | None) -> None:
    service = scripted(status, status)
    with connect(service.url) as client:
        assert len(service.paths) == 3
        assert len(client) == 5


@pytest.mark.parametrize("make", [Client, AwaitedClient])
@pytest.mark.parametrize("status", [503, None])
def test_reads_by_post_and_scans_are_repeated(
    scripted: Callable[..., Scripted], make: Callable[[str], Any], status: int | None
) -> None:
    service = scripted(200, status, 200, status)
    with make(service.url) as client:
        assert client.search("image", np.eye(3)) == []
        with pytest.raises(BackendError, match="broke before all items"):
            next(iter(client))
    assert service.paths == ["/api", *["/api/search"] * 2, *["/api/export"] * 2]


def test_a_write_is_repeated_if_the_service_asks_for_it(scripted: Callable[..., Scripted]) -> None:
    service = scripted(200, 503, 200)
    with connect(service.url) as client:
        assert client.delete(["a"]) == 1
    assert service.paths == ["/api", "/api/items", "/api/items"]


@pytest.mark.parametrize("status", [504, None])
def test_a_write_that_may_be_done_is_not_repeated(
    scripted: Callable[..., Scripted], status: int | None
) -> None:
    service = scripted(200, status)
    with connect(service.url) as client, pytest.raises(BackendError):
        client.delete(["a"])
    assert len(service.paths) == 2


def test_retries_end(scripted: Callable[..., Scripted]) -> None:
    service = scripted(*[503] * 10)
    with pytest.raises(BackendError, match="status 503"):
        connect(service.url, retries=2)
    assert len(service.paths) == 3


def test_an_unreachable_service_is_reported() -> None:
    with pytest.raises(BackendError, match=r"http://127.0.0.1:9: the service did not answer"):
        connect("http://127.0.0.1:9", retries=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "photos"}, "expected the address of a service, .* open a folder with Collection"),
        ({"url": "ftp://host"}, "expected the address of a service"),
        ({"url": None}, "expected the address of a service"),
        ({"url": "http://host", "timeout": 0}, "timeout must be more than 0 seconds, got 0"),
        ({"url": "http://host", "retries": -1}, "retries must be an integer of at least 0"),
    ],
)
def test_invalid_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Client(**arguments)


def test_a_large_write_and_a_large_search_take_several_requests(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "IDS", 7)
    monkeypatch.setattr(transport, "QUERIES", 4)
    client = remote(SIGNS)
    X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    ids = list(range(30))
    client.upsert(ids, {"image": X}, [{"n": i} for i in ids])
    items = client.get(ids)
    assert [item.payload["n"] for item in items if item is not None] == ids
    assert len(client.search("image", X)) == 30
    results = client.search("image", SIGNS.encode("image", X), k=1, with_codes=True)
    assert all(query[0].distance == 0 and query[0].code == query.code for query in results)
    assert client.delete(range(20)) == 20
    assert len(client) == 10


def test_codes_of_another_model_are_refused(remote: Remote) -> None:
    client = remote(SIGNS)
    codes = Codes(Codes.pack([[1, 0, 1]]).words, 3, model="0" * 64)
    with pytest.raises(StaleModelError, match="encode again with its model"):
        client.search("image", codes)


def test_a_token_is_sent(remote: Remote, serve: Callable[..., str], tmp_path: Path) -> None:
    Collection.create(tmp_path / "t", SIGNS).close()
    url = serve(tmp_path / "t", token="secret")
    with pytest.raises(BackendError, match="this service needs a token"):
        connect(url)
    with connect(url, token="secret") as client:
        assert list(client) == []


def test_a_service_that_is_read_only_says_so(remote: Remote) -> None:
    client = remote(SIGNS, writable=False)
    with pytest.raises(DataError, match="the service is read-only; start it with --writable"):
        client.upsert(["a"], {"image": [[1.0, 2.0, 3.0]]})
    assert client.describe()["writable"] is False


@pytest.fixture
def pictures(remote: Remote) -> Client:
    bag = BagOfTags.fit([["red", "blue"]])
    colors = ColorHistogram()
    random = np.random.default_rng(0)
    layers = {
        name: [Affine(random.normal(size=(width, 16)), np.zeros(16))]
        for name, width in (("image", colors.width), ("text", bag.width))
    }
    recipes = {"image": colors.recipe(), "text": bag.recipe()}
    return remote(HashModel(layers, 16, recipes))


def test_files_are_sent_by_their_contents(pictures: Client, tmp_path: Path) -> None:
    draw("red", "circle", 20).save(tmp_path / "red.png")
    contents = encoded(draw("blue", "square", 20))
    path = tmp_path / "red.png"
    pictures.upsert(["red", "blue", "none"], {"image": [path, contents, None]})
    assert pictures.accepts("image") == "image"
    assert pictures.accepts("text") == "text"
    for query in (path, str(path), path.read_bytes()):
        assert pictures.search("image", [query], k=1)[0][0].id == "red"
    with pytest.raises(DataError, match=r"absent\.png: cannot be read"):
        pictures.search("image", ["absent.png"])
    with pytest.raises(DataError, match="'image' accepts the contents of a file"):
        pictures.search("image", [str(path)], trusted=False)
    with pytest.raises(DataError, match="unknown modality 'sound'"):
        pictures.accepts("sound")


def test_terms_of_a_text_are_returned(pictures: Client) -> None:
    pictures.upsert(["r"], {"text": ["red"]}, [{"tags": ["red", "warm"]}])
    (results,) = pictures.search("text", ["red + blue"])
    assert sorted(results.terms) == ["blue", "red"]
    assert results.exact_terms
    ((tag, *_),) = pictures.annotate("text", [["red"]], neighbors=1)
    assert (tag.name, tag.votes) == ("red", 1)


def test_the_verbs_can_be_awaited(remote: Remote) -> None:
    url = remote(SIGNS).path
    X = np.eye(3) - 0.5

    async def use() -> None:
        async with AsyncClient(url) as client:
            assert repr(client) == f"AsyncClient({url!r})"
            await client.upsert(["a", "b", "c"], {"image": X}, [{"tags": ["t"]}] * 3)
            answers = await asyncio.gather(*(client.search("image", X[[i]], 1) for i in range(3)))
            assert [hits[0].id for (hits,) in answers] == ["a", "b", "c"]
            assert [item.id async for item in client] == ["a", "b", "c"]
            assert (await client.get(["b", "x"]))[1] is None
            ((tag,),) = await client.annotate("image", X[:1], target=None, neighbors=2)
            assert tag.votes == 2
            await client.index_field("tags")
            assert await client.delete(["a"]) == 1
            assert await client.count() == 2
            assert (await client.stats()).items == 2
            assert await client.accepts("image") is None
            assert await client.model() == SIGNS
            assert await client.check() == []
            await client.compact()
            assert repr(client).endswith(": image → 3 bits)")
        async with AsyncClient("http://127.0.0.1:9", retries=1) as nobody:
            with pytest.raises(BackendError, match="did not answer"):
                await nobody.count()
            with pytest.raises(BackendError, match="did not answer"):
                _ = [item async for item in nobody]

    run_coroutine(use())


def test_without_httpx_the_remedy_is_named(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['httpx2'] = None\n")
    code = "import crossbit.client"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert re.search(r"'httpx2' (is not installed|cannot)", done.stderr), done.stderr


def test_a_collection_is_named_by_its_address_or_by_its_name(serve: Serve, tmp_path: Path) -> None:
    model = HashModel({"image": [Affine(np.eye(4), np.zeros(4))]}, 4)
    for name in ("birds", "cats"):
        with Collection.create(tmp_path / "all" / name, model) as collection:
            collection.upsert([name], {"image": np.ones((1, 4))})
    url = serve(tmp_path / "all")
    with (
        connect(url) as default,
        connect(url, collection="cats") as cats,
        connect(f"{url}/api/collections/cats/") as also_cats,
    ):
        assert [item.id for item in default] == ["birds"]
        assert [item.id for item in cats] == [item.id for item in also_cats] == ["cats"]
        assert cats.path == f"{url}/api/collections/cats"
        cats.upsert(["new"], {"image": np.zeros((1, 4))})
        assert (len(default), len(also_cats)) == (1, 2)

    async def count() -> int:
        async with AsyncClient(url, collection="cats") as client:
            return await client.count()

    assert run_coroutine(count()) == 2
    with pytest.raises(DataError, match="there is no collection 'dogs'; see GET /api/collections"):
        connect(url, collection="dogs")


def test_a_collection_is_named_once() -> None:
    address = "http://localhost:8000/api/collections/cats"
    with pytest.raises(DataError, match="names a collection already; leave collection='dogs' out"):
        Client(address, collection="dogs")
    for name in ("", "../cats"):
        with pytest.raises(DataError, match=f"collection: expected a name, got '{name}'"):
            Client("http://localhost:8000", collection=name)


def test_a_token_that_may_only_read(serve: Serve, tmp_path: Path) -> None:
    model = HashModel({"image": [Affine(np.eye(4), np.zeros(4))]}, 4)
    Collection.create(tmp_path / "c", model).close()
    tokens = f"{hash_token('reader')} read\n{hash_token('writer')} write\n"
    (tmp_path / "tokens").write_text(tokens)
    url = serve(tmp_path / "c", token_file=tmp_path / "tokens")
    with connect(url, token="writer") as writer, connect(url, token="reader") as reader:
        writer.upsert(["a"], {"image": np.ones((1, 4))})
        assert [item.id for item in reader] == ["a"]
        assert reader.model.fingerprint() == model.fingerprint()
        (hits,) = reader.search("image", np.ones((1, 4)))
        assert [hit.id for hit in hits] == ["a"]
        with pytest.raises(DataError, match="this token may only read the collection 'default'"):
            reader.delete(["a"])

"""Items as files in multipart bodies, and every way in which such a body can be wrong."""

import io
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from crossbit import Collection
from crossbit.server import ServerConfig, create_app
from crossbit.server.bodies import FormPart, read_form
from tests.coroutines import run as run_coroutine
from tests.server.shapes import draw

KIND = "multipart/form-data; boundary=line"
UPLOAD = "/api/items"


def png(color: str) -> bytes:
    out = io.BytesIO()
    draw(color, "circle", 20).save(out, "PNG")
    return out.getvalue()


def body(*parts: tuple[str, bytes]) -> bytes:
    """Write a body; each part is its header and content."""
    pieces = [
        b"--line\r\nContent-Disposition: form-data; "
        + head.encode()
        + b"\r\n\r\n"
        + content
        + b"\r\n"
        for head, content in parts
    ]
    return b"".join(pieces) + b"--line--\r\n"


@pytest.fixture
def tested(gallery: Path, tmp_path: Path) -> Iterator[TestClient]:
    """A service with an empty collection of the gallery's model."""
    with Collection.open(gallery) as source, Collection.create(tmp_path / "c", source.model) as new:
        app = create_app(new, ServerConfig(writable=True, threads=2))
        with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
            yield client


def test_files_become_items(tested: TestClient) -> None:
    files: Any = [
        ("image", ("red.png", png("red"), "image/png")),
        ("image", ("7", png("blue"), "image/png")),
        ("text", ("red.png", "red, circle", "text/plain")),
    ]
    items = [{"id": "red.png", "payload": {"year": 2020}}, {"id": "only", "texts": {}}]
    answer = tested.post(UPLOAD, data={"request": json.dumps({"items": items})}, files=files)
    assert answer.json() == {"changed": 3}
    stored = {item["id"]: item for item in tested.get("/api/items").json()["items"]}
    assert stored["red.png"]["payload"] == {"year": 2020}
    assert list(stored["red.png"]["codes"]) == ["image", "text"]
    assert list(stored[7]["codes"]) == ["image"]
    assert stored["only"]["codes"] == {}
    hits = tested.post("/api/search", json={"text": "red, circle", "target": ["image"]}).json()[
        "hits"
    ]
    assert {hit["id"] for hit in hits} == {"red.png", 7}


def test_a_named_collection_takes_uploads(tested: TestClient) -> None:
    files = [("image", ("red.png", png("red"), "image/png"))]
    assert tested.post("/api/collections/default/items", files=files).json() == {"changed": 1}


def test_all_items_are_written_or_none(tested: TestClient) -> None:
    files = [
        ("image", ("good.png", png("red"), "image/png")),
        ("image", ("bad.png", b"not an image", "image/png")),
    ]
    assert tested.post(UPLOAD, files=files).status_code == 422
    assert tested.get("/api/items").json()["total"] == 0


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([("name=image", b"")], "part 'image': expected a filename"),
        (
            [('name="image"', b"x")],
            r"part 'image': expected a filename, which is the id of the item",
        ),
        (
            [('name="sound"; filename="a"', b"x")],
            r"unknown modality 'sound'; .*\['image', 'text'\]",
        ),
        ([('name="text"; filename="a"', b"\xff")], "part 'text': expected text in UTF-8"),
        ([('name="text"; filename="a"', b"x" * 10_001)], "expected at most 10,000 characters"),
        ([('name="text"; filename="a"', b"x")] * 2, "item 'a' has two files for 'text'; send one"),
        ([('name="request"', b"[")], "the request body is not valid JSON"),
        ([('name="request"', b'{"items": []}')], "expected at least one item, got none"),
        (
            [('name="request"', b'{"items": [{"id": 1, "x": 2}]}')],
            "unknown field 'x'; known: id, payload",
        ),
        (
            [('name="request"', b'{"items": [{"id": 1}]}')] * 2,
            "expected at most one part 'request', got 2",
        ),
        ([('name="request"', b"[" * 30_000)], "the request exceeds 20,000 lists and objects"),
        (
            [
                ('name="request"', b'{"items": [{"id": 1, "features": {"text": [1]}}]}'),
                ('name="text"; filename="b"', b"x"),
            ],
            "'text': some items have features, others texts",
        ),
    ],
)
def test_a_wrong_part_is_named(
    tested: TestClient, parts: list[tuple[str, bytes]], message: str
) -> None:
    answer = tested.post(UPLOAD, content=body(*parts), headers={"Content-Type": KIND})
    assert answer.status_code in (400, 413, 422)
    assert re.search(message, answer.json()["error"])
    assert tested.get("/api/items").json()["total"] == 0


GOOD = body(('name="text"; filename="a"', b"red"))


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("multipart/form-data", GOOD),
        ("multipart/form-data; boundary=", GOOD),
        (f"multipart/form-data; boundary={'x' * 71}", GOOD),
        ('multipart/form-data; boundary="li\\"ne"', GOOD),
        ("multipart/form-data; boundary=other", GOOD),
        (KIND, b""),
        (KIND, GOOD[:-4]),
        (KIND, GOOD[2:]),
        (KIND, b"preamble\r\n" + GOOD),
        (KIND, GOOD.replace(b"\r\n", b"\n")),
        (KIND, GOOD.replace(b"--line\r\n", b"--lineX\r\n")),
        (KIND, body(("x" * 5000, b"red"))),
        (KIND, GOOD.replace(b"Content-Disposition", b"Content-Type")),
    ],
)
def test_another_form_is_refused(tested: TestClient, kind: str, content: bytes) -> None:
    answer = tested.post(UPLOAD, content=content, headers={"Content-Type": kind})
    assert answer.status_code == 400
    assert "multipart/form-data" in answer.json()["error"]


def test_too_many_parts_and_bytes(tested: TestClient) -> None:
    part = ('name="text"; filename="a"', b"x")
    answer = tested.post(UPLOAD, content=body(*[part] * 1001), headers={"Content-Type": KIND})
    assert answer.status_code == 400
    assert "Maximum number of files is 1000" in answer.json()["error"]
    large = body(('name="image"; filename="a"', b"x" * (16 << 20)))
    answer = tested.post(UPLOAD, content=large, headers={"Content-Type": KIND})
    assert answer.status_code == 413


def test_a_form_only_where_it_is_expected(tested: TestClient) -> None:
    for kind in ("text/plain", "image/png", "application/x-www-form-urlencoded"):
        answer = tested.post(UPLOAD, content=GOOD, headers={"Content-Type": kind})
        assert answer.status_code == 415
        assert "application/json or multipart/form-data" in answer.json()["error"]
    headers = {"Content-Type": KIND}
    assert tested.post("/api/items/get", content=GOOD, headers=headers).status_code == 400
    assert tested.request("DELETE", UPLOAD, content=GOOD, headers=headers).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_a_form_of_another_site_is_refused(tested: TestClient, headers: dict[str, str]) -> None:
    answer = tested.post(UPLOAD, content=GOOD, headers={"Content-Type": KIND, **headers})
    assert answer.status_code == 403


def test_a_service_that_is_not_writable_takes_no_uploads(gallery: Path) -> None:
    with (
        Collection.open(gallery) as source,
        TestClient(create_app(source), base_url="http://localhost") as client,
    ):
        headers = {"Content-Type": KIND}
        assert client.post(UPLOAD, content=GOOD, headers=headers).status_code in (404, 405)


def test_names_are_unescaped(tested: TestClient) -> None:
    """Browsers write a quotation mark as %22, others with a backslash."""
    parts = [(r'name="text"; filename="c%22d\"e"', b"red")]
    answer = tested.post(UPLOAD, content=body(*parts), headers={"Content-Type": KIND})
    assert answer.json() == {"changed": 1}
    (item,) = tested.get("/api/items").json()["items"]
    assert item["id"] == 'c"d"e'


class _Request:
    """What `read_form` needs of a request."""

    def __init__(self, content: bytes, kind: str) -> None:
        self.headers = Headers({"Content-Type": kind})
        self._content = content

    async def stream(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._content), 7):  # in parts of any size
            yield self._content[start : start + 7]


def parse(content: bytes, kind: str = KIND) -> list[FormPart]:
    return run_coroutine(read_form(_Request(content, kind)))  # type: ignore[arg-type]


PIECES = [b"--line", b"\r\n", b"--", b'Content-Disposition: form-data; name="a"', b":", b"x"]


@given(st.lists(st.sampled_from(PIECES)))
def test_anything_is_parts_or_an_error(pieces: list[bytes]) -> None:
    with suppress(HTTPException):
        assert all(part.name == "a" for part in parse(b"".join(pieces)))


@given(st.lists(st.binary(), min_size=1, max_size=5))
def test_files_are_returned_as_they_were(contents: list[bytes]) -> None:
    boundary = secrets.token_hex(16).encode()
    form = body(*(('name="a"; filename="b"', content) for content in contents)).replace(
        b"--line", b"--" + boundary
    )
    if b"--line" not in b"".join(contents):
        kind = f"multipart/form-data; boundary={boundary.decode()}"
        assert [part.content for part in parse(form, kind)] == contents

"""The commands with the address of a server instead of a folder, and the service with its page."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks._standalone import Standalone
from crossbit import Collection
from tests.browser.conftest import browser, gallery, page  # noqa: F401
from tests.browser.test_page import test_text_finds_images  # noqa: F401
from tests.cli.test_collection import EXPECTED, N, lines, model, run  # noqa: F401
from tests.engines.relay import Relay
from tests.server.running import Running, running


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands store their progress there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def json_lines(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_command(
    address: str,
    model: Path,  # noqa: F811
    lines: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bare, address = address, f"{address}#{model}"
    assert run("collection", "create", address) == 0
    assert "Milvus@" not in capsys.readouterr().err
    assert run("add", address, lines, "--column", "text=tags") == 0
    assert f"{N} items added; {N} in milvus://" in capsys.readouterr().err
    assert (
        run(
            "search",
            address,
            "red + food",
            "-m",
            "text",
            "--filter",
            '{"year": {">=": 2010}}',
        )
        == 0
    )
    (hits,) = json_lines(capsys)
    assert len(hits) == 10
    assert all(
        hit["payload"] == EXPECTED[hit["id"]][0] and hit["payload"]["year"] >= 2010 for hit in hits
    )
    assert run("search", address, "red", "-m", "text", "--target", "text", "--tags", "tags") == 0
    assert json_lines(capsys)[0][0]["name"] in ("red", "food")
    assert run("collection", "stats", address) == 0
    assert json_lines(capsys)[0]["modalities"] == {"image": N, "text": N}
    assert run("collection", "check", address) == 0
    assert run("collection", "compact", address) == 0
    assert "the server compacts it now" in capsys.readouterr().err
    assert run("collection", "export", address, "--out", tmp_path / "all.jsonl") == 0
    assert run("delete", address, "p1", "p2") == 0
    assert f"2 items deleted; {N - 2} in milvus://" in capsys.readouterr().err
    assert run("collection", "import", address, tmp_path / "all.jsonl") == 0
    assert run("collection", "copy", address, tmp_path / "here") == 0
    assert f"{N} items copied; both hold {N} items, checksum" in capsys.readouterr().err
    assert run("collection", "copy", tmp_path / "here", address) == 0
    assert f"0 items copied; both hold {N} items, checksum" in capsys.readouterr().err
    assert run("collection", "stats", bare) == 1
    assert (
        "the server keeps the fingerprint of the model, not the model itself"
        in capsys.readouterr().err
    )


def test_an_interrupted_add_goes_on(
    address: str,
    model: Path,  # noqa: F811
    lines: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = f"{address}#{model}"
    assert run("collection", "create", address) == 0
    upsert = Collection.upsert
    written: list[str] = []

    def interrupted(
        self: Collection,
        ids: list[str],
        *arguments: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> None:
        if len(written) == 20:
            raise KeyboardInterrupt
        upsert(self, ids, *arguments, **options)
        written.extend(ids)

    with monkeypatch.context() as patched:
        patched.setattr(Collection, "upsert", interrupted)
        run("add", address, lines, "--column", "text=tags", "--batch", 5)
    capsys.readouterr()
    line = ("add", address, lines, "--column", "text=tags", "--batch", 5)
    assert run(*line, "--skip-existing") == 0
    assert f"5 items added; {N} in milvus://" in capsys.readouterr().err


@pytest.fixture(scope="module")
def line(milvus_server: Standalone) -> Iterator[Relay]:
    with Relay(milvus_server.port) as started:
        yield started


@pytest.fixture(scope="module")
def service(
    gallery: Path,  # noqa: F811
    milvus_server: Standalone,
    line: Relay,
) -> Iterator[Running]:
    """The gallery, copied to the server and served from there."""
    assert run("collection", "copy", gallery, milvus_server.address("gallery")) == 0
    patch = (
        "from crossbit import Collection; Collection.open.__func__.__kwdefaults__['timeout'] = 3.0"
    )
    address = milvus_server.address("gallery", port=line.port)
    with running(f"{address}#{gallery / 'model' / '1'}", patch=patch) as started:
        yield started


def ask(service: Running) -> Any:  # noqa: ANN401 - JSON
    question = json.dumps({"text": "red + circle", "k": 3}).encode()
    request = urllib.request.Request(
        service.address + "/api/search", question, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_the_service_reports_an_unreachable_server_and_recovers(
    service: Running, line: Relay
) -> None:
    expected = ask(service)["hits"]
    assert len(expected) == 3
    line.cut()
    with pytest.raises(urllib.error.HTTPError, match="503") as error:
        ask(service)
    assert "no answer within" in error.value.read().decode()
    line.restore()
    assert ask(service)["hits"] == expected

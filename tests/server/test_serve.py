"""The command ``crossbit serve``."""

import json
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from crossbit import Collection, HashModel
from crossbit.cli import main
from crossbit.model import Affine
from crossbit.server.security import hash_token
from tests.server.running import running


def test_it_prints_its_address_and_finds_the_images(gallery: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{hash_token('secret')} read\n")
    with running(gallery, "--token-file", str(tmp_path / "token"), "--threads", "1") as started:
        assert urllib.request.urlopen(started.address + "/healthz").status == 200
        address = f"{started.address}/api/pictures?id=large-red-circle%2B0"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address)
        request = urllib.request.Request(address, headers={"Authorization": "Bearer secret"})
        assert urllib.request.urlopen(request).headers["Content-Type"] == "image/png"
        assert started.stop() == 0


def test_another_address_needs_a_token(gallery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(gallery), "--host", "0.0.0.0"]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "listening on 0.0.0.0 without a token would admit anybody; set CROSSBIT_TOKEN" in error


def test_a_port_in_use_is_reported(gallery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", str(gallery), "--port", str(taken.getsockname()[1])]) == 1
    assert "choose another port with --port" in capsys.readouterr().err


def test_a_missing_folder_of_images_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = HashModel(
        {"image": [Affine(np.eye(4), np.zeros(4))]}, 4, card={"media": str(tmp_path / "gone")}
    )
    Collection.create(tmp_path / "c", model).close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", str(tmp_path / "c"), "--port", str(taken.getsockname()[1])]) == 1
    message = f"no longer in {tmp_path / 'gone'}; name their folder with --images"
    assert message in capsys.readouterr().err


def test_a_missing_collection_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path)]) == 1
    assert "not a collection" in capsys.readouterr().err


def test_an_empty_folder_needs_clients_that_may_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lost+found").mkdir()  # of an empty volume
    assert main(["serve", str(tmp_path)]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert (
        "not a collection, and it contains none; create one with 'crossbit collection create'"
        in error
    )
    assert "or let clients create them in this folder with --writable" in error
    with running(tmp_path, "--writable") as started:
        with urllib.request.urlopen(f"{started.address}/api/collections") as answer:
            assert json.load(answer) == {"collections": []}
        assert urllib.request.urlopen(f"{started.address}/metrics").status == 200
        assert started.stop() == 0


@pytest.mark.parametrize("name", ["missing", "model", "notes"])
def test_another_folder_is_not_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    HashModel({"image": [Affine(np.eye(4), np.zeros(4))]}, 4).save(tmp_path / "model")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "today.txt").write_text("a folder of something else")
    assert main(["serve", str(tmp_path / name), "--writable"]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert ("no such folder" if name == "missing" else "not a collection (it contains") in error


def test_a_missing_library_is_reported(
    gallery: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("crossbit.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("crossbit.server", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve", str(gallery)]) == 1
    assert "[server]'" in capsys.readouterr().err

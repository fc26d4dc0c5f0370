"""``crossbit extract`` on files of every kind."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossbit import CCAITQ
from crossbit.cli import main
from crossbit.features import LogMel, Mfcc, SignalStatistics
from tests.features.clips import encoded_clip, npy, tone

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CROSSBIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    (tmp_path / "clips" / "more").mkdir(parents=True)
    for name, hertz in (("a.wav", 300), ("b.WAV", 500), ("more/c.wav", 900)):
        (tmp_path / "clips" / name).write_bytes(encoded_clip(tone(hertz)))
    (tmp_path / "clips" / "broken.wav").write_bytes(b"RIFF")
    (tmp_path / "clips" / "notes.txt").write_text("not a clip")
    return tmp_path / "clips"


def run(*arguments: object) -> int:
    return main(["extract", *map(str, arguments), "--workers", "1"])


def test_a_folder_of_clips_becomes_rows_with_names(
    clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.npy"
    assert run(clips, "--out", out) == 0
    paths = [clips / name for name in ("a.wav", "b.WAV", "more/c.wav")]
    np.testing.assert_array_equal(np.load(out), Mfcc().extract(paths))
    assert (tmp_path / "rows.ids.txt").read_text().splitlines() == list(map(str, paths))
    printed = " ".join(capsys.readouterr().err.split())
    assert "broken.wav: corrupted audio" in printed
    assert "3 rows of 256 numbers (mfcc)" in printed
    assert run(clips, "--out", out) == 1
    assert "exists already" in capsys.readouterr().err
    assert run(clips, "--out", out, "--replace", "--features", "log-mel") == 0
    assert np.load(out).shape == (3, LogMel().width)


def test_images_signals_vectors_and_texts(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (9, 9), "red").save(tmp_path / "photos" / "red.png")
    assert run(tmp_path / "photos", "-o", tmp_path / "p.npy", "--features", "histograms") == 0
    assert np.load(tmp_path / "p.npy").shape == (1, 192)
    paths = []
    for number in range(3):
        paths.append(tmp_path / f"s{number}.npy")
        paths[-1].write_bytes(npy(RANDOM.normal(size=(20, 2))))
    assert run(*paths, "-o", tmp_path / "s-rows.npy", "--features", "statistics") == 0
    np.testing.assert_array_equal(
        np.load(tmp_path / "s-rows.npy"), SignalStatistics(2).extract(paths)
    )
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "v.npy").write_bytes(npy(np.arange(5)))
    assert run(tmp_path / "vectors", "-o", tmp_path / "v-rows.npy", "--kind", "vector") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "v-rows.npy"), [np.arange(5)])
    (tmp_path / "texts.txt").write_text("a dog\n\na cat\n")
    arguments = ["--kind", "text", "--features", "tfidf"]
    assert run(tmp_path / "texts.txt", "-o", tmp_path / "t.npy", *arguments) == 0
    assert np.load(tmp_path / "t.npy").shape == (2, 3)
    assert (
        tmp_path / "t.ids.txt"
    ).read_text() == f"{tmp_path}/texts.txt:1\n{tmp_path}/texts.txt:3\n"


def test_inputs_are_never_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "titles.txt"
    texts.write_text("red shoe\nblue hat\n")
    options = ["--kind", "text", "--features", "tfidf", "--replace"]
    assert run(texts, "-o", tmp_path / "titles.npy", *options) == 0
    assert texts.read_text() == "red shoe\nblue hat\n"
    series = tmp_path / "series.npy"
    series.write_bytes(npy(RANDOM.normal(size=(20, 2))))
    before = series.read_bytes()
    same = tmp_path / "." / "series.npy"
    options = ["--kind", "signal", "--features", "statistics", "--replace"]
    assert run(series, "-o", same, *options) == 1
    assert "is one of the inputs" in capsys.readouterr().err
    assert series.read_bytes() == before


def test_the_extractor_of_a_model_is_used(
    clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    model = CCAITQ(n_bits=8).fit(
        {"sound": RANDOM.normal(size=(30, 8)), "text": RANDOM.normal(size=(30, 5))}
    )
    sound = LogMel(bands=4, segments=2)
    replace(model, recipes={"sound": sound.recipe()}).save(tmp_path / "model")
    out = tmp_path / "rows.npy"
    assert run(clips / "a.wav", "-o", out, "--model", tmp_path / "model") == 0
    np.testing.assert_array_equal(np.load(out), sound.extract([clips / "a.wav"]))
    for arguments, message in (
        (["--model", tmp_path / "model", "--modality", "text"], "unknown modality with a recipe"),
        (["--model", tmp_path / "model", "--kind", "audio"], "leave out --kind and --features"),
        (["--modality", "text"], "add --model FOLDER"),
    ):
        assert run(clips, "-o", tmp_path / "other.npy", *arguments) == 1
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "rows.csv"], "--out must name a .npy file"),
        (["--out", "r.npy", "--kind", "video"], "unknown kind of input 'video'; known:"),
        (["--out", "r.npy", "--kind", "image"], "contains no files .jpg, .jpeg"),
        (["--out", "r.npy", "--kind", "text"], "expected a text file, one text per line"),
        (["--out", "r.npy", "--features", "sift"], "unknown audio extractor 'sift'; known: mfcc"),
    ],
)
def test_invalid_arguments_are_reported(
    arguments: list[str],
    message: str,
    clips: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(clips)
    assert run(".", *arguments) == 1
    assert message in " ".join(capsys.readouterr().err.split())


def test_unusable_and_unknown_inputs_are_reported(
    clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, message in (
        (clips / "broken.wav", "none of the 1 inputs is usable, so no row is written"),
        (tmp_path / "none.wav", "there is no such file or folder"),
        (clips / "notes.txt", "is not clear from its name; give --kind"),
    ):
        assert run(path, "-o", tmp_path / "rows.npy") == 1
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "rows.npy").exists()


def test_extractors_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extract", "--help"]) == 0
    printed = capsys.readouterr().out
    for name in ("efficientnet", "minilm", "mfcc", "convolutions", "geometry", "vector"):
        assert name in printed

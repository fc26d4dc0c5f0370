"""``crossbit data`` through ``main``."""

from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Dataset
from crossbit.cli import main

RNG = np.random.default_rng(0)
IMAGES = RNG.random((6, 4))


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_convert_lists_unused_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "mine.npz", cnn=IMAGES, ids=np.arange(6), extra=np.ones((3, 1)))
    assert run("data", "convert", tmp_path / "mine.npz", "--out", tmp_path / "mine") == 0
    assert "not used: ids (6,), extra (3, 1); assign roles with --map" in capsys.readouterr().err


def test_convert_names_the_payload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{n},{n + 1},{'ab'[n % 2]},{n}.png\n" for n in range(6))
    (tmp_path / "t.csv").write_text(f"x_0,x_1,activity,file\n{rows}")
    convert = ("data", "convert", tmp_path / "t.csv", "--out")
    assert run(*convert, tmp_path / "plain") == 0
    hint = "kept as payload: activity, file; classes need --map labels=COLUMN"
    assert hint in capsys.readouterr().err
    assert run(*convert, tmp_path / "labeled", "--map", "labels=activity") == 0
    assert "kept as payload: file\n" in capsys.readouterr().err


@pytest.mark.parametrize("installed", [True, False])
def test_convert_suggests_a_method_that_is_installed(
    installed: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = ModuleSpec("sklearn", None) if installed else None
    monkeypatch.setattr("crossbit.cli.data.find_spec", lambda name: spec)
    np.savez(tmp_path / "mine.npz", cnn=IMAGES)
    out = tmp_path / "mine"
    assert run("data", "convert", tmp_path / "mine.npz", "--out", out) == 0
    printed = capsys.readouterr().err
    assert (
        f"crossbit fit {out} {'' if installed else '--method ccaitq '}--out {out}-model" in printed
    )
    assert "not used" not in printed


def test_brackets_in_a_name_are_not_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays: dict[str, Any] = {"cnn": IMAGES, "[/x]": np.zeros(2)}
    np.savez(tmp_path / "mine.npz", **arrays)
    out = tmp_path / "s[/x]"
    assert (
        run(
            *("data", "convert", tmp_path / "mine.npz", "--out", out),
            *("--name", "s[/x]", "--map", "image=cnn"),
        )
        == 0
    )
    printed = capsys.readouterr().err
    assert "Dataset(s[/x]: 6 rows; image 4)" in printed
    assert "not used: [/x] (2,)" in printed
    assert f"written to {out}; " in printed
    assert run("data", "info", out) == 0
    assert "s[/x]" in capsys.readouterr().out


def test_info_counts_absent_rows_and_classes_that_occur(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = IMAGES.copy()
    image[[1, 3]] = np.nan
    data = Dataset(
        views={"image": image, "text": IMAGES}, labels=np.array([10**12, 1, 1, 2, 2, 10**12])
    )
    data.save(tmp_path / "set")
    assert run("data", "info", tmp_path / "set") == 0
    printed = capsys.readouterr().out
    assert "6 × 4 float64, 2 rows absent" in printed
    assert printed.count("rows absent") == 1
    assert "3 classes, single-label, 2–2 rows each" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--modality", "image=4", "--modality", "image=5"],
            "--modality names 'image' more than once",
        ),
        (["--seed", -1], "synthetic data: seed must be an integer of at least 0, got -1"),
        (["--set", "speed=1"], "unknown field 'speed'; known: ['classes', 'labels_per_row'"),
        (["--set", "noise=inf"], "synthetic data: noise must be finite and at least 0, got inf"),
        (
            ["--set", "classes=2", "--set", "labels_per_row=3"],
            "labels_per_row must be between 1 and 2, the number of classes, got 3",
        ),
    ],
)
def test_invalid_synthetic_data_are_refused(
    arguments: list[object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("data", "synthetic", "--out", tmp_path / "x", *arguments) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()

"""``crossbit tune`` through ``main``, killed and resumed."""

import json
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from crossbit import HashModel
from crossbit.cli import main
from crossbit.data import synthetic


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune") / "toy"
    assert run("data", "synthetic", "--out", folder, "--rows", 120, "--set", "classes=3") == 0
    return folder


def test_tune_then_fit(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "search"
    model = tmp_path / "model"
    assert (
        run(
            "tune",
            toy,
            "--method",
            "ccaitq",
            "-b",
            12,
            "--trials",
            6,
            "--set",
            "rounds=5",
            "--nested",
            "-o",
            out,
        )
        == 0
    )
    printed = capsys.readouterr()
    assert "default" in printed.out
    assert "optimistic.\n" in printed.out  # without advice to use --nested
    assert "on rows that no search saw" in printed.err
    assert (out / "search.svg").read_text().count("<svg") == 1
    lines = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert lines[0]["data"]["views"] == {
        "image": [96, 64],
        "text": [96, 32],
    }  # the training part alone
    assert run("fit", toy, "--method", "ccaitq", "--config", out / "best.toml", "-o", model) == 0
    fields = HashModel.load(model).card["fields"]
    best = tomllib.loads((out / "best.toml").read_text())
    assert {name: fields[name] for name in best} == best
    assert (fields["rounds"], fields["n_bits"]) == (5, 12)


def test_a_killed_search_is_resumed(toy: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "crossbit",
        "tune",
        str(toy),
        "--method",
        "ccaitq",
        "-b",
        "12",
        "--trials",
    ]
    journal = tmp_path / "search" / "trials.jsonl"
    running = subprocess.Popen(
        [*command, "5000", "-o", str(journal.parent)], stderr=subprocess.PIPE
    )
    while not journal.exists() or journal.read_bytes().count(b"\n") < 12:
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    before = journal.read_bytes().rpartition(b"\n")[0].splitlines()
    done = json.loads(before[-1])["trial"] + 2
    assert (
        run("tune", toy, "--method", "ccaitq", "-b", 12, "--trials", done, "-o", journal.parent)
        == 0
    )
    assert journal.read_bytes().splitlines()[: len(before)] == before
    assert (
        run("tune", toy, "--method", "ccaitq", "-b", 12, "--trials", done, "-o", tmp_path / "whole")
        == 0
    )
    assert (tmp_path / "whole" / "trials.jsonl").read_bytes() == journal.read_bytes()


def test_wrong_spaces_and_data_are_refused_in_one_line(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.toml").write_text("margins = [1, 2]\n")
    assert run("tune", toy, "--space", tmp_path / "space.toml", "-o", tmp_path / "a") == 1
    assert "space.toml: mmnn: cannot search ['margins']; its fields:" in capsys.readouterr().err
    unlabeled = synthetic(n=30, classes=3)
    object.__setattr__(unlabeled, "labels", None)
    unlabeled.save(tmp_path / "unlabeled")
    assert run("tune", tmp_path / "unlabeled", "--method", "ccaitq", "-o", tmp_path / "b") == 1
    assert "cross-validation needs aligned views with labels" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
    assert run("tune", toy, "--method", "ccaitq", "--trials", 1, "-o", tmp_path / "c") == 0
    assert (
        run("tune", toy, "--method", "ccaitq", "--trials", 1, "--folds", 2, "-o", tmp_path / "c")
        == 1
    )
    assert (
        "belongs to another search (folds: 3 there, 2 here); choose another folder"
        in capsys.readouterr().err
    )


def test_networks_are_searched_in_margins_and_alpha(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(
        'margin = { low = "50%", high = "100%" }\nalpha = [0.0, 0.3]\n'
    )
    fixed = ("--set", "inputs=standardize", "--set", "steps=3", "--set", "validation=0.0")
    out = tmp_path / "search"
    assert (
        run(
            "tune",
            toy,
            "-b",
            8,
            "--folds",
            2,
            "--trials",
            7,
            "--space",
            tmp_path / "space.toml",
            *fixed,
            "-o",
            out,
        )
        == 0
    )
    drawn = (out / "search.svg").read_text()
    assert "margin (%)" in drawn
    assert "alpha" in drawn

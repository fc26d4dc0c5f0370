"""The search: the default first, the same trials whether interrupted or not, nothing below the default."""

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import CCAITQ, Dataset
from crossbit._progress import Step
from crossbit.data import synthetic
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.tune import Range, Trial, cross_validate, nested_score, search, searching
from crossbit.tune.outcome import to_toml, write_best
from crossbit.tune.suggest import _spread, first_round, importances, suggest

data = synthetic(n=90, classes=3)
SPACE = {"regularization": Range(1e-3, 10, log=True), "power": [0.5, 1.0, 2.0]}
SETTINGS: dict[str, Any] = {"n_bits": 8, "space": SPACE, "folds": 2}


def test_the_method_as_it_comes_is_trial_0_and_the_best_is_never_below_it(tmp_path: Path) -> None:
    steps: list[Step] = []
    found = search("ccaitq", data, trials=9, folder=tmp_path, on_step=steps.append, **SETTINGS)
    assert found.trials[0] == Trial({}, cross_validate(CCAITQ(n_bits=8), data, folds=2))
    assert found.best.mean == max(trial.mean for trial in found.trials if len(trial.scores) == 2)
    assert found.best.mean >= found.trials[0].mean
    assert found.fields == {"n_bits": 8, "seed": 0, **found.best.fields}
    assert (steps[-1].number, steps[-1].of, steps[-1].validation) == (18, 18, found.best.mean)
    assert [step.number for step in steps] == sorted(step.number for step in steps)


class _CutError(Exception):
    """What interrupts a search."""


@pytest.mark.parametrize("after", [1, 2, 7])
def test_an_interrupted_search_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, after: int
) -> None:
    def cut(step: Step) -> None:
        if step.number >= after:
            raise _CutError

    whole = search("ccaitq", data, trials=8, **SETTINGS)
    with pytest.raises(_CutError):
        search("ccaitq", data, trials=8, folder=tmp_path, on_step=cut, **SETTINGS)
    kept = (tmp_path / "trials.jsonl").read_bytes()
    (tmp_path / "trials.jsonl").write_bytes(
        kept + b'{"trial": 3, "fiel'
    )  # killed while it was writing
    assert search("ccaitq", data, trials=8, folder=tmp_path, **SETTINGS).trials == whole.trials
    assert (tmp_path / "trials.jsonl").read_bytes().startswith(kept)


def test_nothing_is_learned_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = search("ccaitq", data, trials=3, folder=tmp_path, **SETTINGS)

    def never(*_: object, **__: object) -> Iterator[float]:
        raise AssertionError("learned again")

    monkeypatch.setattr(searching, "fold_scores", never)
    assert search("ccaitq", data, trials=3, folder=tmp_path, **SETTINGS).trials == first.trials
    assert search("ccaitq", data, trials=2, folder=tmp_path, **SETTINGS).trials == first.trials[:2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"space": {"power": [0.5, 1.0]}},
            r"another search \(space: \{\"regularization\": .* there, \{\"power\"",
        ),
        ({"n_bits": 12}, r"fixed: \{\"n_bits\": 8, \"seed\": 0\} there, \{\"n_bits\": 12"),
        ({"folds": 3}, "folds: 2 there, 3 here"),
        ({"seed": 1}, "seed: 0 there, 1 here"),
    ],
)
def test_a_folder_of_another_search_is_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS)
    with pytest.raises(DataError, match=message):
        search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS | changed)


def test_other_rows_are_another_search(tmp_path: Path) -> None:
    search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS)
    labels = np.roll(np.asarray(data.labels), 1)
    with pytest.raises(DataError, match=r"another search \(data: .*sha256.*choose another folder"):
        search(
            CCAITQ, Dataset(views=data.views, labels=labels), trials=1, folder=tmp_path, **SETTINGS
        )


def test_a_search_that_failed_at_once_does_not_stand_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"between 2 folds and one a row \(90\)"):
        search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS | {"folds": 91})
    assert len(search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS).trials) == 1


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS)
    whole = path.read_text()
    for damage, message in (
        (whole + "nonsense\n", "line 4 is not a JSON object"),
        (whole + '{"trial": 1}\n', "line 4 is no trial"),
        (
            whole.replace("crossbit.tune/1", "crossbit.tune/9"),
            "'crossbit.tune/9'; this version of crossbit reads",
        ),
    ):
        path.write_text(damage)
        with pytest.raises(FormatError, match=message):
            search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS)


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(DataError, match="aligned views with labels"):
        search("ccaitq", Dataset(views=data.views), trials=1)
    with pytest.raises(DataError, match="aligned views with labels"):
        nested_score("ccaitq", Dataset(views=data.views), trials=1)
    with pytest.raises(DataError, match="the number of trials is a whole number of at least 1"):
        search("ccaitq", data, trials=0)
    with pytest.raises(DataError, match="the seed is a whole number of at least 0"):
        search("ccaitq", data, trials=1, seed=-1)
    with pytest.raises(DataError, match=r"every field of the space is fixed \(\['power'\]\)"):
        search("ccaitq", data, trials=1, space={"power": [1, 2]}, fixed={"power": 1})
    with pytest.raises(DataError, match=r"unknown fields \['nonsense'\]"):
        search("ccaitq", data, trials=1, fixed={"nonsense": 1})


def test_a_setting_that_the_method_refuses_is_named() -> None:
    with pytest.raises(DataError, match=r"trial 1, \{'inputs': 'nonsense'\}: .*unknown input step"):
        search(
            "posteriorlsh",
            data,
            trials=2,
            n_bits=8,
            folds=2,
            space={"inputs": ["nonsense", "nonsense"]},
        )


def test_without_the_library_the_remedy_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"crossbit\[tune\]"):
        search("ccaitq", data, trials=1)


def test_hopeless_trials_are_given_up_and_never_win() -> None:
    def score(strength: float) -> tuple[float, float]:
        return strength, strength + 1

    whole = [Trial({"power": s}, score(s)) for s in (1.0, 2.0, 3.0, 4.0, 5.0)]
    assert searching._hopeless([2.9], whole, 2)
    assert not searching._hopeless([3.0], whole, 2)
    assert not searching._hopeless([0.0], whole[:4], 2)
    found = searching.Found(CCAITQ, {}, {}, 2, [*whole, Trial({"power": 9.0}, (99.0,))])
    assert found.best.fields == {"power": 5.0}


def test_the_search_finds_a_hill() -> None:
    space = {"x": Range(0.0, 1.0), "y": Range(1e-3, 1.0, log=True)}

    def height(fields: dict[str, Any]) -> float:
        return float(-abs(fields.get("x", 0.0) - 0.7) - abs(np.log10(fields.get("y", 1.0)) + 2))

    trials: list[Trial] = []
    while len(trials) < 40:
        fields = suggest(space, trials, folds=1, seed=0)
        trials.append(Trial(fields, (height(fields),)))
    spread = [trial.mean for trial in trials[1 : first_round(space) + 1]]
    assert np.median([trial.mean for trial in trials[-15:]]) > np.median(spread) + 0.3
    shares = importances(space, trials, folds=1)
    assert sum(shares.values()) == pytest.approx(1)
    assert next(iter(shares)) == "y"
    assert importances(space, trials[:4], folds=1) == {}


def test_the_first_round_is_even() -> None:
    points = np.array([_spread(number, 2, seed=3) for number in range(1, 17)])
    quarters = (2 * points).astype(int) @ [1, 2]
    assert np.bincount(quarters, minlength=4).min() >= 3


def test_nested_folds_are_never_searched_on(tmp_path: Path) -> None:
    score = nested_score(
        "ccaitq", data, trials=2, folder=tmp_path, on_step=lambda _: None, **SETTINGS
    )
    assert len(score.scores) == 2
    for number in ("1", "2"):
        subject = json.loads((tmp_path / number / "trials.jsonl").read_text().splitlines()[0])
        assert subject["data"]["views"]["image"][0] == 45


def test_the_best_setting_is_a_file_that_fit_takes(tmp_path: Path) -> None:
    found = search("ccaitq", data, trials=3, **SETTINGS)
    read = tomllib.loads(write_best(found, tmp_path / "new").read_text())
    assert CCAITQ.from_configuration(read) == CCAITQ.from_configuration(found.fields)
    fields = {
        "hidden": (64, 32),
        "margin": {"image-text": "75%", "a b": 3.0},
        "sums": True,
        "beta": 1e-7,
        "n_pairs": None,
    }
    assert tomllib.loads(to_toml(fields)) == {
        "hidden": [64, 32],
        "margin": {"image-text": "75%", "a b": 3.0},
        "sums": True,
        "beta": 1e-7,
    }

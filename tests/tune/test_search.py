"""The search: default first, the same trials whether interrupted or not, all resumable."""

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import CCAITQ, Dataset
from crossbit._progress import Step
from crossbit.data import synthetic
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.tune import (
    CrossValidation,
    Range,
    SearchResult,
    Trial,
    cross_validate,
    nested_score,
    search,
)
from crossbit.tune.search import _is_hopeless
from crossbit.tune.trials import Sampler, _quasirandom

data = synthetic(n=90, classes=3)
SPACE = {"regularization": Range(1e-3, 10, log=True), "power": [0.5, 1.0, 2.0]}
SETTINGS: dict[str, Any] = {"n_bits": 8, "space": SPACE, "folds": 2}


def test_trial_0_is_the_default_and_the_best_is_never_below_it(tmp_path: Path) -> None:
    steps: list[Step] = []
    result = search("ccaitq", data, trials=9, folder=tmp_path, on_step=steps.append, **SETTINGS)
    assert result.trials[0] == Trial({}, cross_validate(CCAITQ(n_bits=8), data, folds=2))
    assert result.best.mean == max(trial.mean for trial in result.trials if len(trial.scores) == 2)
    assert result.best.mean >= result.trials[0].mean
    assert result.fields == {"n_bits": 8, "seed": 0, **result.best.fields}
    assert (steps[-1].number, steps[-1].of, steps[-1].validation) == (18, 18, result.best.mean)
    assert [step.number for step in steps] == sorted(step.number for step in steps)


def test_fields_without_effect_on_the_rows_are_not_searched() -> None:
    image = replace(data, views={"image": data.views["image"]})
    assert set(search("spectralhashing", image, trials=1, folds=2).space) == {"inputs"}
    assert "regularization" in search("spectralhashing", data, trials=1, folds=2).space


class _CutError(Exception):
    """Interrupts a search."""


@pytest.mark.parametrize("after", [1, 2, 7])
def test_an_interrupted_search_continues_with_the_same_trials(tmp_path: Path, after: int) -> None:
    def cut(step: Step) -> None:
        if step.number >= after:
            raise _CutError

    complete = search("ccaitq", data, trials=8, **SETTINGS)
    with pytest.raises(_CutError):
        search("ccaitq", data, trials=8, folder=tmp_path, on_step=cut, **SETTINGS)
    journal = tmp_path / "trials.jsonl"
    before = journal.read_bytes()
    journal.write_bytes(before + b'{"trial": 3, "fiel')  # killed during a write
    assert search("ccaitq", data, trials=8, folder=tmp_path, **SETTINGS).trials == complete.trials
    assert journal.read_bytes().startswith(before)


def test_no_fold_is_trained_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = search("ccaitq", data, trials=3, folder=tmp_path, **SETTINGS)

    def never(*_: object, **__: object) -> Iterator[float]:
        raise AssertionError("trained again")

    monkeypatch.setattr(CrossValidation, "scores", never)
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
    other = Dataset(views=data.views, labels=np.roll(np.asarray(data.labels), 1))
    with pytest.raises(DataError, match=r"another search \(data: .*sha256.*choose another folder"):
        search(CCAITQ, other, trials=1, folder=tmp_path, **SETTINGS)


def test_a_search_that_failed_before_its_first_trial_can_be_restarted(tmp_path: Path) -> None:
    def fail(_data: Dataset, _seed: int) -> Mapping[str, Any]:
        raise DataError("no pairs")

    with pytest.raises(DataError, match="trial 0, the default: no pairs"):
        search("ccaitq", data, trials=1, folder=tmp_path, supervise=fail, space=SPACE)
    assert len(search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS).trials) == 1


def test_a_line_that_a_power_failure_has_torn_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    trials = search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS).trials
    complete = path.read_bytes()
    path.write_bytes(complete + b'{"trial": 1, "fi' + bytes(9) + b"ended: true}\n")
    assert search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS).trials == trials
    assert path.read_bytes() == complete


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS)
    text = path.read_text()
    for damaged, message in (
        (text + "nonsense\n", "line 4 is not a JSON object"),
        (text + '{"trial": 1}\n', "line 4 is not a trial"),
        (text.replace("crossbit.tune/1", "crossbit.tune/9"), "'crossbit.tune/9'"),
    ):
        path.write_text(damaged)
        with pytest.raises(FormatError, match=message):
            search("ccaitq", data, trials=1, folder=tmp_path, **SETTINGS)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(DataError, match="aligned views with labels"):
        search("ccaitq", Dataset(views=data.views), trials=1)
    with pytest.raises(DataError, match="aligned views with labels"):
        nested_score("ccaitq", Dataset(views=data.views), trials=1)
    with pytest.raises(DataError, match=r"folds must be between 2 and the number of rows \(90\)"):
        search("ccaitq", data, trials=1, folds=91)
    with pytest.raises(DataError, match="trials must be an integer of at least 1"):
        search("ccaitq", data, trials=0)
    with pytest.raises(DataError, match="seed must be an integer of at least 0"):
        search("ccaitq", data, trials=1, seed=-1)
    with pytest.raises(DataError, match=r"all fields of the space are fixed \(\['power'\]\)"):
        search("ccaitq", data, trials=1, space={"power": [1, 2]}, fixed={"power": 1})
    with pytest.raises(DataError, match=r"unknown fields \['nonsense'\]"):
        search("ccaitq", data, trials=1, fixed={"nonsense": 1})


def test_the_message_names_a_setting_that_the_method_refuses() -> None:
    space = {"inputs": ["nonsense", "nonsense"]}
    with pytest.raises(DataError, match=r"trial 1, \{'inputs': 'nonsense'\}: .*unknown input step"):
        search("lsh", data, trials=2, n_bits=8, folds=2, space=space)


def test_without_optuna_the_message_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"\[train\]'"):
        search("ccaitq", data, trials=1)


def test_a_trial_below_the_median_is_stopped_and_never_wins() -> None:
    complete = [Trial({"power": s}, (s, s + 1)) for s in (1.0, 2.0, 3.0, 4.0, 5.0)]
    assert _is_hopeless([2.9], complete, 2)
    assert not _is_hopeless([3.0], complete, 2)
    assert not _is_hopeless([0.0], complete[:4], 2)
    result = SearchResult(CCAITQ, {}, {}, 2, [*complete, Trial({"power": 9.0}, (99.0,))])
    assert result.best.fields == {"power": 5.0}


def test_the_search_finds_a_hill() -> None:
    sampler = Sampler({"x": Range(0.0, 1.0), "y": Range(1e-3, 1.0, log=True)}, folds=1)

    def height(fields: dict[str, Any]) -> float:
        return float(-abs(fields.get("x", 0.0) - 0.7) - abs(np.log10(fields.get("y", 1.0)) + 2))

    trials: list[Trial] = []
    while len(trials) < 40:
        fields = sampler.suggest(trials)
        trials.append(Trial(fields, (height(fields),)))
    first_round = [trial.mean for trial in trials[1 : sampler.first_round + 1]]
    assert np.median([trial.mean for trial in trials[-15:]]) > np.median(first_round) + 0.3
    shares = sampler.importances(trials)
    assert sum(shares.values()) == pytest.approx(1)
    assert next(iter(shares)) == "y"
    assert sampler.importances(trials[:4]) == {}


def test_the_first_round_covers_the_space_evenly() -> None:
    points = np.array([_quasirandom(number, 2, seed=3) for number in range(1, 17)])
    quarters = (2 * points).astype(int) @ [1, 2]
    assert np.bincount(quarters, minlength=4).min() >= 3


def test_nested_searches_never_see_their_held_out_fold(tmp_path: Path) -> None:
    score = nested_score(
        "ccaitq", data, trials=2, folder=tmp_path, on_step=lambda _: None, **SETTINGS
    )
    assert len(score.scores) == 2
    for number in ("1", "2"):
        subject = json.loads((tmp_path / number / "trials.jsonl").read_text().splitlines()[0])
        assert subject["data"]["views"]["image"][0] == 45


def test_best_toml_is_a_configuration_that_fit_reads(tmp_path: Path) -> None:
    result = search("ccaitq", data, trials=3, **SETTINGS)
    fields = tomllib.loads(result.write_best(tmp_path / "new").read_text())
    assert CCAITQ.from_configuration(fields) == CCAITQ.from_configuration(result.fields)
    every_type = {
        "hidden": (64, 32),
        "margin": {"image-text": "75%", "a b": 3.0},
        "sums": True,
        "beta": 1e-7,
        "n_pairs": None,
    }
    path = SearchResult(CCAITQ, every_type, {}, 2, [Trial({}, (1.0, 2.0))]).write_best(tmp_path)
    assert tomllib.loads(path.read_text()) == {
        "hidden": [64, 32],
        "margin": {"image-text": "75%", "a b": 3.0},
        "sums": True,
        "beta": 1e-7,
    }

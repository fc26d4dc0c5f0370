"""Cross-validation: folds are disjoint, the best comes first, and unlabeled data are refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from crossbit import CCAITQ, LSH, Dataset
from crossbit._progress import Step
from crossbit.data import synthetic
from crossbit.errors import DataError
from crossbit.hashers import Hasher
from crossbit.metrics import from_labels, mean_average_precision
from crossbit.tune import CrossValidation, Trial, by_labels, compare, cross_validate

data = synthetic(n=90, classes=3)
LABELS = np.asarray(data.labels)


def test_folds_are_stratified_and_a_model_never_sees_its_own_fold() -> None:
    marked = Dataset(
        views={"image": np.arange(90.0)[:, None] + 1, "text": np.arange(90.0)[:, None] + 1},
        labels=data.labels,
    )
    seen: list[set[float]] = []

    def spy(train: Dataset, seed: int) -> Mapping[str, Any]:
        seen.append(set(train.views["image"][:, 0].tolist()))
        assert np.bincount(np.asarray(train.labels)).tolist() == [20, 20, 20]
        return by_labels(train, seed)

    scores = cross_validate(LSH(n_bits=8), marked, folds=3, seed=5, supervise=spy)
    assert len(scores) == 3
    assert set.intersection(*seen) == set()
    assert all(len(rows) == 60 for rows in seen)
    assert set.union(*seen) == set(range(1, 91))


def _either(method: type[Hasher], seed: int) -> Hasher:
    return method(n_bits=12, seed=seed)


def test_the_better_candidate_comes_first_with_its_mean_and_error() -> None:
    steps: list[Step] = []
    trials = compare(
        _either, [{"method": LSH}, {"method": CCAITQ}], data, folds=3, on_step=steps.append
    )
    assert [trial.fields["method"] for trial in trials] == [CCAITQ, LSH]
    assert trials[0].mean == pytest.approx(np.mean(trials[0].scores))
    assert trials[0].error == pytest.approx(np.std(trials[0].scores, ddof=1) / np.sqrt(3))
    assert [(step.number, step.of) for step in steps] == [(k, 6) for k in range(1, 7)]
    assert Trial({}, (1.0,)).error == 0


def test_the_score_is_the_mean_over_directions() -> None:
    model = CCAITQ(n_bits=8).fit(**data.fit_arguments(None))
    codes = {name: model.encode(name, view) for name, view in data.views.items()}
    relevant = from_labels(LABELS, LABELS)
    values = [
        mean_average_precision(codes[a], codes[b], relevant)
        for a, b in (("image", "text"), ("text", "image"))
    ]
    assert CrossValidation.score(model, data) == pytest.approx(100 * np.mean(values))


def test_a_single_modality_is_searched_within_itself() -> None:
    alone = Dataset(views={"image": data.views["image"]}, labels=data.labels)
    model = LSH(n_bits=8).fit(alone.views)
    codes = model.encode("image", alone.views["image"])
    relevant = from_labels(LABELS, LABELS)
    expected = mean_average_precision(codes, codes, relevant, exclude="same-row")
    assert CrossValidation.score(model, alone) == pytest.approx(100 * expected)


def test_multi_label_rows_are_stratified_too() -> None:
    multi_label = Dataset(views=data.views, labels=np.eye(3, dtype=bool)[LABELS])
    assert len(cross_validate(LSH(n_bits=8), multi_label, folds=2)) == 2


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(DataError, match="no candidates"):
        compare(LSH, [], data)
    with pytest.raises(DataError, match="aligned views with labels"):
        cross_validate(LSH(n_bits=8), Dataset(views=data.views))
    for folds in (1, 91):
        with pytest.raises(
            DataError, match=r"folds must be between 2 and the number of rows \(90\)"
        ):
            cross_validate(LSH(n_bits=8), data, folds=folds)

"""The choice among methods: folds, judges, and the rule of two standard errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import CCAITQ, HASHERS, Codes, Hasher, HashModel, Pairs
from crossbit.data import TrainingSet, training_set
from crossbit.hashers import Run, _selection
from crossbit.hashers._selection import (
    Verdict,
    by_counterparts,
    by_labels,
    choose,
    directions,
    fifth,
    halves,
)
from crossbit.metrics import mean_average_precision, same_class
from crossbit.metrics.counterparts import reciprocal_ranks
from crossbit.model import Affine

random = np.random.default_rng(0)


@dataclass(kw_only=True)
class Marked(Hasher):
    """A method whose codes name it, so that a judge can score it as a test likes."""

    mark: int = 0

    title: ClassVar[str] = "for tests"
    supervision: ClassVar[frozenset[str]] = frozenset()

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        bits = np.where(np.arange(self.n_bits) == self.mark, 1.0, -1.0)
        encoders = {
            name: [Affine(np.zeros((view.shape[1], self.n_bits)), bits)]
            for name, view in data.views.items()
        }
        rows = len(next(iter(data.views.values())))
        return HashModel(encoders, self.n_bits, card={"rows": rows})


HASHERS.pop("marked")


def choice(*scores: NDArray[np.float64]) -> Verdict:
    """Return the verdict on candidates with these scores of queries."""
    n = len(scores[0])
    data = training_set({"x": np.ones((n, 1))}, labels=np.zeros(n, int))

    def judge(left_out: TrainingSet, codes: Mapping[str, Codes]) -> NDArray[np.float64]:
        assert len(left_out.views["x"]) == n
        return scores[int(codes["x"].unpack()[0].argmax())]

    candidates = {f"candidate {k}": Marked(n_bits=8, mark=k) for k in range(len(scores))}
    return choose(candidates, iter([(data, data)]), judge)


def test_the_first_candidate_stays_within_two_standard_errors() -> None:
    first = random.random(50)
    noise = random.normal(size=50)
    noise -= noise.mean()
    error = noise.std() / 7
    for advantage, name in ((1.9, "candidate 0"), (2.1, "candidate 1")):
        assert choice(first, first + noise + advantage * error).name == name
    assert choice(first, first).name == "candidate 0"


def test_a_clearly_better_candidate_wins_and_so_does_the_best_of_several() -> None:
    first = random.random(50)
    better, best = first + 0.2 + 0.1 * random.random((2, 50)) * np.array([[1], [3]])
    for scores in ((first, better, best), (first, best, better)):
        verdict = choice(*scores)
        assert verdict.scores[verdict.name] == max(verdict.scores.values())
    assert choice(first, first - 0.1).name == "candidate 0"


def test_queries_without_relevant_rows_do_not_count() -> None:
    first = random.random(20)
    second = first + 0.1
    first[:5] = second[3:8] = np.nan
    verdict = choice(first, second)
    assert verdict.name == "candidate 1"
    assert verdict.scores["candidate 0"] == pytest.approx(100 * np.nanmean(first))
    assert verdict.card()["candidate 0"] == f"{100 * np.nanmean(first):.2f}"


def test_scores_are_those_of_all_folds() -> None:
    parts = [training_set({"x": np.ones((n, 1))}, labels=np.zeros(n, int)) for n in (3, 4)]

    def judge(left_out: TrainingSet, codes: Mapping[str, Codes]) -> NDArray[np.float64]:
        return np.full(len(codes["x"]), float(len(left_out.views["x"])))

    verdict = choose({"a": Marked(n_bits=8)}, zip(parts, parts[::-1], strict=True), judge)
    assert verdict.scores["a"] == pytest.approx(100 * (4 * 4 + 3 * 3) / 7)


# --- halves ---


def numbered(n: int, **supervision: Any) -> TrainingSet:  # noqa: ANN401
    """A set whose first column is the row number."""
    views = {
        name: np.column_stack([np.arange(n, dtype=float), random.normal(size=(n, 2))])
        for name in ("image", "text")
    }
    return training_set(views, **supervision)


def rows_of(data: TrainingSet, name: str) -> list[int]:
    return sorted(np.asarray(data.views[name])[:, 0].astype(int).tolist())


@pytest.mark.parametrize("multi_label", [False, True])
def test_halves_are_stratified_and_cover_all_labeled_rows(multi_label: bool) -> None:
    labels = np.repeat([0, 1, 2], [20, 10, 6])
    given: Any = np.eye(3, dtype=bool)[labels] if multi_label else labels
    folds = list(halves(numbered(36, labels=given), seed=0))
    assert len(folds) == 2
    left_out = [rows_of(part, "image") for _, part in folds]
    assert sorted(left_out[0] + left_out[1]) == list(range(36))
    for training, part in folds:
        assert rows_of(part, "image") == rows_of(part, "text")  # the same items
        assert sorted(rows_of(training, "text") + rows_of(part, "text")) == list(range(36))
        np.testing.assert_array_equal(np.bincount(labels[rows_of(part, "image")]), [10, 5, 3])


def test_rows_without_label_or_view_are_always_trained_on() -> None:
    labels = np.arange(40) % 2
    labels[:6] = -1
    data = numbered(40, labels=labels)
    views = {name: np.array(view) for name, view in data.views.items()}
    views["text"][10:14] = np.nan
    views["text"][:, 0] = np.where(np.isnan(views["text"][:, 0]), np.nan, np.arange(40))
    data = training_set(views, labels=labels)
    always = {*range(6), *range(10, 14)}
    for training, part in halves(data, seed=0):
        assert not always & set(rows_of(part, "image"))
        assert always <= set(rows_of(training, "image"))


def test_halves_of_unaligned_views_are_drawn_apart() -> None:
    views = {
        "image": np.column_stack([np.arange(30.0), np.ones(30)]),
        "text": np.column_stack([np.arange(20.0), np.ones(20)]),
    }
    labels = {"image": np.arange(30) % 3, "text": np.arange(20) % 2}
    first, second = halves(training_set(views, labels=labels), seed=0)
    for name, n in (("image", 30), ("text", 20)):
        both = rows_of(first[1], name) + rows_of(second[1], name)
        assert sorted(both) == list(range(n))
        np.testing.assert_array_equal(
            np.bincount(first[1].labels[name]), np.bincount(labels[name]) // 2
        )


def test_at_most_some_rows_are_scored_and_the_seed_draws_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = numbered(60, labels=np.arange(60) % 2)
    assert rows_of(next(halves(data, 0))[1], "image") == rows_of(next(halves(data, 0))[1], "image")
    assert rows_of(next(halves(data, 0))[1], "image") != rows_of(next(halves(data, 1))[1], "image")
    monkeypatch.setattr(_selection, "_MAX_HELD_OUT", 10)
    for training, part in halves(data, seed=0):
        assert len(training.views["image"]) == 30
        assert len(part.views["image"]) == 10


# --- judges ---


def packed(bits: NDArray[Any]) -> Codes:
    return Codes.pack(bits.astype(bool))


def test_labels_give_the_average_precision_of_each_query() -> None:
    data = numbered(12, labels=np.arange(12) % 3)
    codes = {name: packed(random.random((12, 8)) < 0.5) for name in data.views}
    values = by_labels(data, codes)
    relevant = same_class(np.arange(12) % 3, np.arange(12) % 3)
    assert values.shape == (24,)
    for part, (left, right) in zip(np.split(values, 2), directions(["image", "text"]), strict=True):
        expected = mean_average_precision(codes[left], codes[right], relevant)
        assert part.mean() == pytest.approx(expected)


def test_a_query_without_relevant_rows_has_no_value() -> None:
    data = training_set({"x": np.ones((5, 1))}, labels=np.array([0, 0, 1, 1, 2]))
    values = by_labels(data, {"x": packed(random.random((5, 8)) < 0.5)})
    np.testing.assert_array_equal(np.isnan(values), [0, 0, 0, 0, 1])


def test_directions_of_one_and_of_several_modalities() -> None:
    assert directions(["x"]) == [("x", "x")]
    assert directions(["a", "b"]) == [("a", "b"), ("b", "a")]
    assert len(directions(["a", "b", "c"])) == 6


def test_counterparts_give_the_reciprocal_rank_of_each_row() -> None:
    data = numbered(12, aligned=True)
    bits = {name: random.random((12, 8)) < 0.5 for name in data.views}
    values = by_counterparts(data, {name: packed(own) for name, own in bits.items()})
    expected = reciprocal_ranks({name: np.where(own, 1.0, -1.0) for name, own in bits.items()})
    np.testing.assert_allclose(values, expected)


# --- a fifth of the items ---


def leave_out_fifth(data: TrainingSet) -> tuple[TrainingSet, TrainingSet]:
    fold = fifth(data, np.random.default_rng(0), least=5)
    assert fold is not None
    return fold


def test_too_few_items_or_links_leave_out_nothing() -> None:
    assert fifth(numbered(20, aligned=True), np.random.default_rng(0), least=5) is None
    assert fifth(numbered(20, aligned=True), np.random.default_rng(0), least=4) is not None
    index = np.repeat(np.arange(50)[:, None], 2, axis=1)
    views = {name: random.normal(size=(50, 2)) for name in "abcd"}
    labels = np.arange(50) % 2
    every = np.argwhere(labels[:, None] == labels)
    of_class = Pairs("a", "b", every, np.ones(len(every), bool))
    pair = {name: views[name] for name in "ab"}
    # Every row is similar to a row that is left out.
    assert fifth(training_set(pair, pairs=of_class), np.random.default_rng(0), least=1) is None
    assert CCAITQ(n_bits=4).fit(pair, pairs=of_class).card["regularization"] == 0.1
    chain = [Pairs(a, b, index, np.ones(50, bool)) for a, b in pairwise("abcd")]
    data = training_set(views, pairs=chain)
    assert fifth(data, np.random.default_rng(0), least=1) is None
    assert CCAITQ(n_bits=4).fit(views, pairs=chain).card["regularization"] == 0.1


def test_a_fifth_of_aligned_rows_is_left_out() -> None:
    training, left_out = leave_out_fifth(numbered(50, aligned=True))
    assert len(left_out.views["image"]) == 10
    for name in ("image", "text"):
        both = rows_of(training, name) + rows_of(left_out, name)
        assert sorted(both) == list(range(50))
    np.testing.assert_array_equal(left_out.views["image"][:, 0], left_out.views["text"][:, 0])


def test_incomplete_items_are_trained_on() -> None:
    views = {name: np.array(view) for name, view in numbered(50).views.items()}
    views["text"][:20] = np.nan
    training, left_out = leave_out_fifth(training_set(views))
    assert len(left_out.views["image"]) == 6
    assert set(range(20)) <= set(rows_of(training, "image"))
    assert not np.isnan(left_out.views["text"]).any()


@pytest.mark.parametrize("turned", [False, True])
def test_all_captions_of_an_item_are_left_out_and_one_is_scored(turned: bool) -> None:
    owner = np.repeat(np.arange(25), 3)
    views = {
        "image": np.column_stack([np.arange(25.0), random.normal(size=(25, 2))]),
        "text": np.column_stack([np.arange(75.0), random.normal(size=(75, 2))]),
    }
    index = np.stack([owner, np.arange(75)], axis=1)
    similar = np.ones(75, bool)
    pairs = Pairs("image", "text", index, similar)
    if turned:
        pairs = Pairs("text", "image", index[:, ::-1], similar)
    data = training_set(views, pairs=pairs)
    training, left_out = leave_out_fifth(data)
    images = left_out.views["image"][:, 0].astype(int)
    captions = left_out.views["text"][:, 0].astype(int)
    assert len(images) == 5
    np.testing.assert_array_equal(owner[captions], images)  # row i of both is one item
    assert not set(images) & set(rows_of(training, "image"))
    assert not set(images) & {owner[row] for row in rows_of(training, "text")}
    assert len(training.views["text"]) == 60
    assert len(training.pairs[0]) == 60
    ends = training.pairs[0].index[:, :: -1 if turned else 1]
    np.testing.assert_array_equal(
        training.views["image"][ends[:, 0], 0],
        owner[training.views["text"][ends[:, 1], 0].astype(int)],
    )
    CCAITQ(n_bits=4)._learn(training, Run())

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import DataError, Pairs
from crossbit.data import training_set

Array = NDArray[Any]
LABELS = np.array([0, 0, 0, 1, 1, 2, -1])
VIEWS: dict[str, Array] = {"image": np.ones((7, 3)), "text": np.ones((7, 2))}


def drawn(
    *,
    n_similar: int = 1000,
    n_dissimilar: int = 1000,
    seed: int = 0,
    views: Any = VIEWS,  # noqa: ANN401
    **known: Any,  # noqa: ANN401
) -> Pairs:
    data = training_set(views, **known)
    return data.cross_pairs(
        "image", "text", n_similar=n_similar, n_dissimilar=n_dissimilar, seed=seed
    )


def as_set(pairs: Pairs, *, similar: bool) -> set[tuple[int, int]]:
    drawn_pairs = [(int(i), int(j)) for i, j in pairs.index[pairs.similar == similar]]
    assert len(drawn_pairs) == len(set(drawn_pairs))
    return set(drawn_pairs)


def test_labels_give_all_existing_pairs_if_more_are_requested() -> None:
    pairs = drawn(labels=LABELS)
    known = [(i, j) for i in range(6) for j in range(6)]
    assert as_set(pairs, similar=True) == {(i, j) for i, j in known if LABELS[i] == LABELS[j]}
    assert as_set(pairs, similar=False) == {(i, j) for i, j in known if LABELS[i] != LABELS[j]}


def test_labels_give_the_requested_number() -> None:
    pairs = drawn(labels=LABELS, n_similar=5, n_dissimilar=9)
    assert (pairs.similar.sum(), (~pairs.similar).sum()) == (5, 9)
    assert (
        LABELS[pairs.index[:, 0]] == LABELS[pairs.index[:, 1]]
    ).tolist() == pairs.similar.tolist()


def test_labels_of_unpaired_views_and_multiple_labels_work() -> None:
    views = {"image": np.ones((6, 3)), "text": np.ones((4, 2))}
    assert len(drawn(views=views, labels={"image": LABELS[:6], "text": LABELS[:4]})) == 24
    many = np.array([[1, 0], [1, 1], [0, 1], [0, 0], [1, 0], [0, 1], [1, 1]])
    pairs = drawn(labels=many)
    shares = (many @ many.T > 0)[pairs.index[:, 0], pairs.index[:, 1]]
    assert shares.tolist() == pairs.similar.tolist()
    assert len(pairs) == 36


def test_aligned_rows_are_similar_and_all_others_are_not() -> None:
    pairs = drawn()
    assert as_set(pairs, similar=True) == {(i, i) for i in range(7)}
    assert as_set(pairs, similar=False) == {(i, j) for i in range(7) for j in range(7) if i != j}
    small = drawn(n_similar=3, n_dissimilar=10)
    assert (small.similar.sum(), (~small.similar).sum()) == (3, 10)
    assert not {(i, i) for i in range(7)} & as_set(small, similar=False)


def test_absent_rows_are_ignored() -> None:
    views = {name: view.copy() for name, view in VIEWS.items()}
    views["image"][1], views["text"][2] = np.nan, np.nan
    for labels in (None, LABELS):
        index = drawn(views=views, labels=labels).index
        assert 1 not in index[:, 0]
        assert 2 not in index[:, 1]


def test_explicit_pairs_are_all_used_in_either_order() -> None:
    there = Pairs("image", "text", [[0, 1], [2, 3]], [True, False])  # type: ignore[arg-type] # lists will do
    back = Pairs("text", "image", [[4, 5]], [False])  # type: ignore[arg-type]
    within = Pairs("image", "image", [[0, 1]], [True])  # type: ignore[arg-type]
    pairs = drawn(pairs=[there, back, within], labels=LABELS, n_similar=1, n_dissimilar=1)
    assert as_set(pairs, similar=True) == {(0, 1)}
    assert as_set(pairs, similar=False) == {(2, 3), (5, 4)}


def test_similar_pairs_alone_get_random_dissimilar_pairs() -> None:
    explicit = Pairs("image", "text", np.array([[0, 1], [2, 3]]), np.ones(2, bool))
    pairs = drawn(pairs=explicit, n_dissimilar=20)
    assert as_set(pairs, similar=True) == {(0, 1), (2, 3)}
    assert len(as_set(pairs, similar=False) - {(0, 1), (2, 3)}) == 20
    assert len(drawn(pairs=explicit)) == 49


def test_pairs_within_a_modality_do_not_replace_labels() -> None:
    within = Pairs("image", "image", np.array([[0, 1]]), np.ones(1, bool))
    assert len(drawn(pairs=within, labels=LABELS)) == 36


def test_the_same_seed_gives_the_same_pairs() -> None:
    for labels in (None, LABELS):
        first, again, other = (
            drawn(n_similar=3, n_dissimilar=5, seed=seed, labels=labels) for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first.index, again.index)
        assert not np.array_equal(first.index, other.index)


def test_missing_kinds_of_pairs_are_reported() -> None:
    within = Pairs("image", "image", np.array([[0, 1]]), np.ones(1, bool))
    with pytest.raises(
        DataError,
        match="nothing links 'image' to 'text'; pass pairs image-text, labels of both, or",
    ):
        drawn(pairs=within)
    dissimilar = Pairs("image", "text", np.array([[0, 1]]), np.zeros(1, bool))
    with pytest.raises(
        DataError, match="there are no similar pairs of 'image' and 'text'; training needs both"
    ):
        drawn(pairs=dissimilar)
    single_row = {name: view[:1] for name, view in VIEWS.items()}
    with pytest.raises(DataError, match="there are no dissimilar pairs of 'image' and 'text'"):
        drawn(views=single_row)
    with pytest.raises(DataError, match="1000 dissimilar pairs were requested, but only 0 exist"):
        drawn(labels=np.zeros(7, int))
    with pytest.raises(
        DataError, match="at least one similar and one dissimilar pair, got a number of 0"
    ):
        drawn(n_dissimilar=0)

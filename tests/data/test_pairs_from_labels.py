"""Pairs drawn from labels, held against the definition."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit.data import pairs_from_labels
from crossbit.errors import DataError

Labels = NDArray[Any]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_similar": 1.5}, "n_similar must be an integer of at least 0, got 1.5"),
        ({"n_dissimilar": -1}, "n_dissimilar must be an integer of at least 0, got -1"),
        ({"n_dissimilar": True}, "n_dissimilar must be an integer of at least 0, got True"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"seed": 0.5}, "seed must be an integer of at least 0, got 0.5"),
    ],
)
def test_counts_and_seeds_must_be_integers(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        pairs_from_labels(
            [0, 0, 1], "image", "text", **{"n_similar": 1, "n_dissimilar": 1, "seed": 0} | wrong
        )


@st.composite
def label_arrays(draw: st.DrawFn, n_classes: int, *, multi: bool) -> Labels:
    n = draw(st.integers(1, 14))
    if multi:
        flat = draw(st.lists(st.booleans(), min_size=n * n_classes, max_size=n * n_classes))
        return np.array(flat).reshape(n, n_classes)
    return np.array(draw(st.lists(st.integers(-1, n_classes - 1), min_size=n, max_size=n)))


@st.composite
def two_sides(draw: st.DrawFn) -> tuple[Labels, Labels]:
    n_classes, multi = draw(st.integers(1, 5)), draw(st.booleans())
    return draw(label_arrays(n_classes, multi=multi)), draw(label_arrays(n_classes, multi=multi))


def existing(
    a: Labels, b: Labels, *, within: bool
) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Enumerate all similar and all dissimilar pairs."""
    seen: tuple[set[tuple[int, int]], set[tuple[int, int]]] = (set(), set())
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            known = (x.any() and y.any()) if a.ndim == 2 else (x >= 0 and y >= 0)
            if known and not (within and i >= j):
                share = bool((x & y).any()) if a.ndim == 2 else bool(x == y)
                seen[0 if share else 1].add((i, j))
    return seen


@given(two_sides(), st.booleans(), st.floats(0, 1), st.integers(0, 2**32))
def test_pairs_are_distinct_and_match_the_definition(
    sides: tuple[Labels, Labels], within: bool, share: float, seed: int
) -> None:
    a, b = (sides[0], sides[0]) if within else sides
    right = "image" if within else "text"
    similar, dissimilar = existing(a, b, within=within)
    wanted = round(share * len(similar)), round((1 - share) * len(dissimilar))
    pairs = pairs_from_labels(
        {"image": a, right: b},
        "image",
        right,
        n_similar=wanted[0],
        n_dissimilar=wanted[1],
        seed=seed,
    )
    drawn = [(int(i), int(j)) for i, j in pairs.index]
    assert len(set(drawn)) == len(drawn)
    assert {p for p, s in zip(drawn, pairs.similar, strict=True) if s} <= similar
    assert {p for p, s in zip(drawn, pairs.similar, strict=True) if not s} <= dissimilar
    assert int(pairs.similar.sum()) == wanted[0]
    assert int((~pairs.similar).sum()) == wanted[1]


@given(two_sides(), st.booleans(), st.booleans())
def test_all_existing_pairs_can_be_drawn_and_one_more_is_rejected(
    sides: tuple[Labels, Labels], within: bool, of_similar: bool
) -> None:
    a, b = (sides[0], sides[0]) if within else sides
    right = "image" if within else "text"
    exist = len(existing(a, b, within=within)[0 if of_similar else 1])
    labels = {"image": a, right: b}

    def ask(n: int) -> int:
        counts = (n, 0) if of_similar else (0, n)
        return len(
            pairs_from_labels(
                labels, "image", right, n_similar=counts[0], n_dissimilar=counts[1], seed=0
            )
        )

    assert ask(exist) == exist
    kind = "similar" if of_similar else "dissimilar"
    with pytest.raises(
        DataError, match=f"^{exist + 1} {kind} pairs were requested, but only {exist} exist"
    ):
        ask(exist + 1)


@pytest.mark.parametrize("right", ["image", "text"])
@pytest.mark.parametrize("share", [0.3, 0.97])
def test_a_large_share_of_all_pairs_is_drawn_exactly(right: str, share: float) -> None:
    labels = np.random.default_rng(0).random((150, 6)) < 0.3
    similar, dissimilar = existing(labels, labels, within=right == "image")
    wanted = int(share * len(similar)), int(share * len(dissimilar))
    pairs = pairs_from_labels(
        labels, "image", right, n_similar=wanted[0], n_dissimilar=wanted[1], seed=0
    )
    drawn = [set(map(tuple, pairs.index[pairs.similar == kind].tolist())) for kind in (True, False)]
    assert (len(drawn[0]), len(drawn[1])) == wanted
    assert drawn[0] <= similar
    assert drawn[1] <= dissimilar


def test_the_seed_determines_the_pairs() -> None:
    labels = np.arange(200) % 5
    first, second, third = (
        pairs_from_labels(labels, "image", "text", n_similar=50, n_dissimilar=50, seed=seed)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.index, second.index)
    np.testing.assert_array_equal(first.similar, second.similar)
    assert not np.array_equal(first.index, third.index)


def test_similar_pairs_are_spread_evenly_and_small_classes_are_exhausted() -> None:
    labels = np.repeat([0, 1, 2, 3], [2, 30, 100, 500])
    pairs = pairs_from_labels(labels, "image", "text", n_similar=904, n_dissimilar=0, seed=0)
    counts = Counter(labels[pairs.index[:, 0]].tolist())
    assert counts[0] == 4  # 2 × 2 is all there is
    assert [counts[c] for c in (1, 2, 3)] == pytest.approx([300] * 3, abs=60)
    assert sum(counts.values()) == 904


def test_dissimilar_pairs_are_spread_evenly_over_the_classes_of_both_sides() -> None:
    labels = np.repeat([0, 1, 2], [20, 100, 900])
    pairs = pairs_from_labels(labels, "image", "text", n_similar=0, n_dissimilar=3000, seed=0)
    for column in (0, 1):
        counts = Counter(labels[pairs.index[:, column]].tolist())
        assert [counts[c] for c in range(3)] == pytest.approx([1000] * 3, abs=150)


def test_pairs_come_in_random_order() -> None:
    pairs = pairs_from_labels(
        np.arange(1000) % 4, "image", "text", n_similar=500, n_dissimilar=500, seed=0
    )
    assert 200 < pairs.similar[:500].sum() < 300


def test_a_row_pairs_with_itself_only_across_modalities() -> None:
    labels = [0, 1]
    assert len(pairs_from_labels(labels, "image", "text", n_similar=2, n_dissimilar=2, seed=0)) == 4
    with pytest.raises(
        DataError, match=r"1 similar pairs were requested, but only 0 exist; request fewer$"
    ):
        pairs_from_labels(labels, "image", "image", n_similar=1, n_dissimilar=1, seed=0)


def test_duplicates_fill_a_shortage_if_allowed() -> None:
    pairs = pairs_from_labels(
        [0, 0], "image", "image", n_similar=7, n_dissimilar=0, seed=0, duplicates=True
    )
    assert pairs.index.tolist() == [[0, 1]] * 7
    with pytest.raises(DataError, match="1 dissimilar pairs were requested, but only 0 exist"):
        pairs_from_labels(
            [0, 0], "image", "image", n_similar=0, n_dissimilar=1, seed=0, duplicates=True
        )


def test_one_common_class_leaves_no_dissimilar_pairs() -> None:
    with pytest.raises(DataError, match="5 dissimilar pairs were requested, but only 0 exist"):
        pairs_from_labels(
            np.ones((100_000, 3), bool), "image", "text", n_similar=0, n_dissimilar=5, seed=0
        )


def test_a_million_pairs_of_a_hundred_thousand_rows_with_81_labels() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random((100_000, 81)) < np.minimum(0.35, 0.5 / np.arange(1, 82))
    pairs = pairs_from_labels(
        labels, "image", "text", n_similar=500_000, n_dissimilar=500_000, seed=0
    )
    left, right = labels[pairs.index[:, 0]], labels[pairs.index[:, 1]]
    np.testing.assert_array_equal((left & right).any(axis=1), pairs.similar)
    assert left.any(axis=1).all()
    assert right.any(axis=1).all()
    assert len(np.unique(pairs.index @ [100_000, 1])) == 1_000_000


def test_labels_of_different_forms_or_widths_are_rejected() -> None:
    with pytest.raises(
        DataError, match=r"must use the same form and classes, got shapes \(3, 2\) and \(4, 3\)"
    ):
        pairs_from_labels(
            {"image": np.ones((3, 2), bool), "text": np.ones((4, 3), bool)},
            "image",
            "text",
            n_similar=1,
            n_dissimilar=0,
            seed=0,
        )
    with pytest.raises(DataError, match="unknown modality 'text'; known: \\['image'\\]"):
        pairs_from_labels({"image": [0, 1]}, "image", "text", n_similar=1, n_dissimilar=0, seed=0)
    with pytest.raises(DataError, match="n_similar must be an integer of at least 0, got -1"):
        pairs_from_labels([0, 1], "image", "text", n_similar=-1, n_dissimilar=0, seed=0)

"""Reciprocal ranks of counterparts against a plain loop over all orders of ties."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit.metrics.counterparts import reciprocal_rank, reciprocal_ranks

Floats = NDArray[np.float64]


def brute(Z: dict[str, Floats]) -> list[float]:
    """Mean over all orders of tied rows of 1 / rank of each row's counterpart."""
    values = []
    for a, b in permutations(Z, 2):
        rows = [
            i for i in range(len(Z[a])) if not np.isnan(Z[a][i]).any() | np.isnan(Z[b][i]).any()
        ]
        for i in rows:
            cosines = {j: round(cosine(Z[a][i], Z[b][j]), 9) for j in rows}
            nearer = sum(cosines[j] > cosines[i] for j in rows)
            tied = [j for j in rows if cosines[j] == cosines[i]]
            orders = list(permutations(tied))
            ranks = [nearer + order.index(i) + 1 for order in orders]
            values.append(float(np.mean([1 / rank for rank in ranks])))
    return values


def cosine(x: Floats, y: Floats) -> float:
    lengths = [max(float(np.linalg.norm(each)), 1e-12) for each in (x, y)]
    return float(x @ y) / lengths[0] / lengths[1]


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([1, 2, 3]))
def test_ties_count_with_all_their_orders(seed: int, n: int, width: int) -> None:
    random = np.random.default_rng(seed)
    Z = {name: random.choice([-1.0, 1.0], size=(n, width)) for name in ("image", "text")}
    np.testing.assert_allclose(reciprocal_ranks(Z), brute(Z))


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")])
def test_rows_that_lack_a_modality_take_no_part(names: tuple[str, ...]) -> None:
    random = np.random.default_rng(0)
    Z = {name: random.normal(size=(6, 3)) for name in names}
    for number, rows in enumerate(Z.values()):
        rows[number] = np.nan
    ranks = reciprocal_ranks(Z)
    assert len(ranks) == 4 * len(names) * (len(names) - 1)  # 4 rows per direction
    np.testing.assert_allclose(ranks, brute(Z))


def test_lengths_do_not_matter_and_rows_of_zeros_are_tied() -> None:
    random = np.random.default_rng(0)
    Z = {name: random.normal(size=(5, 4)) for name in ("a", "b")}
    longer = {name: rows * random.uniform(1, 9, size=(5, 1)) for name, rows in Z.items()}
    np.testing.assert_allclose(reciprocal_ranks(longer), reciprocal_ranks(Z))
    zeros = {name: np.zeros((3, 2)) for name in ("a", "b")}
    np.testing.assert_allclose(reciprocal_ranks(zeros), (1 + 1 / 2 + 1 / 3) / 3)


def test_order_is_direction_after_direction() -> None:
    Z: dict[str, Any] = {
        "a": np.array([[1.0, 0.0], [1.0, 0.1]]),
        "b": np.array([[1.0, 0.0], [0.0, 1.0]]),
    }
    # Both rows of a are nearest to row 0 of b; both rows of b find their own row of a.
    np.testing.assert_allclose(reciprocal_ranks(Z), [1, 0.5, 1, 1])
    assert reciprocal_rank(Z) == pytest.approx(3.5 / 4)


def test_nothing_to_rank_is_0() -> None:
    assert reciprocal_rank({"a": np.ones((3, 2))}) == 0
    assert len(reciprocal_ranks({"a": np.ones((3, 2))})) == 0
    nothing = {"a": np.full((2, 2), np.nan), "b": np.ones((2, 2))}
    assert reciprocal_rank(nothing) == 0

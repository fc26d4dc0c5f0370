"""Rotations of nested codes."""

import numpy as np
import pytest

from crossbit.linalg import Matrix
from crossbit.linalg.itq import itq, nested_itq, random_rotation

LENGTHS = [4, 8, 16]


def projections(k: int = 24) -> Matrix:
    """Rows whose first columns are the largest."""
    return np.random.default_rng(0).normal(size=(500, k)) * np.arange(1, k + 1) ** -1.0


def test_the_first_columns_are_the_rotation_of_a_short_code() -> None:
    V = projections()
    R = nested_itq(V, LENGTHS, np.random.default_rng(1), rounds=5)
    alone = itq(V, random_rotation(24, 4, np.random.default_rng(1)), rounds=5)
    np.testing.assert_allclose(R[:, :4], alone / np.sqrt(np.square(V @ alone).mean()))


def test_shorter_codes_use_larger_columns_and_all_have_unit_size() -> None:
    V = projections()
    R = nested_itq(V, LENGTHS, np.random.default_rng(1), rounds=20)
    blocks = np.split(R, LENGTHS[:-1], axis=1)
    leading = [np.square(block[:6]).sum() / np.square(block).sum() for block in blocks]
    assert leading[0] > leading[1] > leading[2]
    for block in blocks:
        assert np.square(V @ block).mean() == pytest.approx(1)


@pytest.mark.parametrize("k", [3, 9])
def test_codes_may_be_longer_than_the_projections(k: int) -> None:
    R = nested_itq(projections(k), LENGTHS, np.random.default_rng(1), rounds=5)
    assert R.shape == (k, 16)
    assert (np.linalg.norm(R, axis=0) > 0).all()

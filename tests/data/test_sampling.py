"""Held-out shares and batches of rows."""

from itertools import islice

import numpy as np
import pytest

from crossbit.data.sampling import hold_out, row_batches


def test_every_class_gives_its_share() -> None:
    classes = np.repeat([0, 1, 2], [100, 40, 20])
    held_out = hold_out(classes, 0.25, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(classes[held_out]), [25, 10, 5])


def test_no_more_than_the_limit_is_held_out() -> None:
    assert hold_out(np.zeros(100), 0.5, np.random.default_rng(0), most=7).sum() == 7
    assert not hold_out(np.zeros(0), 0.5, np.random.default_rng(0)).any()


@pytest.mark.parametrize(("n", "size", "expected"), [(10, 4, 4), (3, 4, 3), (4, 4, 4), (0, 4, 0)])
def test_batches_are_parts_of_random_orders(n: int, size: int, expected: int) -> None:
    rows = 100 + np.arange(n)
    for batch in islice(row_batches(rows, size, np.random.default_rng(0)), 7):
        assert len(set(batch)) == len(batch) == expected
        assert set(batch) <= set(rows)


def test_all_rows_take_part() -> None:
    batches = islice(row_batches(np.arange(10), 4, np.random.default_rng(0)), 20)
    assert set(np.concatenate(list(batches))) == set(range(10))

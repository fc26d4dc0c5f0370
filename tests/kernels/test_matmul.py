"""Matrix products at every level: definition, batch invariance, rows that are not finite."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import kernels
from crossbit.kernels import Matmul, matmul, pack_signs

LEVELS = kernels.levels()


def case(n: int, depth: int, columns: int, seed: int = 0) -> tuple[matmul.Floats, Matmul]:
    random = np.random.default_rng(seed)
    weight = random.normal(size=(depth, columns))
    bias = random.normal(size=columns)
    X = random.normal(size=(n, depth)).astype(np.float32)
    return X, Matmul(weight.astype(np.float32), bias.astype(np.float32))


@pytest.mark.parametrize("level", LEVELS)
@given(
    n=st.integers(0, 40),
    depth=st.integers(0, 70),
    columns=st.integers(1, 140),
    seed=st.integers(0, 99),
)
def test_a_product_equals_its_definition(
    level: str, n: int, depth: int, columns: int, seed: int
) -> None:
    X, multiply = case(n, depth, columns, seed)
    expected = X.astype(np.float64) @ multiply.weight + multiply.bias
    with kernels.forced(level):
        product = multiply(X)
        words, first_bad_row = multiply.signs(X)
    assert product.shape == (n, columns)
    assert np.allclose(product, expected, atol=1e-5 * (1 + depth))
    assert (words == pack_signs(product)).all()
    assert first_bad_row == n


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "numpy"])
@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (10, 32), (129, 33), (500, 64), (300, 200)])
def test_the_product_of_a_row_does_not_depend_on_other_rows(
    level: str, depth: int, columns: int
) -> None:
    X, multiply = case(700, depth, columns)
    with kernels.forced(level):
        products = multiply(X)
        signs, _ = multiply.signs(X)
        for begin, end in ((0, 1), (699, 700), (5, 18), (100, 141)):
            assert (multiply(X[begin:end]) == products[begin:end]).all()
            assert (multiply.signs(X[begin:end])[0] == signs[begin:end]).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_signs_returns_the_first_row_that_is_not_finite(level: str, value: float) -> None:
    X, multiply = case(600, 20, 40)
    X[[411, 517], 3] = value
    with kernels.forced(level):
        assert multiply.signs(X)[1] == 411


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_number_of_threads_does_not_matter(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, multiply = case(3000, 64, 48)
    X[1234] = np.nan
    expected = multiply(X)
    monkeypatch.setattr(matmul, "_max_threads", lambda: threads)
    monkeypatch.setattr(matmul, "_WORK_PER_THREAD", 1)
    assert np.array_equal(multiply(X), expected, equal_nan=True)
    assert multiply.signs(X)[1] == 1234


def test_strided_and_float64_rows_are_accepted() -> None:
    X, multiply = case(30, 12, 9)
    assert (multiply(np.asfortranarray(X)) == multiply(X)).all()
    assert (multiply(X.astype(np.float64)[::2]) == multiply(X)[::2]).all()  # type: ignore[arg-type]


def test_omp_num_threads_limits_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = kernels.available_cores()
    for limit, expected in (("1", 1), ("0", 1), ("many", cores), ("", cores)):
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
        matmul._max_threads.cache_clear()
        assert matmul._max_threads() == expected
    matmul._max_threads.cache_clear()

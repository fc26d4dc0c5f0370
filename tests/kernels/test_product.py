"""Products against their definition, at every level; a row alone and in company; rows that are not finite."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import kernels
from crossbit.kernels import Product, dispatch, pack_signs, product

LEVELS = kernels.levels()


def case(n: int, depth: int, columns: int, seed: int = 0) -> tuple[product.Floats, Product]:
    random = np.random.default_rng(seed)
    weight, bias = random.normal(size=(depth, columns)), random.normal(size=columns)
    X = random.normal(size=(n, depth)).astype(np.float32)
    return X, Product(weight.astype(np.float32), bias.astype(np.float32))


@pytest.mark.parametrize("level", LEVELS)
@given(
    n=st.integers(0, 40),
    depth=st.integers(0, 70),
    columns=st.integers(1, 140),
    seed=st.integers(0, 99),
)
def test_a_product_is_its_definition(
    level: str, n: int, depth: int, columns: int, seed: int
) -> None:
    X, multiply = case(n, depth, columns, seed)
    expected = X.astype(np.float64) @ multiply.weight + multiply.bias
    with kernels.forced(level):
        found = multiply(X)
        words, bad = multiply.signs(X)
    assert found.shape == (n, columns)
    assert np.allclose(found, expected, atol=1e-5 * (1 + depth))
    assert (words == pack_signs(found)).all()
    assert bad == n


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "numpy"])
@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (10, 32), (129, 33), (500, 64), (300, 200)])
def test_a_row_alone_has_the_product_it_has_in_company(
    level: str, depth: int, columns: int
) -> None:
    X, multiply = case(700, depth, columns)
    with kernels.forced(level):
        whole, signs = multiply(X), multiply.signs(X)[0]
        for begin, end in ((0, 1), (699, 700), (5, 18), (100, 141)):
            assert (multiply(X[begin:end]) == whole[begin:end]).all()
            assert (multiply.signs(X[begin:end])[0] == signs[begin:end]).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_row_that_is_not_finite_is_told(level: str, value: float) -> None:
    X, multiply = case(600, 20, 40)
    X[[411, 517], 3] = value
    with kernels.forced(level):
        assert multiply.signs(X)[1] == 411


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_do_not_change_anything(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, multiply = case(3000, 64, 48)
    X[1234] = np.nan
    expected = multiply(X)
    monkeypatch.setattr(product, "_cores", lambda: threads)
    monkeypatch.setattr(product, "_WORTH_A_THREAD", 1)
    assert np.array_equal(multiply(X), expected, equal_nan=True)
    assert multiply.signs(X)[1] == 1234


def test_strided_and_double_rows_are_taken() -> None:
    X, multiply = case(30, 12, 9)
    assert (multiply(np.asfortranarray(X)) == multiply(X)).all()
    assert (multiply(X.astype(np.float64)[::2]) == multiply(X)[::2]).all()  # type: ignore[arg-type]


def test_the_environment_may_say_fewer_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for asked, expected in (("1", 1), ("0", 1), ("many", None), ("", None)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        product._cores.cache_clear()
        assert product._cores() == (expected or product._cores.__wrapped__())
    product._cores.cache_clear()


@pytest.mark.skipif(dispatch.native is None, reason="the kernels are not compiled")
def test_buffers_that_are_too_small_are_refused() -> None:
    X, multiply = case(4, 5, 6)
    native, panels, bias = dispatch.native, multiply._panels, multiply._bias
    assert native is not None
    out = np.zeros((4, 6), np.float32)
    assert native.product(0, 1, 4, 5, 6, X, panels, bias, out, None) == 4
    for what, arguments in {
        "x": (X[:3], panels, bias, out, None),
        "panels": (X, panels[:, :4], bias, out, None),
        "bias": (X, panels, bias[:6], out, None),
        "out": (X, panels, bias, out[:3], None),
        "words": (X, panels, bias, None, np.zeros((3, 1), np.uint64)),
    }.items():
        with pytest.raises(ValueError, match=f"{what}: .* bytes expected"):
            native.product(
                0, 1, 4, 5, 6, *(a if a is None else np.ascontiguousarray(a) for a in arguments)
            )
    with pytest.raises(ValueError, match="sizes ≥ 0"):
        native.product(0, 0, 4, 5, 6, X, panels, bias, out, None)
    with pytest.raises(ValueError, match="no level"):
        native.product(9, 1, 4, 5, 6, X, panels, bias, out, None)

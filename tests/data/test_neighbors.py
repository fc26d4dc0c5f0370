"""Neighbors against their definition, and what is rejected."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import DataError
from crossbit.data import neighbors as module
from crossbit.data import training_set
from crossbit.data.neighbors import find_neighbors, parse_metric

random = np.random.default_rng(0)


def nearest(X: NDArray[Any], metric: str, k: int) -> list[set[int]]:
    """Sort all distances of each row, as the definition says."""
    X = X.astype(np.float64)
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    squares = np.square(X[:, None] - X).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    return [set(row[:k].tolist()) for row in np.argsort(squares, axis=1)]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("block", [7, 64, 1000])
def test_neighbors_are_those_of_the_definition(
    metric: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROWS", block)
    monkeypatch.setattr(module, "_ANCHORS", max(block // 2, 4))
    X = random.normal(size=(150, 6)) * random.uniform(0.5, 2, size=(150, 1))
    present = np.ones(150, np.bool_)
    found = find_neighbors("text", X, present, f"{metric}(4)")
    assert (found.metric, found.k, found.modality) == (metric, 4, "text")
    index, similar = found.pairs.index, found.pairs.similar
    expected = nearest(X, metric, 4)
    for row in range(150):
        assert set(index[similar & (index[:, 0] == row), 1].tolist()) == expected[row]
    assert not any(int(j) in expected[i] or i == j for i, j in index[~similar])
    squares = found.squared_distances(np.arange(150), np.arange(150))
    near = squares[tuple(index[similar].T)]
    far = squares[tuple(index[~similar].T)]
    assert near.mean() < 0.5 * far.mean()
    assert found.scale == pytest.approx(
        np.sort(squares + np.diag(np.full(150, 99.0)), axis=1)[:, 3].mean(), rel=1e-4
    )


def test_absent_rows_are_neither_anchors_nor_neighbors() -> None:
    X = random.normal(size=(40, 3))
    X[::4] = np.nan
    data = training_set({"text": X}, neighbors="euclidean(3)")
    rows = np.unique(data.neighbors["text"].pairs.index)
    assert not np.isin(rows, np.arange(0, 40, 4)).any()


def test_of_many_rows_a_sample_has_neighbors() -> None:
    X = random.normal(size=(300, 5))
    found = find_neighbors("text", X, np.ones(300, np.bool_), "cosine(3)", max_anchors=50)
    anchors = np.unique(found.pairs.index[:, 0])
    expected = nearest(X, "cosine", 3)
    assert len(anchors) == 50
    for row in anchors:
        mine = found.pairs.similar & (found.pairs.index[:, 0] == row)
        assert set(found.pairs.index[mine, 1].tolist()) == expected[row]


def test_few_rows_have_fewer_neighbors() -> None:
    found = find_neighbors("text", random.normal(size=(5, 3)), np.ones(5, np.bool_), "cosine")
    assert found.k == 2
    assert found.pairs.similar.sum() == 10


def test_rows_of_zeros_and_large_numbers_have_a_cosine() -> None:
    X = random.normal(size=(30, 3)) * 1e17
    X[0] = 0
    found = find_neighbors("text", X, np.ones(30, np.bool_), "cosine(2)")
    assert np.isfinite(found.squared_distances(np.arange(30), np.arange(30))).all()


@pytest.mark.parametrize("metric", ["manhattan", "cosine(0)", "cosine(x)", "cosine()", 3, None])
def test_an_unknown_metric_is_rejected(metric: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(DataError, match=r"unknown metric .*; known: \['cosine', 'euclidean'\]"):
        parse_metric(metric)


def test_metrics_by_modality() -> None:
    views = {"image": random.normal(size=(20, 3)), "text": random.normal(size=(20, 4))}
    both = training_set(views, neighbors="cosine(2)").neighbors
    assert {name: found.metric for name, found in both.items()} == {
        "image": "cosine",
        "text": "cosine",
    }
    one = training_set(views, neighbors={"text": "euclidean"}).neighbors
    assert list(one) == ["text"]
    with pytest.raises(DataError, match="unknown modality 'sound'"):
        training_set(views, neighbors={"sound": "cosine"})


def test_too_few_rows_and_tensors_are_rejected() -> None:
    with pytest.raises(DataError, match="neighbors of 'text': at least 3 rows are needed, got 2"):
        training_set({"text": np.eye(2)}, neighbors="cosine")
    with pytest.raises(DataError, match=r"expected rows of shape \(n, d\), got \(5, 2, 2\)"):
        training_set({"image": np.ones((5, 2, 2))}, neighbors="cosine")

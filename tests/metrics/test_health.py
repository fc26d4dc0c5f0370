"""Code health and the overlap of distance distributions."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit.codes import Codes, hamming
from crossbit.errors import DataError
from crossbit.metrics import DistanceOverlap, code_health, rank_codes, rank_scores, same_class


@given(st.integers(0, 1 << 32), st.sampled_from([1, 5, 64, 70]), st.integers(1, 40))
def test_health_equals_the_definitions(seed: int, n_bits: int, n: int) -> None:
    bits = np.random.default_rng(seed).random((n, n_bits)) < 0.3
    health = code_health(Codes.pack(bits))
    share = bits.mean(axis=0)
    entropy = [
        0.0 if p in (0, 1) else -p * math.log2(p) - (1 - p) * math.log2(1 - p) for p in share
    ]
    np.testing.assert_allclose(health.bit_entropy, entropy, atol=1e-12)
    dead = [i for i in range(n_bits) if len(set(bits[:, i].tolist())) == 1]
    assert list(health.dead_bits) == dead
    columns = {i: bits[:, i].tolist() for i in range(n_bits) if i not in dead}
    opposite = {i: (~bits[:, i]).tolist() for i in columns}
    pairs = [
        (i, j)
        for j in columns
        for i in columns
        if i < j and columns[i] in (columns[j], opposite[j])
    ]
    assert health.duplicate_bits == tuple(
        min(p for p in pairs if p[1] == j) for j in sorted({j for _, j in pairs})
    )
    _, counts = np.unique(bits, axis=0, return_counts=True)
    assert health.unique_codes == len(counts)
    assert health.code_entropy == pytest.approx(
        -(counts / n * np.log2(counts / n)).sum(), abs=1e-12
    )


def test_correlation_and_effective_bits_equal_their_definitions() -> None:
    rng = np.random.default_rng(0)
    bits = (rng.normal(size=(500, 10)) @ rng.normal(size=(10, 20))) > 0.5
    health = code_health(Codes.pack(bits))
    correlation = np.abs(np.corrcoef(bits.T))
    assert health.mean_correlation == pytest.approx(correlation[~np.eye(20, dtype=bool)].mean())
    eigenvalues = np.linalg.eigvalsh(np.cov(bits.T))
    assert health.effective_bits == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


def test_extreme_codes_have_extreme_health() -> None:
    all_codes = np.array([[i >> j & 1 for j in range(6)] for i in range(64)], np.bool_)
    perfect = code_health(Codes.pack(all_codes))
    assert (perfect.unique_codes, perfect.code_entropy, perfect.duplicate_bits) == (64, 6.0, ())
    assert perfect.effective_bits == pytest.approx(6)
    assert perfect.mean_correlation == pytest.approx(0)
    dead = code_health(Codes.pack(np.ones((9, 3), np.bool_)))
    assert (dead.dead_bits, dead.unique_codes) == ((0, 1, 2), 1)
    assert (dead.effective_bits, dead.mean_correlation) == (0, 0)
    assert json.loads(json.dumps(dead.to_dict()))["dead_bits"] == [0, 1, 2]


def test_overlap_is_the_area_shared_by_the_histograms() -> None:
    rng = np.random.default_rng(0)
    codes = Codes.pack(rng.random((50, 9)) < 0.5)
    classes = rng.integers(3, size=50)
    result = DistanceOverlap.of(
        rank_codes(codes, codes, same_class(classes, classes), exclude="same-row")
    )
    distances = hamming(codes, codes)
    same = classes[:, None] == classes
    others = ~np.eye(50, dtype=bool)
    positive = np.bincount(distances[same & others], minlength=10) / (same & others).sum()
    negative = np.bincount(distances[~same], minlength=10) / (~same).sum()
    np.testing.assert_allclose(result.positive, positive)
    np.testing.assert_allclose(result.negative, negative)
    assert result.overlap == pytest.approx(np.minimum(positive, negative).sum())
    assert json.loads(json.dumps(result.to_dict()))["overlap"] == result.overlap


def test_codes_that_equal_their_class_do_not_overlap() -> None:
    classes = np.array([0, 0, 1, 1])
    codes = Codes.pack(classes[:, None] * np.ones((1, 8)))
    ranking = rank_codes(codes, codes, same_class(classes, classes))
    assert DistanceOverlap.of(ranking).overlap == 0.0


def test_invalid_inputs_are_rejected() -> None:
    codes = Codes.pack([[True], [False]])
    with pytest.raises(DataError, match="needs at least one code, got 0"):
        code_health(codes[:0])
    with pytest.raises(DataError, match="create the ranking with rank_codes"):
        DistanceOverlap.of(rank_scores([[1.0]], [[True]]))
    with pytest.raises(DataError, match="needs relevant and other pairs, got 4 and 0"):
        DistanceOverlap.of(rank_codes(codes, codes, np.ones((2, 2))))

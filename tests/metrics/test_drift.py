"""Drift of codes: rarely reported without a change, and found after one."""

import numpy as np
import pytest

from crossbit import Codes
from crossbit.metrics.drift import FALSE_ALARMS, code_drift

N_BITS = 32


def codes_of(rows: np.ndarray, seed: int) -> Codes:
    """Encode rows with a random projection, an encoder of its own for each seed."""
    projection = np.random.default_rng(seed).normal(size=(rows.shape[1], N_BITS))
    return Codes.pack(rows @ projection >= 0.3)


def clustered(n: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    centers = random.normal(size=(30, 8))
    return centers[random.integers(30, size=n)] + 0.4 * random.normal(size=(n, 8))


def test_shuffled_codes_are_rarely_reported() -> None:
    codes = codes_of(clustered(3000, 0), 0)
    rounds = 100
    alarms = 0
    for seed in range(rounds):
        shuffled = codes[np.random.default_rng(seed).permutation(len(codes))]
        drift = code_drift(shuffled, seed=seed)
        assert drift is not None
        alarms += drift.p_value <= FALSE_ALARMS
    assert alarms <= FALSE_ALARMS * rounds


@pytest.mark.parametrize("n_new", [300, 1000])
def test_a_swapped_encoder_is_found(n_new: int) -> None:
    rows = clustered(5000, 1)
    for seed in range(5):
        before = codes_of(rows[:-n_new], 0)
        after = codes_of(rows[-n_new:], seed + 1)
        codes = Codes(np.concatenate([before.words, after.words]), N_BITS)
        drift = code_drift(codes)
        assert drift is not None
        assert drift.p_value <= FALSE_ALARMS
        assert drift.n_recent == 1000
        assert drift.nearest_recent > drift.nearest_earlier


def test_a_few_codes_are_not_compared() -> None:
    codes = codes_of(clustered(900, 0), 0)
    assert code_drift(codes[:799]) is None
    drift = code_drift(codes[:800], tests=9)
    assert drift is not None
    assert (drift.n_recent, drift.n_earlier) == (200, 600)
    assert drift.to_dict()["n_recent"] == 200


def test_equal_codes_do_not_drift() -> None:
    drift = code_drift(Codes.pack(np.ones((1000, 3), bool)))
    assert drift is not None
    assert drift.p_value == 1.0
    assert drift.bit_balance == drift.nearest_recent == 0.0

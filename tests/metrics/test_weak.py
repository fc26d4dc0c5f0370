"""Weak matches: the threshold against its definition, and where it is stored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import CCAITQ, Codes, DataError, HashModel
from crossbit.data import synthetic
from crossbit.metrics.weak import MIN_QUERIES, calibrate, threshold, thresholds

DATA = synthetic(n=300, seed=1)
MODEL = CCAITQ(n_bits=24).fit({name: X[:200] for name, X in DATA.views.items()})
HELD_OUT = {name: np.array(X[200:]) for name, X in DATA.views.items()}


def codes(seed: int, n: int) -> Codes:
    return Codes.pack(np.random.default_rng(seed).random((n, 16)) < 0.5)


@given(st.integers(0, 99), st.integers(MIN_QUERIES, 60), st.integers(1, 40), st.floats(0.01, 0.9))
def test_a_threshold_keeps_the_rate_and_no_smaller_one_does(
    seed: int, n_queries: int, n_items: int, rate: float
) -> None:
    queries, items = codes(seed, n_queries), codes(seed + 1, n_items)
    found = threshold(queries, items, rate=rate)
    differing = queries.unpack()[:, None] != items.unpack()[None]
    nearest = differing.sum(axis=2).min(axis=1)
    assert found.rate == np.mean(nearest > found.distance) <= rate
    assert np.mean(nearest > found.distance - 1) > rate
    assert (found.queries, found.items) == (n_queries, n_items)


def test_every_direction_gets_its_own(tmp_path: Path) -> None:
    calibrated = calibrate(MODEL, HELD_OUT)
    for query, target in (("image", "text"), ("text", "image")):
        expected = threshold(
            MODEL.encode(query, HELD_OUT[query]), MODEL.encode(target, HELD_OUT[target])
        )
        assert thresholds(calibrated)[query, target] == expected.distance
    assert calibrated.fingerprint() == MODEL.fingerprint()
    calibrated.save(tmp_path / "m")
    assert thresholds(HashModel.load(tmp_path / "m")) == thresholds(calibrated)
    assert thresholds(MODEL) == {}


def test_absent_rows_are_no_pairs() -> None:
    views = {name: X.copy() for name, X in HELD_OUT.items()}
    views["text"][50:] = np.nan
    calibrated = calibrate(MODEL, views)
    assert calibrated.card["weak"]["image"]["text"]["queries"] == 50
    assert calibrated.card["weak"]["text"]["image"]["items"] == 100


@pytest.mark.parametrize("card", [{"weak": 5}, {"weak": {"image": 5}}, {"weak": {"a": {"b": 1}}}])
def test_other_contents_of_the_card_are_ignored(card: dict[str, object]) -> None:
    assert thresholds(replace(MODEL, card=card)) == {}


def test_unusable_rows_are_refused() -> None:
    with pytest.raises(DataError, match="expected at least 20 held-out queries and an item, got 5"):
        calibrate(MODEL, {name: X[:5] for name, X in HELD_OUT.items()})
    with pytest.raises(DataError, match="expected aligned rows of at least two modalities"):
        calibrate(MODEL, {"image": HELD_OUT["image"]})
    with pytest.raises(DataError, match="expected aligned rows of at least two modalities"):
        calibrate(MODEL, {**HELD_OUT, "text": HELD_OUT["text"][:50]})
    with pytest.raises(DataError, match="unknown modality 'sound'"):
        calibrate(MODEL, {"sound": HELD_OUT["image"]})
    with pytest.raises(DataError, match=r"rate must be between 0 and 1 \(exclusive\), got 1"):
        calibrate(MODEL, HELD_OUT, rate=1)

"""RankedITQ keeps the neighbors of one kind of embeddings, and learns from similar pairs."""

import numpy as np
import pytest

from crossbit import ITQ, DataError, HashModel, Pairs, RankedITQ
from crossbit.codes import hamming

random = np.random.default_rng(0)
CENTERS = random.normal(size=(40, 24)) @ np.diag(np.linspace(2, 0.2, 24))
ITEM = np.repeat(np.arange(40), 9)
X = CENTERS[ITEM] + 0.9 * random.normal(size=(360, 24))
TRAIN, TEST = np.arange(360) % 3 > 0, np.arange(360) % 3 == 0


def kept_neighbors(model: HashModel, rows: np.ndarray) -> float:
    """Share of the five nearest rows by cosine among the five nearest codes, ties in any order."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    true = np.argsort(-(unit @ unit.T), axis=1)[:, 1:6]
    codes = model.encode("text", rows)
    distances = hamming(codes, codes).astype(float)
    np.fill_diagonal(distances, np.inf)
    found = np.argsort(distances, axis=1, kind="stable")[:, :5]
    return float(np.mean([len(set(a) & set(b)) / 5 for a, b in zip(true, found, strict=True)]))


def pairs_of(items: np.ndarray) -> Pairs:
    index = [(i, j) for i in range(len(items)) for j in range(i) if items[i] == items[j]]
    return Pairs("text", "text", np.array(index), np.ones(len(index), np.bool_))


def similar_first(model: HashModel, rows: np.ndarray) -> float:
    """Share of rows whose nearest code belongs to the same item."""
    codes = model.encode("text", rows[TEST])
    distances = hamming(codes, codes).astype(float)
    np.fill_diagonal(distances, np.inf)
    return float((ITEM[TEST][distances.argmin(axis=1)] == ITEM[TEST]).mean())


def test_codes_keep_more_neighbors_than_those_of_itq() -> None:
    ranked = [kept_neighbors(RankedITQ(n_bits=24, seed=s).fit({"text": X}), X) for s in range(2)]
    plain = [kept_neighbors(ITQ(n_bits=24, seed=s).fit({"text": X}), X) for s in range(2)]
    assert np.mean(ranked) > np.mean(plain) + 0.02


def test_similar_pairs_change_what_near_means() -> None:
    rows = np.hstack([X, 4 * random.normal(size=(360, 12))])  # which rows of an item do not share
    alone = RankedITQ(n_bits=24).fit({"text": rows[TRAIN]})
    taught = RankedITQ(n_bits=24).fit({"text": rows[TRAIN]}, pairs=pairs_of(ITEM[TRAIN]))
    assert similar_first(taught, rows) > similar_first(alone, rows) + 0.2
    assert "regularization of similar pairs" in taught.card


def test_the_metric_may_be_euclidean_and_lengths_do_not_count_for_the_cosine() -> None:
    lengths = random.uniform(0.5, 3, size=(360, 1))
    cosine = RankedITQ(n_bits=16, steps=20).fit({"text": X})
    assert cosine.encode("text", X * lengths) == cosine.encode("text", X)
    euclidean = RankedITQ(n_bits=16, steps=20).fit({"text": X}, neighbors="euclidean(5)")
    assert euclidean.encode("text", X * lengths) != euclidean.encode("text", X)


def test_the_same_seed_gives_the_same_model() -> None:
    a, b, c = (RankedITQ(n_bits=16, seed=seed, steps=20).fit({"text": X}) for seed in (1, 1, 2))
    assert a.fingerprint() == b.fingerprint() != c.fingerprint()


def test_few_rows_equal_rows_and_more_bits_than_columns() -> None:
    for rows in (X[:3], np.ones((20, 3)), np.vstack([X[:10], X[:10]])):
        model = RankedITQ(n_bits=40, steps=10).fit({"text": rows})
        assert model.encode("text", rows).n_bits == 40
    with pytest.raises(DataError, match="at least 3 rows"):
        RankedITQ().fit({"text": X[:2]})


def test_a_part_of_the_target_is_at_most_all_of_it() -> None:
    with pytest.raises(DataError, match="pair_weight must be a finite number from 0 to 1, got 2"):
        RankedITQ(pair_weight=2.0).fit({"text": X})


def test_it_takes_one_modality() -> None:
    with pytest.raises(DataError, match="exactly 1 modalities, got 2"):
        RankedITQ().fit({"text": X, "image": X})

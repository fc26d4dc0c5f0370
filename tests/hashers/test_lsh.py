import numpy as np

from crossbit import LSH, hamming


def test_hamming_distance_estimates_the_angle() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(50, 20))
    codes = LSH(n_bits=1024, inputs="none").fit({"x": X}).encode("x", X)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    angle = np.arccos(np.clip(unit @ unit.T, -1, 1)) / np.pi
    # A share of 1024 trials: standard deviation at most 1/64, 1225 pairs.
    assert np.abs(hamming(codes, codes) / 1024 - angle).max() < 5 / 64


def test_shorter_codes_begin_longer_ones() -> None:
    X = np.random.default_rng(0).normal(size=(50, 20))
    long, short = (LSH(n_bits=n).fit({"x": X}).encode("x", X) for n in (100, 30))
    assert long.truncate(30) == short


def test_views_of_one_width_share_their_hyperplanes() -> None:
    X = np.random.default_rng(0).normal(size=(50, 20))
    model = LSH(n_bits=64).fit({"image": X, "text": X, "sound": X[:, :5]})
    assert model.encode("image", X) == model.encode("text", X)


def test_another_seed_gives_other_hyperplanes() -> None:
    X = np.random.default_rng(0).normal(size=(50, 20))
    assert LSH(seed=1).fit({"x": X}).encode("x", X) != LSH(seed=2).fit({"x": X}).encode("x", X)

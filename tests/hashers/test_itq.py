"""ITQ on one kind of embeddings."""

import numpy as np

from crossbit import ITQ
from crossbit.codes import hamming

random = np.random.default_rng(0)
Z = random.normal(size=(400, 10)) @ random.normal(size=(10, 24))


def test_codes_keep_neighborhoods_better_than_chance() -> None:
    model = ITQ(n_bits=10).fit({"text": Z[:300]})
    codes = model.encode("text", Z[300:])
    distances = hamming(codes, codes).astype(float)
    true = np.linalg.norm(Z[300:, None] - Z[300:], axis=2)
    assert np.corrcoef(distances.ravel(), true.ravel())[0, 1] > 0.4


def test_modalities_of_one_width_share_the_projection() -> None:
    model = ITQ(n_bits=8).fit({"image": Z[:200], "text": Z[200:], "sound": Z[:50, :5]})
    assert model.encode("image", Z[:9]) == model.encode("text", Z[:9])
    assert model.width("sound") == 5


def test_more_bits_than_components_and_equal_rows() -> None:
    assert ITQ(n_bits=40).fit({"text": Z}).encode("text", Z).n_bits == 40
    assert ITQ(n_bits=4).fit({"text": np.ones((5, 3))}).encode("text", np.ones((1, 3))).n_bits == 4

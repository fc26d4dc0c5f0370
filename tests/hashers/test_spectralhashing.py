import numpy as np

from crossbit import SpectralHashing
from crossbit.data import synthetic
from crossbit.evaluation import evaluate_model
from crossbit.hashers.spectralhashing import _smoothest


def test_bits_are_signs_of_the_eigenfunctions_of_the_box() -> None:
    random = np.random.default_rng(0)
    X = random.uniform(size=(500, 3)) * [4.0, 2.0, 1.0]
    model = SpectralHashing(n_bits=6).fit({"x": X})
    centered = X - X.mean(0)
    components = np.linalg.svd(centered, full_matrices=False)[2]
    V = centered @ components.T
    low, side = V.min(0), np.ptp(V, axis=0)
    functions = sorted((k / side[j], j, k) for j in range(3) for k in range(1, 7))[:6]
    expected = np.stack(
        [np.sin(np.pi / 2 + k * np.pi / side[j] * (V[:, j] - low[j])) for _, j, k in functions],
        axis=1,
    )
    scores = model.scores("x", X)
    np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_longer_sides_give_more_bits() -> None:
    chosen, _ = _smoothest(np.array([8.0, 1.0]), 9)
    assert (chosen == 0).sum() == 8


def test_a_flat_direction_gives_none() -> None:
    chosen, frequency = _smoothest(np.array([2.0, 0.0]), 5)
    assert (chosen == 0).all()
    assert np.isfinite(frequency).all()


def test_modalities_share_a_box() -> None:
    data = synthetic(n=600, classes=5, seed=3)
    model = SpectralHashing(n_bits=32).fit(**data.fit_arguments("train"))
    result = evaluate_model(model, data).reports["image", "text"]["mAP"]
    assert result.value > 2 * (result.chance or 1)

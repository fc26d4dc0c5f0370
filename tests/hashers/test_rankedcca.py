from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import CCAITQ, DataError, Hasher, HashModel, Pairs, RankedCCA
from crossbit._progress import Step
from crossbit.data import training_set
from crossbit.data.correspondence import Bags, group_rows
from crossbit.linalg.cca import CCA
from crossbit.metrics import mean_average_precision, same_class

Array = NDArray[Any]
random = np.random.default_rng(0)


def captioned(n: int, *, captions: int = 3, seed: int = 0) -> tuple[Array, Array, Pairs]:
    """Noisy images and captions of common factors of decreasing strength, and their pairs."""
    draw = np.random.default_rng(seed)
    strength = np.arange(1, 61) ** -0.5
    maps = [
        np.random.default_rng(number).normal(size=(60, width))
        for number, width in ((7, 100), (8, 80))
    ]
    factors = draw.normal(size=(n, 60)) * strength
    image = factors @ maps[0] + 2 * draw.normal(size=(n, 100))
    owner = np.repeat(np.arange(n), captions)
    mentioned = factors[owner] + 0.1 * strength * draw.normal(size=(n * captions, 60))
    text = mentioned @ maps[1] + 2 * draw.normal(size=(n * captions, 80))
    pairs = Pairs(
        "image",
        "text",
        np.stack([owner, np.arange(n * captions)], axis=1),
        np.ones(n * captions, bool),
    )
    return image, text, pairs


def precision(model: HashModel, n_bits: int | None = None) -> float:
    image, text, pairs = captioned(200, seed=1)
    queries, base = (
        model.encode(name, rows).truncate(n_bits or model.n_bits)
        for name, rows in (("text", text), ("image", image))
    )
    return mean_average_precision(queries, base, same_class(pairs.index[:, 0], np.arange(200)))


def test_bags_are_averaged_and_mixed() -> None:
    bags = Bags(np.array([3, 0, 1, 2]), np.array([1, 0, 3]))
    X = np.eye(4)
    np.testing.assert_allclose(
        bags.mean_or_mixture(X, np.array([2, 0])),
        [[1 / 3, 1 / 3, 1 / 3, 0.0], [0.0, 0.0, 0.0, 1.0]],
    )
    mixed = bags.mean_or_mixture(X, np.array([2, 0]), np.random.default_rng(0))
    np.testing.assert_allclose(mixed.sum(axis=1), 1)
    assert (mixed[0, :3] > 0).all()
    assert mixed[1, 3] == 1


@pytest.mark.parametrize("wide", [False, True])
def test_directions_equal_the_textbook_definition(wide: bool) -> None:
    n = 30 if wide else 200
    Z = random.normal(size=(n, 4))
    X = {
        "a": Z @ random.normal(size=(4, 40)) + random.normal(size=(n, 40)),
        "b": Z + random.normal(size=(n, 4)),
    }
    X = {name: rows - rows.mean(axis=0) for name, rows in X.items()}
    W = CCA(X).directions(3, 0.5, 0.0)
    roots = {}
    for name, rows in X.items():
        C = rows.T @ rows / n
        r = 0.5 * np.trace(C) / np.linalg.matrix_rank(C)
        values, vectors = np.linalg.eigh(C + r * np.eye(len(C)))
        roots[name] = (vectors / np.sqrt(values)) @ vectors.T
    correlations = np.linalg.svd(roots["a"] @ X["a"].T @ X["b"] / n @ roots["b"])[1][:3]
    ours = np.diag(W["a"].T @ X["a"].T @ X["b"] @ W["b"] / n)
    np.testing.assert_allclose(ours, correlations, rtol=1e-6)


def test_training_beats_the_initial_rotation_and_ccaitq() -> None:
    image, text, pairs = captioned(600)
    views = {"image": image, "text": text}
    fields: dict[str, Any] = {"n_bits": 32, "inputs": "standardize", "regularization": 0.3}
    seeds = (0, 1)  # the random rotation decides about a point

    def mean(*hashers: Hasher) -> float:
        return float(np.mean([precision(hasher.fit(views, pairs=pairs)) for hasher in hashers]))

    learned = mean(*(RankedCCA(**fields, seed=seed, batch=300) for seed in seeds))
    assert learned > mean(*(RankedCCA(**fields, seed=seed, steps=0) for seed in seeds)) + 0.02
    fields["regularization"] = 1.0
    regular = mean(*(RankedCCA(**fields, seed=seed, batch=300) for seed in seeds))
    assert regular > mean(*(CCAITQ(n_bits=32, regularization=1.0, seed=seed) for seed in seeds))


def test_prefixes_of_nested_codes_are_good_codes() -> None:
    image, text, pairs = captioned(600)
    fields: dict[str, Any] = {
        "inputs": "standardize",
        "regularization": 0.3,
        "batch": 300,
        "steps": 60,
    }

    def fit(n_bits: int, *, nested: bool) -> HashModel:
        hasher = RankedCCA(n_bits=n_bits, nested=nested, **fields)
        return hasher.fit({"image": image, "text": text}, pairs=pairs)

    nested = fit(64, nested=True)
    plain = fit(64, nested=False)
    assert precision(nested, 16) > precision(plain, 16) + 0.03
    assert precision(nested, 16) > precision(fit(16, nested=False)) - 0.03
    assert precision(nested) > precision(plain) - 0.03


def test_a_ranking_loss_that_does_not_help_is_skipped() -> None:
    image, text, pairs = captioned(200)
    model = RankedCCA(n_bits=16, steps=5, learning_rate=3.0).fit(
        {"image": image, "text": text}, pairs=pairs
    )
    assert model.card["steps"] == 0


def test_landmarks_are_chosen_where_linear_features_fail() -> None:
    angle = random.uniform(0, 2 * np.pi, 800)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    twice = np.stack([np.cos(2 * angle), np.sin(2 * angle)], axis=1)
    model = RankedCCA(n_bits=16, steps=5).fit({"once": circle, "twice": twice})
    assert all("rbf" in steps for steps in model.card["inputs"].values())


def test_items_that_lack_a_modality_are_learned_from_the_others() -> None:
    image, text, _ = captioned(150, captions=1)
    views = {"image": image.copy(), "text": text.copy(), "sound": random.normal(size=(150, 6))}
    views["image"][:20] = np.nan
    views["text"][30:50] = np.nan
    model = RankedCCA(n_bits=16, steps=10).fit(views)
    assert model.modalities == ["image", "text", "sound"]
    assert len(model.encode("image", image)) == 150


def test_two_modalities_may_share_no_item() -> None:
    image, text, _ = captioned(150, captions=1)
    views = {"image": image, "text": text.copy(), "sound": random.normal(size=(150, 6))}
    views["text"][:75] = np.nan
    views["sound"][75:] = np.nan
    model = RankedCCA(n_bits=16, steps=10, inputs="standardize").fit(views)
    assert len(model.encode("sound", views["sound"][:75])) == 75


def test_pairs_may_name_the_modalities_in_either_order() -> None:
    image, text, pairs = captioned(60)
    reversed_pairs = Pairs("text", "image", pairs.index[:, ::-1], pairs.similar)
    views = {"image": image, "text": text}
    first, second = (
        RankedCCA(n_bits=8, steps=5).fit(views, pairs=each) for each in (pairs, reversed_pairs)
    )
    assert first.encode("text", text) == second.encode("text", text)


def test_pairs_must_link_one_modality_with_all_others() -> None:
    image, text, pairs = captioned(20)
    data = training_set({"image": image, "text": text, "sound": image}, pairs=pairs)
    with pytest.raises(
        DataError,
        match=r"similar pairs must link one modality with all others; got \['image-text'\]",
    ):
        group_rows(data)


def test_few_items_are_not_held_out() -> None:
    image, text, pairs = captioned(20)
    model = RankedCCA(n_bits=8, steps=3).fit({"image": image, "text": text}, pairs=pairs)
    assert (model.card["regularization"], model.card["steps"]) == (0.3, 3)
    assert set(model.card["inputs"].values()) == {"standardize"}


def test_every_step_is_reported() -> None:
    image, text, pairs = captioned(60)
    steps: list[Step] = []
    hasher = RankedCCA(n_bits=8, steps=7, inputs="standardize", batch=32, regularization=0.3)
    hasher.fit({"image": image, "text": text}, pairs=pairs, on_step=steps.append)
    assert [step.number for step in steps] == list(range(1, 8))
    assert all(step.loss is not None and step.loss > 0 for step in steps)


def test_steps_that_only_compare_are_reported_as_well() -> None:
    image, text, pairs = captioned(60)
    steps: list[Step] = []
    hasher = RankedCCA(n_bits=8, steps=7, batch=32)
    model = hasher.fit({"image": image, "text": text}, pairs=pairs, on_step=steps.append)
    n = 7 + model.card["steps"]
    assert [step.number for step in steps] == list(range(1, n + 1))
    assert steps[-1].of in (n, 14)

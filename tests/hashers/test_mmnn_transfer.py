"""Codes for classes that training does not see."""

from typing import Any

import numpy as np
import pytest

from crossbit import CCAITQ, MMNN, DataError, HashModel, mean_average_precision
from crossbit.metrics import from_labels


def halves(n: int, seed: int) -> tuple[dict[str, Any], Any]:
    """Two views of items around the centers of 12 classes, in a space that the views share."""
    random = np.random.default_rng(seed)
    world = np.random.default_rng(1)
    centers = world.normal(size=(12, 6))
    labels = np.arange(n) % 12
    latent = centers[labels] + 0.4 * random.normal(size=(n, 6))
    views = {
        name: latent @ world.normal(size=(6, width)) + 0.3 * random.normal(size=(n, width))
        for name, width in (("image", 20), ("text", 10))
    }
    return views, labels


def score_of_unseen(model: HashModel) -> float:
    views, labels = halves(360, 2)
    unseen = labels >= 8
    codes = [model.encode(name, rows[unseen]) for name, rows in views.items()]
    relevant = from_labels(labels[unseen], labels[unseen])
    return mean_average_precision(codes[0], codes[1], relevant)


def test_unseen_classes_are_found_better_than_with_codes_of_the_seen_ones() -> None:
    views, labels = halves(360, 0)
    seen = labels < 8
    training = {name: rows[seen] for name, rows in views.items()}
    transferred = MMNN(n_bits=16, transfer=True).fit(training, labels=labels[seen])
    assert len(transferred.card["classes held out"]) == 8
    default = MMNN(n_bits=16, steps=10, landmarks=50).fit(training, labels=labels[seen])
    correlations = CCAITQ(n_bits=16).fit(training)
    assert score_of_unseen(transferred) > score_of_unseen(default) + 0.05
    assert score_of_unseen(transferred) > score_of_unseen(correlations) - 0.03


@pytest.mark.parametrize("labels", [None, "few", "matrix"])
def test_labels_are_optional_and_may_be_several(labels: str | None) -> None:
    views, classes = halves(60, 0)
    arguments: dict[str, Any] = {"aligned": True}
    if labels is not None:
        arguments = {"labels": classes % 2 if labels == "few" else np.eye(12, dtype=bool)[classes]}
    model = MMNN(n_bits=8, transfer=True).fit(views, **arguments)
    assert ("classes held out" in model.card) == (labels == "matrix")
    assert model.card["method"] == "mmnn"


def test_transfer_needs_aligned_views() -> None:
    views, labels = halves(60, 0)
    with pytest.raises(DataError, match="transfer=True learns from what aligned views share"):
        MMNN(transfer=True).fit({"image": views["image"]}, labels=labels)
    with pytest.raises(DataError, match="transfer=True learns from what aligned views share"):
        MMNN(transfer=True).fit(views, labels={"image": labels, "text": labels})

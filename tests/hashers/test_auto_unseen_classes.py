"""Codes for classes that training does not see."""

from typing import Any

import numpy as np
import pytest

from crossbit import CCAITQ, DCH, AutoHash, DataError, Hasher, HashModel, mean_average_precision
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
    hashers: dict[str, list[Hasher]] = {
        "auto": [AutoHash(n_bits=16, unseen_classes=True, seed=seed) for seed in range(4)],
        "by class": [DCH(n_bits=16)],
        "correlations": [CCAITQ(n_bits=16, seed=seed) for seed in range(4)],
    }
    scores = {
        kind: np.mean(
            [score_of_unseen(each.fit(training, labels=labels[seen], aligned=True)) for each in own]
        )
        for kind, own in hashers.items()
    }
    assert scores["auto"] > scores["by class"] + 0.1
    assert scores["auto"] > scores["correlations"] - 0.03


def test_the_settings_are_those_that_find_classes_left_out_best() -> None:
    views, labels = halves(120, 0)
    card = AutoHash(n_bits=16, unseen_classes=True).fit(views, labels=labels).card
    assert card["chosen"] == "ccaitq"
    tried = {name: float(score) for name, score in card["classes held out"].items()}
    assert len(tried) >= 4  # at least two regularizations for each power
    settings = card["settings"]
    best = f"regularization {settings['regularization']:.3g}, power {settings['power']:g}"
    assert tried[best] == max(tried.values())


@pytest.mark.parametrize("labels", [None, "few", "matrix"])
def test_labels_are_optional_and_may_be_several(labels: str | None) -> None:
    views, classes = halves(60, 0)
    arguments: dict[str, Any] = {"aligned": True}
    if labels is not None:
        arguments = {"labels": classes % 2 if labels == "few" else np.eye(12, dtype=bool)[classes]}
    card = AutoHash(n_bits=8, unseen_classes=True).fit(views, **arguments).card
    assert ("classes held out" in card) == (labels == "matrix")
    assert (card["method"], card["chosen"]) == ("auto", "ccaitq")


def test_labels_of_the_training_rows_change_the_settings_only() -> None:
    views, labels = halves(120, 0)
    model = AutoHash(n_bits=8, unseen_classes=True).fit(views, labels=labels)
    settings = {
        name: model.card["settings"][name] for name in ("n_bits", "seed", "regularization", "power")
    }
    plain = CCAITQ(**settings, inputs="standardize").fit(views)
    assert model.fingerprint() == plain.fingerprint()


def test_unknown_labels_and_absent_rows_take_no_part_in_the_choice() -> None:
    views, labels = halves(120, 0)
    views["text"][:5] = np.nan
    labels[5:15] = -1
    card = AutoHash(n_bits=8, unseen_classes=True).fit(views, labels=labels).card
    assert "classes held out" in card


def test_aligned_views_are_needed() -> None:
    views, labels = halves(60, 0)
    hasher = AutoHash(unseen_classes=True)
    with pytest.raises(DataError, match="aligned"):
        hasher.fit({"image": views["image"]}, labels=labels)
    with pytest.raises(DataError, match="aligned"):
        hasher.fit(views, labels={"image": labels, "text": labels})

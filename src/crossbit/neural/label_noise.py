r"""Wrong labels: how many there are, and the most probable ones, from the views of aligned rows.

The label of a row and the classes that two views predict, each out of fold, are three independent
opinions on its true class. If rater $i$ is right with probability $\alpha_i$ and otherwise names
any other class, two raters agree on a share of the rows whose excess over chance, 1 for equal
raters, is $\rho_i \rho_j$, with $\rho = (K \alpha - 1) / (K - 1)$ for $K$ classes. So their
agreements $r$ give the accuracy of the labels, although no row is known to be right (Dawid and
Skene 1979): $\rho_L^2 = r_{1L}\, r_{2L} / r_{12}$. Hard classes make the views disagree with each
other too and are not taken for noise.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]
_MIN_ROWS = 50
_MAX_NOISE = 0.9  # as a share of the noise of random labels
_FLOOR = 1e-3  # least posterior of a class


def estimate_noise(posteriors: Mapping[str, _Floats], classes: _Ints) -> float:
    """Return the share of wrong labels; 0 with one view, or with too few rows of several.

    Args:
        posteriors: Modality → out-of-fold posteriors of the same rows; NaN where a row is absent.
        classes: The column of each row's class, −1 for unknown.
    """
    with_labels = 0.0
    between_views = 0.0
    n_classes = next(iter(posteriors.values())).shape[1]
    predicted = {name: _predictions(P) for name, P in posteriors.items()}
    for left, right in combinations(predicted.values(), 2):
        rows = (left >= 0) & (right >= 0) & (classes >= 0)
        if rows.sum() < _MIN_ROWS:
            continue
        left, right, label = left[rows], right[rows], classes[rows]
        with_labels += _excess(left, label, n_classes) * _excess(right, label, n_classes)
        between_views += _excess(left, right, n_classes)
    if between_views <= 0:
        return 0.0
    accuracy = (np.sqrt(max(with_labels, 0.0) / between_views) * (n_classes - 1) + 1) / n_classes
    return float(np.clip(1 - accuracy, 0, _MAX_NOISE * (1 - 1 / n_classes)))


def _predictions(posteriors: _Floats) -> _Ints:
    """The most probable class of each row, −1 for an absent one."""
    absent = np.isnan(posteriors[:, 0])
    return np.where(absent, -1, np.nan_to_num(posteriors).argmax(axis=1))


def _excess(left: _Ints, right: _Ints, n_classes: int) -> float:
    """Agreement beyond chance, 1 for equal classes."""
    return float(((left == right).mean() - 1 / n_classes) * n_classes / (n_classes - 1))


def accuracy_of(posteriors: Mapping[str, _Floats], classes: _Ints) -> float:
    """Return the share of labels that the posteriors predict, the mean over views."""
    shares = []
    for P in posteriors.values():
        predicted = _predictions(P)
        known = (classes >= 0) & (predicted >= 0)
        shares.append(np.mean(predicted[known] == classes[known]))
    return float(np.mean(shares))


def correct_labels(
    posteriors: Mapping[str, _Floats],
    classes: _Ints,
    noise: float,
    learned_noise: float,
) -> _Ints:
    """Return the most probable class of each row, given its label and its posteriors.

    Args:
        posteriors: As for `estimate_noise`.
        classes: The column of each row's given class; an unknown one, −1, stays unknown.
        noise: Share of wrong labels among them.
        learned_noise: Share of wrong labels among those that the posteriors were learned from.
            Posteriors estimate the *labels*; those of the true classes follow from it.
    """
    n_classes = next(iter(posteriors.values())).shape[1]
    odds = np.log((1 - noise) * (n_classes - 1) / noise)  # of the given class
    scores = odds * (classes[:, None] == np.arange(n_classes))
    floor = learned_noise / (n_classes - 1)  # probability of each wrong label
    for P in posteriors.values():
        true = np.maximum((P - floor) / (1 - learned_noise - floor), _FLOOR)
        scores += np.nan_to_num(np.log(true))
    return np.where(classes < 0, -1, scores.argmax(axis=1))

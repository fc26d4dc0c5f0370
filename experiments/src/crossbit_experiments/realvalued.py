"""Real-valued references: what can be reached without hashing (Rasiwasia et al. 2010).

Each gives vectors in one space for the rows of both modalities; they are ranked by cosine.

- **CM**, correlation matching: canonical directions.
- **SM**, semantic matching: class posteriors of a logistic regression on standardized features.
- **SCM**, semantic correlation matching: class posteriors of a logistic regression on the canonical directions.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset, training_set
from crossbit.hashers.canonical import canonical_directions, linked_rows
from crossbit.hashers.logistic import fit_validated
from crossbit.metrics import Ranking, from_labels, rank_vectors
from crossbit.model.inputs import standardize

Vectors: TypeAlias = dict[str, NDArray[np.float64]]
Reference: TypeAlias = Literal["cm", "sm", "scm"]

REGULARIZATION = 1e-4


def embed(
    reference: Reference, train: Dataset, test: Dataset, *, n_directions: int, seed: int
) -> Vectors:
    """Vectors of the test rows in the space that a reference learns from the training rows.

    Args:
        reference: ``"cm"``, ``"sm"`` or ``"scm"``.
        train: Aligned views with classes.
        test: Views of the same modalities.
        n_directions: Canonical directions that CM and SCM keep.
        seed: Of the folds that choose the ridge.
    """
    if reference == "sm":
        layers = {name: standardize(np.asarray(view)) for name, view in train.views.items()}
        seen = {name: layer(train.views[name]).astype(np.float64) for name, layer in layers.items()}
        asked = {name: layer(test.views[name]).astype(np.float64) for name, layer in layers.items()}
    else:
        W, mean = _canonical(train, n_directions)
        seen = {name: (view - mean[name]) @ W[name] for name, view in train.views.items()}
        asked = {name: (view - mean[name]) @ W[name] for name, view in test.views.items()}
    if reference == "cm":
        return asked
    member = training_set(train.views, labels=train.labels).memberships()
    fitted = {
        name: fit_validated(X, member[name], several=False, seed=seed) for name, X in seen.items()
    }
    return {name: fitted[name].posteriors(X) for name, X in asked.items()}


def _canonical(train: Dataset, n: int) -> tuple[Vectors, Vectors]:
    data = training_set(train.views)
    mean = {name: np.asarray(view, np.float64).mean(axis=0) for name, view in train.views.items()}
    X = {name: view - mean[name] for name, view in train.views.items()}
    return canonical_directions(X, linked_rows(data), n, REGULARIZATION, power=0.0), mean


def centered(vectors: Mapping[str, NDArray[Any]]) -> Vectors:
    """Vectors less the mean of each: cosine becomes the correlation."""
    return {name: X - X.mean(axis=1, keepdims=True) for name, X in vectors.items()}


def rank(vectors: Vectors, test: Dataset, left: str, right: str) -> Ranking:
    """Rank the vectors of one modality by cosine to those of another."""
    labels = np.asarray(test.labels)
    return rank_vectors(vectors[left], vectors[right], from_labels(labels, labels), metric="cosine")

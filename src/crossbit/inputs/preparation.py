"""Preparation: the inputs of a method, fitted on its training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.data.labels import is_known
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.inputs.choice import Candidate, choose_steps
from crossbit.inputs.counterparts import choose_by_counterparts
from crossbit.inputs.posteriors import Posteriors, fit_posteriors
from crossbit.inputs.steps import LazyRows, fit_steps
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Layer

Inputs: TypeAlias = str | Mapping[str, str]
"""``"none"``, steps joined by ``+``, ``"auto"`` or ``"posteriors"``; or modality → one of them."""

_MAX_LABELED = 20_000  # rows that choose inputs by their labels


@dataclass(frozen=True, eq=False)
class Preparation:
    """Inputs that are fitted on training rows.

    Attributes:
        data: The training set with prepared features in place of its views. Where the inputs are
            posteriors, its ``posteriors`` are the class posteriors themselves.
        layers: Modality → layers from raw rows to prepared features.
        summary: Modality → what was fitted, for the model card.
    """

    data: TrainingSet
    layers: Mapping[str, Sequence[Layer]]
    summary: Mapping[str, str]

    def in_front_of(self, model: HashModel) -> HashModel:
        """Return a model of prepared features as a model of raw rows, the summary on its card."""
        encoders = {name: [*self.layers[name], *own] for name, own in model.encoders.items()}
        n_inputs = {name: len(self.layers[name]) + n for name, n in model.n_inputs.items()}
        card = {"inputs": dict(self.summary)} if self.summary else {}
        return replace(model, encoders=encoders, n_inputs=n_inputs, card={**card, **model.card})


def prepare(
    data: TrainingSet, inputs: Mapping[str, str], seed: int, *, lazy: bool = False
) -> Preparation:
    """Fit the inputs of every modality.

    Args:
        data: The training set with raw views.
        inputs: Modality → its inputs.
        seed: Seed of folds, landmarks and samples.
        lazy: Prepare rows when they are read, so that views may be larger than the memory; the
            inputs must then be fixed steps.

    Raises:
        DataError: An input is unknown, or cannot be fitted on this data.
    """
    for name, view in data.views.items():
        if inputs[name] != "none" and view.ndim != 2:
            raise DataError(
                f"inputs of {name!r}: {inputs[name]!r} needs rows of numbers, shape (n, d), got"
                f" {view.shape}; set inputs to 'none' for this modality"
            )
    if lazy and (eager := {"auto", "posteriors"} & set(inputs.values())):
        raise DataError(
            f"inputs={sorted(eager)[0]!r} needs all rows in memory; use fixed steps, such as"
            " 'standardize', with online training"
        )
    prepared = Preparation(data, {name: [] for name in data.views}, {})
    if by_classes := [name for name in data.views if inputs[name] == "posteriors"]:
        part = replace(
            data,
            views={name: data.views[name] for name in by_classes},
            labels={name: own for name, own in data.labels.items() if name in by_classes},
        )
        prepared = prepare_posteriors(data, fit_posteriors(part, seed))
    views: dict[str, Any] = dict(prepared.data.views)
    layers = dict(prepared.layers)
    summary = dict(prepared.summary)
    chosen = [name for name in data.views if inputs[name] == "auto"]
    labeled = {
        name: labels
        for name, labels in data.labels_present().items()
        if name in chosen and len(np.unique(labels[is_known(labels)], axis=0)) > 1
    }
    steps = dict(inputs)
    if unlabeled := [name for name in chosen if name not in labeled]:
        steps |= dict.fromkeys(unlabeled, choose_by_counterparts(data, unlabeled, seed))
    for number, (name, view) in enumerate(data.views.items()):
        if inputs[name] in ("none", "posteriors"):
            continue
        random = np.random.default_rng([seed, 2, number])
        present = data.present[name]
        if name in labeled:
            best = _choose_by_labels(view, labeled[name], seed, random)
            layers[name], summary[name] = best.layers, best.name
        else:
            # A view without absent rows is not copied: only a sample of it is read.
            rows = view if present.all() else view[present]
            layers[name], summary[name] = fit_steps(steps[name], rows, random), steps[name]
        prepared_rows = LazyRows(view, layers[name])
        views[name] = prepared_rows if lazy else prepared_rows.load(present)
    return Preparation(replace(prepared.data, views=views), layers, summary)


def _choose_by_labels(
    view: NDArray[Any], labels: NDArray[Any], seed: int, random: np.random.Generator
) -> Candidate:
    """Return the inputs from which ridge regression finds classes best.

    Of many labeled rows, a random sample decides.
    """
    known = np.flatnonzero(is_known(labels))
    if len(known) > _MAX_LABELED:
        known = np.sort(random.choice(known, _MAX_LABELED, replace=False))
    labels = labels[known]
    member = labels if labels.ndim == 2 else labels[:, None] == np.unique(labels)
    X = np.asarray(view[known], np.float32)
    linear, rbf = choose_steps(X, member.astype(np.float32), seed=seed)
    return min([*linear, *rbf], key=lambda candidate: candidate.error)


def prepare_posteriors(data: TrainingSet, posteriors: Posteriors) -> Preparation:
    """Return posteriors as inputs: the views are their square roots, centered.

    Inner products of square roots measure the Hellinger distance of two posteriors. Posteriors of
    several classes per row are only centered. Modalities without posteriors stay as they are.

    Args:
        data: The training set with raw views.
        posteriors: Posteriors of its modalities, or of some of them, fitted on this set.
    """
    steps = "center" if posteriors.multi_label else "sqrt+center"
    layers: dict[str, Sequence[Layer]] = {name: [] for name in data.views}
    views = dict(data.views)
    for name, rows in posteriors.rows.items():
        present = data.present[name]
        further = fit_steps(steps, rows[present], np.random.default_rng(0))
        layers[name] = [*posteriors.layers[name], *further]
        views[name] = LazyRows(rows, further).load(present)
    prepared = replace(data, views=views, posteriors=dict(posteriors.rows))
    return Preparation(prepared, layers, dict(posteriors.summary))

"""Preparation: the inputs of a method, fitted on its training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.data.labels import is_known
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.inputs.choice import best_steps
from crossbit.inputs.counterparts import choose_by_counterparts
from crossbit.inputs.posteriors import Posteriors, fit_posteriors
from crossbit.inputs.steps import fit_steps
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Layer, apply_layers

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
        """Return a model of prepared features as a model of raw rows."""
        return replace(
            model,
            encoders={
                name: [*self.layers[name], *layers] for name, layers in model.encoders.items()
            },
            n_inputs={
                name: len(self.layers[name]) + model.n_inputs.get(name, 0)
                for name in model.encoders
            },
        )


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
    if lazy and (chosen := {"auto", "posteriors"} & set(inputs.values())):
        raise DataError(
            f"inputs={sorted(chosen)[0]!r} needs all rows in memory; use fixed steps, such as"
            " 'standardize', with online training"
        )
    prepared = Preparation(data, {name: [] for name in data.views}, {})
    if by_classes := [name for name in data.views if inputs[name] == "posteriors"]:
        prepared = prepare_posteriors(data, fit_posteriors(_only(data, by_classes), seed))
    views: dict[str, Any] = dict(prepared.data.views)
    layers = dict(prepared.layers)
    summary = dict(prepared.summary)
    labeled = [name for name in data.labels if _has_classes(data, name)]
    unlabeled = [name for name in data.views if inputs[name] == "auto" and name not in labeled]
    by_counterparts = choose_by_counterparts(data, unlabeled, seed) if unlabeled else ""
    for number, (name, view) in enumerate(data.views.items()):
        if inputs[name] in ("none", "posteriors"):
            continue
        random = np.random.default_rng([seed, 2, number])
        if inputs[name] == "auto" and name in labeled:
            layers[name], summary[name] = _fit_by_labels(data, name, seed, random)
        else:
            summary[name] = by_counterparts if inputs[name] == "auto" else inputs[name]
            # A view without absent rows is not copied: only a sample of it is read.
            present = data.present[name]
            rows = view if present.all() else view[present]
            layers[name] = fit_steps(summary[name], rows, random)
        views[name] = LazyRows(view, layers[name])
        if not lazy:
            views[name] = views[name].load(data.present[name])
    return Preparation(replace(prepared.data, views=views), layers, summary)


def _has_classes(data: TrainingSet, name: str) -> bool:
    """Whether the labels of a modality have two classes or more."""
    labels = data.labels[name][is_known(data.labels[name]) & data.present[name]]
    return len(np.unique(labels, axis=0)) > 1


def _fit_by_labels(
    data: TrainingSet, name: str, seed: int, random: np.random.Generator
) -> tuple[list[Layer], str]:
    """Return the layers and the name of the inputs from which ridge regression finds classes best.

    Of many labeled rows, a random sample decides.
    """
    known = np.flatnonzero(is_known(data.labels[name]) & data.present[name])
    if len(known) > _MAX_LABELED:
        known = np.sort(random.choice(known, _MAX_LABELED, replace=False))
    labels = data.labels[name][known]
    member = labels if labels.ndim == 2 else labels[:, None] == np.unique(labels)
    X = np.asarray(data.views[name][known], np.float32)
    return best_steps(X, member.astype(np.float32), seed=seed)


def _only(data: TrainingSet, names: Sequence[str]) -> TrainingSet:
    """Return some of the modalities."""
    return replace(
        data,
        views={name: data.views[name] for name in names},
        present={name: data.present[name] for name in names},
        labels={name: data.labels[name] for name in names if name in data.labels},
    )


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


class LazyRows:
    """Rows of a view that are prepared when they are read.

    Args:
        view: Raw rows, possibly on disk.
        layers: Layers that prepare them.
    """

    def __init__(self, view: NDArray[Any], layers: Sequence[Layer]) -> None:
        self._view = view
        self._layers = layers
        width = next(
            (width for layer in reversed(layers) if (width := layer.widths()[1])), view.shape[1]
        )
        self.shape = (len(view), width)
        self.size = len(view) * width
        self.ndim = 2
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._view)

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:  # noqa: ANN401 - any index of rows
        """Prepare some rows."""
        return apply_layers(self._layers, self._view[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401
        """Prepare all rows."""
        return self[:].astype(dtype or self.dtype, copy=False)

    def load(self, present: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Prepare all rows; absent ones are NaN."""
        if present.all():
            return apply_layers(self._layers, self._view)
        rows = np.full(self.shape, np.nan, np.float32)
        rows[present] = self[present]
        return rows

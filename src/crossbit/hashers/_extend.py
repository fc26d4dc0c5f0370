"""New modalities, or new versions of old ones, beside the frozen modalities of a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from crossbit._threads import training_threads
from crossbit._validation import check_known
from crossbit.data.correspondence import linked_rows
from crossbit.data.pairs import Pairs
from crossbit.data.sampling import hold_out, row_batches
from crossbit.data.training_set import TrainingSet, Views, training_set
from crossbit.errors import DataError
from crossbit.hashers._ranking import Batch, Refinement, log_softmax, rank_loss
from crossbit.inputs.steps import fit_steps
from crossbit.linalg import Floats, Ints
from crossbit.linalg.itq import signs
from crossbit.linalg.pca import principal
from crossbit.linalg.ridge import Ridge
from crossbit.metrics.counterparts import reciprocal_rank
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Layer, Softmax, apply_layers
from crossbit.model.recipe import Recipe

_CANDIDATES = (
    "standardize",
    "unit+standardize",
    "standardize+rbf(1000)",
    "standardize+rbf(1000,4)",
    "unit+rbf(3000)",
)
_CLASS_INPUTS = "standardize+rbf(1000)"  # features of the classifier of distinct outputs
_MAX_CLASSES = 256
_SCALES = 2.0 ** np.arange(0, 7, 0.5)  # of class scores, before the softmax
_ROWS_PER_CLASS = 4  # on average, at least
_HELD_OUT = 0.2
_MAX_ROWS = 20_000  # rows that a regression is fitted on
_MIN_ROWS = 4
_SHARPNESS = 1.8  # of similarities, in units of 1 / √bits
_BATCH = 1000
_AXES = 512
_PULL = 0.1

_Fit = Callable[[Floats, Floats, np.random.Generator], list[Layer]]


def extend(
    model: HashModel,
    views: Views,
    *,
    like: str | None = None,
    pairs: Pairs | Sequence[Pairs] | None = None,
    recipes: Mapping[str, Recipe] | None = None,
    seed: int = 0,
) -> HashModel:
    r"""Add modalities to a trained model without changing the codes of existing ones.

    A new modality may be another kind of things, or another encoder of the same things, such as the
    next version of an embedding model. Its outputs are ridge regressions on the real-valued outputs
    $y$ of the frozen modalities,

    $$ \min_{W, b} \sum_i \|W^\top \varphi(x_i) + b - y_i\|^2 + \lambda \|W\|^2, $$

    on linear features or similarities to landmarks $\varphi$. The closed-form leave-one-out error
    chooses $\lambda$; the bits of a held-out fifth of the rows choose $\varphi$. The regression is
    then refined until its signs rank the frozen codes as the outputs $y_i$ do (cross entropy, a
    straight-through estimator), which is kept if held-out rows find their counterparts earlier.
    Where the frozen rows have few distinct outputs, such as those of a few words that many voices
    speak, the mean of these outputs, weighted by the class posteriors of a regression, is tried
    too. It needs NumPy only, and seconds. A few thousand rows suffice.

    Args:
        model: A trained model.
        views: The new modalities, and at least one that the model knows, to learn from.
        like: The known modality whose outputs are learned; None: the mean of all that are in
            ``views``.
        pairs: Similar pairs of rows of new and known modalities; None: row i of every view is the
            same item.
        recipes: New modality → how its rows are extracted from raw inputs.
        seed: Seed of held-out rows and landmarks.

    Returns:
        A model with all modalities. Codes of the old ones are bit-identical to those of ``model``.

    Raises:
        DataError: No view is new, or nothing links a new view to a known one.

    Example:
        >>> import numpy as np
        >>> from crossbit import ITQ, extend
        >>> X = np.random.default_rng(0).normal(size=(100, 8))
        >>> model = ITQ(n_bits=16).fit({"text": X})
        >>> extend(model, {"text": X, "text_v2": X[:, ::-1] + 1}, like="text")
        HashModel(text, text_v2 → 16 bits)
    """
    data = training_set(views, pairs=pairs)
    new = [name for name in data.modalities if name not in model.encoders]
    known = [name for name in data.modalities if name in model.encoders]
    if not new or not known:
        raise DataError(
            "views must contain a new modality and one that the model knows;"
            f" got {data.modalities}, the model knows {model.modalities}"
        )
    sources = known if like is None else [check_known(like, known, "modality to learn from")]
    for name in recipes or {}:
        check_known(name, new, "new modality")
    encoders = dict(model.encoders)
    card: dict[str, str] = dict(model.card.get("extended", {}))
    with training_threads(data.n_values, torch=False):
        for number, name in enumerate(new):
            random = np.random.default_rng([seed, number])
            rows, targets = _targets(model, data, sources, name, random)
            X = np.asarray(data.views[name][rows], np.float32)
            encoders[name], quality = _learn(X, targets, random)
            card[name] = f"learned like {', '.join(sources)} from {len(rows)} rows, {quality}"
    return replace(
        model,
        encoders=encoders,
        recipes={**model.recipes, **(recipes or {})},
        card={**model.card, "extended": card},
    )


def _targets(
    model: HashModel,
    data: TrainingSet,
    sources: Sequence[str],
    name: str,
    random: np.random.Generator,
) -> tuple[Ints, Floats]:
    """Return rows of a new modality and the mean output of the frozen rows linked to each."""
    links = linked_rows(data)
    links |= {(b, a): index[:, ::-1] for (a, b), index in links.items()}
    rows = np.unique(np.concatenate([links[name, source][:, 0] for source in sources]))
    if len(rows) < _MIN_ROWS:
        raise DataError(
            f"{len(rows)} rows of {name!r} are linked to {sources};"
            f" at least {_MIN_ROWS} are needed (a few thousand recommended)"
        )
    if len(rows) > _MAX_ROWS:
        rows = np.sort(random.choice(rows, _MAX_ROWS, replace=False))
    total = np.zeros((len(rows), model.n_bits), np.float32)
    count = np.zeros((len(rows), 1), np.float32)
    for source in sources:
        index = links[name, source]
        own, known = index[np.isin(index[:, 0], rows)].T
        at = np.searchsorted(rows, own)
        np.add.at(total, at, model.scores(source, data.views[source][known]))
        np.add.at(count, at, 1)
    return rows, total / count


def _learn(X: Floats, targets: Floats, random: np.random.Generator) -> tuple[list[Layer], str]:
    """Return layers whose outputs follow the targets, and a description for the card."""
    held_out = hold_out(np.zeros(len(X)), _HELD_OUT, random)
    known = signs(targets[held_out])
    fits: dict[str, _Fit] = {steps: partial(_regress, steps) for steps in _CANDIDATES}
    n_classes = len(np.unique(targets, axis=0))
    if 1 < n_classes <= min(_MAX_CLASSES, len(targets) // _ROWS_PER_CLASS):
        fits[f"{_CLASS_INPUTS}, posteriors of {n_classes} distinct outputs"] = _classify
    scores = {}
    trials = {}
    for inputs, fit in fits.items():
        trials[inputs] = fit(X[~held_out], targets[~held_out], random)
        scores[inputs] = float(np.mean(signs(apply_layers(trials[inputs], X[held_out])) == known))
    best = max(scores, key=lambda inputs: scores[inputs])
    quality = f"inputs {best}, {100 * scores[best]:.1f} % equal bits on held-out rows"
    if best in _CANDIDATES:
        refined = _refine(trials[best], X[~held_out], targets[~held_out], random)
        plain_rank, refined_rank = (
            reciprocal_rank({"new": signs(apply_layers(layers, X[held_out])), "known": known})
            for layers in (trials[best], refined)
        )
        if refined_rank > plain_rank:
            layers = _refine(fits[best](X, targets, random), X, targets, random)
            return layers, f"{quality} before the ranking loss"
    return fits[best](X, targets, random), quality


def _regress(steps: str, X: Floats, targets: Floats, random: np.random.Generator) -> list[Layer]:
    layers = fit_steps(steps, X, random)
    ridge = Ridge(apply_layers(layers, X), targets)
    _, decay = ridge.leave_one_out()
    return [*layers, Affine(*ridge.solve(decay))]


def _classify(X: Floats, targets: Floats, random: np.random.Generator) -> list[Layer]:
    """Mean of the distinct outputs, weighted by the softmax of a ridge regression on them."""
    outputs, classes = np.unique(targets, axis=0, return_inverse=True)
    one_hot = np.eye(len(outputs), dtype=np.float32)[classes.reshape(-1)]
    layers = fit_steps(_CLASS_INPUTS, X, random)
    F = apply_layers(layers, X)
    train, held_out = np.array_split(random.permutation(len(F)), 2)
    ridge = Ridge(F, one_hot)
    _, decay = ridge.leave_one_out()
    weight, bias = Ridge(F[train], one_hot[train]).solve(decay / 2)
    scores = F[held_out] @ weight + bias
    scale = max(_SCALES, key=lambda s: float((log_softmax(s * scores) * one_hot[held_out]).sum()))
    weight, bias = ridge.solve(decay)
    last = Affine(outputs, np.zeros(outputs.shape[1]))
    return [*layers, Affine(scale * weight, scale * bias), Softmax(), last]


def _refine(
    layers: list[Layer], X: Floats, targets: Floats, random: np.random.Generator
) -> list[Layer]:
    """Change the last affine layer of a regression until signs rank codes as the targets do."""
    *inputs, last = layers
    assert isinstance(last, Affine)  # noqa: S101 - the caller fitted a regression
    F = apply_layers(inputs, X)
    outputs = F @ last.weight + last.bias
    size = max(float(np.sqrt(np.square(outputs).mean())), 1e-12)
    outputs = (outputs / size).astype(np.float32)
    mean = F.mean(axis=0, dtype=np.float64)
    w, _, V = principal(F - mean)
    if not len(w):  # constant features
        return layers
    axes = V[:, ::-1][:, :_AXES] / np.sqrt(w[-1] / len(F))
    Z = ((F - mean) @ axes).astype(np.float32)
    codes = signs(targets)
    unit = targets / np.maximum(np.linalg.norm(targets, axis=1, keepdims=True), 1e-12)
    bits = codes.shape[1]
    batches = row_batches(np.arange(len(F)), _BATCH, random)

    def draw() -> Batch:
        rows = next(batches)
        P = np.exp(log_softmax(_SHARPNESS * (unit[rows] @ codes[rows].T)))

        def loss(own: Sequence[Floats], scale: float) -> tuple[float, list[Floats]]:
            value, slope, _ = rank_loss(own[0], codes[rows], P, scale)
            return value, [slope]

        return Batch([Z[rows]], [outputs[rows]], loss)

    scales = {bits: _SHARPNESS * bits**0.5}
    change, bias = Refinement(pull=_PULL).refine((1, axes.shape[1], bits), draw, scales)
    weight = axes @ change[0] * size
    return [*inputs, Affine(last.weight + weight, last.bias + bias[0] * size - mean @ weight)]

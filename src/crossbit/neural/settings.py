"""Settings of one training run: everything decided, nothing left to a default elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal, TypeVar

from crossbit.errors import DataError

Loss = Literal["contrastive", "ranking", "precision"]
T = TypeVar("T")
Key = tuple[str, str]


def pair_key(left: str, right: str) -> Key:
    """Two modalities in one order, whichever way round they were given."""
    return (left, right) if left <= right else (right, left)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run of the training loop.

    Attributes:
        n_bits: Length of a code.
        seed: Of pairs, batches and dropout.
        weights: Weight of the loss of each pair of modalities; those of a modality with itself are the paper's α.
        margins: Margin of each pair of modalities, a Euclidean distance.
        losses: Kind of loss of each kind of knowledge: ``labels``, ``pairs``, ``rows``.
        temperature: Of the ranking loss.
        sums: Add pairs up, instead of averaging similar and dissimilar ones each.
        evenness: How far similar and dissimilar pairs weigh the same in total: 1 fully, 0 each pair weighs the same.
        expected: Learn from the probability of being similar, told by posteriors, instead of from labels.
        beta: Steepness of the tanh at the beginning and at the end.
        n_pairs: Similar and dissimilar pairs drawn from labels for each pair of modalities; nothing: all pairs.
        quantization: Weight of the penalty for outputs away from ±1.
        balance: Weight of the penalty for uneven bits.
        decay: Weight decay, ½ λ ‖W‖².
        anchored: Weights decay to where they began instead of to 0, ½ λ ‖W − W₀‖².
        dropout: Share of the values entering each affine layer that are zeroed while training.
        optimizer: ``"cg"``, ``"lbfgs"``, ``"adam"`` or ``"sgd"``.
        rate: Step size of Adam and SGD.
        batch: Rows a step, nothing for all; online: pairs of each kind a step.
        online: Draw pairs as training goes, reading only their rows.
        steps: Steps at most.
        every: Steps between two looks at the validation part.
        patience: Looks without a gain after which training stops.
        device: Where to compute.
    """

    n_bits: int
    seed: int
    weights: Mapping[Key, float]
    margins: Mapping[Key, float]
    losses: Mapping[str, Loss]
    temperature: float
    sums: bool
    evenness: float
    expected: bool
    beta: tuple[float, float]
    n_pairs: tuple[int, int] | None
    quantization: float
    balance: float
    decay: float
    anchored: bool
    dropout: float
    optimizer: str
    rate: float
    batch: int | None
    online: bool
    steps: int
    every: int
    patience: int
    device: str


def for_each(
    value: T | Mapping[str, T], names: Sequence[str], what: str, default: T
) -> dict[str, T]:
    """A setting for every modality, from one value for all or a mapping of some."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(names, value)
    if unknown := sorted(set(value) - set(names)):
        raise DataError(f"{what}: unknown modalities {unknown}; known: {sorted(names)}")
    return {name: value.get(name, default) for name in names}


def margins(
    value: float | str | Mapping[str, float | str], names: Sequence[str], n_bits: int
) -> dict[Key, float]:
    """The margin of every pair of modalities, and of each modality with itself, as a Euclidean distance.

    Args:
        value: One margin for all, or a mapping with keys ``"image-text"`` in either order, ``"image"`` for within,
            and ``"default"`` for the rest.
        names: The modalities.
        n_bits: A margin such as ``"75%"`` is a share of the largest distance, 2√bits.
    """
    keys = [pair_key(a, b) for a, b in combinations_with_replacement(names, 2)]
    if not isinstance(value, Mapping):
        return dict.fromkeys(keys, _distance(value, n_bits))
    given = {
        _key(key, names): _distance(margin, n_bits)
        for key, margin in value.items()
        if key != "default"
    }
    if missing := [key for key in keys if key not in given and "default" not in value]:
        raise DataError(
            f"margin: none is given for {['-'.join(key) for key in missing]}; add it, or 'default'"
        )
    rest = dict.fromkeys(keys, _distance(value["default"], n_bits)) if "default" in value else {}
    return rest | given


def _key(key: str, names: Sequence[str]) -> Key:
    """``"image-text"`` or ``"image"``, which is short for ``"image-image"``."""
    parts = key.split("-")
    left, right = (parts[0], parts[-1])
    if len(parts) > 2 or left not in names or right not in names:
        raise DataError(
            f"margin: {key!r} names no pair of modalities; known: {sorted(names)}, joined by '-', and 'default'"
        )
    return pair_key(left, right)


def _distance(margin: float | str, n_bits: int) -> float:
    share = isinstance(margin, str) and margin.endswith("%")
    try:
        distance = 2 * n_bits**0.5 * float(str(margin)[:-1]) / 100 if share else float(margin)
    except (TypeError, ValueError):
        distance = 0.0
    if not 0 < distance < float("inf"):
        raise DataError(
            f"a margin is a distance above 0, or a share of the largest distance such as '75%', got {margin!r}"
        )
    return distance

"""Configuration of one training run, resolved from the options of a hasher in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations_with_replacement
from typing import Any, Self, TypeVar

import torch

from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.neural.losses import LOSSES, Loss

T = TypeVar("T")
Key = tuple[str, str]

MAX_DENSE_PAIRS = 25_000_000
"""Number of pairs of rows up to which every step may compare all of them."""

_FULL_BATCH = ("cg", "lbfgs")  # optimizers that evaluate the full objective in every step


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All parameters of one training run.

    Attributes:
        n_bits: Length of a code.
        seed: Seed of weights, pairs, batches and dropout.
        hidden: Modality → widths of hidden layers.
        weights: Pair of modalities → weight of its loss; for a modality with itself the paper's α.
        margins: Pair of modalities → margin, a Euclidean distance.
        loss: The loss of every pair of modalities.
        temperature: Temperature of the ranking loss.
        sums: Sum over pairs instead of averaging positives and negatives.
        soft_labels: Use pairwise similarity probabilities from class posteriors instead of labels.
        nested: Prefixes of the code have losses too.
        beta: Steepness of the tanh at the beginning and at the end.
        n_pairs: Numbers of similar and dissimilar pairs to draw from labels for each pair of
            modalities; None uses all pairs.
        quantization: Weight of the quantization penalty.
        balance: Weight of the bit balance penalty.
        decay: Weight decay, ½ λ ‖W‖².
        dropout: Probability of zeroing a value that enters an affine layer, while training.
        optimizer: ``"cg"``, ``"lbfgs"``, ``"adam"`` or ``"sgd"``.
        learning_rate: Step size of Adam and SGD.
        batch: Rows per step, None for all; with ``online``, pairs of each kind per step.
        online: Draw pairs during training and read only their rows.
        steps: Maximum number of steps.
        eval_every: Steps between two evaluations on the validation part.
        patience: Evaluations without improvement after which training stops.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
    """

    n_bits: int
    seed: int
    hidden: Mapping[str, tuple[int, ...]]
    weights: Mapping[Key, float]
    margins: Mapping[Key, float]
    loss: Loss
    temperature: float
    sums: bool
    soft_labels: bool = False
    nested: bool = False
    beta: tuple[float, float]
    n_pairs: tuple[int, int] | None
    quantization: float
    balance: float
    decay: float
    dropout: float
    optimizer: str
    learning_rate: float
    batch: int | None
    online: bool
    steps: int
    eval_every: int
    patience: int
    device: str

    @classmethod
    def resolve(cls, options: Mapping[str, Any], data: TrainingSet) -> Self:
        """Resolve the options of a hasher for a training set.

        Options with the name of a field are that field, unless their value needs resolving:
        ``"auto"``, a default that depends on the data, or one value for all modalities.

        Args:
            options: The fields of `MMNN` by name.
            data: The training set.

        Raises:
            DataError: An option has an impossible value.
        """
        names = data.modalities
        n_rows = max(int(present.sum()) for present in data.present.values())
        online = options["online"]
        batch = options["batch"]
        optimizer = options["optimizer"]
        if optimizer == "auto":
            is_small = n_rows**2 <= MAX_DENSE_PAIRS and not online
            optimizer = "cg" if is_small and batch is None else "adam"
        full_batch = optimizer in _FULL_BATCH
        batch = None if full_batch else batch or (32 if online else 256)
        steps_per_epoch = 1 if batch is None else -(-n_rows // batch)
        margin = "75%" if options["margin"] == "auto" else options["margin"]
        beta = options["beta"]
        resolved = {
            "hidden": _per_modality(options["hidden"], names, "hidden", ()),
            "weights": _weights(options["alpha"], names),
            "margins": _margins(margin, names, options["n_bits"]),
            "loss": _loss(options["loss"]),
            "beta": (beta, beta) if isinstance(beta, float | int) else beta,
            "optimizer": optimizer,
            "batch": batch,
            "steps": options["steps"] or (200 if full_batch else max(2000, 30 * steps_per_epoch)),
            "eval_every": 5 if full_batch else max(20, steps_per_epoch),
        }
        same = {f.name: options[f.name] for f in fields(cls) if f.name in options}
        return cls(**(same | resolved))

    def weight(self, left: str, right: str) -> float:
        """Return the weight of the loss between two modalities, in either order."""
        return self.weights[_pair_key(left, right)]

    def margin(self, left: str, right: str) -> float:
        """Return the margin between two modalities, in either order."""
        return self.margins[_pair_key(left, right)]

    def with_margin(self, margin: float | str) -> Self:
        """Return a copy with the same margin for all pairs of modalities."""
        return replace(self, margins=_margins(margin, list(self.hidden), self.n_bits))

    def torch_device(self) -> torch.device:
        """Return the device; ``"auto"`` prefers CUDA, then Apple's GPU, then the processor.

        Raises:
            DataError: The device is unknown or not available.
        """
        available = {
            "cuda": torch.cuda.is_available(),
            "mps": torch.backends.mps.is_available(),
            "cpu": True,
        }
        name = self.device
        if name == "auto":
            name = next(device for device, usable in available.items() if usable)
        if name not in available:
            raise DataError(f"unknown device {name!r}; known: ['auto', 'cpu', 'cuda', 'mps']")
        if not available[name]:
            raise DataError(
                f"device {name!r} is not available on this machine; use 'auto' or 'cpu'"
            )
        return torch.device(name)


def _per_modality(
    value: T | Mapping[str, T], names: Sequence[str], option: str, default: T
) -> dict[str, T]:
    """Expand an option to every modality, from one value for all or a mapping for some."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(names, value)
    if unknown := sorted(set(value) - set(names)):
        raise DataError(f"{option}: unknown modalities {unknown}; known: {sorted(names)}")
    return {name: value.get(name, default) for name in names}


def _pair_key(left: str, right: str) -> Key:
    """Return two modalities in a fixed order."""
    return (left, right) if left <= right else (right, left)


def _weights(alpha: float | Mapping[str, float], names: Sequence[str]) -> dict[Key, float]:
    """Weight of the loss of every pair of modalities; a single modality has weight 1."""
    within = _per_modality(alpha, names, "alpha", 0.3)
    return {
        _pair_key(a, b): within[a] if a == b and len(names) > 1 else 1.0
        for a, b in combinations_with_replacement(names, 2)
    }


def _loss(name: str) -> Loss:
    if name not in LOSSES:
        raise DataError(f"unknown loss {name!r}; known: {list(LOSSES)}")
    return LOSSES[name]


def _margins(
    value: float | str | Mapping[str, float | str], names: Sequence[str], n_bits: int
) -> dict[Key, float]:
    """Return the margin of every pair of modalities as a Euclidean distance.

    Args:
        value: One margin for all, or a mapping with keys ``"image-text"`` in either order,
            ``"image"`` for the modality with itself, and ``"default"`` for the rest.
        names: The modalities.
        n_bits: Number of bits; a margin such as ``"75%"`` is a share of the maximum, 2√bits.
    """
    keys = [_pair_key(a, b) for a, b in combinations_with_replacement(names, 2)]
    if not isinstance(value, Mapping):
        return dict.fromkeys(keys, _distance(value, n_bits))
    explicit = {
        _parse_key(key, names): _distance(margin, n_bits)
        for key, margin in value.items()
        if key != "default"
    }
    if "default" in value:
        return dict.fromkeys(keys, _distance(value["default"], n_bits)) | explicit
    if missing := ["-".join(key) for key in keys if key not in explicit]:
        raise DataError(f"margin: no value for {missing}; add them or 'default'")
    return explicit


def _parse_key(key: str, names: Sequence[str]) -> Key:
    """Parse ``"image-text"`` or ``"image"``, which is short for ``"image-image"``."""
    parts = key.split("-")
    left = parts[0]
    right = parts[-1]
    if len(parts) > 2 or left not in names or right not in names:
        raise DataError(
            f"margin: {key!r} is not a pair of modalities;"
            f" join two of {sorted(names)} with '-', or use 'default'"
        )
    return _pair_key(left, right)


def _distance(margin: float | str, n_bits: int) -> float:
    """Convert a margin, possibly a percentage of the maximum, to a distance."""
    is_share = isinstance(margin, str) and margin.endswith("%")
    try:
        distance = 2 * n_bits**0.5 * float(str(margin)[:-1]) / 100 if is_share else float(margin)
    except (TypeError, ValueError):
        distance = 0.0
    if not 0 < distance < float("inf"):
        raise DataError(
            "a margin must be a distance above 0 or a share of the maximum distance"
            f" such as '75%', got {margin!r}"
        )
    return distance

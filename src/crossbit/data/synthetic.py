"""Synthetic multimodal data with known classes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer, check_known, check_modality
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError

_Floats = NDArray[np.float64]
MODALITIES: Mapping[str, int] = {"image": 64, "text": 32}
SPLITS: Mapping[str, float] = {"train": 0.8, "test": 0.2}


@dataclass(frozen=True, kw_only=True)
class _ViewConfig:
    """Arguments of `synthetic` that shape a view."""

    latent: int
    nonlinear: bool
    noise: float


def synthetic(
    *,
    n: int = 1000,
    classes: int = 10,
    modalities: Mapping[str, int] | int = MODALITIES,
    labels_per_row: float = 1.0,
    tail: float = 0.0,
    latent: int = 16,
    scatter: float = 0.5,
    nonlinear: bool = True,
    noise: float = 0.1,
    missing: float | Mapping[str, float] = 0.0,
    splits: Mapping[str, float] = SPLITS,
    seed: int = 0,
) -> Dataset:
    r"""Generate aligned views of items that belong to classes.

    Class $c$ has a center $\mu_c \sim N(0, I)$ in a latent space. Item $i$ lies at
    $z_i = \bar\mu_i + s\,\epsilon_i$, where $\bar\mu_i$ is the mean of its classes' centers and $s$
    the scatter. Modality $m$ is $x_i = f_m(z_i) + \sigma\,\epsilon'_i$ with
    $f_m(z) = W_2 \tanh(W_1 z + b)$, or $W z$, scaled to unit variance.

    Every component has its own random stream: changing the noise, the missing rows or the number of
    modalities leaves everything else unchanged.

    Args:
        n: Number of items.
        classes: Number of classes.
        modalities: Name → number of features; or the number of modalities, which are then called
            ``view0``, ``view1``, … and have 32 features each.
        labels_per_row: Average number of classes per item; above 1 the labels are a boolean matrix
            (n, classes).
        tail: Class imbalance: the k-th class is $k^{-\mathrm{tail}}$ times as frequent as the
            first.
        latent: Dimension of the latent space.
        scatter: Standard deviation of items around their classes; centers have 1.
        nonlinear: Whether views are random two-layer maps instead of linear ones.
        noise: Standard deviation of the noise of each view; features have 1.
        missing: Share of rows absent (all NaN) from each view, or modality → share. Every item
            keeps at least one view.
        splits: Split → share of the items, drawn at random; the rest belongs to no split.
        seed: The same seed gives the same data.

    Example:
        >>> modalities = {"image": 8, "text": 4, "sound": 5}
        >>> synthetic(n=100, classes=3, modalities=modalities, missing={"text": 0.2})
        Dataset(synthetic: 100 rows; image 8, text 4, sound 5; 3 classes; train 80, test 20)
    """
    widths = (
        {f"view{k}": 32 for k in range(modalities)}
        if isinstance(modalities, int)
        else dict(modalities)
    )
    _check_counts(n=n, classes=classes, latent=latent)
    _check_counts(**{check_modality(m): width for m, width in widths.items()})
    check_integer(seed, "synthetic data: seed")
    _check_finite(tail=tail, scatter=scatter, noise=noise)
    if not 1 <= labels_per_row <= classes:
        raise DataError(
            f"synthetic data: labels_per_row must be between 1 and {classes}, the number of"
            f" classes, got {labels_per_row}"
        )
    shares = _shares(missing, widths)
    streams = np.random.SeedSequence(seed).spawn(5)
    label_rng, item_rng, split_rng, missing_rng = map(np.random.default_rng, streams[:4])
    members = _labels(n, classes, labels_per_row, tail, label_rng)
    items = _items(members, latent, scatter, item_rng)
    config = _ViewConfig(latent=latent, nonlinear=nonlinear, noise=noise)
    views = {
        m: _view(items, width, config, stream)
        for (m, width), stream in zip(widths.items(), streams[4].spawn(len(widths)), strict=True)
    }
    for m, rows in _absent(n, shares, missing_rng).items():
        views[m][rows] = np.nan
    return Dataset(
        views=views,
        labels=members if labels_per_row > 1 else members.argmax(axis=1),
        splits=_splits(n, splits, split_rng),
        name="synthetic",
        source=f"crossbit.data.synthetic, seed {seed}",
        license="none needed",
    )


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        check_integer(count, f"synthetic data: {name}", least=1)


def _check_finite(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise DataError(f"synthetic data: {name} must be finite and at least 0, got {value}")


def _shares(missing: float | Mapping[str, float], widths: Mapping[str, int]) -> dict[str, float]:
    shares = dict(missing) if isinstance(missing, Mapping) else dict.fromkeys(widths, missing)
    for name, share in shares.items():
        check_known(name, widths)
        if not 0 <= share < 1:
            raise DataError(
                f"synthetic data: the missing share of {name!r} must be at least 0 and below 1,"
                f" got {share}"
            )
    if sum(shares.values()) > len(widths) - 1:
        raise DataError(
            f"synthetic data: every item keeps one of {len(widths)} views, so the missing shares"
            f" must add up to at most {len(widths) - 1}, got {sum(shares.values()):g}"
        )
    return shares


def _labels(
    n: int, classes: int, per_row: float, tail: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """One class per item in the exact proportions, and further random classes if requested."""
    weights = np.arange(1, classes + 1) ** -float(tail)
    weights /= weights.sum()
    edges = np.rint(np.cumsum(weights) * n).astype(np.int64)
    first = np.searchsorted(edges, rng.permutation(n), side="right")
    # A draw adds a class only if it is not the first one: Σ w(1 − w) of the draws do.
    extra = (per_row - 1) * weights / (weights @ (1 - weights)) if classes > 1 else np.zeros(1)
    labels: NDArray[np.bool_] = rng.random((n, classes)) < extra
    labels[np.arange(n), first] = True
    return labels


def _items(
    labels: NDArray[np.bool_], latent: int, scatter: float, rng: np.random.Generator
) -> _Floats:
    centers = rng.standard_normal((labels.shape[1], latent))
    means: _Floats = labels @ centers / labels.sum(axis=1, keepdims=True)
    return means + scatter * rng.standard_normal(means.shape)


def _view(
    items: _Floats, width: int, config: _ViewConfig, stream: np.random.SeedSequence
) -> NDArray[np.float32]:
    """One modality of the items; its map and its noise have separate random streams."""
    map_rng, noise_rng = map(np.random.default_rng, stream.spawn(2))
    hidden = items
    if config.nonlinear:
        inner = map_rng.standard_normal((config.latent, 2 * config.latent)) / np.sqrt(config.latent)
        hidden = np.tanh(items @ inner + map_rng.standard_normal(2 * config.latent))
    clean = hidden @ map_rng.standard_normal((hidden.shape[1], width))
    deviation = clean.std(axis=0)
    clean = (clean - clean.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    noisy: _Floats = clean + config.noise * noise_rng.standard_normal(clean.shape)
    return noisy.astype(np.float32)


def _absent(
    n: int, shares: Mapping[str, float], rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Absent rows of each view: those with the fewest absences so far, so each item keeps one."""
    n_absent = np.zeros(n, np.int64)
    absent = {}
    for m, share in shares.items():
        order = rng.permutation(n)
        absent[m] = order[np.argsort(n_absent[order], kind="stable")][: int(share * n)]
        n_absent[absent[m]] += 1
    return absent


def _splits(
    n: int, shares: Mapping[str, float], rng: np.random.Generator
) -> dict[str, NDArray[np.int64]]:
    if not all(share >= 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise DataError(
            "synthetic data: the shares of splits must be at least 0 and add up to at most 1,"
            f" got {dict(shares)}"
        )
    edges = np.rint(np.cumsum([0.0, *shares.values()]) * n).astype(int)
    order = rng.permutation(n)
    return {
        split: np.sort(order[a:b])
        for split, a, b in zip(shares, edges[:-1], edges[1:], strict=True)
    }

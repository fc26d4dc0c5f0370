"""Multimodal data with known classes, made from a seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import known, modality_name, whole_number
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError

_Floats = NDArray[np.float64]
MODALITIES: Mapping[str, int] = {"image": 64, "text": 32}
SPLITS: Mapping[str, float] = {"train": 0.8, "test": 0.2}


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """The arguments of `synthetic` that shape a view."""

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
    r"""Make aligned views of things that belong to classes.

    Class $c$ has a center $\mu_c \sim N(0, I)$ in a latent space. Thing $i$ lies at
    $z_i = \bar\mu_i + s\,\epsilon_i$, where $\bar\mu_i$ is the mean of its classes' centers and $s$ the scatter.
    Modality $m$ sees $x_i = f_m(z_i) + \sigma\,\epsilon'_i$ with
    $f_m(z) = W_2 \tanh(W_1 z + b)$, or $W z$, scaled to unit variance.

    Every part has a random stream of its own: more noise, other missing rows or one modality more leave all
    the rest as it was.

    Args:
        n: How many things.
        classes: How many classes.
        modalities: Name → number of features; or how many, named ``view0``, ``view1``, … with 32 features each.
        labels_per_row: Classes of a thing on average; above 1 the labels are a boolean matrix (n, classes).
        tail: How unequal the classes are: the k-th is $k^{-\mathrm{tail}}$ times as frequent as the first.
        latent: Dimensions of the latent space.
        scatter: How far things lie from their classes, in the unit of the centers.
        nonlinear: Whether views are random two-layer maps, or linear ones.
        noise: Standard deviation of what each view adds of its own; features have 1.
        missing: Share of rows absent (all NaN) from each view, or modality → share. Every thing keeps a view.
        splits: Part → share of the things, drawn at random; whatever is left belongs to no part.
        seed: The same seed gives the same data.

    Example:
        >>> synthetic(n=100, classes=3, modalities={"image": 8, "text": 4, "sound": 5}, missing={"text": 0.2})
        Dataset(synthetic: 100 rows; image 8, text 4, sound 5; 3 classes; train 80, test 20)
    """
    widths = (
        {f"view{k}": 32 for k in range(modalities)}
        if isinstance(modalities, int)
        else dict(modalities)
    )
    _check_whole(n=n, classes=classes, latent=latent)
    _check_whole(**{modality_name(m): width for m, width in widths.items()})
    whole_number(seed, "synthetic data: seed")
    _check_real(tail=tail, scatter=scatter, noise=noise)
    if not 1 <= labels_per_row <= classes:
        raise DataError(
            f"synthetic data: labels_per_row goes from 1 to the number of classes, {classes}, got {labels_per_row}"
        )
    shares = _shares(missing, widths)
    label_stream, thing_stream, split_stream, missing_stream, view_stream = np.random.SeedSequence(
        seed
    ).spawn(5)
    several = _labels(n, classes, labels_per_row, tail, np.random.default_rng(label_stream))
    things = _things(several, latent, scatter, np.random.default_rng(thing_stream))
    settings = _Settings(latent=latent, nonlinear=nonlinear, noise=noise)
    views = {
        m: _view(things, width, settings, stream)
        for (m, width), stream in zip(widths.items(), view_stream.spawn(len(widths)), strict=True)
    }
    for m, rows in _absent(n, shares, np.random.default_rng(missing_stream)).items():
        views[m][rows] = np.nan
    return Dataset(
        views=views,
        labels=several if labels_per_row > 1 else several.argmax(axis=1),
        splits=_splits(n, splits, np.random.default_rng(split_stream)),
        name="synthetic",
        source=f"crossbit.data.synthetic, seed {seed}",
        license="none needed",
    )


def _check_whole(**counts: int) -> None:
    for name, count in counts.items():
        whole_number(count, f"synthetic data: {name}", least=1)


def _check_real(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise DataError(f"synthetic data: {name} is a finite number of at least 0, got {value}")


def _shares(missing: float | Mapping[str, float], widths: Mapping[str, int]) -> dict[str, float]:
    shares = dict(missing) if isinstance(missing, Mapping) else dict.fromkeys(widths, missing)
    for name, share in shares.items():
        known(name, widths)
        if not 0 <= share < 1:
            raise DataError(
                f"synthetic data: the missing share of {name!r} is at least 0 and below 1, got {share}"
            )
    if sum(shares.values()) > len(widths) - 1:
        raise DataError(
            f"synthetic data: every thing keeps one of {len(widths)} views, so the missing shares add up to at most"
            f" {len(widths) - 1}, got {sum(shares.values()):g}"
        )
    return shares


def _labels(
    n: int, classes: int, per_row: float, tail: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """One class for each thing in the exact proportions asked, and more at random where several are asked."""
    weights = np.arange(1, classes + 1) ** -float(tail)
    weights /= weights.sum()
    edges = np.rint(np.cumsum(weights) * n).astype(np.int64)
    first = np.searchsorted(edges, rng.permutation(n), side="right")
    # A class counts as a further one only where it is not the first: Σ w(1 − w) of the draws do.
    extra = (per_row - 1) * weights / (weights @ (1 - weights)) if classes > 1 else np.zeros(1)
    labels: NDArray[np.bool_] = rng.random((n, classes)) < extra
    labels[np.arange(n), first] = True
    return labels


def _things(
    labels: NDArray[np.bool_], latent: int, scatter: float, rng: np.random.Generator
) -> _Floats:
    centers = rng.standard_normal((labels.shape[1], latent))
    means: _Floats = labels @ centers / labels.sum(axis=1, keepdims=True)
    return means + scatter * rng.standard_normal(means.shape)


def _view(
    things: _Floats, width: int, settings: _Settings, stream: np.random.SeedSequence
) -> NDArray[np.float32]:
    """What one modality sees; its map and its noise have streams of their own."""
    shape, blur = (np.random.default_rng(s) for s in stream.spawn(2))
    hidden = things
    if settings.nonlinear:
        inner = shape.standard_normal((settings.latent, 2 * settings.latent)) / np.sqrt(
            settings.latent
        )
        hidden = np.tanh(things @ inner + shape.standard_normal(2 * settings.latent))
    seen = hidden @ shape.standard_normal((hidden.shape[1], width))
    spread = seen.std(axis=0)
    seen = (seen - seen.mean(axis=0)) / np.where(spread > 0, spread, 1)
    blurred: _Floats = seen + settings.noise * blur.standard_normal(seen.shape)
    return blurred.astype(np.float32)


def _absent(
    n: int, shares: Mapping[str, float], rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Rows each view lacks: always those that lack the fewest views so far, so that each thing keeps one."""
    lacking = np.zeros(n, np.int64)
    absent = {}
    for m, share in shares.items():
        order = rng.permutation(n)
        absent[m] = order[np.argsort(lacking[order], kind="stable")][: int(share * n)]
        lacking[absent[m]] += 1
    return absent


def _splits(
    n: int, shares: Mapping[str, float], rng: np.random.Generator
) -> dict[str, NDArray[np.int64]]:
    if not all(share >= 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise DataError(
            f"synthetic data: the shares of splits are at least 0 and add up to at most 1, got {dict(shares)}"
        )
    edges = np.rint(np.cumsum([0.0, *shares.values()]) * n).astype(int)
    order = rng.permutation(n)
    return {
        part: np.sort(order[a:b]) for part, a, b in zip(shares, edges[:-1], edges[1:], strict=True)
    }

r"""Features made up from real concepts, as hard to search as the real ones are said to be.

A photograph has some *draws*: visual words that were found in it, or tags that somebody gave it. Each draw is, with
probability $s$, from the distribution of one of the photograph's concepts, else from a common distribution. The share
$s$ of draws that tell something is found by search, so that the features as they are, before anything is hashed,
have a given mAP@10. Nothing else is fitted to anything, and nothing about methods can be learned from such
features: they test a protocol, its speed and its memory at full size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset
from crossbit.errors import DataError
from crossbit.evaluation.protocol import PROTOCOLS
from crossbit.metrics import AveragePrecision, mean_over_queries
from crossbit_experiments.nus.methods import rank_features
from crossbit_experiments.nus.splits import apply_reading

_BLOCK = 1 << 14  # photographs at a time
_QUERIES = slice(0, 2000)  # that tell how hard features are while they are calibrated
_TOLERANCE = 0.5  # percent
_TRIALS = 12

Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How the features of a modality are made up.

    Attributes:
        width: How many words or tags there are.
        draws: How many a photograph has on average, at least one.
        spread: Concentration of the Dirichlet distribution of each concept's words: small ones make few words telling.
        counts: Whether draws are counted, as visual words are, or only marked.
        target: mAP@10 of the features as they are, in percent: the paper's.
    """

    width: int
    draws: float
    spread: float
    counts: bool
    target: float


KINDS = {
    "image": Kind(width=500, draws=100, spread=0.2, counts=True, target=57.0),
    # 1,559,464 tags of the 1000 are given to 269,648 photographs.
    "tags": Kind(width=1000, draws=5.78, spread=0.02, counts=False, target=78.9),
}


@dataclass(frozen=True)
class Calibration:
    """How the share of telling draws was found.

    Attributes:
        shares: Modality → share.
        trials: Modality → (share, mAP@10 in percent) of every trial, in their order.
    """

    shares: dict[str, float]
    trials: dict[str, list[tuple[float, float]]]


def simulate(
    labels: Bools, concepts: Sequence[str], shares: dict[str, float], *, seed: int = 0
) -> Dataset:
    """A data set of the form of NUS with features made up from concepts.

    Args:
        labels: Which concepts each photograph has.
        concepts: Their names.
        shares: Modality → share of its draws that come from concepts.
        seed: The same seed gives the same features.
    """
    views = {
        name: features(labels, KINDS[name], share, [seed, k])
        for k, (name, share) in enumerate(shares.items())
    }
    return Dataset(views=views, labels=labels, classes=concepts, name="nus, features simulated")


def features(labels: Bools, kind: Kind, share: float, seed: Sequence[int]) -> NDArray[np.uint8]:
    """Make up the features of one modality."""
    ends = _distributions(labels.shape[1], kind, np.random.default_rng([*seed, 0]))
    made = np.empty((len(labels), kind.width), np.uint8)
    for start in range(0, len(labels), _BLOCK):
        block = labels[start : start + _BLOCK]
        made[start : start + _BLOCK] = _drawn(
            block, kind, share, ends, np.random.default_rng([*seed, 1, start])
        )
    return made


def _distributions(n_concepts: int, kind: Kind, random: np.random.Generator) -> NDArray[np.float64]:
    """Where words end when the common distribution and those of the concepts are laid end to end, each of length 1."""
    common = random.dirichlet(np.ones(kind.width))
    own = random.dirichlet(np.full(kind.width, kind.spread), n_concepts)
    ends = np.cumsum(np.vstack([common, own]), axis=1)
    ends[:, -1] = 1.0
    return (ends + np.arange(n_concepts + 1)[:, None]).ravel()


def _drawn(
    labels: Bools, kind: Kind, share: float, ends: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.uint8]:
    """Draw words for some photographs."""
    photograph = np.repeat(np.arange(len(labels)), 1 + random.poisson(kind.draws - 1, len(labels)))
    many, telling = labels.sum(axis=1), random.random(len(photograph)) < share
    telling &= many[photograph] > 0
    concepts = (
        np.nonzero(labels)[1] + 1
    )  # of one photograph after the other; 0 is the common distribution
    first = np.cumsum(many) - many
    which = first[photograph] + (random.random(len(photograph)) * many[photograph]).astype(np.int64)
    source = (
        np.where(telling, concepts[np.minimum(which, len(concepts) - 1)], 0)
        if len(concepts)
        else 0 * photograph
    )
    word = (
        np.searchsorted(ends, source + random.random(len(photograph)), side="right")
        - source * kind.width
    )
    counts = np.bincount(photograph * kind.width + word, minlength=len(labels) * kind.width)
    limit = 255 if kind.counts else 1
    return np.minimum(counts, limit).astype(np.uint8).reshape(len(labels), kind.width)


def calibrate(
    labels: Bools,
    concepts: Sequence[str],
    reading: str,
    *,
    seed: int = 0,
    on_trial: Callable[[str], None],
) -> Calibration:
    """Find the shares of telling draws with which features have the mAP@10 that the paper prints.

    Args:
        labels: Which concepts each photograph has.
        concepts: Their names.
        reading: Whose queries and base count: ``"labeled"`` or ``"ten-concepts"``.
        seed: Of the features.
        on_trial: Told of every trial, a line each.
    """
    protocol = PROTOCOLS[f"nus/{reading}"]
    bare = Dataset(views={"image": np.zeros((len(labels), 1))}, labels=labels, classes=concepts)
    shares, trials = {}, {}
    for k, (name, kind) in enumerate(KINDS.items()):

        def measure(share: float, name: str = name, kind: Kind = kind, k: int = k) -> float:
            made = features(labels, kind, share, [seed, k])
            other = np.zeros((len(labels), 1), np.uint8)
            views = {"image": other, "tags": other} | {name: made}
            data = apply_reading(replace(bare, views=views), reading)
            ranking = rank_features(data, name, protocol, queries=_QUERIES)
            found = 100 * mean_over_queries(ranking.measure(AveragePrecision(at=10)))
            on_trial(
                f"{name}: {share:.4f} of the draws tell something, mAP@10 {found:.2f} (target {kind.target})"
            )
            return found

        trials[name] = solve(measure, kind.target, name)
        shares[name] = trials[name][-1][0]
    return Calibration(shares, trials)


def solve(measure: Callable[[float], float], target: float, name: str) -> list[tuple[float, float]]:
    """Where an increasing function of a share is near a target: the trials, the last of which is near enough.

    The function is taken to be straight between the two nearest trials around the target.
    """
    low, high = (0.0, 40.0), (1.0, 100.0)  # about what chance and features without noise have
    trials: list[tuple[float, float]] = []
    while len(trials) < _TRIALS:
        straight = (target - low[1]) / (high[1] - low[1])
        share = low[0] + straight * (high[0] - low[0])
        trials.append((share, measure(share)))
        if abs(trials[-1][1] - target) <= _TOLERANCE:
            return trials
        low, high = (trials[-1], high) if trials[-1][1] < target else (low, trials[-1])
    raise DataError(
        f"{name}: no share of telling draws gives an mAP@10 of {target}; the last trials: {trials[-3:]}"
    )

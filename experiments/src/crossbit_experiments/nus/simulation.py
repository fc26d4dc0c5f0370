r"""Features simulated from the real concepts, calibrated to the difficulty of the real features.

A photograph has a number of *draws*: visual words found in it, or tags assigned to it. Each draw
comes with probability $s$ from the distribution of one of the photograph's concepts (an
*informative* draw), else from a common distribution. The share $s$ is calibrated so that the
unhashed features have a given mAP@10. Nothing else is fitted. Simulated features say nothing about
methods: they test a protocol, its speed and its memory at full size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset
from crossbit.errors import DataError
from crossbit.metrics import AveragePrecision, mean_over_queries
from crossbit_experiments.nus.features import rank_features
from crossbit_experiments.nus.splits import apply_split
from crossbit_experiments.protocols import PROTOCOLS

_BLOCK = 1 << 14  # photographs per block
_QUERIES = slice(0, 2000)  # queries used for calibration
_TOLERANCE = 0.5  # percent
_TRIALS = 12

_Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class FeatureModel:
    """How the features of a modality are simulated.

    Attributes:
        width: Number of words or tags.
        draws: Mean number of draws per photograph, at least one.
        concentration: Concentration of the Dirichlet distribution of each concept's words: a small
            one gives each concept few words.
        counts: Count draws, as for visual words; otherwise only mark them.
        target: mAP@10 of the unhashed features in percent, from the paper.
    """

    width: int
    draws: float
    concentration: float
    counts: bool
    target: float


FEATURE_MODELS = {
    "image": FeatureModel(width=500, draws=100, concentration=0.2, counts=True, target=57.0),
    # 269,648 photographs have 1,559,464 of the 1000 tags.
    "tags": FeatureModel(width=1000, draws=5.78, concentration=0.02, counts=False, target=78.9),
}


@dataclass(frozen=True)
class Calibration:
    """Calibrated shares of informative draws.

    Attributes:
        shares: Modality → share.
        trials: Modality → (share, mAP@10 in percent) of every trial, in order.
    """

    shares: dict[str, float]
    trials: dict[str, list[tuple[float, float]]]


def simulate(
    labels: _Bools, concepts: Sequence[str], shares: dict[str, float], *, seed: int = 0
) -> Dataset:
    """Return a data set like NUS with simulated features.

    Args:
        labels: Concepts of each photograph.
        concepts: Names of the concepts.
        shares: Modality → share of informative draws.
        seed: Random seed.
    """
    views = {
        name: simulate_features(labels, FEATURE_MODELS[name], share, [seed, k])
        for k, (name, share) in enumerate(shares.items())
    }
    return Dataset(views=views, labels=labels, classes=concepts, name="nus, features simulated")


def simulate_features(
    labels: _Bools, model: FeatureModel, share: float, seed: Sequence[int]
) -> NDArray[np.uint8]:
    """Simulate the features of one modality."""
    ends = _cumulative(labels.shape[1], model, np.random.default_rng([*seed, 0]))
    features = np.empty((len(labels), model.width), np.uint8)
    for start in range(0, len(labels), _BLOCK):
        block = labels[start : start + _BLOCK]
        random = np.random.default_rng([*seed, 1, start])
        features[start : start + _BLOCK] = _draw(block, model, share, ends, random)
    return features


def _cumulative(
    n_concepts: int, model: FeatureModel, random: np.random.Generator
) -> NDArray[np.float64]:
    """Cumulative distributions end to end: the common one in [0, 1), concept k in [k, k + 1)."""
    common = random.dirichlet(np.ones(model.width))
    own = random.dirichlet(np.full(model.width, model.concentration), n_concepts)
    ends = np.cumsum(np.vstack([common, own]), axis=1)
    ends[:, -1] = 1.0
    return (ends + np.arange(n_concepts + 1)[:, None]).ravel()


def _draw(
    labels: _Bools,
    model: FeatureModel,
    share: float,
    ends: NDArray[np.float64],
    random: np.random.Generator,
) -> NDArray[np.uint8]:
    """Draw the words of a block of photographs."""
    n_draws = 1 + random.poisson(model.draws - 1, len(labels))
    photograph = np.repeat(np.arange(len(labels)), n_draws)
    n_concepts = labels.sum(axis=1)
    informative = random.random(len(photograph)) < share
    informative &= n_concepts[photograph] > 0
    # Concepts of one photograph after the other, from 1; source 0 is the common distribution.
    concepts = np.nonzero(labels)[1] + 1
    first = np.cumsum(n_concepts) - n_concepts
    offset = random.random(len(photograph)) * n_concepts[photograph]
    which = first[photograph] + offset.astype(np.int64)
    source = 0 * photograph
    if len(concepts):
        source = np.where(informative, concepts[np.minimum(which, len(concepts) - 1)], 0)
    position = np.searchsorted(ends, source + random.random(len(photograph)), side="right")
    word = position - source * model.width
    counts = np.bincount(photograph * model.width + word, minlength=len(labels) * model.width)
    limit = 255 if model.counts else 1
    return np.minimum(counts, limit).astype(np.uint8).reshape(len(labels), model.width)


def calibrate(
    labels: _Bools,
    concepts: Sequence[str],
    split: str,
    *,
    seed: int = 0,
    on_trial: Callable[[str], None],
) -> Calibration:
    """Find the shares of informative draws that give the mAP@10 of the paper's features.

    Args:
        labels: Concepts of each photograph.
        concepts: Names of the concepts.
        split: ``"labeled"`` or ``"ten-concepts"``, see `apply_split`.
        seed: Seed of the features.
        on_trial: Called with a line of text after every trial.
    """
    protocol = PROTOCOLS[f"nus/{split}"]
    empty = np.zeros((len(labels), 1), np.uint8)
    unfilled = Dataset(views={"image": empty, "tags": empty}, labels=labels, classes=concepts)
    shares = {}
    trials = {}
    for k, (name, model) in enumerate(FEATURE_MODELS.items()):

        def measure(
            share: float, k: int = k, name: str = name, model: FeatureModel = model
        ) -> float:
            features = simulate_features(labels, model, share, [seed, k])
            data = apply_split(replace(unfilled, views={**unfilled.views, name: features}), split)
            ranking = rank_features(data, name, protocol, queries=_QUERIES)
            value = 100 * mean_over_queries(ranking.measure(AveragePrecision(at=10)))
            on_trial(
                f"{name}: {share:.4f} of the draws are informative,"
                f" mAP@10 {value:.2f} (target {model.target})"
            )
            return value

        trials[name] = solve_share(measure, model.target, name)
        shares[name] = trials[name][-1][0]
    return Calibration(shares, trials)


def solve_share(
    measure: Callable[[float], float], target: float, name: str
) -> list[tuple[float, float]]:
    """Solve ``measure(share) = target`` for an increasing function by regula falsi.

    Returns:
        The trials; the last one is within the tolerance.
    """
    low = (0.0, 40.0)  # about chance
    high = (1.0, 100.0)  # about features without noise
    trials: list[tuple[float, float]] = []
    while len(trials) < _TRIALS:
        fraction = (target - low[1]) / (high[1] - low[1])
        share = low[0] + fraction * (high[0] - low[0])
        trials.append((share, measure(share)))
        if abs(trials[-1][1] - target) <= _TOLERANCE:
            return trials
        if trials[-1][1] < target:
            low = trials[-1]
        else:
            high = trials[-1]
    raise DataError(
        f"{name}: no share of informative draws gives an mAP@10 of {target};"
        f" the last trials were {trials[-3:]}"
    )

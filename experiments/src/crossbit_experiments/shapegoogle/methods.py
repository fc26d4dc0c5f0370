"""Methods of the paper's tables on shapes: its settings, and the unhashed descriptors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset, Pairs
from crossbit.evaluation.evaluate import (
    Evaluation,
    Protocol,
    dataset_relevance,
    self_matches,
    split_rows,
)
from crossbit.hashers import HASHERS
from crossbit.metrics import evaluate_ranking, rank_vectors
from crossbit_experiments.methods import Method
from crossbit_experiments.protocols import PROTOCOLS

Split = Literal["held-out", "as-printed"]
"""Search held-out shapes, or the training shapes as the paper seems to have done."""
SPLITS: tuple[Split, ...] = get_args(Split)

DIRECTIONS = ("bof-ssbof", "ssbof-bof", "bof-bof", "ssbof-ssbof")
ACROSS = DIRECTIONS[:2]
NAMES = {"bof": "BoF", "ssbof": "SS-BoF"}
SHARES = (1.0, 0.5, 0.1)  # of the pairs across modalities
LENGTHS = (4, 8, 12, 16, 32)
LONG_LENGTHS = (64, 96, 128)  # CM-SSH only
GRID_ALPHAS = (0.0, 0.1, 0.3, 1.0)
GRID_MARGINS = (1.0, 2.0, 3.0, 5.0)  # across modalities
GRID_WITHIN = (1.0, 2.0, 3.0)  # margins within modalities
_HIDDEN = (128,)
_N_PAIRS = (10_000, 50_000)  # similar and dissimilar pairs per loss, at most as many as exist
# The columns of the unit rows are standardized. One affine layer can undo that, so the networks and
# minima are the paper's, but conjugate gradients approach them in a tenth of the steps: some words
# of a bag hardly vary.
NETWORK: dict[str, Any] = {
    "inputs": "unit+standardize",
    "optimizer": "cg",
    "sums": True,
    "validation": 0.0,
    "steps": 120,
}

_PRINTED = ("bof-ssbof", "bof-bof", "ssbof-ssbof")
_PAPER: dict[int, dict[str, tuple[float, float, float]]] = {
    12: {
        "mmnn-l1": (95.63, 96.29, 95.63),
        "mmnn-l2": (99.56, 98.94, 99.37),
        "cmnn-l1": (87.97, 88.60, 87.97),
        "cmnn-l2": (96.77, 97.40, 96.77),
        "cmssh": (74.09, 81.93, 83.95),
    },
    16: {
        "mmnn-l1": (99.69, 99.18, 99.69),
        "mmnn-l2": (99.76, 99.26, 99.57),
        "cmnn-l1": (98.77, 99.64, 98.99),
        "cmnn-l2": (98.83, 99.08, 98.83),
        "cmssh": (79.68, 85.29, 88.45),
    },
}
RAW = {"bof-bof": 96.97, "ssbof-ssbof": 95.29}

# (α of BoF and SS-BoF; margins of BoF, SS-BoF and across) → printed at 12 and at 16 bits
_SETTINGS: dict[tuple[float, float, float, float, float], dict[int, tuple[float, float, float]]] = {
    (0.0, 0.5, 1, 1, 2): {12: (90.67, 91.26, 90.67), 16: (99.38, 98.87, 99.38)},
    (0.5, 0.0, 2, 2, 3): {12: (93.12, 94.83, 91.79), 16: (99.39, 99.35, 99.25)},
    (0.1, 0.1, 1, 1, 3): {12: (95.62, 96.05, 95.62), 16: (99.00, 98.93, 99.00)},
    (0.3, 0.3, 2, 2, 2): {12: (92.54, 92.51, 92.54), 16: (99.62, 99.45, 99.62)},
    (0.3, 0.3, 1, 1, 3): {12: (98.88, 98.97, 98.88), 16: (99.01, 99.24, 99.01)},
    (0.3, 0.3, 2, 2, 3): {12: (98.28, 98.74, 98.28), 16: (98.55, 98.51, 99.48)},
    (0.5, 0.5, 3, 3, 3): {12: (95.59, 95.46, 95.59), 16: (99.07, 99.13, 98.93)},
    (0.0, 0.0, 0, 0, 2): {12: (96.03, 96.52, 95.51), 16: (96.96, 96.97, 96.72)},
    (0.0, 0.0, 0, 0, 3): {12: (87.97, 88.60, 87.97), 16: (98.77, 99.64, 98.99)},
    (0.0, 0.0, 0, 0, 5): {12: (91.22, 93.75, 91.24), 16: (95.60, 97.06, 95.60)},
}

# Candidates for cross-validation.
_FEW_PAIRS_MMNN = [
    {"margin": {"bof-ssbof": 3.0, "default": 1.0}, "alpha": alpha} for alpha in (0.1, 0.3)
]
_FEW_PAIRS_CMNN = [{"margin": margin} for margin in (3.0, 5.0)]
_VALIDATED_MMNN: list[dict[str, Any]] = [
    {"margin": {"bof-ssbof": 3.0, "default": 1.0}, "alpha": 0.3},
    {"margin": {"bof-ssbof": 3.0, "default": 2.0}, "alpha": 0.3},
    {"margin": "50%", "alpha": 0.3},
    {"margin": "71%", "alpha": 0.3},
    *(
        {"margin": 3.0, "alpha": alpha, "decay": decay}
        for alpha, decay in product((0.3, 0.5, 1.0), (0.0, 1.0, 3.0, 10.0))
    ),
]
_VALIDATED_CMNN: list[dict[str, Any]] = [
    {"margin": "50%"},
    {"margin": "71%"},
    *({"margin": 3.0, "decay": decay} for decay in (0.0, 1.0, 3.0, 10.0)),
]


def protocol_for(split: Split) -> Protocol:
    """Return the protocol of a split."""
    return PROTOCOLS[f"shapegoogle/{split}"]


def table_methods(protocol: Protocol, n_bits: int) -> list[Method]:
    """Table 1: unhashed descriptors, networks of one and two layers, CM-SSH."""
    printed = _PAPER.get(n_bits, {})
    settings = [
        ("mmnn-l1", "MM-NN L1", (0.1, 0.3, 1, 1, 3), ()),
        ("mmnn-l2", "MM-NN L2", (0.3, 0.3, 1, 1, 3), _HIDDEN),
        ("cmnn-l1", "CM-NN L1", (0.0, 0.0, 0, 0, 3), ()),
        ("cmnn-l2", "CM-NN L2", (0.0, 0.0, 0, 0, 3), _HIDDEN),
    ]
    networks = [
        _network(key, title, *setting, hidden=hidden, paper=printed.get(key))
        for key, title, setting, hidden in settings
    ]
    return [
        Method(
            key="raw",
            title="descriptors, not hashed",
            baseline=partial(evaluate_descriptors, protocol=protocol),
            paper=RAW,
            bytes_per_item=4 * (32 + 64),
        ),
        *networks,
        Method(
            key="cmssh",
            title="CM-SSH",
            build=HASHERS["cmssh"],
            fit_args=partial(draw_shape_pairs, within=False),
            paper=_paper(printed.get("cmssh")),
        ),
    ]


def classes_only_methods(protocol: Protocol) -> list[Method]:
    """The networks of Table 1 trained on pairs of the classes only, without distractors."""
    return [
        replace(
            method,
            key=f"{method.key}-classes-only",
            title=f"{method.title}, class pairs only",
            fit_args=partial(
                draw_shape_pairs, within=method.key.startswith("mmnn"), distractors=False
            ),
            paper={},
        )
        for method in table_methods(protocol, 16)
        if "nn-" in method.key
    ]


def converged_methods(protocol: Protocol) -> list[Method]:
    """The networks of Table 1 until convergence, or for five times as many steps."""
    steps = 5 * NETWORK["steps"]
    return [
        replace(
            method,
            key=f"{method.key}-converged",
            title=f"{method.title}, up to {steps} steps",
            build=partial(method.build, steps=steps),
        )
        for method in table_methods(protocol, 16)
        if method.build is not None and "nn-" in method.key
    ]


def validated_methods() -> list[Method]:
    """Networks of two layers with margins, α and decay cross-validated on the training shapes."""
    return [
        Method(
            key=f"{name}-l2-validated",
            title=f"{title}, validated",
            build=partial(HASHERS[name], **{**NETWORK, "hidden": _HIDDEN}),
            candidates=candidates,
            fit_args=partial(draw_shape_pairs, within=name == "mmnn"),
        )
        for name, title, candidates in (
            ("mmnn", "MM-NN L2", _VALIDATED_MMNN),
            ("cmnn", "CM-NN L2", _VALIDATED_CMNN),
        )
    ]


def settings_methods(n_bits: int) -> list[Method]:
    """Table 3: one layer with each printed combination of weights and margins."""
    methods = []
    for (a, b, m, n, across), printed in _SETTINGS.items():
        title = f"MM-NN, α {a:g} {b:g}, m {m:g} {n:g} {across:g}"
        if not (a or b):
            title = f"CM-NN, m {across:g}"
        key = f"settings-{a:g}-{b:g}-{m:g}-{n:g}-{across:g}"
        methods.append(_network(key, title, a, b, m, n, across, paper=printed.get(n_bits)))
    return methods


def few_pairs_methods() -> list[Method]:
    """Table 2: MM-NN and CM-NN of one layer for each share of the cross-modal pairs."""
    methods = []
    for share, (name, title) in product(SHARES, (("mmnn", "MM-NN"), ("cmnn", "CM-NN"))):
        within = name == "mmnn"
        methods.append(
            Method(
                key=f"{name}-pairs-{share:g}",
                title=title,
                build=partial(HASHERS[name], **NETWORK),
                candidates=_FEW_PAIRS_MMNN if within else _FEW_PAIRS_CMNN,
                fit_args=partial(draw_shape_pairs, share=share, within=within),
            )
        )
    return methods


def grid_method(alpha: float, within: float, across: float) -> Method:
    """A cell of the parameter grid: the same weight and margin within both modalities."""
    key = f"grid-{alpha:g}-{within:g}-{across:g}"
    return _network(key, "", alpha, alpha, within, within, across)


def _network(
    key: str,
    title: str,
    alpha_x: float,
    alpha_y: float,
    m_x: float,
    m_y: float,
    m_xy: float,
    *,
    hidden: Sequence[int] = (),
    paper: tuple[float, float, float] | None = None,
) -> Method:
    """A network with the paper's settings: X is BoF, Y is SS-BoF; CM-NN if both α are 0."""
    fields: dict[str, Any] = {**NETWORK, "hidden": tuple(hidden), "margin": float(m_xy)}
    if within := bool(alpha_x or alpha_y):
        fields["alpha"] = {"bof": alpha_x, "ssbof": alpha_y}
        fields["margin"] = {"bof": float(m_x), "ssbof": float(m_y), "bof-ssbof": float(m_xy)}
    build = partial(HASHERS["mmnn" if within else "cmnn"], **fields)
    fit_args = partial(draw_shape_pairs, within=within)
    return Method(key=key, title=title, build=build, fit_args=fit_args, paper=_paper(paper))


def _paper(printed: tuple[float, float, float] | None) -> dict[str, float]:
    return {} if printed is None else dict(zip(_PRINTED, printed, strict=True))


def evaluate_descriptors(data: Dataset, seed: int = 0, *, protocol: Protocol) -> Evaluation:
    """Evaluate descriptors within each modality by Euclidean distance; the seed has no effect."""
    del seed
    reports = {}
    for name in data.modalities:
        query_rows = split_rows(data, protocol.queries, name)
        base_rows = split_rows(data, protocol.base, name)
        ranking = rank_vectors(
            data.views[name][query_rows],
            data.views[name][base_rows],
            dataset_relevance(data, (name, query_rows), (name, base_rows)),
            metric="euclidean",
            exclude=self_matches(query_rows, base_rows),
        )
        reports[name, name] = evaluate_ranking(ranking)
    return Evaluation(reports, protocol)


def draw_shape_pairs(
    train: Dataset, seed: int, *, share: float = 1.0, within: bool = True, distractors: bool = True
) -> Mapping[str, Any]:
    """Draw pairs of shapes evenly and return the `fit` arguments.

    Shapes of one class are similar, shapes of different classes are dissimilar, and a distractor is
    dissimilar to every shape of a class. Two distractors form no pair.

    Args:
        train: Training shapes; distractors have the label −1.
        seed: Random seed.
        share: Share of the pairs across modalities to keep.
        within: Draw pairs within each modality as well.
        distractors: Include pairs with distractors.
    """
    first, second = train.modalities
    labels = np.asarray(train.labels)
    in_class = labels >= 0
    similar = (labels[:, None] == labels) & in_class
    allowed = (in_class[:, None] | in_class) if distractors else (in_class[:, None] & in_class)
    dissimilar = (labels[:, None] != labels) & allowed
    random = np.random.default_rng(seed)
    pairs = [_draw(first, second, similar, dissimilar, share, random)]
    if within:
        upper = np.triu(np.ones_like(similar), 1)  # unordered pairs
        pairs += [
            _draw(name, name, similar & upper, dissimilar & upper, 1.0, random)
            for name in (first, second)
        ]
    return {"views": train.views, "pairs": pairs, "aligned": False}


def _draw(
    left: str,
    right: str,
    similar: NDArray[np.bool_],
    dissimilar: NDArray[np.bool_],
    share: float,
    random: np.random.Generator,
) -> Pairs:
    drawn = []
    for allowed, most in zip((similar, dissimilar), _N_PAIRS, strict=True):
        index = np.argwhere(allowed)
        chosen = random.choice(len(index), round(share * min(most, len(index))), replace=False)
        drawn.append(index[np.sort(chosen)])
    is_similar = np.repeat([True, False], [len(index) for index in drawn])
    return Pairs(left, right, np.concatenate(drawn), is_similar)

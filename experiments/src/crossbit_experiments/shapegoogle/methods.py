"""The rows of the paper's tables: its methods with its settings, and the descriptors themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset, Pairs
from crossbit.evaluation.evaluate import Evaluation, own_places, present_rows, relevance
from crossbit.evaluation.protocol import Protocol
from crossbit.hashers import HASHERS
from crossbit.metrics import evaluate_ranking, rank_vectors
from crossbit_experiments.methods import Row

DIRECTIONS = ("bof-ssbof", "ssbof-bof", "bof-bof", "ssbof-ssbof")
ACROSS = DIRECTIONS[:2]
NAMES = {"bof": "BoF", "ssbof": "SS-BoF"}
HIDDEN = (128,)
SHARES = (1.0, 0.5, 0.1)  # of the pairs across modalities
# Columns of unit rows are standardized. One affine layer can undo that, so networks and minima are the paper's, but
# conjugate gradients come near them in a tenth of the steps: some words of a bag hardly vary.
NETWORK: dict[str, Any] = {
    "inputs": "unit+standardize",
    "optimizer": "cg",
    "sums": True,
    "validation": 0.0,
    "steps": 120,
}

_PRINTED = ("bof-ssbof", "bof-bof", "ssbof-ssbof")
PAPER: dict[int, dict[str, tuple[float, float, float]]] = {
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

# (α of BoF and SS-BoF, margins of BoF, SS-BoF and across) → printed at 12 and at 16 bits
SETTINGS: dict[tuple[float, float, float, float, float], dict[int, tuple[float, float, float]]] = {
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

_WITHIN = [{"margin": {"bof-ssbof": 3.0, "default": 1.0}, "alpha": alpha} for alpha in (0.1, 0.3)]
_MARGINS: list[dict[str, Any]] = [
    {"margin": {"bof-ssbof": 3.0, "default": 1.0}, "alpha": 0.3},
    {"margin": {"bof-ssbof": 3.0, "default": 2.0}, "alpha": 0.3},
    {"margin": "50%", "alpha": 0.3},
    {"margin": "71%", "alpha": 0.3},
    *(
        {"margin": 3.0, "alpha": a, "decay": d}
        for a, d in product((0.3, 0.5, 1.0), (0.0, 1.0, 3.0, 10.0))
    ),
]
_MARGINS_ACROSS: list[dict[str, Any]] = [
    {"margin": "50%"},
    {"margin": "71%"},
    *({"margin": 3.0, "decay": decay} for decay in (0.0, 1.0, 3.0, 10.0)),
]
_ACROSS = [{"margin": margin} for margin in (3.0, 5.0)]


def table_rows(protocol: Protocol, n_bits: int) -> list[Row]:
    """Table 1: descriptors by their distance, networks of one and two layers, CM-SSH."""
    printed = PAPER.get(n_bits, {})
    raw = partial(raw_descriptors, protocol=protocol)
    wanted = [
        ("mmnn-l1", "MM-NN L1", (0.1, 0.3, 1, 1, 3), ()),
        ("mmnn-l2", "MM-NN L2", (0.3, 0.3, 1, 1, 3), HIDDEN),
        ("cmnn-l1", "CM-NN L1", (0.0, 0.0, 0, 0, 3), ()),
        ("cmnn-l2", "CM-NN L2", (0.0, 0.0, 0, 0, 3), HIDDEN),
    ]
    networks = [
        network(key, title, *setting, hidden=hidden, paper=printed.get(key))
        for key, title, setting, hidden in wanted
    ]
    return [
        Row(
            key="raw",
            title="descriptors, not hashed",
            reference=raw,
            paper=RAW,
            bytes_an_item=4 * (32 + 64),
        ),
        *networks,
        Row(
            key="cmssh",
            title="CM-SSH",
            make=HASHERS["cmssh"],
            supervise=partial(tell, within=False),
            paper=_paper(printed.get("cmssh")),
        ),
    ]


def alone_rows(protocol: Protocol) -> list[Row]:
    """The networks of Table 1, told about classes alone: nothing about distractors."""
    return [
        replace(
            row,
            key=f"{row.key}-alone",
            title=f"{row.title}, told of classes alone",
            supervise=partial(tell, within=row.key.startswith("mmnn"), distractors=False),
            paper={},
        )
        for row in table_rows(protocol, 16)
        if "nn-" in row.key
    ]


def converged_rows(protocol: Protocol) -> list[Row]:
    """The networks of Table 1 until conjugate gradients converge, or for five times as many steps."""
    return [
        replace(
            row,
            key=f"{row.key}-converged",
            title=f"{row.title}, up to {5 * NETWORK['steps']} steps",
            make=partial(row.make, steps=5 * NETWORK["steps"]),
        )
        for row in table_rows(protocol, 16)
        if row.make is not None and "nn-" in row.key
    ]


def validated_rows() -> list[Row]:
    """Networks of two layers whose margins, weights and decay are chosen by cross-validation on the training shapes."""
    found = []
    for method, title, candidates in (
        ("mmnn", "MM-NN L2", _MARGINS),
        ("cmnn", "CM-NN L2", _MARGINS_ACROSS),
    ):
        make = partial(HASHERS[method], **{**NETWORK, "hidden": HIDDEN})
        told = partial(tell, within=method == "mmnn")
        key, title = f"{method}-l2-validated", f"{title}, validated"
        found.append(Row(key=key, title=title, make=make, candidates=candidates, supervise=told))
    return found


def settings_rows(n_bits: int) -> list[Row]:
    """Table 3: one layer, with each printed combination of weights and margins."""
    rows = []
    for (a, b, m, n, across), printed in SETTINGS.items():
        cross = not (a or b)
        title = (
            f"CM-NN, m {across:g}" if cross else f"MM-NN, α {a:g} {b:g}, m {m:g} {n:g} {across:g}"
        )
        key = f"settings-{a:g}-{b:g}-{m:g}-{n:g}-{across:g}"
        rows.append(network(key, title, a, b, m, n, across, paper=printed.get(n_bits)))
    return rows


def scarce_rows() -> list[Row]:
    """Table 2: MM-NN and CM-NN of one layer for each share of the pairs across, settings by cross-validation."""
    rows = []
    for share, (method, title) in product(SHARES, (("mmnn", "MM-NN"), ("cmnn", "CM-NN"))):
        within = method == "mmnn"
        told = partial(tell, share=share, within=within)
        make = partial(HASHERS[method], **NETWORK)
        candidates = _WITHIN if within else _ACROSS
        rows.append(
            Row(
                key=f"{method}-pairs-{share:g}",
                title=title,
                make=make,
                candidates=candidates,
                supervise=told,
            )
        )
    return rows


def grid_row(alpha: float, within: float, across: float) -> Row:
    """A cell of the parameter grid: the same weight and margin within both modalities."""
    return network(
        f"grid-{alpha:g}-{within:g}-{across:g}", "", alpha, alpha, within, within, across
    )


def network(
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
) -> Row:
    """A network with the paper's settings: X is BoF, Y is SS-BoF; without weights within it is CM-NN."""
    fields: dict[str, Any] = {**NETWORK, "hidden": tuple(hidden), "margin": float(m_xy)}
    if within := bool(alpha_x or alpha_y):
        fields["alpha"] = {"bof": alpha_x, "ssbof": alpha_y}
        fields["margin"] = {"bof": float(m_x), "ssbof": float(m_y), "bof-ssbof": float(m_xy)}
    make = partial(HASHERS["mmnn" if within else "cmnn"], **fields)
    told = partial(tell, within=within)
    return Row(key=key, title=title, make=make, supervise=told, paper=_paper(paper))


def raw_descriptors(data: Dataset, seed: int = 0, *, protocol: Protocol) -> Evaluation:
    """Descriptors by Euclidean distance, within each modality; every seed gives the same."""
    del seed
    reports = {}
    for name in data.modalities:
        asked, searched = (
            present_rows(data, part, name) for part in (protocol.queries, protocol.base)
        )
        ranking = rank_vectors(
            data.views[name][asked],
            data.views[name][searched],
            relevance(data, (name, asked), (name, searched)),
            metric="euclidean",
            exclude=own_places(asked, searched),
        )
        reports[name, name] = evaluate_ranking(ranking)
    return Evaluation(reports, protocol)


def _paper(printed: tuple[float, float, float] | None) -> dict[str, float]:
    return {} if printed is None else dict(zip(_PRINTED, printed, strict=True))


N_PAIRS = (10_000, 50_000)  # similar and dissimilar, of each loss, as far as there are so many


def tell(
    train: Dataset, seed: int, *, share: float = 1.0, within: bool = True, distractors: bool = True
) -> Mapping[str, Any]:
    """Pairs drawn evenly from all there are: similar are shapes of one class, dissimilar those of different ones.

    A distractor is dissimilar to every shape of a class; nothing is said about two distractors.

    Args:
        train: Shapes to learn from; distractors have the label −1.
        seed: Of the draw.
        share: Of the pairs across modalities, so many are told.
        within: Whether pairs within the modalities are told, all of them.
        distractors: Whether pairs with distractors are among them.
    """
    (a, b), labels = train.modalities, np.asarray(train.labels)
    known = labels >= 0
    alike = (labels[:, None] == labels) & known
    unlike = (labels[:, None] != labels) & (
        (known[:, None] | known) if distractors else (known[:, None] & known)
    )
    random = np.random.default_rng(seed)
    pairs = [_draw(a, b, alike, unlike, share, random)]
    if within:
        upper = np.triu(np.ones_like(alike), 1)  # an unordered pair once
        pairs += [_draw(name, name, alike & upper, unlike & upper, 1.0, random) for name in (a, b)]
    return {"views": train.views, "pairs": pairs, "rows": False}


def _draw(
    left: str,
    right: str,
    alike: NDArray[np.bool_],
    unlike: NDArray[np.bool_],
    share: float,
    random: np.random.Generator,
) -> Pairs:
    drawn = []
    for cells, most in zip((alike, unlike), N_PAIRS, strict=True):
        index = np.argwhere(cells)
        chosen = random.choice(len(index), round(share * min(most, len(index))), replace=False)
        drawn.append(index[np.sort(chosen)])
    similar = np.repeat([True, False], [len(index) for index in drawn])
    return Pairs(left, right, np.concatenate(drawn), similar)

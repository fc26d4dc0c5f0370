"""Defaults without labels: `python benchmarks/counterparts.py [set …] [--seeds 5] [--first 0]`.

The supervision is aligned rows only. Compares `AutoHash` and `CCAITQ` at 32 bits: mean
average precision of finding a row's counterpart in the other view, both directions, held-out rows.
Then, at 128 bits, the share of counterparts among the first 10, compared with unhashed canonical
correlations (cosine; the regularization is chosen on the test rows, so it is an upper bound).
Prints JSON lines.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit import CCAITQ, AutoHash, HashModel, hamming
from crossbit.linalg.cca import CCA
from crossbit.metrics import mean_average_precision, same_class

Matrix = NDArray[np.floating]
Views = dict[str, Matrix]
N_TEST = 800


def factors(
    n: int, count: int, widths: tuple[int, int], noise: float, fall: float = 0.0
) -> Callable[[int], Views]:
    """Return a generator of two noisy views of common factors of strength 1 / rank ** fall."""

    def make(seed: int) -> Views:
        random = np.random.default_rng([seed, n, count])
        latent = random.normal(size=(n + N_TEST, count)) / np.arange(1, count + 1) ** fall
        return {
            name: latent @ random.normal(size=(count, width))
            + noise * random.normal(size=(n + N_TEST, width))
            for name, width in zip(("first", "second"), widths, strict=True)
        }

    return make


def digits(seed: int) -> Views:
    """Return left and right halves of UCI digits, 997 of them for training."""
    from sklearn.datasets import load_digits

    images = load_digits().images[np.random.default_rng(seed).permutation(1797)]
    return {"first": images[:, :, :4].reshape(-1, 32), "second": images[:, :, 4:].reshape(-1, 32)}


SETS: dict[str, Callable[[int], Views]] = {
    "12 factors, 2000 rows of 100 and 60": factors(2000, 12, (100, 60), 3.0),
    "40 falling factors, 2000 rows of 200 and 120": factors(2000, 40, (200, 120), 1.5, fall=0.5),
    "15 factors, 300 rows of 500 and 300": factors(300, 15, (500, 300), 2.5),
    "halves of digits, 997": digits,
}


def parts(views: Views) -> tuple[Views, Views]:
    train = {name: X[:-N_TEST] for name, X in views.items()}
    test = {name: X[-N_TEST:] for name, X in views.items()}
    return train, test


def average_precision(model: HashModel, new: Views) -> float:
    a, b = (model.encode(name, X) for name, X in new.items())
    relevant = same_class(np.arange(len(a)), np.arange(len(b)))
    return 50 * (mean_average_precision(a, b, relevant) + mean_average_precision(b, a, relevant))


def recall(nearness: Matrix, k: int = 10) -> float:
    """Return the share of rows whose counterpart (diagonal) is among the k nearest.

    Expectation over ties, mean of both directions.
    """
    own = np.diag(nearness)
    shares = []
    for S in (nearness, nearness.T):
        before = (own[:, None] < S).sum(axis=1)
        tied = (own[:, None] == S).sum(axis=1)
        shares.append(np.clip((k - before) / tied, 0, 1).mean())
    return 100 * float(np.mean(shares))


def recall_of_codes(model: HashModel, new: Views) -> float:
    a, b = (model.encode(name, X) for name, X in new.items())
    return recall(-hamming(a, b).astype(np.float64))


def recall_unhashed(train: Views, new: Views) -> float:
    cca = CCA(train, standardize=True)
    recalls = []
    for regularization in (0.01, 0.1, 1.0, 10.0):
        W = cca.directions(128, regularization)
        Z = [(X - cca.mean[name]) @ W[name] for name, X in new.items()]
        Z = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in Z]
        recalls.append(recall(Z[0] @ Z[1].T))
    return max(recalls)


def measure(name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Return one line of the table."""
    figures: dict[str, list[float]] = {}
    for seed in seeds:
        train, new = parts(SETS[name](seed))
        start = time.process_time()
        ours = AutoHash(n_bits=32, seed=seed).fit(train)
        took = time.process_time() - start
        row = {
            "auto": average_precision(ours, new),
            "ccaitq": average_precision(CCAITQ(n_bits=32, seed=seed).fit(train), new),
            "cpu_seconds": took,
            "recall_auto_128": recall_of_codes(AutoHash(n_bits=128, seed=seed).fit(train), new),
            "recall_ccaitq_128": recall_of_codes(CCAITQ(n_bits=128, seed=seed).fit(train), new),
            "recall_unhashed": recall_unhashed(train, new),
        }
        for key, value in row.items():
            figures.setdefault(key, []).append(value)
    rounded = {
        key: [round(float(np.mean(v)), 1), round(float(np.std(v)), 1)] for key, v in figures.items()
    }
    return {"set": name} | rounded


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", help=f"of {list(SETS)}")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    for set_name in options.sets or SETS:
        print(json.dumps(measure(set_name, seeds)), flush=True)

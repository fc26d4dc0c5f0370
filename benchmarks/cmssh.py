"""Training time of CM-SSH at the size of NUS-WIDE.

500-D images, 1000-D tags, 10⁵ rows each, 10⁶ pairs, 64 bits. The limit is five minutes on two
cores. The features are synthetic, with ten classes; apart from the number of threshold sweeps, the
time does not depend on their content. ``python benchmarks/cmssh.py 8`` learns 8 bits instead of 64.
"""

import json
import sys
import time

import numpy as np

from crossbit import CMSSH, hamming
from crossbit._progress import Step
from crossbit.evaluation.results import environment

ROWS = 100_000
WIDTHS = {"image": 500, "text": 1000}
PAIRS = 1_000_000
CLASSES = 10
BITS = 64
LIMIT = 300  # seconds


def synthetic_views() -> tuple[dict[str, np.ndarray], np.ndarray]:
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, ROWS)
    views = {}
    for name, width in WIDTHS.items():
        centers = random.standard_normal((CLASSES, width), dtype=np.float32)
        views[name] = 0.3 * centers[labels] + random.standard_normal(
            (ROWS, width), dtype=np.float32
        )
    return views, labels


def measure(n_bits: int) -> dict[str, object]:
    views, labels = synthetic_views()
    steps: list[Step] = []
    hasher = CMSSH(n_bits=n_bits, n_similar=PAIRS // 2, n_dissimilar=PAIRS // 2)
    wall_start = time.perf_counter()
    cpu_start = time.process_time()
    model = hasher.fit(views, labels=labels, on_step=steps.append)
    wall = time.perf_counter() - wall_start
    cpu = time.process_time() - cpu_start
    sample = slice(0, 1000)
    distances = hamming(
        model.encode("image", views["image"][sample]), model.encode("text", views["text"][sample])
    )
    same = labels[sample, None] == labels[sample]
    return {
        "benchmark": "cmssh",
        "rows": ROWS,
        "widths": WIDTHS,
        "pairs": PAIRS,
        "bits": n_bits,
        "seconds": round(wall, 1),
        "CPU seconds": round(cpu, 1),
        "seconds per bit": round(wall / n_bits, 2),
        "limit": LIMIT * n_bits / BITS,
        "distance, same class": round(float(distances[same].mean()), 2),
        "distance, other classes": round(float(distances[~same].mean()), 2),
    }


if __name__ == "__main__":
    print(
        json.dumps(
            measure(int(sys.argv[1]) if len(sys.argv) > 1 else BITS) | environment(),
            ensure_ascii=False,
        )
    )

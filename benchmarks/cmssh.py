"""How long CM-SSH takes at the size of NUS-WIDE: 500-D pictures, 1000-D tags, 10⁵ rows each, 10⁶ pairs, 64 bits.

The limit is five minutes on two cores. The features are made up, of ten classes: but for the number of sweeps of the
thresholds, the time does not depend on what they mean. ``python benchmarks/cmssh.py 8`` learns 8 bits instead of 64.
"""

import json
import sys
import time

import numpy as np

from crossbit import CMSSH, hamming
from crossbit._progress import Step
from crossbit.evaluation.results import environment

ROWS, WIDTHS, PAIRS, CLASSES, BITS, LIMIT = (
    100_000,
    {"image": 500, "text": 1000},
    1_000_000,
    10,
    64,
    300,
)


def made_up() -> tuple[dict[str, np.ndarray], np.ndarray]:
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
    views, labels = made_up()
    steps: list[Step] = []
    hasher = CMSSH(n_bits=n_bits, n_similar=PAIRS // 2, n_dissimilar=PAIRS // 2)
    wall, cpu = time.perf_counter(), time.process_time()
    model = hasher.fit(views, labels=labels, on_step=steps.append)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    some = slice(0, 1000)
    near = hamming(
        model.encode("image", views["image"][some]), model.encode("text", views["text"][some])
    )
    same = labels[some, None] == labels[some]
    return {
        "benchmark": "cmssh",
        "rows": ROWS,
        "widths": WIDTHS,
        "pairs": PAIRS,
        "bits": n_bits,
        "seconds": round(wall, 1),
        "CPU seconds": round(cpu, 1),
        "seconds a bit": round(wall / n_bits, 2),
        "limit": LIMIT * n_bits / BITS,
        "distance, same class": round(float(near[same].mean()), 2),
        "distance, other classes": round(float(near[~same].mean()), 2),
    }


if __name__ == "__main__":
    print(
        json.dumps(
            measure(int(sys.argv[1]) if len(sys.argv) > 1 else BITS) | environment(),
            ensure_ascii=False,
        )
    )

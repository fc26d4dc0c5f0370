"""CPU time of `crossbit learn` on Flickr8k, stage by stage, with all features in the cache.

python benchmarks/learn.py FLICKR8K [CACHE]

The first run extracts and caches the features of 8,091 pictures and 40,460 captions, about ten
minutes of CPU time. Later runs show how soon the training starts, and what it takes.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _host import host  # type: ignore[import-not-found]
from crossbit.learn import cache_folder, learn_table

BEFORE_TRAINING = ("preparing", "extracting")


def main() -> None:
    """Print one JSON line per stage, then the sums."""
    folder = Path(sys.argv[1])
    cache = Path(sys.argv[2]) if len(sys.argv) > 2 else cache_folder()
    seconds: dict[str, float] = {}

    @contextmanager
    def measured(title: str) -> Iterator[None]:
        start = time.process_time()
        wall = time.monotonic()
        yield
        stage = title.partition(" ")[2]
        seconds[stage] = time.process_time() - start
        row = {"stage": stage, "cpu seconds": round(seconds[stage], 1)}
        print(json.dumps(row | {"wall": round(time.monotonic() - wall, 1)}), flush=True)

    with tempfile.TemporaryDirectory() as out:
        learn_table(
            folder / "images",
            Path(out) / "gallery",
            captions=folder / "Flickr8k.token.txt",
            cache=cache,
            progress=measured,
        )
    before = sum(value for stage, value in seconds.items() if stage.startswith(BEFORE_TRAINING))
    facts = {
        "cpu seconds until training": round(before, 1),
        "cpu seconds beyond extraction": round(sum(seconds.values()) - before, 1),
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        **host(),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()

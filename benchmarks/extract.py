"""Speed and memory of feature extraction: pictures and captions of Flickr8k, and an all-cached run.

python benchmarks/extract.py FLICKR8K [CACHE]

Prints one JSON line per figure. Rates are inputs per second of CPU time of one process; two
processes on two free cores extract twice as many per second. Wall-clock rates of two processes
depend on what else the machine does: the load is printed beside them. "alone" runs the network on
one caption at a time, as version 0.2 did. Memory is the peak of a process that extracts this
many pictures.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from _host import host  # type: ignore[import-not-found]
from crossbit.data.tables import read_captions
from crossbit.features import Extractor, SentenceNetwork, extract
from crossbit.learn.extractors import cache_folder, make_extractor

CAPTIONS = 1024
PICTURES = 200
MEMORY = (200, 800)  # pictures


def main() -> None:
    """Measure captions, pictures, the cache and memory."""
    folder = Path(sys.argv[1])
    cache = Path(sys.argv[2]) if len(sys.argv) > 2 else cache_folder()
    described = read_captions(folder / "Flickr8k.token.txt")
    captions = [caption for item in described for caption in item.captions]
    chosen = np.random.default_rng(0).permutation(len(captions))[:CAPTIONS]
    texts = [captions[i] for i in chosen]
    sentences = make_extractor("text", "minilm", texts, cache=cache)
    if not isinstance(sentences, SentenceNetwork):
        raise TypeError(f"expected a SentenceNetwork, got {type(sentences).__name__}")
    sentences.extract(texts[:2])  # loads the network, unmeasured
    start = time.process_time()
    for text in texts[:256]:
        sentences._run(np.array([sentences._tokenizer.encode(text).ids]))
    report("captions, MiniLM, alone", 256 / (time.process_time() - start))
    report("captions, MiniLM, of equal length together", rate(sentences, texts))
    report("captions, MiniLM, 2 processes, wall clock", rate(sentences, texts, workers=2))
    paths = sorted((folder / "images").glob("*.jpg"))
    pictures = paths[:PICTURES]
    network = make_extractor("image", "efficientnet", pictures, cache=cache)
    network.extract(pictures[:2])
    report("pictures, EfficientNet-Lite0", rate(network, pictures))
    report("pictures, EfficientNet-Lite0, 2 processes, wall clock", rate(network, pictures, 2))
    with tempfile.TemporaryDirectory() as rows:
        extract(network, pictures, cache=rows)
        report("pictures, all in the cache", rate(network, pictures, cache=rows))
    for n in MEMORY:
        with get_context("spawn").Pool(1) as pool:
            peak = pool.apply(peak_memory, (cache, paths[:n]))
        report(f"peak memory, {n} pictures", peak, "MB")


def rate(
    extractor: Extractor, inputs: Sequence[Any], workers: int = 1, cache: str | None = None
) -> float:
    """Inputs per second: of CPU time in this process, or of wall clock in several."""
    clock = time.process_time if workers == 1 else time.monotonic
    start = clock()
    extract(extractor, inputs, workers=workers, cache=cache)
    return len(inputs) / (clock() - start)


def peak_memory(cache: Path, pictures: list[Path]) -> float:
    """Megabytes."""
    extract(make_extractor("image", "efficientnet", pictures, cache=cache), pictures)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(what: str, value: float, unit: str = "per second") -> None:
    """Print a line with the figure and the machine."""
    facts = {"what": what, "value": round(value), "unit": unit, **host()}
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()

"""Speed of HammingIndex compared with faiss, usearch and NumPy in the same run.

    python benchmarks/search.py                      everything, on 10⁷ codes: half an hour, 6 GB
    python benchmarks/search.py --quick              the same on 2·10⁵ codes
    python benchmarks/search.py --only batch one     selected sections
    python benchmarks/search.py --n 100000000 --only growth
    python benchmarks/search.py --n 100000000 --only large   built, searched, saved, opened: 8 GB
    python benchmarks/search.py --plot search.png    a figure of the measurements
    python benchmarks/search.py --codes FILE         codes of a result file, or of `Codes.save`

One JSON line per measurement. Times are CPU seconds of one thread (wall time with two threads), the
best of several alternating runs; ``ratio`` is the time of faiss divided by ours. Distances are
recomputed from the returned ids, and exact contestants must match faiss's flat index.

Random codes are uniform; clustered codes have 1000 centers, each bit flipped with probability 0.1;
learned codes come from a model (see `learned_codes`). Queries are drawn like codes.
"""

# ruff: noqa: B023 - every closure is called within its iteration

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from usearch.index import Index as Usearch
from usearch.index import search as usearch_exact

import flickr8k  # type: ignore[import-not-found]
from _host import host  # type: ignore[import-not-found]
from crossbit import CMSSH, RankedCCA, kernels
from crossbit._io.files import ArrayFile
from crossbit.codes import Codes, Matches, hamming
from crossbit.errors import FormatError
from crossbit.evaluation.results import CODES_FORMAT
from crossbit.index import Budget, HammingIndex, bit_weights
from crossbit.index.budget import found_share
from crossbit.learn import cache_folder

Row = dict[str, Any]
K = 10
QUERIES = 1000
LARGE = "large"
FLIPS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)


def random_codes(n: int, n_bits: int, seed: int = 1) -> Codes:
    return Codes(
        np.random.default_rng(seed).integers(0, 2**64, (n, n_bits // 64), dtype=np.uint64), n_bits
    )


def clustered_codes(
    n: int, n_bits: int, seed: int = 1, flips: float = 0.1, centers: int = 1000
) -> Codes:
    rng = np.random.default_rng(seed)
    words = random_codes(centers, n_bits, seed).words[rng.integers(0, centers, n)]
    for bit in range(n_bits):
        flipped = (rng.random(n, np.float32) < flips).astype(np.uint64)
        words[:, bit // 64] ^= flipped << np.uint64(bit % 64)
    return Codes(words, n_bits)


def learned_codes(n: int, n_bits: int, seed: int = 1) -> Codes:
    """Return codes of Wiki images from a model fitted to them; new rows mix two real ones."""
    folder = os.environ.get("CROSSBIT_DATA")
    if folder is None:
        raise SystemExit(
            "learned codes need the Wiki data set: set CROSSBIT_DATA to the folder that holds wiki/"
        )
    features = loadmat(Path(folder) / "wiki" / "raw_features.mat")
    model = CMSSH(n_bits=n_bits).fit(
        {"image": features["I_tr"], "text": features["T_tr"]}, labels=wiki_labels(folder)
    )
    rng = np.random.default_rng(seed)
    parts = []
    for start in range(0, n, 100_000):
        size = min(100_000, n - start)
        share = rng.uniform(0, 1, (size, 1))
        pairs = features["I_tr"][rng.integers(0, len(features["I_tr"]), (2, size))]
        parts.append(model.encode("image", share * pairs[0] + (1 - share) * pairs[1]).words)
    return Codes(np.concatenate(parts), n_bits)


def wiki_labels(folder: str) -> NDArray[np.int64]:
    lines = (Path(folder) / "wiki" / "trainset_txt_img_cat.list").read_text().splitlines()
    return np.array([int(line.split("\t")[2]) for line in lines])


def cross_modal_codes(
    n: int, n_bits: int, seed: int = 1, queries: int = QUERIES
) -> tuple[Codes, Codes]:
    """Return codes of captions as queries and n codes of images, from one model on Flickr8k.

    RankedCCA learns from the training images and captions. Queries are captions of the thousand
    development images, then of the thousand test images. A new image mixes the scores of two real
    ones, up to a fifth of the second, and adds noise of a quarter of each score's standard
    deviation.
    """
    folder = Path(os.environ["CROSSBIT_DATA"]) / "flickr8k"
    parts = flickr8k.load(folder, cache_folder())
    train = parts["train"]
    model = RankedCCA(n_bits=n_bits, inputs="standardize").fit(train.views(), pairs=[train.pairs()])
    texts = np.concatenate([parts["dev"].text[::5], parts["test"].text[::5]])
    images = np.concatenate([parts[part].image for part in ("train", "dev", "test")])
    scores = model.scores("image", images)
    noise = scores.std(axis=0) / 4
    rng = np.random.default_rng(seed)
    made = []
    for start in range(0, n, 200_000):
        size = min(200_000, n - start)
        first, second = scores[rng.integers(0, len(scores), (2, size))]
        mixed = first + rng.uniform(0, 0.2, (size, 1)).astype(np.float32) * (second - first)
        mixed += noise * rng.standard_normal((size, n_bits), np.float32)
        made.append(Codes.pack(mixed >= 0).words)
    return model.encode("text", texts[:queries]), Codes(np.concatenate(made), n_bits)


KINDS = {"random": random_codes, "clustered": clustered_codes, "learned": learned_codes}
SYNTHETIC = ("random", "clustered")


class Contest:
    """Base codes and queries with the two contestants of every comparison."""

    def __init__(
        self, kind: str, n: int, n_bits: int, codes: tuple[Codes, Codes] | None = None
    ) -> None:
        self.kind = kind
        self.n = n
        self.n_bits = n_bits
        if codes is None:
            generated = KINDS[kind](n + QUERIES, n_bits)
            codes = generated[:QUERIES], generated[QUERIES:]
        self.queries, self.base = codes
        self.index = HammingIndex(n_bits)
        self.index.add(np.arange(n), self.base)
        self.flat = faiss.IndexBinaryFlat(-(-n_bits // 8) * 8)
        self.flat.add(self.base.to_bytes())
        self.bytes = self.queries.to_bytes()

    def line(self, what: str, **values: object) -> Row:
        """Return one measurement with its sizes."""
        return {"what": what, "codes": self.kind, "n": self.n, "bits": self.n_bits, "k": K} | values

    def check(self, ids: NDArray[np.int64], exact: bool = True) -> float:
        """Recompute distances and return the recall; exact results must equal those of faiss."""
        checked = min(len(ids), 50)
        expected = self.flat.search(self.bytes[:checked], ids.shape[1])[0]
        distances = np.array(
            [hamming(self.queries[i], self.base[ids[i]])[0] for i in range(checked)], np.int32
        )
        recall = float((np.sort(distances, axis=1) <= expected[:, -1:]).mean())
        if exact and not np.array_equal(distances, expected):
            raise SystemExit(f"{self.kind}, {self.n_bits} bits: distances differ from faiss's")
        return round(recall, 4)


def cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def wall(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def best(
    works: dict[str, Callable[[], object]], repeats: int, clock: Callable[..., float] = cpu
) -> dict[str, float]:
    """Return the shortest time of each; runs alternate."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(clock(work))
    return {name: min(took) for name, took in times.items()}


def rounded(times: dict[str, float], unit: float = 1.0, digits: int = 4) -> Row:
    return {f"{name}_seconds": round(took / unit, digits + 4) for name, took in times.items()}


def batch(n: int) -> Iterator[Row]:
    """Measure 1000 queries at once with bit slices, at each level."""
    for n_bits in (64, 128, 256):
        contest = Contest("random", n, n_bits)
        for level in kernels.levels()[:-1] if n_bits == 64 else kernels.levels()[:1]:
            with kernels.forced(level):
                works: dict[str, Callable[[], object]] = {
                    "ours": lambda: contest.index.search(
                        contest.queries, K, threads=1, method="bitslice"
                    ),
                    "faiss": lambda: contest.flat.search(contest.bytes, K),
                }
                took = best(works, 2)
                contest.check(contest.index.search(contest.queries[:50], K, method="bitslice").ids)
            yield contest.line(
                "batch", level=level, ratio=round(took["faiss"] / took["ours"], 1), **rounded(took)
            )
        yield from small_batches(contest)


def small_batches(contest: Contest) -> Iterator[Row]:
    """Measure small batches with blocks and bit slices, to find where they cross."""
    for queries in (2, 8, 16, 24, 32, 64):
        codes = contest.queries[:queries]
        works: dict[str, Callable[[], object]] = {
            method: lambda method=method: contest.index.search(codes, K, threads=1, method=method)  # type: ignore[misc]
            for method in ("block", "bitslice")
        }
        works["faiss"] = lambda: contest.flat.search(contest.bytes[:queries], K)
        took = best(works, 5)
        fastest = min(took["block"], took["bitslice"])
        yield contest.line(
            "few", queries=queries, ratio=round(took["faiss"] / fastest, 1), **rounded(took)
        )


def bandwidth(nbytes: int) -> float:
    """Return the bytes per second that one thread can read: memchr for a byte that is absent."""
    memory = np.ones(nbytes, np.uint8)
    memchr = ctypes.CDLL(None).memchr
    memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    memchr.restype = ctypes.c_void_p
    return nbytes / min(cpu(lambda: memchr(memory.ctypes.data, 2, nbytes)) for _ in range(9))


def single_query(n: int) -> Iterator[Row]:
    """Measure one query by scanning, on one thread and on two."""
    contest = Contest("random", n, 64)
    took = {"ours": 9.0, "faiss": 9.0}
    two_threads = {"ours": 9.0, "faiss": 9.0}
    read = 0.0
    for i in range(20):
        query = contest.queries[i]
        for threads, clock, times in ((1, cpu, took), (2, wall, two_threads)):
            works: dict[str, Callable[[], object]] = {
                "ours": lambda: contest.index.search(query, K, threads=threads, method="scan"),
                "faiss": lambda: contest.flat.search(contest.bytes[i : i + 1], K),
            }
            for name, seconds in best(works, 1, clock).items():
                times[name] = min(times[name], seconds)
        read = max(read, bandwidth(8 * n)) if i % 5 == 0 else read
    contest.check(contest.index.search(contest.queries[:50], K, method="scan").ids)
    share = 8 * n / took["ours"] / read
    ratio = round(took["faiss"] / took["ours"], 2)
    yield contest.line(
        "one",
        threads=1,
        ratio=ratio,
        bandwidth_share=round(share, 3),
        GB_s=round(read / 1e9, 1),
        **rounded(took),
    )
    yield contest.line(
        "one",
        threads=2,
        ratio=round(two_threads["faiss"] / two_threads["ours"], 2),
        **rounded(two_threads),
    )


def sublinear(n: int) -> Iterator[Row]:
    """Measure one query with the multi-index; each query runs once, with cold caches."""
    for kind in KINDS if os.environ.get("CROSSBIT_DATA") else SYNTHETIC:
        contest = Contest(kind, n, 64)
        optimize = cpu(contest.index.optimize)
        contest.check(contest.index.search(contest.queries[:50], K).ids)
        sweep = np.zeros(40_000_000, np.uint64)
        groups = []
        for first in range(50, 450, 50):
            sweep += 1  # 320 MB through the caches
            queries = [contest.queries[i] for i in range(first, first + 50)]
            groups.append(
                cpu(lambda: [contest.index.search(query, K, threads=1) for query in queries]) / 50
            )
        flat = min(cpu(lambda: contest.flat.search(contest.bytes[i : i + 1], K)) for i in range(8))
        ours = min(groups)
        yield contest.line(
            "sublinear",
            ratio=round(flat / ours, 1),
            ours_seconds=round(ours, 7),
            faiss_seconds=round(flat, 5),
            median_seconds=round(float(np.median(groups)), 7),
            optimize_seconds=round(optimize, 2),
            bytes_per_code=round(contest.index.nbytes / n, 1),
            **worst(contest),
        )


def wide(n: int) -> Iterator[Row]:
    """Measure one query of 128 and 256 bits with lists around centers; caches are cold."""
    for n_bits in (128, 256):
        for flips in (0.1, 0.2):
            codes = clustered_codes(n + QUERIES, n_bits, flips=flips)
            contest = Contest("clustered", n, n_bits, (codes[:QUERIES], codes[QUERIES:]))
            yield wide_line(contest, flips=flips)
    if os.environ.get("CROSSBIT_DATA"):
        contest = Contest("learned", n, 128, cross_modal_codes(n, 128))
        yield wide_line(contest)
        yield from far_lines(contest)
    yield wide_line(Contest("random", n, 128))


def wide_line(contest: Contest, **values: object) -> Row:
    optimize = wall(contest.index.optimize)
    contest.check(contest.index.search(contest.queries[:50], K).ids)
    sweep = np.zeros(40_000_000, np.uint64)
    groups = []
    count = 20
    for first in range(50, 50 + 8 * count, count):
        sweep += 1  # 320 MB through the caches
        queries = [contest.queries[i] for i in range(first, first + count)]
        groups.append(
            cpu(lambda: [contest.index.search(query, K, threads=1) for query in queries]) / count
        )
    flat = min(cpu(lambda: contest.flat.search(contest.bytes[i : i + 1], K)) for i in range(8))
    scans = [
        cpu(lambda: contest.index.search(contest.queries[i], K, threads=1, method="scan"))
        for i in range(20)
    ]
    ours = min(groups)
    return contest.line(
        "wide",
        **values,
        ratio=round(flat / ours, 1),
        over_scan=round(min(scans) / ours, 2),
        ours_seconds=round(ours, 7),
        scan_seconds=round(min(scans), 6),
        faiss_seconds=round(flat, 5),
        median_seconds=round(float(np.median(groups)), 7),
        optimize_seconds=round(optimize, 2),
        bytes_per_code=round(contest.index.nbytes / contest.n, 1),
        load=os.getloadavg()[0],
        **worst(contest),
    )


def far_lines(contest: Contest) -> Iterator[Row]:
    """Measure single queries relative to a scan: captions with flipped bits, and images."""
    rng = np.random.default_rng(5)
    bits = contest.queries[:12].unpack()
    asked = {f"captions, flips {p}": Codes.pack(bits ^ (rng.random(bits.shape) < p)) for p in FLIPS}
    asked["images"] = contest.base[:12]
    for name, queries in asked.items():
        for k in (K, 1000):
            ratios = []
            for i in range(len(queries)):
                works: dict[str, Callable[[], object]] = {
                    "auto": lambda: contest.index.search(queries[i], k, threads=1),
                    "scan": lambda: contest.index.search(queries[i], k, threads=1, method="scan"),
                }
                took = best(works, 5)
                ratios.append(took["auto"] / took["scan"])
            yield contest.line("far", queries=name, load=os.getloadavg()[0]) | {
                "k": k,
                "worst_over_scan": round(max(ratios), 2),
                "median_over_scan": round(float(np.median(ratios)), 2),
            }


def certified(n: int) -> Iterator[Row]:
    """Measure searches with a budget on learned codes, calibrated on other captions."""
    if not os.environ.get("CROSSBIT_DATA"):
        return
    contest = Contest("learned", n, 128, cross_modal_codes(n, 128, queries=2 * QUERIES))
    contest.index.optimize()
    calibrate = cpu(lambda: contest.index.calibrate(contest.queries[:QUERIES], K))
    queries = contest.queries[QUERIES:]
    exact = contest.index.search(queries, K)
    scan = min(
        cpu(lambda: contest.index.search(queries[i], K, threads=1, method="scan"))
        for i in range(20)
    )
    budgets = [Budget(recall=recall) for recall in (0.8, 0.9, 0.95, 0.99)]
    for budget in (*budgets, Budget(share=0.001), Budget(share=0.01), Budget(seconds=0.0002)):
        matches = contest.index.search(queries, K, budget=budget, threads=1)
        certificate = matches.certificate
        if certificate is None:
            raise SystemExit("a search with a budget has no certificate")
        found = found_share(matches, exact)
        near = np.abs(certificate.estimated_recall - 0.95) < 0.02
        took = cpu(
            lambda: [
                contest.index.search(queries[i], K, threads=1, budget=budget) for i in range(200)
            ]
        )
        yield contest.line(
            "certified",
            budget={name: value for name, value in vars(budget).items() if value is not None},
            recall=round(float(found.mean()), 4),
            estimated=round(float(certificate.estimated_recall.mean()), 4),
            exact=round(float(certificate.exact.mean()), 4),
            recall_of_those_estimated_near_95=round(float(found[near].mean()), 4)
            if near.any()
            else None,
            queries_estimated_near_95=int(near.sum()),
            over_scan=round(200 * scan / took, 1),
            seconds=round(took / 200, 7),
            scan_seconds=round(scan, 6),
            calibrate_seconds=round(calibrate, 1),
            load=os.getloadavg()[0],
        )


def weighted(n: int) -> Iterator[Row]:
    """Measure a weighted scan relative to a scan: one query, weights from normal scores."""
    for n_bits in (64, 128, 192, 256):
        for kind in SYNTHETIC:
            contest = Contest(kind, n, n_bits)
            scores = np.random.default_rng(0).standard_normal((5, n_bits))
            weights = bit_weights(scores)
            for k in (K, 1000):
                ratios = []
                for i in range(5):
                    query = contest.queries[i]
                    works: dict[str, Callable[[], object]] = {
                        "weighted": lambda: contest.index.search(
                            query, k, threads=1, weights=weights[i : i + 1]
                        ),
                        "scan": lambda: contest.index.search(query, k, threads=1, method="scan"),
                    }
                    took = best(works, 3)
                    ratios.append(took["weighted"] / took["scan"])
                yield contest.line("weighted", over_scan=round(float(np.median(ratios)), 2)) | {
                    "k": k,
                    "worst_over_scan": round(max(ratios), 2),
                    **rounded(took),
                    "load": os.getloadavg()[0],
                }


def filters(n: int) -> Iterator[Row]:
    """Measure searches among a share of the ids beside the two plans that a caller could write.

    The scan copies the codes of the allowed rows and scans them; the check searches all codes for
    more and more of the nearest until k of them are allowed. Allowed ids are booleans.
    """
    for kind in SYNTHETIC:
        for n_bits in (64, 128):
            contest = Contest(kind, n, n_bits)
            contest.index.optimize()
            for share in (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 1.0):
                mask = np.random.default_rng(0).random(n) < share
                rows = np.flatnonzero(mask)
                queries = [contest.queries[i] for i in range(5)]
                works: dict[str, Callable[[], object]] = {
                    "ours": lambda: [
                        contest.index.search(query, K, threads=1, ids=mask) for query in queries
                    ],
                    "scan": lambda: [scan_allowed(contest, query, mask) for query in queries],
                    "check": lambda: [check_nearest(contest, query, mask) for query in queries],
                }
                took = {name: seconds / 5 for name, seconds in best(works, 3).items()}
                found = contest.index.search(contest.queries[:5], K, ids=mask).distances
                expected = hamming(contest.queries[:5], contest.base[rows]).astype(np.int32)
                if not np.array_equal(found, np.sort(expected, axis=1)[:, :K]):
                    raise SystemExit(f"{kind}, {n_bits} bits, {share}: distances differ")
                better = min(took["scan"], took["check"])
                yield contest.line(
                    "filters",
                    share=share,
                    over_better=round(took["ours"] / better, 2),
                    **rounded(took),
                    load=os.getloadavg()[0],
                )


def scan_allowed(contest: Contest, query: Codes, mask: NDArray[np.bool_]) -> object:
    rows = np.flatnonzero(mask)
    allowed = HammingIndex(contest.n_bits)
    allowed.add(rows, contest.base[rows])
    return allowed.search(query, K, threads=1, method="scan")


def check_nearest(contest: Contest, query: Codes, mask: NDArray[np.bool_]) -> object:
    number = K
    while True:
        ids = contest.index.search(query, number, threads=1).ids[0]
        near = ids[mask[ids]][:K]
        if len(near) == K or number == contest.n:
            return near
        number = min(4 * number, contest.n)


def worst(contest: Contest) -> Row:
    """Measure queries far from all codes, which are given up, relative to a scan."""
    far = contest.queries
    if contest.kind == "clustered":
        far = Codes.pack(~contest.queries[:10].unpack())
    excess = []
    for i in range(10):
        for k in (K, 1000):
            auto = min(cpu(lambda: contest.index.search(far[i], k, threads=1)) for _ in range(5))
            scan = min(
                cpu(lambda: contest.index.search(far[i], k, threads=1, method="scan"))
                for _ in range(5)
            )
            excess.append((auto - 20e-6) / scan)
    return {
        "worst_over_scan": round(max(excess), 2),
        "median_over_scan": round(float(np.median(excess)), 2),
    }


def within(n: int) -> Iterator[Row]:
    """Measure radius search against faiss's range search, whose radius is exclusive."""
    for kind, radius in (("random", 14), ("clustered", 10)):
        contest = Contest(kind, n, 64)
        contest.index.optimize()
        for queries, method in ((1, "scan"), (1, "auto"), (100, "bitslice"), (100, "auto")):
            codes = contest.queries[:queries]
            packed = contest.bytes[:queries]
            works: dict[str, Callable[[], object]] = {
                "ours": lambda: contest.index.within(codes, radius, threads=1, method=method),
                "faiss": lambda: contest.flat.range_search(packed, radius + 1),
            }
            took = best(works, 3)
            matches = contest.index.within(codes, radius, method=method)
            limits = contest.flat.range_search(packed, radius + 1)[0]
            if [part.ids.shape[1] for part in matches] != np.diff(limits).tolist():
                raise SystemExit("within: the number of matches differs from faiss's")
            ratio = round(took["faiss"] / took["ours"], 1)
            yield contest.line(
                "within",
                radius=radius,
                queries=queries,
                method=method,
                ratio=ratio,
                matches=int(limits[-1]),
                **rounded(took),
            )


def call(n: int) -> Iterator[Row]:
    """Measure the overhead of a call, adding, memory, saving, loading and memory mapping."""
    contest = Contest("random", n, 64)
    tiny = HammingIndex(64)
    tiny.add([0], contest.base[:1])
    query = contest.queries[0]
    empty = min(cpu(lambda: [tiny.search(query, K) for _ in range(200)]) for _ in range(20)) / 200
    yield contest.line("call", microseconds=round(1e6 * empty, 2))
    new_codes = random_codes(1_000_000, 64, seed=3)
    ids = np.random.default_rng(0).permutation(1_000_000)
    added = min(wall(lambda: HammingIndex(64).add(ids, new_codes)) for _ in range(3))
    yield contest.line("add", codes_added=1_000_000, seconds=round(added, 3))
    yield contest.line("memory", bytes_per_code=contest.index.nbytes / n)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        saved = wall(lambda: contest.index.save(path))
        loaded = min(wall(lambda: HammingIndex.load(path)) for _ in range(5))
        yield contest.line("file", save_seconds=round(saved, 3), load_seconds=round(loaded, 3))
        mapped = HammingIndex.load(path)
        works: dict[str, Callable[[], object]] = {
            "memory": lambda: contest.index.search(query, K, threads=1, method="scan"),
            "mapped": lambda: mapped.search(query, K, threads=1, method="scan"),
        }
        yield contest.line("mapped", **rounded(best(works, 9)))


def peers(n: int) -> Iterator[Row]:
    """Measure exact and approximate peers and their recall on n / 50 codes; graphs build slowly."""
    for kind in SYNTHETIC:
        contest = Contest(kind, n // 50, 64)
        contest.index.optimize()
        packed = contest.base.to_bytes()
        ids = np.arange(contest.n)
        multi = faiss.IndexBinaryMultiHash(64, 4, 16)
        multi.nflip = 2
        hnsw = faiss.IndexBinaryHNSW(64, 16)
        quantizer = faiss.IndexBinaryFlat(64)
        ivf = faiss.IndexBinaryIVF(quantizer, 64, 1024)
        ivf.nprobe = 32
        ivf.train(packed[:100_000])
        graph = Usearch(ndim=64, metric="hamming", dtype="b1")
        for index in (multi, hnsw, ivf):
            index.add(packed)
        graph.add(ids, packed, threads=1)
        words = contest.base.words
        searches: dict[str, Callable[[int], Any]] = {
            "crossbit": lambda i: contest.index.search(contest.queries[i], K, threads=1).ids[0],
            "faiss flat": lambda i: contest.flat.search(contest.bytes[i : i + 1], K)[1][0],
            "faiss multihash": lambda i: multi.search(contest.bytes[i : i + 1], K)[1][0],
            "faiss ivf": lambda i: ivf.search(contest.bytes[i : i + 1], K)[1][0],
            "faiss hnsw": lambda i: hnsw.search(contest.bytes[i : i + 1], K)[1][0],
            "usearch exact": lambda i: (
                usearch_exact(packed, contest.bytes[i], K, "hamming", exact=True, threads=1).keys
            ),
            "usearch hnsw": lambda i: graph.search(contest.bytes[i], K, threads=1).keys,
            "numpy": lambda i: np.argsort(
                np.bitwise_count(words[:, 0] ^ contest.queries.words[i, 0]), kind="stable"
            )[:K],
        }
        for name, search in searches.items():
            queries = 50 if contest.n <= 1_000_000 else 10
            results = [np.asarray(search(i), np.int64) for i in range(queries)]
            times = [cpu(lambda: search(i)) for i in range(queries)]
            seconds = min(times) if "flat" in name else float(np.median(times))
            recall = contest.check(
                np.array([np.resize(row, K) for row in results]), exact=name == "crossbit"
            )
            yield contest.line("peers", peer=name, recall=recall, seconds=round(seconds, 7))


def growth(n: int) -> Iterator[Row]:
    """Measure how the cost grows with n, bits and k."""
    sizes = [size for size in (10**4, 10**5, 10**6, 10**7, 10**8) if size <= n]
    for size in sizes:
        yield from grown("n", Codes(random_codes(size, 64).words, 64), K)
    for n_bits in (16, 32, 64, 100, 128, 256, 512, 1024):
        words = random_codes(min(n, 10**6), -(-n_bits // 64) * 64)
        yield from grown("bits", words.truncate(n_bits), K)
    for k in (1, 10, 100, 1000):
        yield from grown("k", random_codes(min(n, 10**6), 64), k)


def grown(by: str, base: Codes, k: int) -> Iterator[Row]:
    index = HammingIndex(base.n_bits)
    index.add(np.arange(len(base)), base)
    queries = base[:: max(1, len(base) // 200)][:200]
    queries = Codes(queries.words ^ np.uint64(0b1011), base.n_bits) if base.n_bits >= 4 else queries
    line: Row = {"what": "growth", "by": by, "n": len(base), "bits": base.n_bits, "k": k}
    for method, count in (("scan", 10), ("block", 8), ("bitslice", 200), ("auto", 20)):
        batch_of_queries = queries[:count]

        def search(codes: Codes) -> float:
            return cpu(lambda: index.search(codes, k, threads=1, method=method))

        if method in ("scan", "auto"):
            index.search(batch_of_queries[0], k, method=method)
            took = float(np.median([search(batch_of_queries[i]) for i in range(count)]))
        else:
            took = min(search(batch_of_queries) for _ in range(2)) / count
        line |= {f"{method}_microseconds": round(1e6 * took, 2)}
    yield line | {"bytes_per_code": round(index.nbytes / len(base), 1)}


def large(n: int) -> Iterator[Row]:
    """Build, search, save and open n clustered codes of 64 and 128 bits, each in a new process."""
    for n_bits in (64, 128):
        command = [sys.executable, __file__, "--n", str(n), "--large", str(n_bits)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row: Row = json.loads(done.stdout.splitlines()[-1])
        yield row


def large_line(n: int, n_bits: int) -> Row:
    """Measure one length; the answers must be those of a scan, before and after opening."""
    with tempfile.TemporaryDirectory(prefix="crossbit-") as folder:
        path = Path(folder) / "codes.index"
        queries, expected, row = large_saved(n, n_bits, path)
        began = time.perf_counter()
        opened = HammingIndex.load(path)
        row["open_seconds"] = round(time.perf_counter() - began, 2)
        opened.search(queries[0], K, method="ready")
        row["open_and_first_answer_seconds"] = round(time.perf_counter() - began, 2)
        opened.optimize()
        row["ready_seconds"] = round(time.perf_counter() - began, 2)
        row["exact"] &= opened.search(queries[:5], K) == expected
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row | {"peak_GB": round(peak / 1e9, 1), **host()}


def large_saved(n: int, n_bits: int, path: Path) -> tuple[Codes, Matches, Row]:
    """Save an index of n codes; return queries, the answers to five of them, and measurements."""
    codes = clustered_codes(n + QUERIES, n_bits)
    queries = Codes(codes.words[:QUERIES].copy(), n_bits)
    index = HammingIndex(n_bits)
    row: Row = {"what": "large", "codes": "clustered", "n": n, "bits": n_bits, "k": K}
    row["add_seconds"] = round(wall(lambda: index.add(np.arange(n), codes[QUERIES:])), 1)
    row["optimize_seconds"] = round(wall(index.optimize), 1)
    row["bytes_per_code"] = round(index.nbytes / n, 1)
    times = [cpu(lambda: index.search(queries[i], K, threads=1)) for i in range(200)]
    row |= {f"p{q}_seconds": round(float(np.percentile(times, q)), 7) for q in (50, 99)}
    scans = [cpu(lambda: index.search(queries[i], K, threads=1, method="scan")) for i in range(3)]
    row["scan_seconds"] = round(min(scans), 4)
    expected = index.search(queries[:5], K, method="block")
    row["exact"] = index.search(queries[:5], K) == expected
    row["save_seconds"] = round(wall(lambda: index.save(path)), 1)
    files = [file.stat().st_size for file in path.parent.iterdir()]
    row["file_bytes_per_code"] = round(sum(files) / n, 1)
    return queries, expected, row


def stored(path: Path) -> Iterator[Row]:
    """Measure stored codes of a model with the automatic method: batches and single queries."""
    for name, queries, base in stored_codes(path):
        contest = Contest(name, len(base), base.n_bits, (queries, base))
        contest.index.optimize()
        contest.check(contest.index.search(queries[:50], K).ids)
        batches: dict[str, Callable[[], object]] = {
            "ours": lambda: contest.index.search(queries, K, threads=1),
            "faiss": lambda: contest.flat.search(contest.bytes, K),
        }
        took = best(batches, 3)
        yield contest.line(
            "stored",
            queries=len(queries),
            ratio=round(took["faiss"] / took["ours"], 1),
            **rounded(took),
        )
        count = min(200, len(queries))
        singles: dict[str, Callable[[], object]] = {
            "ours": lambda: [contest.index.search(queries[i], K, threads=1) for i in range(count)],
            "faiss": lambda: [
                contest.flat.search(contest.bytes[i : i + 1], K) for i in range(count)
            ],
        }
        took = {name: seconds / count for name, seconds in best(singles, 3).items()}
        distances = contest.index.search(queries, K, threads=1).distances
        yield contest.line(
            "stored",
            queries=1,
            ratio=round(took["faiss"] / took["ours"], 1),
            **rounded(took),
            different_codes=len(np.unique(base.words, axis=0)),
            nearest=round(float(distances[:, 0].mean()), 2),
            tenth=round(float(distances[:, -1].mean()), 2),
        )


def stored_codes(path: Path) -> Iterator[tuple[str, Codes, Codes]]:
    """Yield name, queries and base: each direction of a result, or a split of a file of codes."""
    try:
        codes = Codes.load(path)
        yield path.name, codes[:QUERIES], codes[QUERIES:]
    except FormatError:
        file = ArrayFile.read(path, CODES_FORMAT)
        n_bits = int(file.meta["n_bits"])
        sides = {
            side: {
                name.removeprefix(f"{side}."): Codes(words, n_bits)
                for name, words in file.arrays.items()
                if name.startswith(f"{side}.")
            }
            for side in ("query", "base")
        }
        for left, queries in sides["query"].items():
            for right, base in sides["base"].items():
                yield f"{path.name.partition('.')[0]} {left}-{right}", queries[:QUERIES], base


def plot(rows: list[Row], path: Path) -> None:
    """Plot the ratios to faiss as bars, and the growth with n as lines."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    bars = [row for row in rows if "ratio" in row]
    names = [
        " ".join(
            str(row[key])
            for key in ("what", "codes", "bits", "level", "queries", "threads", "method")
            if key in row
        )
        for row in bars
    ]
    left.barh(names, [row["ratio"] for row in bars])
    left.set(
        xscale="log", xlabel="time of faiss flat divided by ours", title="Speed against faiss flat"
    )
    left.tick_params(axis="y", labelsize=6)
    grown_rows = [row for row in rows if row["what"] == "growth" and row["by"] == "n"]
    for name in ("scan", "block", "bitslice", "auto"):
        values = [row[f"{name}_microseconds"] for row in grown_rows]
        right.plot([row["n"] for row in grown_rows], values, marker="o", label=name)
    right.set(
        xscale="log",
        yscale="log",
        xlabel="codes",
        ylabel="µs per query",
        title="64 bits, k = 10, one thread",
    )
    right.legend()
    figure.savefig(path, dpi=120)


SECTIONS = {
    "batch": batch,
    "one": single_query,
    "sublinear": sublinear,
    "wide": wide,
    "weighted": weighted,
    "certified": certified,
    "filters": filters,
    "within": within,
    "call": call,
    "peers": peers,
    "growth": growth,
    LARGE: large,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare HammingIndex with its peers.")
    parser.add_argument("--quick", action="store_true", help="2·10⁵ codes instead of 10⁷")
    parser.add_argument("--n", type=int, help="number of codes")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=SECTIONS,
        default=[name for name in SECTIONS if name != "large"],
    )
    parser.add_argument("--large", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--codes", type=Path, nargs="+", help="measure only these codes of models")
    parser.add_argument("--plot", type=Path, help="write a figure to this file")
    options = parser.parse_args()
    n = options.n or (200_000 if options.quick else 10_000_000)
    if options.large:
        print(json.dumps(large_line(n, options.large)))
        return
    faiss.omp_set_num_threads(1)
    rows: list[Row] = []
    print(
        json.dumps(
            {
                "what": "host",
                "level": kernels.level(),
                "faiss": faiss.__version__,
                **host(),
            }
        )
    )
    measured = (
        [stored(path) for path in options.codes]
        if options.codes
        else [SECTIONS[name](n) for name in options.only]
    )
    for section in measured:
        for row in section:
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()

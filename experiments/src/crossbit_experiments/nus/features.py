"""The unhashed features of NUS: ranked by Euclidean distance within each modality.

A module by itself, because the fingerprint of their runs is the code of the whole module.
"""

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Evaluation, Protocol, dataset_relevance
from crossbit.evaluation.topk import TopKRanking
from crossbit.metrics import Ranking, evaluate_ranking


def evaluate_features(
    data: Dataset, seed: int, *, protocol: Protocol
) -> tuple[Evaluation, dict[str, NDArray[np.float64]]]:
    """Evaluate unhashed features within each modality; the seed has no effect."""
    del seed
    reports = {}
    values = {}
    for name in data.modalities:
        ranking = rank_features(data, name, protocol)
        reports[name, name] = evaluate_ranking(ranking, measures=protocol.measures[:1])
        values[f"{name}-{name}"] = ranking.measure(protocol.measures[0])
    return Evaluation(reports, protocol), values


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

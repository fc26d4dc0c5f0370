"""Retrieval metrics with exact treatment of ties, and statistics of binary codes.

Define relevance (`same_class`, `common_class`, `jaccard`, …), then compute one number
(`mean_average_precision`), the standard measures (`evaluate`), or build a `Ranking` and measure
anything else.
"""

from crossbit.metrics.average import AveragePrecision, Divisor
from crossbit.metrics.curve import Curve, precision_recall_curve
from crossbit.metrics.evaluate import (
    Empty,
    MeasureResult,
    Report,
    bootstrap_interval,
    evaluate,
    evaluate_ranking,
    mean_average_precision,
    mean_over_queries,
    standard_measures,
)
from crossbit.metrics.health import CodeHealth, DistanceOverlap, code_health
from crossbit.metrics.measures import (
    NDCG,
    Measure,
    Precision,
    PrecisionWithin,
    Recall,
    RecallWithin,
    Success,
)
from crossbit.metrics.ranking import Exclude, Ranking, rank_codes, rank_scores, rank_vectors
from crossbit.metrics.relevance import (
    Relevance,
    common_class,
    count_common,
    from_function,
    from_labels,
    from_matrix,
    jaccard,
    same_class,
)
from crossbit.metrics.tie_counts import TieCounts, TieGroups, Ties

__all__ = [
    # one number, or a report
    "mean_average_precision",
    "evaluate",
    "evaluate_ranking",
    "standard_measures",
    "Report",
    "MeasureResult",
    # relevance
    "Relevance",
    "from_labels",
    "same_class",
    "common_class",
    "jaccard",
    "count_common",
    "from_matrix",
    "from_function",
    # rankings
    "Ranking",
    "rank_codes",
    "rank_scores",
    "rank_vectors",
    # measures
    "Measure",
    "AveragePrecision",
    "Precision",
    "Recall",
    "Success",
    "PrecisionWithin",
    "RecallWithin",
    "NDCG",
    "TieCounts",
    "TieGroups",
    # aggregation over queries
    "mean_over_queries",
    "bootstrap_interval",
    "Curve",
    "precision_recall_curve",
    # code health
    "CodeHealth",
    "code_health",
    "DistanceOverlap",
    # types of options
    "Divisor",
    "Empty",
    "Exclude",
    "Ties",
]

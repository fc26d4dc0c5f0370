"""Metrics: how well a ranking puts relevant items first, whatever the ties, and how healthy codes are.

Say what is relevant (`same_class`, `common_class`, `jaccard`, …), then ask for one number
(`mean_average_precision`), for the usual ones (`evaluate`), or make a `Ranking` and measure what you like.
"""

from crossbit.metrics.average import AveragePrecision, Divisor
from crossbit.metrics.curve import Curve, precision_recall_curve
from crossbit.metrics.evaluate import (
    evaluate,
    evaluate_ranking,
    mean_average_precision,
    standard_measures,
)
from crossbit.metrics.health import CodeHealth, DistanceOverlap, code_health, distance_overlap
from crossbit.metrics.means import Empty, bootstrap_interval, mean_over_queries
from crossbit.metrics.measure import Measure
from crossbit.metrics.measures import (
    NDCG,
    Precision,
    PrecisionWithin,
    Recall,
    RecallWithin,
    Success,
)
from crossbit.metrics.rank import rank_codes, rank_scores, rank_vectors
from crossbit.metrics.ranking import Exclude, Ranking
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
from crossbit.metrics.report import Report, Result
from crossbit.metrics.tally import Tally, TieGroups, Ties

__all__ = [
    # one number, or the usual ones
    "mean_average_precision",
    "evaluate",
    "evaluate_ranking",
    "standard_measures",
    "Report",
    "Result",
    # what is relevant
    "Relevance",
    "from_labels",
    "same_class",
    "common_class",
    "jaccard",
    "count_common",
    "from_matrix",
    "from_function",
    # in what order
    "Ranking",
    "rank_codes",
    "rank_scores",
    "rank_vectors",
    # what to measure
    "Measure",
    "AveragePrecision",
    "Precision",
    "Recall",
    "Success",
    "PrecisionWithin",
    "RecallWithin",
    "NDCG",
    "Tally",
    "TieGroups",
    # over queries
    "mean_over_queries",
    "bootstrap_interval",
    "Curve",
    "precision_recall_curve",
    # code health
    "CodeHealth",
    "code_health",
    "DistanceOverlap",
    "distance_overlap",
    # the words that options take
    "Divisor",
    "Empty",
    "Exclude",
    "Ties",
]

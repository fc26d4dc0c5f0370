"""From a protocol to numbers: evaluation in all directions, and result files that can be recomputed."""

from crossbit.experiments.directions import Evaluation, evaluate_model
from crossbit.experiments.protocols import PROTOCOLS, Protocol, given_splits
from crossbit.experiments.results import read_result, result_path, write_result

__all__ = [
    "Evaluation",
    "evaluate_model",
    "PROTOCOLS",
    "Protocol",
    "given_splits",
    "read_result",
    "result_path",
    "write_result",
]

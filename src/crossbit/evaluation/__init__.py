"""Evaluate hash models in all directions by named protocols, and keep the results."""

from crossbit.evaluation.evaluate import Evaluation, evaluate_model
from crossbit.evaluation.protocol import PROTOCOLS, Protocol, given_splits
from crossbit.evaluation.results import read_result, result_path, write_result

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

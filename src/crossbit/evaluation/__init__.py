"""Evaluate hash models between all modalities, by explicit protocols, and store the results."""

from crossbit.evaluation.evaluate import Evaluation, Protocol, default_protocol, evaluate_model
from crossbit.evaluation.results import format_direction, read_result, result_path, write_result
from crossbit.evaluation.stages import Stage, evaluate_stages, plot_stages

__all__ = [
    "Evaluation",
    "evaluate_model",
    "evaluate_stages",
    "plot_stages",
    "Stage",
    "Protocol",
    "default_protocol",
    "read_result",
    "result_path",
    "write_result",
    "format_direction",
]

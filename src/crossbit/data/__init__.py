"""Views, labels and pairs; data sets on disk; converters and generators."""

from crossbit.data.catalog import CATALOG, KnownSet, find
from crossbit.data.conversion import convert, read
from crossbit.data.conversion.columns import parse_map
from crossbit.data.conversion.readers import read_array
from crossbit.data.dataset import Dataset
from crossbit.data.labels import LabelsArgument, check_labels, is_known
from crossbit.data.neighbors import Neighbors, NeighborsArgument
from crossbit.data.pairs import Pairs, pairs_from_labels
from crossbit.data.synthetic import synthetic
from crossbit.data.training_set import TrainingSet, Views, training_set

__all__ = [
    "Views",
    "LabelsArgument",
    "TrainingSet",
    "training_set",
    "Pairs",
    "pairs_from_labels",
    "Neighbors",
    "NeighborsArgument",
    "check_labels",
    "is_known",
    "Dataset",
    "synthetic",
    "convert",
    "read_array",
    "read",
    "parse_map",
    "CATALOG",
    "KnownSet",
    "find",
]

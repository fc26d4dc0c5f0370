"""Views, labels and pairs; data sets on disk; converters and generators."""

from crossbit.data.arrays import read_array
from crossbit.data.catalog import CATALOG, KnownSet, find
from crossbit.data.convert import convert, read
from crossbit.data.dataset import Dataset
from crossbit.data.labels import check_labels, is_known
from crossbit.data.naming import parse_map
from crossbit.data.pairs import Pairs
from crossbit.data.sampling import pairs_from_labels
from crossbit.data.synthetic import synthetic
from crossbit.data.views import LabelsArgument, TrainingSet, Views, training_set

__all__ = [
    "Views",
    "LabelsArgument",
    "TrainingSet",
    "training_set",
    "Pairs",
    "pairs_from_labels",
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

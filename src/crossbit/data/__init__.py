"""Views, labels and pairs; data sets on disk; converters and generators."""

from crossbit.data.labels import check_labels, is_known
from crossbit.data.pairs import Pairs
from crossbit.data.views import LabelsArgument, TrainingSet, Views, training_set

__all__ = ["LabelsArgument", "Pairs", "TrainingSet", "Views", "check_labels", "is_known", "training_set"]

"""Raw things to rows: words and pictures, described by NumPy or ONNX, the same way in training and in serving."""

from crossbit.features.describer import KINDS, Describer, Thing, open
from crossbit.features.text import BagOfTags, Tfidf

__all__ = ["open", "KINDS", "Describer", "Thing", "BagOfTags", "Tfidf"]

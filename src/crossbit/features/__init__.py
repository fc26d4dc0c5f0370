"""Raw things to rows: words and pictures, described by NumPy or ONNX, the same way in training and in serving."""

from crossbit.features.describer import KINDS, Describer, Thing, open
from crossbit.features.extract import Extracted, extract
from crossbit.features.image import BagOfSift, ColourGradients
from crossbit.features.networks import ImageNetwork, SentenceNetwork
from crossbit.features.text import BagOfTags, Tfidf

__all__ = [
    "open",
    "extract",
    "Extracted",
    "KINDS",
    "Describer",
    "Thing",
    "BagOfTags",
    "Tfidf",
    "SentenceNetwork",
    "BagOfSift",
    "ColourGradients",
    "ImageNetwork",
]

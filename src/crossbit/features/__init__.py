"""Raw things to rows: words, pictures and shapes, described alike in training and in serving, without torch."""

from crossbit.features.describer import KINDS, Describer, Thing, open
from crossbit.features.extract import Extracted, extract
from crossbit.features.image import BagOfSift, ColorGradients
from crossbit.features.networks import ImageNetwork, SentenceNetwork
from crossbit.features.shape import BagOfGeometry, HeatOfShape, SpatialBag
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
    "ColorGradients",
    "ImageNetwork",
    "BagOfGeometry",
    "SpatialBag",
    "HeatOfShape",
]

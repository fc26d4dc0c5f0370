"""Feature extraction: texts, images and meshes to rows, in training and serving; without torch."""

from crossbit.features.extract import Extraction, extract
from crossbit.features.extractor import (
    Extractor,
    RawInput,
    extractor_class,
    extractor_kinds,
    load_extractor,
)
from crossbit.features.image import BagOfSift, ColorHistogram
from crossbit.features.onnx import ImageNetwork, SentenceNetwork
from crossbit.features.shape import BagOfGeometry, HeatKernelExtractor, SpatialBag
from crossbit.features.text import BagOfTags, Tfidf

__all__ = [
    "Extractor",
    "RawInput",
    "load_extractor",
    "extractor_class",
    "extractor_kinds",
    "extract",
    "Extraction",
    "BagOfTags",
    "Tfidf",
    "SentenceNetwork",
    "BagOfSift",
    "ColorHistogram",
    "ImageNetwork",
    "BagOfGeometry",
    "SpatialBag",
    "HeatKernelExtractor",
]

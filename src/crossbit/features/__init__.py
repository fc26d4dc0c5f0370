"""Feature extraction: texts, images, audio, signals and meshes to rows; without torch."""

from crossbit.features.audio import LogMel, Mfcc
from crossbit.features.extract import Extraction, extract
from crossbit.features.extractor import (
    Extractor,
    RawInput,
    extractor_class,
    extractor_kinds,
    load_extractor,
)
from crossbit.features.image import BagOfSift, ColorHistogram
from crossbit.features.onnx import AudioNetwork, ImageNetwork, SentenceNetwork
from crossbit.features.shape import BagOfGeometry, HeatKernelExtractor, SpatialBag
from crossbit.features.signal import RandomConvolutions, SignalStatistics, Vector
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
    "Mfcc",
    "LogMel",
    "AudioNetwork",
    "SignalStatistics",
    "RandomConvolutions",
    "Vector",
    "BagOfGeometry",
    "SpatialBag",
    "HeatKernelExtractor",
]

"""From files to a searchable collection: images and captions that find each other."""

from crossbit.pipeline.extractors import EXTRACTORS, cache_folder, make_extractor
from crossbit.pipeline.learn import LearnResult, Progress, learn, pool_codes
from crossbit.pipeline.table import ItemTable

__all__ = [
    "learn",
    "LearnResult",
    "Progress",
    "ItemTable",
    "pool_codes",
    "EXTRACTORS",
    "make_extractor",
    "cache_folder",
]

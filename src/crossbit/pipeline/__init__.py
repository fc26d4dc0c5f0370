"""From files to answers: pictures and captions become a collection that finds each by the other."""

from crossbit.pipeline.described import Progress
from crossbit.pipeline.doors import IMAGE, TEXT, cache_folder
from crossbit.pipeline.learning import Learned, learn

__all__ = ["learn", "Learned", "Progress", "IMAGE", "TEXT", "cache_folder"]

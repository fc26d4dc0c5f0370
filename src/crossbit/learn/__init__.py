"""From files to answers: pictures and captions become a collection that finds each by the other."""

from crossbit.learn.described import Progress
from crossbit.learn.doors import IMAGE, TEXT, cache_folder
from crossbit.learn.learning import Learnt, learn

__all__ = ["learn", "Learnt", "Progress", "IMAGE", "TEXT", "cache_folder"]

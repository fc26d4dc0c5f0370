"""From files to a searchable collection: things of any kinds that find each other."""

from crossbit._progress import Progress
from crossbit.pipeline.extractors import EXTRACTORS, cache_folder, make_extractor
from crossbit.pipeline.learn import LearnResult, learn, learn_table
from crossbit.pipeline.plan import TablePlan, plan_table
from crossbit.pipeline.rows import pool_codes
from crossbit.pipeline.table import ItemTable

__all__ = [
    "learn",
    "learn_table",
    "plan_table",
    "TablePlan",
    "LearnResult",
    "Progress",
    "ItemTable",
    "pool_codes",
    "EXTRACTORS",
    "make_extractor",
    "cache_folder",
]

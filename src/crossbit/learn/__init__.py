"""From a table of things of any kinds to a collection in which they find each other."""

from crossbit._progress import Progress
from crossbit.learn.columns import ItemTable, TableColumns
from crossbit.learn.extractors import EXTRACTORS, cache_folder, make_extractor
from crossbit.learn.plan import PlanOptions, TablePlan, plan_table
from crossbit.learn.run import LearnResult, learn_planned, learn_table

__all__ = [
    "learn_table",
    "plan_table",
    "learn_planned",
    "PlanOptions",
    "TablePlan",
    "LearnResult",
    "Progress",
    "ItemTable",
    "TableColumns",
    "EXTRACTORS",
    "make_extractor",
    "cache_folder",
]

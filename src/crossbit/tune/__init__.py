"""Hyper-parameter search on training rows.

`compare` cross-validates the settings that you list. `search` proposes settings itself: first the
default, then an even cover of the space, then settings that resemble good ones. An interrupted
search continues where it stopped.
"""

from crossbit.tune.search import SearchResult, nested_score, search
from crossbit.tune.space import (
    Choice,
    Range,
    Space,
    default_space,
    parse_space,
    suggest_bits,
)
from crossbit.tune.validation import (
    CrossValidation,
    Supervise,
    Trial,
    by_labels,
    compare,
    cross_validate,
)

__all__ = [
    "Trial",
    "Supervise",
    "by_labels",
    "compare",
    "cross_validate",
    "CrossValidation",
    "search",
    "nested_score",
    "SearchResult",
    "Space",
    "Range",
    "Choice",
    "default_space",
    "parse_space",
    "suggest_bits",
]

"""Choosing settings on training rows: comparing a few by cross-validation, or searching a space of them.

`compare` takes the settings you name. `search` finds them: it tries the method as it comes, spreads a first round over
the space, then follows what did well; it can be stopped and goes on where it was.
"""

from crossbit.tune.searching import Found, nested_score, search
from crossbit.tune.space import Choice, Range, Space, as_space, default_space, read_space
from crossbit.tune.validation import (
    Supervise,
    Trial,
    across,
    by_labels,
    compare,
    cross_validate,
    fold_scores,
)

__all__ = [
    "Trial",
    "Supervise",
    "by_labels",
    "compare",
    "cross_validate",
    "fold_scores",
    "across",
    "search",
    "nested_score",
    "Found",
    "Space",
    "Range",
    "Choice",
    "default_space",
    "as_space",
    "read_space",
]

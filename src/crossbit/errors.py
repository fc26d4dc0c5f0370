"""Exceptions that Crossbit raises on purpose.

```
CrossbitError
├── DataError (ValueError)            an argument or a row of data cannot be used
│   ├── NotFoundError                 what an argument names does not exist
│   └── RowError                      one row of an array cannot be used; knows its number
├── FormatError                       a file is corrupted or of an unknown format
├── BackendError                      a store or server did not answer
└── MissingExtraError (ImportError)   an optional library is not installed
```

A message says what was expected, what was given, and the remedy.
"""

from typing import Self

from crossbit._install import install_command


class CrossbitError(Exception):
    """Base class: catch it to catch every error that Crossbit raises on purpose."""


class DataError(CrossbitError, ValueError):
    """An argument or a row of data that cannot be used."""


class NotFoundError(DataError):
    """What an argument names, such as an item, does not exist."""


class RowError(DataError):
    """A feature row that cannot be used; who knows the file behind the array can name the line.

    Args:
        modality: Modality of the rows.
        row: Number of the row in the array that was passed, from 0.
        problem: What is wrong with it, and the remedy; continues a sentence about the row.
        item: How the caller names the row, such as ``"item 'cat.jpg'"``.
    """

    def __init__(self, modality: str, row: int, problem: str, item: str = "") -> None:
        super().__init__(modality, row, problem, item)  # the arguments, so that it can be pickled
        self.modality = modality
        self.row = row
        self.problem = problem
        self.item = item

    def __str__(self) -> str:
        """Such as ``rows of 'image': row 3 (counted from 0) contains NaN; remove it``."""
        name = f", {self.item}" if self.item else ""
        return f"rows of {self.modality!r}: row {self.row} (counted from 0){name} {self.problem}"

    def renumbered(self, row: int, item: str = "") -> "RowError":
        """Return the error with the number that the row has for the caller."""
        return RowError(self.modality, row, self.problem, item or self.item)

    def at(self, place: str) -> DataError:
        """Return the error with a place in a file, such as ``"items.jsonl, line 5"``."""
        name = f", {self.item}" if self.item else ""
        return DataError(f"{place}{name}: the row of {self.modality!r} {self.problem}")


class FormatError(CrossbitError):
    """A file that is truncated, modified, of another type, or of an unknown version."""


class BackendError(CrossbitError):
    """A store or server that is unreachable, too slow, or rejects the request."""


class MissingExtraError(CrossbitError, ImportError):
    """Optional libraries that are not installed.

    Args:
        *libraries: Names of distributions; the message has the command that installs them.
    """

    def __init__(self, *libraries: str) -> None:
        """Say how to install the libraries, by the extras that contain them."""
        names = ", ".join(map(repr, libraries))
        one = len(libraries) == 1
        phrase = "is not installed. Install it" if one else "are not installed. Install them"
        super().__init__(f"{names} {phrase} with: {install_command(libraries)}")
        self.libraries = libraries

    def __reduce__(self) -> tuple[type[Self], tuple[str, ...]]:
        """Pickle the arguments: the error may come from a worker process."""
        return type(self), self.libraries

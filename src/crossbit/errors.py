"""Exceptions that Crossbit raises on purpose.

```
CrossbitError
├── DataError (ValueError)            an argument or a row of data cannot be used
├── FormatError                       a file is corrupted or of an unknown format
├── BackendError                      a store or server did not answer
└── MissingExtraError (ImportError)   an optional library is not installed
```

A message says what was expected, what was given, and the remedy.
"""


class CrossbitError(Exception):
    """Base class: catch it to catch every error that Crossbit raises on purpose."""


class DataError(CrossbitError, ValueError):
    """An argument or a row of data that cannot be used."""


class FormatError(CrossbitError):
    """A file that is truncated, modified, of another type, or of an unknown version."""


class BackendError(CrossbitError):
    """A store or server that is unreachable, too slow, or rejects the request."""


class MissingExtraError(CrossbitError, ImportError):
    """A library of an optional extra that is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        """Name the missing library and the extra that contains it."""
        super().__init__(
            f"{library!r} is not installed. Install it with: pip install 'crossbit[{extra}]'"
        )

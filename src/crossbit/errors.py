"""Every exception that Crossbit raises on purpose.

```
CrossbitError
├── DataError (ValueError)            what you passed cannot be used
├── FormatError                       a file is not what it claims to be
├── BackendError                      a store or server did not answer
└── MissingExtraError (ImportError)   an optional library is not installed
```

A message says what was expected, what came, and what to do about it.
"""


class CrossbitError(Exception):
    """The root of the tree: catch it to catch everything Crossbit raises on purpose."""


class DataError(CrossbitError, ValueError):
    """An argument or a row of data that cannot be used as it is."""


class FormatError(CrossbitError):
    """A file that is truncated, altered, of another kind, or of a version we do not know."""


class BackendError(CrossbitError):
    """A store or server that is away, too slow, or refuses."""


class MissingExtraError(CrossbitError, ImportError):
    """A library of an optional extra that is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        """Name the missing library and the extra that brings it."""
        super().__init__(
            f"{library!r} is not installed. Install it with: pip install 'crossbit[{extra}]'"
        )

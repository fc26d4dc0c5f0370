"""How far an ``add`` has come, so that the same command goes on where it was interrupted."""

import json
from pathlib import Path

from crossbit._io.files import write_json

FILE = "adding.json"


class Progress:
    """The rows of a source that a collection already has.

    Args:
        folder: Where it is noted.
        source: The file; it counts as another one when its size or time has changed. Standard input has no progress.
        settings: Whatever else decides what is added.
    """

    def __init__(self, folder: Path, source: str, settings: object) -> None:
        self._path = folder / FILE
        path = Path(source)
        self._key = ""
        if path.exists():
            facts = path.stat()
            self._key = json.dumps(
                [str(path.resolve()), facts.st_size, facts.st_mtime_ns, settings], sort_keys=True
            )

    def done(self) -> int:
        """How many rows are in the collection already."""
        try:
            return int(json.loads(self._path.read_text())[self._key])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def note(self, rows: int) -> None:
        """Remember that so many rows are in the collection."""
        if self._key:
            write_json(self._path, {self._key: rows})

    def forget(self) -> None:
        """Everything has been added."""
        self._path.unlink(missing_ok=True)

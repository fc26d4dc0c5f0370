"""Pictures of items: found inside one folder, decoded within bounds, sent as thumbnails."""

import io
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from crossbit.features.image import decode_image
from crossbit.server.problems import NotFoundError

FIELD = "picture"
"""The payload field that holds the path of an item's picture, relative to the folder of pictures."""

_CACHE_BYTES = 64 << 20


class Pictures:
    """Thumbnails of the pictures in one folder; those asked for last are kept.

    A path comes from a payload, never from a request, and even so it must lead to a file inside the folder. What is
    sent has been decoded and encoded again: a file that is no picture never leaves the machine.

    Args:
        folder: Where pictures are; without one, no item has any.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder.resolve()
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._bytes = 0

    def has(self, payload: dict[str, Any]) -> bool:
        """Whether an item names a picture that could be shown."""
        return self._folder is not None and isinstance(payload.get(FIELD), str)

    def thumbnail(self, payload: dict[str, Any], side: int) -> bytes:
        """A PNG or JPEG of an item's picture, its longer side at most so many pixels.

        Raises:
            NotFoundError: The item has no picture, or it is not inside the folder.
            DataError: The file is no picture.
        """
        path = self._path(payload)
        key = (str(path), path.stat().st_mtime_ns, side)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = _small(path, side)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._bytes += len(made)
            while self._bytes > _CACHE_BYTES:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return made

    def _path(self, payload: dict[str, Any]) -> Path:
        """The file that a payload names, links followed, if it is inside the folder."""
        if self._folder is None or not self.has(payload):
            raise NotFoundError(
                "the item has no picture here; 'crossbit serve --media FOLDER' says where they are"
            )
        try:
            path = (self._folder / str(payload[FIELD])).resolve()
            inside = path.is_relative_to(self._folder) and path.is_file()
        except (OSError, ValueError):  # a name that no file can have
            inside = False
        if not inside:
            raise NotFoundError("the item's picture is not in the folder of pictures")
        return path


def _small(path: Path, side: int) -> bytes:
    picture = decode_image(path, side=side)
    out = io.BytesIO()
    if path.suffix.lower() in (".png", ".gif", ".bmp"):  # drawings: sharp edges and few colors
        picture.save(out, "PNG")
    else:
        picture.save(out, "JPEG", quality=85)
    return out.getvalue()


def media_type(content: bytes) -> str:
    """What a thumbnail is."""
    return "image/png" if content.startswith(b"\x89PNG") else "image/jpeg"

"""Thumbnails of the items' images, from one folder."""

import io
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from crossbit.collection.types import IMAGE_FIELD
from crossbit.features.image import decode_image
from crossbit.server.errors import UnknownItemError

_CACHE_BYTES = 64 << 20
_LOSSLESS = (".png", ".gif", ".bmp")  # drawings: JPEG would blur their edges


class ImageFolder:
    """Thumbnails of the images in one folder, with a cache of the most recent ones.

    A path comes from a payload, never from a request, and must still lead to a file inside the
    folder. Files are decoded and encoded again, so only images ever leave the machine.

    Args:
        path: The folder; without one, no item has an image.
    """

    def __init__(self, path: Path | None) -> None:
        self._folder = None if path is None else path.resolve()
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._cached_bytes = 0

    def has_image(self, payload: dict[str, Any]) -> bool:
        """Return whether a payload names an image."""
        return self._folder is not None and isinstance(payload.get(IMAGE_FIELD), str)

    def thumbnail(self, payload: dict[str, Any], side: int) -> bytes:
        """Return an item's image as PNG or JPEG, its longer side at most ``side`` pixels.

        Raises:
            UnknownItemError: The item has no image, or its image is not inside the folder.
            DataError: The file is not an image.
        """
        path = self._path(payload)
        key = (str(path), path.stat().st_mtime_ns, side)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        content = _encode_thumbnail(path, side)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = content
                self._cached_bytes += len(content)
            while self._cached_bytes > _CACHE_BYTES:
                self._cached_bytes -= len(self._cache.popitem(last=False)[1])
        return content

    @staticmethod
    def media_type(thumbnail: bytes) -> str:
        """Return the media type of a thumbnail."""
        return "image/png" if thumbnail.startswith(b"\x89PNG") else "image/jpeg"

    def _path(self, payload: dict[str, Any]) -> Path:
        """File that a payload names, with links resolved, if it is inside the folder."""
        if self._folder is None or not self.has_image(payload):
            raise UnknownItemError(
                "the item has no image here; start the service with --images FOLDER"
            )
        try:
            path = (self._folder / str(payload[IMAGE_FIELD])).resolve()
            inside = path.is_relative_to(self._folder) and path.is_file()
        except (OSError, ValueError):  # not a valid file name
            inside = False
        if not inside:
            raise UnknownItemError("the item's image is not in the folder of images")
        return path


def _encode_thumbnail(path: Path, side: int) -> bytes:
    image = decode_image(path, side=side)
    out = io.BytesIO()
    if path.suffix.lower() in _LOSSLESS:
        image.save(out, "PNG")
    else:
        image.save(out, "JPEG", quality=85)
    return out.getvalue()

"""Files of the items, from one folder: thumbnails of images, audio, meshes and signals."""

import io
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crossbit.collection.values import IMAGE_FIELD
from crossbit.errors import NotFoundError
from crossbit.features.image import decode_image

MEDIA_TYPES = {
    "audio": {
        ".wav": "audio/wav",
        ".mp3": "audio/mpeg",
        ".ogg": "audio/ogg",
        ".flac": "audio/flac",
        ".m4a": "audio/mp4",
    },
    "mesh": {".off": "model/off", ".obj": "model/obj"},
    "signal": {".csv": "text/csv", ".json": "application/json"},
}
"""Payload field that names a file → the suffixes that it may have, and their media types."""

_MAX_MEDIA_BYTES = 32 << 20
_CACHE_BYTES = 64 << 20
_LOSSLESS = (".png", ".gif", ".bmp")  # drawings: JPEG would blur their edges


class MediaFolder:
    """The files of items in one folder, with a cache of the most recent thumbnails.

    A path comes from a payload, never from a request, and must still lead to a file inside the
    folder. Files are decoded and encoded again, so only images ever leave the machine.

    Args:
        path: The folder; without one, no item has an image.
        prefix: Path of the routes that URLs lead to.
    """

    def __init__(self, path: Path | None, prefix: str) -> None:
        self._prefix = prefix
        self._folder = None if path is None else path.resolve()
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._cached_bytes = 0

    def thumbnail(self, payload: dict[str, Any], side: int) -> bytes:
        """Return an item's image as PNG or JPEG, its longer side at most ``side`` pixels.

        Raises:
            NotFoundError: The item has no image, or its image is not inside the folder.
            DataError: The file is not an image.
        """
        name = payload.get(IMAGE_FIELD)
        if self._folder is None or not isinstance(name, str):
            raise NotFoundError(
                "the item has no image here; start the service with --images FOLDER"
            )
        path = _file(self._folder, name)
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

    def urls(self, key: str, payload: dict[str, Any]) -> tuple[str | None, dict[str, str]]:
        """Return the URLs of the thumbnail and of each file of the item with this key."""
        if self._folder is None:
            return None, {}
        id_ = quote(key, safe="")
        has_image = isinstance(payload.get(IMAGE_FIELD), str)
        picture = f"{self._prefix}/pictures?id={id_}" if has_image else None
        place = f"{self._prefix}/media?id={id_}&field="
        return picture, {field: place + field for field in _media_fields(payload)}

    def media(self, payload: dict[str, Any], field: str) -> tuple[Path, str]:
        """Return the file that a field names, and its media type.

        Raises:
            NotFoundError: The field names no such file, or one outside the folder.
        """
        if self._folder is None or field not in _media_fields(payload):
            raise NotFoundError(
                f"the item has no file {field!r} here; known: {sorted(MEDIA_TYPES)}"
            )
        path = _file(self._folder, payload[field])
        if path.stat().st_size > _MAX_MEDIA_BYTES:
            raise NotFoundError(f"the file is larger than {_MAX_MEDIA_BYTES >> 20} MB")
        suffix = path.suffix.lower()  # of the file itself, if the name is a link
        if suffix not in MEDIA_TYPES[field]:
            raise NotFoundError(f"the item's file is no {field}")
        return path, MEDIA_TYPES[field][suffix]

    @staticmethod
    def media_type(thumbnail: bytes) -> str:
        """Return the media type of a thumbnail."""
        return "image/png" if thumbnail.startswith(b"\x89PNG") else "image/jpeg"


def _media_fields(payload: dict[str, Any]) -> list[str]:
    """Fields of a payload that name a file of audio, a mesh or a signal."""
    return [
        field
        for field, types in MEDIA_TYPES.items()
        if isinstance(name := payload.get(field), str) and Path(name).suffix.lower() in types
    ]


def _file(folder: Path, name: str) -> Path:
    """File of a name, with links resolved, if it is inside the folder."""
    try:
        path = (folder / name).resolve()
        inside = path.is_relative_to(folder) and path.is_file()
    except (OSError, ValueError):  # not a valid file name
        inside = False
    if not inside:
        raise NotFoundError("the item's image is not in the folder of images")
    return path


def _encode_thumbnail(path: Path, side: int) -> bytes:
    image = decode_image(path, side=side)
    out = io.BytesIO()
    if path.suffix.lower() in _LOSSLESS:
        image.save(out, "PNG")
    else:
        image.save(out, "JPEG", quality=85)
    return out.getvalue()

"""Contents of files of unknown origin, read up to a number of bytes."""

from os import PathLike
from pathlib import Path

from crossbit.errors import DataError
from crossbit.features.extractor import RawInput


def read_content(raw: RawInput, what: str, max_bytes: int) -> bytes:
    """Return the content of a file; one that is too large is not read at all.

    Args:
        raw: Path or content of the file.
        what: What the file holds, such as ``"an image"``, for messages.
        max_bytes: Largest size of a file.

    Raises:
        DataError: The file cannot be read, is too large, or the input is neither path nor bytes.
    """
    if isinstance(raw, str | PathLike):
        path = Path(raw)
        try:
            if path.is_file() and path.stat().st_size > max_bytes:
                raise DataError(f"a file of more than {max_bytes // 10**6} MB; reduce it first")
            return path.read_bytes()
        except DataError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"cannot be read ({reason})") from error
    if not isinstance(raw, bytes):
        raise DataError(f"expected the path or the bytes of {what}, got {type(raw).__name__}")
    if len(raw) > max_bytes:
        raise DataError(f"more than {max_bytes // 10**6} MB; reduce it first")
    return raw

"""Folders that are replaced atomically and verified by a manifest.

A model or a data set is a folder with one JSON file, its *manifest*, that lists every other file
with its size and SHA-256 and ends with a checksum of itself. Truncated, modified and newer files
are detected and named.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from crossbit._io.files import check_version, read_json, sha256, sync_folder, write_json
from crossbit.errors import CrossbitError, DataError, FormatError

T = TypeVar("T")
_TRIES = 5
_PAUSE = 0.02  # seconds; swapping two folders takes far less


@contextmanager
def replace_folder(path: Path, manifest: str, format_: str) -> Iterator[Path]:
    """Yield a new folder beside ``path`` and move it to ``path`` if the block succeeds.

    An existing folder at ``path`` is replaced only if it has the same format and holds nothing but
    the files its manifest lists, so that a wrong path never deletes other files. It is renamed
    first and deleted last: at every moment the old folder or the new one is on disk. Writers take
    turns.
    """
    path = Path(path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with dir_lock(path.parent):  # not while another writer swaps folders
        _check_replaceable(path, manifest, format_)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    fresh.chmod(0o755)
    old = fresh.with_suffix(".old")
    try:
        yield fresh
        sync_folder(fresh)
        with dir_lock(path.parent):
            _swap(path, fresh, old)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _swap(path: Path, fresh: Path, old: Path) -> None:
    """Put the new folder in the place of the old one, or restore the old one."""
    try:
        if path.exists():
            os.replace(path, old)
        os.replace(fresh, path)
    except BaseException:
        if old.exists():
            os.replace(old, path)
        raise
    sync_folder(path.parent)


def _check_replaceable(path: Path, manifest: str, format_: str) -> None:
    """Refuse to replace a folder that Crossbit did not write."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    kind = format_.partition("/")[0]
    content = read_json(path / manifest) if (path / manifest).is_file() else None
    if not isinstance(content, dict) or str(content.get("format")).partition("/")[0] != kind:
        raise DataError(
            f"{path} exists and has no {manifest} of format {kind!r};"
            " choose another path or delete it"
        )
    listed = {path / manifest, *(path / name for name in content.get("files", ()))}
    if foreign := sorted(
        str(each.relative_to(path)) for each in path.iterdir() if each not in listed
    ):
        raise DataError(
            f"{path} also holds {foreign}, which would be deleted; move them or choose another path"
        )


@contextmanager
def dir_lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder (POSIX only); it ends with the process at the latest."""
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def retry_read(folder: Path, manifest: str, read: Callable[[], T]) -> T:
    """Call ``read``, again if the folder was replaced meanwhile."""
    for _ in range(_TRIES):
        before = _identity(folder / manifest)
        try:
            return read()
        except (CrossbitError, OSError):
            time.sleep(_PAUSE)
            if _identity(folder / manifest) == before:
                raise
    return read()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def write_manifest(folder: Path, manifest: str, content: Mapping[str, Any]) -> None:
    """Write ``content`` with size and SHA-256 of every file in the folder, and a checksum."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    complete = {**content, "files": files}
    write_json(folder / manifest, {**complete, "checksum": _checksum(complete)})


def read_manifest(
    folder: Path, manifest: str, format_: str, *, verify: bool = True
) -> dict[str, Any]:
    """Read a manifest and compare the folder with it.

    Args:
        folder: The folder.
        manifest: File name of the manifest.
        format_: Expected format, such as ``"crossbit.model/1"``.
        verify: Also compare the SHA-256 of every file, which reads them all; sizes are always
            compared.

    Raises:
        DataError: There is no such folder.
        FormatError: A file is truncated, modified, missing, or of another version.
    """
    path = Path(folder) / manifest
    if not path.is_file():
        raise DataError(f"{folder}: no {manifest} found; expected a folder of format {format_!r}")
    content = read_json(path)
    if not isinstance(content, dict):
        raise FormatError(f"{path}: expected a JSON object of format {format_!r}")
    check_version(path, content.get("format"), format_)
    if content.pop("checksum", None) != _checksum(content):
        raise FormatError(f"{path}: does not match its own checksum; the file was modified")
    files = content.get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise FormatError(f"{path}: has no valid list of files")
    for name, entry in files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise FormatError(f"{path}: lists {name!r}, which is outside the folder")
        _check_file(Path(folder) / name, entry, verify=verify)
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content as canonical JSON."""
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _check_file(path: Path, entry: Mapping[str, Any], *, verify: bool) -> None:
    if not path.is_file():
        raise FormatError(f"{path}: is missing")
    if (size := path.stat().st_size) != entry.get("bytes"):
        raise FormatError(
            f"{path}: expected {entry.get('bytes')} bytes, got {size};"
            " the file is truncated or modified"
        )
    if verify and sha256(path) != entry.get("sha256"):
        raise FormatError(f"{path}: does not match its SHA-256; the file is corrupted")

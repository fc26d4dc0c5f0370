"""Folders that are replaced atomically and verified by a manifest.

A model or a data set is a folder with one JSON file, its *manifest*, that lists every other file
with its size and SHA-256 and ends with a checksum of itself. Truncated, modified and newer files
are detected and named.
"""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from crossbit._io.files import (
    RENAME_EXCHANGE,
    check_version,
    make_folders,
    read_json,
    rename,
    sha256,
    sync_folder,
    temporary_path,
    write_json,
)
from crossbit.errors import CrossbitError, DataError, FormatError

T = TypeVar("T")
_TRIES = 5
_PAUSE = 0.02  # seconds; swapping two folders takes far less


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path`` and move it to ``path`` if the block succeeds.

    Raises:
        DataError: ``path`` exists and is not an empty folder, before or after the block.
    """
    path = Path(path).resolve()
    _check_empty(path)
    with _draft(path) as fresh:
        yield fresh
        with dir_lock(path.parent):
            _publish(fresh, path)


@contextmanager
def replace_folder(
    path: Path, manifest: str, format_: str, *, parents: bool = True
) -> Iterator[Path]:
    """Yield a new folder beside ``path`` and move it to ``path`` if the block succeeds.

    An existing folder at ``path`` is replaced only if it has the same format and holds nothing but
    the files its manifest lists, so that a wrong path never deletes other files. Linux exchanges
    the two folders in one step. Elsewhere the old one is renamed first, and a reader that finds it
    without its successor moves it back. Writers take turns. Missing parents are created if wanted.
    """
    path = Path(path).resolve()
    with _draft(path, parents=parents) as fresh:
        _recover(path)
        with dir_lock(path.parent):  # not while another writer swaps folders
            _check_replaceable(path, manifest, format_)
        yield fresh
        with dir_lock(path.parent):
            _check_replaceable(path, manifest, format_)  # what came there meanwhile is not deleted
            if _is_empty(path):
                _publish(fresh, path)
            else:
                _swap(fresh, path)


@contextmanager
def _draft(path: Path, *, parents: bool = True) -> Iterator[Path]:
    """Yield a new folder beside ``path``; what is left of it at the end is deleted."""
    try:
        if parents:
            make_folders(path.parent)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(
            f"{path}: a parent of this path is a file, not a folder; choose another path"
        ) from error
    fresh = temporary_path(path)
    try:
        fresh.mkdir()
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _publish(fresh: Path, path: Path) -> None:
    """Move a complete folder to a path that does not exist or is an empty folder."""
    sync_folder(fresh)
    try:
        if os.name != "posix" and path.is_dir():
            path.rmdir()
        fresh.rename(path)  # never replaces a folder with content
    except OSError:
        _check_empty(path)
        raise
    sync_folder(path.parent)


def _swap(fresh: Path, path: Path) -> None:
    """Exchange two folders."""
    sync_folder(fresh)
    if not rename(fresh, path, RENAME_EXCHANGE):
        old = _old_path(path)
        shutil.rmtree(old, ignore_errors=True)  # a swap that was interrupted after it had succeeded
        try:
            path.rename(old)
            fresh.rename(path)
        except BaseException:
            if not path.exists():
                old.rename(path)
            raise
        sync_folder(path.parent)  # before the old folder loses the name that readers look for
        old.rename(fresh)
    sync_folder(path.parent)


def _old_path(path: Path) -> Path:
    """Return where the old folder is between the two renames of a swap in two steps."""
    return path.with_name(f".{path.name}.old")


def _recover(path: Path) -> None:
    """Move a folder back whose swap was interrupted between its two renames."""
    old = _old_path(path)
    if not old.is_dir():
        return
    with dir_lock(path.parent):  # a running swap ends first
        if old.is_dir() and _is_empty(path):
            old.rename(path)
            sync_folder(path.parent)


def _is_empty(path: Path) -> bool:
    """Whether there is nothing at a path, or an empty folder."""
    return not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))


def _check_empty(path: Path) -> None:
    if not _is_empty(path):
        raise DataError(f"{path}: exists already; choose another path, or delete it first")


def _check_replaceable(path: Path, manifest: str, format_: str) -> None:
    """Refuse to replace a folder that Crossbit did not write."""
    if _is_empty(path):
        return
    kind = format_.partition("/")[0]
    content = read_json(path / manifest) if (path / manifest).is_file() else None
    if not isinstance(content, dict) or str(content.get("format")).partition("/")[0] != kind:
        raise DataError(
            f"{path} exists and has no {manifest} of format {kind!r};"
            " choose another path or delete it"
        )
    listed = {path / manifest, *(path / str(name) for name in content.get("files") or ())}
    if foreign := sorted(
        str(each.relative_to(path)) for each in path.iterdir() if each not in listed
    ):
        raise DataError(
            f"{path} also holds {foreign}, which would be deleted; move them or choose another path"
        )


@contextmanager
def dir_lock(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on a folder; it ends with the process at the latest.

    Raises:
        BlockingIOError: Another process holds it and ``wait`` is False.
    """
    if sys.platform == "win32":
        with _locked_file(folder / ".crossbit.lock", wait=wait):
            yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":

    @contextmanager
    def _locked_file(path: Path, *, wait: bool) -> Iterator[None]:
        """Hold a lock on the first byte of a file, because Windows cannot lock folders."""
        import msvcrt

        with path.open("a+b") as file:
            while True:
                file.seek(0)
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                    break
                except OSError as error:
                    if not wait:
                        raise BlockingIOError(*error.args) from error
                    time.sleep(_PAUSE)  # another process holds it longer than Windows waits
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)


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
        format_: Expected format, such as ``"crossbit.model/2"``.
        verify: Also compare the SHA-256 of every file, which reads them all; sizes are always
            compared.

    Raises:
        DataError: There is no such folder.
        FormatError: A file is truncated, modified, missing, or of another version.
    """
    path = Path(folder) / manifest
    if not path.is_file():
        with suppress(OSError):  # a folder that cannot be written stays as it is
            _recover(Path(folder).resolve())
    if not Path(folder).exists():
        raise DataError(f"{folder}: no such folder; expected one of format {format_!r}")
    if not path.is_file():
        raise DataError(f"{folder}: no {manifest} found; expected a folder of format {format_!r}")
    _check_inside(path, Path(folder))
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
        _check_inside(Path(folder) / name, Path(folder))
        _check_file(Path(folder) / name, entry, verify=verify)
    return content


def _check_inside(path: Path, folder: Path) -> None:
    """Reject a link that leads out of the folder, to a file that somebody else may not see."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise FormatError(f"{path}: is a link to a file outside the folder; copy the file instead")


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

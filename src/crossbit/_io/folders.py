"""Folders that are whole or absent, and know their own content.

A model or a data set is a folder with one JSON file, its *manifest*, that names every other file with its size and
SHA-256 and ends with a checksum of itself: a truncated, altered or newer file is found out and named.
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
_TRIES, _PAUSE = 5, 0.02  # a swap takes far less than the pause


@contextmanager
def replacing_folder(path: Path, manifest: str, format_: str) -> Iterator[Path]:
    """Fill a folder beside ``path`` and move it there when the block ends well.

    An earlier folder at ``path`` gives way only when it is of the same kind and holds nothing but what its manifest
    names, so that a slip in a path never costs somebody's files. It is set aside first and removed last: at no
    moment is there neither the old folder nor the new one on disk. Writers take turns.
    """
    path = Path(path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(path.parent):  # not in the middle of somebody's swap
        _check_replaceable(path, manifest, format_)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    fresh.chmod(0o755)
    aside = fresh.with_suffix(".old")
    try:
        yield fresh
        sync_folder(fresh)
        with only_writer(path.parent):
            _swap(path, fresh, aside)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _swap(path: Path, fresh: Path, aside: Path) -> None:
    """Put the fresh folder in the place of the old one, or leave the old one where it is."""
    try:
        if path.exists():
            os.replace(path, aside)
        os.replace(fresh, path)
    except BaseException:
        if aside.exists():
            os.replace(aside, path)
        raise
    sync_folder(path.parent)


def _check_replaceable(path: Path, manifest: str, format_: str) -> None:
    """Refuse to replace anything that we did not write ourselves."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    kind = format_.partition("/")[0]
    found = read_json(path / manifest) if (path / manifest).is_file() else None
    if not isinstance(found, dict) or str(found.get("format")).partition("/")[0] != kind:
        raise DataError(
            f"{path} exists and holds no {manifest} of {kind!r}; choose another place or remove it"
        )
    ours = {path / manifest, *(path / name for name in found.get("files", ()))}
    if strangers := sorted(
        str(each.relative_to(path)) for each in path.iterdir() if each not in ours
    ):
        raise DataError(
            f"{path} also holds {strangers}, which replacing it would delete; move them or choose another place"
        )


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, where the system has such locks; it goes with the process, whatever happens."""
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


def reading(folder: Path, manifest: str, read: Callable[[], T]) -> T:
    """Read a folder, again when somebody replaced it meanwhile."""
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
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns


def seal(folder: Path, manifest: str, content: Mapping[str, Any]) -> None:
    """Write the manifest: ``content``, the size and SHA-256 of every file in the folder, and its own checksum."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    sealed = {**content, "files": files}
    write_json(folder / manifest, {**sealed, "checksum": _checksum(sealed)})


def unseal(folder: Path, manifest: str, format_: str, *, verify: bool = True) -> dict[str, Any]:
    """Read a manifest and hold the folder against it.

    Args:
        folder: The folder.
        manifest: The name of its manifest.
        format_: The format expected, such as ``"crossbit.model/1"``.
        verify: Compare the SHA-256 of every file too, which reads them all; sizes are always compared.

    Raises:
        DataError: There is no such folder.
        FormatError: Something in it is truncated, altered, missing, or of another version.
    """
    path = Path(folder) / manifest
    if not path.is_file():
        raise DataError(
            f"{folder}: there is no {manifest} in it; expected a folder of format {format_!r}"
        )
    content = read_json(path)
    if not isinstance(content, dict):
        raise FormatError(f"{path}: expected a JSON object of format {format_!r}")
    check_version(path, content.get("format"), format_)
    if content.pop("checksum", None) != _checksum(content):
        raise FormatError(f"{path}: does not match its own checksum; the file was altered")
    files = content.get("files")
    if not isinstance(files, dict) or not all(isinstance(facts, dict) for facts in files.values()):
        raise FormatError(f"{path}: does not say which files belong to it")
    for name, facts in files.items():
        _check_file(Path(folder) / name, facts, verify=verify)
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content in one canonical spelling."""
    spelled = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(spelled.encode()).hexdigest()


def _check_file(path: Path, facts: Mapping[str, Any], *, verify: bool) -> None:
    if not path.is_file():
        raise FormatError(f"{path}: is missing")
    if (size := path.stat().st_size) != facts.get("bytes"):
        raise FormatError(
            f"{path}: {size} bytes where {facts.get('bytes')} were written; the file is truncated or altered"
        )
    if verify and sha256(path) != facts.get("sha256"):
        raise FormatError(f"{path}: does not match its SHA-256; the file was altered or damaged")

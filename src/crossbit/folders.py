"""Folders that are whole or absent, and know their own content.

A model or a data set is a folder with one JSON file, its *manifest*, that names every other file with its size and
SHA-256 and ends with a checksum of itself: a truncated, altered or newer file is found out and named.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossbit.errors import DataError, FormatError
from crossbit.files import check_version, read_json, sha256, sync_folder, write_json


@contextmanager
def replacing_folder(path: Path, manifest: str) -> Iterator[Path]:
    """Fill a folder beside ``path`` and move it there when the block ends well.

    An earlier folder at ``path`` gives way only when it holds the same kind of manifest, so that
    a slip in a path never costs somebody's files. It is set aside first and removed last: at no moment
    is there neither the old folder nor the new one on disk.
    """
    path = Path(path).absolute()
    if path.exists() and not (path / manifest).is_file() and not _is_empty(path):
        raise DataError(f"{path} exists and holds no {manifest}; choose another place or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    fresh.chmod(0o755)
    aside = fresh.with_suffix(".old")
    try:
        yield fresh
        sync_folder(fresh)
        if path.exists():
            os.replace(path, aside)
        os.replace(fresh, path)
    except BaseException:
        if aside.exists():
            os.replace(aside, path)
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    sync_folder(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and next(path.iterdir(), None) is None


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
        raise DataError(f"{folder}: there is no {manifest} in it; expected a folder of format {format_!r}")
    content = read_json(path)
    if not isinstance(content, dict):
        raise FormatError(f"{path}: expected a JSON object of format {format_!r}")
    check_version(path, content.get("format"), format_)
    if content.pop("checksum", None) != _checksum(content):
        raise FormatError(f"{path}: does not match its own checksum; the file was altered")
    for name, facts in content["files"].items():
        _check_file(Path(folder) / name, facts, verify=verify)
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content in one canonical spelling."""
    spelled = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(spelled.encode()).hexdigest()


def _check_file(path: Path, facts: Mapping[str, Any], *, verify: bool) -> None:
    if not path.is_file():
        raise FormatError(f"{path}: is missing")
    if (size := path.stat().st_size) != facts["bytes"]:
        raise FormatError(f"{path}: {size} bytes where {facts['bytes']} were written; the file is truncated or altered")
    if verify and sha256(path) != facts["sha256"]:
        raise FormatError(f"{path}: does not match its SHA-256; the file was altered or damaged")

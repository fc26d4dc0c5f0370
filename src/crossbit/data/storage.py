"""A data set as a folder.

```
dataset.json      format, name, source, license, classes, views; bytes and SHA-256 of every file
<modality>.npy    rows of features, memory-mapped when loaded
labels.npy        classes, −1 for unknown (labels-<modality>.npy if the views are unpaired)
labels.npz        multiple labels per row: "packed", eight per byte, and "n_classes"
pairs.npz         "index0", "similar0", …: row numbers and similarity, in the order of dataset.json
splits.json       split → rows such as "0:2173" or "4,7,9:12"; per modality if unpaired
payload.jsonl     one JSON object per row (payload-<modality>.jsonl if the views are unpaired)
```
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbit._io.arrays import check_memory, npz_arrays, read_npy
from crossbit._io.files import atomic_write, read_json, write_json
from crossbit._io.folders import read_manifest, replace_folder, write_manifest
from crossbit._progress import OnStep, Step
from crossbit._validation import check_modality
from crossbit.data.pairs import Pairs
from crossbit.errors import DataError, FormatError

if TYPE_CHECKING:
    from crossbit.data.dataset import Dataset

FORMAT = "crossbit.dataset/1"
MANIFEST = "dataset.json"
_BLOCK_BYTES = 1 << 25
_RUN = re.compile(r"([0-9]+)(?::([0-9]+))?")


class Readable(Protocol):
    """Rows that can be read one block at a time: an array, or a file larger than memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers."""
        ...

    def __getitem__(self, rows: slice, /) -> Any:  # noqa: ANN401 - an array of those rows
        """Read a block of rows."""
        ...


def save(
    folder: Path,
    data: "Dataset",
    views: Mapping[str, Readable],
    *,
    on_step: OnStep | None = None,
) -> None:
    """Write a data set folder atomically.

    Args:
        folder: The folder to write.
        data: Everything but the views.
        views: Modality → rows, copied to disk block by block.
        on_step: Called with the number of rows that are written, over all views.
    """
    total = sum(int(view.shape[0]) for view in views.values())
    done = 0
    with replace_folder(folder, MANIFEST, FORMAT) as fresh:
        for name, view in views.items():
            for rows in _write_view(fresh / f"{name}.npy", view):
                done += rows
                if on_step is not None:
                    on_step(Step(done, total))
        for stem, labels in _files_of("labels", data.labels):
            _write_labels(fresh, stem, labels)
        for stem, objects in _files_of("payload", data.payload):
            _write_lines(fresh / f"{stem}.jsonl", objects)
        _write_pairs(fresh / "pairs.npz", data.pairs)
        splits = {name: _format_each(rows) for name, rows in data.splits.items()}
        write_json(fresh / "splits.json", splits)
        manifest = {
            "format": FORMAT,
            "name": data.name,
            "source": data.source,
            "licence": data.license,  # format 1 uses the British spelling
            "classes": list(data.classes),
            "views": {name: list(view.shape) for name, view in views.items()},
            "pairs": [[pairs.left, pairs.right] for pairs in data.pairs],
        }
        write_manifest(fresh, MANIFEST, manifest)


def load(folder: Path, *, verify: bool) -> dict[str, Any]:
    """Return the content of a folder as the arguments of `Dataset`, its views memory-mapped."""
    manifest = read_manifest(folder, MANIFEST, FORMAT, verify=verify)
    _check_manifest(folder, manifest)
    try:
        views = {
            check_modality(name): _read_view(folder / f"{name}.npy", shape)
            for name, shape in manifest["views"].items()
        }
        sizes = {name: len(view) for name, view in views.items()}
        labels = {
            m: _read_labels(folder, stem, manifest["files"]) for m, stem in _stems("labels", sizes)
        }
        payload = {
            m: _read_lines(folder / f"{stem}.jsonl", manifest["files"])
            for m, stem in _stems("payload", sizes)
        }
        return {
            "views": views,
            "labels": _merge(labels),
            "pairs": _read_pairs(folder / "pairs.npz", manifest["pairs"]),
            "splits": {
                part: _parse_each(rows, sizes)
                for part, rows in read_json(folder / "splits.json").items()
            },
            "payload": _merge(payload),
            **{key: manifest[key] for key in ("name", "source", "classes")},
            "license": manifest["licence"],
        }
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise FormatError(f"{folder}: {MANIFEST} or splits.json is corrupted ({error})") from error


def _read_view(path: Path, shape: Sequence[int]) -> NDArray[Any]:
    """Map a view into memory; its shape must be the one in the manifest."""
    view = read_npy(path, mapped=True)
    if list(view.shape) != list(shape) or 0 in view.shape[1:]:
        raise FormatError(f"{path}: expected shape {list(shape)}, got {list(view.shape)}")
    return view


def _check_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Reject a manifest whose entries have other types than `save` writes."""
    views = manifest.get("views")
    pairs = manifest.get("pairs")
    valid = {
        "views": isinstance(views, dict)
        and bool(views)
        and all(isinstance(v, list) and v for v in views.values()),
        "pairs": isinstance(pairs, list)
        and all(_are_words(kind) and len(kind) == 2 for kind in pairs),
        "classes": _are_words(manifest.get("classes")),
        **{key: isinstance(manifest.get(key), str) for key in ("name", "source", "licence")},
    }
    if invalid := {key: manifest.get(key) for key, ok in valid.items() if not ok}:
        raise FormatError(f"{folder / MANIFEST}: invalid entries {invalid}; the file is corrupted")


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _files_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """File stem → value, for a value of the aligned views or one value per modality."""
    if isinstance(value, Mapping):
        yield from ((f"{name}-{modality}", part) for modality, part in value.items())
    elif value is not None:
        yield name, value


def _stems(name: str, modalities: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("", name), *((modality, f"{name}-{modality}") for modality in modalities)]


def _merge(values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Inverse of `_files_of`."""
    if values[""] is not None:
        return values[""]
    return {modality: value for modality, value in values.items() if value is not None} or None


def _write_view(path: Path, view: Readable) -> Iterator[int]:
    """Write a view block by block, and yield the number of rows of each block."""
    dtype = view.dtype.newbyteorder("<")
    step = max(1, _BLOCK_BYTES // max(1, dtype.itemsize * int(np.prod(view.shape[1:]))))
    header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(map(int, view.shape))}
    with atomic_write(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, view.shape[0], step):
            block = np.ascontiguousarray(view[start : start + step], dtype)
            file.write(block.data)
            yield len(block)


def _write_labels(folder: Path, stem: str, labels: NDArray[Any]) -> None:
    if labels.ndim == 1:
        with atomic_write(folder / f"{stem}.npy") as file:
            np.save(file, labels, allow_pickle=False)
    else:
        with atomic_write(folder / f"{stem}.npz") as file:
            np.savez_compressed(
                file, packed=np.packbits(labels, axis=1), n_classes=np.int64(labels.shape[1])
            )


def _read_labels(folder: Path, stem: str, files: Mapping[str, Any]) -> NDArray[Any] | None:
    if f"{stem}.npy" in files:
        return read_npy(folder / f"{stem}.npy")
    if f"{stem}.npz" not in files:
        return None
    stored = _read_npz(folder / f"{stem}.npz")
    packed = stored["packed"]
    count = int(stored["n_classes"])
    if packed.ndim != 2 or not 0 <= 8 * packed.shape[1] - count < 8:
        raise ValueError(f"{count} classes in an array of shape {packed.shape}")
    check_memory(f"{folder / stem}.npz", len(packed) * count)
    return np.unpackbits(packed, axis=1, count=count).view(np.bool_)


def _write_pairs(path: Path, pairs: Sequence[Pairs]) -> None:
    if pairs:
        arrays: dict[str, Any] = {f"index{k}": each.index for k, each in enumerate(pairs)}
        arrays |= {f"similar{k}": each.similar for k, each in enumerate(pairs)}
        with atomic_write(path) as file:
            np.savez_compressed(file, **arrays)


def _read_pairs(path: Path, kinds: Sequence[Sequence[str]]) -> list[Pairs]:
    stored = _read_npz(path) if kinds else {}
    return [
        Pairs(left, right, stored[f"index{k}"], stored[f"similar{k}"])
        for k, (left, right) in enumerate(kinds)
    ]


def _write_lines(path: Path, objects: Sequence[Mapping[str, Any]]) -> None:
    with atomic_write(path) as file:
        for row, value in enumerate(objects):
            try:
                line = json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
                file.write((line + "\n").encode())
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"payload: row {row} (counted from 0) cannot be written as JSON ({error})"
                ) from error


def _read_lines(path: Path, files: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    if path.name not in files:
        return None
    try:
        # Not splitlines: a caption may contain U+2028, which JSON does not escape.
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    except ValueError as error:
        raise FormatError(
            f"{path}: a line is not valid JSON ({error}); the file is corrupted"
        ) from error


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an archive; pickles are rejected."""
    arrays = dict(npz_arrays(path))
    pickles = [name for name, array in arrays.items() if array is None]
    if pickles:
        raise FormatError(f"{path}: {pickles} hold Python objects; the file is corrupted")
    return {name: array for name, array in arrays.items() if array is not None}


def _format_rows(rows: NDArray[np.int64]) -> str:
    """Format row numbers as text, runs as ``first:end``: 0 1 2 7 → ``"0:3,7"``."""
    if not len(rows):
        return ""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    firsts = rows[np.append(0, cuts)].tolist()
    lasts = rows[np.append(cuts, len(rows)) - 1].tolist()
    return ",".join(f"{a}:{b + 1}" if b > a else f"{a}" for a, b in zip(firsts, lasts, strict=True))


def _parse_rows(text: str, n: int) -> NDArray[np.int64]:
    """Inverse of `_format_rows`; every row number must be below ``n``."""
    runs = [np.empty(0, np.int64)]
    for run in text.split(",") if text else ():
        match = _RUN.fullmatch(run)
        end = int(match[2] or int(match[1]) + 1) if match else n + 1
        if match is None or end > n:
            raise FormatError(f"expected rows like '0:3,7' below {n}, got {run!r}")
        runs.append(np.arange(int(match[1]), end))
    return np.concatenate(runs)


def _format_each(rows: Any) -> Any:  # noqa: ANN401
    if isinstance(rows, Mapping):
        return {modality: _format_rows(part) for modality, part in rows.items()}
    return _format_rows(rows)


def _parse_each(text: Any, sizes: Mapping[str, int]) -> Any:  # noqa: ANN401
    if isinstance(text, Mapping):
        return {modality: _parse_rows(part, sizes[modality]) for modality, part in text.items()}
    return _parse_rows(text, min(sizes.values()))

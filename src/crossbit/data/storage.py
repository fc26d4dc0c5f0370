"""A data set as a folder.

```
dataset.json            format, name, source, license, classes, the views; bytes and SHA-256 of every other file
<modality>.npy          rows of features, memory-mapped when opened
labels.npy              classes, −1 for unknown        (labels-<modality>.npy when the views are unpaired)
labels.npz              several labels a row: "packed", eight a byte, and "n_classes"
pairs.npz               "index0", "similar0", …: row numbers and answers, in the order dataset.json names them
splits.json             part → rows such as "0:2173" or "4,7,9:12"; per modality when the views are unpaired
payload.jsonl           one JSON object a row          (payload-<modality>.jsonl when the views are unpaired)
```
"""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import read_json, replacing, write_json
from crossbit._io.folders import replacing_folder, seal, unseal
from crossbit._validation import modality_name
from crossbit.data.pairs import Pairs
from crossbit.errors import DataError, FormatError

FORMAT = "crossbit.dataset/1"
_ON_DISK = {"license": "licence"}  # keys that format 1 spells differently
MANIFEST = "dataset.json"
_BLOCK_BYTES = 1 << 25
_RUN = re.compile(r"([0-9]+)(?::([0-9]+))?")


class Readable(Protocol):
    """Rows that can be read a stretch at a time: an array, or a file larger than memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers."""
        ...

    def __getitem__(self, rows: slice, /) -> Any:  # noqa: ANN401 - an array of those rows
        """A stretch of rows."""
        ...


def write(
    folder: Path,
    *,
    views: Mapping[str, Readable],
    labels: NDArray[Any] | Mapping[str, NDArray[Any]] | None,
    pairs: Sequence[Pairs],
    splits: Mapping[str, Any],
    payload: Any,  # noqa: ANN401 - objects of all rows, or modality → objects
    about: Mapping[str, Any],
) -> None:
    """Write the parts of a data set, whole or not at all; the views go to disk block by block."""
    with replacing_folder(folder, MANIFEST, FORMAT) as place:
        for name, view in views.items():
            _write_view(place / f"{name}.npy", view)
        for stem, some in _spread("labels", labels):
            _write_labels(place, stem, some)
        for stem, objects in _spread("payload", payload):
            _write_lines(place / f"{stem}.jsonl", objects)
        _write_pairs(place / "pairs.npz", pairs)
        write_json(
            place / "splits.json", {part: _spell_each(rows) for part, rows in splits.items()}
        )
        shapes = {name: list(view.shape) for name, view in views.items()}
        kinds = [[some.left, some.right] for some in pairs]
        facts = {_ON_DISK.get(key, key): value for key, value in about.items()}
        seal(place, MANIFEST, {"format": FORMAT, **facts, "views": shapes, "pairs": kinds})


def read(folder: Path, *, verify: bool) -> dict[str, Any]:
    """Read the parts of a data set as the arguments of `Dataset`, its views memory-mapped."""
    facts = unseal(folder, MANIFEST, FORMAT, verify=verify)
    _check_facts(folder, facts)
    try:
        sizes = {modality_name(name): shape[0] for name, shape in facts["views"].items()}
        labels = {
            m: _read_labels(folder, stem, facts["files"]) for m, stem in _stems("labels", sizes)
        }
        payload = {
            m: _read_lines(folder / f"{stem}.jsonl", facts["files"])
            for m, stem in _stems("payload", sizes)
        }
        return {
            "views": {name: _load(folder / f"{name}.npy", mapped=True) for name in sizes},
            "labels": _gather(labels),
            "pairs": _read_pairs(folder / "pairs.npz", facts["pairs"]),
            "splits": {
                part: _rows_each(rows, sizes)
                for part, rows in read_json(folder / "splits.json").items()
            },
            "payload": _gather(payload),
            **{key: facts[key] for key in ("name", "source", "classes")},
            "license": facts["licence"],
        }
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise FormatError(f"{folder}: {MANIFEST} or splits.json is damaged ({error})") from error


def _check_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Refuse a manifest whose entries are not of the kinds that `write` writes."""
    views, pairs, classes = (facts.get(key) for key in ("views", "pairs", "classes"))
    sound = {
        "views": isinstance(views, dict)
        and bool(views)
        and all(isinstance(v, list) and v for v in views.values()),
        "pairs": isinstance(pairs, list)
        and all(_are_words(kind) and len(kind) == 2 for kind in pairs),
        "classes": _are_words(classes),
        **{key: isinstance(facts.get(key), str) for key in ("name", "source", "licence")},
    }
    if wrong := {key: facts.get(key) for key, well in sound.items() if not well}:
        raise FormatError(
            f"{folder / MANIFEST}: these entries cannot be: {wrong}; the file is damaged"
        )


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _spread(name: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - labels or payload alike
    """The files that hold a value of aligned views, or of each modality by itself."""
    if isinstance(value, Mapping):
        yield from ((f"{name}-{modality}", some) for modality, some in value.items())
    elif value is not None:
        yield name, value


def _stems(name: str, modalities: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("", name), *((modality, f"{name}-{modality}") for modality in modalities)]


def _gather(found: Mapping[str, Any]) -> Any:  # noqa: ANN401 - labels or payload alike
    """The inverse of `_spread`."""
    if found[""] is not None:
        return found[""]
    return {modality: some for modality, some in found.items() if some is not None} or None


def _write_view(path: Path, view: Readable) -> None:
    dtype = view.dtype.newbyteorder("<")
    step = max(1, _BLOCK_BYTES // max(1, dtype.itemsize * int(np.prod(view.shape[1:]))))
    header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(map(int, view.shape))}
    with replacing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, view.shape[0], step):
            file.write(np.ascontiguousarray(view[start : start + step], dtype).data)


def _write_labels(place: Path, stem: str, labels: NDArray[Any]) -> None:
    if labels.ndim == 1:
        with replacing(place / f"{stem}.npy") as file:
            np.save(file, labels, allow_pickle=False)
    else:
        with replacing(place / f"{stem}.npz") as file:
            np.savez_compressed(
                file, packed=np.packbits(labels, axis=1), n_classes=np.int64(labels.shape[1])
            )


def _read_labels(folder: Path, stem: str, files: Mapping[str, Any]) -> NDArray[Any] | None:
    if f"{stem}.npy" in files:
        classes: NDArray[Any] = _load(folder / f"{stem}.npy")
        return classes
    if f"{stem}.npz" not in files:
        return None
    stored = _load(folder / f"{stem}.npz")
    return np.unpackbits(stored["packed"], axis=1, count=int(stored["n_classes"])).view(np.bool_)


def _write_pairs(path: Path, pairs: Sequence[Pairs]) -> None:
    if pairs:
        arrays: dict[str, Any] = {f"index{k}": some.index for k, some in enumerate(pairs)}
        arrays |= {f"similar{k}": some.similar for k, some in enumerate(pairs)}
        with replacing(path) as file:
            np.savez_compressed(file, **arrays)


def _read_pairs(path: Path, kinds: Sequence[Sequence[str]]) -> list[Pairs]:
    stored = _load(path) if kinds else {}
    return [
        Pairs(left, right, stored[f"index{k}"], stored[f"similar{k}"])
        for k, (left, right) in enumerate(kinds)
    ]


def _write_lines(path: Path, objects: Sequence[Mapping[str, Any]]) -> None:
    with replacing(path) as file:
        for row, some in enumerate(objects):
            try:
                file.write(
                    (json.dumps(dict(some), ensure_ascii=False, allow_nan=False) + "\n").encode()
                )
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"payload: row {row} cannot be written as JSON ({error})"
                ) from error


def _read_lines(path: Path, files: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    if path.name not in files:
        return None
    try:
        # Not splitlines: a caption may hold U+2028, which JSON leaves as it is.
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    except ValueError as error:
        raise FormatError(
            f"{path}: a line is not valid JSON ({error}); the file is damaged"
        ) from error


def _load(path: Path, *, mapped: bool = False) -> Any:  # noqa: ANN401 - an array, or the arrays of an archive
    """Load an array, or the arrays of a small archive, refusing pickles."""
    try:
        if mapped:
            with suppress(ValueError):  # an array without elements cannot be mapped
                return np.load(path, mmap_mode="r", allow_pickle=False)
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return dict(found) if isinstance(found, np.lib.npyio.NpzFile) else found
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise FormatError(
            f"{path}: cannot be read as an array ({error}); the file is damaged"
        ) from error


def spell(rows: NDArray[np.int64]) -> str:
    """Row numbers as text, runs as ``first:end``: 0 1 2 7 → ``"0:3,7"``."""
    if not len(rows):
        return ""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    firsts, lasts = rows[np.append(0, cuts)].tolist(), rows[np.append(cuts, len(rows)) - 1].tolist()
    return ",".join(f"{a}:{b + 1}" if b > a else f"{a}" for a, b in zip(firsts, lasts, strict=True))


def unspell(text: str, n: int) -> NDArray[np.int64]:
    """The inverse of `spell`, for rows below ``n``."""
    runs = [np.empty(0, np.int64)]
    for run in text.split(",") if text else ():
        match = _RUN.fullmatch(run)
        first, end = (int(match[1]), int(match[2] or int(match[1]) + 1)) if match else (0, n + 1)
        if end > n:
            raise FormatError(f"rows are spelled like '0:3,7' and lie below {n}, got {run!r}")
        runs.append(np.arange(first, end))
    return np.concatenate(runs)


def _spell_each(rows: Any) -> Any:  # noqa: ANN401 - rows, or modality → rows
    return (
        {m: spell(some) for m, some in rows.items()} if isinstance(rows, Mapping) else spell(rows)
    )


def _rows_each(text: Any, sizes: Mapping[str, int]) -> Any:  # noqa: ANN401 - rows, or modality → rows
    if isinstance(text, Mapping):
        return {m: unspell(some, sizes[m]) for m, some in text.items()}
    return unspell(text, min(sizes.values()))

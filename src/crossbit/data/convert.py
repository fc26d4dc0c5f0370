"""Data as others pack it → a `Dataset`: .mat, .h5, .npz, .npy, .csv, .parquet, the Wiki and NUS-WIDE distributions."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from crossbit.data import storage
from crossbit.data.assemble import assemble
from crossbit.data.catalog import WIKI
from crossbit.data.dataset import Dataset
from crossbit.data.nus import OnNote, is_nus, read_nus
from crossbit.data.sources import READERS, open_source
from crossbit.errors import DataError

_LOGGER = logging.getLogger(__name__)
PathArgument = str | PathLike[str]
OnUnused = Callable[[Sequence[str]], None]
"""Told what found no use, such as ``["y (200,)"]``."""

_WIKI_PARTS = {
    "train": ("tr", "trainset_txt_img_cat.list"),
    "test": ("te", "testset_txt_img_cat.list"),
}


def _log_unused(unused: Sequence[str]) -> None:
    _LOGGER.warning("not used: %s; say with a map what they are", ", ".join(unused))


def convert(
    source: PathArgument | Sequence[PathArgument],
    out: PathArgument,
    *,
    map: Mapping[str, str] | None = None,
    name: str = "",
    origin: str = "",
    license: str = "",
    classes: Sequence[str] = (),
    on_unused: OnUnused = _log_unused,
    on_note: OnNote = _LOGGER.info,
) -> Dataset:
    """Convert files to the folder of a data set and open it; a folder that is a data set already is copied whole.

    Arrays of HDF5 files (MATLAB v7.3 among them) are copied block by block, never held whole.

    Args:
        source: A file, several that belong together (one a modality, say), or a folder of them.
        out: The folder to write, apart from the source; only another data set there gives way.
        map: Which array is what, as `parse_map` reads it from ``--map``; by default the names that the field uses,
            listed in `crossbit.data.naming`. In tables, columns ``image_0``, ``image_1``, … and columns of lists are
            arrays, a column ``label`` holds numbers or words, a column ``split`` names parts, and the others become
            the payload.
        name: What to call the data set; by default the file's name.
        origin: Where it comes from.
        license: On which terms.
        classes: Names of the classes, in the order of their numbers.
        on_unused: Told the arrays that found no use, name and shape; by default a warning is logged.
        on_note: Told what is lacking in rows of a known distribution; by default it is logged.

    Raises:
        DataError: An array is missing (those present are named), lengths differ, or a row is partly NaN.
        FormatError: A file is damaged.

    Example:
        ``convert("wiki.mat", "wiki", map={"image:train": "I_tr", "image:test": "I_te", "text": "T_tr,T_te"})``
    """
    _check_apart(_given(source), Path(out))
    told: dict[str, Any] = {"name": name, "source": origin, "license": license, "classes": classes}
    if (ready := _data_set(source, map)) is not None:
        replace(ready, **{key: value for key, value in told.items() if value}).save(out)
        return Dataset.open(out, verify=False)
    if (folder := _nus(source, map)) is not None:
        with TemporaryDirectory(dir=_beside(Path(out))) as scratch:
            found = read_nus(folder, on_note=on_note, scratch=Path(scratch))
            replace(found, **{key: value for key, value in told.items() if value}).save(out)
        return Dataset.open(out, verify=False)
    with ExitStack() as stack:
        fields = _fields(_paths(source), map, stack, on_unused)
        about = _about(fields, source, told)
        outline = Dataset(
            **fields | about | {"views": {m: _outline(view) for m, view in fields["views"].items()}}
        )
        storage.write(
            Path(out),
            views=fields["views"],
            labels=outline.labels,
            pairs=outline.pairs,
            splits=outline.splits,
            payload=outline.payload,
            about=about,
        )
    return Dataset.open(out, verify=False)


def read(
    source: PathArgument | Sequence[PathArgument], *, map: Mapping[str, str] | None = None
) -> Dataset:
    """Read files as `convert` does, into memory and without writing anything.

    Example:
        ``read(catalog.find("wiki"))``
    """
    if (ready := _data_set(source, map)) is not None:
        return ready
    if (folder := _nus(source, map)) is not None:
        return read_nus(folder, on_note=_LOGGER.info)
    with ExitStack() as stack:
        fields = _fields(_paths(source), map, stack, _log_unused)
        about = _about(fields, source, {})
        return Dataset(
            **fields | about | {"views": {m: view[:] for m, view in fields["views"].items()}}
        )


def _outline(view: storage.Readable) -> Any:  # noqa: ANN401 - an array
    """An array of that shape that takes no memory, so that all but the numbers is checked before writing begins."""
    return np.broadcast_to(np.zeros((), view.dtype), view.shape)


def _given(source: PathArgument | Sequence[PathArgument]) -> list[Path]:
    return [Path(source)] if isinstance(source, str | PathLike) else [Path(path) for path in source]


def _check_apart(sources: Sequence[Path], out: Path) -> None:
    """Refuse to write over what is read."""
    place = out.resolve()
    for source in [path.resolve() for path in sources]:
        if place == source or place in source.parents or source in place.parents:
            raise DataError(
                f"{out}: the folder to write lies apart from what is read, {source}; choose another place"
            )


def _data_set(
    source: PathArgument | Sequence[PathArgument], map: Mapping[str, str] | None
) -> Dataset | None:
    """The data set that a folder is already, with all it holds; nothing where it is another folder."""
    given = _given(source)
    if len(given) != 1 or not (given[0] / storage.MANIFEST).is_file():
        return None
    if map is not None:
        raise DataError(
            f"{given[0]}: a data set already says which array is what; name its files to map them anew"
        )
    return Dataset.open(given[0])


def _nus(
    source: PathArgument | Sequence[PathArgument], map: Mapping[str, str] | None
) -> Path | None:
    """The folder of the NUS-WIDE distribution, where it is one."""
    given = _given(source)
    return given[0] if map is None and len(given) == 1 and is_nus(given[0]) else None


def _beside(out: Path) -> Path:
    """The folder that a folder to write will be in, on the same disk."""
    out.parent.mkdir(parents=True, exist_ok=True)
    return out.parent


def _paths(source: PathArgument | Sequence[PathArgument]) -> list[Path]:
    """The files meant; a folder stands for the files in it that can be read."""
    given = _given(source)
    if not given:
        raise DataError("there is nothing to convert: name a file, several, or a folder of them")
    if len(given) > 1 or not given[0].is_dir():
        return given
    found = sorted(path for path in given[0].iterdir() if path.suffix.lower() in READERS)
    if not found:
        raise DataError(
            f"{given[0]}: the folder holds no file that ends with one of {sorted(READERS)}"
        )
    return found


def _fields(
    paths: list[Path], map: Mapping[str, str] | None, stack: ExitStack, on_unused: OnUnused
) -> dict[str, Any]:
    if map is None and paths[0].name == "raw_features.mat" and _is_wiki(paths[0].parent):
        return _wiki(paths[0].parent, stack)
    assembly = assemble([open_source(path, stack) for path in paths], map)
    fields = assembly.fields()
    if assembly.unused:
        on_unused(assembly.unused)
    return fields


def _about(fields: Mapping[str, Any], source: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the user said about the set, or else what its files say."""
    said = {
        "name": Path(source).stem if isinstance(source, str | PathLike) else "",
        "source": "",
        "license": "",
    }
    said |= {key: fields[key] for key in ("name", "source", "license", "classes") if key in fields}
    said |= {key: value for key, value in given.items() if value}
    return said | {"classes": list(said["classes"])}


def _is_wiki(path: Path) -> bool:
    return all(
        (path / name).is_file()
        for name in ("raw_features.mat", *(list_ for _, list_ in _WIKI_PARTS.values()))
    )


def _wiki(folder: Path, stack: ExitStack) -> dict[str, Any]:
    """The Wiki distribution: features in one file, ids and classes (from 1) of their rows in two lists."""
    features = open_source(folder / "raw_features.mat", stack)
    names = {
        f"{m}:{part}": f"{m[0].upper()}_{end}"
        for part, (end, _) in _WIKI_PARTS.items()
        for m in ("image", "text")
    }
    fields = assemble([features], names).fields()
    rows: list[tuple[str, str, int]] = []
    for part, (_, name) in _WIKI_PARTS.items():
        lines, expected = _wiki_list(folder / name), len(fields["splits"][part])
        if len(lines) != expected:
            raise DataError(
                f"{folder}: {len(lines)} lines in {name}, {expected} rows in raw_features.mat"
            )
        rows += lines
    classes = _wiki_classes(folder / "categories.list", max(number for _, _, number in rows))
    return fields | {
        "labels": np.array([number - 1 for _, _, number in rows]),
        "payload": [
            {"text": text, "image": image, "class": classes[number - 1]}
            for text, image, number in rows
        ],
        "name": WIKI.name,
        "source": WIKI.source,
        "license": WIKI.license,
        "classes": classes,
    }


def _wiki_classes(path: Path, largest: int) -> list[str]:
    """Names of the classes; a copy without their list has numbers for names."""
    classes = path.read_text().split() if path.is_file() else [str(k + 1) for k in range(largest)]
    if largest > len(classes):
        raise DataError(f"{path}: {len(classes)} names, but there are rows of class {largest}")
    return classes


def _wiki_list(path: Path) -> list[tuple[str, str, int]]:
    """Text id, image id and class of each row."""
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or not row[2].isdecimal() or int(row[2]) < 1:
            raise DataError(
                f"{path}: line {number} is not text id, image id and class from 1, separated by tabs"
            )
    return [(text, image, int(number)) for text, image, number in rows]

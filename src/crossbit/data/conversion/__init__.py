"""Convert to a `Dataset`: .mat, .h5, .npz, .npy, tables, Wiki, NUS-WIDE.

| module | job |
| --- | --- |
| `readers` | open a file by its suffix: named arrays and columns, or a table |
| `lazy` | arrays that are read one block of rows at a time |
| `columns` | decide which array is which view, label or split, by name or by ``--map`` |
| `assemble` | build the fields of a `Dataset` from arrays with known roles |
| `distributions` | the Wiki and NUS-WIDE archives as their authors pack them |
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from crossbit._progress import OnStep, log_progress
from crossbit.data import storage
from crossbit.data.conversion.assemble import assemble
from crossbit.data.conversion.distributions import OnNote, is_nus, read_nus, wiki_fields
from crossbit.data.conversion.readers import READERS, open_source
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError

_LOG = logging.getLogger(__name__)
PathArgument = str | PathLike[str]
OnUnused = Callable[[Sequence[str]], None]
"""Callback that receives the arrays without a role, such as ``["y (200,)"]``."""


def _log_unused(unused: Sequence[str]) -> None:
    _LOG.warning("not used: %s; assign them with a map", ", ".join(unused))


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
    on_note: OnNote = _LOG.info,
    on_step: OnStep | None = None,
    verbose: bool = False,
) -> Dataset:
    """Convert files to a data set folder and load it; a source that is a data set is copied.

    Arrays of HDF5 files (including MATLAB v7.3) are copied block by block and never held in memory
    as a whole.

    Args:
        source: A file, several files that belong together (for example one per modality), or a
            folder of such files.
        out: The folder to write. It must not overlap the source; an existing data set there is
            replaced.
        map: Which array has which role, as `parse_map` reads it from ``--map``. By default roles
            follow the naming conventions listed in `crossbit.data.conversion.columns`. In tables,
            columns ``image_0``, ``image_1``, … and columns of lists are arrays, a column ``label``
            holds numbers or words, a column ``split`` names splits, and all other columns become
            the payload.
        name: Name of the data set; by default the file name.
        origin: Citation or address of the source.
        license: License or terms of use.
        classes: Class names, in the order of the class numbers.
        on_unused: Called with the arrays that have no role, name and shape; logs a warning by
            default.
        on_note: Called with facts about a known distribution, such as rows without tags; logs them
            by default.
        on_step: Called with the number of rows that are written, over all views.
        verbose: Show progress on stderr every few seconds, as `Hasher.fit` does.

    Raises:
        DataError: An array is missing (the message names those present), lengths differ, or a row
            is partly NaN.
        FormatError: A file is corrupted.

    Example:
        ``convert("wiki.mat", "wiki", map={"image:train": "I_tr", "text:train": "T_tr"})``
    """
    paths = _paths(source)
    _check_apart(paths, Path(out))
    about: dict[str, Any] = {"name": name, "source": origin, "license": license, "classes": classes}
    about = {key: value for key, value in about.items() if value}
    with log_progress(f"converting to {out}", _LOG, on_step, verbose=verbose) as report:
        if (dataset := _as_dataset(paths, map)) is not None:
            storage.save(Path(out), replace(dataset, **about), dataset.views, on_step=report)
        elif (folder := _as_nus(paths, map)) is not None:
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            # Beside the output, which is on a disk that has room for the data set.
            with TemporaryDirectory(dir=Path(out).parent) as scratch:
                nus = read_nus(folder, on_note=on_note, scratch=Path(scratch))
                storage.save(Path(out), replace(nus, **about), nus.views, on_step=report)
        else:
            _convert_files(paths, Path(out), map, about, on_unused, report)
    return Dataset.load(out, verify=False)


def read(
    source: PathArgument | Sequence[PathArgument], *, map: Mapping[str, str] | None = None
) -> Dataset:
    """Read files as `convert` does, into memory, without writing to disk.

    Example:
        ``read(catalog.find("wiki"))``
    """
    paths = _paths(source)
    if (dataset := _as_dataset(paths, map)) is not None:
        return dataset
    if (folder := _as_nus(paths, map)) is not None:
        return read_nus(folder, on_note=_LOG.info)
    with ExitStack() as stack:
        fields = _fields(paths, map, stack, _log_unused)
        views = {modality: view[:] for modality, view in fields["views"].items()}
        return Dataset(**fields | {"views": views})


def _convert_files(
    paths: Sequence[Path],
    out: Path,
    map: Mapping[str, str] | None,
    about: Mapping[str, Any],
    on_unused: OnUnused,
    on_step: OnStep | None,
) -> None:
    with ExitStack() as stack:
        fields = _fields(paths, map, stack, on_unused) | dict(about)
        # Arrays of the right shape that take no memory: everything but the values is validated
        # before the first byte is written.
        outline = Dataset(
            **fields | {"views": {m: _outline(view) for m, view in fields["views"].items()}}
        )
        storage.save(out, outline, fields["views"], on_step=on_step)


def _outline(view: storage.Readable) -> Any:  # noqa: ANN401 - an array
    return np.broadcast_to(np.zeros((), view.dtype), view.shape)


def _paths(source: PathArgument | Sequence[PathArgument]) -> list[Path]:
    paths = [Path(source)] if isinstance(source, str | PathLike) else [Path(p) for p in source]
    if not paths:
        raise DataError("nothing to convert: pass a file, several files, or a folder of files")
    return paths


def _check_apart(sources: Sequence[Path], out: Path) -> None:
    """Refuse an output folder that overlaps a source."""
    target = out.resolve()
    for source in [path.resolve() for path in sources]:
        if target == source or target in source.parents or source in target.parents:
            raise DataError(f"{out}: the output overlaps the source {source}; choose another path")


def _as_dataset(paths: Sequence[Path], map: Mapping[str, str] | None) -> Dataset | None:
    """Load the source if it is the folder of a data set."""
    if len(paths) != 1 or not (paths[0] / storage.MANIFEST).is_file():
        return None
    if map is not None:
        raise DataError(
            f"{paths[0]}: a data set needs no map; to map its arrays again, pass its files instead"
        )
    return Dataset.load(paths[0])


def _as_nus(paths: Sequence[Path], map: Mapping[str, str] | None) -> Path | None:
    """Return the source if it is the folder of the NUS-WIDE distribution."""
    return paths[0] if map is None and len(paths) == 1 and is_nus(paths[0]) else None


def _fields(
    paths: Sequence[Path],
    map: Mapping[str, str] | None,
    stack: ExitStack,
    on_unused: OnUnused,
) -> dict[str, Any]:
    """Return the arguments of `Dataset`; a single path also gives the data set its name."""
    files = _readable_files(paths)
    if map is None and (wiki := wiki_fields(files[0], stack)) is not None:
        return wiki
    fields, unused = assemble([open_source(path, stack) for path in files], map)
    if unused:
        on_unused(unused)
    return fields | {"name": paths[0].stem if len(paths) == 1 else ""}


def _readable_files(paths: Sequence[Path]) -> list[Path]:
    """Replace a folder by the files in it that have a reader."""
    if len(paths) > 1 or not paths[0].is_dir():
        return list(paths)
    files = sorted(path for path in paths[0].iterdir() if path.suffix.lower() in READERS)
    if not files:
        raise DataError(f"{paths[0]}: no file in this folder ends with one of {sorted(READERS)}")
    return files

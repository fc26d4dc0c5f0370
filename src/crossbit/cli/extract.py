"""``crossbit extract``: feature rows from files."""

from collections import Counter
from inspect import getdoc
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from crossbit import features
from crossbit._io.files import atomic_write
from crossbit._validation import check_installed, check_known
from crossbit.cli import console
from crossbit.cli._options import Workers, check_output
from crossbit.data.tables import read_lines
from crossbit.errors import DataError
from crossbit.features.extractor import Extractor, RawInput
from crossbit.kernels.dispatch import available_cores
from crossbit.learn.extractors import (
    DEFAULT_EXTRACTORS,
    EXTRACTORS,
    cache_folder,
    make_extractor,
    required_libraries,
)
from crossbit.learn.files import SUFFIXES, expand_paths, files_in, kind_of_file
from crossbit.model.hashmodel import HashModel

commands = typer.Typer()
_SHOWN = 10  # skipped inputs


@commands.command("extract")
def _extract(
    inputs: list[Path],
    *,
    out: Path,
    kind: str | None = None,
    name: Annotated[str | None, typer.Option("--features")] = None,
    model: Path | None = None,
    modality: str | None = None,
    workers: Workers = None,
    replace: bool = False,
) -> None:
    """Extract feature rows from files of any kind.

    Writes one row per usable input, and their names to a file .ids.txt beside it, one per line,
    which 'crossbit add --ids-file' takes as ids. Extractors with a vocabulary learn it from the
    inputs; to extract new inputs in the same way, use those of a model: --model and --modality.

    For example:

      crossbit extract clips --kind audio --out clips.npy
      crossbit extract photos --features histograms --out photos.npy
      crossbit extract titles.txt --kind text --features tfidf --out titles.npy
      crossbit extract new --model shop/model/1 --modality audio --out new.npy

    Args:
        inputs: ``INPUT``: Files, or folders with subfolders; text is read from files of one text
            per line.
        out: File for the rows, .npy.
        kind: Kind of the inputs, such as audio. Default: by their names.
        name: Features, one of those above. Default: the first of the kind.
        model: Use the extractor of this model.
        modality: Modality of the model.
    """
    if out.suffix != ".npy":
        raise DataError(f"--out must name a .npy file, got {out}")
    names_file = out.with_suffix(".ids.txt")
    for path in (out, names_file):
        check_output(path, replace=replace, inputs=inputs)
    folder = cache_folder()
    recipe: Extractor | None = None
    if model is not None:
        if name is not None or kind is not None:
            raise DataError("--model has its own extractors; leave out --kind and --features")
        recipe = _of_model(model, modality)
    elif modality is not None:
        raise DataError("--modality names a modality of a model; add --model FOLDER")
    accepts = kind or (_guess_kind(inputs) if recipe is None else recipe.accepts)
    features_name = name or DEFAULT_EXTRACTORS.get(accepts, "")
    if recipe is None:
        check_installed(*required_libraries(accepts, features_name, cache=folder))
    raw, names = _read_inputs(inputs, accepts)
    with console.steps(f"preparing {accepts} features"):
        extractor = recipe or make_extractor(accepts, features_name, raw, cache=folder)
    with console.steps(f"extracting {accepts}") as on_step:
        extraction = features.extract(
            extractor,
            raw,
            workers=workers or available_cores(),
            cache=folder / "rows",
            on_step=on_step,
        )
    for line in extraction.skipped[:_SHOWN]:
        console.say(f"skipped {line}")
    if (more := len(extraction.skipped) - _SHOWN) > 0:
        console.say(f"... and {more:,} more")
    if not len(extraction.rows):
        raise DataError(f"none of the {len(raw):,} inputs is usable, so no row is written")
    with atomic_write(out) as file:
        np.save(file, extraction.rows)
    with atomic_write(names_file) as file:
        file.writelines(f"{names[position]}\n".encode() for position in extraction.positions)
    n, width = extraction.rows.shape
    console.say(f"{n:,} rows of {width} numbers ({extractor.kind}) in {out}, names in {names_file}")


def _list_features() -> str:
    """Return one line per extractor, the default of each kind first."""
    return "\n".join(
        f"  {kind:<7} {name:<26} {about}"
        for kind, entries in EXTRACTORS.items()
        for name, about in entries.items()
    )


_extract.__doc__ = (getdoc(_extract) or "").replace(
    "\n\nArgs:", f"\n\nFeatures:\n\n{_list_features()}\n\nArgs:"
)


def _of_model(folder: Path, modality: str | None) -> Extractor:
    """Return the extractor of a modality of a model; of its only one without a name."""
    recipes = HashModel.load(folder).recipes
    if not recipes:
        raise DataError(f"{folder}: the model has no extractors; give --kind instead")
    if modality is None and len(recipes) > 1:
        raise DataError(f"--modality must name one of {sorted(recipes)}")
    name = modality or next(iter(recipes))
    return features.load_extractor(recipes[check_known(name, recipes, "modality with a recipe")])


def _guess_kind(paths: list[Path]) -> str:
    """Return the kind of most files, by the endings of their names."""
    kinds: Counter[str] = Counter()
    for path in paths:
        if path.is_dir():
            kinds.update({kind: len(files_in(path, kind)) for kind in SUFFIXES})
        elif found := kind_of_file(path.name):
            kinds[found] += 1
    ((kind, count),) = kinds.most_common(1) or [("", 0)]
    if not count:
        raise DataError(
            f"the kind of {paths[0]} is not clear from its name; give --kind, one of"
            f" {', '.join(EXTRACTORS)}"
        )
    return kind


def _read_inputs(paths: list[Path], kind: str) -> tuple[list[RawInput], list[str]]:
    """Return the inputs and their names."""
    if kind != "text":
        files = list(expand_paths(paths, kind))
        return list(files), [str(path) for path in files]
    texts: list[RawInput] = []
    names = []
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: expected a text file, one text per line")
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                texts.append(line)
                names.append(f"{path}:{number}")
    if not texts:
        raise DataError(f"{paths[0]}: contains no text")
    return texts, names

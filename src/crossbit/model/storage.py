"""The model folder: ``config.json``, ``weights.safetensors``, layer and recipe files, a card."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as decode_tensors
from safetensors.numpy import save as encode_tensors

from crossbit._io.files import atomic_write
from crossbit._io.folders import read_manifest, replace_folder, retry_read, write_manifest
from crossbit.errors import DataError, FormatError
from crossbit.model import ensemble  # noqa: F401 - registers its layers
from crossbit.model.layers import LAYERS, Layer
from crossbit.model.recipe import Recipe

FORMAT = "crossbit.model/2"
CONFIG = "config.json"
WEIGHTS = "weights.safetensors"
_FILE_NAME = re.compile(r"\w[\w.-]*")

Tensors = dict[str, NDArray[Any]]
Encoders = Mapping[str, Sequence[Layer]]
Parts = tuple[Encoders, int, dict[str, Recipe], dict[str, Any], dict[str, int]]
"""What a model consists of: the arguments of `HashModel`."""


def save(
    folder: Path,
    encoders: Encoders,
    n_bits: int,
    recipes: Mapping[str, Recipe],
    card: Mapping[str, Any],
    n_inputs: Mapping[str, int],
    *,
    parents: bool,
) -> None:
    """Write a model folder atomically."""
    tensors: Tensors = {}
    blobs: dict[str, bytes] = {}
    config: dict[str, Any] = {
        "format": FORMAT,
        "crossbit": version("crossbit"),
        "n_bits": n_bits,
        "modalities": {
            name: _layers_to_json(name, layers, tensors, blobs) for name, layers in encoders.items()
        },
        "n_inputs": dict(n_inputs),
        "recipes": {
            name: _recipe_to_json(f"recipe.{name}", recipe, tensors, blobs)
            for name, recipe in recipes.items()
        },
        "card": dict(card),
    }
    blobs[WEIGHTS] = encode_tensors(tensors)
    blobs["README.md"] = _model_card(encoders, n_bits, card).encode()
    with replace_folder(folder, CONFIG, FORMAT, parents=parents) as fresh:
        for name, content in blobs.items():
            with atomic_write(fresh / name) as file:
                file.write(content)
        write_manifest(fresh, CONFIG, config)


def load(folder: Path) -> Parts:
    """Read a model folder; raise a `FormatError` that names a corrupted or unknown file."""
    return retry_read(Path(folder), CONFIG, lambda: _load(Path(folder)))


def _load(folder: Path) -> Parts:
    config = read_manifest(folder, CONFIG, FORMAT)
    for key in ("modalities", "n_inputs", "recipes", "card"):
        if not isinstance(config.get(key), dict):
            raise FormatError(
                f"{folder / CONFIG}: not a valid model ({key!r} must be a JSON object)"
            )
    try:
        tensors = decode_tensors((folder / WEIGHTS).read_bytes())
        files = _Files(folder, config["files"])
        encoders = {
            name: _layers_from_json(name, layers, tensors, files)
            for name, layers in config["modalities"].items()
        }
        recipes = {
            name: _recipe_from_json(f"recipe.{name}", entry, tensors, files)
            for name, entry in config["recipes"].items()
        }
        return encoders, config["n_bits"], recipes, config["card"], config["n_inputs"]
    except (KeyError, TypeError, AttributeError, ValueError, OSError, SafetensorError) as error:
        raise FormatError(f"{folder / CONFIG}: not a valid model ({error!r})") from error


def _layers_to_json(
    prefix: str, layers: Sequence[Layer], tensors: Tensors, blobs: dict[str, bytes]
) -> list[dict[str, Any]]:
    return [
        _layer_to_json(f"{prefix}.{i}", layer, tensors, blobs) for i, layer in enumerate(layers)
    ]


def _layer_to_json(
    prefix: str, layer: Layer, tensors: Tensors, blobs: dict[str, bytes]
) -> dict[str, Any]:
    """Convert a layer; its arrays and files are added to ``tensors`` and ``blobs``."""
    tensors.update({f"{prefix}.{key}": value for key, value in layer.weights().items()})
    blobs.update({f"{prefix}.{key}": value for key, value in layer.blobs().items()})
    return {
        "kind": layer.kind,
        "settings": layer.settings(),
        "weights": sorted(layer.weights()),
        "files": sorted(layer.blobs()),
    }


class _Files:
    """The files that the manifest lists; nothing else of the folder or outside it is read."""

    def __init__(self, folder: Path, listed: Mapping[str, Any]) -> None:
        self.folder = folder
        self._listed = listed

    def __getitem__(self, name: str) -> bytes:
        if not _FILE_NAME.fullmatch(name) or name not in self._listed:
            raise FormatError(
                f"{self.folder / CONFIG}: names the file {name!r}, which is not part of the model"
            )
        return (self.folder / name).read_bytes()


def _layers_from_json(
    prefix: str, entries: Sequence[Mapping[str, Any]], tensors: Tensors, files: _Files
) -> list[Layer]:
    return [
        _layer_from_json(f"{prefix}.{i}", entry, tensors, files) for i, entry in enumerate(entries)
    ]


def _layer_from_json(
    prefix: str, entry: Mapping[str, Any], tensors: Tensors, files: _Files
) -> Layer:
    if entry["kind"] not in LAYERS:
        raise FormatError(
            f"{files.folder / CONFIG}: unknown layer {entry['kind']!r};"
            f" this version knows {sorted(LAYERS)}"
        )
    weights = {key: tensors[f"{prefix}.{key}"] for key in entry["weights"]}
    blobs = {key: files[f"{prefix}.{key}"] for key in entry["files"]}
    return LAYERS[entry["kind"]].restore(entry["settings"], weights | blobs)


def _recipe_to_json(
    prefix: str, recipe: Recipe, tensors: Tensors, blobs: dict[str, bytes]
) -> dict[str, Any]:
    """Convert a recipe; its arrays and files are added to ``tensors`` and ``blobs``."""
    for name in recipe.files:
        if not _FILE_NAME.fullmatch(name):
            raise DataError(
                "the name of a recipe file must consist of letters, digits, '.', '-' and '_',"
                f" got {name!r}"
            )
    tensors.update(
        {f"{prefix}.{key}": np.ascontiguousarray(value) for key, value in recipe.arrays.items()}
    )
    blobs.update({f"{prefix}.{key}": value for key, value in recipe.files.items()})
    return {
        "kind": recipe.kind,
        "settings": dict(recipe.settings),
        "arrays": sorted(recipe.arrays),
        "files": sorted(recipe.files),
    }


def _recipe_from_json(
    prefix: str, entry: Mapping[str, Any], tensors: Tensors, files: _Files
) -> Recipe:
    if not isinstance(entry["kind"], str) or not isinstance(entry["settings"], dict):
        raise TypeError(f"{prefix} has no kind or no settings")
    return Recipe(
        entry["kind"],
        entry["settings"],
        {key: tensors[f"{prefix}.{key}"] for key in entry["arrays"]},
        {key: files[f"{prefix}.{key}"] for key in entry["files"]},
    )


def _model_card(
    encoders: Mapping[str, Sequence[Layer]], n_bits: int, card: Mapping[str, Any]
) -> str:
    """Write the card: how to use the model, its layers, then the facts recorded in training."""
    first = next(iter(encoders))
    lines = [
        f"# A Crossbit model: {', '.join(encoders)} → {n_bits} bits",
        "",
        "```python",
        "from crossbit import HashModel",
        'model = HashModel.load("this folder")',
        f'codes = model.encode("{first}", X)',
        "```",
        "",
        "| modality | layers |",
        "| --- | --- |",
        *(f"| {name} | {' → '.join(map(_layer, layers))} |" for name, layers in encoders.items()),
        "",
    ]
    for title, content in card.items():
        lines += [f"## {title.replace('_', ' ').capitalize()}", "", *_section(content), ""]
    return "\n".join(lines)


def _layer(layer: Layer) -> str:
    """Short description of a layer, such as ``affine 128 → 32``."""
    n_in, n_out = layer.widths()
    if n_in is not None and n_in != n_out:
        return f"{layer.kind} {n_in} → {n_out}"
    settings = ", ".join(f"{key} {value}" for key, value in layer.settings().items())
    return f"{layer.kind} ({settings})" if settings else layer.kind


def _section(content: object) -> Iterator[str]:
    """Format a mapping as a table, a sequence as a list, other values as text."""
    if isinstance(content, Mapping):
        yield from ("| | |", "| --- | --- |")
        yield from (f"| {key} | {_plain(value)} |" for key, value in content.items())
    elif isinstance(content, list | tuple):
        yield from (f"- {_plain(value)}" for value in content)
    else:
        yield _plain(content)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")

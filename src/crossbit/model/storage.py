"""The model folder: ``config.json``, ``weights.safetensors``, files of single layers and recipes, a model card."""

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as spell_tensors

from crossbit._io.files import replacing
from crossbit._io.folders import reading, replacing_folder, seal, unseal
from crossbit.errors import DataError, FormatError
from crossbit.model.card import model_card
from crossbit.model.layers import LAYERS, Layer
from crossbit.model.recipe import Recipe

FORMAT = "crossbit.model/1"
CONFIG = "config.json"
WEIGHTS = "weights.safetensors"
_FILE_NAME = re.compile(r"\w[\w.-]*")

Tensors = dict[str, NDArray[Any]]
Encoders = Mapping[str, Sequence[Layer]]


def save(
    folder: Path,
    encoders: Encoders,
    n_bits: int,
    recipes: Mapping[str, Recipe],
    card: Mapping[str, Any],
) -> None:
    """Write a model folder, whole or not at all."""
    tensors: Tensors = {}
    blobs: dict[str, bytes] = {}
    config = {
        "format": FORMAT,
        "crossbit": version("crossbit"),
        "n_bits": n_bits,
        "modalities": {
            name: [
                _layer_to_json(f"{name}.{i}", layer, tensors, blobs)
                for i, layer in enumerate(layers)
            ]
            for name, layers in encoders.items()
        },
        "recipes": {
            name: _recipe_to_json(f"recipe.{name}", recipe, tensors, blobs)
            for name, recipe in recipes.items()
        },
        "card": dict(card),
    }
    blobs[WEIGHTS] = spell_tensors(tensors)
    blobs["README.md"] = model_card(encoders, n_bits, card).encode()
    with replacing_folder(folder, CONFIG, FORMAT) as fresh:
        for name, content in blobs.items():
            with replacing(fresh / name) as file:
                file.write(content)
        seal(fresh, CONFIG, config)


def load(folder: Path) -> tuple[Encoders, int, dict[str, Recipe], dict[str, Any]]:
    """Read a model folder; what is truncated, altered, unknown or newer is a `FormatError` that names it."""
    return reading(Path(folder), CONFIG, lambda: _load(Path(folder)))


def _load(folder: Path) -> tuple[Encoders, int, dict[str, Recipe], dict[str, Any]]:
    config = unseal(folder, CONFIG, FORMAT)
    try:
        tensors = parse_tensors((folder / WEIGHTS).read_bytes())
        encoders = {
            name: [
                _layer_from_json(f"{name}.{i}", spelled, tensors, folder)
                for i, spelled in enumerate(layers)
            ]
            for name, layers in config["modalities"].items()
        }
        recipes = {
            name: _recipe_from_json(f"recipe.{name}", spelled, tensors, folder)
            for name, spelled in config["recipes"].items()
        }
        return encoders, config["n_bits"], recipes, config["card"]
    except (KeyError, TypeError, AttributeError, ValueError, OSError, SafetensorError) as error:
        raise FormatError(f"{folder / CONFIG}: does not describe a model ({error!r})") from error


def _layer_to_json(
    prefix: str, layer: Layer, tensors: Tensors, blobs: dict[str, bytes]
) -> dict[str, Any]:
    """Spell a layer; its arrays and files go into ``tensors`` and ``blobs``."""
    tensors.update({f"{prefix}.{key}": value for key, value in layer.weights().items()})
    blobs.update({f"{prefix}.{key}": value for key, value in layer.blobs().items()})
    return {
        "kind": layer.kind,
        "settings": layer.settings(),
        "weights": sorted(layer.weights()),
        "files": sorted(layer.blobs()),
    }


def _layer_from_json(
    prefix: str, spelled: Mapping[str, Any], tensors: Tensors, folder: Path
) -> Layer:
    if spelled["kind"] not in LAYERS:
        raise FormatError(
            f"{folder / CONFIG}: unknown layer {spelled['kind']!r}; this version knows {sorted(LAYERS)}"
        )
    weights = {key: tensors[f"{prefix}.{key}"] for key in spelled["weights"]}
    files = {key: (folder / f"{prefix}.{key}").read_bytes() for key in spelled["files"]}
    return LAYERS[spelled["kind"]](**spelled["settings"], **weights, **files)


def _recipe_to_json(
    prefix: str, recipe: Recipe, tensors: Tensors, blobs: dict[str, bytes]
) -> dict[str, Any]:
    """Spell a recipe; its arrays and files go into ``tensors`` and ``blobs``."""
    for name in recipe.files:
        if not _FILE_NAME.fullmatch(name):
            raise DataError(
                f"a file of a recipe is named with letters, digits, '.', '-' and '_', got {name!r}"
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
    prefix: str, spelled: Mapping[str, Any], tensors: Tensors, folder: Path
) -> Recipe:
    return Recipe(
        spelled["kind"],
        spelled["settings"],
        {key: tensors[f"{prefix}.{key}"] for key in spelled["arrays"]},
        {key: (folder / f"{prefix}.{key}").read_bytes() for key in spelled["files"]},
    )

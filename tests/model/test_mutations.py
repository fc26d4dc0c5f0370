"""Model and data set folders with valid checksums but arbitrary content: loaded or rejected."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as decode_tensors
from safetensors.numpy import save as encode_tensors

from crossbit import CrossbitError, FormatError, HashModel
from crossbit._io.folders import write_manifest
from crossbit.data import Dataset, Pairs
from crossbit.features import BagOfTags
from crossbit.model import RBF, Affine, Normalize, Parallel, Power, Standardize, Tanh
from tests.model.test_layers import TREES

JUNK: list[Any] = [None, True, -1, 0, 2**40, 1e308, "x", "", "../x", [], [1], {}, {"a": 1}]
X = np.random.default_rng(0).random((6, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mutations")
    layers = [
        Standardize(np.zeros(4), np.ones(4)),
        Power(0.5),
        Normalize(),
        Parallel(((RBF(X, 1.0),), (TREES,))),
        Affine(np.eye(8), np.zeros(8)),
        Tanh(),
    ]
    recipes = {"image": BagOfTags(("a", "b", "c", "d")).recipe()}
    HashModel({"image": layers, "text": layers}, 8, recipes=recipes).save(root / "model")
    Dataset(
        views={"image": X, "text": X},
        labels=np.eye(6, dtype=bool)[:, :3],
        pairs=[Pairs("image", "text", np.array([[0, 1]]), np.array([True]))],
        splits={"train": np.arange(4), "test": np.arange(4, 6)},
        payload=[{"n": i} for i in range(6)],
        name="toy",
        source="",
        license="",
        classes=["a", "b", "c"],
    ).save(root / "dataset")
    return root


def reseal(folder: Path, manifest: str, content: dict[str, Any]) -> None:
    """Write a manifest that matches the files, as anybody can."""
    (folder / manifest).unlink()
    rest = {key: value for key, value in content.items() if key not in ("files", "checksum")}
    write_manifest(folder, manifest, rest)


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values inside a JSON value."""
    inner: list[tuple[Any, ...]] = []
    if isinstance(value, dict):
        inner = [place for key in value for place in places(value[key], (*path, key))]
    elif isinstance(value, list):
        inner = [place for i, each in enumerate(value) for place in places(each, (*path, i))]
    return [path, *inner] if path else inner


def replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:  # noqa: ANN401
    """Return a JSON value with another value at a path."""
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = replaced(value[path[0]], path[1:], new)
    return changed


def load_model(folder: Path) -> None:
    model = HashModel.load(folder)
    for name in model.modalities:
        model.encode(name, X)
    model.fingerprint()


def load_dataset(folder: Path) -> None:
    Dataset.load(folder).describe()


KINDS = {"model": ("config.json", load_model), "dataset": ("dataset.json", load_dataset)}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_an_arbitrary_manifest_is_loaded_or_rejected(
    folders: Path, kind: str, data: st.DataObject
) -> None:
    manifest, load = KINDS[kind]
    copy = folders / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folders / kind, copy)
    content = json.loads((copy / manifest).read_text())
    for key in ("files", "checksum"):
        del content[key]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(places(content)))
        with suppress(KeyError, IndexError, TypeError):  # the first change removed the place
            content = replaced(content, path, data.draw(st.sampled_from(JUNK)))
    reseal(copy, manifest, content)
    with suppress(CrossbitError):
        load(copy)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_an_arbitrary_file_is_loaded_or_rejected(
    folders: Path, kind: str, data: st.DataObject
) -> None:
    manifest, load = KINDS[kind]
    copy = folders / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folders / kind, copy)
    content = json.loads((copy / manifest).read_text())
    file = copy / data.draw(st.sampled_from(sorted(content["files"])))
    raw = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(len(raw) // 2, len(raw))) :]
    file.write_bytes(raw)
    reseal(copy, manifest, content)
    with suppress(CrossbitError):
        load(copy)


@pytest.mark.parametrize("change", ["nan", "shape", "missing"])
def test_weights_that_do_not_fit_are_rejected(folders: Path, change: str) -> None:
    copy = folders / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folders / "model", copy)
    tensors = decode_tensors((copy / "weights.safetensors").read_bytes())
    weight = tensors.pop("image.4.weight")
    if change == "nan":
        tensors["image.4.weight"] = weight * np.nan
    elif change == "shape":
        tensors["image.4.weight"] = np.ascontiguousarray(weight[:, :3])
    (copy / "weights.safetensors").write_bytes(encode_tensors(tensors))
    reseal(copy, "config.json", json.loads((copy / "config.json").read_text()))
    with pytest.raises(FormatError, match="not a valid model"):
        HashModel.load(copy)

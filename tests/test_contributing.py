"""The how-tos of CONTRIBUTING.md: each block runs, and what it adds works."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi import FastAPI
from starlette.testclient import TestClient

from crossbit import HASHERS, MMNN, Codes, Collection, HashModel
from crossbit.collection.stores import _STORES, store_class
from crossbit.data import synthetic
from crossbit.features import load_extractor
from crossbit.metrics import evaluate_ranking, rank_codes, same_class
from crossbit.model import Affine
from crossbit.neural.losses import LOSSES
from crossbit.neural.pairs import PairBatch
from crossbit.server.batching import WorkerPool

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
HOW_TOS = dict(re.findall(r"^## Add (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.M | re.S))
IMPORTS = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from fastapi import APIRouter

from crossbit.collection.stores import register_store
from crossbit.data import TrainingSet
from crossbit.features.extractor import Extractor, RawInput, Rows
from crossbit.hashers import Hasher, Run
from crossbit.metrics import Measure, TieCounts
from crossbit.metrics.tie_counts import Floats
from crossbit.model import Affine, HashModel
from crossbit.neural.losses import LOSSES
"""


def run(title: str, **names: object) -> dict[str, Any]:
    """Run the code of a how-to among the names that its module would import."""
    code = re.findall(r"^```python\n(.*?)^```", HOW_TOS[title], flags=re.M | re.S)
    assert len(code) == 1
    # Dataclasses look up annotations in the module of their class, so the namespace has a name.
    namespace: dict[str, Any] = {**names, "__name__": __name__}
    exec(IMPORTS, namespace)
    exec(compile(code[0], str(PAGE), "exec"), namespace)
    return namespace


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget afterward what a how-to registered."""
    registries: list[dict[str, Any]] = [HASHERS, LOSSES, _STORES]
    before = [dict(registry) for registry in registries]
    yield
    for registry, values in zip(registries, before, strict=True):
        registry.clear()
        registry.update(values)


@pytest.mark.usefixtures("registries")
def test_a_hasher() -> None:
    hasher = run("a hasher")["MedianHash"](n_bits=8)
    assert HASHERS["medianhash"] is type(hasher)
    data = synthetic(n=60, classes=3)
    codes = hasher.fit(data.views).encode("image", data.views["image"])
    assert codes.n_bits == 8
    assert abs(codes.unpack().mean() - 0.5) < 0.05


@pytest.mark.usefixtures("registries")
def test_a_loss() -> None:
    run("a loss")
    loss = LOSSES["cosine"]
    rng = np.random.default_rng(0)
    u, v = (torch.tensor(rng.normal(size=(n, 4))) for n in (5, 6))
    similar = torch.tensor(rng.random((5, 6)) < 0.4).float()
    pairs = PairBatch(similar, 1 - similar)
    expected = [
        1 - float(u[i] @ v[j] / (u[i].norm() * v[j].norm()))
        for i, j in product(range(5), range(6))
        if pairs.similar[i, j]
    ]
    assert loss(u, v, pairs).item() == pytest.approx(np.mean(expected))
    data = synthetic(n=60, classes=3)
    model = MMNN(n_bits=8, loss="cosine", steps=5).fit(data.views, labels=data.labels)
    assert model.n_bits == 8


def test_an_extractor() -> None:
    extractor = run("an extractor for a new modality")["Spectrum"]()
    assert extractor.accepts == "signal"
    expected = np.abs(np.fft.rfft([1.0, 2.0, 0.0, 5.0, 1.0, 1.0]))
    np.testing.assert_allclose(
        extractor.extract(["1, 2, 0, 5, 1, 1"])[0], expected, rtol=1e-5, atol=1e-5
    )
    assert type(load_extractor(extractor.recipe())) is type(extractor)


@pytest.mark.usefixtures("registries")
def test_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "shop_plugin"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "store.py").write_text(
        "from crossbit.collection.local import LocalStore\nclass ShopStore(LocalStore): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run("a store")
    assert store_class("shop://anything").__name__ == "ShopStore"


@pytest.mark.parametrize(("ties", "expected"), [("expected", 0.5), ("best", 1.0), ("worst", 0.0)])
def test_a_metric(ties: str, expected: float) -> None:
    measure = run("a metric")["RPrecision"](ties=ties)
    query = Codes.pack(np.zeros((1, 4), bool))
    base = Codes.pack(np.array([[0, 0, 0, 1], [0, 0, 1, 0]], bool))
    ranking = rank_codes(query, base, same_class([0], [0, 1]))
    report = evaluate_ranking(ranking, measures=[measure])
    assert report[measure.name].value == pytest.approx(expected)


def test_an_endpoint(tmp_path: Path) -> None:
    model = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
    pool = WorkerPool(1, 4, 10.0)
    with Collection.create(tmp_path / "items", model) as collection:
        app = FastAPI()
        app.include_router(run("a REST endpoint", collection=collection, pool=pool)["router"])
        with TestClient(app) as client:
            assert client.get("/api/modalities").json() == {"image": None}
    pool.close()

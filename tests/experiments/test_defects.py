"""The paper's defects, shown on small data: networks that are not coupled, signs, margins, gradients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossbit import CMSSH, MMNN
from crossbit.data import synthetic
from crossbit.evaluation import evaluate_model
from crossbit.neural.losses import contrastive
from crossbit_experiments import defects
from crossbit_experiments.stored_codes import Kept
from crossbit_experiments.summary import read_summary
from crossbit_experiments.wiki import methods

data = synthetic(n=240, classes=4)
FIELDS: dict[str, Any] = {
    "n_bits": 16,
    "inputs": "standardize",
    "validation": 0.0,
    "margin": "71%",
    "steps": 40,
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defects, "PAIRS", (800, 2400))


def values(model: Any) -> dict[str, float]:  # noqa: ANN401
    reports = evaluate_model(model, data).reports
    return {"-".join(way): report["mAP"].value for way, report in reports.items()}


@pytest.mark.usefixtures("few")
def test_two_networks_without_coupling_know_nothing_of_each_other() -> None:
    train = data.part("train")
    coupled, alone = (
        [
            values(MMNN(seed=seed, **FIELDS).fit(**defects.with_pairs(train, seed, across=across)))
            for seed in range(4)
        ]
        for across in (True, False)
    )
    for way in ("image-image", "text-text"):
        assert np.mean([one[way] for one in alone]) > 0.8
    for way in defects.ACROSS:
        assert np.mean([one[way] for one in coupled]) > 0.9
        assert np.mean([one[way] for one in alone]) < 0.55


@pytest.mark.usefixtures("few")
def test_cmssh_as_printed_learns_the_opposite() -> None:
    train = data.part("train")
    right, printed = (
        values(CMSSH(n_bits=16).fit(**defects.with_pairs(train, 0, within=False, turned=turned)))
        for turned in (False, True)
    )
    chance = 0.25
    for way in defects.ACROSS:
        assert right[way] > 2 * chance
        assert printed[way] < chance


def test_the_printed_gradient_is_not_that_of_the_loss() -> None:
    random, margin = np.random.default_rng(0), 7.0
    u, v = random.uniform(-1, 1, (2, 16))

    def loss(point: Any) -> float:  # noqa: ANN401
        return 0.5 * max(0.0, margin - float(np.linalg.norm(point - v))) ** 2

    measured = np.array([(loss(u + step) - loss(u - step)) / 2e-5 for step in 1e-5 * np.eye(16)])
    delta = u - v
    distance = np.linalg.norm(delta)
    np.testing.assert_allclose(measured, -(margin - distance) * delta / distance, atol=1e-6)
    assert not np.allclose(measured, delta - margin, atol=1)
    point = torch.tensor(u[None], requires_grad=True)
    contrastive(point, torch.tensor(v[None]), torch.tensor([False]), margin=margin).backward()  # type: ignore[no-untyped-call]
    assert point.grad is not None
    np.testing.assert_allclose(point.grad[0].numpy(), measured, atol=1e-6)


def test_the_summary_has_every_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defects, "PAIRS", (200, 400))
    quick = {"n_pairs": (200, 400), "steps": 2}
    for fields in (methods.LITERAL, defects._MEANS, defects._NETWORKS):
        for name, value in quick.items():
            monkeypatch.setitem(fields, name, value)
    path = defects.run(data, tmp_path, n_bits=8, seeds=[0])
    groups = read_summary(path)["groups"]
    assert set(groups) == {"coupling", "sign", "margin", "weighting"}
    for lines in groups.values():
        for line in lines:
            assert set(line["mean"]) == set(defects.DIRECTIONS)
            assert line["turned"]["image-text"][1] >= 0
    before = path.read_bytes()
    assert defects.run(data, tmp_path, n_bits=8, seeds=[0]).read_bytes() == before
    kept = Kept.of(tmp_path / "coupled-8-0.json")
    assert defects.turned_bits(kept, "image-text", data) == defects.turned_bits(
        kept, "image-text", data
    )

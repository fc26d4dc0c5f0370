"""Describers by their names on the command line; pretrained networks are converted once and kept."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from crossbit._io.files import replacing
from crossbit.errors import DataError
from crossbit.features import (
    BagOfSift,
    BagOfTags,
    ColorGradients,
    Describer,
    ImageNetwork,
    SentenceNetwork,
    Tfidf,
    Thing,
)
from crossbit.pipeline.gallery import tags_of

IMAGE = {
    "efficientnet": "EfficientNet-Lite0, pretrained on ImageNet: 1280 numbers",
    "sift": "a bag of SIFT features of 500 words, or sift:WORDS",
    "histograms": "colors and gradients: 192 numbers",
    "onnx:FILE": "any ONNX network of pictures; FILE.json beside it tells the preprocessing",
}
TEXT = {
    "minilm": "MiniLM, a pretrained encoder of sentences: 384 numbers",
    "tfidf": "words weighted by their rarity, 2000 of them, or tfidf:WORDS",
    "tags": "which of 1000 tags it has, or tags:NUMBER",
    "onnx:FOLDER": "any ONNX encoder of sentences, with its tokenizer.json",
}
"""What describes pictures and words, by name."""

_LEARNED_FROM = 2000  # pictures whose SIFT features make a vocabulary


def cache_folder() -> Path:
    """Where converted networks and rows are kept: CROSSBIT_CACHE, or crossbit in the user's cache folder."""
    if given := os.environ.get("CROSSBIT_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossbit"


def image_describer(
    name: str, pictures: Sequence[Path], *, cache: Path, seed: int = 0
) -> Describer:
    """A describer of pictures by its name in `IMAGE`; a vocabulary is learned from some of the pictures."""
    kind, _, rest = name.partition(":")
    match kind:
        case "efficientnet":
            return ImageNetwork(network=_kept(cache / "efficientnet-lite0.onnx", _efficientnet))
        case "sift":
            step = max(1, len(pictures) // _LEARNED_FROM)
            return BagOfSift.fit(pictures[::step], size=_number(name, rest, 500), seed=seed)
        case "histograms":
            return ColorGradients()
        case "onnx" if rest:
            return ImageNetwork.from_file(rest)
    raise DataError(f"unknown features of pictures {name!r}; known: {', '.join(IMAGE)}")


def text_describer(name: str, texts: Sequence[str], *, cache: Path) -> Describer:
    """A describer of words by its name in `TEXT`; a vocabulary is learned from the texts."""
    kind, _, rest = name.partition(":")
    match kind:
        case "minilm":
            tokenizer = cache / "minilm-l6-v2.tokenizer.json"
            network = _kept(cache / "minilm-l6-v2.onnx", lambda: _minilm(tokenizer))
            return SentenceNetwork(network=network, tokenizer=tokenizer.read_bytes())
        case "tfidf":
            return Tfidf.fit(texts, size=_number(name, rest, 2000))
        case "tags":
            return BagOfTags.fit(map(_tags, texts), size=_number(name, rest, 1000))
        case "onnx" if rest:
            return SentenceNetwork.from_folder(rest)
    raise DataError(f"unknown features of words {name!r}; known: {', '.join(TEXT)}")


def _tags(text: str) -> Thing:
    """A list of separated tags as it is; of a sentence, the words that say something."""
    return text if any(sign in text for sign in "+,;|") else tags_of([text])


def _number(name: str, text: str, usual: int) -> int:
    if not text:
        return usual
    if not text.isdecimal() or not int(text):
        raise DataError(f"{name!r}: expected a number of words after the colon")
    return int(text)


def _kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a file, made when it is not there yet."""
    if not path.is_file():
        _write(path, make())
    return path.read_bytes()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)


def _efficientnet() -> bytes:
    from crossbit.neural.pretrained import picture_network

    return picture_network().model


def _minilm(tokenizer: Path) -> bytes:
    from crossbit.neural.pretrained import sentence_network

    network, content = sentence_network()
    _write(tokenizer, content)  # first: where the network is, its tokenizer is too
    return network.model

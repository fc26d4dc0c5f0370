from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossbit.errors import DataError
from crossbit_experiments.flickr8k.dataset import read
from crossbit_experiments.flickr8k.html_report import Sheet
from crossbit_experiments.flickr8k.qualitative import METHODS, look, tags_of
from crossbit_experiments.flickr8k.vocabulary import Vocabulary, inflections, load_concepts, telling

SAID = {
    "dog": ["A brown dog runs with a red ball", "Two dogs play", "The dog's toy is a green ball"],
    "snow": ["A person skiing down a white slope", "Snowmobile and snow", "somebody skis fast"],
    "none": ["A blue shape", "A yellow shape", "Nothing at all"],
}


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """A folder of the form of Flickr8k: noise that SIFT finds features in, three kinds of captions."""
    (tmp_path / "images").mkdir()
    random = np.random.default_rng(0)
    names = [f"{kind}-{number}.jpg" for number in range(12) for kind in SAID]
    lines = []
    for name in names:
        Image.fromarray(random.integers(0, 255, (80, 120, 3), np.uint8)).save(
            tmp_path / "images" / name
        )
        lines += [
            f"{name}#{n}\t{caption} ." for n, caption in enumerate(SAID[name.partition("-")[0]])
        ]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(lines))
    for part, some in {
        "train": names[:24],
        "dev": names[24:30],
        "test": [*names[30:], "lost.jpg"],
    }.items():
        (tmp_path / f"Flickr_8k.{part}Images.txt").write_text("\n".join(some))
    return tmp_path


def test_two_captions_must_speak_of_a_concept_in_any_inflection() -> None:
    vocabulary = Vocabulary.of({"dog": ["dog"], "snow": ["snow", "ski"]})
    assert vocabulary.shown(["the dog's bowl", "Dogs!", "a cat"]).tolist() == [True, False]
    assert vocabulary.shown(["a dog", "a cat", "skiing"]).tolist() == [False, False]
    assert vocabulary.shown(["skiing"]).tolist() == [False, True], (
        "a single caption speaks for itself"
    )
    assert not vocabulary.shown([]).any()


@pytest.mark.parametrize(
    ("word", "form"),
    [("puppy", "puppies"), ("swim", "swimming"), ("ride", "riding"), ("box", "boxes")],
)
def test_inflections(word: str, form: str) -> None:
    assert form in inflections(word)


def test_no_word_of_a_concept_is_a_tag() -> None:
    vocabulary = Vocabulary.of({"snow": ["snow", "ski"]})
    tags, leaks = vocabulary.tags(
        [["snowing on a snowmobile", "he skis down a slope"], ["down the slope, skiing"]], 10
    )
    assert tags == ("down", "slope")
    assert (leaks.words, leaks.compounds, leaks.occurrences) == (3, 1, 4)


def test_only_the_most_frequent_words_are_tags() -> None:
    tags, _ = Vocabulary.of({"dog": ["dog"]}).tags([["red red blue green", "blue red"]], 2)
    assert tags == ("red", "blue")


def test_a_tag_that_gives_a_concept_away_is_named() -> None:
    labels = np.repeat([[True, False], [False, True]], 30, axis=0)
    tags = np.stack([labels[:, 0], np.arange(60) % 2, np.arange(60) < 5], axis=1)
    assert telling(tags, labels, ["leash", "red", "rare"]) == ("leash",)


def test_every_concept_has_words_of_its_own() -> None:
    concepts = load_concepts()
    words = [word for some in concepts.values() for word in some]
    assert len(concepts) > 20
    assert len(words) == len(set(words))


def test_photographs_become_a_data_set(photographs: Path, tmp_path: Path) -> None:
    found = read(photographs, cache=tmp_path / "cache", pictures="sift:8")
    data = found.data
    assert found.left_out == {
        "without a picture or captions": 1,
        "without a concept": 12,
        "without a tag": 0,
        "not described": 0,
    }
    assert {name: view.shape for name, view in data.views.items()} == {
        "image": (24, 8),
        "tags": (24, 18),
    }
    parts = {name: len(np.asarray(rows)) for name, rows in data.splits.items()}
    assert parts == {"train": 8, "database": 12, "query": 4}
    assert sum(parts.values()) == len(
        set(np.concatenate([np.asarray(rows) for rows in data.splits.values()]))
    )
    assert np.asarray(data.labels)[:, data.classes.index("dog")].mean() == 0.5
    assert not set(found.describers["tags"].vocabulary) & {  # type: ignore[attr-defined]
        "dog",
        "dogs",
        "snow",
        "snowmobile",
        "skiing",
    }
    payload: Any = data.payload
    assert payload[0]["tags"] == ["ball", "brown", "runs", "red", "play", "toy", "green"], (
        "what most captions say first"
    )


def test_a_split_is_the_same_every_time(photographs: Path, tmp_path: Path) -> None:
    one, two = (
        read(photographs, cache=tmp_path / "cache", pictures="sift:8").data for _ in range(2)
    )
    assert np.array_equal(one.views["image"], two.views["image"])
    assert {k: list(v) for k, v in one.splits.items()} == {
        k: list(v) for k, v in two.splits.items()
    }


def test_the_figures_show_what_was_found(photographs: Path, tmp_path: Path) -> None:
    found = read(photographs, cache=tmp_path / "cache", pictures="sift:8", hide_concepts=False)
    gallery = look(
        found,
        n_bits=8,
        shown=3,
        queries=("dog + ball", "slope"),
        methods={"cmssh": {}, "mmnn": {"steps": 3}},
    )
    for method in METHODS:
        right = [match for match in gallery.made_up[method][0].matches if match.right]
        assert all("dog" in tags_of(found.data, np.array([match.row]))[0] for match in right)
        for one in [*gallery.made_up[method], *gallery.words[method], *gallery.pictures[method]]:
            assert [match.distance for match in one.matches] == [
                int((match.bits != one.bits).sum()) for match in one.matches
            ]
        assert all(len(one.tags) <= 10 for one in gallery.annotated[method])
    assert gallery.quality["always"]["precision"] > 0
    html = Sheet(gallery, photographs / "images", 8).html()
    assert html.count("<article>") == 2 + 3 * 3
    assert html.count("data:image/jpeg;base64,") > 20
    assert "http" not in html, "nothing is loaded from elsewhere"


def test_captions_cannot_bring_markup_into_the_page(photographs: Path, tmp_path: Path) -> None:
    token = photographs / "Flickr8k.token.txt"
    token.write_text(token.read_text().replace("A brown dog", 'A "><script>alert(1)</script> dog'))
    found = read(photographs, cache=tmp_path / "cache", pictures="sift:8", hide_concepts=False)
    gallery = look(
        found, n_bits=8, shown=2, queries=("dog",), methods={"cmssh": {}, "mmnn": {"steps": 3}}
    )
    assert "<script>" not in Sheet(gallery, photographs / "images", 8).html()


def test_unknown_words_are_told_before_anything_is_learned(
    photographs: Path, tmp_path: Path
) -> None:
    found = read(photographs, cache=tmp_path / "cache", pictures="sift:8", hide_concepts=False)
    with pytest.raises(DataError, match="none of its words is among"):
        look(found, queries=("xyzzy",), methods={"cmssh": {"n_similar": "never read"}})

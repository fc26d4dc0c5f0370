from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossbit.errors import DataError
from crossbit_experiments.flickr8k.annotation import tags_of
from crossbit_experiments.flickr8k.dataset import load
from crossbit_experiments.flickr8k.html_report import HtmlReport
from crossbit_experiments.flickr8k.qualitative import METHODS, qualitative_results
from crossbit_experiments.flickr8k.vocabulary import (
    Vocabulary,
    implying_tags,
    inflections,
    load_concepts,
)

SAID = {
    "dog": ["A brown dog runs with a red ball", "Two dogs play", "The dog's toy is a green ball"],
    "snow": ["A person skiing down a white slope", "Snowmobile and snow", "somebody skis fast"],
    "none": ["A blue shape", "A yellow shape", "Nothing at all"],
}


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """A folder like Flickr8k: random images with SIFT features, three kinds of captions."""
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
    for part, listed in {
        "train": names[:24],
        "dev": names[24:30],
        "test": [*names[30:], "lost.jpg"],
    }.items():
        (tmp_path / f"Flickr_8k.{part}Images.txt").write_text("\n".join(listed))
    return tmp_path


def test_two_captions_must_mention_a_concept_in_any_inflection() -> None:
    vocabulary = Vocabulary.from_words({"dog": ["dog"], "snow": ["snow", "ski"]})
    assert vocabulary.shown(["the dog's bowl", "Dogs!", "a cat"]).tolist() == [True, False]
    assert vocabulary.shown(["a dog", "a cat", "skiing"]).tolist() == [False, False]
    assert vocabulary.shown(["skiing"]).tolist() == [False, True], (
        "a single caption is enough if there is only one"
    )
    assert not vocabulary.shown([]).any()


@pytest.mark.parametrize(
    ("word", "form"),
    [("puppy", "puppies"), ("swim", "swimming"), ("ride", "riding"), ("box", "boxes")],
)
def test_inflections(word: str, form: str) -> None:
    assert form in inflections(word)


def test_no_word_of_a_concept_is_a_tag() -> None:
    vocabulary = Vocabulary.from_words({"snow": ["snow", "ski"]})
    tags, leaks = vocabulary.choose_tags(
        [["snowing on a snowmobile", "he skis down a slope"], ["down the slope, skiing"]], 10
    )
    assert tags == ("down", "slope")
    assert (leaks.words, leaks.compounds, leaks.occurrences) == (3, 1, 4)


def test_only_the_most_frequent_words_are_tags() -> None:
    tags, _ = Vocabulary.from_words({"dog": ["dog"]}).choose_tags(
        [["red red blue green", "blue red"]], 2
    )
    assert tags == ("red", "blue")


def test_a_tag_that_implies_a_concept_is_named() -> None:
    labels = np.repeat([[True, False], [False, True]], 30, axis=0)
    tags = np.stack([labels[:, 0], np.arange(60) % 2, np.arange(60) < 5], axis=1)
    assert implying_tags(tags, labels, ["leash", "red", "rare"]) == ("leash",)


def test_no_word_belongs_to_two_concepts() -> None:
    concepts = load_concepts()
    words = [word for own in concepts.values() for word in own]
    assert len(concepts) > 20
    assert len(words) == len(set(words))


def test_photographs_become_a_data_set(photographs: Path, tmp_path: Path) -> None:
    loaded = load(photographs, cache=tmp_path / "cache", encoder="sift:8")
    data = loaded.data
    assert loaded.excluded == {
        "without an image or captions": 1,
        "without a concept": 12,
        "without a tag": 0,
        "without features": 0,
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
    assert not set(loaded.extractors["tags"].vocabulary) & {  # type: ignore[attr-defined]
        "dog",
        "dogs",
        "snow",
        "snowmobile",
        "skiing",
    }
    payload: Any = data.payload
    assert payload[0]["tags"] == ["ball", "brown", "runs", "red", "play", "toy", "green"], (
        "tags of most captions first"
    )


def test_loading_twice_gives_the_same_data_set(photographs: Path, tmp_path: Path) -> None:
    first, second = (
        load(photographs, cache=tmp_path / "cache", encoder="sift:8").data for _ in range(2)
    )
    assert np.array_equal(first.views["image"], second.views["image"])
    assert {k: list(v) for k, v in first.splits.items()} == {
        k: list(v) for k, v in second.splits.items()
    }


def test_the_report_shows_the_results(photographs: Path, tmp_path: Path) -> None:
    loaded = load(photographs, cache=tmp_path / "cache", encoder="sift:8", hide_concepts=False)
    results = qualitative_results(
        loaded,
        n_bits=8,
        shown=3,
        queries=("dog + ball", "slope"),
        methods={"cmssh": {}, "mmnn": {"steps": 3}},
    )
    for method in METHODS:
        right = [match for match in results.free_text[method][0].matches if match.relevant]
        assert all("dog" in tags_of(loaded.data, np.array([match.row]))[0] for match in right)
        for result in [
            *results.free_text[method],
            *results.text_to_image[method],
            *results.image_to_text[method],
        ]:
            assert [match.distance for match in result.matches] == [
                int((match.bits != result.bits).sum()) for match in result.matches
            ]
        assert all(len(result.tags) <= 10 for result in results.annotated[method])
    assert results.quality["always"]["precision"] > 0
    html = HtmlReport(results, photographs / "images", 8).render()
    assert html.count("<article>") == 2 + 3 * 3
    assert html.count("data:image/jpeg;base64,") > 20
    assert "http" not in html, "the page is self-contained"


def test_markup_in_captions_is_escaped(photographs: Path, tmp_path: Path) -> None:
    token = photographs / "Flickr8k.token.txt"
    token.write_text(token.read_text().replace("A brown dog", 'A "><script>alert(1)</script> dog'))
    loaded = load(photographs, cache=tmp_path / "cache", encoder="sift:8", hide_concepts=False)
    results = qualitative_results(
        loaded, n_bits=8, shown=2, queries=("dog",), methods={"cmssh": {}, "mmnn": {"steps": 3}}
    )
    assert "<script>" not in HtmlReport(results, photographs / "images", 8).render()


def test_unknown_words_are_reported_before_training(photographs: Path, tmp_path: Path) -> None:
    loaded = load(photographs, cache=tmp_path / "cache", encoder="sift:8", hide_concepts=False)
    with pytest.raises(DataError, match="none of its words is in the vocabulary"):
        qualitative_results(
            loaded, queries=("xyzzy",), methods={"cmssh": {"n_similar": "never read"}}
        )

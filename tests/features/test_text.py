from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from crossbit import DataError, FormatError, HashModel, Recipe, features
from crossbit.features import BagOfTags, Extractor, Tfidf
from crossbit.features.text import words
from crossbit.model import Affine

TAGS = [["sky", "cloud"], ["sky", "red food"], ["red"]]
TEXTS = ["A dog runs.", "the DOG sleeps; a dog's life", "cats sleep", "a cat and a dog"]
BAG, TFIDF = BagOfTags.fit(TAGS), Tfidf.fit(TEXTS)


def test_tags_are_ordered_by_frequency_then_name() -> None:
    assert BAG.vocabulary == ("sky", "cloud", "red", "red food")


def test_the_vocabulary_can_be_cut() -> None:
    assert BagOfTags.fit(TAGS, size=2).vocabulary == ("sky", "cloud")
    assert BagOfTags.fit(TAGS, least=2).vocabulary == ("sky",)


@pytest.mark.parametrize(
    ("thing", "tags"),
    [
        ("cloud", ["cloud"]),
        ("red + cloud", ["cloud", "red"]),
        ("#Sky #cloud", ["sky", "cloud"]),
        ("RED  FOOD, sky", ["sky", "red food"]),
        ("red cloud", ["cloud", "red"]),
        (["sky", "sky", "unknown"], ["sky"]),
    ],
)
def test_tags_made_up_on_the_spot(thing: str | list[str], tags: list[str]) -> None:
    assert BAG.known_tags(thing) == tags
    expected = [float(tag in tags) for tag in BAG.vocabulary]
    np.testing.assert_array_equal(BAG.extract([thing]), [expected])


@given(
    st.lists(st.sampled_from(["dog", "cat", "runs", "the", "zebra", "a"]), min_size=1).map(" ".join)
)
def test_tfidf_equals_the_peer(text: str) -> None:
    peer = TfidfVectorizer(analyzer=words, vocabulary=list(TFIDF.vocabulary)).fit(TEXTS)
    expected = peer.transform([text]).toarray()
    if expected.any():
        np.testing.assert_allclose(TFIDF.extract([text]), expected, rtol=1e-6)
    else:
        with pytest.raises(DataError, match="none of its words is among"):
            TFIDF.extract([text])


@pytest.mark.parametrize("describer", [BAG, TFIDF])
def test_a_recipe_survives_a_model_folder(describer: Extractor, tmp_path: Path) -> None:
    model = HashModel(
        {"text": [Affine(np.eye(describer.width), np.zeros(describer.width))]}, describer.width
    )
    HashModel(model.encoders, model.n_bits, {"text": describer.recipe()}).save(tmp_path / "model")
    again = features.load_extractor(HashModel.load(tmp_path / "model").recipes["text"])
    assert again.recipe() == describer.recipe()
    thing = describer.recipe().files["vocabulary.txt"].decode().split("\n")[0]
    np.testing.assert_array_equal(again.extract([thing]), describer.extract([thing]))


def test_nothing_gives_no_rows() -> None:
    assert BAG.extract([]).shape == (0, 4)


def test_unknown_words_suggest_others() -> None:
    with pytest.raises(
        DataError, match=r"^clouds: none of its words is among the 4 known ones; perhaps: cloud$"
    ):
        BAG.extract(["sky", "clouds"])
    with pytest.raises(DataError, match="perhaps: sky, cloud, red"):
        BAG.extract(["xyzzy"])


@pytest.mark.parametrize("describer", [BAG, TFIDF])
def test_an_empty_text_is_refused(describer: Extractor) -> None:
    with pytest.raises(DataError, match="there is no word in it"):
        describer.extract([" , "])


def test_one_thing_is_not_a_list() -> None:
    with pytest.raises(
        DataError, match=r"expected a list of inputs, got one str; pass \[input\]"
    ):
        BAG.extract("cloud")


def test_things_of_another_kind_are_refused() -> None:
    with pytest.raises(
        DataError, match="3 bytes: expected a list of tags or a string such as 'red"
    ):
        BAG.extract([b"sky"])
    with pytest.raises(DataError, match=r"\['a', 'dog'\]: expected a text, got list"):
        TFIDF.extract([["a", "dog"]])


@pytest.mark.parametrize("thing", [None, 5, 1.5])
def test_what_is_no_thing_is_named(thing: object) -> None:
    for describer in (BagOfTags.fit([["sky"]]), Tfidf.fit(["sky"])):
        with pytest.raises(DataError, match=rf"^{thing!r}: expected "):
            describer.extract([thing])  # type: ignore[list-item]
        with pytest.raises(DataError, match=r"expected a list of inputs, got one"):
            describer.extract(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize("fit", [BagOfTags.fit, Tfidf.fit])
def test_letters_are_no_things_to_learn_from(fit: Callable[[str], Extractor]) -> None:
    with pytest.raises(
        DataError, match=r"expected a list of inputs, got one str; pass \[input\]"
    ):
        fit("sky")


def test_a_vocabulary_needs_words() -> None:
    with pytest.raises(DataError, match="no word occurs in at least 5 of 4 things"):
        Tfidf.fit(TEXTS, least=5)
    with pytest.raises(DataError, match="the size of a vocabulary is a whole number of at least 1"):
        BagOfTags.fit(TAGS, size=0)
    with pytest.raises(DataError, match="needs different words"):
        BagOfTags(("a", "a"))


def test_a_recipe_of_an_unknown_kind() -> None:
    with pytest.raises(DataError, match=r"unknown kind of recipe 'smell'; known: .*'tags'"):
        features.load_extractor(Recipe("smell"))


def test_a_damaged_recipe() -> None:
    with pytest.raises(FormatError, match="a recipe of kind 'tfidf' is corrupted"):
        features.load_extractor(Recipe("tfidf", files={"vocabulary.txt": b"a\nb"}))
    with pytest.raises(FormatError, match="expected a weight for each of 2 words"):
        features.load_extractor(
            Recipe("tfidf", arrays={"rarity": np.ones(3)}, files={"vocabulary.txt": b"a\nb"})
        )

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
    ("raw", "tags"),
    [
        ("cloud", ["cloud"]),
        ("red + cloud", ["cloud", "red"]),
        ("#Sky #cloud", ["sky", "cloud"]),
        ("RED  FOOD, sky", ["sky", "red food"]),
        ("red cloud", ["cloud", "red"]),
        (["sky", "sky", "unknown"], ["sky"]),
    ],
)
def test_tags_are_recognized_in_any_spelling(raw: str | list[str], tags: list[str]) -> None:
    assert BAG.terms(raw) == tags
    expected = [float(tag in tags) for tag in BAG.vocabulary]
    np.testing.assert_array_equal(BAG.extract([raw]), [expected])


@given(
    st.lists(st.sampled_from(["dog", "cat", "runs", "the", "zebra", "a"]), min_size=1).map(" ".join)
)
def test_tfidf_equals_scikit_learn(text: str) -> None:
    peer = TfidfVectorizer(analyzer=words, vocabulary=list(TFIDF.vocabulary)).fit(TEXTS)
    expected = peer.transform([text]).toarray()
    if expected.any():
        np.testing.assert_allclose(TFIDF.extract([text]), expected, rtol=1e-6)
    else:
        with pytest.raises(DataError, match="none of its words is in the vocabulary"):
            TFIDF.extract([text])


@pytest.mark.parametrize("extractor", [BAG, TFIDF])
def test_a_recipe_survives_a_model_folder(extractor: Extractor, tmp_path: Path) -> None:
    model = HashModel(
        {"text": [Affine(np.eye(extractor.width), np.zeros(extractor.width))]}, extractor.width
    )
    HashModel(model.encoders, model.n_bits, {"text": extractor.recipe()}).save(tmp_path / "model")
    again = features.load_extractor(HashModel.load(tmp_path / "model").recipes["text"])
    assert again.recipe() == extractor.recipe()
    word = extractor.recipe().files["vocabulary.txt"].decode().split("\n")[0]
    np.testing.assert_array_equal(again.extract([word]), extractor.extract([word]))


def test_no_inputs_give_no_rows() -> None:
    assert BAG.extract([]).shape == (0, 4)


def test_unknown_words_suggest_similar_ones() -> None:
    message = "^clouds: none of its words is in the vocabulary of 4 words; similar: cloud$"
    with pytest.raises(DataError, match=message):
        BAG.extract(["sky", "clouds"])
    with pytest.raises(DataError, match="4 words; it has: sky, cloud, red"):
        BAG.extract(["xyzzy"])


@pytest.mark.parametrize("extractor", [BAG, TFIDF])
def test_an_empty_text_is_rejected(extractor: Extractor) -> None:
    with pytest.raises(DataError, match="contains no words"):
        extractor.extract([" , "])


def test_a_single_input_is_rejected() -> None:
    with pytest.raises(DataError, match=r"expected a list of inputs, got one str; pass \[input\]"):
        BAG.extract("cloud")


def test_inputs_of_another_kind_are_rejected() -> None:
    with pytest.raises(
        DataError, match="3 bytes: expected a list of tags or a string such as 'red"
    ):
        BAG.extract([b"sky"])
    with pytest.raises(DataError, match=r"\['a', 'dog'\]: expected a text, got list"):
        TFIDF.extract([["a", "dog"]])


@pytest.mark.parametrize("raw", [None, 5, 1.5])
def test_a_value_that_is_no_input_is_named(raw: object) -> None:
    for extractor in (BagOfTags.fit([["sky"]]), Tfidf.fit(["sky"])):
        with pytest.raises(DataError, match=rf"^{raw!r}: expected "):
            extractor.extract([raw])  # type: ignore[list-item]
        with pytest.raises(DataError, match=r"expected a list of inputs, got one"):
            extractor.extract(raw)  # type: ignore[arg-type]


@pytest.mark.parametrize("fit", [BagOfTags.fit, Tfidf.fit])
def test_fit_rejects_a_single_text(fit: Callable[[str], Extractor]) -> None:
    with pytest.raises(DataError, match=r"expected a list of inputs, got one str; pass \[input\]"):
        fit("sky")


def test_a_vocabulary_needs_words() -> None:
    with pytest.raises(DataError, match="no word occurs in at least 5 of 4 inputs"):
        Tfidf.fit(TEXTS, least=5)
    with pytest.raises(DataError, match="size of a vocabulary must be an integer of at least 1"):
        BagOfTags.fit(TAGS, size=0)
    with pytest.raises(
        DataError, match="at least one word and no duplicates, got 2 words, 1 of them distinct"
    ):
        BagOfTags(("a", "a"))


def test_a_recipe_of_an_unknown_kind_is_rejected() -> None:
    with pytest.raises(DataError, match=r"unknown kind of recipe 'smell'; known: .*'tags'"):
        features.load_extractor(Recipe("smell"))


def test_a_corrupted_recipe_is_rejected() -> None:
    with pytest.raises(FormatError, match="a recipe of kind 'tfidf' is corrupted"):
        features.load_extractor(Recipe("tfidf", files={"vocabulary.txt": b"a\nb"}))
    with pytest.raises(FormatError, match="expected one weight for each of 2 words"):
        features.load_extractor(
            Recipe("tfidf", arrays={"rarity": np.ones(3)}, files={"vocabulary.txt": b"a\nb"})
        )

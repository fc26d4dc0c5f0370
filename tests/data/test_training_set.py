"""Training sets: labels per row or per modality, pairs, aligned rows, missing modalities."""

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from crossbit._validation import present_rows
from crossbit.data import Pairs, training_set
from crossbit.data.training_set import TrainingSet, check_view
from crossbit.errors import DataError

RNG = np.random.default_rng(0)
X, Y = RNG.random((5, 3)), RNG.random((5, 2))
SHORT = Y[:3]


def pair(
    left: str = "image",
    right: str = "text",
    index: Any = ((0, 1),),  # noqa: ANN401
    similar: Any = (True,),  # noqa: ANN401
) -> Pairs:
    return Pairs(left, right, np.array(index), np.array(similar))


def without(view: Any, *rows: int) -> Any:  # noqa: ANN401
    gone = view.copy()
    gone[list(rows)] = np.nan
    return gone


def test_labels_of_a_row_count_for_every_view() -> None:
    train = training_set({"image": X, "text": Y}, labels=[0, 1, 1, -1, 0])
    assert train.aligned
    assert not train.aligned_supervision
    assert train.modalities == ["image", "text"]
    assert train.labels["image"].tolist() == train.labels["text"].tolist() == [0, 1, 1, -1, 0]


def test_labels_of_each_modality_allow_views_of_different_lengths() -> None:
    train = training_set(
        {"image": X, "text": SHORT}, labels={"image": [0, 1, 1, 0, 0], "text": [1, 1, 0]}
    )
    assert not train.aligned
    assert train.labels["text"].tolist() == [1, 1, 0]
    partly = training_set(
        {"image": X, "text": SHORT}, labels={"image": [0, 1, 1, 0, 0]}, pairs=[pair()]
    )
    assert list(partly.labels) == ["image"]


def test_views_are_aligned_without_labels_and_pairs() -> None:
    train = training_set({"image": X, "text": Y})
    assert train.aligned
    assert train.aligned_supervision
    with pytest.raises(
        DataError, match=r"must have the same number of rows, got \{'image': 5, 'text': 3\}"
    ):
        training_set({"image": X, "text": SHORT})


def test_pairs_alone_do_not_imply_aligned_views() -> None:
    train = training_set({"image": X, "text": SHORT}, pairs=pair())
    assert not train.aligned
    assert not train.aligned_supervision
    assert len(train.pairs) == 1
    both = training_set(
        {"image": X, "text": Y}, pairs=[pair(), pair("image", "image")], aligned=True
    )
    assert both.aligned_supervision
    assert [listed.key for listed in both.pairs] == ["image-text", "image-image"]


def test_any_mixture_with_a_third_modality() -> None:
    views = {"image": X, "text": Y, "sound": X + 1}
    train = training_set(views, labels=[0, 1, 0, 1, 0], pairs=[pair("text", "sound")], aligned=True)
    assert train.aligned
    assert train.aligned_supervision
    assert train.modalities == ["image", "text", "sound"]


def test_a_row_of_nan_is_absent_from_its_view_only() -> None:
    train = training_set({"image": without(X, 1), "text": without(Y, 3, 4)}, labels=[0, 1, 0, 1, 0])
    assert train.present["image"].tolist() == [True, False, True, True, True]
    assert train.paired_rows("image", "text").tolist() == [0, 2]
    known = train.labels_present()
    assert known["image"].tolist() == [0, -1, 0, 1, 0]
    assert known["text"].tolist() == [0, 1, 0, -1, -1]
    multi_label = training_set(
        {"image": without(X, 1)}, labels=np.ones((5, 2), bool)
    ).labels_present()["image"]
    assert multi_label.any(axis=1).tolist() == [True, False, True, True, True]


def test_views_may_be_images_and_integers() -> None:
    train = training_set(
        {"image": np.zeros((5, 2, 4, 4), np.float16), "text": np.ones((5, 2), np.int32)}
    )
    assert train.present["image"].all()
    assert train.present["text"].all()


@pytest.mark.parametrize(
    ("views", "arguments", "message"),
    [
        ([X], {}, "views must map modalities to arrays, such as .*; got list"),
        ({}, {}, "views must map modalities to arrays"),
        ({"a-b": X}, {}, "letters, digits and underscores, got 'a-b'"),
        (
            {"image": np.zeros((0, 3))},
            {},
            r"view 'image': an array of shape \(0, 3\) is empty",
        ),
        ({"image": [["a"]]}, {}, "view 'image': expected numbers"),
        ({"image": X[0]}, {}, r"view 'image': .* got shape \(3,\)"),
        (
            {"image": np.where([[1], [1], [0], [1], [1]], X, [[0.0, np.nan, 0.0]])},
            {},
            r"row 2 \(counted from 0\) contains NaN or infinity",
        ),
        (
            {"image": np.where([[1], [0], [1], [1], [1]], X, np.inf)},
            {},
            r"row 1 \(counted from 0\) contains NaN or infinity beside",
        ),
        (
            {"image": np.where([[1], [0], [1], [1], [1]], X, 1e19)},
            {},
            r"row 1 .* contains .* a number beyond ±1e\+18",
        ),
        ({"image": np.full((5, 3), np.nan)}, {}, r"view 'image': every row is absent \(all NaN\)"),
        ({"image": X}, {"labels": [0, 1]}, "labels of 'image': expected one for each of 5 rows"),
        ({"image": X}, {"labels": {"text": [0]}}, r"unknown modality 'text'; known: \['image'\]"),
        (
            {"image": X, "text": SHORT},
            {"labels": [0] * 5},
            r"pass labels as \{modality: array\}, or pairs",
        ),
        (
            {"image": X, "text": Y},
            {"pairs": [pair(index=[[0, 5]])]},
            "row 5 .* of 'text' is out of range, the view has 5",
        ),
        (
            {"image": X, "text": without(Y, 1)},
            {"pairs": pair()},
            r"row 1 .* of 'text' is absent \(all NaN\)",
        ),
        ({"image": X}, {"pairs": pair()}, "unknown modality 'text'"),
        (
            {"image": X},
            {"pairs": np.array([[0, 1]])},
            r"pairs: expected Pairs objects, such as .*; got ndarray",
        ),
        (
            {"image": X},
            {"pairs": [(0, 1)]},
            r"pairs: expected Pairs objects, such as .*; got tuple",
        ),
        (
            {"image": X},
            {"labels": [[0], [0, 1], [1], [1], [1]]},
            "labels of 'image': rows of unequal lengths",
        ),
        ({"image": X}, {"labels": [np.inf] * 5}, "labels of 'image': classes must be integers"),
        (
            {"image": np.ma.masked_less(X, 0.5)},
            {},
            r"view 'image': some numbers are masked; .* X\.filled\(np\.nan\)",
        ),
        (
            {"image": scipy.sparse.csr_matrix(X)},
            {},
            r"view 'image': .* got a sparse csr_matrix; pass X\.toarray\(\)",
        ),
    ],
)
def test_unusable_input_is_rejected(
    views: Any,  # noqa: ANN401
    arguments: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(DataError, match=message):
        training_set(views, **arguments)


def test_a_bad_row_beyond_the_first_block_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[TrainingSet.__module__], "_BLOCK", 2)
    bad = X.copy()
    bad[3, 0] = np.nan
    with pytest.raises(DataError, match=r"rows of 'image': row 3 \(counted from 0\) contains NaN"):
        check_view("image", bad)
    assert check_view("image", without(X, 4)).tolist() == [True] * 4 + [False]


def test_a_row_is_absent_when_all_of_it_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit._validation._BLOCK", 2)
    half = without(X, 0, 3, 4)
    half[1, 0] = np.nan
    assert present_rows(half).tolist() == [False, True, True, False, False]
    assert present_rows(without(X, 2).reshape(5, 3, 1)).tolist() == [True, True, False, True, True]
    assert present_rows(np.ones((5, 2), int)).all()
    assert present_rows(np.zeros((5, 0))).all()


def test_a_masked_array_without_masked_values_is_accepted() -> None:
    assert training_set({"image": np.ma.masked_invalid(X)}).present["image"].all()

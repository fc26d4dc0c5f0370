"""Codes made from labels: which rows get them, and which labels are refused."""

from pathlib import Path

import numpy as np
import pytest

from crossbit import DataError, FormatError, HashModel
from crossbit.model import Affine
from crossbit.model.label_encoder import LabelEncoder

SIGNS = Affine(np.eye(2), np.zeros(2))
ROWS = [[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]


def model(n_columns: int | None = None, names: tuple[str, ...] = ()) -> HashModel:
    """Classes 2 and 5 have the codes 01 and 10; rows are coded by their signs."""
    encoder = LabelEncoder(
        [Affine(np.array([[-1.0, 1.0], [1.0, -1.0]]), np.full(2, -0.5))],
        np.array([0, 1] if names else [2, 5]),
        n_columns,
        names,
    )
    return HashModel({"image": [SIGNS], "text": [SIGNS]}, 2, label_encoder=encoder)


def test_labeled_rows_get_the_code_of_their_class_and_others_that_of_their_features() -> None:
    codes = model().encode("image", ROWS, labels=[5, -1, 2])
    np.testing.assert_array_equal(codes.unpack(), [[1, 0], [1, 0], [0, 1]])
    assert codes.model == model().fingerprint()
    scores = model().scores("text", ROWS, labels=[5, -1, 2])
    np.testing.assert_array_equal(scores, [[0.5, -1.5], [1, -1], [-1.5, 0.5]])


def test_a_row_of_several_classes_joins_their_columns() -> None:
    several = model(n_columns=6)
    labels = np.zeros((3, 6), bool)
    labels[0, [2, 5]] = True
    labels[1, 5] = True
    codes = several.encode("image", ROWS, labels=labels)
    np.testing.assert_array_equal(codes.unpack(), [[0, 0], [1, 0], [0, 0]])


def test_words_are_those_of_training() -> None:
    codes = model(names=("cat", "dog")).encode("image", ROWS, labels=["dog", None, "cat"])
    np.testing.assert_array_equal(codes.unpack(), [[1, 0], [1, 0], [0, 1]])
    several = model(n_columns=2, names=("cat", "dog"))
    codes = several.encode("image", ROWS, labels=[["dog"], [], ["cat"]])
    np.testing.assert_array_equal(codes.unpack(), [[1, 0], [1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("encoder", "labels", "message"),
    [
        (model(), [5, 3, 2], "the class 3 was not in the training labels; mark such rows"),
        (model(n_columns=6), np.eye(3, 6), "the class 0 was not in the training labels"),
        (model(names=("cat", "dog")), ["dog", "cow", "cat"], "the class 'cow' was not in"),
        (model(), np.eye(3), r"trained on one class per row, shape \(n,\); got shape \(3, 3\)"),
        (model(n_columns=6), [2, 2, 2], r"zeros and ones of shape \(n, 6\); got shape \(3,\)"),
        (model(), [5, 2], "labels: expected one for each of 3 rows"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    encoder: HashModel, labels: object, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        encoder.encode("image", ROWS, labels=labels)  # type: ignore[arg-type]


def test_a_model_without_label_encoder_refuses_labels() -> None:
    plain = HashModel({"image": [SIGNS]}, 2)
    with pytest.raises(DataError, match="makes no codes from labels; leave labels out"):
        plain.encode("image", ROWS, labels=[5, -1, 2])


def test_it_is_stored_with_the_model(tmp_path: Path) -> None:
    stored = model(names=("cat", "dog"))
    stored.save(tmp_path / "model")
    loaded = HashModel.load(tmp_path / "model")
    assert loaded == stored
    assert loaded.fingerprint() == stored.fingerprint()
    others = [model(), HashModel(stored.encoders, 2)]
    assert all(loaded != other for other in others)
    assert len({each.fingerprint() for each in (loaded, *others)}) == 3
    assert len({each.modality_fingerprint("text") for each in (loaded, *others)}) == 1


def test_its_width_is_checked() -> None:
    encoder = LabelEncoder([Affine(np.eye(3), np.zeros(3))], np.arange(3))
    with pytest.raises(DataError, match="its layers output 3 columns, expected 2 bits"):
        HashModel({"image": [SIGNS]}, 2, label_encoder=encoder)


def test_a_broken_entry_is_no_valid_model(tmp_path: Path) -> None:
    model().save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace('"n_columns"', '"columns"'))
    with pytest.raises(FormatError, match=r"config\.json"):
        HashModel.load(tmp_path / "model")

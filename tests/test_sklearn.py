"""Habits of scikit-learn: parameters, clone, estimator checks, pipelines and searches."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from crossbit import CCAITQ, HASHERS, LSH, AutoHash, ClassRidge
from crossbit.data import synthetic
from crossbit.errors import DataError
from crossbit.sklearn import HashTransformer
from tests.contracts.options import another

DATA = synthetic(n=90, classes=3)
X = np.asarray(DATA.views["image"])
Y = np.array(["cat", "dog", "owl"])[np.asarray(DATA.labels)]
BOTH = np.hstack([X, np.asarray(DATA.views["text"])])
VIEWS = {"image": slice(0, X.shape[1]), "text": slice(X.shape[1], BOTH.shape[1])}


@pytest.mark.filterwarnings("ignore")
def test_the_transformer_is_an_estimator() -> None:
    results = check_estimator(HashTransformer(), on_skip=None)
    assert len(results) > 40
    assert {result["status"] for result in results} <= {"passed", "skipped"}


@pytest.mark.parametrize("name", sorted(HASHERS))
def test_every_hasher_can_be_cloned_and_changed(name: str) -> None:
    hasher = HASHERS[name](n_bits=16, seed=3)
    copy = clone(hasher)
    assert copy is not hasher
    assert copy.get_params() == hasher.get_params()
    assert copy.set_params(n_bits=8) is copy
    assert (copy.n_bits, hasher.n_bits) == (8, 16)
    with pytest.raises(DataError, match="unknown fields"):
        copy.set_params(bits=8)


@pytest.mark.parametrize("name", sorted(HASHERS))
def test_a_clone_has_all_fields(name: str) -> None:
    default = HASHERS[name]()
    changed = {
        field: another(name, field, value)
        for field, value in default.get_params().items()
        if field != "networks"
    }
    if name == "mmnn":
        changed |= {"hidden": {"image": (8,)}, "alpha": {"image": 0.5}}
    hasher = HASHERS[name](**changed)
    assert hasher.get_params() == default.get_params() | changed
    assert all(hasher.get_params()[field] is value for field, value in changed.items())
    assert clone(hasher) == hasher


def test_lists_of_a_configuration_become_tuples() -> None:
    hasher = AutoHash(candidates=("dch", "batch"))
    configuration = hasher.configuration()
    assert configuration["candidates"] == ["dch", "batch"]
    assert AutoHash.from_configuration(configuration) == hasher


def test_a_search_over_the_fields_of_a_method() -> None:
    steps = [
        ("scale", StandardScaler()),
        ("hash", HashTransformer(ClassRidge(n_bits=8))),
        ("nearest", KNeighborsClassifier(3, metric="hamming")),
    ]
    search = GridSearchCV(Pipeline(steps), {"hash__hasher__n_bits": [1, 16]}, cv=2)
    search.fit(X, Y)
    assert search.best_params_ == {"hash__hasher__n_bits": 16}
    assert search.best_score_ > 0.8
    assert set(search.predict(X)) <= set(Y)


def test_labels_are_used_by_methods_that_learn_from_them() -> None:
    supervised = HashTransformer(ClassRidge(n_bits=16)).fit(X, Y)
    assert supervised.model_.card["data"]["labels of x"] == "90 rows in 3 classes"
    assert "labels of x" not in HashTransformer().fit(X, Y).model_.card["data"]


def test_columns_are_split_into_modalities() -> None:
    hashing = HashTransformer(CCAITQ(n_bits=8), views=VIEWS)
    bits = hashing.fit_transform(BOTH)
    assert (bits.shape, bits.dtype) == ((90, 16), np.uint8)
    expected = CCAITQ(n_bits=8).fit(DATA.views)
    np.testing.assert_array_equal(bits[:, :8], expected.encode("image", X).unpack())
    assert hashing.encode(BOTH, "text") == expected.encode("text", DATA.views["text"])
    with pytest.raises(DataError, match=r"name the modality: one of \['image', 'text'\]"):
        hashing.encode(BOTH)
    one = hashing.set_params(modality="text").fit(BOTH)
    assert one.transform(BOTH).shape == (90, 8)
    assert one.get_feature_names_out()[-1] == "hashtransformer7"
    with pytest.raises(DataError, match="modality must be one of"):
        hashing.set_params(modality="sound").fit(BOTH)


def test_columns_of_a_frame_are_named() -> None:
    frame = pd.DataFrame(BOTH, columns=[f"c{k}" for k in range(BOTH.shape[1])])
    views: dict[str, Any] = {"image": [f"c{k}" for k in range(X.shape[1])], "text": [-1, -2, -3]}
    hashing = HashTransformer(LSH(n_bits=8), views=views).set_output(transform="pandas")
    bits = hashing.fit_transform(frame)
    assert list(bits.columns[:2]) == ["hashtransformer0", "hashtransformer1"]
    with pytest.raises(DataError, match=r"X has no columns \['c99'\]"):
        HashTransformer(views={"image": ["c99"]}).fit(frame)

"""The contract of every method; a new method is tested as soon as it exists."""

import dataclasses
import inspect
import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import crossbit
from crossbit import HASHERS, DataError, Hasher, HashModel, Pairs
from crossbit._progress import Step

Array = NDArray[Any]
random = np.random.default_rng(0)
N, CLASSES = 90, 3
classes = np.arange(N) % CLASSES
many = np.eye(CLASSES, dtype=bool)[classes]
many[::5, 0] = True
centers = {"image": random.normal(size=(CLASSES, 12)), "text": random.normal(size=(CLASSES, 7))}
VIEWS: dict[str, Array] = {
    name: center[classes] + 0.3 * random.normal(size=(N, center.shape[1]))
    for name, center in centers.items()
}
THIRD = random.normal(size=(CLASSES, 5))[classes] + 0.3 * random.normal(size=(N, 5))


def cross_pairs(views: dict[str, Array], labels: Array) -> list[Pairs]:
    """Every tenth pair of rows, within and across modalities."""
    left, right = np.divmod(np.arange(0, N * N, 10), N)
    index, similar = np.stack([left, right], axis=1), labels[left] == labels[right]
    names = list(views)
    return [Pairs(a, b, index, similar) for i, a in enumerate(names) for b in names[i:]]


SUPERVISION: dict[str, dict[str, Any]] = {
    "labels": {"labels": classes},
    "multi-labels": {"labels": many},
    "pairs": {"pairs": cross_pairs(VIEWS, classes)},
    "aligned": {},
}
methods = pytest.mark.parametrize("method", sorted(HASHERS))
NETWORKS = ("mmnn", "cmnn")  # their default loss needs dissimilar pairs


def make(method: str, **fields: Any) -> Hasher:  # noqa: ANN401 - fields of any method
    return HASHERS[method](**{"n_bits": 16, **fields})


def views_for(method: str) -> dict[str, Array]:
    """As many modalities as the method takes, at most two."""
    most = HASHERS[method].modalities[1]
    return dict(list(VIEWS.items())[: min(2, most or 2)])


def supervision_for(method: str) -> dict[str, Any]:
    kinds = HASHERS[method].supervision or {"aligned"}
    kind = next(kind for kind in ("labels", "pairs", "aligned") if kind in kinds)
    chosen = dict(SUPERVISION[kind])
    if kind == "pairs":
        chosen["pairs"] = cross_pairs(views_for(method), classes)
    return chosen


@pytest.fixture(scope="module")
def fitted() -> dict[str, HashModel]:
    return {
        method: make(method).fit(views_for(method), **supervision_for(method)) for method in HASHERS
    }


@methods
def test_fit_gives_a_model_of_all_modalities(method: str, fitted: dict[str, HashModel]) -> None:
    model = fitted[method]
    assert model.modalities == list(views_for(method))
    for name, view in views_for(method).items():
        codes = model.encode(name, view)
        assert (len(codes), codes.n_bits) == (N, 16)


@methods
def test_the_same_seed_gives_the_same_model(method: str, fitted: dict[str, HashModel]) -> None:
    again = make(method).fit(views_for(method), **supervision_for(method))
    assert again.fingerprint() == fitted[method].fingerprint()


@methods
def test_global_generators_are_never_touched(method: str) -> None:
    np.random.seed(0)  # noqa: NPY002
    before = np.random.random(3)  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    make(method).fit(views_for(method), **supervision_for(method))
    np.testing.assert_array_equal(np.random.random(3), before)  # noqa: NPY002


@methods
def test_the_model_survives_its_folder(
    method: str, fitted: dict[str, HashModel], tmp_path: Path
) -> None:
    fitted[method].save(tmp_path / "model")
    loaded = HashModel.load(tmp_path / "model")
    assert loaded.fingerprint() == fitted[method].fingerprint()
    for name, view in views_for(method).items():
        assert loaded.encode(name, view) == fitted[method].encode(name, view)


@methods
def test_the_card_records_the_configuration(method: str, fitted: dict[str, HashModel]) -> None:
    card = fitted[method].card
    assert card["method"] == method
    assert HASHERS[method].from_configuration(card["fields"]) == make(method)
    assert "image" in card["data"]
    assert json.loads(json.dumps(card, allow_nan=False)) == card  # plain data


@methods
@pytest.mark.parametrize("kind", SUPERVISION)
def test_every_accepted_supervision_works(method: str, kind: str) -> None:
    needed = HASHERS[method].supervision
    supervision = dict(SUPERVISION[kind])
    if kind == "pairs":
        supervision["pairs"] = cross_pairs(views_for(method), classes)
    # Labels in one array imply that the views are aligned.
    provides = {"pairs"} if kind == "pairs" else {"aligned"}
    if kind.endswith("labels"):
        provides.add("labels")
    if needed and not needed & provides:
        with pytest.raises(DataError, match=f"{method} learns from"):
            make(method).fit(views_for(method), **supervision)
    elif method in NETWORKS and kind == "aligned":
        with pytest.raises(DataError, match="RankedCCA"):
            make(method).fit(views_for(method), **supervision)
        make(method, loss="ranking", steps=5).fit(views_for(method), **supervision)
    else:
        model = make(method).fit(views_for(method), **supervision)
        assert model.modalities == list(views_for(method))


KINDS_OF_INPUTS = ("none", "sqrt+standardize", "center+rbf(20)", "auto", "posteriors")


@methods
@pytest.mark.parametrize("inputs", [*KINDS_OF_INPUTS, {"image": "unit"}])
def test_every_kind_of_inputs_works(method: str, inputs: Any) -> None:  # noqa: ANN401
    hasher = HASHERS[method]
    if method == "auto":
        with pytest.raises(TypeError, match="inputs"):
            make(method, inputs=inputs)
        return
    views = views_for(method)
    if method == "softap" and inputs != "posteriors":
        with pytest.raises(DataError, match="posteriors"):
            make(method, inputs=inputs).fit(views, labels=classes)
        return
    supervision: dict[str, Any] = {"labels": classes}
    if hasher.supervision and "labels" not in hasher.supervision:
        supervision["aligned"] = True
    model = make(method, inputs=inputs).fit(views, **supervision)
    default = next(f.default for f in dataclasses.fields(hasher) if f.name == "inputs")
    for name in views:
        given = inputs.get(name, default) if isinstance(inputs, dict) else inputs
        assert (model.n_inputs[name] > 0) == (given != "none")
        # The inputs given replace the method's own preparation: the card names them.
        if given in ("sqrt+standardize", "center+rbf(20)", "unit"):
            assert model.card["inputs"][name] == given
        assert len(np.unique(model.encode(name, views[name]).words)) > 1


@methods
def test_neighbors_are_learned_ignored_or_refused(method: str) -> None:
    hasher = make(method)
    views = views_for(method)
    if hasher.supervision and "neighbors" not in hasher.supervision:
        with pytest.raises(DataError, match=f"{method} does not learn from neighbors; use one of"):
            hasher.fit(views, neighbors="cosine")
        return
    if method == "auto":
        with pytest.raises(DataError, match="labels or from neighbors"):
            hasher.fit(views, neighbors="cosine", **supervision_for(method))
        with pytest.raises(DataError, match="one modality at a time"):
            hasher.fit(views, neighbors="cosine")
        views = {"image": views["image"]}
        model = hasher.fit(views, neighbors="cosine")
    elif method in NETWORKS:
        with pytest.raises(DataError, match="RankedITQ"):
            hasher.fit(views, neighbors="cosine", **supervision_for(method))
        model = make(method, loss="ranking", steps=5).fit(
            views, neighbors="cosine", **supervision_for(method)
        )
    else:
        model = hasher.fit(views, neighbors="cosine", **supervision_for(method))
    assert model.modalities == list(views)
    learned = [key for key in model.card["data"] if key.startswith("neighbors")]
    # rankeditq needs no supervision, but takes neighbors by another metric.
    assert len(learned) == (len(views) if hasher.supervision or method == "rankeditq" else 0)


@methods
def test_rows_of_nan_are_absent(method: str) -> None:
    views = {name: view.copy() for name, view in views_for(method).items()}
    for i, view in enumerate(views.values()):
        view[i :: 2 + len(views)] = np.nan
    supervision = {k: v for k, v in supervision_for(method).items() if k != "pairs"}
    model = make(method).fit(views, **supervision)
    for name in views:
        assert len(np.unique(model.encode(name, VIEWS[name]).words)) > 1


@methods
def test_three_modalities_where_the_method_allows(method: str) -> None:
    views = {**VIEWS, "sound": THIRD}
    most = HASHERS[method].modalities[1]
    if most is not None and most < 3:
        with pytest.raises(DataError, match=f"{method} needs .* modalities, got 3"):
            make(method).fit(views, labels=classes)
    else:
        assert make(method).fit(views, labels=classes).modalities == ["image", "text", "sound"]


@methods
def test_too_few_modalities_are_rejected(method: str) -> None:
    image_only = {"image": VIEWS["image"]}
    if HASHERS[method].modalities[0] > 1:
        with pytest.raises(DataError, match=f"{method} needs .* modalities, got 1"):
            make(method).fit(image_only, labels=classes)
    else:
        assert make(method).fit(image_only, labels=classes).modalities == ["image"]


@methods
@pytest.mark.parametrize("n_bits", [1, 12, 70])
def test_any_number_of_bits(method: str, n_bits: int) -> None:
    model = make(method, n_bits=n_bits).fit(views_for(method), **supervision_for(method))
    assert model.encode("image", VIEWS["image"]).n_bits == n_bits


@methods
@pytest.mark.parametrize("n_bits", [0, 1025, 2.5, "32"])
def test_a_wrong_number_of_bits_is_rejected(method: str, n_bits: object) -> None:
    with pytest.raises(DataError, match="the number of bits must be an integer from 1 to 1024"):
        make(method, n_bits=n_bits).fit(views_for(method), **supervision_for(method))


@methods
@pytest.mark.parametrize("seed", [-1, 1.5, "0", float("nan")])
def test_invalid_fields_are_rejected(method: str, seed: object) -> None:
    with pytest.raises(DataError, match=f"{method}: seed must be"):
        make(method, seed=seed).fit(views_for(method), **supervision_for(method))


@methods
def test_views_of_more_dimensions_are_rejected_with_a_remedy(method: str) -> None:
    views = {name: view[:, :6].reshape(N, 3, 2) for name, view in views_for(method).items()}
    with pytest.raises(DataError, match=r"flatten them|network"):
        make(method).fit(
            views, **{k: v for k, v in supervision_for(method).items() if k != "pairs"}
        )


@methods
def test_columns_may_have_any_scale_and_offset(method: str) -> None:
    views = {name: view.copy() for name, view in views_for(method).items()}
    views["image"][:, 0] *= 1e6
    views["image"][:, 1] += 1e4
    model = make(method).fit(views, **supervision_for(method))
    assert len(np.unique(model.encode("image", views["image"]).words)) > 1


@methods
def test_invalid_data_is_rejected(method: str) -> None:
    views = views_for(method)
    supervision = {k: v for k, v in supervision_for(method).items() if k != "pairs"}
    harmed = {name: view.copy() for name, view in views.items()}
    harmed["image"][3, 2] = np.nan
    with pytest.raises(
        DataError,
        match=r"rows of 'image': row 3 \(counted from 0\) contains NaN or infinity beside numbers",
    ):
        make(method).fit(harmed, **supervision)
    with pytest.raises(DataError, match=r"view 'image': an array of shape \(0, 12\) is empty"):
        make(method).fit({**views, "image": np.zeros((0, 12))}, **supervision)
    with pytest.raises(DataError, match="views must map modalities to arrays"):
        make(method).fit({}, **supervision)


@methods
def test_progress_is_reported(method: str) -> None:
    steps: list[Step] = []
    make(method).fit(views_for(method), **supervision_for(method), on_step=steps.append)
    assert all(a.number < b.number for a, b in pairwise(steps))
    assert all(step.of is None or step.number <= step.of for step in steps)


@methods
def test_features_of_other_types_and_orders_give_the_same_codes(method: str) -> None:
    views, supervision = views_for(method), supervision_for(method)
    as_float32 = {name: np.asfortranarray(view.astype(np.float32)) for name, view in views.items()}
    as_lists = {name: view.astype(np.float32).tolist() for name, view in views.items()}
    model, other = (
        make(method).fit(as_float32, **supervision),
        make(method).fit(as_lists, **supervision),
    )
    agreement = np.mean(
        model.encode("image", views["image"]).unpack()
        == other.encode("image", views["image"]).unpack()
    )
    assert agreement > 0.99  # float32 and float64 sums differ in the last digits


@methods
def test_fit_does_not_modify_the_data(method: str) -> None:
    views = {name: view.copy() for name, view in views_for(method).items()}
    for view in views.values():
        view.flags.writeable = False
    make(method).fit(views, **supervision_for(method))


@methods
def test_a_method_explains_itself(method: str) -> None:
    hasher = HASHERS[method]
    text = inspect.getdoc(hasher) or ""
    assert hasher.title
    assert "References:" in text or method == "auto"  # chooses among methods that have them
    assert "Example" in text
    with pytest.raises(
        DataError, match=rf"{method}: unknown fields \['color'\]; known: \['n_bits', 'seed'"
    ):
        hasher.from_configuration({"color": "red"})
    assert hasher.from_configuration(tomllib.loads("n_bits = 24\nseed = 3")) == hasher(
        n_bits=24, seed=3
    )


@methods
def test_a_method_is_a_public_name_of_its_own_module(method: str) -> None:
    hasher = HASHERS[method]
    assert getattr(crossbit, hasher.__name__) is hasher
    assert hasher.__name__ in dir(crossbit)
    assert hasher.__module__ == f"crossbit.hashers.{method}"
    assert f"`{hasher.__name__}" in Path("docs/api.md").read_text()

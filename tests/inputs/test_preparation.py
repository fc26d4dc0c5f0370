"""Inputs of every kind: fitted on training rows, applied once, stored in front of the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import CCAITQ, DCH, LSH, MMNN, DataError, HashModel
from crossbit.data import training_set
from crossbit.inputs import prepare
from crossbit.inputs.steps import LazyRows
from crossbit.model.layers import Standardize, apply_layers


def two_views(n: int = 120, seed: int = 0) -> tuple[dict[str, Any], Any]:
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 4
    latent = 2 * np.eye(4)[labels] + 0.5 * random.normal(size=(n, 4))
    world = np.random.default_rng(7)
    views = {"image": latent @ world.normal(size=(4, 9)) + 5, "text": np.abs(latent)}
    return views, labels


def rings(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Two classes on circles around the origin, which only RBF features tell apart."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    angle = random.uniform(0, 2 * np.pi, n)
    radius = 1 + labels + 0.1 * random.normal(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels


def test_the_layers_of_the_inputs_come_first_and_are_counted(tmp_path: Path) -> None:
    views, labels = two_views()
    model = DCH(n_bits=8, inputs="sqrt+standardize").fit(views, labels=labels)
    assert model.n_inputs == {"image": 2, "text": 2}
    assert [layer.kind for layer in model.encoders["image"]] == ["power", "standardise", "affine"]
    assert model.card["inputs"] == {"image": "sqrt+standardize", "text": "sqrt+standardize"}
    model.save(tmp_path / "model")
    assert HashModel.load(tmp_path / "model").n_inputs == model.n_inputs


def test_a_method_learns_from_prepared_features_as_from_given_ones() -> None:
    views, labels = two_views()
    views = {name: view.astype(np.float32) for name, view in views.items()}
    scaled = {name: Standardize.fit(view)(view) for name, view in views.items()}
    model = DCH(n_bits=16, inputs="standardize").fit(views, labels=labels)
    plain = DCH(n_bits=16, inputs="none").fit(scaled, labels=labels)
    for name, view in views.items():
        assert model.encode(name, view) == plain.encode(name, scaled[name])


def test_modalities_that_a_mapping_does_not_name_have_the_default() -> None:
    views, labels = two_views()
    model = DCH(n_bits=8, inputs={"image": "unit"}).fit(views, labels=labels)
    assert model.card["inputs"] == {"image": "unit", "text": "center+rbf(500, 0.5)"}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("unit+nonsense", "unknown input step 'nonsense'"),
        ({"sound": "unit"}, "sound"),
        ({"image": 3}, "must be text"),
    ],
)
def test_unknown_inputs_are_refused(inputs: Any, message: str) -> None:  # noqa: ANN401
    views, labels = two_views()
    with pytest.raises(DataError, match=message):
        DCH(n_bits=8, inputs=inputs).fit(views, labels=labels)


def test_posteriors_need_labels_of_two_classes() -> None:
    views, labels = two_views()
    with pytest.raises(DataError, match=r"posteriors.*no labels"):
        CCAITQ(n_bits=8, inputs="posteriors").fit(views)
    with pytest.raises(DataError, match=r"posteriors.*one class"):
        LSH(n_bits=8, inputs="posteriors").fit(views, labels=0 * labels)
    with pytest.raises(DataError, match="soft_labels needs inputs='posteriors'"):
        MMNN(n_bits=8, soft_labels=True).fit(views, labels=labels)


def test_posteriors_are_probabilities_and_absent_rows_stay_absent() -> None:
    views, labels = two_views()
    views["text"][::10] = np.nan
    prepared = prepare(
        training_set(views, labels=labels), dict.fromkeys(views, "posteriors"), seed=0
    )
    data = prepared.data
    np.testing.assert_allclose(data.posteriors["image"].sum(axis=1), 1, rtol=1e-5)
    assert np.isnan(data.posteriors["text"][::10]).all()
    assert np.isnan(data.views["text"][::10]).all()
    assert not np.isnan(np.delete(data.views["text"], np.s_[::10], axis=0)).any()
    # A view is the centered square root of the posteriors.
    roots = np.sqrt(data.posteriors["image"])
    centered = roots - roots.mean(axis=0)
    ratio = data.views["image"][centered != 0] / centered[centered != 0]
    np.testing.assert_allclose(ratio, np.median(ratio), rtol=0.01)


def test_posteriors_of_one_modality_beside_steps_of_another() -> None:
    views, labels = two_views()
    inputs = {"image": "posteriors", "text": "standardize"}
    model = DCH(n_bits=8, inputs=inputs).fit(views, labels=labels)
    assert "posteriors of 4 classes" in model.card["inputs"]["image"]
    assert model.card["inputs"]["text"] == "standardize"


def test_rows_of_several_classes_have_posteriors_of_their_own() -> None:
    views, labels = two_views()
    member = np.eye(4, dtype=bool)[labels]
    member[::3, 0] = True
    prepared = prepare(
        training_set(views, labels=member), dict.fromkeys(views, "posteriors"), seed=0
    )
    P = prepared.data.posteriors["image"]
    assert (P >= 0).all()
    assert (P <= 1).all()
    assert not np.allclose(P.sum(axis=1), 1)
    for name, view in views.items():
        applied = apply_layers(prepared.layers[name], view)
        assert applied.shape == prepared.data.views[name].shape


def test_auto_with_labels_chooses_rbf_features_where_lines_cannot_separate() -> None:
    X, labels = rings(300)
    chosen = prepare(training_set({"x": X}, labels=labels), {"x": "auto"}, seed=0)
    assert "rbf" in chosen.summary["x"]
    views, labels = two_views(400)
    linear = prepare(training_set(views, labels=labels), dict.fromkeys(views, "auto"), seed=0)
    assert len(linear.layers["image"]) <= 3


def test_auto_without_labels_asks_linked_rows() -> None:
    random = np.random.default_rng(0)
    angle = random.uniform(0, 2 * np.pi, 600)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    wave = np.stack([np.sin(5 * angle), np.cos(5 * angle), np.cos(2 * angle)], axis=1)
    curved = {"a": circle, "b": wave + 0.01 * random.normal(size=wave.shape)}
    summary = prepare(training_set(curved), dict.fromkeys(curved, "auto"), seed=0).summary
    assert all("rbf" in steps for steps in summary.values())
    Z = random.normal(size=(600, 20))
    straight = {"a": Z, "b": Z @ random.normal(size=(20, 20))}
    summary = prepare(training_set(straight), dict.fromkeys(straight, "auto"), seed=0).summary
    assert set(summary.values()) == {"standardize"}
    # Without anything that links two modalities, columns are scaled.
    alone = prepare(training_set({"a": Z}), {"a": "auto"}, seed=0)
    assert alone.summary == {"a": "standardize"}


def test_online_training_prepares_only_the_rows_it_reads() -> None:
    views, labels = two_views(400)
    data = training_set(views, labels=labels)
    prepared = prepare(data, dict.fromkeys(views, "standardize"), seed=0, lazy=True)
    lazy: Any = prepared.data.views["image"]
    assert isinstance(lazy, LazyRows)
    assert (len(lazy), lazy.shape, lazy.ndim) == (400, (400, 9), 2)
    image = data.views["image"]
    image[:] = np.nan  # what is read from now on shows which rows are prepared when
    image[[3, 5]] = 1
    np.testing.assert_allclose(
        lazy[[3, 5]], apply_layers(prepared.layers["image"], np.ones((2, 9)))
    )
    with pytest.raises(DataError, match="needs all rows in memory"):
        MMNN(n_bits=8, online=True, inputs="posteriors").fit(two_views()[0], labels=two_views()[1])


def test_custom_networks_get_raw_rows_unless_a_mapping_names_them() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    views, labels = two_views()
    fields: dict[str, Any] = {"n_bits": 8, "steps": 3, "validation": 0.0}
    networks = {"image": torch.nn.Linear(9, 8)}
    model = MMNN(**fields, networks=networks).fit(views, labels=labels)
    assert model.n_inputs == {"image": 0, "text": 1}
    named = MMNN(**fields, networks=networks, inputs={"image": "unit"})
    assert named.fit(views, labels=labels).n_inputs == {"image": 1, "text": 1}

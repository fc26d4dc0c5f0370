from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, LSH, Codes, DataError, Dataset, FormatError, mean_average_precision
from crossbit._io.files import read_arrays
from crossbit.data import synthetic
from crossbit.evaluation import (
    PROTOCOLS,
    Protocol,
    evaluate_model,
    given_splits,
    read_result,
    result_path,
    write_result,
)
from crossbit.metrics import same_class


def test_every_direction_is_what_the_metric_says() -> None:
    data = synthetic(n=150, classes=3)
    model = CCAITQ(n_bits=16).fit(**data.fit_arguments("train"))
    evaluation = evaluate_model(model, data)
    test = data.part("test")
    labels = np.asarray(test.labels)
    for left in data.modalities:
        for right in data.modalities:
            expected = mean_average_precision(
                model.encode(left, test.views[left]),
                model.encode(right, test.views[right]),
                same_class(labels, labels),
                exclude="same-row" if left == right else None,
            )
            assert evaluation.reports[left, right]["mAP"].value == pytest.approx(expected)
    assert evaluation.protocol.words == "queries: test; base: test"


def test_own_row_can_be_left_out_across_modalities() -> None:
    data = synthetic(n=150, classes=3)
    model = CCAITQ(n_bits=16).fit(**data.fit_arguments("train"))
    kept, dropped = (
        evaluate_model(model, data, given_splits(data, own_row=own)) for own in (True, False)
    )
    assert (
        kept.reports["image", "text"]["mAP"].value > dropped.reports["image", "text"]["mAP"].value
    )
    assert kept.reports["image", "image"] == dropped.reports["image", "image"]


def test_missing_rows_are_left_out_and_own_rows_still_found() -> None:
    data = synthetic(n=200, classes=3, missing=0.3)
    model = CCAITQ(n_bits=16).fit(**data.fit_arguments("train"))
    evaluation = evaluate_model(model, data)
    for name in data.modalities:
        rows = evaluation.query_rows[name]
        assert 0 < len(rows) < 40
        assert not np.isnan(data.views[name][rows]).any()
        assert evaluation.reports[name, name].n_base == len(rows)


def test_without_labels_the_same_row_is_relevant() -> None:
    toy = synthetic(n=150, classes=3)
    data = Dataset(views=toy.views, splits=toy.splits)
    model = CCAITQ(n_bits=32).fit(**data.fit_arguments("train"))
    evaluation = evaluate_model(model, data)
    assert evaluation.reports["image", "text"]["mAP"].value > 3 * (
        evaluation.reports["image", "text"]["mAP"].chance or 1
    )


def test_queries_search_the_database_when_there_is_one() -> None:
    toy = synthetic(n=100, classes=3)
    data = Dataset(
        views=toy.views,
        labels=toy.labels,
        splits={"query": np.arange(20), "database": np.arange(20, 100)},
    )
    evaluation = evaluate_model(LSH().fit(**data.fit_arguments(None)), data)
    assert evaluation.protocol.words == "queries: query; base: database"
    assert evaluation.reports["image", "image"].n_base == 80


def test_a_base_whose_codes_are_made_from_its_labels_scores_as_a_classifier_would() -> None:
    data = synthetic(n=300, classes=3, noise=2.0)
    model = CCAITQ(n_bits=16).fit(**data.fit_arguments("train"))
    hashed, learned = (
        evaluate_model(model, data, Protocol(name="learned", base="train", base_codes=kind))
        for kind in ("hashed", "learned")
    )
    assert (
        learned.reports["image", "text"]["mAP"].value > hashed.reports["image", "text"]["mAP"].value
    )
    labels = np.asarray(data.labels)[learned.base_rows["text"]]
    for wanted in np.unique(labels):
        assert len(np.unique(learned.base["text"][labels == wanted].words)) == 1
    assert "made from its labels" in learned.protocol.words


def test_a_row_of_several_classes_gets_a_code_between_theirs() -> None:
    toy = synthetic(n=300, classes=4)
    member = np.asarray(toy.labels)[:, None] == np.arange(4)
    member[:20, 0] = True
    data = Dataset(views=toy.views, labels=member, splits=toy.splits)
    model = CCAITQ(n_bits=32).fit(toy.views, rows=True)
    found = evaluate_model(
        model, data, Protocol(name="learned", base="train", base_codes="learned")
    )
    assert len(np.unique(found.base["image"].words)) <= 7


def test_codes_cannot_be_made_from_labels_that_are_not_there() -> None:
    toy = synthetic(n=90, classes=3)
    data = Dataset(views=toy.views, splits=toy.splits)
    model = CCAITQ(n_bits=8).fit(toy.views, rows=True)
    with pytest.raises(DataError, match="'image' has no labels to make codes from"):
        evaluate_model(model, data, Protocol(name="learned", base_codes="learned"))


def test_every_protocol_is_told_whole() -> None:
    for name, protocol in PROTOCOLS.items():
        told = protocol.to_dict()
        assert told["name"] == name
        assert told["measures"]
        assert told["note"]


def test_a_split_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match="split 'tset'"):
        given_splits(synthetic(n=50), queries="tset")


def test_unpaired_views_need_labels() -> None:
    random = np.random.default_rng(0)
    views = {"image": random.normal(size=(30, 5)), "text": random.normal(size=(40, 4))}
    model = LSH().fit(
        views, labels={name: np.zeros(len(view), int) for name, view in views.items()}
    )
    with pytest.raises(DataError, match="nothing says what is relevant"):
        evaluate_model(model, Dataset(views=views))


def test_nothing_in_common_is_told() -> None:
    data = synthetic(n=50, classes=2)
    model = LSH().fit({"sound": np.random.default_rng(0).normal(size=(9, 4))})
    with pytest.raises(
        DataError, match=r"the model knows \['sound'\] and the data set has \['image', 'text'\]"
    ):
        evaluate_model(model, data)


def test_a_result_can_be_recomputed(tmp_path: Path) -> None:
    data = synthetic(n=150, classes=3)
    model = CCAITQ(n_bits=16).fit(**data.fit_arguments("train"))
    evaluation = evaluate_model(model, data)
    path = result_path(tmp_path, "trial", dataset="my data/1", card=model.card, n_bits=16)
    assert path == tmp_path / "trial" / "my_data_1-ccaitq-16-0.json"
    write_result(path, evaluation, card=model.card, dataset=data.describe(), seconds=1.5)
    result = read_result(path)
    stored = read_arrays(path.with_name(path.name + ".codes"), "crossbit.result-codes/1")
    n_bits = stored.meta["n_bits"]
    labels = np.asarray(data.labels)
    again = mean_average_precision(
        Codes(stored.arrays["query.image"], n_bits),
        Codes(stored.arrays["base.text"], n_bits),
        same_class(
            labels[stored.arrays["query_rows.image"]], labels[stored.arrays["base_rows.text"]]
        ),
    )
    assert result["directions"]["image-text"]["results"][0]["value"] == pytest.approx(again)
    assert result["model"]["fields"]["n_bits"] == 16
    assert result["environment"]["numpy"] == np.__version__


def test_a_strange_result_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"format": "crossbit.result/9"}')
    with pytest.raises(FormatError, match=r"a\.json: format 'crossbit.result/9'"):
        read_result(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(FormatError, match=r"b\.json: format None"):
        read_result(tmp_path / "b.json")

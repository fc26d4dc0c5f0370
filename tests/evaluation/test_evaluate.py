"""Evaluation of models between all modalities, protocols and result files."""

from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, LSH, Codes, DataError, Dataset, FormatError, mean_average_precision
from crossbit._io.files import ArrayFile
from crossbit.data import synthetic
from crossbit.evaluation import (
    default_protocol,
    evaluate_model,
    format_direction,
    read_result,
    result_path,
    write_result,
)
from crossbit.metrics import same_class


def test_every_direction_has_the_value_of_the_metric() -> None:
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
    assert evaluation.protocol.summary == "queries: test; base: test"


def test_self_matches_can_be_excluded_across_modalities() -> None:
    data = synthetic(n=150, classes=3)
    model = CCAITQ(n_bits=16).fit(**data.fit_arguments("train"))
    with_self, without_self = (
        evaluate_model(model, data, default_protocol(data, include_self=include))
        for include in (True, False)
    )
    across = ("image", "text")
    assert with_self.reports[across]["mAP"].value > without_self.reports[across]["mAP"].value
    assert with_self.reports["image", "image"] == without_self.reports["image", "image"]


def test_absent_rows_are_left_out() -> None:
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


def test_queries_search_the_database_split_if_it_exists() -> None:
    toy = synthetic(n=100, classes=3)
    data = Dataset(
        views=toy.views,
        labels=toy.labels,
        splits={"query": np.arange(20), "database": np.arange(20, 100)},
    )
    evaluation = evaluate_model(LSH().fit(**data.fit_arguments(None)), data)
    assert evaluation.protocol.summary == "queries: query; base: database"
    assert evaluation.reports["image", "image"].n_base == 80


def test_a_protocol_is_written_with_all_fields() -> None:
    protocol = default_protocol(synthetic(n=50))
    written = protocol.to_dict()
    assert written["name"] == "given splits"
    assert written["primary_measure"] == "mAP" == next(iter(written["measures"]))
    assert (written["queries"], written["train_split"]) == ("test", "train")
    assert written["include_self"] is True


def test_an_unknown_split_is_an_error() -> None:
    with pytest.raises(DataError, match="split 'tset'"):
        default_protocol(synthetic(n=50), queries="tset")


def test_views_that_are_not_aligned_need_labels() -> None:
    random = np.random.default_rng(0)
    views = {"image": random.normal(size=(30, 5)), "text": random.normal(size=(40, 4))}
    model = LSH().fit(
        views, labels={name: np.zeros(len(view), int) for name, view in views.items()}
    )
    with pytest.raises(DataError, match="'image' has neither labels nor rows aligned"):
        evaluate_model(model, Dataset(views=views))


def test_model_and_data_set_need_a_common_modality() -> None:
    data = synthetic(n=50, classes=2)
    model = LSH().fit({"sound": np.random.default_rng(0).normal(size=(9, 4))})
    with pytest.raises(
        DataError, match=r"modalities \['sound'\], the data set \['image', 'text'\]"
    ):
        evaluate_model(model, data)


def test_a_result_can_be_recomputed_from_its_codes(tmp_path: Path) -> None:
    data = synthetic(n=150, classes=3)
    model = CCAITQ(n_bits=16).fit(**data.fit_arguments("train"))
    evaluation = evaluate_model(model, data)
    path = result_path(tmp_path, "trial", dataset="my data/1", card=model.card, n_bits=16)
    assert path == tmp_path / "trial" / "my_data_1-ccaitq-16-0.json"
    write_result(path, evaluation, card=model.card, dataset=data.describe(), seconds=1.5)
    result = read_result(path)
    stored = ArrayFile.read(path.with_name(path.name + ".codes"), "crossbit.result-codes/1")
    n_bits = stored.meta["n_bits"]
    labels = np.asarray(data.labels)
    recomputed = mean_average_precision(
        Codes(stored.arrays["query.image"], n_bits),
        Codes(stored.arrays["base.text"], n_bits),
        same_class(
            labels[stored.arrays["query_rows.image"]], labels[stored.arrays["base_rows.text"]]
        ),
    )
    values = {row["name"]: row["value"] for row in result["directions"]["image-text"]["results"]}
    assert values[result["protocol"]["primary_measure"]] == pytest.approx(recomputed)
    assert result["model"]["fields"]["n_bits"] == 16
    assert result["environment"]["numpy"] == np.__version__


def test_the_suffix_of_codes_is_reserved(tmp_path: Path) -> None:
    data = synthetic(n=60, classes=2)
    evaluation = evaluate_model(LSH(n_bits=8).fit(**data.fit_arguments("train")), data)
    with pytest.raises(DataError, match=r"a\.codes: the suffix \.codes is reserved"):
        write_result(tmp_path / "a.codes", evaluation, card={}, dataset={}, seconds=0.0)


def test_a_direction_is_formatted_with_an_arrow() -> None:
    assert format_direction("image-text") == format_direction(("image", "text")) == "image → text"


def test_a_result_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"format": "crossbit.result/9"}')
    with pytest.raises(FormatError, match=r"a\.json: format 'crossbit.result/9'"):
        read_result(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(FormatError, match=r"b\.json: format None"):
        read_result(tmp_path / "b.json")

"""Quality after each stage between features and reranked hits."""

from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, DataError, Dataset, HashModel, mean_average_precision
from crossbit.data import synthetic
from crossbit.evaluation import (
    Stage,
    default_protocol,
    evaluate_model,
    evaluate_stages,
    plot_stages,
    read_result,
    write_result,
)
from crossbit.evaluation.stages import item_stages
from crossbit.metrics import AveragePrecision, Recall, rank_vectors, same_class

STAGES = ["encoder", "preprocessing", "projection", "bits", "prefix", "index"]
STAGES += ["rerank by codes", "rerank by scores"]
LABELED = synthetic(n=200, classes=3, modalities={"image": 12, "text": 12})
PAIRED = Dataset(views=synthetic(n=200, classes=20).views, splits=LABELED.splits)


def fit(data: Dataset, n_bits: int = 16) -> HashModel:
    return CCAITQ(n_bits=n_bits).fit(**data.fit_arguments("train"))


def values(stages: list[Stage], direction: str) -> dict[str, float | None]:
    return {stage.stage: stage.value for stage in stages if stage.direction == direction}


def test_each_stage_has_the_value_of_its_ranking() -> None:
    model = fit(LABELED)
    found = values(evaluate_stages(model, LABELED), "image → text")
    test = LABELED.part("test")
    relevant = same_class(np.asarray(test.labels), np.asarray(test.labels))
    measure = AveragePrecision()
    image, text = test.views["image"], test.views["text"]
    outputs = model.scores("image", image), model.scores("text", text)
    codes = model.encode("image", image), model.encode("text", text)
    assert list(found) == STAGES
    expected = {
        "encoder": rank_vectors(image, text, relevant).measure(measure).mean(),
        "projection": rank_vectors(*outputs, relevant).measure(measure).mean(),
        "bits": mean_average_precision(*codes, relevant),
        "prefix": mean_average_precision(codes[0].truncate(8), codes[1].truncate(8), relevant),
    }
    for stage, value in expected.items():
        assert found[stage] == pytest.approx(value), stage
    assert found["index"] == pytest.approx(expected["prefix"], abs=0.05)  # ties by id


def test_reranking_all_items_by_scores_repeats_the_projection() -> None:
    model = fit(LABELED)
    for direction in ("image → text", "text → text"):
        found = values(evaluate_stages(model, LABELED, prefix=8, candidates=10_000), direction)
        assert found["rerank by scores"] == pytest.approx(found["projection"], abs=0.01)
        assert found["rerank by codes"] != found["index"]


def test_without_labels_the_measure_is_recall() -> None:
    model = fit(PAIRED, 32)
    stages = evaluate_stages(model, PAIRED, prefix=32, candidates=5)
    assert {stage.name for stage in stages} == {"recall@10"}
    assert {stage.direction for stage in stages} == {"image → text", "text → image"}
    found = values(stages, "text → image")
    test = PAIRED.part("test").views
    rows = np.arange(len(test["text"]))
    outputs = model.scores("text", test["text"]), model.scores("image", test["image"])
    ranking = rank_vectors(*outputs, same_class(rows, rows))
    assert found["projection"] == pytest.approx(ranking.measure(Recall(at=10)).mean())
    assert found["bits"] == found["prefix"]
    assert found["encoder"] is None  # 64 and 32 columns
    assert found["preprocessing"] is None


def test_a_self_match_is_neither_a_hit_nor_a_candidate() -> None:
    views = {"image": np.repeat(np.eye(4, 12), 5, axis=0)}
    data = Dataset(views=views, labels=np.repeat(np.arange(4), 5))
    model = fit(LABELED, 8)
    alone = HashModel({"image": model.encoders["image"]}, 8)
    protocol = default_protocol(data, include_self=False)
    found = values(evaluate_stages(alone, data, protocol), "image → image")
    assert found["encoder"] == pytest.approx(1.0)
    assert found["rerank by scores"] == pytest.approx(found["projection"], abs=1e-6)


def test_items_with_several_rows_are_measured_as_well() -> None:
    model = fit(PAIRED, 32)
    test = PAIRED.part("test").views
    items = np.arange(len(test["image"]))
    twice = np.concatenate([test["text"], test["text"]]), np.concatenate([items, items])
    features = {"image": (test["image"], items), "text": twice}
    once = evaluate_stages(model, PAIRED)
    found = item_stages(model, features)
    assert values(found, "text → image") == pytest.approx(values(once, "text → image"), nan_ok=True)
    labels = {"image": items % 3, "text": twice[1] % 3}
    assert {stage.name for stage in item_stages(model, features, labels=labels)} == {"mAP"}


def test_only_some_of_many_queries_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit(LABELED)
    everything = evaluate_stages(model, LABELED)
    monkeypatch.setattr("crossbit.evaluation.stages._MAX_QUERIES", 7)
    some = evaluate_stages(model, LABELED)
    assert some != everything
    assert some == evaluate_stages(model, LABELED)


def test_settings_are_validated() -> None:
    model = fit(LABELED)
    with pytest.raises(DataError, match="prefix must be from 1 to 16 bits, got 17"):
        evaluate_stages(model, LABELED, prefix=17)
    with pytest.raises(DataError, match="candidates"):
        evaluate_stages(model, LABELED, candidates=0)


def test_stages_are_stored_and_drawn(tmp_path: Path) -> None:
    model = fit(PAIRED)
    stages = evaluate_stages(model, PAIRED)
    plot_stages(tmp_path / "stages.svg", stages)
    drawing = (tmp_path / "stages.svg").read_text()
    assert all(name in drawing for name in ("projection", "text → image", "recall@10, percent"))
    evaluation = evaluate_model(model, PAIRED)
    facts = PAIRED.describe()
    path = tmp_path / "result.json"
    write_result(path, evaluation, card={}, dataset=facts, seconds=1.0, stages=stages)
    assert read_result(path)["stages"] == [stage.to_dict() for stage in stages]
    write_result(path, evaluation, card={}, dataset=facts, seconds=1.0)
    assert "stages" not in read_result(path)

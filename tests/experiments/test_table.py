from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, LSH, Dataset
from crossbit._progress import Step
from crossbit.data import read, synthetic
from crossbit.evaluation.evaluate import Evaluation
from crossbit.evaluation.protocol import Protocol
from crossbit.metrics import evaluate_ranking
from crossbit_experiments.methods import Row, result_file, run_rows, summarize
from crossbit_experiments.wiki import methods

DIRECTIONS = ("image-text", "text-image")
data = synthetic(n=120, classes=3)


def _correlated(whole: Dataset, seed: int) -> Evaluation:
    train, test = whole.part("train"), whole.part("test")
    vectors = methods.embed("cm", train, test, n_directions=5, seed=seed)
    ways = [("image", "text"), ("text", "image")]
    return Evaluation(
        {way: evaluate_ranking(methods.rank(vectors, test, *way)) for way in ways},
        Protocol(name="by hand"),
    )


ROWS = [
    Row(key="lsh", title="LSH", make=LSH),
    Row(key="cca", title="CCA", make=CCAITQ, paper={"average": 50.0}),
    Row(key="real", title="CM", reference=_correlated, bytes_an_item=20),
]


def test_a_table_sums_up_its_seeds(tmp_path: Path) -> None:
    run_rows(ROWS, data, tmp_path, n_bits=12, seeds=range(2))
    summaries = summarize(ROWS, tmp_path, DIRECTIONS, n_bits=12, seeds=range(2))
    assert [one.row.key for one in summaries] == ["lsh", "cca", "real"]
    lsh, cca, real = summaries
    assert cca.mean["average"] == pytest.approx(
        (cca.mean["image-text"] + cca.mean["text-image"]) / 2
    )
    assert cca.mean["average"] > lsh.mean["average"] + 20
    assert lsh.deviation["average"] > 0
    assert cca.worst <= cca.mean["average"] <= cca.best
    assert (cca.bytes_an_item, real.bytes_an_item) == (2, 20)


def test_what_was_run_is_not_run_again(tmp_path: Path) -> None:
    run_rows(ROWS[:1], data, tmp_path, n_bits=12, seeds=[0])
    first = result_file(tmp_path, ROWS[0], 12, 0).stat().st_mtime_ns
    steps: list[Step] = []
    run_rows(ROWS[:2], data, tmp_path, n_bits=12, seeds=[0], on_step=steps.append)
    assert result_file(tmp_path, ROWS[0], 12, 0).stat().st_mtime_ns == first
    assert [(step.number, step.of) for step in steps] == [(1, 1)]


def test_rows_that_are_not_finished_are_left_out(tmp_path: Path) -> None:
    run_rows(ROWS[:1], data, tmp_path, n_bits=12, seeds=[0])
    assert summarize(ROWS, tmp_path, DIRECTIONS, n_bits=12, seeds=[0, 1]) == []


def test_a_row_must_do_something(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither makes a method nor refers to one"):
        run_rows([Row(key="x", title="X")], data, tmp_path, n_bits=12, seeds=[0])


def test_every_row_of_the_papers_table_is_there() -> None:
    printed = {row.title: row.paper for row in methods.rows() if row.paper}
    assert printed["CM-SSH"] == {
        "image-text": 22.2,
        "text-image": 18.4,
        "average": pytest.approx(20.3),
    }
    assert {
        "MM-NN L1, literal",
        "MM-NN L2, literal",
        "CM-NN L1, literal",
        "CM-NN L2, literal",
    } <= set(printed)
    assert {"CM", "SM", "SCM"} <= set(printed)
    assert len({row.key for row in methods.rows()}) == len(methods.rows())


@pytest.mark.parametrize("key", ["cm", "scm"])
def test_references_reach_what_the_paper_prints(
    key: str, wiki_folder: Path, tmp_path: Path
) -> None:
    """Within 1.5 points of the printed values (Rasiwasia et al. 2010, as quoted by the paper)."""
    row = next(row for row in methods.rows() if row.key == key)
    run_rows([row], read(wiki_folder), tmp_path, n_bits=32, seeds=[0])
    (found,) = summarize([row], tmp_path, methods.DIRECTIONS, n_bits=32, seeds=[0])
    for way, printed in row.paper.items():
        assert abs(found.mean[way] - printed) < 1.5, way


def test_centered_vectors_have_mean_zero() -> None:
    vectors = methods.centered({"x": np.random.default_rng(0).random((5, 4))})
    np.testing.assert_allclose(vectors["x"].sum(axis=1), 0, atol=1e-12)

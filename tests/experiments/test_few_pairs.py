"""Few cross-modal pairs: lines of the table, beside the paper's values."""

from pathlib import Path

import pytest

from crossbit import CCAITQ, LSH
from crossbit.data import synthetic
from crossbit_experiments.few_pairs import few_pairs_row, few_pairs_table
from crossbit_experiments.methods import Method, run_methods
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore
from crossbit_experiments.shapegoogle import results

DIRECTIONS = ("image-text", "text-image")
METHODS = [
    Method(key="cmssh-pairs-0.1", title="CM-SSH", build=LSH),
    Method(key="cmnn-pairs-0.1", title="CM-NN", build=LSH),
    Method(key="mmnn-pairs-0.1", title="MM-NN", build=CCAITQ),
    Method(key="mmnn-pairs-0.5", title="MM-NN", build=CCAITQ),
]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    data = synthetic(n=120, classes=3)
    run_methods(METHODS, data, tmp_path, n_bits=8, seeds=[0], protocol=PROTOCOLS["wiki"])
    networks = [method for method in METHODS if method.key.startswith(("mmnn", "cmnn"))]
    run_methods(networks, data, tmp_path, n_bits=8, seeds=[1], protocol=PROTOCOLS["wiki"])
    return RunStore(tmp_path)


def test_a_line_has_scores_a_difference_and_the_papers_values(store: RunStore) -> None:
    paper = {"mmnn": 99.28, "cmnn": 95.03, "cmssh": 67.67}
    row = few_pairs_row(store, METHODS, 0.1, DIRECTIONS, n_bits=8, title="10%", paper=paper)
    assert row is not None
    assert row["seeds"] == 2
    assert row["difference"]["mean"] == pytest.approx(row["mmnn"][0] - row["cmnn"][0])
    table = few_pairs_table([row])
    assert table.header == [
        *("pairs across", "MM-NN", "paper", "CM-NN", "paper", "difference, 95 %"),
        *("CM-SSH", "paper"),
    ]
    (line,) = table.lines
    assert [line[2], line[4], line[7]] == ["99.28", "95.03", "67.67"]
    assert line[5].startswith("+")


def test_one_seed_gives_no_difference(tmp_path: Path) -> None:
    data = synthetic(n=120, classes=3)
    run_methods(METHODS, data, tmp_path, n_bits=8, seeds=[0], protocol=PROTOCOLS["wiki"])
    row = few_pairs_row(RunStore(tmp_path), METHODS, 0.1, DIRECTIONS, n_bits=8, title="10%")
    assert row is not None
    assert row["difference"] is None
    table = few_pairs_table([row])
    assert table.header == ["pairs across", "MM-NN", "CM-NN", "difference, 95 %", "CM-SSH"]
    assert table.lines[0][3] == "–"


def test_a_share_without_runs_of_both_networks_has_no_line(store: RunStore) -> None:
    for share in (0.5, 0.3):
        assert few_pairs_row(store, METHODS, share, DIRECTIONS, n_bits=8, title="") is None


def test_shapes_show_the_values_of_the_papers_source() -> None:
    shown = results._PAPER_FEW_PAIRS
    assert [shown[share]["mmnn"] for share in (0.5, 0.3, 0.1)] == [99.53, 99.17, 99.28]
    assert [shown[share]["cmnn"] for share in (0.5, 0.3, 0.1)] == [98.44, 96.91, 95.03]
    assert [share for share, own in shown.items() if "cmssh" in own] == [0.1]

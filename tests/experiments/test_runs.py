"""Stored runs: codes as text, the fingerprint of code, and what verification finds."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ
from crossbit.cli import main
from crossbit.data import synthetic
from crossbit.errors import DataError, FormatError
from crossbit_experiments import docs, verify
from crossbit_experiments.bootstrap import paired_difference, query_interval
from crossbit_experiments.docs import Experiment, write_docs
from crossbit_experiments.fingerprint import code_version, data_checksum
from crossbit_experiments.methods import Method, method_rows, run_methods
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore, StoredRun, pack_array, unpack_array
from crossbit_experiments.summary import write_summary
from crossbit_experiments.tables import Table, methods_table

data = synthetic(n=120, classes=3)
METHOD = Method(key="cca", title="CCA", build=CCAITQ)
DIRECTIONS = ("image-text", "text-image")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    run_methods(
        [METHOD], data, folder / "wiki", n_bits=12, seeds=[0, 1], protocol=PROTOCOLS["wiki"]
    )
    return folder


def _collect(store: RunStore) -> dict[str, object]:
    rows = method_rows(store, [METHOD], DIRECTIONS, n_bits=12)
    return {"table": rows, "directions": list(DIRECTIONS)}


def _table(summary: object) -> Table:
    return methods_table(summary["table"], DIRECTIONS)  # type: ignore[index]


@pytest.fixture
def published(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and a page with a table that was made from them."""
    experiment = {"wiki": Experiment({"table": _table}, _collect)}
    monkeypatch.setattr(docs, "EXPERIMENTS", experiment)
    monkeypatch.setattr(verify, "EXPERIMENTS", experiment)
    copy = tmp_path / "results" / "wiki"
    copy.mkdir(parents=True)
    (copy / "runs.jsonl").write_text((results / "wiki" / "runs.jsonl").read_text())
    write_summary(copy, "wiki", **_collect(RunStore(copy)))
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("<!-- from results: wiki table -->\n<!-- end of results -->\n")
    write_docs(tmp_path / "results", tmp_path / "docs")
    assert "| CCA |" in page.read_text()
    return tmp_path


@pytest.mark.parametrize(
    "array",
    [
        np.array([[True, False, True]]),
        np.arange(5),
        np.array([-1, 7]),
        np.array([0.5, np.nan], np.float32),
        np.zeros((0, 3), np.bool_),
    ],
)
def test_arrays_survive_as_text(array: np.ndarray) -> None:
    packed = json.loads(json.dumps(pack_array(array)))
    np.testing.assert_array_equal(unpack_array(packed), array)


def test_a_run_survives_and_gives_its_scores_again(results: Path) -> None:
    store = RunStore(results / "wiki")
    for run in store:
        assert isinstance(run, StoredRun)
        for direction, scores in run.recomputed().items():
            assert scores == pytest.approx(dict(run.scores[direction]), abs=1e-12)
    run = store["cca-12-0"]
    assert run.n_bits == 12
    assert run.per_query("image-text").mean() == pytest.approx(run.score("image-text"))
    assert run.per_query("image-text", 1).mean() < run.score("image-text")
    assert set(run.facts) == {"environment", "seconds", "cpu_seconds", "peak_gib"}
    without = run.ranking("image-text", include_self=False)
    assert without.exclusion != run.ranking("image-text").exclusion


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"format": "crossbit.runs/1"}\n{"kind": "ru')
    with pytest.raises(FormatError, match=r"a line is not JSON .* delete it to run it again"):
        RunStore(tmp_path)
    path.write_text('{"format": "crossbit.runs/9"}\n')
    with pytest.raises(FormatError, match=r"crossbit\.runs/9"):
        RunStore(tmp_path)


def test_the_version_of_code_ignores_comments_and_follows_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "made_up_method.py"
    versions = []
    for text in (
        '"""One."""\nX = 1\n',
        '"""Two."""\n\n# Why.\nX = 1\n',
        "X = 2\n",
        "from crossbit.linalg.cca import CCA\nX = 2\n",
    ):
        module.write_text(text)
        code_version.cache_clear()
        versions.append(code_version("made_up_method"))
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3
    code_version.cache_clear()


def test_the_checksum_of_data_sees_every_value() -> None:
    assert data_checksum(data) == data_checksum(synthetic(n=120, classes=3))
    assert data_checksum(data) != data_checksum(synthetic(n=120, classes=3, seed=1))


def test_everything_is_recomputed(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--results", str(published / "results"), "--docs", str(published / "docs")]
    assert main(["reproduce", "verify", *arguments]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    # Two seeds, four directions, six scores of each.
    assert "2 runs, 48 scores, 1 tables: 0 differences, 0 runs of other code" in shown


def test_runs_of_other_code_are_counted_and_no_failure(
    published: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "code_version", lambda module: "x")
    arguments = ["--results", str(published / "results"), "--docs", str(published / "docs")]
    assert main(["reproduce", "verify", *arguments]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "runs.jsonl: 2 runs of ccaitq were made by other code than today's" in shown
    assert "0 differences, 2 runs of other code" in shown


def test_runs_without_codes_have_no_code_to_compare(results: Path) -> None:
    run = RunStore(results / "wiki")["cca-12-0"]
    assert not verify.made_by_other_code(run)
    assert verify.made_by_other_code(replace(run, fingerprint={"code": "x"}))
    assert not verify.made_by_other_code(replace(run, fingerprint={"supervision": "x"}))
    assert not verify.made_by_other_code(replace(run, settings={"method": "annotation"}))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("results/wiki/runs.jsonl", '"value": 0.', '"value": 0.1', "its codes give"),
        ("results/wiki/summary.json", '"seeds": 2', '"seeds": 3', "/table/0/seeds is 3"),
        ("results/wiki/summary.json", '"title": "CCA"', '"title": "X"', "/table/0/title is 'X'"),
        ("docs/page.md", "| CCA | ", "| CCA | 1", "a table is not that of the results"),
    ],
)
def test_a_changed_number_is_named(
    file: str, old: str, new: str, message: str, published: Path
) -> None:
    path = published / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    report = verify.verify_results(published / "results", published / "docs")
    assert any(message in line for line in report.problems)
    arguments = ["--results", str(published / "results"), "--docs", str(published / "docs")]
    assert main(["reproduce", "verify", *arguments]) == 1


def test_a_summary_without_runs_is_named(published: Path) -> None:
    (published / "results" / "wiki" / "runs.jsonl").unlink()
    report = verify.verify_results(published / "results", published / "docs")
    assert any("a summary without runs.jsonl" in line for line in report.problems)
    with pytest.raises(DataError, match=r"no results; expected <experiment>/summary\.json"):
        verify.verify_results(published / "docs", published / "docs")


def test_the_bootstrap_resamples_rows_and_seeds() -> None:
    random = np.random.default_rng(0)
    shared = random.normal(50, 20, (1, 400))
    first = shared + random.normal(0, 1, (5, 400)) + 1
    second = shared + random.normal(0, 1, (5, 400))
    paired = paired_difference(first, second)
    assert paired.mean == pytest.approx((first - second).mean())
    # Shared difficulty of the rows cancels: the error is that of the noise, not of the rows.
    assert 0.02 < paired.error < 0.1
    assert paired.low < 1 < paired.high
    assert paired.significant
    # Seeds that disagree widen the interval, however many rows there are.
    apart = second + np.array([0, 2, 0, 2, 1])[:, None]
    assert paired_difference(apart, second).error > 0.3
    low, high = query_interval(first)
    assert low < first.mean() < high

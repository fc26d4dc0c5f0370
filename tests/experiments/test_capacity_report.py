"""The tables of docs/scale.md, from the committed measurements and from the command."""

from pathlib import Path
from typing import Any

import pytest

from crossbit.cli import main
from crossbit_experiments.capacity import report
from crossbit_experiments.capacity.plan import ShardMeasurements
from crossbit_experiments.summary import read_summary
from crossbit_experiments.tables import Table

RESULTS = Path(__file__).parents[2] / "results" / "capacity"
MEASURED = str(RESULTS / "measured.json")


@pytest.fixture(scope="module")
def measurements() -> ShardMeasurements:
    return ShardMeasurements.load(RESULTS / "measured.json")


def stored(table: Table) -> dict[str, Any]:
    return {"header": table.header, "lines": table.lines}


def test_committed_tables_match_the_measurements(
    measurements: ShardMeasurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = read_summary(RESULTS / "summary.json")["tables"]
    assert tables["growth"] == stored(report.growth_table(measurements))
    plans = report.standard_plans(measurements)
    assert tables["capacity"] == stored(report.capacity_table(plans))
    assert tables["validation"] == stored(report.validation_table(measurements))
    assert len(tables["latency"]["lines"]) == len(report.SCENARIOS) * len(report.SHARDS)
    # Simulating everything takes long; one scenario of one size stands for all.
    monkeypatch.setattr(report, "SCENARIOS", report.SCENARIOS[2:3])
    latency = report.latency_table(list(report.latency_rows(measurements, (1,))))
    assert latency.header == tables["latency"]["header"]
    assert latency.lines[0] in tables["latency"]["lines"]


def test_one_command_makes_all_tables_and_figures(
    measurements: ShardMeasurements,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report, "SHARDS", (1, 3))
    monkeypatch.setattr(report, "QUERIES", 50)
    steps: list[int] = []
    path = report.run(measurements, tmp_path, lambda step: steps.append(step.number))
    assert list(read_summary(path)["tables"]) == list(report.TABLES)
    assert steps == list(range(1, 1 + 2 * len(report.SCENARIOS)))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "growth.svg",
        "summary.json",
        "tails.svg",
    ]
    command = ["reproduce", "capacity", "--measured", MEASURED, "--out", str(tmp_path)]
    assert main(command) == 0
    assert "a third replica" in capsys.readouterr().out


def test_a_plan_for_given_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "capacity", "--measured", MEASURED, "--items"]
    assert main([*command, "3e9", "--queries", "5000", "--memory", "256"]) == 0
    assert "3·10⁹ random" in capsys.readouterr().out
    assert main([*command, "many"]) == 1
    assert "--items must be a number such as 3e9, got 'many'" in capsys.readouterr().err


def test_numbers_are_formatted_briefly() -> None:
    assert [report.power_of_ten(n) for n in (10**8, 3 * 10**9, 12_345, 500, 10**11)] == [
        *("10⁸", "3·10⁹", "12,345", "500", "10¹¹")
    ]
    assert [report.two_digits(x) for x in (1723.4, 0.0123, 12.6)] == ["1,700", "0.012", "13"]

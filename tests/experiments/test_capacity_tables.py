"""The tables of docs/scale.md: from the measurements that are kept, by the command that makes them."""

from pathlib import Path
from typing import Any

import pytest

from crossbit.cli import main
from crossbit_experiments.capacity import report
from crossbit_experiments.capacity.plan import Measured
from crossbit_experiments.summary import read_summary

RESULTS = Path(__file__).parents[2] / "results" / "scale"


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured.read(RESULTS / "measured.json")


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    tables: dict[str, Any] = read_summary(RESULTS / "summary.json")["tables"]
    return tables


def test_kept_tables_are_those_of_the_measurements(
    measured: Measured, kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept["growth"] == report.growth_table(measured)
    assert kept["capacity"] == report.capacity_table(report.plans(measured))
    assert kept["check"] == report.check_table(measured)
    assert len(kept["latency"]["lines"]) == len(report.SCENARIOS) * len(report.SHARDS)
    monkeypatch.setattr(scaling, "SCENARIOS", report.SCENARIOS[2:3])  # one of them tells of all
    few = report.latency_table(list(report.latency_lines(measured, (1,))))
    assert few["lines"][0] in kept["latency"]["lines"]


def test_everything_is_made_by_one_command(
    measured: Measured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(scaling, "SHARDS", (1, 3))
    monkeypatch.setattr(scaling, "QUERIES", 50)
    told: list[int] = []
    path = report.run(measured, tmp_path, lambda step: told.append(step.number))
    assert list(read_summary(path)["tables"]) == ["growth", "capacity", "check", "latency"]
    assert told == list(range(1, 1 + 2 * len(report.SCENARIOS)))
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "growth.svg",
        "summary.json",
        "tails.svg",
    ]
    assert (
        main(
            [
                "reproduce",
                "scale",
                "--measured",
                str(RESULTS / "measured.json"),
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
    assert "a third replica" in capsys.readouterr().out


def test_a_plan_for_ones_own_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["reproduce", "scale", "--measured", str(RESULTS / "measured.json"), "--items"]
    assert main([*given, "3e9", "--queries", "5000", "--memory", "256"]) == 0
    shown = capsys.readouterr().out
    assert "3·10⁹ random" in shown
    assert main([*given, "many"]) == 1
    assert "--items takes a number such as 3e9, got 'many'" in capsys.readouterr().err


def test_numbers_are_written_shortly() -> None:
    assert [report.power(n) for n in (10**8, 3 * 10**9, 12_345, 500, 10**11)] == [
        *("10⁸", "3·10⁹", "12,345", "500", "10¹¹")
    ]
    assert [report.short(x) for x in (1723.4, 0.0123, 12.6)] == ["1,700", "0.012", "13"]

"""Progress bars and numbers in a terminal."""

import io
import json
import re
import sys
import time

import pytest
from rich.console import Console

from crossbit._progress import Step
from crossbit.cli import console, main, printable


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Both streams as a terminal of 100 columns."""
    screen = io.StringIO()
    rich = console._CleanConsole(
        file=screen, force_terminal=True, width=100, color_system="truecolor"
    )
    monkeypatch.setattr(console, "err", rich)
    monkeypatch.setattr(console, "out", rich)
    return screen


def test_progress_shows_loss_and_validation(terminal: io.StringIO) -> None:
    with console.steps("training") as on_step:
        on_step(Step(1, 10, loss=0.5, validation=27.25))
        on_step(Step(10, 10, loss=0.25))
    printed = terminal.getvalue()
    assert "training" in printed
    assert "loss 0.25" in printed
    assert "10/10" in printed


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error that goes to a file, with lines as fast as they can be seen."""
    lines = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=lines, width=100))
    monkeypatch.setattr(console, "LINES_EVERY", 0.01)
    return lines


def wait_for(pattern: str, file: io.StringIO) -> None:
    """Wait for a line that another thread prints."""
    for _ in range(60_000):
        if re.search(pattern, file.getvalue()):
            return
        time.sleep(0.001)
    raise AssertionError(f"no {pattern!r} in {file.getvalue()!r}")


def test_a_file_gets_lines_with_counts(file: io.StringIO) -> None:
    with console.steps("training", 20) as on_step:
        wait_for(r"training: 0 of 20 \(0 %\)", file)
        on_step(Step(5, 20, loss=0.5, validation=27.25))
        wait_for(r"training: 5 of 20 \(25 %\), loss 0\.5, validation 27\.25, ", file)
        on_step(Step(20))
    assert "training: 20 of 20 (100 %)" in file.getvalue().splitlines()[-1]
    with console.counting("adding", 40) as advance:
        advance(10)
        advance(10)
        wait_for(r"adding: 20 of 40 \(50 %\)", file)


def test_work_that_reports_nothing_is_not_silent(file: io.StringIO) -> None:
    with console.steps("checking"):
        wait_for(r"checking: \d+\.\d s so far", file)


def test_short_work_leaves_no_lines_in_a_file(
    file: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "LINES_EVERY", 1000.0)
    with console.counting("encoding", 3) as advance:
        advance(3)
    assert file.getvalue() == ""
    with console.steps("1/2 training", announce=True) as on_step:
        on_step(Step(1, 1))
    assert re.fullmatch(r"1/2 training\n1/2 training: done in \d+\.\d s\n", file.getvalue())


def test_a_bar_shows_no_total_before_it_is_known(terminal: io.StringIO) -> None:
    with console.steps("training") as on_step:
        pass
    with console.counting("importing", None) as advance:
        advance(1200)
    with console.steps("encoding", 5) as on_step:
        on_step(Step(2))
    printed = terminal.getvalue()
    assert "/?" not in printed
    assert "1,200" in printed
    assert "2/5" in printed


def test_a_counter_advances(terminal: io.StringIO) -> None:
    with console.counting("encoding", 30) as advance:
        advance(10)
        advance(20)
    assert "30/30" in terminal.getvalue()


def test_percent_formats_fractions() -> None:
    assert console.percent(0.2534) == "25.3"
    assert console.percent(None) == "–"


HOSTILE = "\x1b]0;pwned\x07\x1b[31mred\x9b2J\x7f\r\u202eback\u2028"


def test_no_text_controls_the_terminal(terminal: io.StringIO) -> None:
    console.say(HOSTILE)
    console.facts(HOSTILE, [(HOSTILE, HOSTILE)])
    rows = console.table("id", title=HOSTILE)
    rows.add_row(f"[bold]{HOSTILE}[/bold]")
    console.out.print(rows)
    printed = terminal.getvalue()
    assert printed.count("pwned") == 6
    colors = re.sub(r"\x1b\[[0-9;]*m", "", printed.replace("[31m", ""))
    assert colors == printable(colors)


def test_json_lines_escape_what_controls_the_terminal() -> None:
    line = console.json_line({"id": HOSTILE, "title": "é\n"})
    assert line == printable(line)
    assert json.loads(line) == {"id": HOSTILE, "title": "é\n"}
    assert "é" in console.json_line(["é"]) or sys.stdout.encoding.lower() != "utf-8"


def test_an_error_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collection", "stats", "no\x1b[2Jwhere"]) == 1
    message = capsys.readouterr().err
    assert "where: no such folder" in message
    assert message == printable(message)

"""Progress bars and numbers in a terminal."""

import io

import pytest
from rich.console import Console

from crossbit._progress import Step
from crossbit.cli import console


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Both streams as a terminal of 100 columns."""
    screen = io.StringIO()
    rich = Console(file=screen, force_terminal=True, width=100, color_system="truecolor")
    monkeypatch.setattr(console, "err", rich)
    monkeypatch.setattr(console, "out", rich)
    return screen


def test_progress_shows_loss_and_validation(terminal: io.StringIO) -> None:
    with console.steps("training") as on_step:
        assert on_step is not None
        on_step(Step(1, 10, loss=0.5, validation=27.25))
        on_step(Step(10, 10, loss=0.25))
    printed = terminal.getvalue()
    assert "training" in printed
    assert "loss 0.25" in printed
    assert "10/10" in printed


def test_progress_is_silent_without_a_terminal() -> None:
    with console.steps("training") as on_step:
        assert on_step is None


def test_a_counter_advances(terminal: io.StringIO) -> None:
    with console.counting("encoding", 30) as advance:
        advance(10)
        advance(20)
    assert "30/30" in terminal.getvalue()


def test_percent_formats_fractions() -> None:
    assert console.percent(0.2534) == "25.3"
    assert console.percent(None) == "–"

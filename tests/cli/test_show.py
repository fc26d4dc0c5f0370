"""What is seen in a terminal: progress bars and drawings."""

import io

import pytest
from rich.console import Console

from crossbit._progress import Step
from crossbit.cli import show


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Both streams as a terminal of 100 columns."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system="truecolor")
    monkeypatch.setattr(show, "err", console)
    monkeypatch.setattr(show, "out", console)
    return screen


def test_progress_shows_loss_and_validation(terminal: io.StringIO) -> None:
    with show.steps("learning") as on_step:
        assert on_step is not None
        on_step(Step(1, 10, loss=0.5, validation=27.25))
        on_step(Step(10, 10, loss=0.25))
    printed = terminal.getvalue()
    assert "learning" in printed
    assert "loss 0.25" in printed
    assert "10/10" in printed


def test_progress_is_silent_elsewhere() -> None:
    with show.steps("learning") as on_step:
        assert on_step is None


def test_counting_counts(terminal: io.StringIO) -> None:
    with show.counting("encoding", 30) as done:
        done(10)
        done(20)
    assert "30/30" in terminal.getvalue()


def test_numbers_for_people() -> None:
    assert show.percent(0.2534) == "25.3"
    assert show.percent(None) == "–"
    assert (show.bits(1), show.bits(12)) == ("1 bit", "12 bits")

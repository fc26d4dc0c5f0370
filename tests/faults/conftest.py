"""Prints what the fault tests have tried, in this process or in those of pytest-xdist."""

import pytest

from tests.faults.rounds import COUNTS


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["counts"] = dict(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    counts = getattr(node, "workeroutput", {}).get("counts", {})
    for description, number in counts.items():
        COUNTS[description] = COUNTS.get(description, 0) + number


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for description, number in COUNTS.items():
        terminalreporter.write_line(f"{number:,} {description}")

"""The command line: ``crossbit --help``."""

import os
import signal
import sys
from types import FrameType

from crossbit.errors import CrossbitError, MissingExtraError

INTERRUPTED = 130  # the exit code of Ctrl-C, in shells and in typer


def main(arguments: list[str] | None = None) -> int:
    """Run a command: 0 when it did what it should, 1 with one line on stderr, 2 for wrong usage, 130 for Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that lacks a character shows '?' instead of failing
    try:
        return _run(arguments)
    except (CrossbitError, OSError) as error:
        return _tell(str(error))
    except KeyboardInterrupt:
        _tell("stopped; nothing half-written was left behind")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("CROSSBIT_DEBUG"):
            raise
        return _tell(
            f"{type(error).__name__}: {error}; this is a bug, CROSSBIT_DEBUG=1 shows where it is"
        )


def _run(arguments: list[str] | None) -> int:
    try:
        from crossbit.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        raise MissingExtraError(error.name, "cli") from error
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        app(arguments)
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0
        if code == INTERRUPTED:
            raise KeyboardInterrupt from exit_
        return code
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _stop(_number: int, _frame: FrameType | None) -> None:
    """A polite request to end is taken like Ctrl-C, so that what was begun is cleaned up."""
    raise KeyboardInterrupt


def _tell(message: str) -> int:
    print("crossbit: " + " ".join(message.split()), file=sys.stderr)  # noqa: T201
    return 1

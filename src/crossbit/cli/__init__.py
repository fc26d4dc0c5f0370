"""The command line: ``crossbit --help``."""

import os
import signal
import sys
from types import FrameType

from crossbit.errors import CrossbitError, MissingExtraError

# Control characters but tab and newline, other line ends, and marks that reorder the text.
_CONTROLS = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A)],
    "\N{REPLACEMENT CHARACTER}",
)
_INTERRUPTED = 130  # exit code of Ctrl-C, in shells and in typer


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 is success, 1 a failure with one line on stderr, 2 wrong usage, and 130 Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that lacks a character shows '?' instead of failing.
            stream.reconfigure(errors="replace")
    try:
        return _run(arguments)
    except CrossbitError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(_describe(error))
    except KeyboardInterrupt:
        _fail("stopped; no partial files were left behind")
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get("CROSSBIT_DEBUG"):
            raise
        return _fail(
            f"{type(error).__name__}: {error};"
            " this is a bug, set CROSSBIT_DEBUG=1 to see the traceback"
        )


def _run(arguments: list[str] | None) -> int:
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        from crossbit.cli.app import app

        app(arguments)
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        raise MissingExtraError(error.name) from error
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0
        if code == _INTERRUPTED:
            raise KeyboardInterrupt from exit_
        return code
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C, so that commands clean up."""
    raise KeyboardInterrupt


def _describe(error: OSError) -> str:
    """Return the file and the reason, without the number of the error."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"


def _fail(message: str) -> int:
    print("crossbit: " + printable(" ".join(message.split())), file=sys.stderr)  # noqa: T201
    return 1


def printable(text: str) -> str:
    """Replace characters that control a terminal: an id or a file name may contain any."""
    return text.translate(_CONTROLS)

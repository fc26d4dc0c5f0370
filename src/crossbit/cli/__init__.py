"""The command line: ``crossbit --help``."""

import sys

from crossbit.errors import CrossbitError, MissingExtraError

INTERRUPTED = 130  # the exit code that typer gives to Ctrl-C, as shells do


def main(arguments: list[str] | None = None) -> int:
    """Run a command: 0 when it did what it should, 1 with one line on stderr, 2 for wrong usage, 130 for Ctrl-C."""
    try:
        try:
            from crossbit.cli.app import app
        except ModuleNotFoundError as error:
            if error.name not in ("typer", "rich"):
                raise
            raise MissingExtraError(error.name, "cli") from error
        app(arguments)
    except (CrossbitError, OSError) as error:
        print(f"crossbit: {error}", file=sys.stderr)  # noqa: T201 - the one line
        return 1
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0
        if code == INTERRUPTED:
            print("crossbit: stopped; nothing half-written was left behind", file=sys.stderr)  # noqa: T201
        return code
    return 0

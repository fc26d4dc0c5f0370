"""The command line: ``crossbit --help``."""

import sys

from crossbit.errors import CrossbitError, MissingExtraError


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
    except KeyboardInterrupt:
        print("crossbit: stopped; nothing half-written was left behind", file=sys.stderr)  # noqa: T201
        return 130
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    return 0

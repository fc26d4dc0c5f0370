"""``crossbit token``: tokens for clients of the service."""

import os
import secrets
from pathlib import Path
from typing import Literal

import typer

from crossbit._validation import check_installed
from crossbit.cli import console
from crossbit.cli.serve import LIBRARIES

commands = typer.Typer()


@commands.command("token")
def _token(
    file: Path,
    *,
    rights: Literal["read", "write"] = "read",
    collection: list[str] | None = None,
) -> None:
    """Create a token for clients of the service, print it once, and add its hash to a file.

    A running service reads the file again. To withdraw a token, delete its line.

    For example:

      crossbit token tokens --rights write
      crossbit token tokens --collection photos --collection sounds
      crossbit serve /var/lib/crossbit --token-file tokens

    Args:
        file: ``FILE``: File of tokens; created if it does not exist.
        rights: Read and search only, or write too (if the service is writable).
        collection: ``NAME``: Collection that it is for; repeatable. Default: all.
    """
    check_installed(*LIBRARIES)
    from crossbit.server.registry import check_name
    from crossbit.server.security import hash_token, read_tokens

    names = [check_name(name) for name in collection or []]
    if file.exists() and file.stat().st_size:
        read_tokens(file)  # no line is added to another file
    token = secrets.token_urlsafe(24)
    line = " ".join([hash_token(token), rights, *names])
    # Other users need not know who may do what.
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640), "w") as tokens:
        tokens.write(line + "\n")
    console.say(f"may {rights} {', '.join(names) or 'all collections'}; it is not shown again:")
    typer.echo(token)

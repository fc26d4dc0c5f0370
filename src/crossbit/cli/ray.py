"""``--ray`` of ``crossbit fit`` and ``crossbit encode``: the same work, on the workers of a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from crossbit.cli import show
from crossbit.cli.written import write_codes
from crossbit.distributed import encoding
from crossbit.errors import DataError

_PANEL = "On a Ray cluster"
Address = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS|local",
        help="Share the work among workers of this cluster.",
        rich_help_panel=_PANEL,
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="How many workers.", rich_help_panel=_PANEL)]
Into = Annotated[
    str | None,
    typer.Option(
        metavar="COLLECTION",
        help="Put the codes into a collection instead.",
        rich_help_panel=_PANEL,
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        help="Column of parquet files with the rows.",
        show_default="the modality's name",
        rich_help_panel=_PANEL,
    ),
]
IdColumn = Annotated[
    str,
    typer.Option(
        "--id", help="Column with the ids; else rows are numbered.", rich_help_panel=_PANEL
    ),
]


def encode(work: encoding.Work, out: Path | None, into: str | None) -> None:
    """Encode on a cluster, to a file or into a collection."""
    if (out is None) == (into is None):
        raise DataError("say where the codes go: --out FILE or --into COLLECTION, one of them")
    with show.counting("encoding", encoding.count(work)) as done:
        if into is not None:
            count = encoding.encode_into(into, work, on_rows=done)
            show.say(f"{count} items written to {into}")
        elif out is not None:
            found = encoding.encode(work, on_rows=done)
            write_codes(found.codes, out, found.rows if work.skip_absent else None)

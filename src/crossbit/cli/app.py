"""The commands, gathered."""

from importlib.metadata import entry_points, version
from typing import Annotated

import typer

from crossbit.cli import (
    collections,
    copying,
    data,
    demo,
    doctor,
    exchange,
    find,
    learn,
    measure,
    models,
    serve,
    tune,
)

app = typer.Typer(
    name="crossbit",
    help="Hash things of different kinds into one space of short binary codes, and search anything with anything.",
    epilog="Begin with: crossbit demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"crossbit {version('crossbit')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Hash things of different kinds into one space of short binary codes, and search anything with anything."""


def _add_plugins(app: typer.Typer) -> None:
    """Add the commands of other distributions: Typer apps of the entry-point group ``crossbit.commands``."""
    for entry in entry_points(group="crossbit.commands"):
        app.add_typer(entry.load(), name=entry.name)


app.command()(learn.learn)
app.command()(models.fit)
app.command()(tune.tune)
app.command()(models.encode)
app.command()(measure.evaluate)
app.command()(measure.score)
app.command()(models.methods)
for command in (
    collections.create,
    collections.add,
    find.search,
    find.annotate,
    exchange.get,
    collections.delete,
    exchange.export,
    exchange.import_,
    copying.copy,
    collections.stats,
    collections.check,
    collections.compact,
    collections.upgrade,
):
    app.command(command.__name__.rstrip("_"), rich_help_panel="Collections")(command)
app.add_typer(data.app, name="data")
_add_plugins(app)
app.command()(serve.serve)
app.command()(doctor.doctor)
app.command()(demo.demo)

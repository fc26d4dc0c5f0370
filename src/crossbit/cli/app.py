"""The application: commands of this package and of plug-ins.

A command's module is imported when the command runs, so that ``crossbit --help`` is fast.
"""

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from crossbit.errors import CrossbitError

_SUMMARY = (
    "Cross-modal hashing: learn short binary codes shared by images, text and other modalities,"
    " and search any of them with any other."
)
_COMMANDS = {
    "train": {
        "fit": "Train hash functions on a data set and write them as a model folder.",
        "extend": "Let new modalities join a model; the codes of the others stay as they are.",
        "tune": "Search the fields of a method by cross-validation on the training rows.",
        "calibrate": "Find the distances beyond which matches are weak, from held-out rows of a"
        " data set.",
        "methods": "List the hashing methods, their supervision and the number of modalities they"
        " take.",
    },
    "learn": {
        "learn": "Build a collection from a table of things of any kinds, or from images and"
        " captions.",
    },
    "extract": {"extract": "Extract feature rows from files of any kind."},
    "codes": {
        "encode": "Encode feature rows as binary codes.",
        "evaluate": "Evaluate a model on a data set, from every modality to every modality.",
        "score": "Measure codes of any origin: mAP, precision, recall and nDCG with exact"
        " definitions.",
    },
    "collection": {
        "create": "Create an empty collection for the codes of a model.",
        "stats": "Show the size of a collection, its modalities, and the health of its codes.",
        "check": "Verify every file of a collection and rebuild damaged indexes.",
        "compact": "Reclaim the space of deleted items, and save the indexes for a fast start.",
        "index": "Index payload fields, so that searches can be filtered by them.",
        "upgrade": "Encode all items with another model from their stored features, then switch to"
        " it.",
        "adopt": "Switch to a model that has further modalities; no stored code is touched.",
        "copy": "Copy all items of a collection into another, such as from a folder to a Milvus"
        " server.",
        "export": "Write all items as JSON lines: ids, payloads, codes, and what is kept"
        " beside the codes.",
        "import": "Add the items of an export; the collection must use the same model.",
    },
    "items": {
        "add": "Add items to a collection.",
        "get": "Show items, one line of JSON each: payload, and codes in hexadecimal.",
        "delete": "Delete items by their ids; unknown ids are ignored.",
    },
    "search": {
        "search": "Find the items nearest to a query of any modality.",
        "annotate": "Suggest tags by a vote of the nearest neighbors.",
    },
    "serve": {
        "serve": "Serve collections over HTTP: a page to search them with text and images, and an"
        " API.",
    },
    "doctor": {
        "doctor": "Show what this installation can do, and the command that installs what is"
        " missing.",
    },
    "demo": {
        "demo": "Learn codes for 1,849 emojis, their words and spoken words, and search each with"
        " the others.",
    },
    "data": {"data": "Create, convert and inspect data sets."},
}
"""Module of this package → its commands → the first sentence of their help."""
_MODULE = {name: module for module, names in _COMMANDS.items() for name in names}
_PANELS = dict.fromkeys(["collection", "items", "search"], "Collections")
"""Module → title above its commands in the list."""

_PLUGINS = "crossbit.commands"
"""Entry-point group in which other distributions register commands: name → Typer app."""

_INSTALL = {"reproduce": ("crossbit-experiments", "pip install ./experiments")}
"""Plug-in command → its distribution, and how to install it from a clone of the repository."""


class _CommandGroup(TyperGroup):
    """The top-level group; imports plug-ins only when they run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Return the names of all commands."""
        names = super().list_commands(ctx)
        return [*names, *sorted(name for name in _plugins() if name not in names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a command; for a plug-in, a placeholder for the list of commands."""
        command = super().get_command(ctx, cmd_name)
        if command is None and (entry := _plugins().get(cmd_name)):
            placeholder = typer.Typer(name=cmd_name, help=_plugin_summary(entry))
            placeholder.callback()(lambda: None)
            return get_group(placeholder)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Return the command to run; its module or plug-in is imported here."""
        name = args[0]
        if name in _MODULE:
            return name, _load_command(name), args[1:]
        # Entry points are looked up only for unknown names: it reads all installed metadata.
        if entry := _plugins().get(name):
            return name, _load_plugin(entry), args[1:]
        if name in _INSTALL:
            distribution, remedy = _INSTALL[name]
            raise CrossbitError(
                f"'crossbit {name}' needs the distribution {distribution};"
                f" install it from a clone of the repository with: {remedy}"
            )
        return super().resolve_command(ctx, args)


def _load_command(name: str) -> Any:  # noqa: ANN401 - a command of vendored click
    """Import a command of this package."""
    commands: typer.Typer = import_module(f"crossbit.cli.{_MODULE[name]}").commands
    for command in commands.registered_commands:
        command.help = _reflow(getdoc(command.callback) or "")
    group = get_group(commands)
    return group.commands.get(name, group)


def _plugins() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=_PLUGINS)}


def _plugin_summary(entry: EntryPoint) -> str:
    if entry.dist is not None and "Summary" in entry.dist.metadata:
        return entry.dist.metadata["Summary"]
    return f"Commands of {entry.value.partition('.')[0]}."


def _load_plugin(entry: EntryPoint) -> Any:  # noqa: ANN401 - a command of vendored click
    """Import a plug-in; an error in it must not look like an error of this package."""
    try:
        command = get_command(entry.load())
    except Exception as error:
        distribution = entry.dist.name if entry.dist is not None else entry.value
        raise CrossbitError(
            f"'crossbit {entry.name}' of {distribution} cannot be loaded"
            f" ({type(error).__name__}: {error}); reinstall or upgrade {distribution}"
        ) from error
    command.name = entry.name
    return command


app = typer.Typer(
    name="crossbit",
    cls=_CommandGroup,
    help=_SUMMARY,
    epilog="Start with: crossbit demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"crossbit {version('crossbit')}")
        raise typer.Exit


@app.callback(help=_SUMMARY)
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Accept the options of the application itself."""


def _reflow(text: str) -> str:
    """Join the lines of each paragraph, so that help fits any width; examples are indented."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else p.replace("\n", " ") for p in paragraphs)


for _name, _module in _MODULE.items():  # placeholders for the list of commands
    _help = _COMMANDS[_module][_name]
    app.command(_name, help=_help, rich_help_panel=_PANELS.get(_module))(lambda: None)

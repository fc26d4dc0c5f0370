"""The application: the list of commands, and commands of other distributions.

A command's module is imported when the command runs, so that ``crossbit --help`` is fast; the list
of commands reads their docstrings from the source.
"""

import ast
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, version
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from crossbit.cli._command import describe, reflow
from crossbit.errors import CrossbitError
from crossbit.plugins import COMMANDS, describe_plugin, find_plugins, load_plugin

_SUMMARY = (
    "Cross-modal hashing: learn short binary codes shared by images, text and other modalities,"
    " and search any of them with any other."
)
_PANELS = {
    "Learn": {
        "learn": "learn",
        "fit": "model",
        "tune": "model",
        "evaluate": "codes",
        "encode": "codes",
        "extract": "extract",
    },
    "Collections": {
        "search": "search",
        "add": "items",
        "get": "items",
        "update": "items",
        "delete": "items",
        "collection": "collection",
        "serve": "serve",
        "token": "token",
    },
    "Data and installation": {"demo": "demo", "data": "data", "doctor": "doctor"},
}
"""Title in the list of commands → command → its module."""
_MODULE = {name: module for commands in _PANELS.values() for name, module in commands.items()}

_INSTALL = {"reproduce": ("crossbit-experiments", "pip install ./experiments")}
"""Plug-in command → its distribution, and how to install it from a clone of the repository."""


class _CommandGroup(TyperGroup):
    """The top-level group: imports commands and plug-ins only when they run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click
        """Return the names of all commands."""
        return [*_MODULE, *sorted(name for name in find_plugins(COMMANDS) if name not in _MODULE)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a placeholder for the list of commands."""
        if cmd_name in _MODULE:
            panel = next(title for title, names in _PANELS.items() if cmd_name in names)
            return _placeholder(cmd_name, _summary(_MODULE[cmd_name], cmd_name), panel)
        if entry := find_plugins(COMMANDS).get(cmd_name):
            return _placeholder(cmd_name, _plugin_summary(entry), "Plug-ins")
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Return the command to run; its module or plug-in is imported here."""
        name = args[0]
        if name in _MODULE:
            return name, _load_command(name), args[1:]
        # Entry points are looked up only for unknown names: it reads all installed metadata.
        if entry := find_plugins(COMMANDS).get(name):
            return name, _load_plugin(entry), args[1:]
        if name in _INSTALL:
            distribution, remedy = _INSTALL[name]
            raise CrossbitError(
                f"'crossbit {name}' needs the distribution {distribution};"
                f" install it from a clone of the repository with: {remedy}"
            )
        names: dict[str, Any] = dict.fromkeys(self.list_commands(ctx))
        self.commands = names  # to suggest one of them
        return super().resolve_command(ctx, args)


def _placeholder(name: str, summary: str, panel: str) -> Any:  # noqa: ANN401 - click
    listed = typer.Typer()
    listed.command(name, help=summary, rich_help_panel=panel)(lambda: None)
    return get_command(listed)


@cache
def _summaries(module: str) -> dict[str, str]:
    """Name of a function → first paragraph of its docstring; that of the module has no name."""
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    documents = {name: ast.get_docstring(node) for name, node in functions.items()}
    documents[""] = ast.get_docstring(tree)
    return {name: reflow(text or "").split("\n\n")[0] for name, text in documents.items()}


def _summary(module: str, name: str) -> str:
    """Return the summary of a command, or of a module that is a group of commands."""
    summaries = _summaries(module)
    return summaries.get(f"_{name}", summaries[""])


def _load_command(name: str) -> Any:  # noqa: ANN401 - a command of vendored click
    """Import a command of this package."""
    module = import_module(f"crossbit.cli.{_MODULE[name]}")
    commands: typer.Typer = module.commands
    for command in commands.registered_commands:
        command.help = describe(command.callback)  # type: ignore[arg-type]
    group = get_group(commands)
    if name in group.commands:
        return group.commands[name]
    group.help = reflow(cleandoc(module.__doc__ or ""))
    group.no_args_is_help = True
    return group


def _plugin_summary(entry: EntryPoint) -> str:
    if entry.dist is not None and "Summary" in entry.dist.metadata:
        return entry.dist.metadata["Summary"]
    return f"Commands of {entry.value.partition('.')[0]}."


def _load_plugin(entry: EntryPoint) -> Any:  # noqa: ANN401 - a command of vendored click
    application = load_plugin(entry)
    if not isinstance(application, typer.Typer):
        raise CrossbitError(f"{describe_plugin(entry)}: expected a Typer app, got {application!r}")
    command = get_command(application)
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

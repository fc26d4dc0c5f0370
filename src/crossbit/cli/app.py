"""The application: commands of this package, plug-in commands, and hints for renamed options."""

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from crossbit.cli import codes, collection, data, demo, doctor, items, search, serve, train
from crossbit.errors import CrossbitError

_SUMMARY = (
    "Cross-modal hashing: learn short binary codes shared by images, text and other modalities,"
    " and search any of them with any other."
)
_PLUGINS = "crossbit.commands"
"""Entry-point group in which other distributions register commands: name → Typer app."""

_INSTALL = {"reproduce": ("crossbit-experiments", "pip install ./experiments")}
"""Plug-in command → its distribution, and how to install it from a clone of the repository."""

RENAMED = {
    "fit": {"-m": "--method"},
    "tune": {"-m": "--method"},
    "learn": {"-m": "--method", "--held-out": "--test-size", "--hold-out": "--test-names"},
    "encode": {"--id": "--id-column"},
    "evaluate": {"-k": "--at", "--drop-own": "--exclude-self"},
    "score": {"-k": "--at", "--keep-own": "--include-self"},
    "add": {"--id": "--id-column", "--ids": "--ids-file", "--view": "--column"},
    "delete": {"--file": "--ids-file"},
    "search": {"--among": "--target", "--where": "--filter", "--rescore": "--rerank"},
    "annotate": {
        "--from": "--target",
        "--where": "--filter",
        "--tags": "--max-tags",
        "--neighbours": "--neighbors",
    },
    "serve": {"--media": "--images", "--name": "--allowed-host"},
    "demo": {"--folder": "--out"},
    "data convert": {"OUT": "--out", "--licence": "--license"},
    "data synthetic": {"OUT": "--out"},
    "reproduce": {
        "photographs": "flickr8k --part qualitative",
        "pages": "docs",
        "scale": "capacity",
    },
    "reproduce wiki": {"--part scarce": "--part few-pairs"},
    "reproduce shapegoogle": {"--part scarce": "--part few-pairs"},
    "reproduce flickr8k": {"--pictures": "--encoder"},
}
"""Command → option, option with a value, positional argument or subcommand of the first edition →
its new name."""


class _CommandGroup(TyperGroup):
    """The top-level group: answers renamed options, and imports plug-ins only when they run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click
        """Stop with a hint if a renamed option is used."""
        if hint := _renamed_hint(args):
            typer.echo(f"crossbit: {hint}", err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

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
        """Return the command to run; a plug-in is imported here."""
        name = args[0]
        # Entry points are looked up only for unknown names: it reads all installed metadata.
        if super().get_command(ctx, name) is None:
            if entry := _plugins().get(name):
                return name, _load_plugin(entry), args[1:]
            if name in _INSTALL:
                distribution, remedy = _INSTALL[name]
                raise CrossbitError(
                    f"'crossbit {name}' needs the distribution {distribution};"
                    f" install it from a clone of the repository with: {remedy}"
                )
        return super().resolve_command(ctx, args)


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


def _renamed_hint(arguments: Sequence[str]) -> str | None:
    """Return a sentence about the first renamed option, argument or subcommand; None without one.

    Example:
        >>> _renamed_hint(["search", "photos", "--among", "text"])
        '--among is now --target'
    """
    command = " ".join(arguments[:2])
    if command not in RENAMED:
        command = " ".join(arguments[:1])
    names = RENAMED.get(command, {})
    rest = list(arguments[len(command.split()) :])
    # After -- everything is positional; a request for help is never an error.
    if "--" in rest:
        rest = rest[: rest.index("--")]
    if {"-h", "--help"} & set(rest):
        return None
    if "OUT" in names and (hint := _out_hint(command, rest)):
        return hint
    words = [part for argument in rest for part in _split_option(argument)]
    for position, option in enumerate(words):
        setting = " ".join(words[position : position + 2])
        old = setting if setting in names else option
        if old not in names or old == "OUT" or (not old.startswith("-") and position > 0):
            continue
        if old == "-m":
            value = " ".join(words[position + 1 : position + 2])
            return f"-m means --modality in all commands now; use --method {value}".rstrip()
        return f"{old} is now {names[old]}"
    return None


def _split_option(argument: str) -> list[str]:
    """Split an option from the value that is written together with it: --at=10, -k10."""
    if argument.startswith("--"):
        return argument.split("=", 1)
    if argument.startswith("-") and len(argument) > 2:
        return [argument[:2], argument[2:]]
    return [argument]


def _out_hint(command: str, rest: list[str]) -> str | None:
    """Return a hint for an output folder that is given as the last positional argument."""
    positional = list(_positional(rest))
    if any(argument.startswith(("-o", "--out")) for argument in rest):
        return None
    *inputs, out = positional or [""]
    if not out or (command == "data convert" and not inputs):
        return None
    files = " ".join([*inputs, "--out", out])
    return f"the output folder is now --out: crossbit {command} {files}"


def _positional(arguments: Sequence[str]) -> Iterator[str]:
    """Yield arguments that are neither options nor their values; every option takes a value."""
    remaining = iter(arguments)
    for argument in remaining:
        if not argument.startswith("-"):
            yield argument
        elif "=" not in argument:
            next(remaining, None)


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


for _module in (train, codes, collection, items, search, serve, doctor, demo):
    app.add_typer(_module.commands)
app.add_typer(data.app, name="data")
for _typer in [group.typer_instance for group in app.registered_groups]:
    for _command in _typer.registered_commands if _typer is not None else []:
        _command.help = _reflow(getdoc(_command.callback) or "")

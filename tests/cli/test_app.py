"""The application: its commands and parameters, and commands of other distributions."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest
import typer

from crossbit import plugins
from crossbit.cli import app as app_module
from crossbit.cli import main
from crossbit.plugins import COMMANDS


def _install(monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    entries = {name: EntryPoint(name, value, COMMANDS) for name, value in commands.items()}
    monkeypatch.setattr(plugins, "_all_groups", lambda: {COMMANDS: entries})


@pytest.mark.parametrize("arguments", [["reproduce"], ["reproduce", "wiki", "--only", "cm"]])
def test_without_its_distribution_reproduce_says_how_to_install_it(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch)
    assert main(arguments) == 1
    assert capsys.readouterr().err == (
        "crossbit: 'crossbit reproduce' needs the distribution crossbit-experiments;"
        " install it from a clone of the repository with: pip install ./experiments\n"
    )
    assert main(["--help"]) == 0
    assert "reproduce" not in capsys.readouterr().out


def test_a_plugin_that_cannot_be_loaded_is_reported_only_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, broken="no_such_module_at_all:app", fit="no_such_module_at_all:app")
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert "Commands of no_such_module_at_all:app." in printed
    assert main(["doctor"]) == 0
    assert main(["fit", "--help"]) == 0  # commands of this package take precedence
    capsys.readouterr()
    assert main(["broken", "anything"]) == 1
    printed = capsys.readouterr().err
    assert "command 'broken' (no_such_module_at_all:app) cannot be imported (Module" in printed
    assert printed.count("\n") == 1


def test_a_plugin_is_imported_only_when_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = ModuleType("a_plugin_of_the_tests")
    loaded = typer.Typer()

    @loaded.callback()
    def _group() -> None:
        """Commands of a plug-in."""

    @loaded.command()
    def hello(name: str) -> None:
        """Say hello."""
        typer.echo(f"hello {name}")

    _install(monkeypatch, other="a_plugin_of_the_tests:loaded")
    assert main(["--help"]) == 0  # the module does not exist yet
    assert "other" in capsys.readouterr().out
    vars(plugin)["loaded"] = loaded
    monkeypatch.setitem(sys.modules, plugin.__name__, plugin)
    assert main(["other", "hello", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_no_library_of_a_command(argument: str) -> None:
    code = (
        "import sys; from crossbit.cli import main; main(sys.argv[1:]);"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, argument], capture_output=True, text=True, check=True
    )
    modules = set(done.stderr.split())
    assert not modules & {"numpy", "torch", "pydantic", "scipy", "sqlite3", "asyncio"}
    assert {name for name in modules if name.startswith("crossbit.")} == {
        "crossbit._install",
        "crossbit.cli",
        "crossbit.cli._command",
        "crossbit.cli.app",
        "crossbit.errors",
        "crossbit.plugins",
    }


def _tree() -> dict[str, Any]:
    """All commands of this package, with groups as the first word."""
    tree = {}
    for name in app_module._MODULE:
        command = app_module._load_command(name)
        for sub_name, sub in getattr(command, "commands", {"": command}).items():
            tree[f"{name} {sub_name}".rstrip()] = sub
    return tree


TREE = _tree()


def test_there_are_few_commands_and_parameters() -> None:
    assert set(TREE) == {
        *("learn", "fit", "tune", "evaluate", "encode", "extract", "search", "add", "get"),
        *("update", "delete", "serve", "token", "demo", "doctor"),
        *(f"data {verb}" for verb in ("convert", "info", "synthetic", "list")),
        *(f"collection {verb}" for verb in ("create", "stats", "check", "compact", "index")),
        *(f"collection {verb}" for verb in ("upgrade", "extend", "copy", "export", "import")),
    }
    assert sum(len(command.params) for command in TREE.values()) <= 170


@pytest.mark.parametrize("name", TREE)
def test_every_command_teaches(name: str) -> None:
    command = TREE[name]
    assert [param.name for param in command.params if not getattr(param, "help", "")] == []
    summary, _, rest = command.help.partition("\n\n")
    assert summary.endswith(".")
    examples = rest.partition("For example:\n\n")[2].splitlines()
    assert any(line.startswith(f"  crossbit {name}") for line in examples)


def test_the_list_shows_the_docstrings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = "".join(capsys.readouterr().out.split())
    for name in app_module._MODULE:
        command = app_module._load_command(name)
        words = command.help.partition("\n\n")[0].split()[:4]
        assert name + "".join(words) in printed


def test_workers_are_always_processes() -> None:
    helps = {
        param.help
        for command in TREE.values()
        for param in command.params
        if param.name == "workers"
    }
    assert len(helps) == 1

"""The application: commands of this package and of other distributions."""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import pytest
import typer

from crossbit.cli import app as app_module
from crossbit.cli import main


def _install(monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    entries = EntryPoints(
        EntryPoint(name, value, "crossbit.commands") for name, value in commands.items()
    )
    monkeypatch.setattr(app_module, "entry_points", lambda group: entries.select(group=group))


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
    assert main(["methods"]) == 0
    assert main(["fit", "--help"]) == 0  # commands of this package take precedence
    capsys.readouterr()
    assert main(["broken", "anything"]) == 1
    printed = capsys.readouterr().err
    assert "'crossbit broken' of no_such_module_at_all:app cannot be loaded (Module" in printed
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
        "crossbit.cli.app",
        "crossbit.errors",
    }


@pytest.mark.parametrize("module", app_module._COMMANDS)
def test_the_list_of_commands_repeats_their_docstrings(module: str) -> None:
    commands = import_module(f"crossbit.cli.{module}").commands
    listed = app_module._COMMANDS[module]
    if module == "data":
        assert listed == {"data": commands.info.help}
        return
    assert list(listed) == [command.name for command in commands.registered_commands]
    for command in commands.registered_commands:
        first = command.callback.__doc__.split("\n\n")[0]
        assert listed[command.name] == " ".join(first.split())
        if module in app_module._PANELS:
            assert command.rich_help_panel == app_module._PANELS[module]


def test_every_module_with_commands_is_listed() -> None:
    folder = Path(app_module.__file__).parent
    modules = {
        path.stem for path in folder.glob("*.py") if "commands = typer.Typer(" in path.read_text()
    }
    assert modules == set(app_module._COMMANDS)

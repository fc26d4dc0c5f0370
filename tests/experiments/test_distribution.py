"""The distribution crossbit-experiments: its metadata, its entry point and its data files."""

import doctest
import importlib
import pkgutil
import tomllib
from importlib.metadata import entry_points, version
from importlib.resources import files
from pathlib import Path

import pytest

import crossbit_experiments
from crossbit.cli import main
from crossbit_experiments.docs import EXPERIMENTS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text(encoding="utf-8"))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(crossbit_experiments.__path__, "crossbit_experiments.")
)
COMMANDS = (
    *("wiki", "nus", "flickr8k", "shapegoogle", "digits", "defects", "capacity"),
    *("docs", "verify"),
)


def test_the_version_is_that_of_crossbit() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert version("crossbit") == version("crossbit-experiments")


def test_the_entry_point_adds_reproduce(capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = entry_points(group="crossbit.commands", name="reproduce")
    assert entry.value == PROJECT["project"]["entry-points"]["crossbit.commands"]["reproduce"]
    assert main(["reproduce", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_the_readme_has_every_command() -> None:
    readme = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"crossbit reproduce {name}" not in readme] == []


@pytest.mark.parametrize("name", ["concepts.json", "report.css"])
def test_data_files_are_packaged(name: str) -> None:
    assert files("crossbit_experiments.flickr8k").joinpath(name).is_file()
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["crossbit_experiments"]
    assert f"flickr8k/*{Path(name).suffix}" in patterns


def test_every_committed_result_has_tables() -> None:
    committed = {path.parent.name for path in (ROOT / "results").glob("*/summary.json")}
    assert committed <= set(EXPERIMENTS)


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0

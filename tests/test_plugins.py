"""Entry points of other distributions: all groups in one place, looked up once."""

import ast
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from crossbit import Collection, DataError, plugins
from crossbit.features import extractor_class
from crossbit.plugins import GROUPS, STORES, find_plugins, load_plugin

ROOT = Path(__file__).parents[1]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often the metadata of all distributions is read; one store is installed."""
    counted: list[int] = []
    installed = EntryPoints([EntryPoint("shelf", "no_such_module:Shelf", STORES)])

    def entry_points() -> EntryPoints:
        counted.append(1)
        return installed

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    monkeypatch.setattr(plugins, "_all_groups", cache(plugins._all_groups.__wrapped__))
    return counted


def test_entry_points_are_looked_up_once(scans: list[int]) -> None:
    for _ in range(3):
        with pytest.raises(DataError, match="unknown kind of recipe 'holograms'"):
            extractor_class("holograms")
        with pytest.raises(DataError, match="unknown scheme 'drawer'"):
            Collection.open("drawer://photos")
        assert list(find_plugins(STORES)) == ["shelf"]
    assert len(scans) == 1


@pytest.mark.usefixtures("scans")
def test_a_store_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(DataError, match=r"store 'shelf' \(no_such_module:Shelf\) cannot be import"):
        Collection.open("shelf://photos")
    with pytest.raises(DataError, match="ModuleNotFoundError"):
        load_plugin(find_plugins(STORES)["shelf"])


def test_no_other_module_looks_up_entry_points() -> None:
    for path in (ROOT / "src" / "crossbit").rglob("*.py"):
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert "entry_points" not in names or path.name == "plugins.py", path


def test_every_group_is_documented() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`{group}`" in page for group in GROUPS)

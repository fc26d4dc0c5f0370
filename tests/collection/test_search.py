"""The options of a search: one list, checked in one place."""

import inspect
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from crossbit import Collection, DataError
from crossbit.client import AsyncClient, Client
from crossbit.collection import search
from crossbit.collection.search import SearchKeywords, SearchOptions
from crossbit.collection.stores import Capabilities


def test_the_keywords_are_the_fields() -> None:
    types = {each.name: each.type for each in fields(SearchOptions) if each.name != "k"}
    assert get_type_hints(SearchKeywords) == types


@pytest.mark.parametrize("kind", [Collection, Client, AsyncClient])
def test_help_shows_every_option(kind: type[Any]) -> None:
    parameters = inspect.signature(kind.search).parameters
    doc = inspect.getdoc(kind.search)
    assert doc is not None
    for option in SearchOptions.all():
        assert option.doc
        assert parameters[option.name].default == option.default
        assert parameters[option.name].annotation == option.type
        assert f"    {option.name}: {option.doc}" in doc
    assert "options" not in parameters


def test_options_go_to_json_and_back() -> None:
    assert SearchOptions().to_json() == {}
    given: dict[str, Any] = {
        "k": 3,
        "target": ["image", "text"],
        "filter": {"year": {">": 2010}},
        "min_similarity": "auto",
        "group_by": "author",
        "offset": 2,
        "exclude": "cat.jpg",
        "rerank": 40,
        "rerank_by": "scores",
        "with_codes": True,
    }
    options = SearchOptions.from_mapping(given)
    assert options.to_json() == given
    assert SearchOptions.from_mapping(options.to_json()) == options
    assert set(given) == {each.name for each in fields(SearchOptions)}


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        DataError, match=r"unknown search option 'bits'; known: k, target, .*rerank"
    ):
        SearchOptions.from_mapping({"k": 3, "bits": 8})


def test_targets_are_the_other_modalities_unless_they_are_named() -> None:
    names = ["image", "text", "sound"]
    assert SearchOptions().targets("text", names) == ["image", "sound"]
    assert SearchOptions().targets("text", ["text"]) == ["text"]
    assert SearchOptions(target="*").targets("text", names) == names
    assert SearchOptions(target="text").targets("text", names) == ["text"]
    assert SearchOptions(target=iter(["text", "image", "text"])).targets("text", names) == [
        "text",
        "image",
    ]
    with pytest.raises(DataError, match="unknown modality 'smell'"):
        SearchOptions(target=["smell"]).targets("text", names)
    with pytest.raises(DataError, match="unknown modality 'smell'"):
        SearchOptions(target="text").targets("smell", names)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"k": 0}, "k must be"),
        ({"k": True}, "k must be"),
        ({"offset": -1}, "offset must be"),
        ({"target": []}, "target: expected at least one"),
        ({"target": 3}, "target: expected names"),
        ({"filter": 3}, "filter"),
        ({"min_similarity": 1.5}, "min_similarity must be"),
        ({"min_similarity": "high"}, "min_similarity must be"),
        ({"group_by": 3}, "group_by must be"),
        ({"exclude": 1.5}, "an id must be"),
        ({"rerank": 5}, "rerank must be at least k = 10, got 5"),
        ({"rerank": 11, "offset": 2}, r"rerank must be at least offset \+ k = 12, got 11"),
        ({"rerank_by": "payload", "rerank": 20}, "rerank_by must be one of"),
        ({"rerank_by": "scores"}, "needs rerank"),
    ],
)
def test_a_wrong_value_is_refused(values: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        SearchOptions(**values)


def test_what_a_store_cannot_do_is_refused() -> None:
    store = Capabilities(exact_ties=True)
    SearchOptions(offset=3, rerank=20, rerank_by="scores").check(store, ["scores"])
    with pytest.raises(DataError, match="offset needs a store"):
        SearchOptions(offset=3).check(Capabilities(), [])
    with pytest.raises(DataError, match="the collection keeps no features"):
        SearchOptions(rerank=20, rerank_by="features").check(store, ["scores"])


_ADDED = """
import inspect, sys
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location

class Edited(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "crossbit.collection.search":
            return spec_from_file_location(name, sys.argv[1])

sys.meta_path.insert(0, Edited())
from typer.main import get_command
from crossbit import Collection
from crossbit.cli.search import commands
from crossbit.client import AsyncClient, Client
from crossbit.server.models import SearchRequest

for kind in (Collection, Client, AsyncClient):
    assert inspect.signature(kind.search).parameters["loudness"].default == 3, kind
    assert "loudness: How loud." in kind.search.__doc__, kind
assert SearchRequest.model_fields["loudness"].description == "How loud."
assert SearchRequest(text="a", loudness=5).options.loudness == 5
command = get_command(commands)
command = command.commands["search"] if hasattr(command, "commands") else command
option = next(each for each in command.params if "--loudness" in each.opts)
assert option.default == 3
assert option.help == "How loud."
"""


def test_a_field_that_is_added_in_one_place_is_found_in_all(tmp_path: Path) -> None:
    text = Path(search.__file__).read_text(encoding="utf-8")
    for place, line in (
        ("        with_codes: Return", "        loudness: How loud.\n"),
        ("    with_codes: bool = False", "    loudness: int = 3\n"),
    ):
        assert text.count(place) == 1
        text = text.replace(place, line + place)
    (tmp_path / "search.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", _ADDED, str(tmp_path / "search.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

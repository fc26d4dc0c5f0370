"""The options of a search: one list, checked in one place."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from crossbit import Collection, DataError
from crossbit.client import AsyncClient, Client
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

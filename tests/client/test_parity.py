"""Clients have the verbs of a collection with its parameters, but those that a service lacks."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from crossbit import Collection
from crossbit.client import AsyncClient, Client

ROOT = Path(__file__).parents[2]
MADE_BY = {"create", "open", "exists"}  # `connect` replaces them
ABSENT = {"upgrade", "extend", "unindexed_fields", "sample"}  # done where the collection is
LOCAL = {"accepts": {"trusted"}, "get": {"kept"}, "scan": {"kept"}, "search": {"threads"}}
VERBS = sorted(
    name for name in dir(Collection) if not name.startswith("_") and name not in MADE_BY | ABSENT
)
AWAITED = {"__len__": "count", "__contains__": "contains", "__iter__": "__aiter__"}


def is_property(owner: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(owner, name), property)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_the_parameters_of_a_collection(client: type, verb: str) -> None:
    if is_property(Collection, verb):
        assert is_property(client, verb) or list(
            inspect.signature(getattr(client, verb)).parameters
        ) == ["self"]
        return
    expected = dict(inspect.signature(getattr(Collection, verb)).parameters)
    for name in LOCAL.get(verb, ()):
        del expected[name]
    assert inspect.signature(getattr(client, verb)).parameters == expected


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_verb_that_a_service_cannot_do_is_absent(client: type) -> None:
    for name in ABSENT | MADE_BY:
        assert hasattr(Collection, name)
        assert not hasattr(client, name)


def test_a_client_has_the_properties_and_operators_of_a_collection() -> None:
    for name in VERBS:
        assert is_property(Client, name) == is_property(Collection, name)
    for name, awaited in AWAITED.items():
        assert hasattr(Client, name)
        assert hasattr(AsyncClient, awaited)


@pytest.mark.parametrize("verb", [name for name in VERBS if not is_property(Collection, name)])
def test_every_verb_of_the_async_client_is_awaited(verb: str) -> None:
    assert inspect.iscoroutinefunction(getattr(AsyncClient, verb))


def test_the_blocking_client_is_that_of_its_source() -> None:
    command = [sys.executable, "scripts/sync_client.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

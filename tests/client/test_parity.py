"""Clients have every verb of a collection, with its parameters; what HTTP lacks is refused."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Collection, DataError, HashModel
from crossbit.client import AsyncClient, Client, connect
from crossbit.model import Affine
from tests.client.conftest import AwaitedClient, Serve

SIGNS = HashModel({"image": [Affine(np.eye(3), np.zeros(3))]}, n_bits=3)
MADE_BY = {"create", "open", "exists"}  # `connect` replaces them
VERBS = sorted(name for name in dir(Collection) if not name.startswith("_") and name not in MADE_BY)
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
    expected = inspect.signature(getattr(Collection, verb)).parameters
    assert inspect.signature(getattr(client, verb)).parameters == expected


def test_a_client_has_the_properties_and_operators_of_a_collection() -> None:
    for name in VERBS:
        assert is_property(Client, name) == is_property(Collection, name)
    for name, awaited in AWAITED.items():
        assert hasattr(Client, name)
        assert hasattr(AsyncClient, awaited)


@pytest.mark.parametrize("verb", [name for name in VERBS if not is_property(Collection, name)])
def test_every_verb_of_the_async_client_is_awaited(verb: str) -> None:
    assert inspect.iscoroutinefunction(getattr(AsyncClient, verb))


X = np.eye(3)[:1]
REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda c: c.get(["a"], kept=True),
        "kept must be False: .*, got True; read them with Collection.open where the collection is",
    ),
    (lambda c: c.scan(kept=True), "kept must be False: .*, got True; read them with Collection"),
    (
        lambda c: c.unindexed_fields({"year": 1, "or": [{"label": 2}]}),
        r"call index_field for each field of the filter, \['label', 'year'\]",
    ),
    (lambda c: c.unindexed_fields("year"), "a filter maps fields to conditions"),
    (lambda c: c.upgrade(SIGNS), "run 'crossbit upgrade' where the collection is"),
    (lambda c: c.extend(SIGNS), "run 'crossbit upgrade' where the collection is"),
]


@pytest.mark.parametrize("make", [connect, AwaitedClient])
def test_what_a_service_cannot_do_is_refused_with_a_remedy(
    serve: Serve, tmp_path: Path, make: Callable[..., Any]
) -> None:
    Collection.create(tmp_path / "all" / "c", SIGNS).close()
    with make(serve(tmp_path / "all"), collection="c") as client:
        for call, message in REFUSED:
            with pytest.raises(DataError, match=message):
                call(client)
        assert len(client) == 0
        client.upsert(["a"], {"image": X})
        (item,) = client.get(["a"], kept=False)
        assert item.modalities == ["image"]
        assert client.scan(kept=False)[0] == client.model == SIGNS
        assert [each.id for each in client.scan()[1]] == ["a"]
        assert "a" in client
        assert "b" not in client
        assert client.accepts("image", trusted=False) is None
        assert client.search("image", X, threads=1)[0][0].id == "a"

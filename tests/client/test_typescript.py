"""The TypeScript client: short names, and requests that are repeated as by the Python client."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crossbit.client import verbs
from crossbit.client.transport import RemoteCall
from scripts.typescript import Operations, generate

ANSWER: dict[str, Any] = {"responses": {"200": {"content": {"application/json": {"schema": {}}}}}}
ABOUT = {"modalities": {"image": None}, "capabilities": {}, "keep": []}


@pytest.fixture(scope="module")
def repeatable() -> dict[str, bool]:
    """Return whether the request of each method may be repeated."""
    _, methods = generate().split("export class Crossbit")
    found = re.findall(r"\n  (\w+)\(.*\n.* repeatable: (true|false)", methods)
    return {name: value == "true" for name, value in found}


def test_every_method_has_a_short_name(repeatable: dict[str, bool]) -> None:
    assert {"search", "deleteCollection", "export"} <= repeatable.keys()
    assert [name for name in repeatable if "Api" in name or len(name) > 20] == []


def test_equal_names_are_told_apart_without_the_prefix_of_their_paths() -> None:
    operations = Operations()
    paths = {"/api/items": "items", "/api/collections/{name}/items": "itemsCollections"}
    for path in paths:
        identifier = f"items{re.sub(r'[^a-z]', '_', path)}_get"
        operations.add(path, "get", {"operationId": identifier, **ANSWER})
    assert list(operations.methods) == list(paths.values())
    again = {"operationId": "items_api_items_get", **ANSWER}
    with pytest.raises(ValueError, match="GET /api/items: 'items' is taken; rename its function"):
        operations.add("/api/items", "get", again)


def test_only_reads_are_repeated(repeatable: dict[str, bool]) -> None:
    writes = {"createCollection", "deleteCollection", "upsert", "upload", "delete"}
    assert {name for name, value in repeatable.items() if not value} == writes


def calls() -> Iterator[tuple[str, RemoteCall]]:
    """Yield the method of the TypeScript client, and the call of the one in Python."""
    remote = verbs.RemoteVerbs()
    X = np.eye(3)
    options: dict[str, Any] = {"target": None, "filter": None, "trusted": True}
    tags: dict[str, Any] = {"neighbors": 5, "max_tags": 3, "field": "tags"}
    for name, steps in (
        ("search", remote.search("image", X, 1, **options)),
        ("annotate", remote.annotate("image", X, **options, **tags)),
        ("upsert", remote.upsert(["a"], None, None, replace_payload=False, trusted=True)),
        ("delete", remote.delete(["a"], None, None)),
        ("stats", remote.stats()),
    ):
        call = next(steps)
        yield name, steps.send(ABOUT) if call.path == "" else call


def test_the_python_client_repeats_the_same_requests(repeatable: dict[str, bool]) -> None:
    found = {name: call.repeatable for name, call in calls()}
    assert found == {name: repeatable[name] for name in found}
    assert set(found.values()) == {True, False}

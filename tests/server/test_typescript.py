"""The TypeScript client is the one of the current OpenAPI document; `make js` runs it."""

from typing import Any

from scripts.typescript import OUTPUT, Operations, generate, type_of


def test_the_client_is_up_to_date() -> None:
    assert OUTPUT.read_text() == generate(), "run python scripts/typescript.py"


def test_types_of_schemas() -> None:
    cases: dict[str, dict[str, Any]] = {
        "number": {"type": "integer"},
        "(number | string)[]": {
            "type": "array",
            "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
        "string | null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "Record<string, number>": {
            "type": "object",
            "additionalProperties": {"type": "number"},
        },
        "[string, boolean]": {
            "type": "array",
            "prefixItems": [{"type": "string"}, {"type": "boolean"}],
        },
        '"a" | "b"': {"enum": ["a", "b"]},
        "SearchHit": {"$ref": "#/components/schemas/Search_Hit"},
        "unknown": {},
    }
    for expected, schema in cases.items():
        assert type_of(schema) == expected


def test_parameters_of_a_path_are_arguments_and_equal_verbs_get_longer_names() -> None:
    operations = Operations()
    answer: dict[str, Any] = {
        "responses": {"200": {"content": {"application/json": {"schema": {}}}}}
    }
    operations.add("/api/items", "get", {"operationId": "items_api_items_get", **answer})
    path = "/api/collections/{name}/items"
    parameters = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    identifier = "items_api_collections__name__items_get"
    operation = {"operationId": identifier, "parameters": parameters, **answer}
    operations.add(path, "get", operation)
    first, second = operations.methods.values()
    assert "items(options" in first
    assert "(name: string, options" in second
    assert "/api/collections/${encodeURIComponent(name)}/items" in second

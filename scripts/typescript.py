"""Generate the TypeScript client from the OpenAPI document of the service.

python scripts/typescript.py            write clients/js/src/index.ts
python scripts/typescript.py --check    fail if the file is not up to date
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from crossbit import Collection, HashModel
from crossbit.model import Affine
from crossbit.server import ServerConfig, create_app

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "clients" / "js" / "src" / "index.ts"
_SKIPPED_TAGS = {"batch"}  # packed arrays, for the client in Python
_READ_TAGS = {"search"}  # POST that changes nothing
_NAMED = "/api/collections/{collection}/"  # the same routes again; a setting chooses them
_SCALARS = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
Schema = dict[str, Any]


def openapi() -> Schema:
    """Return the document of a service that is writable."""
    model = HashModel({"image": [Affine(np.eye(1), np.zeros(1))]}, 1)
    with (
        tempfile.TemporaryDirectory() as folder,
        Collection.create(Path(folder) / "c", model) as collection,
    ):
        return create_app(collection, ServerConfig(writable=True)).openapi()


def type_of(schema: Schema) -> str:
    """Return a schema as a TypeScript type."""
    if "$ref" in schema:
        return name_of(schema["$ref"].rpartition("/")[2])
    if "const" in schema or "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    options = [type_of(each) for each in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]]
    if options:
        return " | ".join(dict.fromkeys(options))
    match schema.get("type"):
        case "array":
            return _array_type(schema)
        case "object":
            return _object_type(schema)
    if schema.get("format") == "binary":
        return "Body"
    return _SCALARS.get(schema.get("type", ""), "unknown")


def _array_type(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(type_of(each) for each in schema['prefixItems'])}]"
    element = type_of(schema.get("items", {}))
    return f"({element})[]" if " | " in element else f"{element}[]"


def _object_type(schema: Schema) -> str:
    if "properties" in schema:
        return f"{{\n{fields_of(schema)}}}"
    values = schema.get("additionalProperties")
    return f"Record<string, {type_of(values) if isinstance(values, dict) else 'unknown'}>"


def fields_of(schema: Schema) -> str:
    """Return the fields of an object, each with its description."""
    required = set(schema.get("required", ()))
    lines = []
    for name, field in schema["properties"].items():
        if "description" in field:
            lines.append(f"  /** {field['description']} */\n")
        key = name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name)
        lines.append(f"  {key}{'' if name in required else '?'}: {type_of(field)};\n")
    return "".join(lines)


def name_of(title: str) -> str:
    """Return a name of a type; FastAPI separates those of nested models by underscores."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"\W+|_+", title))


def interface(name: str, schema: Schema) -> str:
    """Return the declaration of a type."""
    text = schema.get("description", "").splitlines()
    comment = f"/** {text[0]} */\n" if text else ""
    if "properties" not in schema:
        return f"{comment}export type {name_of(name)} = {type_of(schema)};\n"
    return f"{comment}export interface {name_of(name)} {{\n{fields_of(schema)}}}\n"


class Operations:
    """Collects the types and methods of all operations."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.methods: dict[str, str] = {}

    def add(self, path: str, method: str, operation: Schema) -> None:
        """Add one operation."""
        name = self._name(path, method, operation)
        arguments = [
            f"{_camel(each['name'])}: string"
            for each in operation.get("parameters", ())
            if each["in"] == "path"
        ]
        body = self._body(operation)
        if body:
            arguments.append(f"body: {body}")
        query = self._query(name, operation)
        if query:
            is_required = any(
                each["in"] == "query" and each.get("required") for each in operation["parameters"]
            )
            arguments.append(f"query: {query}{'' if is_required else ' = {}'}")
        arguments.append("options: CallOptions = {}")
        target = re.sub(r"{(\w+)}", lambda m: f"${{encodeURIComponent({_camel(m[1])})}}", path)
        request = [
            "method: " + json.dumps(method.upper()),
            f"path: `{target}`",
            f"repeatable: {json.dumps(_is_read(method, operation))}",
        ]
        request += ["body"] * bool(body) + ["query"] * bool(query)
        result, call = _answer(operation, f"{{ {', '.join(request)} }}")
        summary = operation.get("description", "").splitlines() or [f"{method.upper()} {path}"]
        self.methods[name] = (
            f"\n  /** {summary[0]} */\n"
            f"  {name}({', '.join(arguments)}): {result} {{\n    return {call};\n  }}\n"
        )

    def _name(self, path: str, method: str, operation: Schema) -> str:
        """Return the name of the route's function; of equal ones, the later with its path."""
        suffix = re.sub(r"\W", "_", path) + f"_{method}"  # FastAPI appends it
        base = operation["operationId"].removesuffix(suffix)
        name = _camel(base)
        if name in self.methods:
            words = [word for word in path.split("/") if word not in ("api", base)]
            name = _camel("_".join([base, *(word for word in words if word[:1] != "{")]))
        if name in self.methods:
            raise ValueError(f"{method.upper()} {path}: {name!r} is taken; rename its function")
        return name

    def _body(self, operation: Schema) -> str:
        content = operation.get("requestBody", {}).get("content", {})
        if not content:
            return ""
        if "multipart/form-data" in content:
            return "FormData"
        schema = content.get("application/json", {}).get("schema")
        if schema is None:
            return "Body"
        if "title" not in schema:
            return type_of(schema)
        name = name_of(schema["title"])
        self.types[name] = interface(name, schema)
        return name

    def _query(self, method: str, operation: Schema) -> str:
        parameters = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
        if not parameters:
            return ""
        name = f"{method[0].upper()}{method[1:]}Query"
        properties = {
            each["name"]: {**each["schema"], "description": each.get("description", each["name"])}
            for each in parameters
        }
        required = [each["name"] for each in parameters if each.get("required")]
        self.types[name] = interface(name, {"properties": properties, "required": required})
        return name


def _is_read(method: str, operation: Schema) -> bool:
    """Whether the service may receive a request twice."""
    return method == "get" or bool(_READ_TAGS & set(operation.get("tags", ())))


def _answer(operation: Schema, request: str) -> tuple[str, str]:
    """Type that a method returns, and the call that it makes."""
    content = operation["responses"]["200"].get("content", {})
    if not content or "application/x-ndjson" in content:
        return "AsyncGenerator<string>", f"this.lines({request}, options)"
    if "application/json" in content:
        answer = type_of(content["application/json"].get("schema", {}))
        kind = "json"
    else:
        is_text = "text/plain" in content
        answer = "string" if is_text else "Blob"
        kind = "text" if is_text else "blob"
    return f"Promise<{answer}>", f'this.call<{answer}>({request}, "{kind}", options)'


def _camel(name: str) -> str:
    first, *rest = [part for part in name.split("_") if part]
    return first + "".join(part.capitalize() for part in rest)


def generate() -> str:
    """Return the source of the client."""
    document = openapi()
    operations = Operations()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if not (path.startswith(_NAMED) or _SKIPPED_TAGS & set(operation.get("tags", ()))):
                operations.add(path, method, operation)
    types = {
        name_of(name): interface(name, schema)
        for name, schema in document["components"]["schemas"].items()
        if not name.endswith("ValidationError")
    }
    types |= operations.types
    declarations = "\n".join(types[name] for name in sorted(types))
    return (
        "// Generated by scripts/typescript.py from the OpenAPI document; do not edit.\n\n"
        'import { Transport, type Body, type CallOptions } from "./runtime.js";\n\n'
        "export { CrossbitError, type Body, type CallOptions, type Settings }"
        ' from "./runtime.js";\n'
        f"\n{declarations}\n"
        "/** Client of a service: one method per endpoint. */\n"
        f"export class Crossbit extends Transport {{{''.join(operations.methods.values())}}}\n"
    )


def main() -> None:
    """Write or check the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file is not up to date")
    source = generate()
    if not parser.parse_args().check:
        OUTPUT.write_text(source)
    elif OUTPUT.read_text() != source:
        sys.exit(f"{OUTPUT}: not up to date; run python scripts/typescript.py")


if __name__ == "__main__":
    main()

"""What the codes of a run depend on, as short checksums; a run is reused only if all are equal."""

import ast
import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol
from crossbit_experiments.protocols import ClassCodesProtocol

# Packages whose code decides what is learned; others move data or report progress.
_DECIDING = ("hashers", "inputs", "neural", "linalg", "model", "data")


def checksum(value: object) -> str:
    """Return a short checksum of plain JSON.

    Example:
        >>> checksum({"a": 1, "b": (2, 3)}) == checksum({"b": [2, 3], "a": 1})
        True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def data_checksum(data: Dataset) -> str:
    """Return a checksum of all views, labels and splits."""
    digest = hashlib.sha256()

    def add(name: str, array: Any) -> None:  # noqa: ANN401 - any array
        array = np.ascontiguousarray(array)
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(memoryview(array).cast("B") if array.size else b"")

    for name, view in data.views.items():
        add(name, view)
    for name, labels in data.labels_by_modality().items():
        add(f"labels {name}", labels)
    for split, rows in data.splits.items():
        for name, own in rows.items() if isinstance(rows, Mapping) else [("", rows)]:
            add(f"split {split} {name}", own)
    return digest.hexdigest()[:12]


def protocol_checksum(protocol: Protocol) -> str:
    """Return a checksum of the protocol without its note."""
    values = protocol.to_dict()
    # The name of this field and its values are those in the fingerprints of stored runs.
    has_class_codes = isinstance(protocol, ClassCodesProtocol)
    values["base_codes"] = "learned" if has_class_codes else "hashed"
    return checksum({name: values[name] for name in values if name not in ("note", "measures")})


def function_checksum(function: Callable[..., Any] | None) -> str:
    """Return a checksum of a function's name, the arguments bound to it, and its module's code."""
    bound: list[Any] = []
    while isinstance(function, partial):
        bound.append([list(function.args), function.keywords])
        function = function.func
    if function is None:
        return checksum(None)
    module = function.__module__
    return checksum([module, getattr(function, "__qualname__", ""), bound, code_version(module)])


@cache
def code_version(module: str) -> str:
    """Return a checksum of a module and of the modules it imports that decide what is learned.

    Comments, docstrings and layout do not count. Imports inside functions do.
    """
    versions: dict[str, str] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        if name in versions or (path := _source(name)) is None:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        versions[name] = _normalized(tree)
        todo += [other for other in _imports(tree) if other.split(".")[1:2][0] in _DECIDING]
    return checksum(versions)


def _source(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


def _normalized(tree: ast.Module) -> str:
    """Checksum of the syntax tree without docstrings."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            del body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules of crossbit that are imported; of a package, the module that defines the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crossbit."):
            for alias in node.names:
                yield _definer(str(node.module), alias.name)


@cache
def _definer(module: str, name: str) -> str:
    path = _source(module)
    if path is None or path.name != "__init__.py":
        return module
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return _definer(str(node.module), name)
    return f"{module}.{name}"


def fit_fingerprint(
    *,
    configuration: Mapping[str, Any],
    hasher: str,
    supervision: Callable[..., Any],
    data: str,
    protocol: Protocol,
) -> dict[str, str]:
    """Return the fingerprint of a run that fits a hasher.

    Args:
        configuration: All fields of the method, including code length, seed and candidates.
        hasher: Module that defines the method.
        supervision: Function that makes the arguments of `fit`.
        data: Checksum of the data set.
        protocol: Queries and base.
    """
    return {
        "settings": checksum(configuration),
        "supervision": function_checksum(supervision),
        "data": data,
        "protocol": protocol_checksum(protocol),
        "code": code_version(hasher),
    }

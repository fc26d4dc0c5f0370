"""Print the size and shape of the package, and the modules that one call passes through.

python scripts/stats.py            figures of src/crossbit, as JSON
python scripts/stats.py --walks    also the modules that fits and an HTTP query pass
"""

import argparse
import ast
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "crossbit"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def modules(package: Path) -> dict[str, Path]:
    """Dotted name → file of every module of a package, ``__init__`` files included."""
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def public_names(path: Path) -> list[str]:
    """Module-level classes and functions without a leading underscore."""
    body = ast.parse(path.read_text()).body
    return [n.name for n in body if isinstance(n, _DEFINITIONS) and not n.name.startswith("_")]


def packed_assignments(path: Path) -> Iterator[tuple[int, bool]]:
    """Line of every assignment, and whether it packs tuples: ``a, b = x, y``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            # A swap or a rotation (a, b = b, a + b) belongs on one line; unrelated values do not.
            packed = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            yield node.lineno, packed


def single_importers(names: dict[str, Path]) -> list[str]:
    """Modules that exactly one other module imports, without commands and ``__init__`` files."""
    importers: dict[str, set[str]] = {}
    for name, path in names.items():
        if path.name == "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            for imported in _imported(node):
                importers.setdefault(imported, set()).add(name)
    return [
        name
        for name, path in names.items()
        if path.name != "__init__.py"
        and ".cli." not in name
        and len(importers.get(name, set()) - {name}) == 1
    ]


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def figures(package: Path = PACKAGE, tests: Path = ROOT / "tests") -> dict[str, Any]:
    """Return the figures of a package by name."""
    names = modules(package)
    plain = {name: path for name, path in names.items() if path.name != "__init__.py"}
    sizes = sorted(len(path.read_text().splitlines()) for path in names.values())
    lines = sum(sizes)
    assignments = [packed for path in names.values() for _, packed in packed_assignments(path)]
    single = single_importers(names)
    test_lines = sum(len(path.read_text().splitlines()) for path in tests.rglob("*.py"))
    return {
        "modules": len(plain),
        "lines": lines,
        "lines per module (median, p90, max)": [
            sizes[len(sizes) // 2],
            sizes[int(0.9 * len(sizes))],
            sizes[-1],
        ],
        "module-level public names": sum(len(public_names(path)) for path in names.values()),
        "modules with a single importer, %": round(100 * len(single) / len(plain), 1),
        "tuple-packed assignments, %": round(100 * sum(assignments) / len(assignments), 1),
        "lines over 100 columns": sum(
            len(line) > 100 for path in names.values() for line in path.read_text().splitlines()
        ),
        "tests : source": round(test_lines / lines, 2),
        "single importers": single,
    }


class _Walk:
    """Records the modules of crossbit whose functions run, in the order in which they are reached.

    Threads are followed if they start after `install`; only what runs inside `record` counts.
    """

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        self._recording = False

    def install(self) -> None:
        threading.setprofile(self._note)

    @contextmanager
    def record(self) -> Iterator[None]:
        self._recording = True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            self._recording = False
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if self._recording and event == "call" and name.startswith("crossbit."):
            self.modules.setdefault(name)


def training_walk(*, printed: bool) -> list[str]:
    """Modules that a fit with labels passes: of the paper's MM-NN as printed, or of the default.

    The first, unrecorded call imports everything.
    """
    from crossbit import MMNN, AutoHash
    from crossbit.data import synthetic

    train = synthetic(n=300, classes=4).part("train")
    hasher = MMNN.as_printed("wiki", steps=5) if printed else AutoHash(n_bits=16)
    hasher.fit(train.views, labels=train.labels)
    walk = _Walk()
    with walk.record():
        hasher.fit(train.views, labels=train.labels)
    return list(walk.modules)


def query_walk() -> list[str]:
    """Modules that an HTTP query by words passes, from the application to the index."""
    import numpy as np
    from starlette.testclient import TestClient

    from crossbit import Collection, HashModel
    from crossbit.features import BagOfTags
    from crossbit.model import Affine
    from crossbit.server import create_app

    tags = [["red", "round"], ["blue", "round"], ["red", "square"]]
    extractor = BagOfTags.fit(tags)
    rows = extractor.extract(tags)
    encoder = [Affine(np.eye(rows.shape[1]), np.full(rows.shape[1], -0.1))]
    model = HashModel({"text": encoder}, rows.shape[1], recipes={"text": extractor.recipe()})
    walk = _Walk()
    walk.install()
    with (
        tempfile.TemporaryDirectory() as folder,
        Collection.create(Path(folder) / "items", model) as collection,
    ):
        collection.upsert(range(len(tags)), {"text": tags}, [{"tags": words} for words in tags])
        with TestClient(create_app(collection), base_url="http://localhost") as client:
            query = {"text": "red", "k": 2}
            client.post("/api/search", json=query).raise_for_status()
            with walk.record():
                client.post("/api/search", json=query).raise_for_status()
    return list(walk.modules)


def main() -> None:
    """Print the figures, and with ``--walks`` the walks, as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--walks", action="store_true", help="also trace fits and an HTTP query")
    result = figures()
    if parser.parse_args().walks:
        walks = {
            "printed fit": training_walk(printed=True),
            "default fit": training_walk(printed=False),
            "query": query_walk(),
        }
        for title, modules_passed in walks.items():
            result[f"modules that a {title} passes"] = len(modules_passed)
            result[f"walk of a {title}"] = modules_passed
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

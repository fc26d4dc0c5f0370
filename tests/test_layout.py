"""Rules of the layout that ruff and import-linter cannot check; `make stats` prints the figures."""

from pathlib import Path

import pytest

from scripts.stats import (
    EXPERIMENTS,
    MAX_LINES,
    PACKAGE,
    figures,
    modules,
    packed_assignments,
)

PACKAGES = pytest.mark.parametrize("package", [PACKAGE, EXPERIMENTS], ids=lambda path: path.name)


@PACKAGES
def test_no_module_is_too_long(package: Path) -> None:
    sizes = {name: len(path.read_text().splitlines()) for name, path in modules(package).items()}
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


@PACKAGES
def test_unrelated_values_are_assigned_on_separate_lines(package: Path) -> None:
    assignments = [
        packed for path in modules(package).values() for packed in packed_assignments(path)
    ]
    packed = [line for line, is_packed in assignments if is_packed]
    assert len(packed) <= 0.015 * len(assignments)


def test_the_package_keeps_its_shape() -> None:
    shape = figures()
    methods = [path for path in (PACKAGE / "hashers").glob("[a-z]*.py") if path.stem != "base"]
    assert shape["modules"] - len(methods) <= 194  # besides one module per method
    assert shape["module-level public names"] <= 685
    # The rest are steps of one pipeline that together would exceed the longest module.
    assert shape["modules with a single importer, %"] <= 22
    assert shape["tests : source"] >= 0.65


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for package in (PACKAGE, EXPERIMENTS):
        for name, path in modules(package).items():
            for line in path.read_text().splitlines():
                if line.startswith("class "):
                    class_name = line[6:].split("(")[0].split(":")[0].lstrip("_")
                    places.setdefault(class_name, []).append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}

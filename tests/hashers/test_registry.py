"""Methods of other packages, registered through entry points, and the types of their fields."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from crossbit import HASHERS, LSH, DataError, plugins
from crossbit.hashers import _register_plugins
from crossbit.plugins import HASHERS as PLUGINS

if TYPE_CHECKING:
    from torch import nn


class ThirdParty(LSH):
    """A method of another package."""


@dataclass(kw_only=True)
class Typed(LSH):
    """A method with fields of many types."""

    weight: float | Literal["auto"] | dict[str, float] = "auto"
    widths: tuple[int, ...] | dict[str, tuple[int, ...]] = ()
    counts: tuple[int, int] | None = None
    names: list[str] | None = None
    text: "str" = ""
    networks: "dict[str, nn.Module] | None" = None


HASHERS.pop("thirdparty")  # other tests collect the methods that are registered
HASHERS.pop("typed")


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    before = dict(HASHERS)
    HASHERS.pop("thirdparty", None)
    yield
    HASHERS.clear()
    HASHERS.update(before)
    HASHERS.pop("thirdparty", None)


class _Entry(EntryPoint):
    """An entry point of the package ``acme-hashing``."""

    dist = SimpleNamespace(name="acme-hashing")  # type: ignore[assignment]

    def load(self) -> object:
        loaded = super().load()
        if loaded is ThirdParty:  # as if its module were imported now
            ThirdParty.__init_subclass__()
        return loaded


def install(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    entry = _Entry(name, value, PLUGINS)
    monkeypatch.setattr(plugins, "_all_groups", lambda: {PLUGINS: {name: entry}})


def test_a_method_of_another_package_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "thirdparty", f"{__name__}:ThirdParty")
    _register_plugins()
    assert HASHERS["thirdparty"] is ThirdParty


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("missing", "no_such_package:Method", "it cannot be imported .ModuleNotFoundError"),
        ("number", "math:pi", "expected a subclass of crossbit.Hasher, got 3.14"),
        ("lsh", f"{__name__}:ThirdParty", "a built-in method has this name"),
        (
            "other",
            f"{__name__}:ThirdParty",
            "its class ThirdParty must be declared as 'thirdparty'",
        ),
    ],
)
def test_an_unusable_entry_point_is_ignored_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    install(monkeypatch, name, value)
    with pytest.warns(
        RuntimeWarning, match=f"hasher '{name}' of acme-hashing .* is ignored: {problem}"
    ):
        _register_plugins()
    assert HASHERS["lsh"] is LSH


def test_another_package_never_replaces_a_built_in_method() -> None:
    class Impostor(LSH):
        """Has the name of a built-in method."""

    Impostor.__name__ = "LSH"
    Impostor.__init_subclass__()
    HASHERS.pop("impostor")
    assert HASHERS["lsh"] is LSH


@pytest.mark.parametrize(
    "fields",
    [
        {"weight": 0, "widths": (1, 2), "counts": (3, 4), "names": ("a",), "text": "b"},
        {"weight": np.float32(0.5), "widths": [np.int64(3)], "counts": [1, 2], "names": ["a", "b"]},
        {"weight": {"a": 0.5}, "widths": {"a": [], "b": [2]}, "networks": {"a": object()}},
        {"weight": "auto", "networks": 5},  # the type is known to type checkers only
    ],
)
def test_values_of_the_declared_types_are_accepted(fields: dict[str, Any]) -> None:
    views = {"image": np.eye(4)}
    model = Typed(n_bits=4, **fields).fit(views)
    again = Typed.from_configuration(model.card["fields"])
    if "networks" not in fields:
        assert json.loads(json.dumps(model.card)) == model.card  # plain data
    assert again.fit(views).card == model.card


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("weight", "none", r"a finite number of at least 0, 'auto' or a mapping \{name: a finite"),
        ("weight", {1: 0.5}, "a finite number"),
        ("widths", (1, 0), r"a tuple \(an integer of at least 1, …\) or a mapping"),
        ("widths", {"a": 3}, "a tuple"),
        ("counts", (1, 2, 3), r"a tuple \(an integer of at least 1, an integer of at least 1\) or"),
        ("counts", 3, "a tuple"),
        ("names", "ab", r"a tuple \(text, …\) or None"),
        ("text", 3, "text"),
    ],
)
def test_other_values_are_refused(field: str, value: object, expected: str) -> None:
    with pytest.raises(DataError, match=f"typed: {field} must be {expected}.*, got ") as error:
        Typed.from_configuration({field: value}).fit({"image": np.eye(4)})
    assert str(error.value).endswith(repr(value))

"""Methods of other packages, registered through entry points."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from crossbit import HASHERS, LSH
from crossbit import hashers as package
from crossbit.hashers import _register_entry_points


class ThirdParty(LSH):
    """A method of another package."""


HASHERS.pop("thirdparty")  # other tests collect the methods that are registered


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
    entry = _Entry(name, value, "crossbit.hashers")

    def entry_points(group: str) -> list[EntryPoint]:
        assert group == "crossbit.hashers"
        return [entry]

    monkeypatch.setattr(package, "entry_points", entry_points)


def test_a_method_of_another_package_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "thirdparty", f"{__name__}:ThirdParty")
    _register_entry_points()
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
        RuntimeWarning, match=f"hasher '{name}' .* of acme-hashing is ignored: {problem}"
    ):
        _register_entry_points()
    assert HASHERS["lsh"] is LSH


def test_another_package_never_replaces_a_built_in_method() -> None:
    class Impostor(LSH):
        """Has the name of a built-in method."""

    Impostor.__name__ = "LSH"
    Impostor.__init_subclass__()
    HASHERS.pop("impostor")
    assert HASHERS["lsh"] is LSH

"""Plug-ins: what other distributions add to Crossbit through entry points.

| group | name → object |
| --- | --- |
| `HASHERS` | name of a method → subclass of `Hasher` |
| `EXTRACTORS` | kind of recipe → subclass of `Extractor` |
| `STORES` | scheme of URIs → class with the methods of `Store` |
| `COMMANDS` | command of ``crossbit`` → Typer app |

What Crossbit brings itself takes precedence over a plug-in of the same name. ``examples/plugin``
is a distribution with plug-ins.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from crossbit.errors import DataError

HASHERS = "crossbit.hashers"
EXTRACTORS = "crossbit.extractors"
STORES = "crossbit.stores"
COMMANDS = "crossbit.commands"
GROUPS = {HASHERS: "hasher", EXTRACTORS: "extractor", STORES: "store", COMMANDS: "command"}
"""Entry-point group → what its entries are."""


@cache
def _all_groups() -> Mapping[str, Mapping[str, EntryPoint]]:
    """Read the metadata of all installed distributions once: it takes some 40 ms."""
    installed = entry_points()
    return {group: {e.name: e for e in installed.select(group=group)} for group in GROUPS}


def find_plugins(group: str) -> Mapping[str, EntryPoint]:
    """Return the plug-ins of a group by name; none is imported."""
    return _all_groups()[group]


def describe_plugin(entry: EntryPoint) -> str:
    """Return what a plug-in is and where it comes from, for messages.

    Example:
        >>> describe_plugin(EntryPoint("loudness", "loud:Loudness", EXTRACTORS))
        "extractor 'loudness' (loud:Loudness)"
    """
    package = "" if entry.dist is None else f" of {entry.dist.name}"
    return f"{GROUPS[entry.group]} {entry.name!r}{package} ({entry.value})"


def load_plugin(entry: EntryPoint) -> Any:  # noqa: ANN401 - what a plug-in registers
    """Import a plug-in.

    Raises:
        DataError: The import fails; the message names the distribution.
    """
    try:
        return entry.load()
    except Exception as error:  # importing a package can raise anything
        raise DataError(
            f"{describe_plugin(entry)} cannot be imported ({type(error).__name__}: {error});"
            " repair or upgrade that package"
        ) from error

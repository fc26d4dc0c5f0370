"""The methods, one module each; `HASHERS` maps names to classes.

Every module of this package without a leading underscore defines a method and is imported here.
Other packages add methods as plug-ins.
"""

import warnings
from importlib import import_module
from importlib.metadata import EntryPoint
from pkgutil import iter_modules

from crossbit.errors import DataError
from crossbit.hashers._extend import extend
from crossbit.hashers.base import HASHERS, Hasher, Run
from crossbit.plugins import HASHERS as PLUGINS
from crossbit.plugins import describe_plugin, find_plugins, load_plugin

__all__ = ["HASHERS", "Hasher", "Run", "extend"]

for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")


def _register_plugins() -> None:
    """Import the methods that installed packages declare; called once, on import.

    An entry that cannot be used is skipped with a warning, because one broken package must not
    disable all methods.
    """
    for entry in find_plugins(PLUGINS).values():
        if problem := _problem(entry):
            message = f"{describe_plugin(entry)} is ignored: {problem}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def _problem(entry: EntryPoint) -> str | None:
    """Import the class of an entry point; return why it cannot be used, or None."""
    if entry.name in HASHERS and HASHERS[entry.name].__module__.startswith(f"{__name__}."):
        return "a built-in method has this name"
    try:
        hasher = load_plugin(entry)
    except DataError as error:
        return f"it cannot be imported ({error.__cause__!r})"
    if not (isinstance(hasher, type) and issubclass(hasher, Hasher)):
        return f"expected a subclass of crossbit.Hasher, got {hasher!r}"
    if hasher.name() != entry.name:
        return f"its class {hasher.__name__} must be declared as {hasher.name()!r}"
    return None


_register_plugins()

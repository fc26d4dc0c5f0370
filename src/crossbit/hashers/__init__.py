"""The methods, one module each; `HASHERS` maps names to classes.

Every module of this package without a leading underscore defines a method and is imported here.
Other packages add methods through the entry-point group ``crossbit.hashers`` (name → class).
"""

import warnings
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules

from crossbit.hashers._extend import extend
from crossbit.hashers.base import HASHERS, Hasher, Run

__all__ = ["HASHERS", "Hasher", "Run", "extend"]

for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")


def _register_entry_points() -> None:
    """Import the methods that installed packages declare; called once, on import.

    An entry that cannot be used is skipped with a warning, because one broken package must not
    disable all methods.
    """
    for entry in entry_points(group=__name__):
        if problem := _problem(entry):
            package = entry.dist.name if entry.dist is not None else "an unknown package"
            warnings.warn(
                f"hasher {entry.name!r} ({entry.value}) of {package} is ignored: {problem}",
                RuntimeWarning,
                stacklevel=2,
            )


def _problem(entry: EntryPoint) -> str | None:
    """Import the class of an entry point; return why it cannot be used, or None."""
    if entry.name in HASHERS and HASHERS[entry.name].__module__.startswith(f"{__name__}."):
        return "a built-in method has this name"
    try:
        hasher = entry.load()
    except Exception as error:  # importing a package can raise anything
        return f"it cannot be imported ({type(error).__name__}: {error})"
    if not (isinstance(hasher, type) and issubclass(hasher, Hasher)):
        return f"expected a subclass of crossbit.Hasher, got {hasher!r}"
    if hasher.name() != entry.name:
        return f"its class {hasher.__name__} must be declared as {hasher.name()!r}"
    return None


_register_entry_points()

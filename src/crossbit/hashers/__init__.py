"""The methods: one module each, found by discovery; `HASHERS` maps names to classes."""

from importlib import import_module
from pkgutil import iter_modules

from crossbit.hashers.base import HASHERS, Hasher

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["HASHERS", "Hasher"]

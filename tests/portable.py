"""Plug-in that takes away what only Linux or POSIX systems have: pytest -p tests.portable.

The file functions then do what they do on Windows: no ``renameat2``, no ``fchmod``, no fsync of
folders. `make portable` runs the tests of files with it.
"""

import os
from types import ModuleType

from crossbit._io import files, folders


def _windows_os() -> ModuleType:
    """Return a copy of the module ``os`` with the name of Windows, and without what it lacks."""
    shim = ModuleType("os")
    names = {name: value for name, value in vars(os).items() if name != "fchmod"}
    vars(shim).update(names, name="nt")
    return shim


vars(files).update(os=_windows_os(), _renameat2=None)
vars(folders).update(os=_windows_os())

"""Public surface of the package: names, lazy imports, errors."""

import importlib
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import crossbit
from crossbit import DataError, Matches, MissingExtraError
from crossbit._install import installation
from crossbit.errors import BackendError, CrossbitError, FormatError


def test_every_public_name_can_be_imported() -> None:
    for name in crossbit.__all__:
        assert getattr(crossbit, name) is not None
    assert set(crossbit.__all__) <= set(dir(crossbit))
    assert crossbit.__version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = crossbit.nonsense


@pytest.mark.parametrize(
    "statement", ["import crossbit", "import crossbit.hashers; crossbit.hashers.HASHERS"]
)
def test_importing_crossbit_imports_no_heavy_library(statement: str) -> None:
    heavy = [
        "torch",
        "scipy",
        "sklearn",
        "typer",
        "rich",
        "matplotlib",
        "onnxruntime",
        "pyarrow",
        "h5py",
    ]
    code = f"import sys; {statement}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_has_a_docstring() -> None:
    for module in pkgutil.walk_packages(crossbit.__path__, "crossbit."):
        if "._" not in module.name:
            assert importlib.import_module(module.name).__doc__, module.name


def test_errors_are_a_tree() -> None:
    assert issubclass(DataError, ValueError)
    assert issubclass(MissingExtraError, ImportError)
    for error in (DataError, MissingExtraError, FormatError, BackendError):
        assert issubclass(error, CrossbitError)


def test_a_missing_extra_names_the_remedy() -> None:
    message = str(MissingExtraError("torch"))
    assert message.startswith("'torch' is not installed. Install it with: ")
    assert message.endswith(installation().command("networks"))


def test_matches_need_one_shape() -> None:
    ids, distances = np.zeros((2, 3), np.int64), np.zeros((2, 3), np.int32)
    assert Matches(ids, distances) == Matches(ids.copy(), distances.copy())
    assert Matches(ids, distances) != Matches(ids + 1, distances)
    assert Matches(ids, distances) != "matches"
    assert len(Matches(ids, distances)) == 2
    with pytest.raises(DataError, match=r"ids \(2, 3\) and distances \(2, 2\) must have the same"):
        Matches(ids, distances[:, :2])

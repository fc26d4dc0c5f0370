"""Hash things of different kinds into one space of short binary codes, and search anything with anything.

The names below load on first use, so that ``import crossbit`` is quick and never imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossbit.codes import Codes, Matches, hamming
    from crossbit.collection import Collection, Hit, Item
    from crossbit.data import Dataset, Pairs, Views, pairs_from_labels
    from crossbit.errors import (
        BackendError,
        CrossbitError,
        DataError,
        FormatError,
        MissingExtraError,
    )
    from crossbit.hashers import HASHERS, Hasher
    from crossbit.hashers.ccaitq import CCAITQ
    from crossbit.hashers.classridge import ClassRidge
    from crossbit.hashers.cmnn import CMNN
    from crossbit.hashers.cmssh import CMSSH
    from crossbit.hashers.diffhash import DiffHash
    from crossbit.hashers.lsh import LSH
    from crossbit.hashers.mmnn import MMNN
    from crossbit.hashers.posteriorlsh import PosteriorLSH
    from crossbit.hashers.rankedcca import RankedCCA
    from crossbit.hashers.spectralhashing import SpectralHashing
    from crossbit.index import HammingIndex
    from crossbit.metrics import evaluate, mean_average_precision
    from crossbit.model import HashModel, Recipe

_HOMES = {
    "crossbit.codes": ["Codes", "Matches", "hamming"],
    "crossbit.data": ["Dataset", "Pairs", "Views", "pairs_from_labels"],
    "crossbit.model": ["HashModel", "Recipe"],
    "crossbit.metrics": ["evaluate", "mean_average_precision"],
    "crossbit.hashers": ["HASHERS", "Hasher"],
    "crossbit.hashers.ccaitq": ["CCAITQ"],
    "crossbit.hashers.cmnn": ["CMNN"],
    "crossbit.hashers.cmssh": ["CMSSH"],
    "crossbit.hashers.diffhash": ["DiffHash"],
    "crossbit.hashers.mmnn": ["MMNN"],
    "crossbit.hashers.lsh": ["LSH"],
    "crossbit.hashers.classridge": ["ClassRidge"],
    "crossbit.hashers.posteriorlsh": ["PosteriorLSH"],
    "crossbit.hashers.rankedcca": ["RankedCCA"],
    "crossbit.hashers.spectralhashing": ["SpectralHashing"],
    "crossbit.index": ["HammingIndex"],
    "crossbit.collection": ["Collection", "Hit", "Item"],
    "crossbit.errors": [
        "CrossbitError",
        "DataError",
        "FormatError",
        "BackendError",
        "MissingExtraError",
    ],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Codes",
    "hamming",
    "Matches",
    "HammingIndex",
    "Collection",
    "Hit",
    "Item",
    "Dataset",
    "Pairs",
    "Views",
    "pairs_from_labels",
    "HashModel",
    "Recipe",
    "evaluate",
    "mean_average_precision",
    "HASHERS",
    "Hasher",
    "MMNN",
    "CMNN",
    "CMSSH",
    "DiffHash",
    "CCAITQ",
    "RankedCCA",
    "ClassRidge",
    "PosteriorLSH",
    "SpectralHashing",
    "LSH",
    "CrossbitError",
    "DataError",
    "FormatError",
    "BackendError",
    "MissingExtraError",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Import the module that is home to a public name."""
    if name == "__version__":
        from importlib.metadata import version

        return version("crossbit")
    if name not in _HOME:
        raise AttributeError(f"module 'crossbit' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return [*__all__, "__version__"]

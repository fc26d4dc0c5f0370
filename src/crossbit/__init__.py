"""Cross-modal hashing: short binary codes shared by images, text and other modalities.

Public names are imported on first use, so that ``import crossbit`` is fast and never imports torch.
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
    from crossbit.hashers import HASHERS, Hasher, extend
    from crossbit.hashers.auto import AutoHash as AutoHash
    from crossbit.hashers.auto import fit as fit
    from crossbit.hashers.batch import BATCH as BATCH
    from crossbit.hashers.ccaitq import CCAITQ as CCAITQ
    from crossbit.hashers.classridge import ClassRidge as ClassRidge
    from crossbit.hashers.cmfh import CMFH as CMFH
    from crossbit.hashers.cmnn import CMNN as CMNN
    from crossbit.hashers.cmssh import CMSSH as CMSSH
    from crossbit.hashers.dch import DCH as DCH
    from crossbit.hashers.diffhash import DiffHash as DiffHash
    from crossbit.hashers.djsrh import DJSRH as DJSRH
    from crossbit.hashers.itq import ITQ as ITQ
    from crossbit.hashers.lsh import LSH as LSH
    from crossbit.hashers.mmnn import MMNN as MMNN
    from crossbit.hashers.rankedcca import RankedCCA as RankedCCA
    from crossbit.hashers.rankeditq import RankedITQ as RankedITQ
    from crossbit.hashers.scmseq import SCMSeq as SCMSeq
    from crossbit.hashers.scratch import SCRATCH as SCRATCH
    from crossbit.hashers.seph import SePH as SePH
    from crossbit.hashers.softap import SoftAP as SoftAP
    from crossbit.hashers.spectralhashing import SpectralHashing as SpectralHashing
    from crossbit.index import HammingIndex
    from crossbit.metrics import evaluate, mean_average_precision
    from crossbit.model import HashModel, Recipe

_HOMES = {
    "crossbit.codes": ["Codes", "Matches", "hamming"],
    "crossbit.data": ["Dataset", "Pairs", "Views", "pairs_from_labels"],
    "crossbit.model": ["HashModel", "Recipe"],
    "crossbit.metrics": ["evaluate", "mean_average_precision"],
    "crossbit.hashers": ["HASHERS", "Hasher", "extend"],
    "crossbit.hashers.auto": ["fit"],
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
    "fit",
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
    "extend",
    "CrossbitError",
    "DataError",
    "FormatError",
    "BackendError",
    "MissingExtraError",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    """Import the module that defines a public name."""
    if name == "__version__":
        from importlib.metadata import version

        return version("crossbit")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    # Submodules are looked up here, too; only capitalized names can be methods.
    if name[:1].isupper() and (hasher := _hashers().get(name)):
        return hasher
    raise AttributeError(f"module 'crossbit' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return [*__all__, "__version__", *_hashers()]


def _hashers() -> "dict[str, type[Hasher]]":
    """Class name → class of every method."""
    from crossbit.hashers import HASHERS

    return {hasher.__name__: hasher for hasher in HASHERS.values()}

"""From a place that a caller names to the store that is there: a folder, or an address of Milvus."""

from os import PathLike
from pathlib import Path

from crossbit.collection import milvus
from crossbit.collection.local import LocalStore
from crossbit.collection.store import Store
from crossbit.errors import DataError
from crossbit.model import HashModel


def _folder(where: object) -> Path:
    """The folder that a caller means."""
    if not isinstance(where, str | PathLike):
        raise DataError(
            f"a collection is a folder or an address such as milvus://host:19530/name, got {where!r}"
        )
    return Path(where)


def is_there(where: str | PathLike[str], *, timeout: float) -> bool:
    """Whether there is a store."""
    if milvus.is_address(where):
        return milvus.MilvusStore.exists(milvus.parse(str(where)), timeout=timeout)
    return LocalStore.exists(_folder(where))


def create_store(
    where: str | PathLike[str], model: HashModel, *, keep: str | None, timeout: float
) -> Store:
    """Make an empty store."""
    if not milvus.is_address(where):
        return LocalStore.create(_folder(where), model, keep=keep, timeout=timeout)
    address = milvus.parse(str(where))
    if keep is not None:
        raise DataError(
            f"{address}: a Milvus collection keeps no features; leave keep_features out"
        )
    return milvus.MilvusStore.create(address, model, timeout=timeout)


def open_store(where: str | PathLike[str], model: HashModel | None, *, timeout: float) -> Store:
    """Come back to a store."""
    if milvus.is_address(where):
        address = milvus.parse(str(where))
        if model is None:
            raise DataError(
                f"{address}: the server keeps the fingerprint of the model, not the model itself; open it with"
                " Collection.open(address, model), or --model on the command line"
            )
        return milvus.MilvusStore(address, model, timeout=timeout)
    store = LocalStore(_folder(where), timeout=timeout)
    if model is not None and (kept := store.model().fingerprint()) != model.fingerprint():
        store.close()
        raise DataError(
            f"{where} holds codes of the model {kept[:16]}, not of {model.fingerprint()[:16]}, which was given; leave"
            " it out, the folder has its model"
        )
    return store

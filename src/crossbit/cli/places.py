"""Where a collection is, on the command line: a folder, or an address of Milvus and the model that goes with it."""

import hashlib
import os
from pathlib import Path
from typing import Annotated

import typer

from crossbit.collection import Collection
from crossbit.collection.milvus import is_address, parse
from crossbit.model import HashModel

Place = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION",
        help="The folder of a collection, or its address: milvus://host:port/name.",
    ),
]
OwnModel = Annotated[
    Path | None,
    typer.Option(
        "--model", "-M", help="Of a collection on Milvus, which keeps none: its model folder."
    ),
]


def opened(collection: str, model: Path | None = None) -> Collection:
    """Open a collection."""
    return Collection.open(collection, None if model is None else HashModel.load(model))


def shown(collection: str) -> str:
    """The name of a place in messages: without a password."""
    return str(parse(collection)) if is_address(collection) else collection


def notes(collection: str) -> Path:
    """A folder for what a command notes about a collection: the collection's own, or else one of the user's."""
    if not is_address(collection):
        return Path(collection)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "crossbit" / hashlib.sha256(shown(collection).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder

"""``crossbit copy``: a collection from a folder to a server, or back."""

from typing import Annotated

import typer

from crossbit.cli import show
from crossbit.cli.places import OwnModel, opened, shown
from crossbit.collection import Collection
from crossbit.collection.copying import copy as copy_items
from crossbit.collection.copying import verify


def copy(
    source: Annotated[
        str,
        typer.Argument(metavar="FROM", help="A folder, or an address: milvus://host:port/name."),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="Another one; it is made if it is not there.")
    ],
    model: OwnModel = None,
) -> None:
    """Copy all items of a collection into another, from a folder to a Milvus server or back, and compare both.

    Given again after an interruption it goes on where it was: items that are there as they should be are passed over.
    In the end both are read once more; counts and checksums of ids, payloads and codes must agree.

    For example:

      crossbit copy photos milvus://root:secret@db.example.org:19530/photos
      crossbit copy milvus://db.example.org/photos photos-again --model photos-model
    """
    with opened(source, model) as here, _made(target, here) as there:
        with show.counting("copying", len(here)) as done:
            written = copy_items(here, there, done)
        with show.counting("comparing", len(here) + len(there)) as done:
            found = verify(here, there, done)
        show.say(f"{written:,} items copied; both hold {found}")


def _made(target: str, source: Collection) -> Collection:
    """The collection to copy into."""
    if Collection.exists(target):
        return Collection.open(target, source.model)
    show.say(f"making {shown(target)}")
    return Collection.create(target, source.model)

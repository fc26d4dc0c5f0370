"""Items that clients send: their ids in URLs and files, and their rows, texts and files."""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from crossbit._validation import check_known
from crossbit.collection.collection import Collection
from crossbit.collection.encoder import Inputs
from crossbit.collection.types import Id
from crossbit.errors import DataError
from crossbit.features.extractor import RawInput
from crossbit.server.bodies import ITEMS_LIMITS, FormPart, parse_json
from crossbit.server.schemas import UpsertRequest

_ITEMS = "items"  # the part of an upload that has items as JSON
_TEXT = "text"  # the kind of input that is no file


def key_to_id(key: str) -> Id:
    """Return the id that a URL contains: JSON of a string or an integer, or else the text itself.

    Example:
        >>> key_to_id("7"), key_to_id('"7"'), key_to_id("cat.png")
        (7, '7', 'cat.png')
    """
    try:
        value = json.loads(key)
    except (ValueError, RecursionError):
        return key
    return value if isinstance(value, str) or type(value) is int else key


def upsert_items(
    collection: Collection,
    items: Sequence[UpsertRequest.NewItem],
    files: Mapping[str, Mapping[Id, RawInput]] | None = None,
) -> int:
    """Add or update items, all of them or none, and return their number.

    Args:
        collection: The collection.
        items: The items.
        files: Modality → id of an item → contents of its file, or a text.
    """
    files = files or {}
    names = {name for item in items for name in (*item.features, *item.texts)}
    if both := sorted(names & files.keys()):
        raise DataError(
            f"{both[0]!r}: some items have files, others features or texts; send them in two"
            " requests"
        )
    views = {name: _view(name, items) for name in sorted(names)}
    views |= {name: [contents.get(item.id) for item in items] for name, contents in files.items()}
    ids, payloads = zip(*((item.id, item.payload) for item in items), strict=True)
    collection.upsert(ids, views, payloads, trusted=False)
    return len(items)


def upload_items(collection: Collection, parts: Sequence[FormPart]) -> int:
    """Add or update items given as files, and as JSON in the part ``items``.

    The name of another part is the modality of its file, and its filename the id of the item.
    """
    items = {item.id: item for item in _uploaded_items(parts)}
    files: dict[str, dict[Id, RawInput]] = {}
    for part in parts:
        if part.name == _ITEMS:
            continue
        modality = check_known(part.name, collection.model.modalities)
        if part.filename is None:
            raise DataError(
                f"part {part.name!r}: expected a filename, which is the id of the item; such as"
                " curl -F image=@cat.jpg"
            )
        id_ = key_to_id(part.filename)
        if id_ in files.setdefault(modality, {}):
            raise DataError(f"item {id_!r} has two files for {modality!r}; send one")
        is_text = collection.accepts(modality, trusted=False) == _TEXT
        files[modality][id_] = part.text() if is_text else part.content
        items.setdefault(id_, UpsertRequest.NewItem(id=id_))
    if not items:
        raise DataError("expected at least one item, got none")
    return upsert_items(collection, list(items.values()), files)


def _uploaded_items(parts: Sequence[FormPart]) -> list[UpsertRequest.NewItem]:
    """Items in the part of that name: the value of ``items`` in an upsert."""
    texts = [part.content for part in parts if part.name == _ITEMS]
    if len(texts) > 1:
        raise DataError(f"expected at most one part {_ITEMS!r}, got {len(texts)}")
    if not texts:
        return []
    return parse_json(UpsertRequest, b'{"items":' + texts[0] + b"}", ITEMS_LIMITS).items


def _view(name: str, items: Sequence[UpsertRequest.NewItem]) -> Inputs:
    """Inputs of one modality, NaN or None where an item has none."""
    texts = [item.texts.get(name) for item in items]
    if any(text is not None for text in texts):
        if any(name in item.features for item in items):
            raise DataError(
                f"{name!r}: some items have features, others texts; send them in two requests"
            )
        return texts
    rows = [item.features.get(name) for item in items]
    width = max(len(row) for row in rows if row is not None)
    for row in rows:
        # An all-NaN row would mean that the item lacks the modality; a client leaves it out.
        if row is not None and (len(row) != width or np.isnan(row).all()):
            actual = len(row) if len(row) != width else "only NaN"
            raise DataError(f"rows of {name!r}: expected {width} numbers, got {actual}")
    return np.array([[np.nan] * width if row is None else row for row in rows])

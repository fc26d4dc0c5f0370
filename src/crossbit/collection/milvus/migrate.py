"""Switch to another model: write new codes, replace the state, delete the old codes."""

import time
from collections.abc import Iterator, Mapping, Sequence

from crossbit.collection.milvus.io import Change, MilvusTable
from crossbit.collection.milvus.schema import (
    MilvusState,
    StoredItem,
    item_id,
    item_key,
    pack_codes,
)
from crossbit.collection.store import FeatureBatches, Rows
from crossbit.collection.types import Id
from crossbit.errors import DataError
from crossbit.model import HashModel

GRACE_SECONDS = 1.0  # old codes stay for readers that have not seen the new state


def upgrade(
    table: MilvusTable, state: MilvusState, model: HashModel, feature_batches: FeatureBatches
) -> MilvusState:
    """Write new codes of all items, and switch; return the state afterward."""
    after = _plan(table, state, model)
    table.drop_leftovers(state)  # an interrupted upgrade may have used the same numbers
    try:
        for ids, views in feature_batches:
            _write_codes(table, state, after, model, ids, views)
        _check_complete(table, state, after)
    except Exception:
        table.drop_leftovers(state)
        raise
    table.connection.call("upsert", [after.row()])
    time.sleep(GRACE_SECONDS)
    table.drop_leftovers(after)
    return after


def _plan(table: MilvusTable, state: MilvusState, model: HashModel) -> MilvusState:
    """Return the new state, whose modality numbers differ from the present ones."""
    for name, number in state.modalities.items():
        if name not in model.modalities and table.count(f"modality == {number}"):
            raise DataError(
                f"the new model has no modality {name!r}, which items have; it has"
                f" {model.modalities}"
            )
    if -(-model.n_bits // 8) != state.code_bytes:
        raise DataError(
            f"{table.connection.address} holds codes of {state.code_bytes} bytes, the new model"
            f" makes {model.n_bits} bits; create another collection for them"
        )
    numbers = state.modalities.values()
    first = 0 if min(numbers) >= len(model.modalities) else max(numbers) + 1
    return MilvusState.of(model, first, index=state.index, nlist=state.nlist)


def _write_codes(
    table: MilvusTable,
    state: MilvusState,
    after: MilvusState,
    model: HashModel,
    ids: Sequence[Id],
    views: Mapping[str, Rows],
) -> None:
    """Write new codes for the modalities that items have; unknown items are skipped."""
    _, old = table.items(state, ids)
    _, new = table.items(after, ids)
    codes = {name: pack_codes(model.encode(name, rows)) for name, rows in views.items()}

    def changes() -> Iterator[Change]:
        for i, key in enumerate(map(item_key, ids)):
            old_codes = old[key].codes if key in old else {}
            own = {
                after.modalities[name]: packed[i]
                for name, packed in codes.items()
                if state.modalities.get(name) in old_codes
            }
            if own:
                before = new.get(key)
                earlier = {} if before is None else before.codes
                yield key, StoredItem(old[key].payload, {**earlier, **own}), before

    table.write(after, changes(), len(ids))


def _check_complete(table: MilvusTable, state: MilvusState, after: MilvusState) -> None:
    """Check that every item has a new code for each of its old ones."""
    missing: dict[str, list[str]] = {}
    numbers = [*state.modalities.values(), *after.modalities.values()]
    for key, item in StoredItem.group(table.scan_rows(f"modality in {numbers}"), numbers):
        for name, number in state.modalities.items():
            if number in item.codes and after.modalities[name] not in item.codes:
                missing.setdefault(name, []).append(key)
    for name, keys in missing.items():
        raise DataError(
            f"{len(keys)} items have no new features of {name!r}, the first is"
            f" {item_id(keys[0])!r}; nothing was changed. Pass the features of every item"
        )

"""Going over to another model: new codes beside the old ones, then another state, then the old codes go."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from crossbit._progress import batches
from crossbit.collection.milvus import io, writing
from crossbit.collection.milvus.client import Link
from crossbit.collection.milvus.schema import Stored, gathered, item_id, item_key, packed
from crossbit.collection.milvus.state import State
from crossbit.collection.store import Rows
from crossbit.collection.types import Id
from crossbit.errors import DataError
from crossbit.model import HashModel

GRACE = 1.0  # seconds that the old codes stay, for those who have not seen the new state

Batches = Iterable[tuple[Sequence[Id], Mapping[str, Rows]]]


def upgrade(link: Link, state: State, model: HashModel, given: Batches) -> State:
    """Write new codes of all items, and switch; the state afterward."""
    after = _planned(link, state, model)
    drop_leftovers(
        link, state
    )  # an upgrade that did not come to its end may have used the same numbers
    try:
        for ids, views in given:
            _write(link, state, after, model, ids, views)
        _check_all(link, state, after)
    except Exception:
        drop_leftovers(link, state)
        raise
    link.call("upsert", [after.row()])
    time.sleep(GRACE)
    drop_leftovers(link, after)
    return after


def _planned(link: Link, state: State, model: HashModel) -> State:
    """The state to come; its modalities have numbers that the present ones do not have."""
    for name, number in state.modalities.items():
        if name not in model.modalities and io.count(link, f"modality == {number}"):
            raise DataError(
                f"the new model has no modality {name!r}, which items have; it knows {model.modalities}"
            )
    if -(-model.n_bits // 8) != state.width:
        raise DataError(
            f"{link.address} holds codes of {state.width} bytes, the new model makes {model.n_bits} bits; create"
            " another collection for them"
        )
    free = (
        0
        if min(state.modalities.values()) >= len(model.modalities)
        else max(state.modalities.values()) + 1
    )
    return State.of(model, free, index=state.index, nlist=state.nlist)


def _write(
    link: Link,
    state: State,
    after: State,
    model: HashModel,
    ids: Sequence[Id],
    views: Mapping[str, Rows],
) -> None:
    """New codes of some items, for those that they have; of items that are not there nothing is written."""
    _, old = io.stored_items(link, state, ids)
    _, new = io.stored_items(link, after, ids)
    codes = {name: packed(model.encode(name, X)) for name, X in views.items()}

    def changes() -> Iterator[tuple[str, Stored, Stored | None]]:
        for i, item in enumerate(map(item_key, ids)):
            had = old[item].codes if item in old else {}
            own = {
                after.modalities[name]: each[i]
                for name, each in codes.items()
                if state.modalities.get(name) in had
            }
            if own:
                before = new.get(item)
                earlier = {} if before is None else before.codes
                yield item, Stored(old[item].payload, {**earlier, **own}), before

    writing.write(link, after, changes(), len(ids))


def _check_all(link: Link, state: State, after: State) -> None:
    """See that every item has new codes for all that it has old ones for."""
    missing: dict[str, list[str]] = {}
    numbers = [*state.modalities.values(), *after.modalities.values()]
    rows = io.scan_rows(link, f"modality in {numbers}")
    for item, stored in gathered(rows, numbers):
        for name, number in state.modalities.items():
            if number in stored.codes and after.modalities[name] not in stored.codes:
                missing.setdefault(name, []).append(item)
    for name, items in missing.items():
        raise DataError(
            f"{len(items)} items have no new features of {name!r}, the first is {item_id(items[0])!r}; nothing was"
            " changed. Give the features of every item"
        )


def drop_leftovers(link: Link, state: State) -> None:
    """Remove rows of modalities that are not those of a state."""
    low, high = min(state.modalities.values()), max(state.modalities.values())
    condition = f"modality >= 0 and (modality < {low} or modality > {high})"
    for part in batches(io.scan_rows(link, condition, ["modality"]), io.PAGE):
        writing.remove(link, [row["key"] for row in part])

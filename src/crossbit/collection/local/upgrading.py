"""Going over to another model: new codes are written beside the old, and one transaction switches.

Until then nobody sees them; whatever an interruption leaves behind is dropped by the next upgrade or compaction.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crossbit.collection.local import tables
from crossbit.collection.local.database import Database
from crossbit.collection.local.state import CODES, FEATURES, State
from crossbit.collection.local.writing import feature_bytes, features_from_bytes, finished
from crossbit.collection.records import Id
from crossbit.collection.store import Rows
from crossbit.errors import DataError
from crossbit.model import HashModel

_BLOCK = 4096  # rows encoded and written at a time: others get their turn in between

Batches = Iterable[tuple[Sequence[Id], Mapping[str, Rows]]]


@dataclass(frozen=True)
class Plan:
    """Where the new codes go.

    Args:
        model: The new model.
        epoch: Its number.
        codes: Modality → number of its new table of codes.
        features: Modality → number and row shape of its table of features, old or new.
    """

    model: HashModel
    epoch: int
    codes: Mapping[str, int]
    features: Mapping[str, tuple[int, tuple[int, ...]]]


def upgrade(folder: Path, database: Database, model: HashModel, batches: Batches | None) -> State:
    """Encode everything with another model and switch to it; the state afterward.

    Args:
        folder: Where models are.
        database: The truth.
        model: The new model.
        batches: Ids and rows of all items, where features were not kept.
    """
    with database.writing() as connection:
        before = State.read(connection)
        _check(connection, before, model, given=batches is not None)
        drop_leftovers(connection, before)
        plan = _begun(connection, before, model)
    model.save(folder / str(plan.epoch))
    if batches is None:
        for modality in before.codes:
            _encode_kept(database, plan, modality, before)
    else:
        for ids, views in batches:
            plan = _encode_given(database, plan, ids, views)
    with database.writing() as connection:
        state = State.read(connection)
        if batches is None:
            _encode_changed(connection, state, plan, before.generation)
        return _switch(connection, state, plan)


def drop_leftovers(connection: sqlite3.Connection, state: State) -> None:
    """Drop the tables of upgrades that did not come to their end."""
    used = {
        *(f"codes_{number}" for number in state.codes.values()),
        *(f"features_{number}" for number, _ in state.features.values()),
    }
    names = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    for name in names:
        if name.startswith(("codes_", "features_")) and name not in used:
            connection.execute(f"DROP TABLE {name}")


def _check(connection: sqlite3.Connection, state: State, model: HashModel, *, given: bool) -> None:
    for modality, number in state.codes.items():
        (some,) = connection.execute(f"SELECT EXISTS (SELECT 1 FROM codes_{number})").fetchone()
        if not some:
            continue
        if modality not in model.modalities:
            raise DataError(
                f"the new model has no modality {modality!r}, which items have; it knows {model.modalities}"
            )
        if not given and modality not in state.features:
            raise DataError(
                f"features of {modality!r} were not kept; give them again:"
                f" upgrade(model, [(ids, {{{modality!r}: X}}), …])"
            )


def _begun(connection: sqlite3.Connection, state: State, model: HashModel) -> Plan:
    """Make the new tables; the state only remembers that their numbers are taken."""
    state, codes = state.numbered(model.modalities)
    for number in codes.values():
        connection.execute(CODES.format(number))
    epoch = max(
        state.epoch + 1, state.next_number
    )  # never the folder of an upgrade that was interrupted
    replace(state, next_number=epoch + 1).write(connection)
    return Plan(
        model,
        epoch,
        codes,
        {name: found for name, found in state.features.items() if name in codes},
    )


def _encode_kept(database: Database, plan: Plan, modality: str, state: State) -> None:
    """Encode the kept features of a modality, a block at a time."""
    if modality not in plan.features or modality not in plan.codes:
        return
    for rows, features in _kept(database, plan, modality, state):
        blobs = plan.model.encode(modality, features).to_bytes()
        with database.writing() as connection:
            tables.write_blobs(connection, f"codes_{plan.codes[modality]}", rows.tolist(), blobs)


def _kept(
    database: Database, plan: Plan, modality: str, state: State
) -> Iterator[tuple[tables.Ids, Rows]]:
    number, shape = plan.features[modality]
    sql, last = f"SELECT * FROM features_{number} WHERE row > ? ORDER BY row LIMIT ?", 0
    while True:
        with database.reading() as connection:
            found = connection.execute(sql, (last, _BLOCK))
            rows, blobs = tables.read_blobs(
                connection, f"features_{number}", _width(state, shape), found
            )
        if not len(rows):
            return
        yield rows, features_from_bytes(blobs, state.keep, shape)
        last = int(rows[-1])


def _width(state: State, shape: tuple[int, ...]) -> int:
    return np.dtype(state.keep).itemsize * int(np.prod(shape, dtype=np.int64))


def _encode_changed(connection: sqlite3.Connection, state: State, plan: Plan, since: int) -> None:
    """Encode once more what others have written meanwhile, and drop what they have deleted."""
    touched = tables.changed_since(connection, since) if state.log_start <= since else None
    for modality, (number, shape) in plan.features.items():
        name = f"features_{number}"
        width = _width(state, shape)
        blocks = (
            tables.all_blobs(connection, name, "feature", width)
            if touched is None
            else [tables.blobs_of(connection, name, "feature", width, touched)]
        )
        for rows, blobs in blocks:
            codes = plan.model.encode(modality, features_from_bytes(blobs, state.keep, shape))
            tables.write_blobs(
                connection, f"codes_{plan.codes[modality]}", rows.tolist(), codes.to_bytes()
            )


def _encode_given(
    database: Database, plan: Plan, ids: Sequence[Id], views: Mapping[str, Rows]
) -> Plan:
    """Encode rows that are given again; with kept features, they replace those."""
    codes = {modality: plan.model.encode(modality, rows) for modality, rows in views.items()}
    with database.writing() as connection:
        state = State.read(connection)
        known = tables.rows_of(connection, ids)
        here = np.array([id_ in known for id_ in ids], np.bool_)
        rows = [known[id_] for id_ in ids if id_ in known]
        for modality, own in codes.items():
            tables.write_blobs(
                connection, f"codes_{plan.codes[modality]}", rows, own[here].to_bytes()
            )
            if state.keep is not None:
                plan = _keep_given(
                    connection, plan, modality, rows, np.asarray(views[modality])[here]
                )
    return plan


def _keep_given(
    connection: sqlite3.Connection, plan: Plan, modality: str, rows: list[int], features: Rows
) -> Plan:
    """Write features into a new table, which the first batch makes."""
    state = State.read(connection)
    if plan.features.get(modality) == state.features.get(modality):
        number = state.next_number
        replace(state, next_number=number + 1).write(connection)
        connection.execute(FEATURES.format(number))
        plan = replace(plan, features={**plan.features, modality: (number, features.shape[1:])})
    number, shape = plan.features[modality]
    if features.shape[1:] != shape:
        raise DataError(
            f"rows of {modality!r}: expected shape {shape} as in the batches before, got {features.shape[1:]}"
        )
    tables.write_blobs(connection, f"features_{number}", rows, feature_bytes(features, state.keep))
    return plan


def _switch(connection: sqlite3.Connection, state: State, plan: Plan) -> State:
    """Make the new codes the codes, if every item has them."""
    for modality, number in state.codes.items():
        new = plan.codes.get(modality)
        if new is None:
            continue
        connection.execute(
            f"DELETE FROM codes_{new} WHERE row NOT IN (SELECT row FROM codes_{number})"
        )
        missing = f"FROM codes_{number} WHERE row NOT IN (SELECT row FROM codes_{new})"
        (count,) = connection.execute(f"SELECT count(*) {missing}").fetchone()
        if count:
            (id_,) = connection.execute(
                f"SELECT id FROM items WHERE row = (SELECT row {missing} LIMIT 1)"
            ).fetchone()
            raise DataError(
                f"{count} items have no new features of {modality!r}, the first is {id_!r}; nothing was changed."
                " Give the features of every item"
            )
    after = replace(
        state,
        n_bits=plan.model.n_bits,
        fingerprint=plan.model.fingerprint(),
        epoch=plan.epoch,
        codes=dict(plan.codes),
        features=dict(plan.features),
    )
    drop_leftovers(connection, after)
    return finished(connection, after, [])

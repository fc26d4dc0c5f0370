"""Switch to another model: write new codes beside the old ones, then swap them in one transaction.

Nobody sees the new codes before the swap. The next upgrade or compaction drops whatever an
interrupted upgrade leaves behind.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crossbit.collection.local.database import Database
from crossbit.collection.local.schema import CODES, FEATURES, DbState
from crossbit.collection.local.tables import RowNumbers, Tables
from crossbit.collection.local.transaction import Transaction
from crossbit.collection.store import FeatureBatches, Rows
from crossbit.collection.types import Id
from crossbit.errors import DataError
from crossbit.model.hashmodel import HashModel

_BLOCK = 4096  # rows per transaction, so that other writers get their turn in between


@dataclass(frozen=True)
class _UpgradePlan:
    """Destination of the new codes.

    Args:
        model: The new model.
        version: Number of the new model.
        codes: Modality → number of its new table of codes.
        features: Modality → number and row shape of its table of features, old or new.
    """

    model: HashModel
    version: int
    codes: Mapping[str, int]
    features: Mapping[str, tuple[int, tuple[int, ...]]]


def upgrade(
    folder: Path, database: Database, model: HashModel, batches: FeatureBatches | None
) -> DbState:
    """Encode all items with another model and switch to it.

    Args:
        folder: Folder of the models.
        database: The database.
        model: The new model.
        batches: Ids and rows of all items, if features were not kept.

    Returns:
        The state after the switch.
    """
    with database.writing() as connection:
        transaction = Transaction(connection)
        before = transaction.state
        _check_possible(connection, before, model, has_batches=batches is not None)
        transaction.drop_unused_tables()  # of an upgrade that did not finish
        plan = _begin(connection, before, model)
    model.save(folder / str(plan.version))
    if batches is None:
        for modality in before.codes:
            _encode_kept(database, plan, modality, before)
    else:
        for ids, views in batches:
            plan = _encode_batch(database, plan, ids, views)
    with database.writing() as connection:
        transaction = Transaction(connection)
        if batches is None:
            _encode_changed(transaction, plan, before.generation)
        return _switch(transaction, plan)


def _check_possible(
    connection: sqlite3.Connection, state: DbState, model: HashModel, *, has_batches: bool
) -> None:
    for modality, number in state.codes.items():
        sql = f"SELECT EXISTS (SELECT 1 FROM codes_{number})"
        (has_codes,) = connection.execute(sql).fetchone()
        if not has_codes:
            continue
        if modality not in model.modalities:
            raise DataError(
                f"the new model has no modality {modality!r}, which items have; it has"
                f" {model.modalities}"
            )
        if not has_batches and modality not in state.features:
            raise DataError(
                f"features of {modality!r} were not kept; pass them:"
                f" upgrade(model, [(ids, {{{modality!r}: X}}), …]); a collection created with"
                " --keep-features keeps them"
            )


def _begin(connection: sqlite3.Connection, state: DbState, model: HashModel) -> _UpgradePlan:
    """Create the new tables; the state only records that their numbers are taken."""
    state, codes = state.allocate(model.modalities)
    for number in codes.values():
        connection.execute(CODES.format(number))
    # Never the folder of an interrupted upgrade.
    version = max(state.model_version + 1, state.next_number)
    replace(state, next_number=version + 1).write(connection)
    features = {name: table for name, table in state.features.items() if name in codes}
    return _UpgradePlan(model, version, codes, features)


def _encode_kept(database: Database, plan: _UpgradePlan, modality: str, state: DbState) -> None:
    """Encode the kept features of a modality, a block at a time."""
    if modality not in plan.features or modality not in plan.codes:
        return
    for rows, features in _kept_features(database, plan, modality, state):
        blobs = plan.model.encode(modality, features).to_bytes()
        with database.writing() as connection:
            table = f"codes_{plan.codes[modality]}"
            Tables(connection).write_blobs(table, rows.tolist(), blobs)


def _kept_features(
    database: Database, plan: _UpgradePlan, modality: str, state: DbState
) -> Iterator[tuple[RowNumbers, Rows]]:
    number, shape = plan.features[modality]
    width = _feature_bytes(state, shape)
    last = 0
    while True:
        with database.reading() as connection:
            tables = Tables(connection)
            rows, blobs = tables.blobs_after(f"features_{number}", width, last, _BLOCK)
        if not len(rows):
            return
        yield rows, Tables.features_from_blobs(blobs, state.feature_type, shape)
        last = int(rows[-1])


def _feature_bytes(state: DbState, shape: tuple[int, ...]) -> int:
    return np.dtype(state.feature_type).itemsize * int(np.prod(shape, dtype=np.int64))


def _encode_changed(transaction: Transaction, plan: _UpgradePlan, since: int) -> None:
    """Encode again what other writers have changed since the upgrade began."""
    state = transaction.state
    tables = transaction.tables
    changed = tables.changed_since(since) if state.log_start <= since else None
    for modality, (number, shape) in plan.features.items():
        table = f"features_{number}"
        width = _feature_bytes(state, shape)
        blocks = (
            tables.all_blobs(table, "feature", width)
            if changed is None
            else [tables.blobs(table, "feature", width, changed)]
        )
        for rows, blobs in blocks:
            features = Tables.features_from_blobs(blobs, state.feature_type, shape)
            codes = plan.model.encode(modality, features)
            table_of_codes = f"codes_{plan.codes[modality]}"
            tables.write_blobs(table_of_codes, rows.tolist(), codes.to_bytes())


def _encode_batch(
    database: Database, plan: _UpgradePlan, ids: Sequence[Id], views: Mapping[str, Rows]
) -> _UpgradePlan:
    """Encode the rows of a batch; if the collection keeps features, they replace those."""
    codes = {modality: plan.model.encode(modality, rows) for modality, rows in views.items()}
    with database.writing() as connection:
        state = DbState.read(connection)
        tables = Tables(connection)
        known = tables.rows_of(ids)
        is_known = np.array([id_ in known for id_ in ids], np.bool_)
        rows = [known[id_] for id_ in ids if id_ in known]
        for modality, new_codes in codes.items():
            blobs = new_codes[is_known].to_bytes()
            tables.write_blobs(f"codes_{plan.codes[modality]}", rows, blobs)
            if state.feature_type is not None:
                features = np.asarray(views[modality])[is_known]
                plan = _replace_features(tables, plan, modality, rows, features)
    return plan


def _replace_features(
    tables: Tables, plan: _UpgradePlan, modality: str, rows: list[int], features: Rows
) -> _UpgradePlan:
    """Write features into a new table, which the first batch creates."""
    state = DbState.read(tables.connection)
    if plan.features.get(modality) == state.features.get(modality):
        number = state.next_number
        replace(state, next_number=number + 1).write(tables.connection)
        tables.connection.execute(FEATURES.format(number))
        plan = replace(plan, features={**plan.features, modality: (number, features.shape[1:])})
    number, shape = plan.features[modality]
    if features.shape[1:] != shape:
        raise DataError(
            f"rows of {modality!r}: expected shape {shape} as in the previous batches, got"
            f" {features.shape[1:]}"
        )
    blobs = Tables.features_to_blobs(features, state.feature_type)
    tables.write_blobs(f"features_{number}", rows, blobs)
    return plan


def _switch(transaction: Transaction, plan: _UpgradePlan) -> DbState:
    """Replace the old codes with the new ones, if every item has them."""
    connection = transaction.connection
    state = transaction.state
    for modality, old in state.codes.items():
        new = plan.codes.get(modality)
        if new is None:
            continue
        connection.execute(
            f"DELETE FROM codes_{new} WHERE row NOT IN (SELECT row FROM codes_{old})"
        )
        missing = f"FROM codes_{old} WHERE row NOT IN (SELECT row FROM codes_{new})"
        (count,) = connection.execute(f"SELECT count(*) {missing}").fetchone()
        if count:
            (id_,) = connection.execute(
                f"SELECT id FROM items WHERE row = (SELECT row {missing} LIMIT 1)"
            ).fetchone()
            raise DataError(
                f"{count} items have no new features of {modality!r}, the first is {id_!r};"
                " nothing was changed. Pass the features of every item"
            )
    after = replace(
        state,
        n_bits=plan.model.n_bits,
        fingerprint=plan.model.fingerprint(),
        model_version=plan.version,
        codes=dict(plan.codes),
        features=dict(plan.features),
    )
    transaction.advance([], after)
    transaction.drop_unused_tables()
    return transaction.state

"""Switch to another model: write new codes beside the old ones, then swap them in one transaction.

Nobody sees the new codes before the swap. Others may write meanwhile. At the swap, which excludes
writers, the new codes of all rows that they have changed are dropped; rows whose features are kept
are encoded again, and if any item then lacks a new code the upgrade is refused. The next upgrade or
compaction drops whatever an interrupted upgrade leaves behind.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from crossbit._progress import count_steps
from crossbit.collection.encoder import encode_with_scores
from crossbit.collection.local.database import Database
from crossbit.collection.local.kept import KeptTables
from crossbit.collection.local.schema import FEATURE_TABLE, DbState, create_tables
from crossbit.collection.local.tables import Blobs, RowNumbers, Tables
from crossbit.collection.local.transaction import Transaction
from crossbit.collection.stores import FeatureBatches, Rows
from crossbit.collection.values import FEATURES, Id
from crossbit.errors import BackendError, DataError
from crossbit.index.weights import quantize
from crossbit.model.hashmodel import HashModel

_BLOCK = 4096  # rows per transaction, so that other writers get their turn in between
_MAX_ROUNDS = 10  # of encoding what others have changed before the swap excludes them
_MAX_NAMED = 5  # items that an error names


@dataclass(frozen=True)
class _UpgradePlan:
    """Destination of the new codes.

    Args:
        model: The new model.
        version: Number of the new model.
        codes: Modality → number of its new table of codes.
        has_batches: Whether the caller gives the features; else they are those of the collection.
        n_rows: Number of rows to encode: of items in batches, else of features.
        features: Modality → number and row shape of its new table of given features.
        scores: Modality → number of its new table of scores; None if they are not kept.
    """

    model: HashModel
    version: int
    codes: Mapping[str, int]
    has_batches: bool
    n_rows: int
    features: Mapping[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    scores: Mapping[str, int] | None = None

    def encode(self, modality: str, features: Rows) -> tuple[Blobs, Blobs | None]:
        """Return new codes of features as bytes, with their scores if those are kept."""
        if self.scores is None:
            return self.model.encode(modality, features).to_bytes(), None
        codes, scores = encode_with_scores(self.model, modality, features)
        return codes.to_bytes(), KeptTables.score_blobs(quantize(scores))

    def write(
        self, tables: Tables, modality: str, rows: list[int], codes: Blobs, scores: Blobs | None
    ) -> None:
        """Write new codes, with their scores if those are kept."""
        tables.write_blobs(f"codes_{self.codes[modality]}", rows, codes)
        if self.scores is not None and scores is not None:
            tables.write_blobs(f"scores_{self.scores[modality]}", rows, scores)

    def tables_of(self, modality: str) -> list[str]:
        """Return the new tables of a modality."""
        tables = [f"codes_{self.codes[modality]}"]
        if self.scores is not None:
            tables.append(f"scores_{self.scores[modality]}")
        if modality in self.features:
            tables.append(f"features_{self.features[modality][0]}")
        return tables


def upgrade(
    folder: Path,
    database: Database,
    model: HashModel,
    batches: FeatureBatches | None,
    *,
    since: int,
) -> DbState:
    """Encode all items with another model and switch to it.

    Args:
        folder: Folder of the models.
        database: The database.
        model: The new model.
        batches: Ids and rows of all items, if features were not kept.
        since: Generation of the items whose rows are in the batches.

    Returns:
        The state after the switch.

    Raises:
        DataError: An item has no features for the new model; nothing has changed.
    """
    with database.writing() as connection:
        transaction = Transaction(connection)
        transaction.drop_leftovers()  # of an upgrade that did not finish
        start = since if batches is not None else transaction.state.generation
        _check_possible(connection, transaction.state, model, has_batches=batches is not None)
        plan = _begin(transaction, model, start, has_batches=batches is not None)
    _save_model(model, folder / str(plan.version))
    if batches is None:
        start = _encode_kept(database, plan, start)
    else:
        advance = count_steps(plan.n_rows)
        for ids, views in batches:
            plan = _encode_batch(database, plan, ids, views)
            advance(len(ids))
    with database.writing() as connection:
        transaction = Transaction(connection)
        changed = _changed_rows(transaction, start)
        _encode_again(transaction, plan, changed)
        return _switch(transaction, plan, changed)


def extend(
    folder: Path, database: Database, model: HashModel, old: HashModel, added: Sequence[str]
) -> DbState:
    """Switch to a model that adds modalities to that of the collection, and return the new state.

    Args:
        folder: Folder of the models.
        database: The database.
        model: The new model.
        old: The model that it was compared with.
        added: The modalities that it adds.
    """
    with database.writing() as connection:
        transaction = Transaction(connection)
        state = transaction.state
        version = max(state.model_version + 1, state.next_number)
        transaction.set_state(replace(state, next_number=version + 1))
    _save_model(model, folder / str(version))
    with database.writing() as connection:
        transaction = Transaction(connection)
        if transaction.state.fingerprint != old.fingerprint():
            raise BackendError(f"{folder}: the model was replaced meanwhile; extend it again")
        state, codes = transaction.state.allocate(added)
        scores: Mapping[str, int] | None = None
        if state.scores is not None:
            state, scores = state.allocate(added)
        create_tables(connection, codes, scores)
        after = replace(
            state,
            fingerprint=model.fingerprint(),
            model_version=version,
            codes={**state.codes, **codes},
            scores=None if state.scores is None else {**state.scores, **(scores or {})},
        )
        transaction.advance([], after)
        return transaction.state


def _save_model(model: HashModel, path: Path) -> None:
    if path.exists():  # the number is new, and the folders of earlier upgrades were deleted
        raise BackendError(
            f"{path}: exists; the folder was replaced while it was open: open the collection again"
        )
    try:
        model.save(path, parents=False)  # what is moved away meanwhile is not made again
    except OSError as error:
        raise BackendError(
            f"{path}: the new model cannot be written ({error.strerror or error}), nothing was"
            " changed; check the free space and the permissions, and retry"
        ) from error


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
                " keep='features' (--keep features) keeps them"
            )


def _begin(
    transaction: Transaction, model: HashModel, start: int, *, has_batches: bool
) -> _UpgradePlan:
    """Create the new tables; the state records that their numbers are taken."""
    state, codes = transaction.state.allocate(model.modalities)
    scores: Mapping[str, int] | None = None
    if state.scores is not None:
        state, scores = state.allocate(model.modalities)
    create_tables(transaction.connection, codes, scores)
    # Never the folder of an interrupted upgrade.
    version = max(state.model_version + 1, state.next_number)
    transaction.set_state(replace(state, next_number=version + 1, upgrade_start=start))
    n_rows = state.items if has_batches else _n_features(transaction, codes)
    return _UpgradePlan(model, version, codes, has_batches, n_rows, scores=scores)


def _n_features(transaction: Transaction, modalities: Iterable[str]) -> int:
    kept = transaction.state.features
    tables = [f"features_{kept[modality][0]}" for modality in modalities if modality in kept]
    counts = [transaction.connection.execute(f"SELECT count(*) FROM {table}") for table in tables]
    return sum(int(count) for cursor in counts for (count,) in cursor)


def _encode_kept(database: Database, plan: _UpgradePlan, start: int) -> int:
    """Encode the features that the collection keeps, a block at a time.

    Returns:
        The generation up to which the changes of other writers are included.
    """
    advance = count_steps(plan.n_rows)
    for modality in plan.codes:
        for rows, features in _kept_blocks(database, modality):
            encoded = plan.encode(modality, features)
            with database.writing() as connection:
                plan.write(Tables(connection), modality, rows.tolist(), *encoded)
            advance(len(rows))
    for _ in range(_MAX_ROUNDS):
        with database.reading() as connection:
            transaction = Transaction(connection)
            changed = _changed_rows(transaction, start)
            generation = transaction.state.generation
        if len(changed) <= _BLOCK:
            break
        for first in range(0, len(changed), _BLOCK):
            with database.writing() as connection:
                rows = changed[first : first + _BLOCK]
                _encode_again(Transaction(connection), plan, rows)
        start = generation
    return start


def _kept_blocks(database: Database, modality: str) -> Iterator[tuple[RowNumbers, Rows]]:
    """Read the kept features of a modality, each block as of its own transaction."""
    last = 0
    while True:
        with database.reading() as connection:
            state = DbState.read(connection)
            if modality not in state.features:
                return
            number, shape = state.features[modality]
            rows, blobs = Tables(connection).blobs_after(
                f"features_{number}", KeptTables.feature_bytes(state, shape), last, _BLOCK
            )
        if not len(rows):
            return
        yield rows, Tables.features_from_blobs(blobs, state.feature_type, shape)
        last = int(rows[-1])


def _changed_rows(transaction: Transaction, since: int) -> RowNumbers:
    """Return the rows that other writers have changed since a generation."""
    changed = transaction.tables.changed_since(since)
    if changed is None or transaction.state.log_start > since:  # the log is corrupted
        changed = transaction.tables.row_numbers("SELECT row FROM items")
    return changed


def _encode_again(transaction: Transaction, plan: _UpgradePlan, rows: RowNumbers) -> None:
    """Drop the new codes of rows, and encode the features that the collection keeps of them.

    Features of another kind may have been given in batches, so kept ones are not used beside them.
    """
    state = transaction.state
    tables = transaction.tables
    for modality in plan.codes:
        for table in plan.tables_of(modality):
            tables.delete_rows(table, rows.tolist())
        if plan.has_batches or modality not in state.features:
            continue
        existing, features = KeptTables(tables, state).read(FEATURES, modality, rows)
        plan.write(tables, modality, existing.tolist(), *plan.encode(modality, features))


def _encode_batch(
    database: Database, plan: _UpgradePlan, ids: Sequence[Id], views: Mapping[str, Rows]
) -> _UpgradePlan:
    """Encode the rows of a batch; if the collection keeps features, they replace those."""
    encoded = {modality: plan.encode(modality, rows) for modality, rows in views.items()}
    with database.writing() as connection:
        transaction = Transaction(connection)
        known = transaction.tables.rows_of(ids)
        is_known = np.array([id_ in known for id_ in ids], np.bool_)
        rows = [known[id_] for id_ in ids if id_ in known]
        for modality, (codes, scores) in encoded.items():
            known_scores = None if scores is None else scores[is_known]
            plan.write(transaction.tables, modality, rows, codes[is_known], known_scores)
            if transaction.state.feature_type is not None:
                features = np.asarray(views[modality])[is_known]
                plan = _write_features(transaction, plan, modality, rows, features)
    return plan


def _write_features(
    transaction: Transaction, plan: _UpgradePlan, modality: str, rows: list[int], features: Rows
) -> _UpgradePlan:
    """Write given features into a new table, which the first batch creates."""
    if modality not in plan.features:
        state, numbers = transaction.state.allocate([modality])
        transaction.set_state(state)
        transaction.connection.execute(FEATURE_TABLE.format(numbers[modality]))
        table = (numbers[modality], features.shape[1:])
        plan = replace(plan, features={**plan.features, modality: table})
    number, shape = plan.features[modality]
    if features.shape[1:] != shape:
        raise DataError(
            f"rows of {modality!r}: expected shape {shape} as in the previous batches, got"
            f" {features.shape[1:]}"
        )
    blobs = Tables.features_to_blobs(features, transaction.state.feature_type)
    transaction.tables.write_blobs(f"features_{number}", rows, blobs)
    return plan


def _switch(transaction: Transaction, plan: _UpgradePlan, changed: RowNumbers) -> DbState:
    """Replace the old codes with the new ones, if every item has them."""
    connection = transaction.connection
    state = transaction.state
    # Others may have written the first items of a modality meanwhile.
    _check_possible(connection, state, plan.model, has_batches=True)
    for modality, number in plan.codes.items():
        old = state.codes.get(modality)
        has_code = "FALSE" if old is None else f"row IN (SELECT row FROM codes_{old})"
        for table in plan.tables_of(modality):
            connection.execute(f"DELETE FROM {table} WHERE NOT {has_code}")
        if old is not None:
            missing = f"SELECT row FROM codes_{old} EXCEPT SELECT row FROM codes_{number}"
            if len(rows := transaction.tables.row_numbers(missing)):
                raise _missing(transaction, plan, modality, rows, changed)
    kept = {name: table for name, table in state.features.items() if name in plan.codes}
    after = replace(
        state,
        n_bits=plan.model.n_bits,
        fingerprint=plan.model.fingerprint(),
        model_version=plan.version,
        codes=dict(plan.codes),
        features={**kept, **plan.features},
        scores=plan.scores,
        upgrade_start=None,
    )
    transaction.advance([], after)
    transaction.drop_leftovers()
    return transaction.state


def _missing(
    transaction: Transaction,
    plan: _UpgradePlan,
    modality: str,
    rows: RowNumbers,
    changed: RowNumbers,
) -> DataError:
    """Return the error for rows without a new code, of which others changed some meanwhile."""
    is_changed = np.isin(rows, changed)
    if not is_changed.all():
        rows = rows[~is_changed]
        (id_,) = _ids(transaction, rows[:1])
        return DataError(
            f"{len(rows)} items have no new features of {modality!r}, the first is {id_!r};"
            " nothing was changed. Pass the features of every item"
        )
    names = ", ".join(map(repr, _ids(transaction, rows[:_MAX_NAMED])))
    more = ", …" if len(rows) > _MAX_NAMED else ""
    remedy = (
        "Run the upgrade again, with the rows that these items have now"
        if plan.has_batches
        else "They were written as codes, without features: write them again as rows, or pass the"
        " features of every item"
    )
    return DataError(
        f"{len(rows)} items were written by others during the upgrade and have no new code of"
        f" {modality!r}: {names}{more}; nothing was changed. {remedy}"
    )


def _ids(transaction: Transaction, rows: RowNumbers) -> list[Id]:
    items = transaction.tables.read_items(rows.tolist())
    return [items[row][0] for row in rows.tolist()]

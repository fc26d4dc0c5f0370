"""Build the fields of a `Dataset` from named arrays: orientation, stacking, labels, splits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.conversion.columns import Arrays, Columns, Role, assign_roles
from crossbit.data.conversion.lazy import Source, transposed
from crossbit.data.labels import check_labels, classes_from_words
from crossbit.data.storage import Readable
from crossbit.data.tables import select_columns
from crossbit.data.training_set import check_view
from crossbit.errors import DataError, RowError

_ORDER = ("train", "validation", "test", "query", "database")
_Parts = dict[str, list["_Part"]]


def assemble(
    sources: Sequence[Source], names: Mapping[str, str] | None
) -> tuple[dict[str, Any], list[str]]:
    """Give every array its role, by the map or by naming conventions.

    Args:
        sources: The open files.
        names: The user's map, as `parse_map` reads it.

    Returns:
        The arguments of `Dataset`, with lazily read views, and the arrays without a role such as
        ``"y (200,)"``.
    """
    arrays, columns = _merge([_with_selections(source, names or {}) for source in sources])
    assembly = _Assembly(first_class=max(source.first_row for source in sources))
    roles = assign_roles(arrays, columns, names)
    for role, name in roles:
        _place(assembly, role, name, arrays, columns)
    used = {name for _, name in roles}
    members = {member for name in used & arrays.keys() for member in _members(name, arrays)}
    taken = used | members | {"split"}
    assembly.payload = {name: values for name, values in columns.items() if name not in taken}
    for split in dict.fromkeys(columns.get("split", ())):
        mask = np.array([value == split for value in columns["split"]])
        assembly.splits[str(split)] = _RowList("split", mask)
    if not assembly.views:
        raise DataError(
            f"no views found; {_inventory(arrays, columns)};"
            " assign roles, such as --map image=<array>"
        )
    unused = [
        _outline(name, array)
        for name, (array, _) in arrays.items()
        if not used & {name, f"{name}.T"}
    ]
    return assembly.fields(), unused


def _with_selections(source: Source, names: Mapping[str, str]) -> Source:
    """Add arrays for the columns of a table that a map selects one by one, by range or by pattern.

    The columns leave the numbered group that they belong to.
    """
    entries = {
        entry.strip()
        for target, listed in names.items()
        for entry in listed.split(",")
        if not (target.startswith("labels") and entry.strip() in source.columns)
    }
    selections = {
        entry: columns
        for entry in sorted(entries - source.arrays.keys())
        if (columns := select_columns(entry, list(source.numbers)))
    }
    taken = {name for columns in selections.values() for name in columns}
    groups = {
        name: [member for member in members if member not in taken]
        for name, members in source.groups.items()
    }
    arrays = dict(source.arrays)
    for name, members in (groups | selections).items():
        if not members:
            del arrays[name]
        elif members != source.groups.get(name):
            arrays[name] = np.column_stack([source.numbers[member] for member in members])
    return replace(source, arrays=arrays, groups=groups | selections)


def _members(name: str, arrays: Arrays) -> list[str]:
    """Return the columns of a table that an array is made of."""
    return arrays[name][1].groups.get(name, [])


class _Stack:
    """Arrays stacked along their rows, read one block at a time and validated on the way.

    Args:
        name: Modality.
        parts: Arrays, each with its name and file.
    """

    def __init__(self, name: str, parts: Sequence["_Part"]) -> None:
        arrays = [part.array for part in parts]
        if any(len(array.shape) < 2 for array in arrays):
            raise DataError(
                f"view {name!r}: expected arrays of shape (n, d), got {[a.shape for a in arrays]};"
                " an array of labels is mapped as labels=<array>"
            )
        shapes = [array.shape for array in arrays]
        if len({shape[1:] for shape in shapes}) > 1:
            raise DataError(f"view {name!r}: its parts have rows of different shapes, {shapes}")
        self._name = name
        self._parts = list(parts)
        self.shape: tuple[int, ...] = (sum(a.shape[0] for a in arrays), *arrays[0].shape[1:])
        self.dtype: np.dtype[Any] = np.result_type(*(array.dtype for array in arrays))

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        blocks = [np.empty((0, *self.shape[1:]), self.dtype)]
        first = 0
        for part in self._parts:
            low = max(0, start - first)
            high = min(part.array.shape[0], stop - first)
            if low < high:
                block = np.asarray(part.array[low:high])
                try:
                    check_view(self._name, block, first=low)
                except RowError as error:
                    raise part.locate(error) from error
                blocks.append(block)
            first += part.array.shape[0]
        return np.concatenate(blocks)


@dataclass(frozen=True)
class _Part:
    """An array of a view or of labels, and where it comes from."""

    array: Readable
    name: str
    source: Source | None = None  # None for labels, which no error names

    def locate(self, error: RowError) -> DataError:
        return error if self.source is None else error.at(self.source.place(self.name, error.row))

    def transposed(self) -> "_Part":
        return replace(self, array=transposed(self.array), name=f"{self.name}.T")


@dataclass(frozen=True)
class _RowList:
    """Row numbers or a mask: booleans, or zeros and ones, as MATLAB's logical arrays are read.

    Attributes:
        name: Name of the array.
        values: Its content.
        first: Number of the first row: 1 in MATLAB, else 0.
    """

    name: str
    values: NDArray[Any]
    first: int = 0

    def rows(self, n: int) -> NDArray[np.int64]:
        """Return row numbers from 0, for ``n`` rows."""
        if self._is_mask(n):
            return np.flatnonzero(self.values)
        values = self.values
        is_integral = np.isfinite(values).all() and np.array_equal(values, np.trunc(values))
        if not is_integral or values.dtype == np.bool_:
            raise DataError(
                f"{self.name!r}: expected integer row numbers or a mask of {n} booleans,"
                f" got {values.dtype} {values.shape}"
            )
        if len(values) and not (values.min() >= self.first and values.max() < self.first + n):
            where = " in .mat files" if self.first else ""
            raise DataError(
                f"{self.name!r}: row numbers{where} must be between {self.first} and"
                f" {self.first + n - 1}, got {values.min():g} … {values.max():g}"
            )
        return values.astype(np.int64) - self.first

    def _is_mask(self, n: int) -> bool:
        """Whether there is one value per row, and zeros and ones cannot be row numbers."""
        if len(self.values) != n or self.values.dtype == np.bool_:
            return len(self.values) == n
        not_numbers = len(np.unique(self.values)) < n or (self.first == 1 and not self.values.all())
        return not_numbers and bool(np.isin(self.values, (0, 1)).all())


@dataclass
class _Assembly:
    """Arrays by role.

    Attributes:
        views: Modality → split → arrays. The split of all rows is ``""``.
        labels: Modality, or ``""`` for all of them, → split → arrays.
        splits: Split → its rows, as a file lists them.
        first_class: Number of the first class if classes are numbers: 1 in MATLAB, else 0.
        classes: Class names if the labels are words.
        payload: Column → one value per row.
    """

    views: dict[str, _Parts] = field(default_factory=dict)
    labels: dict[str, _Parts] = field(default_factory=dict)
    splits: dict[str, _RowList] = field(default_factory=dict)
    first_class: int = 0
    classes: list[str] = field(default_factory=list)
    payload: dict[str, list[Any]] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return the arguments of `Dataset`."""
        groups = [[m] for m in self.views] if self.unpaired else [list(self.views)]
        for group in groups:
            self._orient(group)
        views = {m: _Stack(m, _stacked(parts)) for m, parts in self.views.items()}
        labels = {m: _labels(_stacked(parts), self.first_class) for m, parts in self.labels.items()}
        n = max(view.shape[0] for view in views.values())
        listed = {split: rows.rows(n) for split, rows in self.splits.items()}
        payload = [dict(zip(self.payload, row, strict=True)) for row in self._payload_rows(n)]
        return {
            "views": views,
            "labels": labels if self.unpaired else labels.get(""),
            "splits": self._stacked_splits() | listed,
            "payload": payload or None,
            "classes": self.classes,
        }

    @property
    def unpaired(self) -> bool:
        """Whether labels are given per modality."""
        return any(self.labels.keys() - {""})

    def _orient(self, modalities: Sequence[str]) -> None:
        """Check that views and labels have the same splits and lengths; transpose if needed."""
        members = {f"view {m!r}": self.views[m] for m in modalities}
        owner = modalities[0] if self.unpaired else ""
        if owner in self.labels:
            members["labels"] = self.labels[owner]
        splits = sorted({split for parts in members.values() for split in parts}, key=_split_order)
        for what, parts in members.items():
            if missing := [split for split in splits if split not in parts]:
                raise DataError(
                    f"{what}: nothing for {_quoted(missing)}, others have {_quoted(splits)};"
                    " assign it with a map"
                )
        for split in splits:
            arrays = {what: parts[split] for what, parts in members.items()}
            for what, oriented in _rows_first(arrays, split).items():
                members[what][split] = oriented

    def _stacked_splits(self) -> dict[str, Any]:
        """Row numbers of the splits in stacking order."""
        spans: dict[str, dict[str, NDArray[np.int64]]] = {}
        for m, parts in self.views.items():
            first = 0
            for split in sorted(parts, key=_split_order):
                size = sum(part.array.shape[0] for part in parts[split])
                spans.setdefault(split, {})[m] = np.arange(first, first + size)
                first += size
        return {
            split: rows if self.unpaired else next(iter(rows.values()))
            for split, rows in spans.items()
            if split
        }

    def _payload_rows(self, n: int) -> Iterable[tuple[Any, ...]]:
        lengths = {name: len(values) for name, values in self.payload.items()}
        if wrong := {name: length for name, length in lengths.items() if length != n}:
            raise DataError(f"columns must have one value for each of {n} rows, got {wrong}")
        return zip(*self.payload.values(), strict=True)


def _merge(
    sources: Sequence[Source],
) -> tuple[dict[str, tuple[Readable, Source]], dict[str, list[Any]]]:
    """Return all arrays and columns by name; a file of a single array gives it the file's name."""
    arrays: dict[str, tuple[Readable, Source]] = {}
    columns: dict[str, list[Any]] = {}
    for source in sources:
        single = len(sources) > 1 and source.free_names and len(source.arrays) == 1
        for key, array in source.arrays.items():
            name = source.path.stem if single else key
            if name in arrays:
                raise DataError(
                    f"{source.path} and {arrays[name][1].path} both hold {name!r};"
                    " convert them one at a time"
                )
            arrays[name] = array, source
        for name, values in source.columns.items():
            if columns.setdefault(name, values) != values:
                raise DataError(f"{source.path}: column {name!r} differs from that of another file")
    return arrays, columns


def _place(assembly: _Assembly, role: Role, name: str, arrays: Arrays, columns: Columns) -> None:
    """Put an array, or a column of labels, where its role says."""
    if role.kind == "labels" and name in columns:
        classes, labels = classes_from_words(columns[name])
        assembly.classes = assembly.classes or classes
        assembly.first_class = 0
        part = _Part(labels, name)
        assembly.labels.setdefault(role.modality, {}).setdefault(role.split, []).append(part)
        return
    array, source = _find(name, arrays, columns)
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{source.path}: {name!r} looks like {role.kind} but holds {array.dtype} instead of"
            " real numbers; choose the arrays with --map"
        )
    if role.kind == "split":
        values = np.asarray(array[:]).reshape(-1)
        assembly.splits[role.split] = _RowList(name, values, source.first_row)
    elif role.kind == "labels":
        labels = np.asarray(array[:])
        if labels.ndim == 2 and 1 in labels.shape:  # MATLAB has no vectors of one dimension
            labels = labels.reshape(-1)
        part = _Part(labels, name, source)
        assembly.labels.setdefault(role.modality, {}).setdefault(role.split, []).append(part)
    else:
        part = _Part(array, name, source)
        assembly.views.setdefault(role.kind, {}).setdefault(role.split, []).append(part)


def _find(name: str, arrays: Arrays, columns: Columns) -> tuple[Readable, Source]:
    """Return an array by name, transposed if the name ends with ``.T``."""
    transpose = name.endswith(".T") and name not in arrays
    key = name[:-2] if transpose else name
    if key not in arrays:
        raise DataError(f"there is no array {key!r}; {_inventory(arrays, columns)}")
    array, source = arrays[key]
    return (transposed(array) if transpose else array), source


def _labels(parts: Sequence[_Part], first_class: int) -> NDArray[Any]:
    """Classes from 0, or a boolean matrix if a row has several; MATLAB's classes count from 1."""
    arrays = [np.asarray(part.array[:]) for part in parts]
    if len({array.shape[1:] for array in arrays}) > 1:
        raise DataError(
            f"labels: the splits have different shapes, {[array.shape for array in arrays]}"
        )
    labels = check_labels(np.concatenate(arrays), None)
    if labels.ndim == 1:
        least = labels[labels >= 0].min(initial=np.iinfo(np.int64).max)
        from_one = first_class == 1 and least >= 1
        return np.where(labels >= 0, labels - 1, labels) if from_one else labels
    if (labels.sum(axis=1) <= 1).all():
        return np.where(labels.any(axis=1), labels.argmax(axis=1), -1)
    return labels


def _rows_first(arrays: Mapping[str, list[_Part]], split: str) -> dict[str, list[_Part]]:
    """Arrays of one split with one item per row: unchanged, or all transposed if that fits."""
    if len({_length(parts, 0) for parts in arrays.values()}) == 1:
        return dict(arrays)
    # Without labels, views of one width may as well have lost a row.
    if "labels" in arrays and len({_length(parts, -1) for parts in arrays.values()}) == 1:
        return {what: [part.transposed() for part in parts] for what, parts in arrays.items()}
    shapes = ", ".join(
        f"{what} {[tuple(part.array.shape) for part in parts]}" for what, parts in arrays.items()
    )
    raise DataError(
        f"the numbers of rows differ{f' in {split!r}' if split else ''}: {shapes};"
        " map an array with one item per column as <array>.T; unpaired views need labels.<modality>"
    )


def _length(parts: Sequence[_Part], axis: int) -> int:
    return sum(part.array.shape[axis] for part in parts)


def _stacked(parts: Mapping[str, list[_Part]]) -> list[_Part]:
    return [part for split in sorted(parts, key=_split_order) for part in parts[split]]


def _split_order(split: str) -> tuple[int, str]:
    return (_ORDER.index(split), split) if split in _ORDER else (len(_ORDER), split)


def _quoted(splits: Sequence[str]) -> str:
    return ", ".join(repr(split) if split else "all rows" for split in splits)


def _inventory(arrays: Arrays, columns: Columns) -> str:
    """List what the files hold, for error messages."""
    shapes = ", ".join(_outline(k, a) + _span(_members(k, arrays)) for k, (a, _) in arrays.items())
    parts = [f"the arrays are {shapes}"] if arrays else []
    parts += [f"the columns are {', '.join(sorted(columns))}"] if columns else []
    return ", ".join(parts) or "the files are empty"


def _span(members: Sequence[str]) -> str:
    return f" of columns {members[0]} … {members[-1]}" if members else ""


def _outline(name: str, array: Readable) -> str:
    """Such as ``image (200, 64)``; the type is added if it is not numeric."""
    kind = "" if array.dtype.kind in "biuf" else f" of {array.dtype}"
    return f"{name} {tuple(array.shape)}{kind}"

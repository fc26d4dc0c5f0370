"""From named arrays to the parts of a data set: roles, orientation, stacking, labels, splits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.labels import check_labels
from crossbit.data.lazy import Stack, turned
from crossbit.data.naming import Role, mapped_roles
from crossbit.data.roles import Arrays, Columns, is_vector, usual_roles
from crossbit.data.rowlists import RowList
from crossbit.data.sources import Source
from crossbit.data.storage import Readable
from crossbit.errors import DataError

_ORDER = ("train", "validation", "test", "query", "database")
_Parts = dict[str, list[Readable]]


@dataclass
class Assembly:
    """The parts of a data set as they come together.

    Attributes:
        views: Modality → part → arrays. The part of all rows is called ``""``.
        labels: Modality, or ``""`` for all of them, → part → arrays.
        splits: Part → its rows, as a file lists them.
        first_class: The number of the first class, where classes are numbers: 1 in MATLAB, else 0.
        classes: Names of the classes, where the labels are words.
        payload: Column → one value a row.
        unused: What found no use, such as ``"y (200,)"``.
    """

    views: dict[str, _Parts] = field(default_factory=dict)
    labels: dict[str, _Parts] = field(default_factory=dict)
    splits: dict[str, RowList] = field(default_factory=dict)
    first_class: int = 0
    classes: list[str] = field(default_factory=list)
    payload: dict[str, list[Any]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """The arguments of `Dataset`, with `Stack`s for views."""
        groups = [[m] for m in self.views] if self.unpaired else [list(self.views)]
        for group in groups:
            self._stand_upright(group)
        views = {m: Stack(m, _stacked(parts)) for m, parts in self.views.items()}
        labels = {m: _labels(_stacked(parts), self.first_class) for m, parts in self.labels.items()}
        n = max(view.shape[0] for view in views.values())
        return {
            "views": views,
            "labels": labels if self.unpaired else labels.get(""),
            "splits": self._stacked_splits()
            | {part: some.rows(n) for part, some in self.splits.items()},
            "payload": [dict(zip(self.payload, row, strict=True)) for row in self._payload_rows(n)]
            or None,
            "classes": self.classes,
        }

    @property
    def unpaired(self) -> bool:
        """Whether each modality has labels of its own."""
        return any(self.labels.keys() - {""})

    def _stand_upright(self, modalities: Sequence[str]) -> None:
        """Check that the views of a group and their labels have the same parts and lengths, turning them if need be."""
        members = {f"view {m!r}": self.views[m] for m in modalities}
        owner = modalities[0] if self.unpaired else ""
        if owner in self.labels:
            members["labels"] = self.labels[owner]
        everything = sorted({part for parts in members.values() for part in parts}, key=_place)
        for what, parts in members.items():
            if absent := [part for part in everything if part not in parts]:
                raise DataError(
                    f"{what}: nothing for {_named(absent)}, others have {_named(everything)}; map it explicitly"
                )
        for part in everything:
            arrays = {what: parts[part] for what, parts in members.items()}
            for what, upright in _upright(arrays, part).items():
                members[what][part] = upright

    def _stacked_splits(self) -> dict[str, Any]:
        """Row numbers of the parts as they were stacked."""
        spans: dict[str, dict[str, NDArray[np.int64]]] = {}
        for m, parts in self.views.items():
            first = 0
            for part in sorted(parts, key=_place):
                size = sum(array.shape[0] for array in parts[part])
                spans.setdefault(part, {})[m] = np.arange(first, first + size)
                first += size
        return {
            part: rows if self.unpaired else next(iter(rows.values()))
            for part, rows in spans.items()
            if part
        }

    def _payload_rows(self, n: int) -> Iterable[tuple[Any, ...]]:
        if wrong := {
            name: len(values) for name, values in self.payload.items() if len(values) != n
        }:
            raise DataError(f"columns {wrong} do not have one value for each of {n} rows")
        return zip(*self.payload.values(), strict=True)


def assemble(sources: Sequence[Source], names: Mapping[str, str] | None) -> Assembly:
    """Give every array its role: by the map, or by the names the field uses."""
    arrays, columns = _merge(sources)
    found = Assembly()
    found.first_class = max(source.first_row for source in sources)
    roles = mapped_roles(names) if names is not None else usual_roles(arrays, columns)
    for role, name in roles:
        _place_array(found, role, name, arrays, columns)
    used = {name for _, name in roles}
    found.payload = {
        name: values for name, values in columns.items() if name not in used and name != "split"
    }
    for part in dict.fromkeys(columns.get("split", ())):
        found.splits[str(part)] = RowList(
            "split", np.array([value == part for value in columns["split"]])
        )
    found.unused = [
        _outline(name, array)
        for name, (array, _) in arrays.items()
        if not used & {name, f"{name}.T"}
    ]
    if not found.views:
        raise DataError(
            f"no views found; {_present(arrays, columns)}; say which is what, such as --map image=<array>"
        )
    return found


def _merge(
    sources: Sequence[Source],
) -> tuple[dict[str, tuple[Readable, Source]], dict[str, list[Any]]]:
    """All arrays and columns by name; a file of a single nameless array lends it its own name."""
    arrays: dict[str, tuple[Readable, Source]] = {}
    columns: dict[str, list[Any]] = {}
    for source in sources:
        lone = len(sources) > 1 and source.free and len(source.arrays) == 1
        for name, array in source.arrays.items():
            name = source.path.stem if lone else name
            if name in arrays:
                raise DataError(
                    f"{source.path} and {arrays[name][1].path} both hold {name!r}; convert one at a time"
                )
            arrays[name] = array, source
        for name, values in source.columns.items():
            if columns.setdefault(name, values) != values:
                raise DataError(
                    f"{source.path}: the column {name!r} differs from that of another file"
                )
    return arrays, columns


def _place_array(
    found: Assembly,
    role: Role,
    name: str,
    arrays: Arrays,
    columns: Columns,
) -> None:
    """Put an array, or a column of labels, where its role says."""
    if role.kind == "labels" and name in columns:
        classes, labels = _from_words(columns[name])
        found.classes, found.first_class = found.classes or classes, 0
        found.labels.setdefault(role.modality, {}).setdefault(role.part, []).append(labels)
        return
    array, source = _find(name, arrays, columns)
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{source.path}: {name!r}, taken for {role.kind}, holds {array.dtype} instead of real numbers;"
            " say with --map which arrays to use"
        )
    if role.kind == "split":
        found.splits[role.part] = RowList(name, np.asarray(array[:]).reshape(-1), source.first_row)
    elif role.kind == "labels":
        labels = np.asarray(array[:])
        flat = labels.reshape(-1) if is_vector(array) else labels
        found.labels.setdefault(role.modality, {}).setdefault(role.part, []).append(flat)
    else:
        found.views.setdefault(role.kind, {}).setdefault(role.part, []).append(array)


def _find(name: str, arrays: Arrays, columns: Columns) -> tuple[Readable, Source]:
    """An array by its name, turned if the name ends with ``.T``."""
    turn = name.endswith(".T") and name not in arrays
    key = name[:-2] if turn else name
    if key not in arrays:
        raise DataError(f"there is no array {key!r}; {_present(arrays, columns)}")
    array, source = arrays[key]
    return (turned(array) if turn else array), source


def _from_words(values: Sequence[Any]) -> tuple[list[str], NDArray[Any]]:
    """Names of the classes and the labels of each row: numbers as they are, words in order, lists as several labels.

    An empty value is unknown.
    """
    if any(isinstance(value, list) for value in values):
        names, flat = _from_words([word for value in values for word in value or ()])
        several = np.zeros((len(values), flat.max(initial=-1) + 1), np.bool_)
        several[np.repeat(np.arange(len(values)), [len(value or ()) for value in values]), flat] = (
            True
        )
        return names, several
    if all(
        value is None or (isinstance(value, int | float) and value == int(value))
        for value in values
    ):
        return [], np.array([-1 if value is None else int(value) for value in values], np.int64)
    names = sorted({str(value) for value in values if value not in (None, "")})
    number = {name: k for k, name in enumerate(names)}
    return names, np.array([number.get(str(value), -1) for value in values], np.int64)


def _labels(arrays: Sequence[Readable], first_class: int) -> NDArray[Any]:
    """Classes from 0, or a boolean matrix where some row has several; MATLAB's classes count from 1."""
    parts = [np.asarray(array[:]) for array in arrays]
    if len({part.shape[1:] for part in parts}) > 1:
        raise DataError(
            f"labels: the parts are of different kinds, shapes {[part.shape for part in parts]}"
        )
    labels = check_labels(np.concatenate(parts), None)
    if labels.ndim == 1:
        least = labels[labels >= 0].min(initial=np.iinfo(np.int64).max)
        return (
            np.where(labels >= 0, labels - 1, labels) if first_class == 1 and least >= 1 else labels
        )
    if (labels.sum(axis=1) <= 1).all():
        return np.where(labels.any(axis=1), labels.argmax(axis=1), -1)
    return labels


def _upright(arrays: Mapping[str, list[Readable]], part: str) -> dict[str, list[Readable]]:
    """Arrays of one part, all with one item a row: as they are, or all turned when only their last axes agree."""
    if len({_length(some, 0) for some in arrays.values()}) == 1:
        return dict(arrays)
    if len({_length(some, -1) for some in arrays.values()}) == 1:
        return {what: [turned(array) for array in some] for what, some in arrays.items()}
    shapes = ", ".join(
        f"{what} {[tuple(array.shape) for array in some]}" for what, some in arrays.items()
    )
    raise DataError(
        f"rows that belong together differ in number{f' in {part!r}' if part else ''}: {shapes};"
        " an array with one item a column is mapped as <array>.T, unpaired views need labels.<modality>"
    )


def _length(arrays: Sequence[Readable], axis: int) -> int:
    return sum(array.shape[axis] for array in arrays)


def _stacked(parts: Mapping[str, list[Readable]]) -> list[Readable]:
    return [array for part in sorted(parts, key=_place) for array in parts[part]]


def _place(part: str) -> tuple[int, str]:
    return (_ORDER.index(part), part) if part in _ORDER else (len(_ORDER), part)


def _named(parts: Sequence[str]) -> str:
    return ", ".join(repr(part) if part else "all rows" for part in parts)


def _present(arrays: Arrays, columns: Columns) -> str:
    """What there is to choose from."""
    shapes = ", ".join(_outline(name, array) for name, (array, _) in sorted(arrays.items()))
    parts = [f"the arrays are {shapes}"] if arrays else []
    parts += [f"the columns are {', '.join(sorted(columns))}"] if columns else []
    return ", ".join(parts) or "the files are empty"


def _outline(name: str, array: Readable) -> str:
    """Such as ``image (200, 64)``; of what holds no numbers, also what it holds."""
    kind = "" if array.dtype.kind in "biuf" else f" of {array.dtype}"
    return f"{name} {tuple(array.shape)}{kind}"

"""Which array of some files is what, judging by their names and, where a name says little, by what they hold."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from crossbit.data.lazy import Opaque
from crossbit.data.naming import Role, usual_role
from crossbit.data.sources import Source
from crossbit.data.storage import Readable
from crossbit.errors import DataError

Arrays = Mapping[str, tuple[Readable, Source]]
"""Name → an array and the file that holds it."""

Columns = Mapping[str, list[Any]]
"""Name → one value a row."""

_LETTERS = ("L", "y", "Y")  # of labels, where no longer name tells which they are


def usual_roles(arrays: Arrays, columns: Columns) -> list[tuple[Role, str]]:
    """Roles and names of the arrays and columns that have one by the conventions of `crossbit.data.naming`."""
    spelled = _spelled(arrays)
    roles = dict(_by_name(arrays, spelled))
    for name in columns:
        role = usual_role(name, free=False, rows=False)
        if role is not None and role.kind == "labels":
            roles[name] = role
    if all(role.kind != "labels" for role in roles.values()):
        roles |= dict.fromkeys(_lettered_labels(arrays, columns, roles), Role("labels"))
    roles |= dict(_narrow_views(arrays, spelled, roles))
    found: dict[Role, str] = {}
    for name, role in roles.items():
        if role in found:
            raise DataError(
                f"{found[role]!r} and {name!r} both look like {role.kind}; say which with --map {role.kind}=…"
            )
        found[role] = name
    return list(found.items())


def is_vector(array: Readable) -> bool:
    """Whether an array is a row or a column, as MATLAB has it."""
    return len(array.shape) < 2 or (len(array.shape) == 2 and 1 in array.shape)


def _is_column(array: Readable) -> bool:
    return len(array.shape) == 1 or (len(array.shape) == 2 and array.shape[1] == 1)


def _spelled(arrays: Arrays) -> dict[str, str]:
    """Names as a modality may have them: without their group where that is no loss, signs as underscores."""
    last = {
        name: re.split(r"[./]", name)[-1] if source.free else name
        for name, (_, source) in arrays.items()
    }
    count = Counter(last.values())
    chosen = {name: short if count[short] == 1 else name for name, short in last.items()}
    return {
        name: re.sub(r"\W+", "_", some).strip("_") if arrays[name][1].free else some
        for name, some in chosen.items()
    }


def _by_name(arrays: Arrays, spelled: Mapping[str, str]) -> Iterator[tuple[str, Role]]:
    for name, (array, source) in arrays.items():
        if not spelled[name]:
            raise DataError(
                f"{source.path}: {name!r} cannot name a modality; name it with --map <modality>={name}"
            )
        opaque = isinstance(array, Opaque)
        role = usual_role(spelled[name], free=source.free and not opaque, rows=is_vector(array))
        if (
            role is not None
            and role.kind == "text"
            and spelled[name][0] in "yY"
            and _is_column(array)
        ):
            role = Role(
                "labels", role.part
            )  # Y_tr is text as a matrix; y_train with one number a row is not
        # What holds no numbers is refused where it is named like a view, and otherwise left unused.
        if role is not None and not (opaque and role.kind in ("labels", "split")):
            yield name, role


def _lettered_labels(arrays: Arrays, columns: Columns, roles: Mapping[str, Role]) -> Iterator[str]:
    """The first letter of labels that looks like it, beside a view of as many rows."""
    for letter in _LETTERS:
        lengths = _view_lengths(arrays, roles, but=letter)
        if (letter in columns and _are_classes(columns[letter])) or (
            letter in arrays
            and _looks_like_labels(arrays[letter][0], lengths, one_hot=letter == "Y")
        ):
            yield letter
            return


def _view_lengths(arrays: Arrays, roles: Mapping[str, Role], *, but: str = "") -> set[int]:
    views = [
        name for name, role in roles.items() if role.kind not in ("labels", "split") and name != but
    ]
    return {array.shape[0] for array, _ in (arrays[name] for name in views) if array.shape}


def _are_classes(values: Sequence[Any]) -> bool:
    return all(value is None or isinstance(value, str | int) for value in values)


def _looks_like_labels(array: Readable, lengths: set[int], *, one_hot: bool) -> bool:
    """Whole numbers, one for each row of a view, or zeros and ones; a single one a row where that is asked."""
    vector = is_vector(array)
    if array.dtype.kind not in "biuf" or not array.shape or len(array.shape) > 2:
        return False
    if (max(array.shape) if vector else array.shape[0]) not in lengths:
        return False
    values = np.asarray(array[:])
    if vector:
        return bool(
            np.isfinite(values).all() and (values == np.trunc(values)).all() and values.min() >= -1
        )
    return bool(np.isin(values, (0, 1)).all() and (not one_hot or (values.sum(axis=1) == 1).all()))


def _narrow_views(
    arrays: Arrays, spelled: Mapping[str, str], roles: Mapping[str, Role]
) -> Iterator[tuple[str, Role]]:
    """Single columns of numbers, one for each row of a view: modalities of one feature."""
    lengths = _view_lengths(arrays, roles)
    for name, (array, source) in arrays.items():
        fits = len(array.shape) == 2 and _is_column(array) and array.shape[0] in lengths
        role = usual_role(
            spelled[name], free=source.free and not isinstance(array, Opaque), rows=False
        )
        if fits and role is not None and name not in roles and name not in _LETTERS:
            yield name, role

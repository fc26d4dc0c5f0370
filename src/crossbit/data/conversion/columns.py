"""Roles of arrays: which is a view, which labels, which a split, by naming convention or by map.

| array | role |
| --- | --- |
| ``I_tr T_tr L_tr``, ``I_te …``, ``I_db …``; ``XTrain YTrain …`` | image, text, labels of a split |
| ``XAll YAll LAll``, ``IAll``, ``FAll``, ``TAll``; ``images tags labels`` | the same, all rows |
| ``indexQuery``, ``train_idx``, ``param.indexDatabase``; ``train`` | row numbers of a split |
| ``L``, ``y``, ``Y``: one integer per row of a view, or zeros and ones; ``y_train`` | labels |
| any other name in .npz, .npy, .h5, .csv, .parquet: ``sound``, ``sound_train`` | a modality |
| ``sound_tr`` beside ``sound_te``, in any file | a modality, in parts |

A map that names a view is complete: arrays that it does not name have no role. A map of labels and
splits alone adds to the conventions.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossbit._validation import check_modality
from crossbit.data.conversion.lazy import Opaque, Source
from crossbit.data.storage import Readable
from crossbit.errors import DataError

Arrays = Mapping[str, tuple[Readable, Source]]
"""Name → an array and the file that holds it."""

Columns = Mapping[str, list[Any]]
"""Name → one value per row."""

_KINDS = {
    "image": ("i|x|f", "img|imgs|image|images|picture|pictures"),
    "text": ("t|y", "txt|text|texts|tag|tags"),
    "labels": ("l", "lab|label|labels|gnd|class|classes|category|cate"),
}
_SPLITS = {
    "train": "tr|train|training",
    "test": "te|test|testing",
    "validation": "val|validation",
    "query": "query|queries",
    "database": "db|re|retrieval|database",
    "": "all",
}
_ANY_SPLIT = "|".join(_SPLITS.values())
_INDEX = "idx|index|ind|inds|indices"
_ROW_NUMBERS = re.compile(
    rf"(?:.*\.)?(?:(?:{_INDEX})_?({_ANY_SPLIT})|({_ANY_SPLIT})_?(?:{_INDEX}))", re.IGNORECASE
)
_FREE_NAME = re.compile(r"(\w+?)_(train|test|validation|val|query|database|retrieval)")
_PART_NAME = re.compile(rf"(\w+?)_({_ANY_SPLIT})")  # sound_tr is a part only beside sound_te
_TARGET = re.compile(
    r"(?:split:(?P<split>\w+))|(?P<what>[^.:]+)(?:\.(?P<modality>[^.:]+))?(?::(?P<part>\w+))?"
)
_NO_VIEWS = ("labels", "split")  # kinds of roles
_LABEL_LETTERS = ("L", "y", "Y")  # mean labels if no longer name does


@dataclass(frozen=True)
class Role:
    """What an array holds.

    Attributes:
        kind: A modality, ``"labels"``, or ``"split"`` for the row numbers of a split.
        split: The split whose rows it holds or lists; empty for all rows.
        modality: The modality that labels belong to; empty for all.
    """

    kind: str
    split: str = ""
    modality: str = ""


def parse_map(entries: Iterable[str]) -> dict[str, str]:
    """Read ``--map`` entries, each ``target=array`` or ``target=array,array``.

    | target | meaning |
    | --- | --- |
    | ``image`` | all rows of the modality ``image``; several arrays are stacked |
    | ``image:train`` | its rows in the split ``train`` |
    | ``labels``, ``labels:train`` | labels of all modalities |
    | ``labels.image``, ``labels.image:train`` | labels of one modality, for unpaired views |
    | ``split:query`` | row numbers of the split ``query`` (from 1 in .mat files, else from 0) |

    An array with one item per column is written ``XAll.T``. Columns of a table are also written
    as a range, ``left=p0:p31``, or as a pattern, ``left=p*``; they stand side by side in the view.

    Example:
        >>> parse_map(["image:train=I_tr", "labels=L_tr,L_te"])
        {'image:train': 'I_tr', 'labels': 'L_tr,L_te'}
    """
    names: dict[str, str] = {}
    for entry in entries:
        target, equals, arrays = entry.partition("=")
        target = target.strip()
        if not equals or not arrays:
            raise DataError(
                f"a map entry must be target=array, such as image:train=I_tr; got {entry!r}"
            )
        _parse_target(target)
        if target in names:
            raise DataError(
                f"the map contains {target!r} twice; stack arrays as {target}=first,second"
            )
        names[target] = arrays.strip()
    return names


def assign_roles(
    arrays: Arrays, columns: Columns, names: Mapping[str, str] | None
) -> list[tuple[Role, str]]:
    """Return roles and the names of their arrays or columns.

    Args:
        arrays: All arrays.
        columns: All columns of tables.
        names: The user's map, target → array names; by default the conventions listed above.
    """
    mapped = [
        (_parse_target(target), name.strip())
        for target, listed in (names or {}).items()
        for name in listed.split(",")
    ]
    if any(role.kind not in _NO_VIEWS for role, _ in mapped):
        return mapped
    mapped_names = {name.removesuffix(".T") for _, name in mapped} | {name for _, name in mapped}
    others = {name: array for name, array in arrays.items() if name not in mapped_names}
    other_columns = {name: cells for name, cells in columns.items() if name not in mapped_names}
    return [*_conventional_roles(others, other_columns, {role for role, _ in mapped}), *mapped]


def _conventional_roles(
    arrays: Arrays, columns: Columns, mapped: Set[Role]
) -> list[tuple[Role, str]]:
    """Return roles by naming convention, except labels and splits that a map assigns."""
    labels_are_mapped = any(role.kind == "labels" for role in mapped)
    short_names = _short_names(arrays)
    roles = dict(_roles_by_name(arrays, short_names))
    for name in columns:
        role = _conventional_role(name, free_names=False, is_vector=False)
        if role is not None and role.kind == "labels":
            roles[name] = role
    if not labels_are_mapped and all(role.kind != "labels" for role in roles.values()):
        roles |= dict.fromkeys(_lettered_labels(arrays, columns, roles), Role("labels"))
    roles |= dict(_narrow_views(arrays, short_names, roles))
    owners: dict[Role, str] = {}
    for name, role in roles.items():
        if role in mapped or (labels_are_mapped and role.kind == "labels"):
            continue
        if role in owners:
            raise DataError(
                f"{owners[role]!r} and {name!r} both look like {role.kind};"
                f" choose one with --map {role.kind}=…"
            )
        owners[role] = name
    return list(owners.items())


def _parse_target(target: str) -> Role:
    """Parse the left-hand side of a map entry."""
    match = _TARGET.fullmatch(target)
    if match is None or (match["modality"] and match["what"] != "labels"):
        raise DataError(
            "the target of a map entry must be like image, image:train, labels, labels:train,"
            f" labels.image or split:query; got {target!r}"
        )
    if match["split"]:
        return Role("split", match["split"])
    modality = check_modality(match["modality"]) if match["modality"] else ""
    return Role(check_modality(match["what"]), match["part"] or "", modality)


def _conventional_role(
    name: str, *, free_names: bool, is_vector: bool, in_parts: Set[str] = frozenset()
) -> Role | None:
    """Role of an array by its name, None for a name that implies none.

    Args:
        name: The name.
        free_names: Whether any other name is a modality.
        is_vector: Whether the array is a vector, as lists of row numbers are.
        in_parts: Names that several arrays have in common, such as ``sound_tr`` and ``sound_te``.
    """
    if is_vector and (match := _ROW_NUMBERS.fullmatch(name)):
        return Role("split", _split_name(match[1] or match[2]))
    if is_vector and free_names and _split_name(name):
        return Role("split", _split_name(name))
    for kind, (short, long) in _KINDS.items():
        # A single letter alone implies nothing: X may be anything, XAll and X_tr may not.
        pattern = rf"(?:{short})_?({_ANY_SPLIT})|(?:{long})(?:_?({_ANY_SPLIT}))?"
        if match := re.fullmatch(pattern, name, re.IGNORECASE):
            return Role(kind, _split_name(match[1] or match[2] or ""))
    match = _PART_NAME.fullmatch(name)
    if match and match[1] in in_parts and not is_vector:
        return Role(check_modality(match[1]), _split_name(match[2]))
    if not free_names or is_vector:
        return None
    if match := _FREE_NAME.fullmatch(name):
        return Role(check_modality(match[1]), _split_name(match[2]))
    return Role(check_modality(name))


def _split_name(word: str) -> str:
    return next((name for name, words in _SPLITS.items() if word.lower() in words.split("|")), "")


def _is_vector(array: Readable) -> bool:
    """Whether an array is one row or one column, as MATLAB stores vectors."""
    return len(array.shape) < 2 or (len(array.shape) == 2 and 1 in array.shape)


def _is_column(array: Readable) -> bool:
    return len(array.shape) == 1 or (len(array.shape) == 2 and array.shape[1] == 1)


def _short_names(arrays: Arrays) -> dict[str, str]:
    """Names as modalities: without their group if still unique, other characters replaced by _."""
    last = {
        name: re.split(r"[./]", name)[-1] if source.free_names else name
        for name, (_, source) in arrays.items()
    }
    count = Counter(last.values())
    unique = {name: short if count[short] == 1 else name for name, short in last.items()}
    return {
        name: re.sub(r"\W+", "_", short).strip("_") if arrays[name][1].free_names else short
        for name, short in unique.items()
    }


def _names_in_parts(short_names: Iterable[str]) -> set[str]:
    """Return the names that occur with two or more splits, such as sound_tr and sound_te."""
    splits: dict[str, set[str]] = {}
    for name in short_names:
        if match := _PART_NAME.fullmatch(name):
            splits.setdefault(match[1], set()).add(_split_name(match[2]))
    return {name for name, parts in splits.items() if len(parts) > 1}


def _roles_by_name(arrays: Arrays, short_names: Mapping[str, str]) -> Iterator[tuple[str, Role]]:
    in_parts = _names_in_parts(short_names.values())
    for name, (array, source) in arrays.items():
        short = short_names[name]
        if not short:
            raise DataError(
                f"{source.path}: {name!r} is not a valid modality name;"
                f" name it with --map <modality>={name}"
            )
        opaque = isinstance(array, Opaque)
        role = _conventional_role(
            short,
            free_names=source.free_names and not opaque,
            is_vector=_is_vector(array),
            in_parts=in_parts,
        )
        # Y_tr is text if it is a matrix; y_train with one number per row is labels.
        if role is not None and role.kind == "text" and short[0] in "yY" and _is_column(array):
            role = Role("labels", role.split)
        # An array without numbers is an error if it is named like a view, otherwise it is unused.
        if role is not None and not (opaque and role.kind in _NO_VIEWS):
            yield name, role


def _lettered_labels(arrays: Arrays, columns: Columns, roles: Mapping[str, Role]) -> Iterator[str]:
    """The first of the letters L, y, Y whose values look like labels of a view."""
    for letter in _LABEL_LETTERS:
        lengths = _view_lengths(arrays, roles, exclude=letter)
        if (letter in columns and _are_classes(columns[letter])) or (
            letter in arrays
            and _looks_like_labels(arrays[letter][0], lengths, one_hot=letter == "Y")
        ):
            yield letter
            return


def _view_lengths(arrays: Arrays, roles: Mapping[str, Role], *, exclude: str = "") -> set[int]:
    views = [name for name, role in roles.items() if role.kind not in _NO_VIEWS and name != exclude]
    return {array.shape[0] for array, _ in (arrays[name] for name in views) if array.shape}


def _are_classes(values: Sequence[Any]) -> bool:
    return all(value is None or isinstance(value, str | int) for value in values)


def _looks_like_labels(array: Readable, lengths: set[int], *, one_hot: bool) -> bool:
    """Whether an array holds one integer per row of a view, or zeros and ones.

    With ``one_hot``, zeros and ones count as labels only if each row has exactly one 1.
    """
    vector = _is_vector(array)
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
    arrays: Arrays, short_names: Mapping[str, str], roles: Mapping[str, Role]
) -> Iterator[tuple[str, Role]]:
    """Single columns of numbers with one value per row of a view: modalities of one feature."""
    lengths = _view_lengths(arrays, roles)
    for name, (array, source) in arrays.items():
        fits = len(array.shape) == 2 and _is_column(array) and array.shape[0] in lengths
        role = _conventional_role(
            short_names[name],
            free_names=source.free_names and not isinstance(array, Opaque),
            is_vector=False,
        )
        if fits and role is not None and name not in roles and name not in _LABEL_LETTERS:
            yield name, role

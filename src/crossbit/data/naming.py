"""Which array is what: the names that the field uses, and the user's own map.

| array | role |
| --- | --- |
| ``I_tr T_tr L_tr``, ``I_te …``, ``I_db …``; ``XTrain YTrain LTrain`` | image, text, labels of train, test, database |
| ``XAll YAll LAll``, ``IAll``, ``FAll``, ``TAll``; ``images tags labels`` | the same, of all rows |
| ``indexQuery``, ``train_idx``, ``param.indexDatabase``; ``train``, ``test`` | row numbers of a part |
| ``L``, ``y``, ``Y``: a whole number for each row of a view, or zeros and ones; ``y_train`` of one a row | labels |
| any other name in .npz, .npy, .h5, .csv, .parquet: ``sound``, ``sound_train`` | a modality of that name |
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crossbit._validation import modality_name
from crossbit.errors import DataError

_KINDS = {
    "image": ("i|x|f", "img|imgs|image|images|picture|pictures"),
    "text": ("t|y", "txt|text|texts|tag|tags"),
    "labels": ("l", "lab|label|labels|gnd|class|classes|category|cate"),
}
_PARTS = {
    "train": "tr|train|training",
    "test": "te|test|testing",
    "validation": "val|validation",
    "query": "query|queries",
    "database": "db|re|retrieval|database",
    "": "all",
}
_ANY_PART = "|".join(_PARTS.values())
_INDEX = "idx|index|ind|inds|indices"
_ROWS = re.compile(
    rf"(?:.*\.)?(?:(?:{_INDEX})_?({_ANY_PART})|({_ANY_PART})_?(?:{_INDEX}))", re.IGNORECASE
)
_FREE = re.compile(r"(\w+?)_(train|test|validation|val|query|database|retrieval)")
_TARGET = re.compile(
    r"(?:split:(?P<split>\w+))|(?P<what>[^.:]+)(?:\.(?P<modality>[^.:]+))?(?::(?P<part>\w+))?"
)


@dataclass(frozen=True)
class Role:
    """What an array is.

    Attributes:
        kind: A modality, ``"labels"``, or ``"split"`` for the row numbers of a part.
        part: The part whose rows it holds, or the rows of which it lists; empty for all rows.
        modality: The modality that labels belong to, empty for all.
    """

    kind: str
    part: str = ""
    modality: str = ""


def usual_role(name: str, *, free: bool, rows: bool) -> Role | None:
    """The role of an array by its name, or nothing for a name that says none.

    Args:
        name: The name.
        free: Whether any other name is a modality's.
        rows: Whether it is a vector, as row numbers are.
    """
    if rows and (match := _ROWS.fullmatch(name)):
        return Role("split", _part(match[1] or match[2]))
    if rows and free and _part(name):
        return Role("split", _part(name))
    for kind, (short, long) in _KINDS.items():
        # A single letter alone is no name: X may be anything, XAll and X_tr may not.
        pattern = rf"(?:{short})_?({_ANY_PART})|(?:{long})(?:_?({_ANY_PART}))?"
        if match := re.fullmatch(pattern, name, re.IGNORECASE):
            return Role(kind, _part(match[1] or match[2] or ""))
    if not free or rows:
        return None
    match = _FREE.fullmatch(name)
    return Role(modality_name(match[1]), _part(match[2])) if match else Role(modality_name(name))


def _part(word: str) -> str:
    return next((part for part, words in _PARTS.items() if word.lower() in words.split("|")), "")


def parse_map(entries: Iterable[str]) -> dict[str, str]:
    """Read ``--map`` entries, each ``target=array`` or ``target=array,array``.

    | target | meaning |
    | --- | --- |
    | ``image`` | all rows of the modality ``image``; several arrays are stacked |
    | ``image:train`` | its rows in the part ``train`` |
    | ``labels``, ``labels:train`` | labels of all modalities |
    | ``labels.image``, ``labels.image:train`` | labels of one modality, for unpaired views |
    | ``split:query`` | row numbers of the part ``query`` (from 1 in .mat files, else from 0) |

    An array whose items are its columns is written ``XAll.T``.

    Example:
        >>> parse_map(["image:train=I_tr", "labels=L_tr,L_te"])
        {'image:train': 'I_tr', 'labels': 'L_tr,L_te'}
    """
    found: dict[str, str] = {}
    for entry in entries:
        target, equals, arrays = entry.partition("=")
        if not equals or not arrays:
            raise DataError(
                f"a map entry is written target=array, such as image:train=I_tr; got {entry!r}"
            )
        role_of(target.strip())
        if target.strip() in found:
            raise DataError(
                f"the map names {target.strip()!r} twice; stack arrays as {target.strip()}=first,second"
            )
        found[target.strip()] = arrays.strip()
    return found


def role_of(target: str) -> Role:
    """The role that a target of a map names."""
    match = _TARGET.fullmatch(target)
    if match is None or (match["modality"] and match["what"] != "labels"):
        raise DataError(
            "a map's target is written image, image:train, labels, labels:train, labels.image or split:query;"
            f" got {target!r}"
        )
    if match["split"]:
        return Role("split", match["split"])
    modality = modality_name(match["modality"]) if match["modality"] else ""
    return Role(modality_name(match["what"]), match["part"] or "", modality)


def mapped_roles(names: Mapping[str, str]) -> list[tuple[Role, str]]:
    """Roles and array names of a map, in its order."""
    return [
        (role_of(target), name.strip())
        for target, arrays in names.items()
        for name in arrays.split(",")
    ]

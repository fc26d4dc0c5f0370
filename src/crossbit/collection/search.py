"""The options of a search, listed once.

`Collection.search`, the HTTP API, the command line and the clients are made from the fields of
`SearchOptions`: a new option is one field, with its meaning, and one entry of `SearchKeywords`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from inspect import Parameter, getdoc, signature
from typing import Any, Literal, Self, TypedDict, TypeVar

from crossbit._validation import check_fraction, check_integer, check_known
from crossbit.collection.filters import Conditions, parse_filter
from crossbit.collection.payloads import check_id, check_text
from crossbit.collection.rerank import CODES, RERANK_BY
from crossbit.collection.store import Capabilities
from crossbit.collection.types import Id
from crossbit.errors import DataError

Method = TypeVar("Method", bound=Callable[..., Any])

AUTO = "auto"
ALL = "*"


@dataclass(frozen=True)
class Option:
    """One search option, for whatever offers it to users.

    Args:
        name: Its name.
        type: Annotation of its value in Python.
        json: Annotation of its value in JSON.
        default: Its default.
        doc: What it means.
    """

    name: str
    type: Any
    json: Any
    default: Any
    doc: str


def _json(annotation: object) -> dict[str, object]:
    """Return the metadata of a field whose value in JSON has another type."""
    return {"json": annotation}


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What a search returns; every value is checked here, once.

    Args:
        k: Number of items to return per query.
        target: Modalities to search, such as ``"image"``; ``"*"`` searches all. Without it, all but
            the query's own are searched, or the query's own if no item has another. Each item is
            returned once, by its nearest modality.
        filter: Only items whose payload meets all conditions, such as ``{"year": {">=": 2010},
            "tags": {"has": "dog"}}``; the operators are ``== != > >= < <= in has``, and ``or``,
            ``and`` and ``not`` combine filters.
        min_similarity: Leave out less similar hits, 0 to 1; ``"auto"`` leaves out weak ones.
        group_by: Return one item, the nearest, per value of this payload field; looks at the
            nearest 10,000 items. Items without the field are groups of their own.
        offset: Skip this many of the nearest hits, such as those of earlier pages.
        exclude: Leave out this item, such as the one that the query is.
        rerank: Take this many nearest items, at least ``offset + k``, and reorder them.
        rerank_by: What they are reordered by: ``"codes"``, the Hamming distance in which a bit
            counts as much as the query's score of it is far from 0; ``"scores"``, the cosine of the
            query's scores and those that the collection keeps; ``"features"``, the cosine of
            feature rows if the query's modality is the only target, otherwise of scores made from
            them. Items written as codes come last.
        with_codes: Return the code of each hit, too.
    """

    k: int = 10
    target: str | Iterable[str] | None = field(default=None, metadata=_json(list[str] | None))
    filter: Mapping[str, Any] | None = field(default=None, metadata=_json(dict[str, Any] | None))
    min_similarity: float | str = field(default=0.0, metadata=_json(float | Literal["auto"]))
    group_by: str | None = None
    offset: int = 0
    exclude: Id | None = None
    rerank: int | None = None
    rerank_by: str = field(default=CODES, metadata=_json(Literal["codes", "scores", "features"]))
    with_codes: bool = False

    def __post_init__(self) -> None:
        """Check the values, and write those with several forms in one."""
        self._set("k", check_integer(self.k, "k", least=1))
        self._set("offset", check_integer(self.offset, "offset", least=0))
        self._set("target", _names(self.target))
        if self.exclude is not None:
            self._set("exclude", check_id(self.exclude))
        if self.group_by is not None:
            if not isinstance(self.group_by, str):
                raise DataError(f"group_by must be the name of a field, got {self.group_by!r}")
            check_text(self.group_by, "group_by")
        if not isinstance(self.min_similarity, str):
            check_fraction(self.min_similarity, "min_similarity")
        elif self.min_similarity != AUTO:
            raise DataError(
                "min_similarity must be a number between 0 and 1, or 'auto', got"
                f" {self.min_similarity!r}"
            )
        self._check_rerank()
        _ = self.conditions

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_rerank(self) -> None:
        if self.rerank_by not in RERANK_BY:
            raise DataError(
                f"rerank_by must be one of {', '.join(RERANK_BY)}, got {self.rerank_by!r}"
            )
        if self.rerank is None:
            if self.rerank_by != CODES:
                raise DataError(
                    f"rerank_by={self.rerank_by!r} needs rerank, the number of candidates; got None"
                )
            return
        self._set("rerank", check_integer(self.rerank, "rerank", least=1))
        if self.rerank < self.end:
            wanted = f"k = {self.k}" if not self.offset else f"offset + k = {self.end}"
            raise DataError(f"rerank must be at least {wanted}, got {self.rerank}")

    @classmethod
    def all(cls) -> tuple[Option, ...]:
        """Return the options; what each means is read from the docstring of the class."""
        parts = re.split(r"^    (\w+): ", getdoc(cls) or "", flags=re.MULTILINE)
        docs = dict(zip(parts[1::2], (" ".join(part.split()) for part in parts[2::2]), strict=True))
        return tuple(
            Option(
                each.name,
                each.type,
                each.metadata.get("json", each.type),
                each.default,
                docs.get(each.name, ""),
            )
            for each in fields(cls)
        )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the options of a mapping, such as a JSON object; refuse names that are unknown."""
        known = [each.name for each in fields(cls)]
        if unknown := [name for name in values if name not in known]:
            raise DataError(f"unknown search option {unknown[0]!r}; known: {', '.join(known)}")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.target is not None:
            values["target"] = [*self.target]
        return {
            each.name: values[each.name]
            for each in fields(self)
            if values[each.name] != each.default
        }

    def check(self, capabilities: Capabilities, keep: Sequence[str]) -> None:
        """Reject what a store cannot do.

        Args:
            capabilities: What the store can do.
            keep: What it keeps beside the codes.
        """
        if self.offset and not capabilities.exact_ties:
            raise DataError(
                "offset needs a store that returns items at equal distance in a fixed order; this"
                " one does not, so ask for more items with k"
            )
        by = self.rerank_by
        if by != CODES and by not in keep:
            raise DataError(
                f"the collection keeps no {by}; use rerank_by='codes', or copy the items into a"
                f" collection that was created with keep={by!r}"
            )

    def targets(self, modality: str, modalities: Sequence[str]) -> list[str]:
        """Return the modalities to search for queries of a modality.

        The nearest codes of a query's own modality are mostly its own near copies, and would hide
        what the query is about; so it is searched only if it is the only one, or if it is named.
        """
        check_known(modality, modalities)
        if self.target is None:
            return [name for name in modalities if name != modality] or [modality]
        if self.target == (ALL,):
            return list(modalities)
        return [check_known(name, modalities) for name in self.target]

    @cached_property
    def conditions(self) -> Conditions:
        """The parsed filter."""
        return () if self.filter is None else parse_filter(self.filter)

    @property
    def end(self) -> int:
        """Number of hits up to the end of the page."""
        return self.offset + self.k


class SearchKeywords(TypedDict, total=False):
    """The fields of `SearchOptions` but ``k``, as keywords for type checkers."""

    target: str | Iterable[str] | None
    filter: Mapping[str, Any] | None
    min_similarity: float | str
    group_by: str | None
    offset: int
    exclude: Id | None
    rerank: int | None
    rerank_by: str
    with_codes: bool


def show_options(method: Method) -> Method:
    """Write the options into the signature and the docstring of a method, as `help` shows them.

    They take the place of ``**options``; ``k`` is a parameter of its own.
    """
    options = [each for each in SearchOptions.all() if each.name != "k"]
    kind = Parameter.KEYWORD_ONLY
    keywords = [
        Parameter(each.name, kind, default=each.default, annotation=each.type) for each in options
    ]
    given = signature(method)
    own = [each for each in given.parameters.values() if each.kind is not each.VAR_KEYWORD]
    order = [each for each in own if each.kind is not kind] + keywords
    order += [each for each in own if each.kind is kind]
    method.__signature__ = given.replace(parameters=order)  # type: ignore[attr-defined]
    docs = "\n".join(f"            {each.name}: {each.doc}" for each in options)
    method.__doc__ = (method.__doc__ or "").replace(_PLACE, docs)
    return method


_PLACE = "            **options: The fields of `SearchOptions`."


def _names(target: object) -> tuple[str, ...] | None:
    """Return the names of modalities, each once."""
    if target is None:
        return None
    if not isinstance(target, Iterable):
        raise DataError(f"target: expected names of modalities, got {target!r}")
    names = (target,) if isinstance(target, str) else tuple(dict.fromkeys(target))
    if not names:
        raise DataError("target: expected at least one modality, got none")
    return names

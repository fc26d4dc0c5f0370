"""The verbs of a collection as requests, without input and output.

Each verb is a generator: it yields a `RemoteCall`, receives its answer, and returns the result.
`Client` and `AsyncClient` only differ in how they send calls.
"""

import io
import tempfile
import zipfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from crossbit._validation import check_known
from crossbit.annotate import Tag, tag_list, vote
from crossbit.client.transport import RemoteCall
from crossbit.codes import Codes
from crossbit.collection import wire
from crossbit.collection.encoder import Encoder, Inputs
from crossbit.collection.filters import parse_filter
from crossbit.collection.paging import Page, check_budget
from crossbit.collection.payloads import check_ids, check_payloads, check_text
from crossbit.collection.store import Capabilities
from crossbit.collection.types import Finding, Id, Item, Results, Stats
from crossbit.errors import DataError
from crossbit.features.extractor import RawInput
from crossbit.index.budget import Budget
from crossbit.model.hashmodel import HashModel

T = TypeVar("T")
Steps: TypeAlias = Generator[RemoteCall, Any, T]
"""Calls to send, whose answers are sent back, and the result."""

Description: TypeAlias = dict[str, Any]
_IDS = 1000  # per request
_QUERIES = 256
_HITS = 50_000
_BYTES = 6 << 20  # of inputs per request, before base64


def describe() -> Steps[Description]:
    """Ask for the number of items, the modalities and what each accepts."""
    answer: Description = yield RemoteCall("GET", "")
    return answer


def upsert(
    about: Description,
    ids: Iterable[Id],
    views: Mapping[str, Inputs] | None,
    payload: Sequence[Mapping[str, Any] | None] | None,
    bookmark: tuple[str, int | None] | None,
    *,
    trusted: bool,
) -> Steps[None]:
    """Write items, in as few requests as their size allows."""
    checked = check_ids(ids)
    rows, _ = check_payloads(payload, checked)
    if not isinstance(views, Mapping | None):
        raise DataError(
            f"views must map modalities to rows, such as {{'image': X}}; got {type(views).__name__}"
        )
    arrays = {name: _as_rows(x) for name, x in (views or {}).items()}
    per_item = sum(_bytes_per_input(about, name, x) for name, x in arrays.items())
    size = max(1, min(_IDS, _BYTES // max(1, per_item)))
    blocks = _slices(len(checked), size) or [slice(0, 0)]
    for number, block in enumerate(blocks):
        # Wrong lengths are reported by the service, which sees the batch as it was passed.
        part = slice(None) if len(blocks) == 1 else block
        body: dict[str, Any] = {"ids": checked[block]}
        body["views"] = {name: _part(about, name, x, part, trusted) for name, x in arrays.items()}
        if rows is not None:
            body["payload"] = list(rows[block])
        if bookmark is not None and number == len(blocks) - 1:
            body["bookmark"] = list(bookmark)
        yield RemoteCall("POST", "/upsert", body, repeatable=False, writes=True)


def search(
    about: Description,
    modality: str,
    inputs: Inputs,
    k: int,
    *,
    target: str | Iterable[str] | None,
    filter: Mapping[str, Any] | None,
    min_similarity: float | str = 0.0,
    group_by: str | None = None,
    offset: int = 0,
    exclude: Id | None = None,
    bits: int | None = None,
    rerank: int | None = None,
    rerank_by: str = "codes",
    budget: Budget | None = None,
    with_codes: bool = False,
    trusted: bool,
) -> Steps[list[Results]]:
    """Search with many queries, in as few requests as their size allows."""
    page = Page(k, offset, group_by, min_similarity, exclude)
    capabilities = Capabilities(**about["capabilities"])
    page.check(capabilities, rerank)
    check_budget(budget, capabilities)
    if filter is not None:
        parse_filter(filter)
    options = {
        "k": int(k),
        "target": _target(target, about),
        "filter": filter,
        "min_similarity": min_similarity,
        "group_by": group_by,
        "offset": int(offset),
        "exclude": exclude,
        "bits": bits,
        "rerank": rerank,
        "rerank_by": rerank_by,
        "budget": None if budget is None else budget.to_dict(),
        "with_codes": with_codes,
    }
    queries = _as_rows(inputs)
    size = _bytes_per_input(about, modality, queries)
    per_request = max(1, min(_QUERIES, _HITS // k, _BYTES // size))
    results: list[Results] = []
    for block in _slices(_length(queries), per_request):
        body = {
            "modality": modality,
            "inputs": _part(about, modality, queries, block, trusted),
            **{name: value for name, value in options.items() if value is not None},
        }
        answer = yield RemoteCall("POST", "/search", body)
        results += map(wire.results_from_json, answer["results"])
    return results


def get(ids: Iterable[Id]) -> Steps[list[Item | None]]:
    """Read items."""
    checked = check_ids(ids, allow_repeats=True)
    items: list[Item | None] = []
    for block in _slices(len(checked), _IDS):
        answer = yield RemoteCall("POST", "/get", {"ids": checked[block]})
        n_bits = answer["n_bits"]
        items += [
            None if item is None else wire.item_from_json(item, n_bits, answer["model"])
            for item in answer["items"]
        ]
    return items


def delete(about: Description, ids: Iterable[Id], modality: str | None) -> Steps[int]:
    """Delete items, or their codes of one modality."""
    if modality is not None:
        check_known(modality, about["modalities"])
    checked = check_ids(ids)
    changed = 0
    for block in _slices(len(checked), _IDS):
        body = {"ids": checked[block], "modality": modality}
        answer = yield RemoteCall("POST", "/delete", body, repeatable=False, writes=True)
        changed += answer["changed"]
    return changed


def download_model() -> Steps[HashModel]:
    """Download the model."""
    content = yield RemoteCall("GET", "/model", decode=False)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist():
                # Only the last part of a name is used: nothing is written outside the folder.
                (Path(folder) / Path(entry.filename).name).write_bytes(archive.read(entry))
        return HashModel.load(folder)


def check() -> Steps[list[Finding]]:
    """Verify all files."""
    answer = yield RemoteCall("POST", "/check", {}, writes=True)
    return [Finding(**finding) for finding in answer["findings"]]


def compact() -> Steps[None]:
    """Free the space of deleted items."""
    yield RemoteCall("POST", "/compact", {}, writes=True)


def stats() -> Steps[Stats]:
    """Ask for the statistics of this moment."""
    answer = yield RemoteCall("GET", "/stats")
    return wire.stats_from_json(answer)


def bookmark_position(name: str) -> Steps[int | None]:
    """Ask for the position of a bookmark."""
    answer = yield RemoteCall("GET", "/bookmark", parameters={"name": name})
    position: int | None = answer["position"]
    return position


def index_field(field: str) -> Steps[None]:
    """Index a payload field."""
    if not isinstance(field, str):
        raise DataError(f"the name of a field must be a string, got {field!r}")
    body = {"name": check_text(field, "the name of a field")}
    yield RemoteCall("POST", "/index", body, writes=True)


def tags_of(results: list[Results], field: str, max_tags: int) -> list[list[Tag]]:
    """Return the tags that the neighbors of each query vote for."""
    return [
        vote([tag_list(hit.payload.get(field)) for hit in hits], max_tags=max_tags)
        for hits in results
    ]


def accepts(about: Description, modality: str) -> str | None:
    """Return the kind of raw input that a modality accepts."""
    kinds: dict[str, str | None] = about["modalities"]
    return kinds[check_known(modality, kinds)]


def name_of(client: object, url: str, about: Description | None) -> str:
    """Return the representation of a client."""
    name = type(client).__name__
    if about is None:
        return f"{name}({url!r})"
    return f"{name}({url!r}: {', '.join(about['modalities'])} → {about['n_bits']} bits)"


def _target(target: str | Iterable[str] | None, about: Description) -> list[str] | None:
    if target is None:
        return None
    known = sorted(about["modalities"])
    if not isinstance(target, Iterable):
        raise DataError(f"target: expected modalities of {known}, got {target!r}")
    names = [target] if isinstance(target, str) else list(target)
    if not names:
        raise DataError(f"target: expected at least one modality of {known}, got none")
    if names == ["*"]:
        return names
    return [check_known(name, known) for name in dict.fromkeys(names)]


# --- inputs ---


def _as_rows(inputs: Inputs) -> Inputs:
    """Return codes and raw inputs as they are, and everything else as an array."""
    if isinstance(inputs, Codes) or Encoder.are_raw(inputs):
        return inputs
    if isinstance(inputs, list | tuple) and any(raw is None for raw in inputs):
        return inputs
    rows = np.asarray(inputs)
    if not rows.ndim:
        raise DataError(f"expected rows or a list of raw inputs, got {type(inputs).__name__}")
    return rows


def _part(
    about: Description, modality: str, inputs: Inputs, block: slice, trusted: bool
) -> dict[str, Any]:
    accepts = about["modalities"].get(modality)

    def load(raw: RawInput) -> RawInput:
        """Replace the path of a file by its contents, where the modality accepts files."""
        is_path = isinstance(raw, PathLike) or (isinstance(raw, str) and trusted)
        if accepts in (None, "text") or not is_path:
            return raw
        try:
            return Path(raw).read_bytes()  # type: ignore[arg-type]
        except OSError as error:
            raise DataError(f"{raw!s}: cannot be read ({error.strerror or error})") from error

    return wire.inputs_to_json(inputs[block], modality, load)  # type: ignore[index]


def _slices(length: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, length, size)]


def _bytes_per_input(about: Description, modality: str, inputs: Inputs) -> int:
    """Return the size of the largest input of a batch."""
    if isinstance(inputs, np.ndarray):
        return max(1, inputs.nbytes // max(1, len(inputs)))
    if isinstance(inputs, Codes):
        return max(1, inputs.n_bits // 8)
    are_files = about["modalities"].get(modality) not in (None, "text")
    sizes = (_bytes_of(raw, are_files) for raw in inputs if raw is not None)  # type: ignore[union-attr,arg-type]
    return max(sizes, default=1)


def _bytes_of(raw: RawInput, is_file: bool) -> int:
    if isinstance(raw, str | PathLike) and is_file:
        try:
            return max(1, Path(raw).stat().st_size)
        except (OSError, ValueError):  # reported when it is read
            return 1
    if isinstance(raw, list | tuple):
        return 1 + sum(map(len, raw))
    return 1 + len(raw if isinstance(raw, bytes) else str(raw))


def _length(inputs: Inputs) -> int:
    return len(inputs)  # type: ignore[arg-type]

"""The verbs of a collection as requests, without input and output.

Each verb is a generator: it yields a `RemoteCall`, receives its answer, and returns the result.
`Client` and `AsyncClient` only differ in how they send calls. What a service cannot do over HTTP is
refused here, with what to do instead.
"""

import io
import tempfile
import zipfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar, Unpack

import numpy as np

from crossbit._validation import check_known
from crossbit.annotate import Tag, tag_list, vote
from crossbit.client.transport import RemoteCall
from crossbit.codes import Codes
from crossbit.collection import wire
from crossbit.collection.encoder import Encoder, Inputs, check_model
from crossbit.collection.filters import check_selection, filter_fields, parse_filter
from crossbit.collection.payloads import check_fields, check_ids, check_payloads, check_text
from crossbit.collection.search import SearchKeywords, SearchOptions
from crossbit.collection.store import Capabilities
from crossbit.collection.types import Finding, Id, Item, Results, Stats
from crossbit.errors import DataError
from crossbit.features.extractor import RawInput
from crossbit.model.hashmodel import HashModel

T = TypeVar("T")
Steps: TypeAlias = Generator[RemoteCall, Any, T]
"""Calls to send, whose answers are sent back, and the result."""

Description: TypeAlias = dict[str, Any]
_IDS = 1000  # per request
_QUERIES = 256
_HITS = 50_000
_BYTES = 6 << 20  # of inputs per request, before base64


class RemoteVerbs:
    """The verbs of one collection of a service; remembers the description of the collection."""

    def __init__(self) -> None:
        self._about: Description | None = None

    def name(self, client: object, url: str) -> str:
        """Return the representation of a client."""
        name = type(client).__name__
        about = self._about
        if about is None:
            return f"{name}({url!r})"
        return f"{name}({url!r}: {', '.join(about['modalities'])} → {about['n_bits']} bits)"

    # --- what is there ---

    def describe(self) -> Steps[Description]:
        """Ask for the number of items, the modalities and what each accepts."""
        about: Description = yield RemoteCall("GET", "")
        self._about = about
        return about

    def _description(self) -> Steps[Description]:
        return (yield from self.describe()) if self._about is None else self._about

    def count(self) -> Steps[int]:
        """Ask for the number of items of this moment."""
        about = yield from self.describe()
        return int(about["items"])

    def capabilities(self) -> Steps[Capabilities]:
        """Return what the store can do."""
        about = yield from self._description()
        return Capabilities(**about["capabilities"])

    def keep(self) -> Steps[tuple[str, ...]]:
        """Return what is stored besides codes."""
        about = yield from self._description()
        return tuple(about["keep"])

    def accepts(self, modality: str) -> Steps[str | None]:
        """Return the kind of raw input that a modality accepts."""
        about = yield from self._description()
        kinds: dict[str, str | None] = about["modalities"]
        return kinds[check_known(modality, kinds)]

    def model(self) -> Steps[HashModel]:
        """Download the model."""
        content = yield RemoteCall("GET", "/model", decode=False)
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for entry in archive.infolist():
                    # Only the last part of a name is used: nothing is written outside the folder.
                    (Path(folder) / Path(entry.filename).name).write_bytes(archive.read(entry))
            return HashModel.load(folder)

    # --- writing ---

    def upsert(
        self,
        ids: Iterable[Id],
        views: Mapping[str, Inputs] | None,
        payload: Sequence[Mapping[str, Any] | None] | None,
        *,
        replace_payload: bool,
        trusted: bool,
    ) -> Steps[None]:
        """Write items, in as few requests as their size allows."""
        about = yield from self._description()
        checked = check_ids(ids)
        rows, _ = check_payloads(payload, checked)
        if not isinstance(views, Mapping | None):
            raise DataError(
                "views must map modalities to rows, such as {'image': X}; got"
                f" {type(views).__name__}"
            )
        arrays = {name: _as_rows(x) for name, x in (views or {}).items()}
        per_item = sum(_bytes_per_input(about, name, x) for name, x in arrays.items())
        size = max(1, min(_IDS, _BYTES // max(1, per_item)))
        blocks = _slices(len(checked), size) or [slice(0, 0)]
        for block in blocks:
            # Wrong lengths are reported by the service, which sees the batch as it was passed.
            part = slice(None) if len(blocks) == 1 else block
            body: dict[str, Any] = {"ids": checked[block]}
            body["views"] = {
                name: _part(about, name, x, part, trusted) for name, x in arrays.items()
            }
            if rows is not None:
                body["payload"] = list(rows[block])
            if replace_payload:
                body["replace_payload"] = True
            yield RemoteCall("POST", "/upsert", body, repeatable=False, writes=True)

    def update(
        self,
        ids: Iterable[Id],
        payload: Sequence[Mapping[str, Any] | None] | None,
        remove: Iterable[str],
    ) -> Steps[None]:
        """Change payloads, in as few requests as their number allows."""
        checked = check_ids(ids)
        rows, _ = check_payloads(payload, checked)
        fields = check_fields(remove)
        for block in _slices(len(checked), _IDS):
            body: dict[str, Any] = {"ids": checked[block], "remove": fields}
            if rows is not None:
                body["payload"] = list(rows[block])
            yield RemoteCall("POST", "/update", body, repeatable=False, writes=True)

    def delete(
        self,
        ids: Iterable[Id] | None,
        filter: Mapping[str, Any] | None,
        modality: str | None,
    ) -> Steps[int]:
        """Delete items, or their codes of one modality."""
        about = yield from self._description()
        if modality is not None:
            check_known(modality, about["modalities"])
        checked, _ = check_selection(ids, filter)
        if checked is None:
            body: dict[str, Any] = {"filter": filter, "modality": modality}
            answer = yield RemoteCall("POST", "/delete", body, repeatable=False, writes=True)
            return int(answer["changed"])
        changed = 0
        for block in _slices(len(checked), _IDS):
            body = {"ids": checked[block], "modality": modality}
            answer = yield RemoteCall("POST", "/delete", body, repeatable=False, writes=True)
            changed += answer["changed"]
        return changed

    def index_field(self, field: str) -> Steps[None]:
        """Index a payload field."""
        if not isinstance(field, str):
            raise DataError(f"the name of a field must be a string, got {field!r}")
        body = {"name": check_text(field, "the name of a field")}
        yield RemoteCall("POST", "/index", body, writes=True)

    # --- reading ---

    def get(self, ids: Iterable[Id], *, kept: bool) -> Steps[list[Item | None]]:
        """Read items."""
        _refuse_kept(kept)
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

    def contains(self, id_: object) -> Steps[bool]:
        """Return whether there is an item; what cannot be an id is none."""
        try:
            items = yield from self.get([id_], kept=False)  # type: ignore[list-item]
        except DataError:
            return False
        return items != [None]

    def scan(self, *, kept: bool) -> Steps[HashModel]:
        """Return the model of a scan, whose items a client streams."""
        _refuse_kept(kept)
        return (yield from self.model())

    def search(
        self,
        modality: str,
        inputs: Inputs,
        k: int,
        *,
        trusted: bool,
        **options: Unpack[SearchKeywords],
    ) -> Steps[list[Results]]:
        """Search with many queries, in as few requests as their size allows."""
        wanted = SearchOptions(k=k, **options)
        about = yield from self._description()
        wanted.check(Capabilities(**about["capabilities"]), about["keep"])
        wanted.targets(modality, list(about["modalities"]))
        queries = _as_rows(inputs)
        size = _bytes_per_input(about, modality, queries)
        per_request = max(1, min(_QUERIES, _HITS // wanted.k, _BYTES // size))
        results: list[Results] = []
        for block in _slices(len(queries), per_request):  # type: ignore[arg-type]
            body = {
                "modality": modality,
                "inputs": _part(about, modality, queries, block, trusted),
                **wanted.to_json(),
            }
            answer = yield RemoteCall("POST", "/search", body)
            results += map(wire.results_from_json, answer["results"])
        return results

    def annotate(
        self,
        modality: str,
        inputs: Inputs,
        *,
        target: str | Iterable[str] | None,
        neighbors: int,
        max_tags: int,
        field: str,
        filter: Mapping[str, Any] | None,
        trusted: bool,
    ) -> Steps[list[list[Tag]]]:
        """Return the tags that the neighbors of each input vote for."""
        results = yield from self.search(
            modality, inputs, neighbors, target=target, filter=filter, trusted=trusted
        )
        return [
            vote([tag_list(hit.payload.get(field)) for hit in hits], max_tags=max_tags)
            for hits in results
        ]

    # --- maintenance ---

    def stats(self) -> Steps[Stats]:
        """Ask for the statistics of this moment."""
        answer = yield RemoteCall("GET", "/stats")
        return wire.stats_from_json(answer)

    def check(self) -> Steps[list[Finding]]:
        """Verify all files."""
        answer = yield RemoteCall("POST", "/check", {}, writes=True)
        return [Finding(**finding) for finding in answer["findings"]]

    def compact(self) -> Steps[None]:
        """Free the space of deleted items."""
        yield RemoteCall("POST", "/compact", {}, writes=True)


# --- refusals ---


def refuse_model(model: HashModel) -> NoReturn:
    """Refuse another model."""
    check_model(model)
    raise DataError(
        "a service does not change its model over HTTP; run 'crossbit upgrade' where the"
        " collection is: the service uses the new model from the next request on"
    )


def refuse_unindexed(filter: Mapping[str, Any]) -> NoReturn:
    """Refuse to say which fields of a filter have no index."""
    fields = filter_fields(parse_filter(filter))
    raise DataError(
        "a service does not report which fields have no index; call index_field for each field"
        f" of the filter, {sorted(fields)}: it changes nothing for those that have one"
    )


def _refuse_kept(kept: bool) -> None:
    if kept:
        raise DataError(
            "kept must be False: a client does not receive kept scores and features, got"
            f" {kept!r}; read them with Collection.open where the collection is, or from GET"
            " /api/export"
        )


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

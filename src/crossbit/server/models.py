"""Requests and responses of the API, with the limits that the OpenAPI document states."""

import base64
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    Base64Encoder,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    EncodedBytes,
    Field,
    StrictInt,
    StrictStr,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from crossbit.collection.payloads import json_length
from crossbit.collection.search import Option, SearchOptions

MAX_HITS = 1000
_MAX_ALL_HITS = 50_000  # of all queries of a request
_MAX_ITEMS = 1000
_MAX_QUERIES = 256
_MAX_MODALITIES = 100
_MAX_NAME = 40  # characters of a field's name that an error repeats
_MAX_PAYLOAD = 64 << 10  # characters of JSON; a search returns up to a thousand payloads

Id = Annotated[
    StrictInt | StrictStr, Field(description="A string or an integer; 1 and '1' are different.")
]
Ids = Annotated[list[Id], Field(max_length=_MAX_ITEMS, fail_fast=True)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=10_000)]
# A list stops at its first error: reporting millions of them would take gigabytes.
Tags = Annotated[
    list[Annotated[str, Field(max_length=200)]],
    Field(min_length=1, max_length=1000, fail_fast=True),
]
Code = Annotated[str, Field(max_length=256, pattern="^[0-9a-f]*$")]
Names = Annotated[list[Name], Field(fail_fast=True, max_length=_MAX_MODALITIES)]
Payload = dict[str, Any]


class _StrictBase64(Base64Encoder):
    """Base64 in which every character counts."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        """Return the bytes."""
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:
            raise PydanticCustomError("base64_decode", f"expected base64: {error}") from error


Base64 = Annotated[bytes, EncodedBytes(encoder=_StrictBase64)]


class RequestBody(BaseModel):
    """A request body; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        # The first unknown field ends it: reporting millions of them would take gigabytes.
        names = value if isinstance(value, dict) else ()
        unknown = next((name for name in names if name not in cls.model_fields), None)
        if unknown is not None:
            raise ValueError(
                f"unknown field {unknown[:_MAX_NAME]!r}; known: {', '.join(cls.model_fields)}"
            )
        return value


class PackedRow(RequestBody):
    """A feature vector as base64 of its bytes, which is exact, and shorter than decimal numbers."""

    dtype: Literal["<f2", "<f4", "<f8"]
    data: Base64

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if not self.data or len(self.data) % np.dtype(self.dtype).itemsize:
            raise ValueError(f"expected numbers of {self.dtype}, got {len(self.data)} bytes")
        return self


Features = (
    Annotated[list[float], Field(min_length=1, max_length=65_536, fail_fast=True)] | PackedRow
)


def row_of(features: Features) -> NDArray[Any]:
    """Return a feature vector as an array."""
    if isinstance(features, PackedRow):
        return np.frombuffer(features.data, features.dtype)
    return np.array(features, np.float64)


class CodesOfModel(RequestBody):
    """Length and model of the codes in a request, if it has any."""

    n_bits: int | None = Field(default=None, ge=1, le=1024, description="Length of given codes.")
    model: Name | None = Field(
        default=None, description="Fingerprint of the model that made given codes."
    )


# --- queries ---


class QueryFields(RequestBody):
    """The ways to give a query."""

    modality: Name | None = Field(
        default=None,
        description="Modality of the query; by default the first one that accepts such an input.",
    )
    text: Text | None = Field(default=None, description="A text, such as 'red + food'.")
    tags: Tags | None = Field(default=None, description="A list of tags.")
    features: Features | None = Field(default=None, description="A feature vector.")
    code: Code | None = Field(default=None, description="A code, in hexadecimal.")
    file: Base64 | None = Field(default=None, description="Contents of a file, in base64.")
    id: Id | None = Field(
        default=None, description="An item of the collection; the results exclude it."
    )

    def _given(self) -> list[str]:
        return [name for name in _KINDS if getattr(self, name) is not None]


_KINDS = tuple(name for name in QueryFields.model_fields if name != "modality")


class Query(QueryFields):
    """One query: exactly one of text, tags, features, code, file and id."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if len(given := self._given()) != 1:
            raise ValueError(
                f"expected exactly one of {', '.join(_KINDS)}, got {', '.join(given) or 'none'}"
            )
        return self


class _QueryRequest(QueryFields, CodesOfModel):
    """One query, or a list of queries that share all options."""

    queries: list[Query] | None = Field(
        default=None,
        min_length=1,
        max_length=_MAX_QUERIES,
        fail_fast=True,
        description="Instead of one query; the answer is then a list of results.",
    )

    @model_validator(mode="after")
    def _check_queries(self) -> Self:
        given = self._given()
        if self.queries is None and len(given) != 1:
            raise ValueError(
                f"expected exactly one of {', '.join(_KINDS)} and queries,"
                f" got {', '.join(given) or 'none'}"
            )
        if self.queries is not None and given:
            raise ValueError(f"expected either queries or {given[0]}, got both")
        return self

    def each(self) -> list[QueryFields]:
        """Return the queries, each with its modality."""
        if self.queries is None:
            return [self]
        return [
            query if query.modality else query.model_copy(update={"modality": self.modality})
            for query in self.queries
        ]


_LIMITS: dict[str, Any] = {
    "k": Field(ge=1, le=MAX_HITS),
    "target": Field(max_length=_MAX_MODALITIES, fail_fast=True),
    "group_by": Field(min_length=1, max_length=200),
    "offset": Field(ge=0, le=10_000),
    "rerank": Field(ge=1, le=10 * MAX_HITS),
}


def _option(option: Option) -> tuple[Any, Any]:
    """Type and default of a search option in a request."""
    kind: Any = Annotated[option.json, _LIMITS.get(option.name, Field())]
    return kind, Field(default=option.default, description=option.doc)


_FIELDS: Any = {option.name: _option(option) for option in SearchOptions.all()}
_SearchFields: Any = create_model("_SearchFields", __base__=RequestBody, **_FIELDS)


class SearchRequest(_QueryRequest, _SearchFields):  # type: ignore[misc]
    """Search for the nearest items."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "dog + beach", "k": 12, "target": ["image"]}]}
    )

    @cached_property
    def options(self) -> SearchOptions:
        """The options, with those that were left out."""
        return SearchOptions.from_mapping({name: getattr(self, name) for name in _FIELDS})

    @model_validator(mode="after")
    def _check_hits(self) -> Self:
        count, k = len(self.queries or [self]), self.options.k
        if count * k > _MAX_ALL_HITS:
            raise ValueError(
                f"at most {_MAX_ALL_HITS:,} hits per request, got {count} queries with k = {k}"
            )
        return self


class AnnotateRequest(_QueryRequest):
    """Suggest tags: those of the nearest items, ranked by vote."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "dog.jpg", "max_tags": 5}]})

    target: Names | None = Field(
        default=None,
        description="Modalities that find the neighbors; by default those that accept text.",
    )
    filter: dict[str, Any] | None = Field(
        default=None, description="Only neighbors that meet it, as for a search."
    )
    neighbors: int = Field(default=5, ge=1, le=100, description="Number of neighbors that vote.")
    max_tags: int = Field(default=10, ge=1, le=100, description="Largest number of tags to return.")
    field: Name = Field(default="tags", description="The payload field that holds an item's tags.")


# --- items ---


def _check_modalities(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    # Objects do not stop at their first error as lists do.
    if isinstance(value, dict) and len(value) > _MAX_MODALITIES:
        raise ValueError(f"expected at most {_MAX_MODALITIES} modalities, got {len(value)}")
    return value


def _check_payload(payload: Payload | None) -> Payload | None:
    if payload is not None and (length := json_length(payload)) > _MAX_PAYLOAD:
        raise ValueError(
            f"expected at most {_MAX_PAYLOAD:,} characters of JSON, got {length:,}; keep large"
            " values in files"
        )
    return payload


_LimitedPayload = Annotated[Payload, AfterValidator(_check_payload)]
_PerModality = BeforeValidator(_check_modalities)


class UpdateRequest(RequestBody):
    """Change the payloads of existing items, all of them or none."""

    class Item(RequestBody):
        """An item, and its new fields."""

        id: Id
        payload: _LimitedPayload | None = Field(
            default=None, description="Fields that are merged into the current payload."
        )

    items: list[Item] = Field(max_length=_MAX_ITEMS, fail_fast=True)
    remove: list[Name] = Field(
        default=[],
        max_length=_MAX_ITEMS,
        fail_fast=True,
        description="Fields that all of these items lose.",
    )


class NewItem(UpdateRequest.Item):
    """An item to add or update."""

    features: Annotated[dict[Name, Features], _PerModality] = Field(
        default={}, description="Modality → a feature vector."
    )
    texts: Annotated[dict[Name, Text | Tags], _PerModality] = Field(
        default={}, description="Modality → a text or a list of tags."
    )
    files: Annotated[dict[Name, Base64], _PerModality] = Field(
        default={}, description="Modality → contents of a file, in base64."
    )
    codes: Annotated[dict[Name, Code], _PerModality] = Field(
        default={}, description="Modality → a code, in hexadecimal."
    )


class UpsertRequest(CodesOfModel):
    """Add or update items, all of them or none."""

    items: list[NewItem] = Field(max_length=_MAX_ITEMS, fail_fast=True)
    replace_payload: bool = Field(
        default=False, description="Whether payloads take the place of the current ones."
    )


class IdsRequest(RequestBody):
    """Items to read."""

    ids: Ids


class DeleteRequest(RequestBody):
    """Items to delete: by ids, or by a filter."""

    ids: Ids | None = None
    filter: dict[str, Any] | None = Field(
        default=None, description="All items whose payload meets it, as for a search."
    )
    modality: Name | None = Field(default=None, description="Delete only codes of this modality.")


class IndexRequest(RequestBody):
    """A payload field to index."""

    field: str = Field(max_length=200)


class CreateRequest(RequestBody):
    """Create a collection in the folder of the service."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "new", "like": "photos"}]})

    name: Name
    like: Name | None = Field(default=None, description="A collection whose model it gets.")
    model: Name | None = Field(
        default=None, description="Or the name of a model folder beside the collections."
    )
    keep: list[Literal["scores", "features"]] = Field(
        default=[], max_length=2, description="What is stored besides codes."
    )

    @model_validator(mode="after")
    def _check_one_model(self) -> Self:
        if (self.like is None) == (self.model is None):
            raise ValueError("expected either like or model")
        return self


# --- responses ---


class _Stored(BaseModel):
    """What items and hits have in common."""

    id: int | str
    key: str = Field(description="The id in JSON, as URLs contain it.")
    payload: Payload
    picture: str | None = Field(description="URL of the item's image.")
    media: dict[str, str] = Field(description="audio, mesh, signal → URL of the item's file.")


class Item(_Stored):
    """One item of the collection."""

    codes: dict[str, str] = Field(description="Modality → code, in hexadecimal.")


class ItemsResponse(BaseModel):
    """Items, in order of arrival or of the requested ids; null for an unknown id."""

    items: list[Item | None]
    total: int = Field(description="Number of items in the collection.")
    n_bits: int
    model: str = Field(description="Fingerprint of the model that made the codes.")


class Hit(_Stored):
    """One search result."""

    distance: int = Field(description="Hamming distance: the number of bits that differ.")
    similarity: float = Field(description="1 - distance / n_bits.")
    modality: str = Field(description="The modality that matched.")
    weak: bool | None = Field(
        description="Whether the item is farther than the best hit of 95 % of held-out queries;"
        " null if the model was not calibrated for this direction."
    )
    relevant: bool | None = Field(description="Whether it meets the relevance criterion.")
    code: str | None = Field(default=None, description="The code that matched, if requested.")


class SearchResponse(BaseModel):
    """Results of one query, nearest first."""

    class Query(BaseModel):
        """How the service understood the query."""

        modality: str
        terms: list[str] = Field(description="Words or tags of the query.")
        exact_terms: bool = Field(description="Whether every term is a tag of the vocabulary.")
        relevance: str | None = Field(
            description="The criterion that decides which hits are relevant, if there is one."
        )
        code: str = Field(description="Code of the query, in hexadecimal.")

    query: Query
    hits: list[Hit]
    n_bits: int
    model: str | None = Field(description="Fingerprint of the model that made the codes.")


class SearchesResponse(BaseModel):
    """Results of several queries, in their order."""

    results: list[SearchResponse]


class AnnotateResponse(BaseModel):
    """Suggested tags, the best first."""

    class Tag(BaseModel):
        """A tag that neighbors voted for."""

        name: str
        score: float = Field(description="Share of the neighbors that have it.")
        votes: int

    tags: list[Tag]


class AnnotationsResponse(BaseModel):
    """Tags for several queries, in their order."""

    results: list[AnnotateResponse]


class OverviewResponse(BaseModel):
    """What a sample of the items has in common."""

    class Facet(BaseModel):
        """A payload field that items can be chosen by."""

        class Value(BaseModel):
            """One value."""

            value: int | bool | str
            count: int

        field: str
        many: bool = Field(description="Whether the field is a list: filter it with has.")
        values: list[Value] = Field(description="The most frequent ones.")

    class Bit(BaseModel):
        """What a bit tells apart."""

        class Name(BaseModel):
            """A tag that correlates with the bit."""

            name: str
            auc: float

        set: list[Name] = Field(description="Tags of items that have the bit set, the best first.")
        unset: list[Name]

    items: int = Field(description="Number of items in the sample.")
    facets: list[Facet]
    words: list[str] = Field(description="Frequent tags, or words of captions.")
    bits: list[Bit]


class ChangeResponse(BaseModel):
    """Number of items that were written or deleted."""

    changed: int


class DescribeResponse(BaseModel):
    """A collection, without statistics that take long."""

    name: str
    items: int
    modalities: dict[str, str | None] = Field(
        description="Modality → kind of raw input that it accepts, such as text or image."
    )
    n_bits: int
    model: str = Field(description="Fingerprint of the model that makes the codes.")
    capabilities: dict[str, bool]
    keep: list[str] = Field(description="What is stored besides codes.")
    writable: bool


class StatsResponse(BaseModel):
    """Statistics of the collection, and a description of its model."""

    collection: dict[str, Any] = Field(description="Items, modalities, bytes, health of the codes.")
    model: dict[str, Any] = Field(
        description="Modalities with what each accepts from clients, bits, layers, model card."
    )
    report: dict[str, Any] = Field(description="Quality of the model, if it was measured.")
    writable: bool


class CheckResponse(BaseModel):
    """What a check has found."""

    class Finding(BaseModel):
        """One problem."""

        path: str
        problem: str
        repaired: bool

    findings: list[Finding]


class CollectionEntry(BaseModel):
    """One collection of the service."""

    name: str
    default: bool = Field(description="Whether the paths below /api are about it.")


class CollectionsResponse(BaseModel):
    """The collections of the service."""

    collections: list[CollectionEntry]


class HealthResponse(BaseModel):
    """The service is up."""

    status: str


class ErrorResponse(BaseModel):
    """What was expected, what was given, and the remedy."""

    error: str
    request_id: str = Field(description="As in the header X-Request-ID and in the access log.")

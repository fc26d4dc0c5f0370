"""Request and response schemas, with the limits that the OpenAPI description states."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)

from crossbit.collection.payloads import json_length

MAX_HITS = 1000
_MAX_OFFSET = 10_000
MAX_ITEMS = 1000
_MAX_TEXT = 10_000
_MAX_QUERIES = 100
_MAX_MODALITIES = 100
_MAX_NAME = 40  # characters of a field's name that an error repeats
_MAX_PAYLOAD = 64 << 10  # characters of JSON; a search returns up to a thousand payloads

Id = Annotated[
    StrictInt | StrictStr, Field(description="A string or an integer; 1 and '1' are different.")
]
Key = Annotated[str, Field(max_length=1100, description="The id of an item, in JSON.")]
Name = Annotated[str, Field(min_length=1, max_length=200)]
# A list stops at its first error: reporting millions of them would take gigabytes.
Features = Annotated[list[float], Field(min_length=1, max_length=65_536, fail_fast=True)]
Text = Annotated[str, Field(max_length=_MAX_TEXT)]
Tags = Annotated[
    list[Annotated[str, Field(max_length=200)]],
    Field(min_length=1, max_length=1000, fail_fast=True),
]
Neighbors = Annotated[int, Field(ge=1, le=100, description="Number of neighbors that vote.")]
MaxTags = Annotated[int, Field(ge=1, le=100, description="Largest number of tags to return.")]
K = Annotated[int, Field(ge=1, le=MAX_HITS, description="Number of items to return.")]
Modality = Annotated[
    Name | None,
    Field(
        description="Modality of the query; by default the first one that accepts such an input."
    ),
]
_Names = Annotated[list[Name], Field(fail_fast=True)]
Target = Annotated[
    _Names | None,
    Field(
        max_length=_MAX_MODALITIES,
        description="Modalities to search; if left out, all but the query's own; ['*']: all.",
    ),
]
MinSimilarity = Annotated[float, Field(ge=0, le=1)]
Offset = Annotated[
    int, Field(ge=0, le=_MAX_OFFSET, description="Number of nearest hits to skip: earlier pages.")
]
Rerank = Annotated[
    int | None,
    Field(
        ge=1,
        le=10 * MAX_HITS,
        description="Rerank this many of the nearest items by the query's real-valued scores.",
    ),
]
RerankBy = Annotated[
    Literal["codes", "scores", "features"],
    Field(description="Rerank by codes, or by the scores or features that the collection keeps."),
]
WithCodes = Annotated[
    bool, Field(description="Whether to return the bits of the query and of every hit.")
]


def check_payload_size(payload: dict[str, Any] | None) -> None:
    """Reject a payload that is too large."""
    if payload is not None and json_length(payload) > _MAX_PAYLOAD:
        raise ValueError(
            f"expected at most {_MAX_PAYLOAD:,} characters of JSON, got"
            f" {json_length(payload):,}; keep large values in files"
        )


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


class _QueryRequest(RequestBody):
    """A query: exactly one of features, text, tags and the id of an item."""

    modality: Modality = None
    features: Features | None = Field(default=None, description="A feature vector.")
    text: Text | None = Field(default=None, description="A text, such as 'red + food'.")
    tags: Tags | None = Field(default=None, description="A list of tags.")
    id: Id | None = Field(
        default=None, description="An item of the collection; the results exclude it."
    )

    @model_validator(mode="after")
    def _check_one_query(self) -> Self:
        names = ("features", "text", "tags", "id")
        present = [name for name in names if getattr(self, name) is not None]
        if len(present) != 1:
            raise ValueError(
                "expected exactly one of features, text, tags and id,"
                f" got {', '.join(present) or 'none'}"
            )
        return self


class SearchRequest(_QueryRequest):
    """Search for the nearest items."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "dog + beach", "k": 12, "target": ["image"]}]}
    )

    k: K = 10
    target: Target = None
    filter: dict[str, Any] | None = Field(
        default=None,
        description=(
            "Only items whose payload meets all conditions: {'year': {'>=': 2010}}; 'or', 'and' and"
            " 'not' combine filters."
        ),
    )
    min_similarity: MinSimilarity | Literal["auto"] = Field(
        default=0.0, description="Leave out hits that are less similar; 'auto': weak ones."
    )
    group_by: Name | None = Field(
        default=None, description="Return the nearest item per value of this payload field."
    )
    offset: Offset = 0
    rerank: Rerank = None
    rerank_by: RerankBy = "codes"
    codes: WithCodes = False


class SearchBatchRequest(RequestBody):
    """Many searches; those that differ only in their features or texts cost least."""

    queries: list[SearchRequest] = Field(min_length=1, max_length=_MAX_QUERIES, fail_fast=True)

    @model_validator(mode="after")
    def _check_hits(self) -> Self:
        hits = sum(query.k for query in self.queries)
        if hits > 10 * MAX_HITS:
            raise ValueError(f"k of all queries: at most {10 * MAX_HITS:,} together, got {hits:,}")
        return self


class AnnotateRequest(_QueryRequest):
    """Suggest tags: those of the nearest items, ranked by vote."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "dog.jpg", "max_tags": 5}]})

    target: Annotated[
        _Names | None,
        Field(
            max_length=_MAX_MODALITIES,
            description="Modalities that find the neighbors; by default those that accept text.",
        ),
    ] = None
    neighbors: Neighbors = 5
    max_tags: MaxTags = 10
    field: Name = Field(default="tags", description="The payload field that holds an item's tags.")


class UpsertRequest(RequestBody):
    """Add or update items, all of them or none."""

    class NewItem(RequestBody):
        """An item to add or update."""

        id: Id
        payload: dict[str, Any] | None = Field(
            default=None, description="Fields that are merged into the current payload."
        )
        features: dict[Name, Features] = Field(
            default={}, max_length=_MAX_MODALITIES, description="Modality → a feature vector."
        )
        texts: dict[Name, Text | Tags] = Field(
            default={},
            max_length=_MAX_MODALITIES,
            description="Modality → a text or a list of tags.",
        )

        @field_validator("payload")
        @classmethod
        def _check_size(cls, payload: dict[str, Any] | None) -> dict[str, Any] | None:
            check_payload_size(payload)
            return payload

        @field_validator("features", "texts", mode="before")
        @classmethod
        def _check_number_of_modalities(cls, value: Any) -> Any:  # noqa: ANN401 - any JSON value
            # Objects do not stop at their first error as lists do.
            if isinstance(value, dict) and len(value) > _MAX_MODALITIES:
                raise ValueError(f"expected at most {_MAX_MODALITIES} modalities, got {len(value)}")
            return value

    items: list[NewItem] = Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)


class DeleteRequest(RequestBody):
    """Delete items."""

    ids: list[Id] = Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)


class SearchResponse(BaseModel):
    """Search results, nearest first."""

    class Query(BaseModel):
        """How the service understood the query."""

        modality: str
        terms: list[str] = Field(description="Words or tags of the query.")
        relevance: str | None = Field(
            description="The criterion that decides which hits are relevant, if there is one."
        )
        code: str | None = Field(default=None, description="Bits of the query, if requested.")

    class Hit(BaseModel):
        """One search result."""

        id: int | str
        key: str = Field(description="The id in JSON, as URLs contain it.")
        distance: int = Field(description="Hamming distance: the number of bits that differ.")
        similarity: float = Field(description="1 - distance / n_bits.")
        modality: str = Field(description="The modality that matched.")
        weak: bool | None = Field(
            description="Whether the item is farther than the best hit of 95 % of held-out queries;"
            " null if the model was not calibrated for this direction."
        )
        payload: dict[str, Any]
        picture: str | None = Field(description="URL of the item's image.")
        media: dict[str, str] = Field(
            default={}, description="audio, mesh, signal → URL of the item's file."
        )
        relevant: bool | None = Field(description="Whether it meets the relevance criterion.")
        code: str | None = Field(default=None, description="Bits that matched, if requested.")

    query: Query
    hits: list[Hit]
    n_bits: int


class SearchBatchResponse(BaseModel):
    """The answer to every query of a batch, or what is wrong with it."""

    class Failure(BaseModel):
        """Why a query has no answer."""

        error: str

    results: list[SearchResponse | Failure]


class AnnotateResponse(BaseModel):
    """Suggested tags, the best first."""

    class Tag(BaseModel):
        """A tag that neighbors voted for."""

        name: str
        score: float = Field(description="Share of the neighbors that have it.")
        votes: int

    tags: list[Tag]


class ItemsResponse(BaseModel):
    """Items, in order of arrival or of the requested ids."""

    class Item(BaseModel):
        """One item of the collection."""

        id: int | str
        key: str
        payload: dict[str, Any]
        modalities: list[str]
        picture: str | None
        media: dict[str, str] = {}

    items: list[Item]
    total: int = Field(description="Number of items in the collection.")


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


class StatsResponse(BaseModel):
    """Statistics of the collection, and a description of its model."""

    collection: dict[str, Any] = Field(description="Items, modalities, bytes, health of the codes.")
    model: dict[str, Any] = Field(
        description="Modalities with what each accepts from clients, bits, layers, model card."
    )
    report: dict[str, Any] = Field(description="Quality of the model, if it was measured.")
    writable: bool


class HealthResponse(BaseModel):
    """The service is up."""

    status: str


class ErrorResponse(BaseModel):
    """What was expected, what was given, and the remedy."""

    error: str
    request_id: str = Field(description="As in the header X-Request-ID and in the access log.")

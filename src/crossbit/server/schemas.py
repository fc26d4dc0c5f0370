"""Request and response schemas, with the limits that the OpenAPI description states."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator

MAX_HITS = 1000
_MAX_ITEMS = 1000
_MAX_TEXT = 10_000

Id = Annotated[
    StrictInt | StrictStr, Field(description="A string or an integer; 1 and '1' are different.")
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Features = Annotated[list[float], Field(min_length=1, max_length=65_536)]
Text = Annotated[str, Field(max_length=_MAX_TEXT)]
Tags = Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=1000)]
Neighbors = Annotated[int, Field(ge=1, le=100, description="Number of neighbors that vote.")]
MaxTags = Annotated[int, Field(ge=1, le=100, description="Largest number of tags to return.")]
K = Annotated[int, Field(ge=1, le=MAX_HITS, description="Number of items to return.")]
Modality = Annotated[
    Name | None,
    Field(
        description="Modality of the query; by default the first one that accepts such an input."
    ),
]
Target = Annotated[
    list[Name] | None,
    Field(max_length=100, description="Modalities to search; all of them if left out."),
]


WithCodes = Annotated[
    bool, Field(description="Whether to return the bits of the query and of every hit.")
]


class _Request(BaseModel):
    """A request body; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid")


class _QueryRequest(_Request):
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
        description="Only items whose payload meets all conditions: {'year': {'>=': 2010}}.",
    )
    min_similarity: float = Field(
        default=0.0, ge=0, le=1, description="Leave out hits that are less similar."
    )
    rerank: int | None = Field(
        default=None,
        ge=1,
        le=10 * MAX_HITS,
        description="Rerank this many of the nearest items by the query's real-valued scores.",
    )
    codes: WithCodes = False


class AnnotateRequest(_QueryRequest):
    """Suggest tags: those of the nearest items, ranked by vote."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "1F525", "max_tags": 5}]})

    target: Annotated[
        list[Name] | None,
        Field(
            max_length=100,
            description="Modalities that find the neighbors; by default those that accept text.",
        ),
    ] = None
    neighbors: Neighbors = 5
    max_tags: MaxTags = 10
    field: Name = Field(default="tags", description="The payload field that holds an item's tags.")


class UpsertRequest(_Request):
    """Add or update items, all of them or none."""

    class NewItem(_Request):
        """An item to add or update."""

        id: Id
        payload: dict[str, Any] | None = Field(
            default=None, description="Replaces the current payload; left out, it stays."
        )
        features: dict[Name, Features] = Field(
            default={}, description="Modality → a feature vector."
        )
        texts: dict[Name, Text | Tags] = Field(
            default={}, description="Modality → a text or a list of tags."
        )

    items: list[NewItem] = Field(min_length=1, max_length=_MAX_ITEMS)


class DeleteRequest(_Request):
    """Delete items."""

    ids: list[Id] = Field(min_length=1, max_length=_MAX_ITEMS)


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
        payload: dict[str, Any]
        picture: str | None = Field(description="URL of the item's image.")
        relevant: bool | None = Field(description="Whether it meets the relevance criterion.")
        code: str | None = Field(default=None, description="Bits that matched, if requested.")

    query: Query
    hits: list[Hit]
    n_bits: int


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

    items: list[Item]
    total: int = Field(description="Number of items in the collection.")


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
    items: int


class ErrorResponse(BaseModel):
    """What was expected, what was given, and the remedy."""

    error: str

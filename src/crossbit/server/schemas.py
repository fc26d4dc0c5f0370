"""What requests and answers look like; limits live here, and in the OpenAPI description that is made of it."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator

MOST_HITS = 1000
MOST_TEXT = 10_000
MOST_ITEMS = 1000

Id = Annotated[
    StrictInt | StrictStr, Field(description="A string or a whole number; 1 and '1' are different.")
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Word = Annotated[str, Field(max_length=200)]
Features = Annotated[list[float], Field(min_length=1, max_length=65_536)]
Text = Annotated[str, Field(max_length=MOST_TEXT)]
Words = Annotated[list[Word], Field(max_length=1000)]
Neighbors = Annotated[int, Field(ge=1, le=100, description="How many neighbors vote.")]
MostTags = Annotated[int, Field(ge=1, le=100, description="How many tags to give at most.")]
K = Annotated[int, Field(ge=1, le=MOST_HITS, description="How many items to find.")]
Modality = Annotated[
    Name | None,
    Field(description="Modality of the query; found out where only one takes what is given."),
]
Among = Annotated[
    list[Name] | None,
    Field(max_length=100, description="Modalities to find items by; all of them if left out."),
]


class _Strict(BaseModel):
    """A request: what we do not know is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Thing(_Strict):
    """What is asked about: exactly one of features, text, tags, or the id of an item."""

    modality: Modality = None
    features: Features | None = Field(
        default=None, description="A row of numbers, as the model was trained on."
    )
    text: Text | None = Field(
        default=None, description="Words, such as 'red + food' or a sentence."
    )
    tags: Words | None = Field(default=None, description="A list of tags.")
    id: Id | None = Field(
        default=None, description="An item of the collection, which is not found itself."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [
            name for name in ("features", "text", "tags", "id") if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one of features, text, tags and id, got {', '.join(given) or 'none'}"
            )
        return self


class Search(Thing):
    """Find the items nearest to something."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "dog + beach", "k": 12, "among": ["image"]}]}
    )

    k: K = 10
    among: Among = None
    where: dict[str, Any] | None = Field(
        default=None,
        description="Only items whose payload meets all conditions, such as {'year': {'>=': 2010}}.",
    )
    min_similarity: float = Field(
        default=0.0, ge=0, le=1, description="Leave out hits that are less similar."
    )
    rescore: int | None = Field(
        default=None,
        ge=1,
        le=10 * MOST_HITS,
        description="Re-rank so many of the nearest by what the query is surest of.",
    )
    codes: bool = Field(
        default=False, description="Whether to tell the bits of the query and of every hit."
    )


class Annotate(Thing):
    """Suggest tags for something: those of its nearest neighbors, by vote."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "1F525", "most": 5}]})

    from_: Among = Field(default=None, alias="from")
    neighbors: Neighbors = 5
    most: MostTags = 10
    field: Name = Field(default="tags", description="The payload field that holds an item's tags.")


class NewItem(_Strict):
    """An item to add or to change."""

    id: Id
    payload: dict[str, Any] | None = Field(
        default=None, description="Replaces the one before; left out, that one stays."
    )
    features: dict[Name, Features] = Field(default={}, description="Modality → a row of numbers.")
    words: dict[Name, Text | Words] = Field(
        default={}, description="Modality → words to be described by the model's recipe."
    )


class Upsert(_Strict):
    """Items to add or to change, all of them or none."""

    items: list[NewItem] = Field(min_length=1, max_length=MOST_ITEMS)


class Delete(_Strict):
    """Items to delete."""

    ids: list[Id] = Field(min_length=1, max_length=MOST_ITEMS)


class FoundHit(BaseModel):
    """One item that a search found."""

    id: int | str
    key: str = Field(description="The id as addresses spell it: in JSON.")
    distance: int = Field(description="How many bits differ.")
    similarity: float = Field(description="1 - distance / bits.")
    modality: str = Field(description="The modality that matched.")
    payload: dict[str, Any]
    picture: str | None = Field(description="Where its picture is.")
    relevant: bool | None = Field(description="Whether it is a right answer, where that is known.")
    code: str | None = Field(default=None, description="The bits that were compared.")


class Asked(BaseModel):
    """What was understood."""

    modality: str
    tags: list[str] = Field(description="The words of the query.")
    truth: str | None = Field(description="By what hits are told right from wrong, in words.")
    code: str | None = None


class Found(BaseModel):
    """The answer to a search, nearest first."""

    query: Asked
    hits: list[FoundHit]
    n_bits: int


class FoundTag(BaseModel):
    """A tag that neighbors voted for."""

    name: str
    score: float = Field(description="Share of the neighbors that have it.")
    votes: int


class Annotation(BaseModel):
    """The answer to an annotation, the best tag first."""

    tags: list[FoundTag]


class FoundItem(BaseModel):
    """One item of the collection."""

    id: int | str
    key: str
    payload: dict[str, Any]
    modalities: list[str]
    picture: str | None


class FoundItems(BaseModel):
    """Items, in order of arrival or as they were asked for."""

    items: list[FoundItem]
    total: int = Field(description="How many items the collection has.")


class Changed(BaseModel):
    """How many items were written or deleted."""

    changed: int


class Facts(BaseModel):
    """What the collection holds, and what its model is and can do."""

    collection: dict[str, Any] = Field(description="Items, modalities, bytes, health of the codes.")
    model: dict[str, Any] = Field(description="Modalities, what each takes, bits, layers, card.")
    report: dict[str, Any] = Field(
        description="Quality that learning measured and stored, where it did."
    )
    writable: bool


class Health(BaseModel):
    """That the service answers."""

    status: str
    items: int


class Problem(BaseModel):
    """What went wrong: what was expected, what came, and the remedy."""

    error: str

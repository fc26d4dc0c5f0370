"""``crossbit search`` and ``crossbit annotate``: a table for people, JSON lines for programs."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from crossbit.annotate import Tag
from crossbit.cli import show
from crossbit.cli.collections import named_ids
from crossbit.cli.places import OwnModel, Place, opened
from crossbit.collection import Collection, Hit
from crossbit.data import read_array
from crossbit.errors import DataError

T = TypeVar("T", Hit, Tag)

Things = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="THING...",
        help="Raw things, where the model has a recipe: texts, tags, paths of pictures.",
    ),
]
Modality = Annotated[str, typer.Option("--modality", "-m", help="Modality of what is asked with.")]
RowsFile = Annotated[
    str | None, typer.Option("--rows", help="Ask with rows of features: X.npy, or file.npz:KEY.")
]
Like = Annotated[
    str | None, typer.Option("--like", metavar="ID", help="Ask with an item of the collection.")
]
Filter = Annotated[
    str | None,
    typer.Option(help='Only items whose payload meets this, such as \'{"year": {">=": 2010}}\'.'),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="One line of JSON a query; so it is when the output is a file."),
]


def search(
    collection: Place,
    modality: Modality,
    things: Things = None,
    rows: RowsFile = None,
    like: Like = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items to find for each query.")] = 10,
    among: Annotated[
        list[str] | None,
        typer.Option(help="Find items by this modality; may be repeated. All by default."),
    ] = None,
    where: Filter = None,
    min_similarity: Annotated[
        float, typer.Option(min=0, max=1, help="Leave out less similar items.")
    ] = 0.0,
    rescore: Annotated[
        int | None,
        typer.Option(help="Order so many of the nearest by the bits that the query is surest of."),
    ] = None,
    as_json: AsJson = False,
    model: OwnModel = None,
) -> None:
    """Find the items nearest to things of any modality.

    For example:

      crossbit search photos "red + food" -m text --among image
      crossbit search photos --like cat.jpg -m image -k 20 --where '{"year": {">=": 2010}, "tags": {"has": "dog"}}'
      crossbit search photos --rows queries.npy -m text > hits.jsonl
    """
    with opened(collection, model) as there:
        asked, titles = _asked(there, modality, things, rows, like)
        found = there.search(
            modality,
            asked,
            k,
            among=among or None,
            where=_parse(where),
            min_similarity=min_similarity,
            rescore=rescore,
        )
    _print(found, titles, _show_hits, as_json=as_json)


def annotate(
    collection: Place,
    modality: Modality,
    things: Things = None,
    rows: RowsFile = None,
    like: Like = None,
    from_: Annotated[
        str, typer.Option("--from", help="Find neighbors by this modality, or 'all'.")
    ] = "text",
    neighbors: Annotated[int, typer.Option(min=1, help="How many neighbors vote.")] = 5,
    tags: Annotated[int, typer.Option(min=1, help="How many tags to give at most.")] = 10,
    field: Annotated[str, typer.Option(help="Payload field with an item's tags.")] = "tags",
    where: Filter = None,
    as_json: AsJson = False,
    model: OwnModel = None,
) -> None:
    """Suggest tags for things: those of their nearest neighbors, by vote.

    For example:

      crossbit annotate photos new.jpg -m image --from text
      crossbit annotate photos --rows image.npy -m image --neighbors 10 --tags 5
    """
    with opened(collection, model) as there:
        asked, titles = _asked(there, modality, things, rows, like)
        found = there.annotate(
            modality,
            asked,
            from_=None if from_ == "all" else from_,
            neighbors=neighbors,
            tags=tags,
            field=field,
            where=_parse(where),
        )
    _print(found, titles, _show_tags, as_json=as_json)


def _asked(
    collection: Collection,
    modality: str,
    things: list[str] | None,
    rows: str | None,
    like: str | None,
) -> tuple[Any, list[str]]:
    """What is asked with, and a title for each query."""
    if sum(given not in (None, []) for given in (things, rows, like)) != 1:
        raise DataError(
            "ask with things, or with --rows FILE, or with --like ID: exactly one of them"
        )
    if rows is not None:
        X = read_array(rows)
        return X, [f"row {i}" for i in range(len(X))]
    if like is not None:
        return _codes_like(collection, modality, like), [f"like {like}"]
    return things, [str(thing) for thing in things or []]


def _codes_like(collection: Collection, modality: str, like: str) -> Any:  # noqa: ANN401 - Codes
    """The code of an item."""
    (item,) = collection.get(named_ids(collection, [like]))
    if item is None:
        raise DataError(f"there is no item {like!r} in {collection.place}")
    if modality not in item.codes:
        raise DataError(f"item {like!r} has no code of {modality!r}; it has {item.modalities}")
    return item.codes[modality]


def _parse(where: str | None) -> Any:  # noqa: ANN401 - whatever JSON holds; the collection looks at it
    if where is None:
        return None
    try:
        return json.loads(where)
    except ValueError as error:
        raise DataError(
            f'--where takes JSON, such as {{"year": {{">=": 2010}}}}; got {where!r} ({error})'
        ) from error


def _print(
    found: list[list[T]], titles: list[str], table: Callable[[str, list[T]], None], *, as_json: bool
) -> None:
    """What was found for each query: a table, or a line of JSON."""
    for title, own in zip(titles, found, strict=True):
        if as_json or not show.out.is_terminal:
            typer.echo(show.json_line([asdict(each) for each in own]))
        else:
            table(title, own)


def _show_hits(title: str, hits: list[Hit]) -> None:
    table = show.table("", "id", "by", "payload", "similarity", "bits", title=title, left=4)
    table.columns[3].no_wrap = False
    for rank, hit in enumerate(hits, start=1):
        payload = ", ".join(f"{key}: {_short(value)}" for key, value in hit.payload.items())
        id_, short = escape(str(hit.id)), escape(payload)
        table.add_row(
            str(rank),
            f"[bold]{id_}[/bold]",
            hit.modality,
            short,
            f"{hit.similarity:.3f}",
            str(hit.distance),
        )
    show.out.print(table)
    show.out.print()


def _show_tags(title: str, tags: list[Tag]) -> None:
    table = show.table("tag", "share of the neighbors", "votes", title=title, left=1)
    for tag in tags:
        table.add_row(
            f"[bold]{escape(tag.name)}[/bold]", show.percent(tag.score) + " %", str(tag.votes)
        )
    show.out.print(table)
    show.out.print()


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

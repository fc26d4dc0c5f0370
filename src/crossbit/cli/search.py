"""``crossbit search`` and ``crossbit annotate``: tables for people, JSON lines for programs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from crossbit.annotate import Tag
from crossbit.cli import console
from crossbit.cli._options import CollectionModel, CollectionPath, open_collection, resolve_ids
from crossbit.collection.collection import Collection
from crossbit.collection.types import Hit
from crossbit.data.conversion.readers import read_array
from crossbit.errors import DataError

commands = typer.Typer()
_PANEL = "Collections"
_MAX_CELL = 60  # characters of a payload field in a table
T = TypeVar("T", Hit, Tag)

Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUT...",
        help="Raw inputs, if the model has an extractor: texts, tags or paths of images.",
    ),
]
Modality = Annotated[str, typer.Option("--modality", "-m", help="Modality of the queries.")]
_RowsFile = Annotated[
    str | None, typer.Option("--rows", help="Feature rows as queries: X.npy or file.npz:KEY.")
]
Like = Annotated[
    str | None, typer.Option("--like", metavar="ID", help="An item of the collection as query.")
]
Filter = Annotated[
    str | None,
    typer.Option("--filter", help='Condition on the payload, such as \'{"year": {">=": 2010}}\'.'),
]
_AsJson = Annotated[
    bool,
    typer.Option("--json", help="One JSON line per query; the default if stdout is a file."),
]


@commands.command("search", rich_help_panel=_PANEL)
def _search(
    collection: CollectionPath,
    modality: Modality,
    inputs: Inputs = None,
    rows: _RowsFile = None,
    like: Like = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of hits per query.")] = 10,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Modality to search; repeatable; '*' for all.",
            show_default="all but the query's own",
        ),
    ] = None,
    filter_: Filter = None,
    min_similarity: Annotated[
        str,
        typer.Option(
            metavar="SIMILARITY", help="Leave out hits below it, 0 to 1; 'auto': weak hits."
        ),
    ] = "0",
    group_by: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="The nearest item per value of a payload field."),
    ] = None,
    offset: Annotated[
        int, typer.Option(min=0, help="Nearest hits to skip: those of earlier pages.")
    ] = 0,
    rerank: Annotated[
        int | None,
        typer.Option(help="Rerank this many of the nearest by the query's real-valued outputs."),
    ] = None,
    rerank_by: Annotated[
        str,
        typer.Option(help="Rerank by 'codes', or by 'scores' or 'features' that are kept."),
    ] = "codes",
    as_json: _AsJson = False,
    model: CollectionModel = None,
) -> None:
    """Find the items nearest to a query of any modality.

    A query is a raw input, a feature row (--rows) or an item of the collection (--like), which is
    not among its own hits. Without --target all modalities but the query's own are searched, or its
    own if there is no other.
    A hit is weak if it is farther than the best hit of 95 % of held-out queries ('crossbit learn'
    and 'crossbit calibrate' store how far that is).

    For example:

      crossbit search photos "red + food" -m text --target image
      crossbit search photos --like cat.jpg -m image -k 20
      crossbit search photos dog -m text --filter '{"year": {">=": 2010}}'
      crossbit search photos dog -m text --filter '{"tags": {"has": "beach"}}'
      crossbit search photos dog -m text --filter '{"or": [{"year": 2010}, {"not": {"iso": 100}}]}'
      crossbit search photos dog -m text --min-similarity auto --group-by author
      crossbit search photos --rows queries.npy -m text > hits.jsonl
      crossbit search photos dog -m text --target image --rerank 40 --rerank-by scores
    """
    with open_collection(collection, model) as source:
        queries, titles = _queries(source, modality, inputs, rows, like)
        results = source.search(
            modality,
            queries,
            k,
            target=target or None,
            filter=_parse_filter(filter_),
            min_similarity=_parse_similarity(min_similarity),
            group_by=group_by,
            offset=offset,
            exclude=None if like is None else resolve_ids(source, [like])[0],
            rerank=rerank,
            rerank_by=rerank_by,
        )
    _print(results, titles, _hits_table, as_json=as_json)


@commands.command("annotate", rich_help_panel=_PANEL)
def _annotate(
    collection: CollectionPath,
    modality: Modality,
    inputs: Inputs = None,
    rows: _RowsFile = None,
    like: Like = None,
    target: Annotated[
        str, typer.Option(help="Modality to search for neighbors, or 'all'.")
    ] = "text",
    neighbors: Annotated[int, typer.Option(min=1, help="Number of neighbors that vote.")] = 5,
    max_tags: Annotated[int, typer.Option(min=1, help="Largest number of tags.")] = 10,
    field: Annotated[str, typer.Option(help="Payload field with the tags of an item.")] = "tags",
    filter_: Filter = None,
    as_json: _AsJson = False,
    model: CollectionModel = None,
) -> None:
    """Suggest tags by a vote of the nearest neighbors.

    The score of a tag is the share of the neighbors that have it in a payload field.

    For example:

      crossbit annotate photos new.jpg -m image --target text
      crossbit annotate photos --rows X.npy -m image --neighbors 10 --max-tags 5
    """
    with open_collection(collection, model) as source:
        queries, titles = _queries(source, modality, inputs, rows, like)
        tags = source.annotate(
            modality,
            queries,
            target="*" if target == "all" else target,
            neighbors=neighbors,
            max_tags=max_tags,
            field=field,
            filter=_parse_filter(filter_),
        )
    _print(tags, titles, _tags_table, as_json=as_json)


def _queries(
    collection: Collection,
    modality: str,
    inputs: list[str] | None,
    rows: str | None,
    like: str | None,
) -> tuple[Any, list[str]]:
    """Return the queries and a title for each."""
    if sum(option not in (None, []) for option in (inputs, rows, like)) != 1:
        raise DataError("give exactly one kind of query: inputs, --rows FILE, or --like ID")
    if rows is not None:
        X = read_array(rows)
        return X, [f"row {i}" for i in range(len(X))]
    if like is not None:
        return _code_of(collection, modality, like), [f"like {like}"]
    return inputs, list(inputs or [])


def _code_of(collection: Collection, modality: str, like: str) -> Any:  # noqa: ANN401 - Codes
    """Return the stored code of an item."""
    (item,) = collection.get(resolve_ids(collection, [like]))
    if item is None:
        raise DataError(f"there is no item {like!r} in {collection.path}")
    if modality not in item.codes:
        raise DataError(f"item {like!r} has no code of {modality!r}; it has {item.modalities}")
    return item.codes[modality]


def _parse_filter(text: str | None) -> Any:  # noqa: ANN401 - any JSON; the collection validates it
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        example = '{"year": {">=": 2010}}'
        raise DataError(
            f"--filter takes JSON, such as {example}; got {text!r} ({error})"
        ) from error


def _parse_similarity(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # the collection validates it


def _print(
    results: Sequence[Sequence[T]],
    titles: list[str],
    print_table: Callable[[str, Sequence[T]], None],
    *,
    as_json: bool,
) -> None:
    """Print the results of each query as a table or as a JSON line."""
    for title, result in zip(titles, results, strict=True):
        if as_json or not console.out.is_terminal:
            typer.echo(console.json_line([_to_json(entry) for entry in result]))
        else:
            print_table(title, result)


def _to_json(entry: Hit | Tag) -> dict[str, Any]:
    is_unmarked = isinstance(entry, Hit) and entry.weak is None
    left_out = ("code", "weak") if is_unmarked else ("code",)
    return {key: value for key, value in asdict(entry).items() if key not in left_out}


def _hits_table(title: str, hits: Sequence[Hit]) -> None:
    columns = ("", "id", "modality", "payload", "similarity", "distance")
    table = console.table(*columns, title=title, left=4)
    table.columns[3].no_wrap = False
    for rank, hit in enumerate(hits, start=1):
        payload = ", ".join(f"{key}: {_shorten(value)}" for key, value in hit.payload.items())
        table.add_row(
            str(rank),
            f"[bold]{escape(str(hit.id))}[/bold]",
            hit.modality,
            escape(payload),
            f"{hit.similarity:.3f}{' weak' if hit.weak else ''}",
            str(hit.distance),
        )
    console.out.print(table)
    console.out.print()


def _tags_table(title: str, tags: Sequence[Tag]) -> None:
    table = console.table("tag", "share of neighbors", "votes", title=title, left=1)
    for tag in tags:
        share = console.percent(tag.score) + " %"
        table.add_row(f"[bold]{escape(tag.name)}[/bold]", share, str(tag.votes))
    console.out.print(table)
    console.out.print()


def _shorten(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 3]}..."

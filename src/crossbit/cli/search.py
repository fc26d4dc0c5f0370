"""``crossbit search``: tables for people, JSON lines for programs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from crossbit.annotate import Tag, tag_list, vote
from crossbit.cli import console
from crossbit.cli._options import CollectionPath, open_collection, refuse, resolve_ids
from crossbit.collection.collection import Collection
from crossbit.collection.store import display_path
from crossbit.collection.types import Hit
from crossbit.data.conversion.readers import read_array
from crossbit.errors import DataError
from crossbit.pipeline.table import kind_of_file

commands = typer.Typer()
_MAX_TAGS = 10
_MAX_CELL = 60  # characters of a payload field in a table
T = TypeVar("T", Hit, Tag)


@commands.command("search")
def _search(
    collection: CollectionPath,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...", help="Queries, if the model has an extractor: texts, or files."
        ),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Feature rows as queries: X.npy or file.npz:KEY.")
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="ID", help="An item of the collection as query.")
    ] = None,
    modality: Annotated[
        str | None,
        typer.Option(
            "--modality", "-m", help="Modality of the queries.", show_default="by what they are"
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of hits per query.")] = 10,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Modality to search; repeatable; '*' for all.",
            show_default="all but the query's own",
        ),
    ] = None,
    filter_: Annotated[
        str | None,
        typer.Option(
            "--filter", help='Condition on the payload, such as \'{"year": {">=": 2010}}\'.'
        ),
    ] = None,
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
    tags: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Suggest tags instead of showing hits: a vote of the hits by a payload field that"
            " holds tags.",
        ),
    ] = None,
    max_tags: Annotated[
        int | None,
        typer.Option(min=1, help="With --tags: largest number of tags.", show_default="10"),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="One JSON line per query; the default if stdout is a file."),
    ] = False,
) -> None:
    """Find the items nearest to a query of any modality.

    A query is a text, a file such as a picture, a feature row (--rows) or an item of the collection
    (--like), which is not among its own hits. An input is a file if it exists and a modality takes
    files of its kind, otherwise a text; --modality decides where that is not clear. Without
    --target all modalities but the query's own are searched, or its own if there is no other.

    A hit is weak if it is farther than the best hit of 95 % of held-out queries.

    For example:

      crossbit search photos "a dog in the snow"
      crossbit search photos dog.jpg -k 20
      crossbit search photos --like cat.jpg -m image --target image
      crossbit search photos dog --filter '{"year": {">=": 2010}, "tags": {"has": "beach"}}'
      crossbit search photos dog --filter '{"or": [{"year": 2010}, {"not": {"iso": 100}}]}'
      crossbit search photos dog --min-similarity auto --group-by author
      crossbit search photos --rows queries.npy -m text > hits.jsonl
      crossbit search photos dog --target image --rerank 40 --rerank-by scores
      crossbit search photos new.jpg --tags tags -k 5
    """
    if tags is None:
        refuse("search without --tags", {"--max-tags": max_tags})
    with open_collection(collection) as source:
        query = _query(source, modality, inputs, rows, like)
        results = source.search(
            query.modality,
            query.inputs,
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
    if tags is None:
        _print(results, query.titles, _hits_table, as_json=as_json)
        return
    votes = [
        vote([tag_list(hit.payload.get(tags)) for hit in hits], max_tags=max_tags or _MAX_TAGS)
        for hits in results
    ]
    _print(votes, query.titles, _tags_table, as_json=as_json)


@dataclass(frozen=True)
class _Query:
    """Queries of one modality, and a title for each."""

    modality: str
    inputs: Any
    titles: list[str]


def _query(
    collection: Collection,
    modality: str | None,
    inputs: list[str] | None,
    rows: str | None,
    like: str | None,
) -> _Query:
    """Read the queries and, unless it is given, guess their modality."""
    if sum(option not in (None, []) for option in (inputs, rows, like)) != 1:
        raise DataError("give exactly one kind of query: inputs, --rows FILE, or --like ID")
    model = collection.model
    if rows is not None:
        X = read_array(rows)
        fitting = [name for name in model.modalities if model.width(name) == X.shape[-1]]
        titles = [f"row {i}" for i in range(len(X))]
        return _Query(modality or _only(fitting, model.modalities, rows), X, titles)
    if like is not None:
        (item,) = collection.get(resolve_ids(collection, [like]))
        if item is None:
            raise DataError(f"there is no item {like!r} in {display_path(collection.path)}")
        name = modality or _only(item.modalities, item.modalities, f"item {like!r}")
        if name not in item.codes:
            raise DataError(f"item {like!r} has no code of {name!r}; it has {item.modalities}")
        return _Query(name, item.codes[name], [f"like {like}"])
    words = inputs or []
    if modality is None:
        modality = _guess_modality(collection, words)
    return _Query(modality, words, words)


def _guess_modality(collection: Collection, words: list[str]) -> str:
    """Return the modality that takes all inputs: files of its kind that exist, otherwise texts."""
    modalities = collection.model.modalities
    accepts = {name: collection.accepts(name) for name in modalities}
    guessed = set()
    for word in words:
        kind = kind_of_file(word)
        if kind not in accepts.values() or not Path(word).is_file():
            kind = "text"
        fitting = [name for name in modalities if accepts[name] == kind]
        guessed.add(_only(fitting, modalities, repr(word)))
    return _only(sorted(guessed), modalities, "the inputs together")


def _only(fitting: list[str], modalities: list[str], query: str) -> str:
    """Return the only modality that fits a query."""
    if len(fitting) == 1:
        return fitting[0]
    reason = "several modalities take it" if fitting else "no modality takes it"
    raise DataError(
        f"the modality of {query} is not clear ({reason}); add --modality with one of"
        f" {', '.join(fitting or modalities)}"
    )


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

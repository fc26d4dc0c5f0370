"""``crossbit search``: tables for people, JSON lines for programs."""

import dataclasses
import types
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from rich.markup import escape

from crossbit.annotate import Tag, tag_list, vote
from crossbit.cli import console
from crossbit.cli._command import explained
from crossbit.cli._options import open_collection, parse_json, refuse, resolve_ids
from crossbit.collection.collection import Collection
from crossbit.collection.search import Option, SearchOptions
from crossbit.collection.stores import display_path
from crossbit.collection.values import Hit
from crossbit.data.conversion.readers import read_array
from crossbit.errors import DataError
from crossbit.learn.files import kind_of_file

commands = typer.Typer()
_MAX_CELL = 60  # characters of a payload field in a table
_PLAIN = (int, bool, str, list[str])  # types of options; values of others are written as JSON
T = TypeVar("T", Hit, Tag)


def _with_search_options(function: Callable[..., None]) -> Callable[..., None]:
    """Put the fields of `SearchOptions` in the place of ``**options``."""
    given = signature(function, eval_str=True)
    own = [each for each in given.parameters.values() if each.kind is not each.VAR_KEYWORD]
    parameters = [*own, *map(_parameter, SearchOptions.all())]
    function.__signature__ = given.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def _parameter(option: Option) -> Parameter:
    """Return a search option as a parameter of a command."""
    annotation, default = option.json, option.default
    if not _is_plain(option):
        annotation, default = str | None, None
    parameter = Parameter(
        option.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
    return explained(parameter, option.doc.replace("``", ""))


def _is_plain(option: Option) -> bool:
    """Return whether the command line can read the type of an option by itself."""
    kinds: list[Any] = [option.json]
    if get_origin(option.json) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(option.json) if kind is not types.NoneType]
    return len(kinds) == 1 and (kinds[0] in _PLAIN or get_origin(kinds[0]) is Literal)


def _parse_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given; numbers, words and objects are written as JSON."""
    values = {name: value for name, value in given.items() if value not in (None, [])}
    for option in SearchOptions.all():
        if option.name in values and not _is_plain(option):
            required = f"--{option.name}" if "dict" in str(option.json) else None
            values[option.name] = parse_json(values[option.name], required)
    return values


@commands.command("search")
@_with_search_options
def _search(
    collection: str,
    inputs: list[str] | None = None,
    *,
    rows: str | None = None,
    like: str | None = None,
    modality: str | None = None,
    tags: str | None = None,
    json_: bool = False,
    **options: Any,  # noqa: ANN401 - fields of SearchOptions
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

    Args:
        inputs: ``INPUT``: Queries, if the model has an extractor: texts, or files.
        rows: Feature rows as queries: X.npy or file.npz:KEY.
        like: ``ID``: An item of the collection as query.
        modality: Modality of the queries. Default: by what they are.
        tags: ``FIELD``: Suggest tags instead of showing hits: the ten most frequent in a
            payload field of the hits.
        json_: One JSON line per query; the default if stdout is a file.
    """
    wanted = _parse_options(options)
    with open_collection(collection) as source:
        modality, queries, titles = _query(source, modality, inputs, rows, like)
        if like is not None:
            refuse("--like", {"--exclude": wanted.get("exclude")})
            wanted["exclude"] = like
        if "exclude" in wanted:
            (wanted["exclude"],) = resolve_ids(source, [str(wanted["exclude"])])
        results = source.search(modality, queries, **wanted)
    if tags is None:
        _print(results, titles, _hits_table, as_json=json_)
        return
    votes = [vote([tag_list(hit.payload.get(tags)) for hit in hits]) for hits in results]
    _print(votes, titles, _tags_table, as_json=json_)


def _query(
    collection: Collection,
    modality: str | None,
    inputs: list[str] | None,
    rows: str | None,
    like: str | None,
) -> tuple[str, Any, list[str]]:
    """Return the modality, guessed unless it is given, the queries, and a title for each."""
    if sum(option not in (None, []) for option in (inputs, rows, like)) != 1:
        raise DataError("give exactly one kind of query: inputs, --rows FILE, or --like ID")
    model = collection.model
    if rows is not None:
        X = read_array(rows)
        fitting = [name for name in model.modalities if model.width(name) == X.shape[-1]]
        titles = [f"row {i}" for i in range(len(X))]
        return modality or _only(fitting, model.modalities, rows), X, titles
    if like is not None:
        (item,) = collection.get(resolve_ids(collection, [like]), kept=True)
        if item is None:
            raise DataError(f"there is no item {like!r} in {display_path(collection.path)}")
        name = modality or _only(item.modalities, item.modalities, f"item {like!r}")
        if name not in item.codes:
            raise DataError(f"item {like!r} has no code of {name!r}; it has {item.modalities}")
        return name, item.view(name), [f"like {like}"]
    words = inputs or []
    return modality or _guess_modality(collection, words), words, words


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
    fields = entry.to_json() if isinstance(entry, Hit) else dataclasses.asdict(entry)
    return {key: value for key, value in fields.items() if value is not None}


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

"""``crossbit encode``, ``evaluate`` and ``score``: make codes and measure them."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from crossbit import distributed, evaluation, metrics
from crossbit._io.files import ArrayFile, atomic_write, write_json
from crossbit._validation import present_rows
from crossbit.cli import console
from crossbit.cli._options import (
    DatasetFolder,
    ModelFolder,
    RayAddress,
    RayColumn,
    RayIdColumn,
    RayTarget,
    RayWorkers,
    ReplaceOutput,
    check_output,
    rows_of_files,
)
from crossbit.codes import FORMAT, Codes
from crossbit.data.conversion.readers import read_array
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError, RowError
from crossbit.metrics.average import Divisor
from crossbit.metrics.evaluate import Empty, Report
from crossbit.metrics.tie_counts import Ties
from crossbit.model.hashmodel import HashModel

commands = typer.Typer()
_ENCODE_ROWS = 1 << 16  # rows per block: bounds the memory of `crossbit encode`
_THREADS = 2
_CANDIDATES = 100  # of a rerank, unless --candidates says otherwise

At = Annotated[
    list[int] | None,
    typer.Option("--at", min=1, help="Rank cut-off of mAP, precision, recall; repeatable."),
]
_Radius = Annotated[
    list[int] | None, typer.Option("--radius", min=0, help="Hamming radius; repeatable.")
]
_TieOrder = Annotated[Ties, typer.Option(help="How items at the same distance are ordered.")]
_DividedBy = Annotated[Divisor, typer.Option(help="Divisor of average precision at a cut-off.")]
_QuerySplit = Annotated[
    str | None,
    typer.Option(
        "--queries", help="Split of the queries.", show_default="query, test, or all rows"
    ),
]
_BaseSplit = Annotated[
    str | None,
    typer.Option("--base", help="Split to search.", show_default="database, or the queries' split"),
]
_ResultOut = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="JSON file; the codes go beside it.", show_default="results/…"
    ),
]
_CodesFile = Annotated[
    str,
    typer.Argument(
        metavar="CODES",
        help="Codes of the queries: a codes file, .npy, file.npz:KEY or file.mat:KEY.",
    ),
]
_LabelsFile = Annotated[
    str,
    typer.Argument(
        metavar="LABELS", help="Labels of the queries: classes, or zeros and ones (n, classes)."
    ),
]


@commands.command("encode")
def _encode(
    model: ModelFolder,
    rows: Annotated[
        str,
        typer.Argument(metavar="ROWS", help="Features: X.npy, file.npz:KEY or file.mat:KEY."),
    ],
    modality: Annotated[str, typer.Option("--modality", "-m", help="Modality of the rows.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File for the codes; '.npy' gives rows of packed bytes."),
    ] = None,
    skip_absent: Annotated[
        bool,
        typer.Option(
            "--skip-absent",
            help="Skip rows that are all NaN; OUT.rows.npy lists the rows that were encoded.",
        ),
    ] = False,
    replace: ReplaceOutput = False,
    ray: RayAddress = None,
    workers: RayWorkers = 2,
    into: RayTarget = None,
    column: RayColumn = None,
    id_column: RayIdColumn = "id",
) -> None:
    """Encode feature rows as binary codes.

    On a Ray cluster, ROWS is a .npy or .parquet file, or a folder of such files, that all
    machines can read, and the codes can go straight into a collection.

    For example:

      crossbit encode toy-model toy/image.npy --modality image --out image.codes
      crossbit encode toy-model features.mat:I_te -m image -o image.npy
      crossbit encode toy-model shards/ -m image --ray local --into photos
    """
    if out is not None:
        if out.exists() and out.resolve() == Path(rows.partition(":")[0]).resolve():
            raise DataError(f"{out} holds the feature rows; write the codes to another file")
        check_output(out, replace=replace)
        check_output(_rows_file(out), replace=replace or not skip_absent)
    if ray is not None:
        job = distributed.EncodingJob(
            model, rows, modality, column, id_column, ray, workers, skip_absent=skip_absent
        )
        _encode_on_ray(job, out, into)
        return
    if out is None or into is not None:
        raise DataError(
            "name the file for the codes with --out FILE; --into COLLECTION needs --ray,"
            " without it use: crossbit add"
        )
    loaded = HashModel.load(model)
    X = read_array(rows)
    numbers = np.flatnonzero(present_rows(X)) if skip_absent else np.arange(len(X))
    words = np.zeros((len(numbers), -(-loaded.n_bits // 64)), np.uint64)
    with console.counting("encoding", len(numbers)) as advance:
        for start in range(0, len(numbers), _ENCODE_ROWS):
            part = slice(start, start + _ENCODE_ROWS)
            block = X[numbers[part]] if skip_absent else X[part]
            try:
                words[part] = loaded.encode(modality, block).words
            except RowError as error:
                number = int(numbers[part][error.row])
                remedy = "" if skip_absent else ", or skip rows that are all NaN with --skip-absent"
                raise DataError(
                    f"{rows}: row {number} (counted from 0) {error.problem}{remedy}"
                ) from error
            advance(len(block))
    _write_codes(Codes(words, loaded.n_bits), out, numbers if skip_absent else None)


def _encode_on_ray(job: distributed.EncodingJob, out: Path | None, into: str | None) -> None:
    if (out is None) == (into is None):
        raise DataError("give exactly one output: --out FILE or --into COLLECTION")
    with console.counting("encoding", sum(map(len, job.blocks()))) as advance:
        if into is not None:
            count = distributed.encode_into(into, job, on_rows=advance)
            console.say(f"{count} items written to {into}")
        elif out is not None:
            encoded = distributed.encode(job, on_rows=advance)
            _write_codes(encoded.codes, out, encoded.rows if job.skip_absent else None)


def _write_codes(codes: Codes, out: Path, rows: NDArray[np.int64] | None) -> None:
    """Write codes, as packed bytes if the name ends in ``.npy``, and the rows they belong to."""
    if out.suffix != ".npy":
        codes.save(out)
    else:
        with atomic_write(out) as file:
            np.save(file, codes.to_bytes())
    if rows is not None:
        with atomic_write(_rows_file(out)) as file:
            np.save(file, rows)
    console.say(f"{codes} written to {out}")


def _rows_file(out: Path) -> Path:
    return out.with_name(out.name + ".rows.npy")


@commands.command("evaluate")
def _evaluate(
    model: ModelFolder,
    dataset: DatasetFolder,
    queries: _QuerySplit = None,
    base: _BaseSplit = None,
    at: At = None,
    radius: _Radius = None,
    ties: _TieOrder = "expected",
    divisor: _DividedBy = "retrieved",
    exclude_self: Annotated[
        bool,
        typer.Option(
            "--exclude-self/--include-self",
            help="Whether a query's own row is left out in other modalities; in its own modality"
            " it always is.",
        ),
    ] = False,
    stages: Annotated[
        bool,
        typer.Option(
            "--stages", help="Also measure after each stage between features and reranked hits."
        ),
    ] = False,
    prefix: Annotated[
        int | None,
        typer.Option(min=1, help="Bits of the index of --stages.", show_default="half the code"),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(min=1, help="Items that --stages reranks per query.", show_default="100"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="SVG file with a bar chart of the stages.")
    ] = None,
    out: _ResultOut = None,
) -> None:
    """Evaluate a model on a data set, from every modality to every modality.

    An item is relevant if it shares a class with the query or, without labels, if it is the same
    row. --stages shows where quality is lost: encoder, preprocessing, projection, bits, prefix,
    index, rerank; by mAP with labels, else by recall@10.

    For example:

      crossbit evaluate toy-model toy
      crossbit evaluate toy-model toy --stages --prefix 16 --plot stages.svg
      crossbit evaluate toy-model toy --at 10 --at 50 --radius 2 --out toy.json
    """
    start = time.perf_counter()
    loaded = HashModel.load(model)
    data = Dataset.load(dataset)
    facts = data.describe()
    facts["name"] = facts["name"] or dataset.resolve().name
    path = out or evaluation.result_path(
        Path("results"), "evaluate", dataset=facts["name"], card=loaded.card, n_bits=loaded.n_bits
    )
    protocol = evaluation.default_protocol(
        data,
        queries=queries,
        base=base,
        measures=_measures(at, radius, ties, divisor),
        include_self=not exclude_self,
    )
    with rows_of_files(dataset, data), console.steps("evaluating") as on_step:
        result = evaluation.evaluate_model(
            loaded, data, protocol, threads=_THREADS, on_step=on_step
        )
        measured = []
        if stages or any(option is not None for option in (prefix, candidates, plot)):
            measured = evaluation.evaluate_stages(
                loaded, data, protocol, prefix=prefix, candidates=candidates or _CANDIDATES
            )
    seconds = time.perf_counter() - start
    evaluation.write_result(
        path, result, card=loaded.card, dataset=facts, seconds=seconds, stages=measured
    )
    reports = result.reports.items()
    console.reports({evaluation.format_direction(pair): report for pair, report in reports})
    console.health(result.health)
    console.stages(measured)
    if plot is not None:
        evaluation.plot_stages(plot, measured)
    console.say(f"{protocol.summary}; definitions, bounds and codes in {path}")
    if queries is None and not {"query", "test"} & data.splits.keys():
        console.say(
            f"{dataset} has no test split: if the model was trained on these rows, the results are"
            " optimistic; convert the data with splits (--map image:train=… --map image:test=…),"
            " or evaluate on other rows"
        )


@commands.command("score")
def _score(
    codes: _CodesFile,
    labels: _LabelsFile,
    base: Annotated[
        str | None, typer.Option(help="Codes to search.", show_default="the queries")
    ] = None,
    base_labels: Annotated[
        str | None, typer.Option(help="Labels of the base.", show_default="the queries'")
    ] = None,
    bits: Annotated[
        int | None, typer.Option("--bits", "-b", help="Code length, if CODES are packed bytes.")
    ] = None,
    sign: Annotated[
        bool, typer.Option("--sign", help="CODES are real numbers: a bit is 1 where they are ≥ 0.")
    ] = False,
    at: At = None,
    radius: _Radius = None,
    ties: _TieOrder = "expected",
    divisor: _DividedBy = "retrieved",
    empty: Annotated[
        Empty, typer.Option(help="Treatment of queries without relevant items.")
    ] = "skip",
    exclude_self: Annotated[
        bool,
        typer.Option(
            "--exclude-self/--include-self",
            help="Without --base: whether a query is left out of its own ranking.",
        ),
    ] = True,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the report as JSON.")
    ] = None,
) -> None:
    """Measure codes of any origin: mAP, precision, recall and nDCG with exact definitions.

    Codes may be booleans, zeros and ones, −1 and +1, or rows of packed bytes with --bits.
    Without --base every query searches all the others.

    For example:

      crossbit score codes.npy labels.npy --at 10
      crossbit score B.mat:B_te B.mat:L_te --base B.mat:B_tr --base-labels B.mat:L_tr
    """
    if (base is None) != (base_labels is None):
        raise DataError("--base and --base-labels go together; give both or neither")
    query_codes = _read_codes(codes, bits, sign=sign)
    base_codes = query_codes if base is None else _read_codes(base, bits, sign=sign)
    of_queries = _read_labels(labels, len(query_codes))
    of_base = of_queries if base_labels is None else _read_labels(base_labels, len(base_codes))
    report = metrics.evaluate(
        query_codes,
        base_codes,
        metrics.from_labels(of_queries, of_base),
        measures=_measures(at, radius, ties, divisor),
        exclude="same-row" if base is None and exclude_self else None,
        empty=empty,
        threads=_THREADS,
    )
    _print_report(report)
    if out is not None:
        write_json(out, report.to_dict())


def _measures(
    at: list[int] | None, radius: list[int] | None, ties: Ties, divisor: Divisor
) -> tuple[metrics.Measure, ...]:
    return metrics.standard_measures(
        at=at or (10, 100), radii=radius or (2,), divisor=divisor, ties=ties
    )


def _read_codes(path: str, bits: int | None, *, sign: bool) -> Codes:
    """Read codes from a codes file, or from an array in one of the usual forms."""
    if ArrayFile.is_at(Path(path)):
        return Codes.load(path)
    array = read_array(path)
    if bits is not None:
        return Codes.from_bytes(array, bits)
    if sign or (array.dtype.kind in "if" and array.ndim == 2 and np.isin(array, (-1, 1)).all()):
        array = array >= 0
    try:
        return Codes.pack(array)
    except DataError as error:
        remedy = "for packed bytes give --bits"
        if array.dtype != np.uint8:
            remedy = "for real numbers give --sign"
        raise DataError(f"{path}: {error}; {remedy}, or use a file of format {FORMAT!r}") from error


def _read_labels(path: str, n: int) -> NDArray[Any]:
    """Read labels; a single row, as MATLAB writes vectors, is flattened."""
    labels = read_array(path)
    if labels.ndim == 2 and len(labels) == 1 != n:
        labels = labels[0]
    if len(labels) != n:
        raise DataError(f"{path}: {len(labels)} labels for {n} codes")
    return labels


def _print_report(report: Report) -> None:
    """Print one line per measure, then the definitions."""
    percent = console.percent
    table = console.table("", "value", "95 %", "ties", "chance")
    for result in report:
        bounded = result.worst is not None
        table.add_row(
            result.name,
            f"[bold]{percent(result.value)}[/bold]",
            f"{percent(result.low)}–{percent(result.high)}",
            f"{percent(result.worst)}–{percent(result.best)}" if bounded else "",
            percent(result.chance),
        )
    console.out.print(table)
    console.out.print("[dim]percent[/dim]")
    definitions = console.table("", "definition", left=2, wrap=1)
    for result in report:
        definitions.add_row(result.name, f"[dim]{result.definition}")
    console.out.print()
    console.out.print(definitions)

"""``crossbit encode`` and ``evaluate``: make codes and measure them."""

import time
from collections.abc import Callable
from functools import partial
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
    RAY_WORKERS,
    ModelFolder,
    Workers,
    check_dataset,
    check_model,
    check_output,
    refuse,
    rows_of_files,
    split_address,
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


@commands.command("encode")
def _encode(
    model: ModelFolder,
    rows: str,
    *,
    modality: str,
    out: Path | None = None,
    skip_absent: bool = False,
    replace: bool = False,
    ray: str | None = None,
    workers: Workers = None,
    into: str | None = None,
    id_column: str | None = None,
) -> None:
    """Encode feature rows as binary codes.

    On a Ray cluster, ROWS is a .npy or .parquet file, or a folder of such files, that all
    machines can read, and the codes can go straight into a collection.

    For example:

      crossbit encode toy-model toy/image.npy --modality image --out image.codes
      crossbit encode toy-model features.mat:I_te -m image -o image.npy
      crossbit encode toy-model shards/ -m image --ray local --into photos

    Args:
        rows: ``ROWS``: Features: X.npy, file.npz:KEY or file.mat:KEY; with --ray also PATH:COLUMN
            of parquet files, if the column is not called as the modality.
        modality: Modality of the rows.
        out: File for the codes; '.npy' gives rows of packed bytes.
        skip_absent: Skip rows that are all NaN; OUT.rows.npy lists the rows that were encoded.
        into: ``COLLECTION``: With --ray: write the codes into a collection, not a file.
        id_column: With --ray: column of parquet files with the ids. Default: id, or row numbers.
    """
    if out is not None:
        if out.exists() and out.resolve() == Path(rows.partition(":")[0]).resolve():
            raise DataError(f"{out} holds the feature rows; write the codes to another file")
        check_output(out, replace=replace)
        check_output(_rows_file(out), replace=replace or not skip_absent)
    if ray is not None:
        path, _, column = rows.partition(":")
        job = distributed.EncodingJob(
            model,
            path,
            modality,
            column or None,
            id_column or "id",
            ray,
            workers or RAY_WORKERS,
            skip_absent=skip_absent,
        )
        _encode_on_ray(job, out, into)
        return
    alone = {"--into": into, "--workers": workers, "--id-column": id_column}
    refuse("encode without --ray", alone)
    if out is None:
        raise DataError("name the file for the codes with --out FILE")
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
    codes = Codes(words, loaded.n_bits, model=loaded.fingerprint())
    _write_codes(codes, out, numbers if skip_absent else None)


def _encode_on_ray(job: distributed.EncodingJob, out: Path | None, into: str | None) -> None:
    if (out is None) == (into is None):
        raise DataError("give exactly one output: --out FILE or --into COLLECTION")
    with console.counting("encoding", sum(map(len, job.blocks()))) as advance:
        if into is not None:
            count = distributed.encode_into(split_address(into)[0], job, on_rows=advance)
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
    model: Annotated[Path | None, typer.Argument(callback=check_model)] = None,
    dataset: Annotated[Path | None, typer.Argument(callback=check_dataset)] = None,
    *,
    codes: str | None = None,
    labels: str | None = None,
    queries: str | None = None,
    base: str | None = None,
    base_labels: str | None = None,
    bits: int | None = None,
    sign: bool = False,
    at: Annotated[list[int] | None, typer.Option(min=1)] = None,
    radius: Annotated[list[int] | None, typer.Option(min=0)] = None,
    ties: Ties = "expected",
    divisor: Divisor = "retrieved",
    empty: Empty | None = None,
    exclude_self: Annotated[bool | None, typer.Option("--exclude-self/--include-self")] = None,
    stages: bool = False,
    out: Path | None = None,
) -> None:
    """Evaluate a model on a data set, or codes of any origin: mAP, precision, recall, nDCG.

    A model is measured from every modality to every modality. An item is relevant if it shares a
    class with the query or, without labels, if it is the same row. --stages shows where quality is
    lost: encoder, preprocessing, projection, bits, prefix, index, rerank; by mAP with labels, else
    by recall@10.

    --codes may be booleans, zeros and ones, −1 and +1, rows of packed bytes with --bits, or real
    numbers with --sign. Without --base every query searches all the others.

    For example:

      crossbit evaluate toy-model toy
      crossbit evaluate toy-model toy --stages
      crossbit evaluate toy-model toy --at 10 --at 50 --radius 2 --out toy.json
      crossbit evaluate --codes codes.npy --labels labels.npy --at 10
      crossbit evaluate --codes B.mat:te --labels L.mat:te --base B.mat:tr --base-labels L.mat:tr

    Args:
        model: ``[MODEL]``: Model folder.
        dataset: ``[DATASET]``: Data set folder.
        codes: ``FILE``: Instead of a model: codes of the queries, a codes file, .npy, file.npz:KEY
            or file.mat:KEY.
        labels: ``FILE``: Labels of --codes: classes, or zeros and ones (n, classes).
        queries: Split of the queries. Default: query, test, or all rows.
        base: ``SPLIT|FILE``: Split to search; with --codes a file of codes. Default: database, or
            the queries.
        base_labels: ``FILE``: With --codes: labels of the base.
        bits: Code length, if --codes are rows of packed bytes.
        sign: --codes are real numbers: a bit is 1 where they are ≥ 0.
        at: Rank cut-off of the measures; repeatable. Default: 10, 100.
        radius: Hamming radius; repeatable. Default: 2.
        ties: How items at the same distance are ordered.
        divisor: Divisor of average precision at a cut-off.
        empty: With --codes: queries without relevant items. Default: skip.
        exclude_self: Whether a query's own row is left out of its ranking; in its own modality it
            always is. Default: exclude with --codes, else include.
        stages: Also measure every stage between features and hits.
        out: JSON file for the results; codes go beside it. Default: results/…, none with --codes.
    """
    measures = metrics.standard_measures(
        at=at or (10, 100), radii=radius or (2,), divisor=divisor, ties=ties
    )
    of_codes = {"--labels": labels, "--base-labels": base_labels, "--bits": bits, "--sign": sign}
    of_model = {"MODEL": model, "DATASET": dataset, "--queries": queries}
    if codes is None:
        refuse("evaluate without --codes", of_codes | {"--empty": empty})
        if model is None or dataset is None:
            raise DataError("name a model and a data set, or give --codes and --labels")
        protocol = partial(
            evaluation.default_protocol,
            queries=queries,
            base=base,
            measures=measures,
            include_self=not exclude_self,
        )
        _evaluate_model(model, dataset, protocol, out, stages=stages)
        return
    refuse("--codes", of_model | {"--stages": stages})
    if labels is None or (base is None) != (base_labels is None):
        raise DataError("--codes needs --labels, and --base needs --base-labels; give both")
    if base is not None:
        refuse("--base and --codes", {"--exclude-self": exclude_self})
    query_codes = _read_codes(codes, bits, sign=sign)
    base_codes = query_codes if base is None else _read_codes(base, bits, sign=sign)
    of_queries = _read_labels(labels, len(query_codes))
    of_base = of_queries if base_labels is None else _read_labels(base_labels, len(base_codes))
    report = metrics.evaluate(
        query_codes,
        base_codes,
        metrics.from_labels(of_queries, of_base),
        measures=measures,
        exclude="same-row" if base is None and exclude_self is not False else None,
        empty=empty or "skip",
        threads=_THREADS,
    )
    _print_report(report)
    if out is not None:
        write_json(out, report.to_dict())


def _evaluate_model(
    model: Path,
    dataset: Path,
    make_protocol: Callable[[Dataset], evaluation.Protocol],
    out: Path | None,
    *,
    stages: bool,
) -> None:
    """Evaluate all directions, print them, and write the results."""
    start = time.perf_counter()
    loaded = HashModel.load(model)
    data = Dataset.load(dataset)
    facts = data.describe()
    facts["name"] = facts["name"] or dataset.resolve().name
    path = out or evaluation.result_path(
        Path("results"), "evaluate", dataset=facts["name"], card=loaded.card, n_bits=loaded.n_bits
    )
    protocol = make_protocol(data)
    with rows_of_files(dataset, data), console.steps("evaluating") as on_step:
        result = evaluation.evaluate_model(
            loaded, data, protocol, threads=_THREADS, on_step=on_step
        )
        measured = evaluation.evaluate_stages(loaded, data, protocol) if stages else []
    evaluation.write_result(
        path,
        result,
        card=loaded.card,
        dataset=facts,
        seconds=time.perf_counter() - start,
        stages=measured,
    )
    reports = result.reports.items()
    console.reports({evaluation.format_direction(pair): report for pair, report in reports})
    console.health(result.health)
    console.stages(measured)
    console.say(f"{protocol.summary}; definitions, bounds and codes in {path}")
    if protocol.queries == "all rows" and not {"query", "test"} & data.splits.keys():
        console.say(
            f"{dataset} has no test split: if the model was trained on these rows, the results are"
            " optimistic; convert the data with splits (--map image:train=… --map image:test=…),"
            " or evaluate on other rows"
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
    definitions = console.table("", "definition", left=2, wrap=1)
    for result in report:
        interval = f"{percent(result.low)}–{percent(result.high)}"
        ties = "" if result.worst is None else f"{percent(result.worst)}–{percent(result.best)}"
        value = f"[bold]{percent(result.value)}[/bold]"
        table.add_row(result.name, value, interval, ties, percent(result.chance))
        definitions.add_row(result.name, f"[dim]{result.definition}")
    console.out.print(table)
    console.out.print("[dim]percent[/dim]\n")
    console.out.print(definitions)

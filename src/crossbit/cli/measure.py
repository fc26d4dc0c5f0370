"""``crossbit evaluate`` and ``crossbit score``."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from crossbit import evaluation as evaluations
from crossbit import metrics
from crossbit._io.files import is_array_file, write_json
from crossbit.cli import show
from crossbit.cli.models import DataFolder, ModelFolder
from crossbit.codes import FORMAT, Codes
from crossbit.data import Dataset, read_array
from crossbit.errors import DataError
from crossbit.metrics import Divisor, Empty, Report, Ties
from crossbit.model import HashModel

WIDE = 100  # columns of a screen that takes the whole table

Cuts = Annotated[
    list[int] | None,
    typer.Option("--at", "-k", min=1, help="Cut-off of the ranking; may be repeated."),
]
Radii = Annotated[
    list[int] | None, typer.Option("--radius", min=0, help="Hamming radius; may be repeated.")
]
TieOrder = Annotated[Ties, typer.Option(help="How items at one distance are ordered.")]
DividedBy = Annotated[
    Divisor, typer.Option(help="What average precision at a cut-off is divided by.")
]


def evaluate(
    model: ModelFolder,
    dataset: DataFolder,
    queries: Annotated[
        str | None,
        typer.Option(help="Split of the queries.", show_default="query, test, or all rows"),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="Split that is searched.", show_default="database, or the queries' split"
        ),
    ] = None,
    at: Cuts = None,
    radius: Radii = None,
    ties: TieOrder = "expected",
    divisor: DividedBy = "retrieved",
    drop_own: Annotated[
        bool, typer.Option("--drop-own", help="Leave a query's own row out across modalities, too.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="JSON file; the codes go beside it.", show_default="results/…"
        ),
    ] = None,
) -> None:
    """Measure a model on a data set, from every modality to every modality.

    Relevant is what shares a class with the query or, without labels, the same row.

    For example:

      crossbit evaluate toy-model toy
      crossbit evaluate toy-model toy --at 10 --at 50 --radius 2 --out toy.json
    """
    began = time.perf_counter()
    loaded, data = HashModel.load(model), Dataset.open(dataset)
    facts = data.describe()
    facts["name"] = facts["name"] or dataset.resolve().name
    path = out or evaluations.result_path(
        Path("results"), "evaluate", dataset=facts["name"], card=loaded.card, n_bits=loaded.n_bits
    )
    measures = metrics.standard_measures(
        at=at or (10, 100), radii=radius or (2,), divisor=divisor, ties=ties
    )
    protocol = evaluations.given_splits(
        data, queries=queries, base=base, measures=measures, own_row=not drop_own
    )
    with show.err.status("evaluating"):
        evaluation = evaluations.evaluate_model(loaded, data, protocol, threads=2)
    evaluations.write_result(
        path, evaluation, card=loaded.card, dataset=facts, seconds=time.perf_counter() - began
    )
    print_reports(
        {f"{left} → {right}": report for (left, right), report in evaluation.reports.items()}
    )
    _print_health(evaluation)
    show.say(f"{protocol.words}; definitions, bounds and codes in {path}")
    if queries is None and not {"query", "test"} & data.splits.keys():
        show.say(
            f"{dataset} has no test split: if the model was learned from these rows, the figures flatter it;"
            " convert with parts (--map image:train=… --map image:test=…), or evaluate on rows of their own"
        )


def score(
    codes: Annotated[
        str,
        typer.Argument(
            help="Codes of the queries: a codes file, .npy, file.npz:KEY or file.mat:KEY."
        ),
    ],
    labels: Annotated[
        str, typer.Argument(help="Labels of the queries: classes, or zeros and ones (n, classes).")
    ],
    base: Annotated[
        str | None, typer.Option(help="Codes that are searched.", show_default="the queries")
    ] = None,
    base_labels: Annotated[
        str | None, typer.Option(help="Labels of the base.", show_default="the queries'")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="Length of a code, when CODES are rows of packed bytes.")
    ] = None,
    sign: Annotated[
        bool, typer.Option("--sign", help="CODES are real numbers: a bit is 1 where they are ≥ 0.")
    ] = False,
    at: Cuts = None,
    radius: Radii = None,
    ties: TieOrder = "expected",
    divisor: DividedBy = "retrieved",
    empty: Annotated[
        Empty, typer.Option(help="What becomes of queries without relevant items.")
    ] = "skip",
    keep_own: Annotated[
        bool, typer.Option("--keep-own", help="Without --base: let a query find itself.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the report as JSON, too.")
    ] = None,
) -> None:
    """Measure anybody's codes: mAP, precision, recall and nDCG, with their exact definitions.

    Codes may be booleans, zeros and ones, −1 and +1, or rows of packed bytes with --bits. Without --base every
    query searches all the others.

    For example:

      crossbit score codes.npy labels.npy --at 10
      crossbit score B.mat:B_te B.mat:L_te --base B.mat:B_tr --base-labels B.mat:L_tr --ties stable
    """
    if (base is None) != (base_labels is None):
        raise DataError("--base and --base-labels go together")
    query_codes = _read_codes(codes, bits, sign=sign)
    base_codes = query_codes if base is None else _read_codes(base, bits, sign=sign)
    query_labels = _read_labels(labels, len(query_codes))
    report = metrics.evaluate(
        query_codes,
        base_codes,
        metrics.from_labels(
            query_labels,
            query_labels if base_labels is None else _read_labels(base_labels, len(base_codes)),
        ),
        measures=metrics.standard_measures(
            at=at or (10, 100), radii=radius or (2,), divisor=divisor, ties=ties
        ),
        exclude="same-row" if base is None and not keep_own else None,
        empty=empty,
        threads=2,
    )
    _print_report(report)
    if out is not None:
        write_json(out, report.to_dict())


def _read_codes(place: str, bits: int | None, *, sign: bool) -> Codes:
    """Codes in any of the forms people keep them in."""
    if is_array_file(Path(place)):
        return Codes.open(place)
    array = read_array(place)
    if bits is not None:
        return Codes.from_bytes(array, bits)
    if sign or (array.dtype.kind in "if" and array.ndim == 2 and np.isin(array, (-1, 1)).all()):
        array = array >= 0
    try:
        return Codes.pack(array)
    except DataError as error:
        remedy = (
            "for rows of packed bytes say --bits"
            if array.dtype == np.uint8
            else "for real numbers say --sign"
        )
        raise DataError(
            f"{place}: {error}; {remedy}, or give a file of format {FORMAT!r}"
        ) from error


def _read_labels(place: str, n: int) -> NDArray[Any]:
    """Labels, also as the single row that MATLAB likes to write."""
    labels = read_array(place)
    if labels.ndim == 2 and len(labels) == 1 != n:
        labels = labels[0]
    if len(labels) != n:
        raise DataError(f"{place}: {len(labels)} labels for {n} codes")
    return labels


def print_reports(reports: dict[str, Report]) -> None:
    """One line a direction: the usual numbers, mAP with its interval and chance; fewer of them on a narrow screen."""
    first = next(iter(reports.values()))
    names = [
        result.name
        for result in first
        if result.name.startswith(("mAP@", "precision@", "recall@", "success@"))
    ]
    wide = show.out.width >= WIDE
    table = show.table(
        "",
        "mAP",
        "95 %",
        *(["ties"] if wide else []),
        "chance",
        *map(_short, names[: None if wide else 3]),
    )
    for direction, report in reports.items():
        mean = report["mAP"]
        table.add_row(
            direction,
            f"[bold]{show.percent(mean.value)}[/bold]",
            f"[dim]{show.percent(mean.low)}–{show.percent(mean.high)}[/dim]",
            *([f"[dim]{show.percent(mean.worst)}–{show.percent(mean.best)}[/dim]"] if wide else []),
            show.percent(mean.chance),
            *(show.percent(report[name].value) for name in names[: None if wide else 3]),
        )
    show.out.print(table)
    queries, base = ({getattr(r, n) for r in reports.values()} for n in ("n_queries", "n_base"))
    show.out.print(
        f"[dim]percent; {_span(queries)} queries, {_span(base)} base items, {first.n_bits} bits;"
        f" relevant: {first.relevance}[/dim]"
    )


def _short(name: str) -> str:
    return name.replace("precision", "P").replace("recall", "R")


def _span(counts: set[int]) -> str:
    """One number, or the smallest and the largest."""
    return str(*counts) if len(counts) == 1 else f"{min(counts)}–{max(counts)}"


def _print_report(report: Report) -> None:
    """One line a number, then what each of them means."""
    table = show.table("", "value", "95 %", "ties", "chance")
    for result in report:
        table.add_row(
            result.name,
            f"[bold]{show.percent(result.value)}[/bold]",
            f"{show.percent(result.low)}–{show.percent(result.high)}",
            f"{show.percent(result.worst)}–{show.percent(result.best)}"
            if result.worst is not None
            else "",
            show.percent(result.chance),
        )
    show.out.print(table)
    meanings = show.table("", "what it is", left=2, wrap=1)
    for result in report:
        meanings.add_row(result.name, f"[dim]{result.definition}")
    show.out.print()
    show.out.print(meanings)


def _print_health(evaluation: evaluations.Evaluation) -> None:
    table = show.table(
        "codes", "different", "entropy of a bit", "dead bits", "equal bits", "effective bits"
    )
    for name, health in evaluation.health.items():
        entropy: NDArray[np.float64] = health.bit_entropy
        table.add_row(
            name,
            f"{health.unique_codes} of {health.n_codes}",
            f"{entropy.min():.2f}–{entropy.max():.2f}",
            str(len(health.dead_bits)),
            str(len(health.duplicate_bits)),
            f"{health.effective_bits:.1f} of {health.n_bits}",
        )
    show.out.print()
    show.out.print(table)

"""``crossbit reproduce nus`` and ``flickr8k``: photographs, tags and concepts."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit import data as data_sets
from crossbit._io.files import read_json, write_json
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol
from crossbit_experiments.cli._shared import Bits, Seeds, print_rows, print_table
from crossbit_experiments.methods import Method
from crossbit_experiments.protocols import PROTOCOLS

_PairCount = Annotated[
    int, typer.Option(min=1, help="Similar pairs per loss, and as many dissimilar ones.")
]

_QUALITATIVE = "Options of --part qualitative"
_METRIC = "first 10 places, over relevant retrieved, expected ties"


def nus(
    data: Annotated[
        Path | None,
        typer.Option(
            help="The NUS-WIDE distribution, or the output of crossbit data convert.",
            show_default="$CROSSBIT_DATA/nuswide",
        ),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Simulate features from the real labels."),
    ] = False,
    protocol: Annotated[
        str, typer.Option(help="Interpretation of the printed sizes: labeled or ten-concepts.")
    ] = "labeled",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the results.", show_default="results/nus-…"),
    ] = None,
    bits: Bits = 64,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds; each takes about half an hour.")
    ] = 1,
    pairs: _PairCount = 500_000,
) -> None:
    """NUS: the paper's table of photographs and tags, all four directions, at full size.

    --simulate is a load test: the time and memory of every method at full size. Simulated features
    say nothing about the methods. Equal runs are reused.

    For example:

      crossbit data convert NUS-WIDE --out nus
      crossbit reproduce nus --data nus
      crossbit reproduce nus --simulate --protocol ten-concepts
    """
    from crossbit_experiments.nus import run
    from crossbit_experiments.nus.splits import SPLITS, apply_split

    split = check_known(protocol, SPLITS, "protocol")
    folder = out or Path("results") / f"nus{'-simulated' if simulate else ''}-{split}"
    source = data_sets.find("nuswide") if data is None else data
    facts: dict[str, Any] = {}
    if simulate:
        loaded, facts = _simulate(source, split, folder)
    else:
        loaded = _load(source, folder)
    nus_protocol = PROTOCOLS[f"nus/{split}"]
    methods = run.table_methods(nus_protocol, pairs=(pairs, pairs), paper=not simulate)
    chosen = apply_split(loaded, split)
    summary = _run(run.run, methods, chosen, folder, nus_protocol, bits, seeds, facts)
    if simulate:
        print_table(run.load_table(summary), "simulated features: a load test, not a result")
    else:
        print_rows(summary["table"], run.DIRECTIONS, _METRIC)


def _simulate(source: Path, split: str, folder: Path) -> tuple[Dataset, dict[str, Any]]:
    """Simulate features from the real concepts; the calibration is stored and reused."""
    from crossbit.data.conversion.distributions import read_concepts
    from crossbit_experiments.nus import simulation

    labels, concepts = read_concepts(source)
    path = folder / "simulation.json"
    if not path.exists():
        console.say("features are simulated; calibrating the share of informative draws first")
        began = time.process_time()
        calibration = simulation.calibrate(labels, concepts, split, on_trial=console.say)
        folder.mkdir(parents=True, exist_ok=True)
        minutes = (time.process_time() - began) / 60
        write_json(
            path,
            {
                "shares": calibration.shares,
                "trials": calibration.trials,
                "CPU minutes": minutes,
            },
        )
    stored = read_json(path)
    return simulation.simulate(labels, concepts, stored["shares"]), {"simulated": stored}


def _load(source: Path, folder: Path) -> Dataset:
    """Load a converted data set; a distribution is converted beside the results first."""
    if (source / "dataset.json").is_file():
        return Dataset.load(source)
    converted = folder / "data"
    if not (converted / "dataset.json").is_file():
        data_sets.convert(source, converted, on_note=console.say)
    return Dataset.load(converted)


def flickr8k(
    data: Annotated[
        Path | None,
        typer.Option(help="The Flickr8k distribution.", show_default="$CROSSBIT_DATA/flickr8k"),
    ] = None,
    part: Annotated[
        str,
        typer.Option(help="table (scores by the protocol of NUS) or qualitative (an HTML page)."),
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the results.", show_default="results/flickr8k…"
        ),
    ] = None,
    bits: Bits = 64,
    seeds: Seeds = 5,
    pairs: _PairCount = 100_000,
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="Words of a query, such as 'dog + beach'; may be repeated.",
            rich_help_panel=_QUALITATIVE,
        ),
    ] = None,
    encoder: Annotated[
        str,
        typer.Option(help="Image encoder, as in crossbit learn.", rich_help_panel=_QUALITATIVE),
    ] = "efficientnet",
    shown: Annotated[
        int, typer.Option(min=1, help="Query photographs shown.", rich_help_panel=_QUALITATIVE)
    ] = 5,
    seed: Annotated[int, typer.Option(help="Random seed.", rich_help_panel=_QUALITATIVE)] = 0,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder for image features.", show_default="that of crossbit learn"),
    ] = None,
) -> None:
    """Flickr8k by the protocol of NUS: real photographs, caption words as tags, listed concepts.

    The table describes photographs by bags of 500 visual words and captions by the 1000 most
    frequent words that belong to no concept. It compares the paper's methods and settings with our
    networks at their defaults. A second table annotates the query images with the same codes: ten
    tags, voted by the five nearest bags of words.

    The qualitative part writes one HTML page: what words find among images, what images find among
    words, and ten tags per image from its five neighbors, for CM-SSH and AutoHash().

    For example:

      crossbit reproduce flickr8k --data Flickr8k
      crossbit reproduce flickr8k --data Flickr8k --part qualitative --query "dog + beach"
    """
    from crossbit.learn.extractors import cache_folder

    source = data_sets.find("flickr8k") if data is None else data
    rows_cache = cache or cache_folder()
    if check_known(part, ("table", "qualitative"), "part") == "table":
        folder = out or Path("results/flickr8k")
        _flickr8k_table(source, folder, rows_cache, bits, seeds, pairs)
    else:
        folder = out or Path("results/flickr8k-qualitative")
        _qualitative(source, folder, rows_cache, bits, query, encoder, shown, seed)


def _flickr8k_table(
    source: Path, out: Path, cache: Path, bits: int, seeds: int, pairs: int
) -> None:
    from crossbit_experiments.flickr8k import annotation, dataset, run
    from crossbit_experiments.nus import run as nus_run
    from crossbit_experiments.nus.splits import preprocess_like_paper

    with console.steps("extracting features") as on_step:
        photographs = dataset.load(source, cache=cache, on_step=on_step)
    leaks = photographs.leaks
    excluded = ", ".join(f"{n} {reason}" for reason, n in photographs.excluded.items())
    console.say(f"{photographs.data!r}\nexcluded: {excluded}")
    console.say(
        f"removed from the tags: {leaks.words} words of concepts and {leaks.compounds} that contain"
        f" one, used {leaks.occurrences} times in training captions\n"
        f"tags that still imply a concept: {len(leaks.implying)} ({', '.join(leaks.implying)})"
    )
    facts = {"leaks": leaks.to_dict(), "excluded": photographs.excluded}
    protocol = PROTOCOLS["flickr8k/concepts"]
    prepared = preprocess_like_paper(photographs.data)
    methods = nus_run.table_methods(protocol, pairs=(pairs, pairs), paper=False, defaults=True)
    summary = _run(run.run, methods, prepared, out, protocol, bits, seeds, facts)
    print_rows(summary["table"], nus_run.DIRECTIONS, _METRIC)
    print_table(annotation.annotation_table(summary), "tags of query images, in percent")


def _run(
    run: Callable[..., Path],
    methods: Sequence[Method],
    data: Dataset,
    out: Path,
    protocol: Protocol,
    bits: int,
    seeds: int,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Run an experiment; return its summary."""
    from crossbit_experiments.summary import read_summary

    console.say(f"{protocol.name}: {protocol.note}\n{data!r}")
    with console.steps(protocol.name) as on_step:
        path = run(
            methods,
            data,
            out,
            protocol,
            n_bits=bits,
            seeds=range(seeds),
            facts=facts,
            on_step=on_step,
            on_note=console.say,
        )
    console.say(f"wrote runs, summary and a figure to {out}")
    return read_summary(path)


def _qualitative(
    source: Path,
    out: Path,
    cache: Path,
    bits: int,
    queries: Sequence[str] | None,
    encoder: str,
    shown: int,
    seed: int,
) -> None:
    from crossbit_experiments.flickr8k import dataset, qualitative
    from crossbit_experiments.flickr8k.html_report import write_report

    with console.steps("extracting features") as on_step:
        photographs = dataset.load(
            source, cache=cache, encoder=encoder, hide_concepts=False, workers=2, on_step=on_step
        )
    with console.steps("training") as on_step:
        results = qualitative.qualitative_results(
            photographs,
            n_bits=bits,
            shown=shown,
            queries=queries or qualitative.FREE_TEXT_QUERIES,
            seed=seed,
            on_step=on_step,
        )
    page = write_report(out, results, source / "images", n_bits=bits)
    for method, quality in results.quality.items():
        console.say(
            f"ten tags, {method}: precision {quality['precision']:.1f} %,"
            f" recall {quality['recall']:.1f} %"
        )
    console.say(f"open {page}")

"""``crossbit reproduce nus``, ``flickr8k`` and ``photographs``: pictures, tags and concepts."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit import data as data_sets
from crossbit._io.files import read_json, write_json
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit.data import Dataset
from crossbit.evaluation.protocol import PROTOCOLS, Protocol
from crossbit.pipeline.extractors import cache_folder
from crossbit_experiments import methods as tables
from crossbit_experiments.cli._options import Bits, FlickrFolder, Out, PicturesCache, Seeds
from crossbit_experiments.cli._table import print_table

Pairs = Annotated[
    int, typer.Option(min=1, help="Similar pairs, and as many dissimilar ones, for each loss.")
]


def nus(
    data: Annotated[
        Path | None,
        typer.Option(
            help="The NUS-WIDE distribution, or what crossbit data convert made of it.",
            show_default="$CROSSBIT_DATA/nuswide",
        ),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate",
            help="Make features up from the real labels; features are not needed then.",
        ),
    ] = False,
    protocol: Annotated[
        str, typer.Option(help="How the printed sizes are read: labeled or ten-concepts.")
    ] = ("labeled"),
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the result files.", show_default="results/nus-…"
        ),
    ] = None,
    bits: Bits = 64,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many seeds; one takes about half an hour.")
    ] = 1,
    pairs: Pairs = 500_000,
) -> None:
    """NUS: the paper's table of photographs and tags, all four directions, at full size.

    With --simulate it tests protocol, speed and memory, and no more: nothing about methods can be learned from features
    that are made up. Results are kept as they come, and runs that are there already are not run again.

    For example:

      crossbit data convert NUS-WIDE nus
      crossbit reproduce nus --data nus
      crossbit reproduce nus --simulate --protocol ten-concepts
    """
    from crossbit_experiments.nus.splits import READINGS, apply_reading

    reading = check_known(protocol, READINGS, "protocol")
    folder = out or Path("results") / f"nus{'-simulated' if simulate else ''}-{reading}"
    source = data_sets.find("nuswide") if data is None else data
    found, facts = (
        _simulated(source, reading, folder) if simulate else (_converted(source, folder), {})
    )
    prepared = apply_reading(found, reading)
    _run(
        prepared, folder, PROTOCOLS[f"nus/{reading}"], bits, range(seeds), pairs, facts, paper=True
    )


def _simulated(source: Path, reading: str, folder: Path) -> tuple[Dataset, dict[str, Any]]:
    """Features made up from real concepts, calibrated once."""
    from crossbit.data.conversion.distributions import read_concepts
    from crossbit_experiments.nus.simulation import calibrate, simulate

    labels, concepts = read_concepts(source)
    kept = folder / "simulation.json"
    if not kept.exists():
        console.say(
            "features are made up; how many of their draws tell something is found before anything is hashed"
        )
        began = time.process_time()
        found = calibrate(labels, concepts, reading, on_trial=console.say)
        folder.mkdir(parents=True, exist_ok=True)
        cost = (time.process_time() - began) / 60
        write_json(kept, {"shares": found.shares, "trials": found.trials, "CPU minutes": cost})
    calibration = read_json(kept)
    return simulate(labels, concepts, calibration["shares"]), {"simulated": calibration}


def _converted(source: Path, folder: Path) -> Dataset:
    """A converted set; a distribution is converted first, beside the results."""
    if (source / "dataset.json").is_file():
        return Dataset.load(source)
    kept = folder / "data"
    if not (kept / "dataset.json").is_file():
        data_sets.convert(source, kept, on_note=console.say)
    return Dataset.load(kept)


def flickr8k(
    data: FlickrFolder = None,
    out: Out = Path("results/flickr8k"),
    bits: Bits = 64,
    seeds: Seeds = 5,
    pairs: Pairs = 100_000,
    cache: PicturesCache = None,
) -> None:
    """Flickr8k by the protocol of NUS: real photographs, caption words as tags, concepts from a list.

    Photographs are bags of 500 visual words; tags are the 1000 most frequent caption words that belong to no concept.
    Beside the paper's methods with its settings are our networks as they come.

    For example:

      crossbit reproduce flickr8k --data flickr8k
    """
    from crossbit_experiments.flickr8k.dataset import read
    from crossbit_experiments.nus.splits import as_the_paper_has_them

    source = data_sets.find("flickr8k") if data is None else data
    with console.steps("describing photographs") as on_step:
        found = read(source, cache=cache or cache_folder(), on_step=on_step)
    leaks = found.leaks
    console.say(
        f"{found.data!r}\nleft out: {', '.join(f'{n} {why}' for why, n in found.left_out.items())}"
    )
    console.say(
        f"kept from the tags: {leaks.words} words of concepts and {leaks.compounds} that contain one,"
        f" used {leaks.occurrences} times in training captions\n"
        f"tags that still give a concept away: {len(leaks.telling)} ({', '.join(leaks.telling)})"
    )
    facts = {"leaks": leaks.to_dict(), "left out": found.left_out}
    prepared = as_the_paper_has_them(found.data)
    _run(
        prepared, out, PROTOCOLS["flickr8k/concepts"], bits, range(seeds), pairs, facts, paper=False
    )


def _run(
    data: Dataset,
    out: Path,
    protocol: Protocol,
    bits: int,
    seeds: Sequence[int],
    pairs: int,
    facts: dict[str, Any],
    *,
    paper: bool,
) -> None:
    """Run the rows and show the table."""
    from crossbit_experiments.nus.methods import DIRECTIONS, rows
    from crossbit_experiments.nus.run import run_study

    console.say(f"{protocol.name}: {protocol.note}\n{data!r}")
    made = rows(protocol, pairs=(pairs, pairs), paper=paper, as_they_come=not paper)
    with console.steps(protocol.name) as on_step:
        run_study(made, data, out, protocol, n_bits=bits, seeds=seeds, facts=facts, on_step=on_step)
    summaries = tables.summarize(made, out, DIRECTIONS, n_bits=bits, seeds=seeds)
    what = "first 10 places, over relevant retrieved, expected ties"
    print_table(summaries, DIRECTIONS, what, average=False)
    console.say(f"results, codes, summary and a figure in {out}")


def photographs(
    data: FlickrFolder = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page.")] = Path(
        "results/photographs"
    ),
    bits: Bits = 64,
    query: Annotated[
        list[str] | None, typer.Option(help="Words, such as 'dog + beach'; may be repeated.")
    ] = None,
    pictures: Annotated[
        str, typer.Option(help="How pictures are described, as in crossbit learn.")
    ] = "efficientnet",
    shown: Annotated[int, typer.Option(min=1, help="How many photographs ask.")] = 5,
    cache: PicturesCache = None,
    seed: Annotated[int, typer.Option(help="Of the draw and of the methods.")] = 0,
) -> None:
    """Look at what is found: the paper's figures of matches and annotation, on real photographs.

    CM-SSH and MM-NN learn the same concepts; the page shows what words find among pictures, what pictures find
    among words, and ten tags for pictures from their five neighbors, with codes, distances and right answers.

    For example:

      crossbit reproduce photographs --data Flickr8k
      crossbit reproduce photographs --query "dog + beach" --query "red + car"
    """
    from crossbit_experiments.flickr8k.dataset import read
    from crossbit_experiments.flickr8k.html_report import write_sheet
    from crossbit_experiments.flickr8k.qualitative import MADE_UP, look

    folder = data_sets.find("flickr8k") if data is None else data
    kept = cache or cache_folder()
    with console.steps("describing photographs") as on_step:
        described = read(
            folder, cache=kept, pictures=pictures, hide_concepts=False, workers=2, on_step=on_step
        )
    with console.steps("learning") as on_step:
        found = look(
            described,
            n_bits=bits,
            shown=shown,
            queries=query or MADE_UP,
            seed=seed,
            on_step=on_step,
        )
    page = write_sheet(
        out, found, folder / "images", n_bits=bits, settings={"pictures": pictures, "seed": seed}
    )
    for method, judged in found.quality.items():
        console.say(
            f"ten tags, {method}: precision {judged['precision']:.1f} %, recall {judged['recall']:.1f} %"
        )
    console.say(f"open {page}")

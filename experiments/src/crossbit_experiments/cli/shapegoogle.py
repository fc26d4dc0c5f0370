"""``crossbit reproduce shapegoogle``: shapes, transformed, among distractors."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit import data as data_sets
from crossbit._io.files import read_json, write_json
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit_experiments.cli._options import Out, Seeds

PARTS = (
    "strengths",
    "table",
    "scarce",
    "settings",
    "lengths",
    "alone",
    "converged",
    "validated",
    "grid",
    "retrieval",
)
PARTS_HELP = f"Only this part: {', '.join(PARTS)}; may be repeated."


def shapegoogle(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of tosca and sumner.", show_default="$CROSSBIT_DATA/shapes"),
    ] = None,
    out: Out = Path("results/shapegoogle"),
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Keeps shapes and their descriptors.", show_default="in the result folder"
        ),
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option(help=PARTS_HELP, show_default="all but strengths")
    ] = None,
    seeds: Seeds = 5,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Shapes, reconstructed from meshes: the paper's Tables 1 to 3 and its figures, by two readings of its protocol.

    The paper's descriptors are not public. Meshes of TOSCA and of Sumner and Popović are transformed and described
    anew, so numbers can be compared among themselves, and with the paper's only in kind. Shapes, descriptors and
    results are kept as they come: stop and go on as you like. How strong transformations are was chosen by the
    descriptors alone, before anything was hashed; --part strengths does that again.

    For example:

      crossbit reproduce shapegoogle --data shapes
      crossbit reproduce shapegoogle --part table --seeds 1
    """
    from crossbit_experiments.shapegoogle import run

    source = data_sets.find("shapes") if data is None else data
    kept = cache or out / "cache"
    wanted = [check_known(name, PARTS, "part") for name in part or PARTS[1:]]
    if "strengths" in wanted:
        _strengths(source, kept, out, workers)
        wanted.remove("strengths")
    if not wanted:
        return
    clock = _Clock(kept / "minutes.json")
    with console.steps("describing shapes") as on_step, clock("from meshes to descriptors"):
        sets, skipped = run.prepare(source, kept, workers=workers, on_step=on_step)
    for line in skipped:
        console.say(f"left out: {line}")
    runs: Any = [name for name in wanted if name != "retrieval"]
    with console.steps("shapegoogle") as on_step, clock("from descriptors to results"):
        run.run(sets, out, parts=runs, seeds=range(seeds), workers=workers, on_step=on_step)
    if "retrieval" in wanted:
        run.draw_search(sets["held-out"], source, kept, out)
    run.collect(sets, out, seeds=range(seeds), facts={"minutes": clock.minutes, "skipped": skipped})
    _print(out)


def _strengths(source: Path, cache: Path, out: Path, workers: int) -> None:
    """What the descriptors reach at each strength, before anything is hashed."""
    from crossbit_experiments.shapegoogle import descriptors
    from crossbit_experiments.shapegoogle.run import write_blocks
    from crossbit_experiments.summary import write_summary

    with console.steps("strengths") as on_step:
        tried = descriptors.try_strengths(
            source, cache, candidates=descriptors.CANDIDATES, workers=workers, on_step=on_step
        )
    write_summary(out, "shapegoogle", strengths=tried)
    write_blocks(out)
    table = console.table("strength", "BoF", "SS-BoF", "BoF alone", "SS-BoF alone", "gap")
    for one in tried:
        values = [
            one[f"{n}-{n}{end}"] for end in ("", ", no distractors") for n in ("bof", "ssbof")
        ]
        table.add_row(
            f"{one['strength']:g}", *(f"{value:.1f}" for value in values), f"{one['gap']:.1f}"
        )
    console.out.print(table)
    console.say(
        f"nearest to the paper: {descriptors.choose(tried):g}; in use: {descriptors.STRENGTH:g}"
    )


def _print(out: Path) -> None:
    """The held-out table at 16 bits, and what was to be reached."""
    from crossbit_experiments.shapegoogle.methods import DIRECTIONS
    from crossbit_experiments.summary import NAME, read_summary

    summary = read_summary(out / NAME)
    table = console.table("held out, 16 bits", *DIRECTIONS)
    for row in summary["results"].get("held-out 16", []):
        table.add_row(
            row["title"],
            *(f"{row['mean'][way]:.1f}" if way in row["mean"] else "–" for way in DIRECTIONS),
        )
    console.out.print(table)
    for bar in summary["bars"]:
        verdict = "reached" if bar["reached"] else "MISSED"
        console.say(f"{verdict}: {bar['bar']}: {bar['value']:.2f}, at least {bar['least']:.2f}")
    console.say(f"results, codes, summary and figures in {out}")


class _Clock:
    """Minutes that each stage took, added up over interruptions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.minutes: dict[str, float] = read_json(path) if path.exists() else {}

    def __call__(self, stage: str) -> "_Clock":
        self.stage, self.began = stage, time.perf_counter()
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        took = (time.perf_counter() - self.began) / 60
        self.minutes[self.stage] = self.minutes.get(self.stage, 0.0) + took
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.minutes)

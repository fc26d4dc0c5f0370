"""``crossbit reproduce shapegoogle``: transformed shapes among distractors."""

from pathlib import Path
from typing import Annotated

import typer

from crossbit import data as data_sets
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit_experiments.cli._shared import Out, Seeds, print_table
from crossbit_experiments.runs import RunStore

PARTS = (
    "calibration",
    "table",
    "bits-32",
    "few-pairs",
    "settings",
    "validated",
    "lengths",
    "retrieval",
)
_WITHOUT_CALIBRATION = tuple(name for name in PARTS if name != "calibration")
_PARTS_HELP = f"Run only this part: {', '.join(PARTS)}; may be repeated."


def shapegoogle(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of tosca and sumner.", show_default="$CROSSBIT_DATA/shapes"),
    ] = None,
    out: Out = Path("results/shapegoogle"),
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder for meshes and descriptors.", show_default="in the results folder"
        ),
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option(help=_PARTS_HELP, show_default="all but calibration")
    ] = None,
    seeds: Seeds = 5,
    workers: Annotated[int, typer.Option(min=1, help="Processes that compute descriptors.")] = 2,
) -> None:
    """Shapes, reconstructed from meshes: the paper's Tables 1 to 3 and its figures.

    The paper's descriptors are not public. This experiment transforms meshes of TOSCA and of Sumner
    and Popović and computes descriptors of the same kind, so its numbers can be compared with each
    other, and only qualitatively with the paper's. The paper does not say whether it searched the
    shapes it trained on, so everything runs on held-out poses and on the training shapes. Meshes,
    descriptors and runs are written as they are computed and reused while they are equal. The
    strength of the transformations was calibrated on the descriptors alone, before any hashing;
    --part calibration repeats that.

    For example:

      crossbit reproduce shapegoogle --data shapes
      crossbit reproduce shapegoogle --part table --seeds 1
    """
    from crossbit_experiments.shapegoogle import run
    from crossbit_experiments.shapegoogle.figures import draw_retrieval

    source = data_sets.find("shapes") if data is None else data
    cache = cache or out / "cache"
    parts = [check_known(name, PARTS, "part") for name in part or _WITHOUT_CALIBRATION]
    if "calibration" in parts:
        _calibrate(source, cache, out, workers)
        parts.remove("calibration")
    if not parts:
        if RunStore(out).names():
            run.write(out)
        return
    with console.steps("computing descriptors") as on_step:
        sets, facts = run.prepare(source, cache, workers=workers, on_step=on_step)
    for line in facts["skipped"]:
        console.say(f"skipped: {line}")
    trained = [name for name in parts if name != "retrieval"]
    with console.steps("shapegoogle") as on_step:
        run.run(sets, out, parts=trained, seeds=range(seeds), on_step=on_step, on_note=console.say)
    RunStore(out).add_facts("data", facts)
    path = run.write(out)
    if "retrieval" in parts:
        draw_retrieval(sets["held-out"], source, cache, out)
    _print(path)


def _calibrate(source: Path, cache: Path, out: Path, workers: int) -> None:
    """Print and store what the unhashed descriptors reach at each strength."""
    from crossbit_experiments.shapegoogle import descriptors
    from crossbit_experiments.shapegoogle.results import calibration_table

    with console.steps("calibration") as on_step:
        trials = descriptors.calibrate(source, cache, workers=workers, on_step=on_step)
    RunStore(out).add_facts("calibration", {"calibration": trials})
    print_table(calibration_table({"calibration": trials}))
    best = min(trials, key=lambda trial: trial["gap"])
    console.say(f"nearest to the paper: {best['strength']:g}; in use: {descriptors.STRENGTH:g}")


def _print(path: Path) -> None:
    """Print the tables at 16 bits."""
    from crossbit_experiments.shapegoogle.results import shape_methods_table
    from crossbit_experiments.summary import read_summary

    summary = read_summary(path)
    for split in ("held-out", "as-printed"):
        rows = summary["results"][f"{split} 16"]
        if rows:
            print_table(shape_methods_table(rows), f"{split}, 16 bits, mAP in percent")
    console.say(f"wrote runs, summary and figures to {path.parent}")

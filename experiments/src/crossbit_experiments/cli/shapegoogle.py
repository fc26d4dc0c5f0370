"""``crossbit reproduce shapegoogle``: transformed shapes among distractors."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit import data as data_sets
from crossbit._io.files import read_json, write_json
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit_experiments.cli._shared import Out, Seeds, print_table

PARTS = (
    "calibration",
    "table",
    "few-pairs",
    "settings",
    "lengths",
    "classes-only",
    "converged",
    "validated",
    "grid",
    "retrieval",
)
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
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 2,
) -> None:
    """Shapes, reconstructed from meshes: the paper's Tables 1 to 3 and its figures.

    The paper's descriptors are not public. This experiment transforms meshes of TOSCA and of Sumner
    and Popović and computes descriptors of the same kind, so its numbers can be compared with each
    other, and only qualitatively with the paper's. The paper does not say whether it searched the
    shapes it trained on, so everything runs on held-out shapes and on the training shapes. Meshes,
    descriptors and results are written as they are computed and reused. The strength of the
    transformations was calibrated on the descriptors alone, before any hashing; --part calibration
    repeats that.

    For example:

      crossbit reproduce shapegoogle --data shapes
      crossbit reproduce shapegoogle --part table --seeds 1
    """
    from crossbit_experiments.shapegoogle import run
    from crossbit_experiments.shapegoogle.figures import draw_retrieval

    source = data_sets.find("shapes") if data is None else data
    cache = cache or out / "cache"
    parts = [check_known(name, PARTS, "part") for name in part or PARTS[1:]]
    if "calibration" in parts:
        _calibrate(source, cache, out, workers)
        parts.remove("calibration")
    if not parts:
        return
    clock = _Clock(cache / "minutes.json")
    with console.steps("computing descriptors") as on_step, clock("from meshes to descriptors"):
        sets, skipped = run.prepare(source, cache, workers=workers, on_step=on_step)
    for line in skipped:
        console.say(f"skipped: {line}")
    trained: Any = [name for name in parts if name != "retrieval"]
    with console.steps("shapegoogle") as on_step, clock("from descriptors to results"):
        run.run(sets, out, parts=trained, seeds=range(seeds), workers=workers, on_step=on_step)
    if "retrieval" in parts:
        draw_retrieval(sets["held-out"], source, cache, out)
    facts = {"minutes": clock.minutes, "skipped": skipped}
    run.collect(sets, out, seeds=range(seeds), facts=facts)
    _print(out)


def _calibrate(source: Path, cache: Path, out: Path, workers: int) -> None:
    """Print and store what the unhashed descriptors reach at each strength."""
    from crossbit_experiments.shapegoogle import descriptors
    from crossbit_experiments.shapegoogle.results import calibration_table
    from crossbit_experiments.summary import write_summary

    with console.steps("calibration") as on_step:
        trials = descriptors.calibrate(source, cache, workers=workers, on_step=on_step)
    write_summary(out, "shapegoogle", calibration=trials)
    print_table(calibration_table({"calibration": trials}))
    best = min(trials, key=lambda trial: trial["gap"])
    console.say(f"nearest to the paper: {best['strength']:g}; in use: {descriptors.STRENGTH:g}")


def _print(out: Path) -> None:
    """Print the held-out table at 16 bits and the acceptance targets."""
    from crossbit_experiments.shapegoogle.results import shape_methods_table
    from crossbit_experiments.summary import SUMMARY_FILE, read_summary

    summary = read_summary(out / SUMMARY_FILE)
    rows = summary["results"].get("held-out 16", [])
    if rows:
        print_table(shape_methods_table(rows), "held out, 16 bits, mAP in percent")
    for target in summary["acceptance"]:
        verdict = "reached" if target["reached"] else "MISSED"
        console.say(
            f"{verdict}: {target['target']}: {target['value']:.2f}, at least {target['least']:.2f}"
        )
    console.say(f"wrote results, codes, summary and figures to {out}")


class _Clock:
    """Minutes per stage, summed over interrupted runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.minutes: dict[str, float] = read_json(path) if path.exists() else {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the time of the block to a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            elapsed = (time.perf_counter() - began) / 60
            self.minutes[stage] = self.minutes.get(stage, 0.0) + elapsed
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self.minutes)

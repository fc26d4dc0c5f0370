"""``crossbit data``: make, convert and look at data sets."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit.cli import show
from crossbit.cli.models import DataFolder
from crossbit.data import Dataset, catalog
from crossbit.data.convert import convert as convert_files
from crossbit.data.naming import parse_map
from crossbit.data.synthetic import synthetic as make_synthetic
from crossbit.errors import DataError

app = typer.Typer(help="Make, convert and look at data sets.", no_args_is_help=True)
OutFolder = Annotated[
    Path, typer.Argument(metavar="OUT", help="Folder to write; another data set there is replaced.")
]


@app.command()
def convert(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE... OUT", help="Files, or a folder of them, then the folder to write."
        ),
    ],
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="WHAT=ARRAYS",
            help="Which array is what: image:train=I_tr, text=T_tr,T_te, labels=L.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(help="What to call the data set.", show_default="the file's name")
    ] = "",
    source: Annotated[str, typer.Option(help="Where it comes from.")] = "",
    license: Annotated[str, typer.Option(help="On which terms.")] = "",
) -> None:
    """Convert .mat (any version), .h5, .npz, .npy, .csv, .parquet files to a data set folder; also Wiki and NUS-WIDE.

    The names that the field uses (I_tr, T_tr, L_tr; XAll, YAll, LAll; image, text, labels …) are understood; any
    others are told with --map.

    For example:

      crossbit data convert wikipedia_dataset wiki
      crossbit data convert NUS-WIDE nus
      crossbit data convert mirflickr.mat mirflickr
      crossbit data convert features.npz mine --map image=cnn --map text=bow --map labels=y
    """
    if len(files) < 2:
        raise DataError(
            f"give at least one file and then the folder to write, got {[str(path) for path in files]}"
        )
    *sources, out = files
    unused: list[str] = []
    with show.err.status("converting"):
        data = convert_files(
            sources if len(sources) > 1 else sources[0],
            out,
            map=parse_map(map_) if map_ else None,
            name=name,
            origin=source,
            license=license,
            on_unused=unused.extend,
            on_note=show.say,
        )
    show.say(repr(data))
    if unused:
        show.say(f"not used: {', '.join(unused)}; map with --map")
    # The default method learns with torch; CCA-ITQ needs nothing more.
    method = "" if find_spec("torch") else "--method ccaitq "
    show.say(f"written to {out}; try: crossbit fit {out} {method}--out {out}-model")


@app.command()
def info(dataset: DataFolder) -> None:
    """Show what a data set holds, and check its files against their checksums."""
    facts = Dataset.open(dataset).describe()
    show.facts(facts["name"] or str(dataset), list(_lines(facts)))


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values of what there is to say."""
    lines = [("rows", f"{facts['rows']}{'' if facts['aligned'] else ' (unpaired)'}")]
    for name, view in facts["views"].items():
        absent = f", {view['absent']} rows absent" if view["absent"] else ""
        lines.append(
            (f"view {name}", f"{' × '.join(map(str, view['shape']))} {view['dtype']}{absent}")
        )
    shown = dict(list(facts["labels"].items())[:1]) if facts["aligned"] else facts["labels"]
    for name, labels in shown.items():
        counts = labels["counts"]
        spread = f"{min(counts)}–{max(counts)} rows each" if counts else ""
        kind = "several a row" if labels["several"] else "one a row"
        unknown = f", {labels['unknown']} rows unknown" if labels["unknown"] else ""
        lines.append(
            (
                "labels" if facts["aligned"] else f"labels {name}",
                f"{len(counts)} classes, {kind}, {spread}{unknown}",
            )
        )
    lines += [
        (f"pairs {p['between']}", f"{p['similar']} similar, {p['dissimilar']} dissimilar")
        for p in facts["pairs"]
    ]
    lines += [(f"part {name}", f"{size} rows") for name, size in facts["splits"].items()]
    lines += [(key, facts[key]) for key in ("source", "license") if facts[key]]
    return lines


@app.command()
def synthetic(
    out: OutFolder,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many things.")] = 1000,
    classes: Annotated[int, typer.Option(min=1, help="How many classes.")] = 10,
    modality: Annotated[
        list[str] | None,
        typer.Option(
            "--modality",
            metavar="NAME=WIDTH",
            help="A modality; may be repeated.",
            show_default="image=64, text=32",
        ),
    ] = None,
    labels_per_row: Annotated[
        float, typer.Option(min=1.0, help="Classes of a thing on average.")
    ] = 1.0,
    tail: Annotated[
        float, typer.Option(min=0.0, help="How unequal the classes are; 0 for equal.")
    ] = 0.0,
    noise: Annotated[float, typer.Option(min=0.0, help="What each view adds of its own.")] = 0.1,
    missing: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of rows absent from each view.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same data.")] = 0,
) -> None:
    """Make multimodal data with classes from a seed, to try things on.

    For example:

      crossbit data synthetic toy
      crossbit data synthetic three -n 5000 --modality image=128 --modality text=50 --modality sound=20 --missing 0.2
    """
    widths = {"modalities": _widths(modality)} if modality else {}
    data = make_synthetic(
        n=rows,
        classes=classes,
        labels_per_row=labels_per_row,
        tail=tail,
        noise=noise,
        missing=missing,
        seed=seed,
        **widths,  # type: ignore[arg-type]
    )
    data.save(out)
    show.say(
        f"{data!r}\nwritten to {out}; try: crossbit fit {out} --method ccaitq --out {out}-model"
    )


def _widths(entries: list[str]) -> dict[str, int]:
    widths: dict[str, int] = {}
    for entry in entries:
        name, _, width = entry.partition("=")
        if not width.isdecimal():
            raise DataError(f"--modality takes NAME=WIDTH, such as image=64; got {entry!r}")
        if name in widths:
            raise DataError(f"--modality names {name!r} more than once")
        widths[name] = int(width)
    return widths


@app.command("list")
def list_() -> None:
    """List the data sets of the literature that experiments use, and which of them are here (CROSSBIT_DATA)."""
    table = show.table("name", "here", "what", "how to get it", left=4, wrap=2)
    for name, known_set in catalog.CATALOG.items():
        try:
            catalog.find(name)
            here = "[green]yes[/green]"
        except DataError:
            here = "[yellow]no[/yellow]"
        table.add_row(
            f"[bold]{name}[/bold]",
            here,
            known_set.title,
            f"{known_set.obtain} ({known_set.license})",
        )
    show.out.print(table)

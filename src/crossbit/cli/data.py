"""Create, convert and inspect data sets."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit._validation import check_known
from crossbit.cli import console
from crossbit.cli._options import DatasetFolder, parse_fields
from crossbit.data import synthetic
from crossbit.data.catalog import CATALOG, find
from crossbit.data.conversion import convert
from crossbit.data.conversion.columns import parse_map
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError

commands = typer.Typer()
_SYNTHETIC = ("classes", "labels_per_row", "tail", "noise", "missing")


@commands.command("convert")
def _convert(
    files: list[Path],
    *,
    out: Path,
    map_: list[str] | None = None,
    name: str = "",
    source: str = "",
    license: str = "",
) -> None:
    """Convert .mat (any version), .h5, .npz, .npy, .csv or .parquet files to a data set folder.

    The distributions of Wiki and NUS-WIDE are recognized, and so are the array names of the
    literature (I_tr, T_tr, L_tr; XAll, YAll, LAll; image, text, labels …). Other names need --map.
    A map of labels or splits alone adds to what the names say; one that names a view is complete.

    For example:

      crossbit data convert wikipedia_dataset --out wiki
      crossbit data convert NUS-WIDE --out nus
      crossbit data convert mirflickr.mat --out mirflickr
      crossbit data convert features.npz --out mine --map image=cnn --map labels=y
      crossbit data convert wide.csv --out mine --map left=p0:p31 --map right=p32:p63

    Args:
        files: ``FILE``: Files, or a folder of files.
        out: Folder to write; another data set there is replaced.
        map_: ``ROLE=ARRAYS``: Role of arrays or columns: image:train=I_tr, text=T_tr,T_te,
            left=p0:p31, right=q*, labels=L; repeatable.
        name: Name of the data set. Default: the file's name.
        source: Citation or address of the source.
        license: License or terms of use.
    """
    unused: list[str] = []
    with console.steps("converting") as on_step:
        data = convert(
            files if len(files) > 1 else files[0],
            out,
            map=parse_map(map_) if map_ else None,
            name=name,
            origin=source,
            license=license,
            on_unused=unused.extend,
            on_note=console.say,
            on_step=on_step,
        )
    console.say(repr(data))
    if unused:
        console.say(f"not used: {', '.join(unused)}; assign roles with --map")
    if fields := _payload_fields(data):
        labels = "" if data.labels is not None else "; classes need --map labels=COLUMN"
        console.say(f"kept as payload: {', '.join(fields)}{labels}")
    # With labels the default method needs scikit-learn; CCA-ITQ needs nothing beyond the core.
    method = "" if find_spec("sklearn") else "--method ccaitq "
    console.say(f"written to {out}; try: crossbit fit {out} {method}--out {out}-model")


def _payload_fields(data: Dataset) -> list[str]:
    """Return the names in the payload, in their order."""
    payload = data.payload or ()
    groups = payload.values() if isinstance(payload, Mapping) else [payload]
    return list(dict.fromkeys(name for rows in groups for row in rows for name in row))


@commands.command("info")
def _info(dataset: DatasetFolder) -> None:
    """Show the content of a data set, and verify the checksums of its files.

    For example:

      crossbit data info toy
    """
    facts = Dataset.load(dataset).describe()
    console.facts(facts["name"] or str(dataset), list(_lines(facts)))


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values of the facts about a data set."""
    aligned = facts["aligned"]
    yield "rows", f"{facts['rows']}{'' if aligned else ' (not aligned)'}"
    for name, view in facts["views"].items():
        absent = f", {view['absent']} rows absent" if view["absent"] else ""
        shape = " × ".join(map(str, view["shape"]))
        yield f"view {name}", f"{shape} {view['dtype']}{absent}"
    # Aligned views share their labels, so one entry says it all.
    shown = dict(list(facts["labels"].items())[:1]) if aligned else facts["labels"]
    for name, labels in shown.items():
        yield "labels" if aligned else f"labels {name}", _describe_labels(labels)
    for pairs in facts["pairs"]:
        counts = f"{pairs['similar']} similar, {pairs['dissimilar']} dissimilar"
        yield f"pairs {pairs['between']}", counts
    for name, size in facts["splits"].items():
        yield f"split {name}", f"{size} rows"
    for key in ("source", "license"):
        if facts[key]:
            yield key, facts[key]


def _describe_labels(labels: dict[str, Any]) -> str:
    counts = labels["counts"]
    parts = [f"{len(counts)} classes", "multi-label" if labels["multi_label"] else "single-label"]
    if counts:
        parts.append(f"{min(counts)}–{max(counts)} rows each")
    if labels["unknown"]:
        parts.append(f"{labels['unknown']} rows unlabeled")
    return ", ".join(parts)


@commands.command("synthetic")
def _synthetic(
    *,
    out: Path,
    rows: Annotated[int, typer.Option("--rows", "-n")] = 1000,
    modality: list[str] | None = None,
    seed: int = 0,
    set_: list[str] | None = None,
) -> None:
    """Create a synthetic multimodal data set with classes, for first experiments.

    It has a training and a test split. --set changes the number of classes (10), labels_per_row
    (1.0), the imbalance of the classes (tail, 0.0), the noise of each view (0.1), and the fraction
    of rows that are missing from each view (missing, 0.0).

    For example:

      crossbit data synthetic --out toy
      crossbit data synthetic -o three -n 5000 -m image=128 -m text=50 -m sound=20
      crossbit data synthetic -o gaps --set classes=4 --set missing=0.2

    Args:
        out: Folder to write; another data set there is replaced.
        rows: Number of rows.
        modality: ``NAME=WIDTH``: A modality and the width of its rows; repeatable. Default:
            image=64, text=32.
        seed: The same seed gives the same data.
        set_: ``FIELD=VALUE``: One of the fields above; repeatable.
    """
    fields = parse_fields(set_)
    for name in fields:
        check_known(name, _SYNTHETIC, "field")
    if modality:
        fields["modalities"] = _widths(modality)
    data = synthetic(n=rows, seed=seed, **fields)
    data.save(out)
    console.say(f"{data!r}\nwritten to {out}; try: crossbit fit {out} --bits 32 --out {out}-model")


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


@commands.command("list")
def _list() -> None:
    """List data sets of the literature, and which of them are in the folder CROSSBIT_DATA.

    For example:

      crossbit data list
    """
    table = console.table("name", "here", "content", "how to get it", left=4, wrap=2)
    for name, known_set in CATALOG.items():
        try:
            find(name)
            here = "[green]yes[/green]"
        except DataError:
            here = "[yellow]no[/yellow]"
        how = f"{known_set.how_to_get} ({known_set.license})"
        table.add_row(f"[bold]{name}[/bold]", here, known_set.title, how)
    console.out.print(table)

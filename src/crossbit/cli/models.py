"""``crossbit fit``, ``crossbit encode``, ``crossbit methods``."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from crossbit import distributed
from crossbit._io.files import read_toml
from crossbit._validation import known
from crossbit.cli import ray as on_ray
from crossbit.cli import show
from crossbit.cli.written import write_codes
from crossbit.codes import Codes
from crossbit.data import Dataset, read_array
from crossbit.data.arrays import present_rows
from crossbit.errors import DataError
from crossbit.hashers import HASHERS, Hasher
from crossbit.model import HashModel

ModelFolder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model folder, as written by 'crossbit fit'.")
]
DataFolder = Annotated[
    Path, typer.Argument(metavar="DATASET", help="A data set folder; see 'crossbit data --help'.")
]


def fit(
    dataset: DataFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the model to.")],
    method: Annotated[
        str, typer.Option("--method", "-m", help="One of 'crossbit methods'.")
    ] = "mmnn",
    bits: Annotated[
        int | None,
        typer.Option("--bits", "-b", help="Length of a code, 1 to 1024.", show_default="32"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same model.", show_default="0")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Part of the data set to learn from, or 'all'.")
    ] = "train",
    config: Annotated[
        Path | None, typer.Option(help="TOML file with fields of the method.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="One field of the method; may be repeated."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Keep progress here; the same command resumes from it after an interruption."
        ),
    ] = None,
    ray: on_ray.Address = None,
    workers: on_ray.Workers = 2,
) -> None:
    """Learn hash functions from a data set and write them as a model folder.

    The method learns from whatever the data set has: labels, pairs, or rows that belong together.

    For example:

      crossbit data synthetic toy
      crossbit fit toy --method ccaitq --bits 32 --out toy-model
      crossbit fit toy -m ccaitq -b 64 --set regularization=0.1 -o toy-model-64
      crossbit fit toy --ray local --workers 2 --out toy-model
    """
    hasher = hasher_of(method, {"n_bits": bits, "seed": seed}, config, set_ or [])
    data = Dataset.open(dataset)
    part = None if split == "all" or (split == "train" and not data.splits) else split
    with show.steps(f"learning {method}") as on_step:
        if ray is not None:
            on_cluster: dict[str, Any] = {
                "address": ray,
                "workers": workers,
                "checkpoint": checkpoint,
            }
            model = distributed.fit(hasher, dataset, out, split=part, on_step=on_step, **on_cluster)
        else:
            model = hasher.fit(**data.fit_arguments(part), checkpoint=checkpoint, on_step=on_step)
            model.save(out)
    show.say(f"{model} learned by {method} from {data!r}")
    show.say(f"written to {out}; try: crossbit evaluate {out} {dataset}")


def hasher_of(
    method: str, fields: dict[str, Any], config: Path | None, settings: list[str]
) -> Hasher:
    """A method with its fields: the file's first, then those of the command line."""
    given = {key: value for key, value in fields.items() if value is not None}
    return HASHERS[known(method, HASHERS, "method")].from_configuration(
        fields_of(config, settings, given)
    )


def fields_of(
    config: Path | None, settings: list[str], given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Fields of a method: a file's, then those given, then FIELD=VALUE."""
    fields = {} if config is None else read_toml(config)
    fields |= given or {}
    for setting in settings:
        name, sign, value = setting.partition("=")
        if not sign:
            raise DataError(f"--set takes FIELD=VALUE, got {setting!r}")
        fields[name.strip()] = _toml_value(value.strip())
    return fields


def _toml_value(text: str) -> Any:  # noqa: ANN401 - a number, a truth, a list, or else the text itself
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def encode(
    model: ModelFolder,
    rows: Annotated[
        str, typer.Argument(metavar="ROWS", help="Features: X.npy, or file.npz:KEY, file.mat:KEY.")
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
            help="Leave out rows that are all NaN; OUT.rows.npy tells which are left.",
        ),
    ] = False,
    ray: on_ray.Address = None,
    workers: on_ray.Workers = 2,
    into: on_ray.Into = None,
    column: on_ray.Column = None,
    id_column: on_ray.IdColumn = "id",
) -> None:
    """Turn rows of features into binary codes.

    On a Ray cluster ROWS is a .npy or .parquet file, or a folder of such, that all its machines can read; the codes may
    go straight into a collection.

    For example:

      crossbit encode toy-model toy/image.npy --modality image --out image.codes
      crossbit encode toy-model features.mat:I_te -m image -o image.npy
      crossbit encode toy-model shards/ -m image --ray local --workers 2 --into photos
    """
    if ray is not None:
        work = distributed.Work(
            model, rows, modality, column, id_column, ray, workers, skip_absent=skip_absent
        )
        on_ray.encode(work, out, into)
        return
    if out is None or into is not None:
        raise DataError(
            "say where the codes go with --out FILE; --into COLLECTION goes with --ray, else: crossbit add"
        )
    loaded = HashModel.load(model)
    X = read_array(rows)
    if out.exists() and out.resolve() == Path(rows.partition(":")[0]).resolve():
        raise DataError(f"{out} holds the rows themselves; write the codes elsewhere")
    kept = present_rows(X) if skip_absent else np.arange(len(X))
    words = np.zeros((len(kept), -(-loaded.n_bits // 64)), np.uint64)
    step = 1 << 16
    with show.counting("encoding", len(kept)) as done:
        for start in range(0, len(kept), step):
            block = X[kept[start : start + step]] if skip_absent else X[start : start + step]
            words[start : start + step] = loaded.encode(modality, block).words
            done(len(block))
    write_codes(Codes(words, loaded.n_bits), out, kept if skip_absent else None)


def methods() -> None:
    """List the methods: what each learns from, and how many modalities it takes."""
    table = show.table("method", "learns from", "modalities", "", left=4, wrap=1)
    for name, hasher in sorted(HASHERS.items()):
        fewest, most = hasher.modalities
        count = (
            f"{fewest} or more"
            if most is None
            else str(fewest)
            if fewest == most
            else f"{fewest}–{most}"
        )
        table.add_row(
            f"[bold]{name}[/bold]",
            ", ".join(sorted(hasher.learns_from)) or "nothing",
            count,
            hasher.title,
        )
    show.out.print(table)

"""``crossbit doctor``: what this installation can do, and how to get the rest."""

import platform
import sqlite3
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import typer

from crossbit import kernels
from crossbit._install import LIBRARIES, installation
from crossbit.cli import console

commands = typer.Typer()

EXTRAS = {
    "data": "reading .mat, .h5 and parquet files",
    "train": "learning from labels (auto, softap, seph), crossbit tune",
    "networks": "training networks (mmnn, cmnn, djsrh)",
    "media": "features of images, text, audio and meshes",
    "learn": "crossbit learn with its own encoders, or those named hf:…",
    "plots": "figures",
    "server": "crossbit serve",
    "client": "Python client of the service",
    "milvus": "collections on a Milvus server",
    "postgres": "collections in a PostgreSQL database",
    "ray": "training and encoding on a cluster",
    "demo": "crossbit demo",
}


@commands.command("doctor")
def _doctor() -> None:
    """Show what this installation can do, and the command that installs what is missing.

    For example:

      crossbit doctor
    """
    console.facts(
        "crossbit " + version("crossbit"),
        [
            ("installed from", str(installation())),
            ("python", f"{platform.python_version()} ({sys.executable})"),
            ("numpy", version("numpy")),
            ("sqlite", sqlite3.sqlite_version),
            (
                "machine",
                f"{platform.system()} {platform.machine()}, {kernels.available_cores()} cores",
            ),
            ("kernels", _kernels()),
            ("training on", _device()),
        ],
    )
    console.out.print()
    table = console.table("extra", "", "for", left=3, wrap=1)
    missing = []
    for extra, purpose in EXTRAS.items():
        modules = [module for module, (_, owner) in LIBRARIES.items() if owner == extra]
        if not all(map(find_spec, modules)):
            missing.append(extra)
        installed = f"[green]{_version(LIBRARIES[modules[0]][0])}[/green]"
        table.add_row(extra, "[yellow]missing[/yellow]" if extra in missing else installed, purpose)
    console.out.print(table)
    if missing:
        command = installation().command(*missing)
        console.out.print("\nInstall what is missing, or some of these extras, with:")
        console.out.print(f"  {command}", markup=False, soft_wrap=True)
    if "networks" in missing and sys.platform == "linux":
        console.out.print(
            "torch takes 5.8 GB with CUDA and 0.7 GB for the CPU alone; the README says how to get"
            " the latter."
        )


def _kernels() -> str:
    level = kernels.level()
    if level == "numpy":
        return "numpy (slow: no C compiler at installation, or CROSSBIT_KERNELS=numpy)"
    return level


def _device() -> str:
    if not find_spec("torch"):
        return "nothing: torch is not installed"
    import torch

    if torch.cuda.is_available():
        return f"cuda ({torch.cuda.get_device_name()})"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "installed"

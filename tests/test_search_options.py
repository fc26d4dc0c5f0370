"""A search option is added in one place: the library, the API, the clients and the CLI have it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import crossbit

PACKAGE = Path(crossbit.__file__).parent
FIELD = "    with_codes: bool = False\n"
KEYWORD = "    with_codes: bool\n"
DOC = "        with_codes: "
REPORT = """
import inspect, json, tempfile
import numpy as np
from typer.main import get_command
from crossbit import Collection, HashModel
from crossbit.cli.search import commands
from crossbit.client import AsyncClient, Client
from crossbit.collection.search import SearchOptions
from crossbit.model import Affine
from crossbit.server import create_app

model = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
with Collection.create(tempfile.mkdtemp() + "/c", model) as collection:
    collection.upsert(["a"], {"image": [[1.0, 2.0]]})
    paths = create_app(collection).openapi()["paths"]
    collection.search("image", [[1.0, 2.0]], flavor="sweet")
body = paths["/api/collections/{collection}/search"]["post"]["requestBody"]["content"]
schema = body["application/json"]["schema"]
form = body["multipart/form-data"]["schema"]["properties"]["options"]
methods = (Collection.search, Client.search, AsyncClient.search)
print(json.dumps({
    "python": ["flavor" in inspect.signature(method).parameters for method in methods],
    "json": schema["properties"]["flavor"]["description"],
    "form": "flavor" in form["properties"],
    "sent": SearchOptions(flavor="sweet").to_json(),
    "cli": "--flavor" in [name for each in get_command(commands).params for name in each.opts],
}))
"""


def test_an_option_is_added_in_one_place(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "crossbit", ignore=shutil.ignore_patterns("__pycache__"))
    place = tmp_path / "crossbit" / "collection" / "search.py"
    source = place.read_text()
    for line, added in (
        (FIELD, f"{FIELD}    flavor: str | None = None\n"),
        (KEYWORD, f"{KEYWORD}    flavor: str | None\n"),
        (DOC, f"        flavor: Which taste it has.\n{DOC}"),
    ):
        assert source.count(line) == 1
        source = source.replace(line, added)
    place.write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", REPORT],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "python": [True, True, True],
        "json": "Which taste it has.",
        "form": True,
        "sent": {"flavor": "sweet"},
        "cli": True,
    }

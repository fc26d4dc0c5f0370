"""The example plug-in, installed as its README says: Crossbit finds it through its entry points."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which the plug-in is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PLUGIN, folder / "source")  # the build leaves files beside the sources
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(folder / "site"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"


def run(site: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(site), "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_an_installed_hasher_is_listed_and_fits(site: Path, tmp_path: Path) -> None:
    assert "mediansign" in run(site, "-m", "crossbit", "fit", "--help")
    toy = str(tmp_path / "toy")
    run(site, "-m", "crossbit", "data", "synthetic", "--out", toy, "--rows", "60")
    model = tmp_path / "model"
    fit = ("fit", toy, "--method", "mediansign", "--bits", "16", "--out", str(model))
    run(site, "-m", "crossbit", *fit)
    script = f"from crossbit import HashModel; print(HashModel.load({str(model)!r}).n_bits)"
    assert run(site, "-c", script).strip() == "16"


def test_an_installed_extractor_is_found_by_its_kind(site: Path) -> None:
    script = """
from crossbit.features import load_extractor
from crossbit.model import Recipe
extractor = load_extractor(Recipe("series-statistics"))
print(extractor.accepts, extractor.extract(["2, -2, 2, -2"]).tolist())
"""
    assert run(site, "-c", script).strip() == "signal [[0.0, 2.0, -2.0, 2.0, 3.0]]"


def test_without_the_plugin_its_names_are_unknown() -> None:
    from crossbit import HASHERS, DataError
    from crossbit.features import load_extractor
    from crossbit.model import Recipe

    assert "mediansign" not in HASHERS
    with pytest.raises(DataError, match="series-statistics"):
        load_extractor(Recipe("series-statistics"))

"""The data sets of the experiments are those whose checksums the documentation states."""

import hashlib
from pathlib import Path

import pytest

from tests.conftest import _data_set

CHECKSUMS = Path(__file__).parents[2] / "docs" / "assets" / "data.sha256"


@pytest.mark.parametrize("name", ["wiki", "digits", "flickr8k", "nuswide", "shapes"])
def test_files_have_the_stated_checksums(name: str) -> None:
    lines = [line.split() for line in CHECKSUMS.read_text().splitlines()]
    stated = {path: digest for digest, path in lines if path.startswith(f"{name}/")}
    assert stated
    folder = _data_set(name).parent
    actual = {path: hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in stated}
    assert actual == stated

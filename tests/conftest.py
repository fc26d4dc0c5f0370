"""What all tests share: settings of hypothesis, and where the real data sets are."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the first call of a kernel loads it. Derandomized: a failure comes back.
settings.register_profile(
    "crossbit",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("crossbit")


def _data_set(name: str) -> Path:
    root = os.environ.get("CROSSBIT_DATA")
    if root is None:
        pytest.skip(
            f"needs the {name} data set: set CROSSBIT_DATA to the folder that holds {name}/"
        )
    folder = Path(root) / name
    if not folder.is_dir():
        pytest.skip(f"needs the {name} data set: there is no {name}/ in CROSSBIT_DATA")
    return folder


@pytest.fixture(scope="session")
def wiki_folder() -> Path:
    """The Wiki distribution of Rasiwasia et al. 2010, when it is at hand."""
    return _data_set("wiki")


@pytest.fixture(scope="session")
def nuswide_folder() -> Path:
    """The labels of NUS-WIDE (Chua et al. 2009), when they are at hand."""
    return _data_set("nuswide")


@pytest.fixture(scope="session")
def shapes_folder() -> Path:
    """Meshes of TOSCA and of Sumner and Popović, when they are at hand."""
    return _data_set("shapes")

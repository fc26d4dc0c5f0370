"""A real browser and services to test the page with; skipped without Chromium."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from crossbit import Collection, HashModel
from crossbit.model import Affine
from tests.server.running import Running, running
from tests.server.shapes import make_gallery

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCRIPT = '<img src=x onerror="window.hacked = true"><script>window.hacked = true</script>'


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        pytest.skip("needs a browser: on Debian and Ubuntu, apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new page that must load without script errors and without requests to other hosts."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)
    opened = context.new_page()
    errors: list[str] = []
    hosts: set[str] = set()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda request: hosts.add(request.url.split("/")[2].partition(":")[0]))
    yield opened
    context.close()
    assert errors == []
    assert hosts <= {"127.0.0.1", ""}  # "" is the host of blobs


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_gallery(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="session")
def service(gallery: Path) -> Iterator[Running]:
    with running(gallery) as started:
        yield started


@pytest.fixture(scope="session")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three modalities without recipes, and payloads that contain scripts."""
    folder = tmp_path_factory.mktemp("untrusted") / "collection"
    layers = {name: [Affine(np.eye(9), np.zeros(9))] for name in ("image", "text", "sound")}
    payloads: list[dict[str, Any]] = [
        {"name": SCRIPT, "tags": [SCRIPT, "javascript:alert(1)"], SCRIPT: {"deep": [SCRIPT]}},
        {"captions": ["two words"], "year": 2010},
        {"tags": [f"tag {n}" for n in range(30)]},
        {},
    ]
    rows = np.random.default_rng(0).normal(size=(4, 9))
    with Collection.create(folder, HashModel(layers, 9)) as collection:
        collection.upsert(
            [2**60 + 1, "two", SCRIPT, "-"], {"image": rows, "sound": rows, "text": -rows}, payloads
        )
    attribution = {"text": "<b>somebody</b>", "url": "javascript:window.hacked=true"}
    (folder / "report.json").write_text(json.dumps({"attribution": attribution}))
    with running(folder) as started:
        yield started

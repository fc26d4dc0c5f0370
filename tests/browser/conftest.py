"""A real browser and services to test the page with; skipped without Chromium."""

import json
import shutil
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from crossbit import Collection, HashModel
from crossbit.features import BagOfTags, SignalStatistics
from crossbit.features.shape import HeatKernelExtractor
from crossbit.metrics.weak import Threshold, with_thresholds
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
    "--use-fake-device-for-media-stream",
]
PATIENCE = 60_000  # milliseconds: a busy machine is slow
expect.set_options(timeout=PATIENCE)
TRIANGLES = "3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n"
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
    context.set_default_timeout(PATIENCE)
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


ONE_ANSWER = {  # a report on queries that have one right answer, with quality per stage
    "directions": {
        "a → b": {
            "results": [{"name": "success@1", "value": 0.25}],
            "curve": {
                "points": [1, 2, 6],
                "recall": [0.25, 0.5, 1.0],
                "precision": [0.25, 0.25, 0.17],
            },
        }
    },
    "stages": [
        {"direction": "a → b", "stage": stage, "about": about, "name": "recall@10", "value": value}
        for stage, about, value in (
            ("encoder", "cosine of the features", None),
            ("bits", "Hamming distance of the whole code", 0.75),
        )
    ],
}
LONG = "A long description that goes on and on, " * 8


@pytest.fixture(scope="session")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Sounds, a mesh and a signal, without raw inputs."""
    folder = tmp_path_factory.mktemp("things")
    files = folder / "files"
    files.mkdir()
    wave_of = np.sin(np.arange(4000) ** 1.5 / 40)
    with wave.open(str(files / "chirp.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes((12000 * wave_of).astype("<i2").tobytes())
    (files / "shape.off").write_text("OFF\n4 4 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n" + TRIANGLES)
    (files / "shape.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1/1 2/2 3/3\n")
    (files / "steps.csv").write_text("1,2\n3,5\n")
    (files / "broken.off").write_text("nothing")
    payloads: list[dict[str, Any]] = [
        {"name": "chirp", "audio": "chirp.wav", "kind": "sound", "held_out": True},
        {"name": "pyramid", "mesh": "shape.off", "kind": "mesh"},
        {"name": "triangle", "mesh": "shape.obj", "kind": "mesh"},
        {"name": "broken", "mesh": "broken.off", "kind": "mesh"},
        {"name": "steps", "signal": "steps.csv", "kind": "signal"},
        {"caption": LONG, "signal": [1.0, 3.0, 2.0], "kind": "signal"},
    ]
    random = np.random.default_rng(0)
    layers = {name: [Affine(random.normal(size=(3, 16)), np.zeros(16))] for name in ("a", "b")}
    with Collection.create(folder / "c", HashModel(layers, 16)) as collection:
        rows = random.normal(size=(len(payloads), 3))
        collection.upsert(list(range(len(payloads))), {"a": rows, "b": rows}, payloads)
    (folder / "c" / "report.json").write_text(json.dumps(ONE_ANSWER))
    with running(folder / "c", "--images", str(files)) as started:
        yield started


CAPTION = (  # of 119 characters
    "A pressure sensor on the second floor of the old mill that reports once per minute and rests"
    " whenever the river is high"
)
PLACES = ("mill", "river", "road")


@pytest.fixture(scope="session")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Captions without files: signals can be uploaded, shapes cannot; some matches are weak."""
    folder = tmp_path_factory.mktemp("readings") / "collection"
    extractors = {
        "signal": SignalStatistics(1),
        "text": BagOfTags.fit([[place] for place in PLACES]),
        "shape": HeatKernelExtractor(times=1, patches=1, n_values=1),
    }
    random = np.random.default_rng(0)
    layers = {
        name: [Affine(random.normal(size=(extractor.width, 16)), np.zeros(16))]
        for name, extractor in extractors.items()
    }
    recipes = {name: extractor.recipe() for name, extractor in extractors.items()}
    model = with_thresholds(
        HashModel(layers, 16, recipes),
        {("signal", "text"): Threshold(7, 100, 100, 0.05)},
    )
    n = 30
    payloads = [{"caption": CAPTION, "place": PLACES[i % 3]} for i in range(n)]
    with Collection.create(folder, model) as collection:
        signals = random.normal(size=(n, extractors["signal"].width))
        texts = [payload["place"] for payload in payloads]
        collection.upsert(list(range(n)), {"signal": signals, "text": texts}, payloads)
    with running(folder) as started:
        yield started

"""The operations page: its commands run, and its files fit what the service exports."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from crossbit import CCAITQ, Collection
from crossbit.client import connect
from tests.server.running import running

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "operations.md"
DEPLOY = ROOT / "docs" / "deploy"
UNIT = DEPLOY / "crossbit.service"
SUFFIXES = re.compile(r"_(bucket|sum|count)$")
PANEL = {
    "type": "object",
    "required": ["id", "title", "type", "gridPos", "targets", "datasource", "fieldConfig"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "title": {"type": "string", "minLength": 1},
        "type": {"enum": ["timeseries", "stat"]},
        "gridPos": {
            "type": "object",
            "required": ["x", "y", "w", "h"],
            "properties": {
                "x": {"type": "integer", "minimum": 0, "maximum": 23},
                "y": {"type": "integer", "minimum": 0},
                "w": {"type": "integer", "minimum": 1, "maximum": 24},
                "h": {"type": "integer", "minimum": 1},
            },
            "additionalProperties": False,
        },
        "targets": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "required": ["refId", "expr"]},
        },
    },
}
DASHBOARD = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "uid": {"type": "string", "maxLength": 40},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "items": PANEL, "minItems": 1},
        "id": {"type": "null"},
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection that keeps its features, and a better model."""
    folder = tmp_path_factory.mktemp("operations")
    random = np.random.default_rng(0)
    image = random.normal(size=(200, 8))
    views = {"image": image, "text": image @ random.normal(size=(8, 6))}
    model = CCAITQ(n_bits=16).fit(views)
    CCAITQ(n_bits=24).fit(views).save(folder / "better-model")
    with Collection.create(folder / "gallery", model, keep="features") as gallery:
        gallery.upsert(list(range(200)), views, [{"n": n} for n in range(200)])
    return folder


def run(block: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_commands_run_beside_a_service(place: Path) -> None:
    backup, restore, upgrade = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    query = np.random.default_rng(1).normal(size=(3, 8))
    with running(place / "gallery", "--writable") as service, connect(service.address) as client:
        before = list(client)
        hits = client.search("image", query, k=5)
        run(backup, place)
        client.delete(range(50))
        run(restore, place)
        with Collection.open(place / "restored") as restored:
            assert list(restored) == before
            assert restored.keep == ("features",)
            assert restored.search("image", query, k=5) == hits
            assert restored.check() == []
        assert len(client) == 150
        run(upgrade, place)
        assert client.describe()["n_bits"] == 24
        assert all(results.code.n_bits == 24 for results in client.search("image", query))
        assert service.process.poll() is None


def exported(place: Path) -> dict[str, set[str]]:
    """Metric → its labels, of a service that has answered requests."""
    with running(place / "gallery") as service:
        for path in ("/api/items", "/healthz", "/metrics"):
            with urllib.request.urlopen(service.address + path) as answer:
                text = answer.read().decode()
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def rules() -> list[dict[str, Any]]:
    content = yaml.safe_load((DEPLOY / "crossbit-rules.yml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
    return content


def test_rules_and_dashboard_use_what_the_service_exports(place: Path) -> None:
    labels = exported(place)
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    expressions = [rule["expr"] for rule in rules()]
    expressions += [each["expr"] for panel in dashboard()["panels"] for each in panel["targets"]]
    used = set()
    for expression in expressions:
        for name in re.findall(r"\bcrossbit[\w:]+", re.sub(r'"[^"]*"', "", expression)):
            assert name in labels or name in recorded, name
            used.add(SUFFIXES.sub("", name))
        known = set().union(*labels.values())
        for name, _ in re.findall(r"(\w+)\s*(=~|!~|!=|=)\s*\"", expression):
            assert name in known | {"job"}, name
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert set(group.split(", ")) <= known
    assert used - recorded == {SUFFIXES.sub("", name) for name in labels}
    page = PAGE.read_text()
    assert all(f"`{name}`" in page for name in used - recorded)


def test_every_alert_says_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) == 6
    for alert in alerts:
        assert alert["alert"] in PAGE.read_text()
        assert set(alert["annotations"]) == {"summary", "action"}
        assert alert["labels"]["severity"] in ("page", "ticket")
    assert yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["rule_files"] == [
        "crossbit-rules.yml"
    ]


def test_the_dashboard_has_the_shape_of_one() -> None:
    content = dashboard()
    jsonschema.validate(content, DASHBOARD)
    numbers = [panel["id"] for panel in content["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in content["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    unit = UNIT.read_text()
    command = tmp_path / "crossbit"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    (tmp_path / "crossbit.service").write_text(
        unit.replace("/opt/crossbit/bin/crossbit", str(command))
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "crossbit.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    problems = [line for line in done.stderr.splitlines() if "crossbit.service" in line]
    assert problems == []


def test_the_unit_starts_a_command_that_exists() -> None:
    (command,) = re.findall(r"^ExecStart=\S+/crossbit (.*)$", UNIT.read_text(), re.M)
    done = subprocess.run(
        [sys.executable, "-m", "crossbit", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    for option in re.findall(r"--[\w-]+", command):
        assert option in done.stdout

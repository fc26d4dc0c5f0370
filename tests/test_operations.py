"""The operations page: its commands run, and its files fit what the service exports."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from crossbit import CCAITQ, Collection
from crossbit.client import connect
from crossbit.server import ServerConfig, create_app
from tests.server.running import running

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "operations.md"
DEPLOY = ROOT / "docs" / "deploy"
UNIT = DEPLOY / "crossbit.service"
NGINX = DEPLOY / "nginx.conf"
N_ITEMS = 900
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
    image = random.normal(size=(N_ITEMS, 8))  # enough of them to measure drift
    views = {"image": image, "text": image @ random.normal(size=(8, 6))}
    model = CCAITQ(n_bits=16).fit(views)
    CCAITQ(n_bits=24).fit(views).save(folder / "better-model")
    with Collection.create(folder / "gallery", model, keep="features") as gallery:
        gallery.upsert(list(range(N_ITEMS)), views, [{"n": n} for n in range(N_ITEMS)])
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
        assert len(client) == N_ITEMS - 50
        run(upgrade, place)
        assert client.describe()["n_bits"] == 24
        assert all(results.code.n_bits == 24 for results in client.search("image", query))
        assert service.process.poll() is None


def exported(place: Path) -> dict[str, set[str]]:
    """Metric → its labels, of a service that has answered requests."""
    with running(place / "gallery") as service:
        text = ""
        while "crossbit_drift" not in text:  # which takes a moment to compute
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


@pytest.fixture(scope="module")
def routes(place: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Method and path → OpenAPI description, of every route of a service that may be written."""
    return _routes(place / "gallery", writable=True)


def _routes(folder: Path, *, writable: bool) -> dict[tuple[str, str], dict[str, Any]]:
    with Collection.open(folder) as collection:
        paths = create_app(collection, ServerConfig(writable=writable)).openapi()["paths"]
    named = "/api/collections/{collection}/"
    aliases = {path.replace(named, "/api/"): each for path, each in paths.items() if named in path}
    return {
        (method.upper(), path): operation
        for path, operations in (paths | aliases).items()
        for method, operation in operations.items()
    }


def matched(expression: str, routes: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Routes that the matchers of an expression select; Prometheus anchors them at both ends."""
    patterns = dict(re.findall(r'(method|route)=~"([^"]*)"', expression))
    return {
        (method, path)
        for method, path in routes
        if re.fullmatch(patterns.get("method", ".*"), method)
        and re.fullmatch(patterns["route"], path)
    }


def panel(title: str) -> list[str]:
    (found,) = (each for each in dashboard()["panels"] if each["title"] == title)
    return [target["expr"] for target in found["targets"]]


def test_the_duration_of_every_route_that_searches_is_watched(
    routes: dict[tuple[str, str], dict[str, Any]],
) -> None:
    searches = {
        (method, path)
        for (method, path), operation in routes.items()
        if "search" in operation["tags"] or path.endswith("/search")
    }
    assert len(searches) == 4
    (recorded,) = (rule for rule in rules() if "search_seconds" in rule.get("record", ""))
    for expression in (recorded["expr"], *panel("Duration of searches")):
        assert matched(expression, routes) == searches


def test_the_dashboard_shows_every_route_that_writes(
    routes: dict[tuple[str, str], dict[str, Any]], place: Path
) -> None:
    writes = routes.keys() - _routes(place / "gallery", writable=False).keys()
    assert len(writes) == 14
    (expression,) = panel("Writes per second")
    assert matched(expression, routes) == writes


@pytest.mark.parametrize(
    ("values", "fires"), [("0x60", False), ("7x30 0x30", True), ("7x60", False)]
)
def test_only_a_collection_that_had_items_is_empty(
    tmp_path: Path, values: str, *, fires: bool
) -> None:
    (expression,) = (rule["expr"] for rule in rules() if rule.get("alert") == "CrossbitEmpty")
    assert expression.endswith(" and max_over_time(crossbit_items[1d]) > 0")
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool, of Prometheus, to evaluate the rules")
    case = {
        "interval": "1m",
        "input_series": [{"series": 'crossbit_items{collection="cats"}', "values": values}],
        "promql_expr_test": [
            {
                "expr": 'count(ALERTS{alertname="CrossbitEmpty",alertstate="firing"}) or vector(0)',
                "eval_time": "50m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }
    content = {"rule_files": [str(DEPLOY / "crossbit-rules.yml")], "tests": [case]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(content))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def locations() -> dict[str, str]:
    """Name of each location of nginx.conf → its directives."""
    return dict(re.findall(r"location ([^{]+) \{(.*?)\}", NGINX.read_text(), re.S))


def test_nginx_buffers_no_stream(
    routes: dict[tuple[str, str], dict[str, Any]], place: Path
) -> None:
    (pattern,) = (
        name.removeprefix("~ ")
        for name, directives in locations().items()
        if "proxy_buffering off;" in directives
    )
    paths = [path for method, path in routes if method == "GET" and path.startswith("/api/")]
    streams = set()
    with (
        Collection.open(place / "gallery") as gallery,
        TestClient(create_app(gallery), base_url="http://localhost") as client,
    ):
        for path in paths:
            address = path.replace("{collection}", "default")
            answer = client.get(address)
            if answer.headers["content-type"].startswith("application/x-ndjson"):
                streams.add(address)
            assert (re.search(pattern, address) is not None) == (address in streams), address
    assert len(streams) == 2


def test_nginx_passes_the_same_headers_everywhere() -> None:
    text = NGINX.read_text()
    assert "proxy_set_header X-Request-ID $request_id;" in text
    assert re.search(r"^log_format crossbit .*\$request_id", text, re.M)
    # A location with a header of its own would inherit none of the server's.
    assert not any("proxy_set_header" in directives for directives in locations().values())


def test_nginx_accepts_its_file(tmp_path: Path) -> None:
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        pytest.skip("needs nginx to check its file, and openssl to make a certificate")
    version = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr
    number = tuple(map(int, re.findall(r"(\d+)\.(\d+)\.(\d+)", version)[0]))
    site = re.sub(r"/etc/letsencrypt/live/[^/]*|/var/log/nginx", str(tmp_path), NGINX.read_text())
    if number < (1, 25, 1):  # as the page says
        site = re.sub(r"listen 443 ssl;\s+http2 on;", "listen 443 ssl http2;", site)
    request = "req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout privkey.pem -out fullchain.pem"
    subprocess.run(["openssl", *request.split()], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n{site}}}\n"
    )
    done = subprocess.run(
        ["nginx", "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        capture_output=True,
        text=True,
        check=False,
    )
    problems = [line for line in done.stderr.splitlines() if "[emerg]" in line]
    assert [line for line in problems if "mkdir()" not in line] == []  # of other users' folders


def test_every_alert_says_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) == 7
    assert "has seven alerts" in PAGE.read_text()
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


def serve_help() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "crossbit", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    return done.stdout


def test_the_unit_starts_a_command_that_exists() -> None:
    (command,) = re.findall(r"^ExecStart=\S+/crossbit (.*)$", UNIT.read_text(), re.M)
    text = serve_help()
    for option in re.findall(r"--[\w-]+", command):
        assert option in text

"""Drift of a collection: statistics, ``collection check --drift``, metrics of the service."""

from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from crossbit import Collection
from crossbit.cli.app import app
from crossbit.server.metrics import drift_gauges
from tests.faults.operations import WIDTHS, model

random = np.random.default_rng(0)
X = random.normal(size=(3000, WIDTHS["text"]))


def test_an_encoder_that_was_swapped_is_reported(tmp_path: Path) -> None:
    place = str(tmp_path / "c")
    with Collection.create(place, model(0)) as collection:
        collection.upsert(range(100), {"text": X[:100]})
        assert collection.stats().drift == {}
        few = CliRunner().invoke(app, ["collection", "check", place, "--drift"])
        assert few.exit_code == 1
        assert "--drift needs at least 800 codes" in str(few.exception)
        collection.upsert(range(2000), {"text": X[:2000]})
        stats = collection.stats()
        assert list(stats.drift) == ["text"]
        assert stats.drifting == []
        assert CliRunner().invoke(app, ["collection", "check", place, "--drift"]).exit_code == 0
        assert drift_gauges(stats.to_dict())["crossbit_drifting_modalities"] == 0
        collection.upsert(range(2000, 3000), {"text": X[2000:] + 1.0})
        stats = collection.stats()
        assert stats.drifting == ["text"]
        assert stats.to_dict()["drifting"] == ["text"]
        assert stats.to_dict()["drift"]["text"]["n_recent"] == 750
        gauges = drift_gauges(stats.to_dict())
        assert gauges["crossbit_drifting_modalities"] == 1
        assert gauges["crossbit_drift_bit_balance"] > 0.1
        warned = CliRunner().invoke(app, ["collection", "check", place, "--drift"])
        assert warned.exit_code == 1
        assert "the last 750 codes of 'text' differ from those before (p = 0.002)" in warned.output


def test_an_empty_collection_has_no_drift(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        assert collection.stats().drift == {}
        assert drift_gauges(collection.stats().to_dict()) == {}

"""``crossbit reproduce flickr8k``: the table of NUS on Flickr8k, with simulated features."""

from pathlib import Path

import numpy as np
import pytest

from crossbit.cli import main
from crossbit.data import Dataset
from crossbit.hashers import HASHERS
from crossbit_experiments.docs import write_docs
from crossbit_experiments.flickr8k import dataset
from crossbit_experiments.flickr8k.dataset import Photographs
from crossbit_experiments.flickr8k.vocabulary import Leaks
from crossbit_experiments.nus import run
from crossbit_experiments.nus.run import NETWORK, table_methods
from crossbit_experiments.nus.simulation import FEATURE_MODELS, simulate_features
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.summary import read_summary
from crossbit_experiments.verify import verify_results

pytest.importorskip("matplotlib")


def photographs(*_: object, **__: object) -> Photographs:
    labels = np.random.default_rng(0).random((240, 5)) < 0.3
    labels[:, 0] |= ~labels.any(axis=1)
    image = simulate_features(labels, FEATURE_MODELS["image"], 0.6, [0]).astype(np.float32)
    tags = simulate_features(labels, FEATURE_MODELS["tags"], 0.8, [1]).astype(np.float32)
    splits = {"train": np.arange(80), "database": np.arange(80, 200), "query": np.arange(200, 240)}
    data = Dataset(
        views={"image": image, "tags": tags},
        labels=labels,
        splits=splits,
        payload=[{"tags": [f"word{n}" for n in np.flatnonzero(row)]} for row in tags],
        name="flickr8k",
    )
    leaks = Leaks(words=12, compounds=3, occurrences=456, implying=("leash", "slope"))
    return Photographs(data, {}, leaks, {"without a concept": 7})


def test_the_command_counts_leaks_and_ends_in_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dataset, "load", photographs)
    monkeypatch.setitem(NETWORK, "steps", 10)
    # The networks with defaults take long.
    monkeypatch.setattr(run, "table_methods", lambda *args, **kw: table_methods(*args, **kw)[:4])
    out = tmp_path / "results" / "flickr8k"
    command = [
        "reproduce",
        "flickr8k",
        "--data",
        str(tmp_path),
        "--out",
        str(out),
        "--pairs",
        "500",
    ]
    assert main([*command, "--seeds", "2", "--bits", "8"]) == 0
    printed = capsys.readouterr()
    assert "excluded: 7 without a concept" in printed.err
    assert "12 words of concepts and 3 that contain one, used 456 times" in printed.err
    assert "tags that still imply a concept: 2 (leash, slope)" in printed.err
    assert "mean ± sd over seeds" in printed.out
    assert "paper" not in printed.out
    summary = read_summary(out / "summary.json")
    assert summary["facts"]["protocol"]["name"] == "flickr8k/concepts"
    assert [row["seeds"] for row in summary["table"]] == [2, 2, 2, 2, 1]
    annotation = {row["title"]: row for row in summary["annotation"]}
    assert {title: row["seeds"] for title, row in annotation.items()} == {
        "CM-SSH": 2,
        "MM-NN": 2,
        "always the same ten": 1,
    }
    assert "fifth place tied" in printed.out
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    marks = [
        f"<!-- from results: flickr8k {name} -->\n<!-- end of results -->\n"
        for name in ("table", "facts", "annotation")
    ]
    page.write_text("".join(marks))
    write_docs(tmp_path / "results", tmp_path / "docs")
    text = page.read_text()
    assert "| ten tags | precision | 95 % | recall |" in text
    # Without data: from the values per query that are stored as runs.
    report = verify_results(tmp_path / "results", tmp_path / "docs")
    assert report.problems == []
    assert report.runs == 4 * 2 + 2 * 2 + 1
    assert "| at random |" in text
    assert "- Rows: train 80, database 120, query 40.\n" in text
    assert (
        "Removed from the tags: 12 words of concepts and 3 that contain one, used 456 times" in text
    )


def test_autohash_is_beside_the_papers_networks() -> None:
    methods = table_methods(PROTOCOLS["flickr8k/concepts"], paper=False, defaults=True)
    assert [method.title for method in methods[4:]] == ["AutoHash()"]
    for method in methods[4:]:
        assert method.build is not None
        assert (
            method.build(n_bits=8, seed=3).configuration()
            == HASHERS[method.key[:4]](n_bits=8, seed=3).configuration()
        )

"""Annotation of Flickr8k: tags voted by the neighbors in stored codes, on a made-up set."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit_experiments.flickr8k.annotation import (
    ALWAYS,
    PREFIX,
    annotate,
    annotate_runs,
    annotation_rows,
    annotation_table,
    annotation_values,
)
from crossbit_experiments.methods import Method
from crossbit_experiments.runs import RunStore, StoredRun, Truth

CMSSH = Method(key="cmssh", title="CM-SSH")
OTHER = Method(key="cmnn", title="CM-NN")
KINDS = ("dog", "snow")
N_BASE = 12


def bits(kinds: np.ndarray) -> Codes:
    """Codes of 8 bits: all 0 for dogs, all 1 for snow."""
    return Codes.pack(np.repeat(kinds[:, None] == 1, 8, axis=1))


def made_up() -> Dataset:
    """Rows 0 to 11 are the base, 12 to 15 the queries, 16 to 19 train; kinds alternate."""
    kinds = np.arange(20) % 2
    # Every bag has the word of its kind, which is right for queries of this kind, and its own.
    payload = [{"tags": [KINDS[kind], f"word{row}"]} for row, kind in enumerate(kinds)]
    splits = {
        "database": np.arange(N_BASE),
        "query": np.arange(N_BASE, 16),
        "train": np.arange(16, 20),
    }
    views = {"image": np.ones((20, 2)), "tags": np.ones((20, 2))}
    return Dataset(views=views, labels=kinds, splits=splits, payload=payload)


def made_up_run(name: str, data: Dataset, query_kinds: np.ndarray) -> StoredRun:
    """A run whose query codes say these kinds; the codes of the base are right."""
    labels = np.asarray(data.labels)
    sides = {"query": data.splits["query"], "base": data.splits["database"]}
    rows = {
        f"{side}.{m}": np.asarray(own) for side, own in sides.items() for m in ("image", "tags")
    }
    truth = Truth(rows, {key: labels[own] for key, own in rows.items()})
    base = bits(labels[rows["base.tags"]])
    queries = bits(query_kinds)
    return StoredRun(
        name=name,
        fingerprint={"code": name},
        truth=truth,
        truth_name="truth",
        at=10,
        settings={"method": "cmssh"},
        scores={},
        codes={"query.image": queries, "base.tags": base},
    )


@pytest.fixture
def data() -> Dataset:
    return made_up()


@pytest.fixture
def store(tmp_path: Path, data: Dataset) -> RunStore:
    """Seed 0 is right for all queries, seed 1 for none."""
    store = RunStore(tmp_path)
    kinds = np.asarray(data.labels)[np.asarray(data.splits["query"])]
    store.add(made_up_run("cmssh-8-0", data, kinds))
    store.add(made_up_run("cmssh-8-1", data, 1 - kinds))
    store.add(made_up_run("cmnn-8-0", data, kinds))
    return store


def test_five_neighbors_vote_for_tags(store: RunStore, data: Dataset) -> None:
    right, wrong = (annotate(store[f"cmssh-8-{seed}"], data) for seed in (0, 1))
    # Five neighbors have their kind and a word each: six tags, of which one of two is right.
    np.testing.assert_allclose(right["precision"], np.full(4, 1 / 6))
    np.testing.assert_allclose(right["recall"], np.full(4, 1 / 2))
    assert right["hit"].tolist() == [1] * 4
    assert wrong["hit"].tolist() == [0] * 4
    # Six bags of each kind have the same code.
    assert right["tied"].tolist() == [1] * 4


def test_a_tie_that_ends_at_the_last_place_does_not_count(store: RunStore) -> None:
    run = store["cmssh-8-0"]
    assert run.tied("image-tags", 5).all()
    assert not run.tied("image-tags", 6).any()
    assert run.tied("image-tags", 7).all()


def test_images_without_a_tag_have_no_value() -> None:
    values = annotation_values([["dog"], ["dog"]], [["dog"], []])
    assert values["precision"][0] == 1
    assert np.isnan(values["precision"][1])


def test_annotations_are_stored_and_give_the_table(store: RunStore, data: Dataset) -> None:
    annotate_runs(store, data, [CMSSH, OTHER], n_bits=8)
    assert [name for name in store.names() if name.startswith(PREFIX)] == [
        f"{PREFIX}always-8-0",
        f"{PREFIX}cmssh-8-0",
        f"{PREFIX}cmssh-8-1",
    ]
    # From the file alone.
    again = RunStore(store.folder)
    for name in again.names():
        run = again[name]
        for measure, scores in run.recomputed().items():
            assert scores["value"] == pytest.approx(run.scores[measure]["value"], abs=1e-6)
    rows = annotation_rows(again, [CMSSH, OTHER], n_bits=8)
    assert [row["title"] for row in rows] == ["CM-SSH", ALWAYS.title]
    cmssh, always = rows
    assert cmssh["seeds"] == 2
    assert cmssh["mean"]["hit"] == pytest.approx(50)
    assert cmssh["deviation"]["hit"] == pytest.approx(100 / 2**0.5)
    assert cmssh["interval"]["hit"] == [50, 50], "every query is right with one seed of two"
    # The training tags have both kinds and four words: each query has its kind among them.
    assert always["mean"]["precision"] == pytest.approx(100 / 6, abs=1e-4)
    lines = annotation_table({"annotation": rows}).lines
    assert lines[0][-3:] == ["50.0 ± 70.7", "100.0", "2"]
    assert lines[1][-2:] == ["–", "1"]


def test_annotations_are_reused_until_codes_or_tags_change(store: RunStore, data: Dataset) -> None:
    annotate_runs(store, data, [CMSSH], n_bits=8)
    before = store.path.read_bytes()
    annotate_runs(RunStore(store.folder), data, [CMSSH], n_bits=8)
    assert store.path.read_bytes() == before
    store.add(
        replace(store["cmssh-8-1"], fingerprint={"code": "x"}, codes=store["cmssh-8-0"].codes)
    )
    annotate_runs(store, data, [CMSSH], n_bits=8)
    assert store[f"{PREFIX}cmssh-8-1"].score("hit") == 100
    plain = replace(data, payload=[{"tags": ["dog"]} for _ in range(len(data))])
    annotate_runs(store, plain, [CMSSH], n_bits=8)
    assert store[f"{PREFIX}cmssh-8-0"].score("precision") == 100
    assert store[f"{PREFIX}always-8-0"].score("precision") == 100

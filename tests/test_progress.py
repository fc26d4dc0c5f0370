"""Progress of long operations in the log, and the same on stderr with ``verbose=True``."""

import doctest
import logging
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, LSH, _progress, features
from crossbit._progress import Stages, Step, StepCounter, log_progress
from crossbit.data import convert, synthetic
from crossbit.evaluation import evaluate_model
from crossbit.hashers.rankedcca import RankedCCA
from crossbit.tune import search

DATA = synthetic(n=60, classes=3)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log every step."""
    monkeypatch.setattr(_progress, "LOG_EVERY", 0.0)


def test_the_examples_are_correct() -> None:
    assert doctest.testmod(_progress).failed == 0


def test_training_is_logged_with_counts(always: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "crossbit")
    CCAITQ(n_bits=8, rounds=3).fit(**DATA.fit_arguments())
    first, *steps, last = caplog.messages
    assert first == "training ccaitq"
    assert [line.split(",")[0] for line in steps] == [
        "training ccaitq: 1 of 3 (33 %)",
        "training ccaitq: 2 of 3 (66 %)",
        "training ccaitq: 3 of 3 (100 %)",
    ]
    assert last.startswith("training ccaitq: done in ")


def test_nothing_is_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    CCAITQ(n_bits=8, rounds=3).fit(**DATA.fit_arguments())
    assert caplog.messages == []


def test_lines_are_seconds_apart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "crossbit")
    with log_progress("work", logging.getLogger("crossbit.test")) as report:
        assert report is not None
        for number in range(1, 1000):
            report(Step(number, 1000))
    assert len(caplog.messages) == 2


def test_verbose_shows_the_lines_on_stderr_and_leaves_logging_as_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("crossbit")
    before = (logger.level, list(logger.handlers))
    model = LSH(n_bits=8).fit(**DATA.fit_arguments(), verbose=True)
    evaluate_model(model, DATA, verbose=True)
    tags = features.BagOfTags(("dog", "cat"))
    features.extract(tags, ["a dog", "a cat"], verbose=True)
    search("lsh", DATA.part("train"), n_bits=8, trials=2, folds=2, verbose=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "done in" not in line] == [
        "training lsh",
        "evaluating",
        "extracting 2 inputs (0 in the cache)",
        "tuning lsh",  # and not every fit inside it
    ]
    assert (logger.level, list(logger.handlers)) == before


def test_conversion_counts_the_rows(tmp_path: Path) -> None:
    steps: list[Step] = []
    DATA.save(tmp_path / "set")
    convert(tmp_path / "set", tmp_path / "copy", on_step=steps.append)
    assert (steps[-1].number, steps[-1].of) == (120, 120)


@pytest.mark.parametrize("n", [20, 200])
def test_a_method_of_several_parts_counts_to_its_total(n: int) -> None:
    steps: list[Step] = []
    data = synthetic(n=n, classes=3)
    RankedCCA(n_bits=8, steps=4).fit(data.views, on_step=steps.append)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    last = steps[-1]
    assert last.of in (last.number, last.number + 4)  # the last part is left out if it is useless
    assert all(step.of is not None and step.number <= step.of for step in steps)


def test_evaluation_counts_modalities_and_directions() -> None:
    steps: list[Step] = []
    model = LSH(n_bits=8).fit(**DATA.fit_arguments())
    evaluate_model(model, DATA, on_step=steps.append)
    assert [(step.number, step.of) for step in steps] == [(k, 6) for k in range(1, 7)]


def test_a_counter_never_exceeds_its_total() -> None:
    steps: list[Step] = []
    count = StepCounter(steps.append, 1)
    count(loss=float(np.float64(2)))
    count()
    assert [(step.number, step.of, step.loss) for step in steps] == [(1, 1, 2.0), (2, 2, None)]


def test_stages_are_numbered_and_timed(caplog: pytest.LogCaptureFixture) -> None:
    titles: list[str] = []
    plan = {"reading": "a file", "training": "8 bits"}

    def progress(title: str) -> nullcontext[None]:
        titles.append(title)
        return nullcontext()

    stages = Stages(plan, logging.getLogger("crossbit.test"), progress)
    assert stages.summary() == "1/2 reading   a file\n2/2 training  8 bits"
    for name in plan:
        with stages(name):
            pass
    assert titles == ["1/2 reading", "2/2 training"]
    assert list(stages.seconds) == ["reading", "training"]
    caplog.set_level(logging.INFO, "crossbit")
    stages.note("10 images")
    assert caplog.messages == ["10 images"]

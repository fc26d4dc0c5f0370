"""The examples of docs/metrics.md run, and every public name has a docstring."""

import doctest
import inspect
from pathlib import Path

from crossbit import metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_examples_of_the_page_are_correct() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert results.attempted > 10
    assert results.failed == 0


def test_every_public_name_is_documented() -> None:
    for name in metrics.__all__:
        value = getattr(metrics, name)
        assert not inspect.isroutine(value) or value.__doc__, name
        assert not inspect.isclass(value) or value.__doc__, name

"""The page on metrics: its examples run, and every public name is on it or in the docstrings it points to."""

import doctest
import inspect
from pathlib import Path

from crossbit import metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_examples_of_the_page_give_what_it_says() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.attempted > 10
    assert found.failed == 0


def test_every_public_name_is_documented() -> None:
    for name in metrics.__all__:
        value = getattr(metrics, name)
        assert not inspect.isroutine(value) or value.__doc__, name
        assert not inspect.isclass(value) or value.__doc__, name

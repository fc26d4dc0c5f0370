"""Spaces: what may be searched of a method, read strictly."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import HASHERS
from crossbit.errors import DataError
from crossbit.tune import Choice, Range, as_space, default_space, read_space


@pytest.mark.parametrize("method", sorted(set(HASHERS) - {"hasher"}))
def test_every_method_has_a_space_of_values_that_it_takes(method: str) -> None:
    space = default_space(method)
    for place in (0.0, 0.5, 1.0):
        HASHERS[method].from_configuration({name: one.at(place) for name, one in space.items()})
    assert ("alpha" in space) == (method in ("mmnn", "diffhash"))
    assert not {"n_bits", "seed"} & set(space)


@given(st.floats(0, 1), st.sampled_from([(1e-4, 0.5, True), (0.0, 1.0, False), (3, 700, True)]))
def test_a_range_never_leaves_its_ends(place: float, ends: tuple[float, float, bool]) -> None:
    for whole, percent in ((False, False), (ends[0] == 3, False), (False, True)):
        one = Range(*ends, whole=whole, percent=percent)
        assert one.low <= one.number(one.at(place)) <= one.high


def test_a_file_says_what_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(
        "hidden = [[], [64]]\nsteps = { low = 10, high = 500, log = true }\nalpha = { low = 0, high = 1 }\n"
        'margin.image-text = { low = "40%", high = "110%" }\nmargin.default = { choices = ["50%", "90%"] }\n'
    )
    assert read_space(path, "mmnn") == {
        "hidden": Choice(([], [64])),
        "steps": Range(10, 500, log=True, whole=True),
        "alpha": Range(0, 1),
        "margin.image-text": Range(40, 110, percent=True),
        "margin.default": Choice(("50%", "90%")),
    }


def test_a_space_is_plain_and_comes_back() -> None:
    space = default_space("mmnn")
    assert as_space({name: one.plain() for name, one in space.items()}, "mmnn") == space


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"margins": [1, 2]}, r"mmnn: \['margins'\] cannot be searched; its fields: \['hidden'"),
        ({"n_bits": [16, 32]}, r"\['n_bits'\] cannot be searched"),
        ({}, "there is nothing to search; mmnn has the fields"),
        ({"alpha": [0.3]}, r"alpha: a choice is between two values or more, got \[0.3\]"),
        (
            {"alpha": 0.3},
            r"alpha: expected \{low, high\}, with log = true if you like, or a list; got 0.3",
        ),
        ({"alpha": {"low": 0.1}}, r"alpha: expected \{low, high\}"),
        ({"alpha": {"low": 1, "high": 0}}, "alpha: a range goes from low to a higher number"),
        (
            {"decay": {"low": 0, "high": 1, "log": True}},
            "decay: a range goes from low .* above 0 with log",
        ),
        ({"decay": {"low": "a", "high": "b"}}, "decay: a range goes"),
    ],
)
def test_what_is_no_space_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_space(given, "mmnn")


def test_a_file_that_is_no_space_is_named(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text("alpha = [0.1")
    with pytest.raises(DataError, match=r"space.toml: not valid TOML"):
        read_space(path, "mmnn")
    path.write_text("alpha = 1")
    with pytest.raises(DataError, match=r"space.toml: alpha: expected"):
        read_space(path, "mmnn")
    with pytest.raises(DataError, match="unknown method 'nonsense'"):
        read_space(path, "nonsense")

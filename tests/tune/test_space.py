"""Search spaces: fields of a method and their values, parsed strictly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import HASHERS
from crossbit.errors import DataError
from crossbit.tune import Choice, Range, default_space, parse_space, suggest_bits


@pytest.mark.parametrize("method", sorted(set(HASHERS) - {"hasher"}))
def test_every_method_accepts_the_values_of_its_default_space(method: str) -> None:
    space = default_space(method)
    for position in (0.0, 0.5, 1.0):
        fields = {name: dimension.at(position) for name, dimension in space.items()}
        HASHERS[method].from_configuration(fields)._check_fields()
    assert ("alpha" in space) == (method in ("mmnn", "diffhash"))
    assert not {"n_bits", "seed"} & set(space)


@given(st.floats(0, 1), st.sampled_from([(1e-4, 0.5, True), (0.0, 1.0, False), (3, 700, True)]))
def test_a_range_never_leaves_its_ends(position: float, ends: tuple[float, float, bool]) -> None:
    for integer, percent in ((False, False), (ends[0] == 3, False), (False, True)):
        dimension = Range(*ends, integer=integer, percent=percent)
        assert dimension.low <= dimension.number(dimension.at(position)) <= dimension.high


def test_a_space_is_parsed_from_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(
        "hidden = [[], [64]]\n"
        "steps = { low = 10, high = 500, log = true }\n"
        "alpha = { low = 0, high = 1 }\n"
        'margin.image-text = { low = "40%", high = "110%" }\n'
        'margin.default = { choices = ["50%", "90%"] }\n'
    )
    assert parse_space(path, "mmnn") == {
        "hidden": Choice(([], [64])),
        "steps": Range(10, 500, log=True, integer=True),
        "alpha": Range(0, 1),
        "margin.image-text": Range(40, 110, percent=True),
        "margin.default": Choice(("50%", "90%")),
    }


def test_the_plain_form_of_a_space_parses_to_the_same_space() -> None:
    space = default_space("mmnn")
    assert (
        parse_space({name: dimension.plain() for name, dimension in space.items()}, "mmnn") == space
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"margins": [1, 2]},
            r"mmnn: cannot search \['margins'\]; its fields: \['inputs', 'hidden'",
        ),
        ({"n_bits": [16, 32]}, r"cannot search \['n_bits'\]"),
        ({}, "the space is empty; mmnn has the fields"),
        ({"alpha": [0.3]}, r"alpha: expected two choices or more, got \[0.3\]"),
        (
            {"alpha": 0.3},
            r"alpha: expected \{low, high\}, optionally with log = true, or a list; got 0.3",
        ),
        ({"alpha": {"low": 0.1}}, r"alpha: expected \{low, high\}"),
        ({"alpha": {"low": 1, "high": 0}}, "alpha: low must be less than high"),
        ({"decay": {"low": 0, "high": 1, "log": True}}, "decay: low must be .* above 0 with log"),
        ({"decay": {"low": "a", "high": "b"}}, "decay: low must be"),
    ],
)
def test_an_invalid_space_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_space(values, "mmnn")


def test_the_message_names_an_invalid_file(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text("alpha = [0.1")
    with pytest.raises(DataError, match=r"space.toml: not valid TOML"):
        parse_space(path, "mmnn")
    path.write_text("alpha = 1")
    with pytest.raises(DataError, match=r"space.toml: alpha: expected"):
        parse_space(path, "mmnn")
    with pytest.raises(DataError, match="unknown method 'nonsense'"):
        parse_space(path, "nonsense")


@pytest.mark.parametrize(
    ("labels", "bits"),
    [
        ([0, 1, -1], (5, 10)),
        (np.arange(10), (20, 40)),
        (np.eye(81, dtype=bool), (35, 70)),
        ({"image": [0, 1], "text": [0, 1, 2, 3]}, (10, 20)),
    ],
)
def test_code_lengths_follow_the_number_of_classes(labels: Any, bits: tuple[int, int]) -> None:  # noqa: ANN401
    assert suggest_bits(labels) == bits


def test_code_lengths_need_two_classes() -> None:
    with pytest.raises(DataError, match="labels of at least 2 classes, got 1"):
        suggest_bits([3, 3, -1])

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import DataError
from crossbit.annotate import Tag, tag_quality, vote

tag_lists = st.lists(st.lists(st.sampled_from("abcdef")), max_size=6)


@given(tag_lists, st.integers(1, 8))
def test_votes_equal_the_definition(lists: list[list[str]], tags: int) -> None:
    voted = vote(lists, max_tags=tags)
    names = {name for each in lists for name in each}
    assert len(voted) == min(tags, len(names))
    for tag in voted:
        assert tag.votes == sum(tag.name in each for each in lists)
        assert math.isclose(tag.score, tag.votes / len(lists))
    left_out = names - {tag.name for tag in voted}
    fewest = min((tag.votes for tag in voted), default=0)
    assert all(sum(name in each for each in lists) <= fewest for name in left_out)


def test_weights_decide() -> None:
    assert vote([["sky"], ["sea"], ["sea"]], [0.75, 0.125, 0.125]) == [
        Tag("sky", 0.75, 1),
        Tag("sea", 0.25, 2),
    ]


def test_equal_scores_follow_the_nearest_neighbor_then_the_name() -> None:
    assert [tag.name for tag in vote([["z", "b"], ["a"]])] == ["b", "z", "a"]


def test_weights_of_nothing_count_alike() -> None:
    assert vote([["sky"], ["sky", "sea"]], [0, 0]) == vote([["sky"], ["sky", "sea"]])


def test_no_neighbors_no_tags() -> None:
    assert vote([]) == []
    assert vote([[], []]) == []


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [1.0, math.nan]])
def test_weights_are_checked(weights: list[float]) -> None:
    with pytest.raises(DataError, match="a weight of at least 0 for each of 2 neighbors"):
        vote([["sky"], ["sea"]], weights)


def test_a_string_is_rejected_as_a_list_of_tags() -> None:
    with pytest.raises(DataError, match="expected a list of tags, got the string 'sky'"):
        vote(["sky"])


def test_at_least_one_tag() -> None:
    with pytest.raises(DataError, match="max_tags must be an integer of at least 1, got 0"):
        vote([["sky"]], max_tags=0)


def test_quality_by_hand() -> None:
    quality = tag_quality([["a", "b", "b"], [], ["a"], ["x"]], [["a"], ["a"], [], ["y", "z"]])
    assert quality.precision == pytest.approx(0.5 / 3)
    assert quality.recall == pytest.approx(1 / 3)
    assert quality.hit == pytest.approx(1 / 3)
    assert (quality.items, quality.skipped) == (3, 1)


def test_quality_needs_equally_many_lists() -> None:
    with pytest.raises(DataError, match="correct tags for each of 1 items, got 2 lists"):
        tag_quality([["a"]], [["a"], ["b"]])


def test_quality_needs_correct_tags() -> None:
    with pytest.raises(DataError, match="none of 1 items has correct tags"):
        tag_quality([["a"]], [[]])

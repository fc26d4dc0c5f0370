"""Grid figures: every value is in its cell, blank where nothing was tried."""

from pathlib import Path

from crossbit.hashers.ccaitq import CCAITQ
from crossbit.tune import Choice, Range, SearchResult, Space, Trial
from crossbit.tune.plots import plot_grid, plot_search


def test_a_grid_shows_the_best_of_each_cell(tmp_path: Path) -> None:
    trials = [
        Trial({"margin": {"image-text": margin}, "alpha": alpha}, (10 * margin + alpha,))
        for margin, alpha in ((2.0, 0.1), (3.0, 0.1), (10.0, 0.5))
    ]
    trials.append(Trial({"margin": {"image-text": 2.0}, "alpha": 0.1}, (7.0,)))
    path = tmp_path / "grid.svg"
    plot_grid(trials, "margin.image-text", "alpha", path, titles={"alpha": "weight α"})
    drawn = path.read_text()
    for text in ("20.1", "30.1", "100.5", "weight α", "margin.image-text"):
        assert text in drawn
    assert ">7.0<" not in drawn
    assert drawn.index(">2.0<") < drawn.index(">3.0<") < drawn.index(">10.0<")
    plot_grid(
        trials, "margin.image-text", "alpha", tmp_path / "again.svg", titles={"alpha": "weight α"}
    )
    assert (tmp_path / "again.svg").read_bytes() == path.read_bytes()


def test_words_keep_their_order(tmp_path: Path) -> None:
    trials = [Trial({"inputs": word, "alpha": 1}, (5.0,)) for word in ("unit", "standardize")]
    plot_grid(trials, "inputs", "alpha", tmp_path / "grid.svg")
    drawn = (tmp_path / "grid.svg").read_text()
    assert drawn.index(">unit<") < drawn.index(">standardize<")


def test_a_search_of_one_field_has_bars_alone(tmp_path: Path) -> None:
    trials = [Trial({}, (1.0, 1.0)), *(Trial({"power": p}, (p, p)) for p in (0.5, 1.5, 2.5, 2.0))]
    plot_search(
        SearchResult(CCAITQ, {}, {"power": Range(0, 3)}, 2, trials), tmp_path / "search.svg"
    )
    drawn = (tmp_path / "search.svg").read_text()
    assert "importance" in drawn
    assert "stopped early" not in drawn


def test_a_search_shows_choices_by_name_and_what_was_given_up(tmp_path: Path) -> None:
    space: Space = {"hidden": Choice(([], [64])), "decay": Range(1e-4, 1.0, log=True)}
    trials = [
        Trial({"hidden": [], "decay": 0.01 * k}, (k, k) if k < 6 else (k,))
        for k in (1.0, 2.0, 4.0, 5.0, 6.0)
    ]
    plot_search(
        SearchResult(CCAITQ, {}, space, 2, [Trial({}, (0.0, 0.0)), *trials]),
        tmp_path / "search.svg",
    )
    assert "[64]" in (tmp_path / "search.svg").read_text()

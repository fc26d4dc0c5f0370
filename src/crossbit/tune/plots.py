"""Figures of a search: two fields against mAP, and the importance of each field."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit.tune.search import SearchResult
from crossbit.tune.space import Choice, Range
from crossbit.tune.validation import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOW = "#eef4f7"
_HIGH = COLORS[0]
_INK = "#37352f"
_PREFERRED = ("margin", "alpha")  # the axes of the paper's figure


def plot_search(result: SearchResult, path: Path) -> None:
    """Draw two fields against mAP, and the importance of every field.

    The axes are margin and α if both were searched, else the two most important fields. Hollow
    dots are trials that were stopped early, the ring marks the best.
    """
    shares = result.importances() or dict.fromkeys(result.space, 0.0)
    names = [name for name in _PREFERRED if name in result.space]
    names = list(dict.fromkeys([*(names if len(names) == 2 else []), *shares]))[:2]
    with svg_figure(path, 9 if len(names) == 2 else 4.5, 3.6, columns=len(names)) as axes:
        if len(names) == 2:
            _draw_trials(axes[0], result, names)
        _draw_importances(axes[-1], shares)


def _draw_trials(axis: "Axes", result: SearchResult, names: Sequence[str]) -> None:
    """Draw one dot per trial, colored by its mean."""
    trials = [trial for trial in result.trials if trial.fields]
    x, y = (
        np.array([result.space[name].number(trial.value(name)) for trial in trials], float)
        for name in names
    )
    means = np.array([trial.mean for trial in trials])
    complete = np.array([len(trial.scores) == result.folds for trial in trials], bool)
    if complete.any():
        style: dict[str, Any] = {
            "cmap": _colors(),
            # The worst tenth of the trials would take up most of the color scale.
            "vmin": np.quantile(means[complete], 0.1),
            "vmax": means[complete].max(),
            "edgecolors": _INK,
            "linewidths": 0.4,
        }
        dots = axis.scatter(x[complete], y[complete], c=means[complete], s=46, zorder=3, **style)
        axis.figure.colorbar(dots, ax=axis, label="mAP, cross-validated (%)")
    if (~complete).any():
        hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": "#9b9a97", "linewidths": 0.8}
        axis.scatter(x[~complete], y[~complete], s=24, zorder=2, **hollow)
    if result.best.fields:
        best = trials.index(result.best)
        ring: dict[str, Any] = {"facecolors": "none", "edgecolors": COLORS[1], "linewidths": 1.6}
        axis.scatter(x[best], y[best], s=150, **ring)
    _scale_axis(axis, "x", names[0], result.space[names[0]])
    _scale_axis(axis, "y", names[1], result.space[names[1]])
    axis.set_title(f"{len(result.trials)} trials; hollow: stopped early")


def _scale_axis(
    axis: "Axes", side: Literal["x", "y"], name: str, dimension: Range | Choice
) -> None:
    """Label an axis, with the scale or the options of its field."""
    set_label = getattr(axis, f"set_{side}label")
    if isinstance(dimension, Choice):
        set_label(name)
        set_ticks = getattr(axis, f"set_{side}ticks")
        set_ticks(range(len(dimension.options)), list(map(str, dimension.options)), fontsize=8)
        return
    set_label(f"{name} (%)" if dimension.percent else name)
    if dimension.log:
        getattr(axis, f"set_{side}scale")("log")


def _draw_importances(axis: "Axes", shares: Mapping[str, float]) -> None:
    names = list(shares)[::-1]
    axis.barh(names, [100 * shares[name] for name in names], color=COLORS[0], height=0.6)
    axis.set(xlabel="share of the variance between trials (%)", title="importance")


def plot_grid(
    trials: Sequence[Trial], x: str, y: str, path: Path, *, titles: Mapping[str, str] | None = None
) -> None:
    """Draw the paper's parameter grid: one cell per pair of values, with its mAP.

    Args:
        trials: Their fields contain ``x`` and ``y``. A cell shows the best of its trials; a cell
            without trials is blank.
        x: Field on the horizontal axis, such as ``"margin.image-text"``.
        y: Field on the vertical axis, such as ``"alpha"``.
        path: The SVG file.
        titles: Field → axis label.
    """
    columns = _values(trials, x)
    rows = _values(trials, y)
    cells = np.full((len(rows), len(columns)), np.nan)
    for trial in trials:
        cell = rows.index(trial.value(y)), columns.index(trial.value(x))
        cells[cell] = np.fmax(cells[cell], trial.mean)
    labels = titles or {}
    with svg_figure(path, 1.8 + 0.75 * len(columns), 1.4 + 0.5 * len(rows)) as (axis,):
        draw_heatmap(axis, cells, columns, rows)
        axis.set(xlabel=labels.get(x, x), ylabel=labels.get(y, y))


def _values(trials: Sequence[Trial], name: str) -> list[Any]:
    """Return the distinct values of a field; numbers and percentages are sorted."""
    values = {str(value): value for value in (trial.value(name) for trial in trials)}
    try:
        return sorted(values.values(), key=lambda value: float(str(value).removesuffix("%")))
    except ValueError:
        return list(values.values())


def draw_heatmap(
    axis: "Axes", cells: NDArray[Any], columns: Sequence[Any], rows: Sequence[Any]
) -> None:
    """Draw a matrix of mAP values as colored cells with numbers; NaN leaves a cell blank."""
    image = axis.imshow(cells, cmap=_colors(), aspect="auto", origin="lower")
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (row, column), value in np.ndenumerate(cells):
        if not np.isnan(value):
            ink = "white" if value > middle else _INK
            axis.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink, fontsize=8)
    axis.set_xticks(range(len(columns)), [str(value) for value in columns])
    axis.set_yticks(range(len(rows)), [str(value) for value in rows])
    axis.spines[:].set_visible(False)
    axis.figure.colorbar(image, ax=axis, label="mAP (%)")


def _colors() -> Any:  # noqa: ANN401 - a color map
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("crossbit", [_LOW, _HIGH])

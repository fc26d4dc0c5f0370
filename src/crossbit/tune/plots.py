"""Figures of settings: two of them against mAP, and how much each of them matters."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossbit.evaluation.plots import COLORS, drawing
from crossbit.tune import Choice, Found, Space, Trial
from crossbit.tune.space import pick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOW, _HIGH = "#eef4f7", COLORS[0]
_PREFERRED = ("margin", "alpha")  # the axes of the paper's figure


def plot_search(found: Found, path: Path) -> None:
    """The grid figure of a search: its two most telling numbers against mAP, and the importance of every field.

    The axes are margin and α where both were searched, else the two fields that matter most. Trials that were
    given up early are drawn hollow, the best has a ring.
    """
    shares = found.importances() or dict.fromkeys(found.space, 0.0)
    names = [name for name in _PREFERRED if name in found.space]
    names = list(dict.fromkeys([*(names if len(names) == 2 else []), *shares]))[:2]
    with drawing(path, 9 if len(names) == 2 else 4.5, 3.6, columns=len(names)) as axes:
        if len(names) == 2:
            _points(axes[0], found, names)
        _bars(axes[-1], shares)


def _points(axis: "Axes", found: Found, names: Sequence[str]) -> None:
    """One dot a trial, colored by its mean."""
    tried = [trial for trial in found.trials if trial.fields]
    across, up = (np.array([_place(found.space, name, trial) for trial in tried]) for name in names)
    means = np.array([trial.mean for trial in tried])
    whole = np.array([len(trial.scores) == found.folds for trial in tried], bool)
    if whole.any():
        # The worst tenth would take all the colors.
        low, high = np.quantile(means[whole], 0.1), means[whole].max()
        look: dict[str, Any] = {
            "cmap": _colors(),
            "vmin": low,
            "vmax": high,
            "edgecolors": "#37352f",
            "linewidths": 0.4,
        }
        drawn = axis.scatter(across[whole], up[whole], c=means[whole], s=46, zorder=3, **look)
        axis.figure.colorbar(drawn, ax=axis, label="mAP, cross-validated (%)")
    if (~whole).any():
        axis.scatter(
            across[~whole],
            up[~whole],
            s=24,
            facecolors="none",
            edgecolors="#9b9a97",
            linewidths=0.8,
            zorder=2,
        )
    if found.best.fields:
        best = tried.index(found.best)
        axis.scatter(
            across[best], up[best], s=150, facecolors="none", edgecolors=COLORS[1], linewidths=1.6
        )
    for name, way in zip(names, "xy", strict=True):
        _scale(axis, found.space, name, way)
    axis.set_title(f"{len(found.trials)} trials; hollow: given up early")


def _place(space: Space, name: str, trial: Trial) -> float:
    """Where a trial is on the axis of a field."""
    one, value = space[name], pick(trial.fields, name)
    return float(list(one.options).index(value)) if isinstance(one, Choice) else one.number(value)


def _scale(axis: "Axes", space: Space, name: str, way: str) -> None:
    """Name an axis, and mark it as its field is spread."""
    one = space[name]
    set_ = (
        getattr(axis, f"set_{way}label"),
        getattr(axis, f"set_{way}scale"),
        getattr(axis, f"set_{way}ticks"),
    )
    set_[0](f"{name} (%)" if not isinstance(one, Choice) and one.percent else name)
    if isinstance(one, Choice):
        set_[2](range(len(one.options)), [str(option) for option in one.options], fontsize=8)
    elif one.log:
        set_[1]("log")


def _bars(axis: "Axes", shares: Mapping[str, float]) -> None:
    names = list(shares)[::-1]
    axis.barh(names, [100 * shares[name] for name in names], color=COLORS[0], height=0.6)
    axis.set(xlabel="of the differences between trials (%)", title="importance")


def plot_grid(
    trials: Sequence[Trial], x: str, y: str, path: Path, *, titles: Mapping[str, str] | None = None
) -> None:
    """The paper's parameter grid: a cell for each pair of values, colored by mAP and inscribed with it.

    Args:
        trials: Their fields have ``x`` and ``y``; of several trials in a cell the best counts, an empty cell is blank.
        x: Field along the bottom, such as ``"margin.image-text"``.
        y: Field along the side, such as ``"alpha"``.
        path: The SVG file.
        titles: Field → what the axis is called.
    """
    columns, rows = (_values(trials, name) for name in (x, y))
    cells = np.full((len(rows), len(columns)), np.nan)
    for trial in trials:
        at = rows.index(pick(trial.fields, y)), columns.index(pick(trial.fields, x))
        cells[at] = np.fmax(cells[at], trial.mean)
    names = titles or {}
    with drawing(path, 1.8 + 0.75 * len(columns), 1.4 + 0.5 * len(rows)) as (axis,):
        draw_cells(axis, cells, columns, rows)
        axis.set(xlabel=names.get(x, x), ylabel=names.get(y, y))


def _values(trials: Sequence[Trial], name: str) -> list[Any]:
    """The values of a field, numbers and shares in their order."""
    found = {str(value): value for value in (pick(trial.fields, name) for trial in trials)}
    try:
        return sorted(found.values(), key=lambda value: float(str(value).removesuffix("%")))
    except ValueError:
        return list(found.values())


def draw_cells(
    axis: "Axes", cells: np.ndarray[Any, Any], columns: Sequence[Any], rows: Sequence[Any]
) -> None:
    """A table of numbers, colored from the least to the largest; NaN leaves a cell blank."""
    drawn = axis.imshow(cells, cmap=_colors(), aspect="auto", origin="lower")
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (row, column), value in np.ndenumerate(cells):
        if not np.isnan(value):
            ink = "white" if value > middle else "#37352f"
            axis.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink, fontsize=8)
    axis.set_xticks(range(len(columns)), [str(value) for value in columns])
    axis.set_yticks(range(len(rows)), [str(value) for value in rows])
    axis.spines[:].set_visible(False)
    axis.figure.colorbar(drawn, ax=axis, label="mAP (%)")


def _colors() -> Any:  # noqa: ANN401 - a color map
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("crossbit", [_LOW, _HIGH])

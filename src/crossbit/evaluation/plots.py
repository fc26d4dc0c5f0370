"""Common style of SVG figures; needs matplotlib."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossbit.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = (
    *("#0b6e99", "#d9730d", "#0f7b6c", "#ad1a72", "#6940a5"),
    *("#e03e3e", "#64473a", "#37352f", "#dfab01", "#9b9a97"),
)

# A fixed salt and text instead of paths: the same data gives the same file, and diffs are small.
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "crossbit",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.titlesize": 10,
}


@contextmanager
def svg_figure(path: Path, width: float, height: float, columns: int = 1) -> "Iterator[list[Axes]]":
    """Yield the axes of a figure with one row of panels; write the figure on exit.

    Args:
        path: The SVG file; missing folders are created.
        width: Width in inches.
        height: Height in inches.
        columns: Number of panels.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib") from error
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = list(figure.subplots(1, columns, squeeze=False)[0])
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "crossbit"})

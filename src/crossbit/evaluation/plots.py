"""TODO: say what this is."""

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


_BELOW: dict[str, Any] = {
    "frameon": False,
    "fontsize": 8,
    "ncols": 5,
}  # a legend that hides no line


_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "crossbit",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.titlesize": 10,
}


@contextmanager
def drawing(path: Path, width: float, height: float, columns: int = 1) -> "Iterator[list[Axes]]":
    """Panels to draw on; leaving writes the figure."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots") from error
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = list(figure.subplots(1, columns, squeeze=False)[0])
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "crossbit"})

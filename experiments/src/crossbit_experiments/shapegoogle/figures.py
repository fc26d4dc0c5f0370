"""The paper's figures: mAP against bits, the parameter grid, and a search with its shapes, descriptors and codes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbit.evaluation.plots import COLORS, drawing
from crossbit.features.shape import Mesh
from crossbit.tune.plots import draw_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = {"across": "BoF ↔ SS-BoF", "bof": "BoF", "ssbof": "SS-BoF"}
BAND = (20, 40)  # five to ten times the smallest length that can tell twelve classes apart, 4 bits


def plot_bits(
    found: Mapping[str, Any], titles: Mapping[str, str], raw: Mapping[str, float], path: Path
) -> None:
    """Bits against mAP: across modalities and within each, a line a method, descriptors dotted.

    Args:
        found: Panel → row → ``"retrained"`` → length → mean and deviation.
        titles: Row → how it is called.
        raw: Panel → what the descriptors reach unhashed.
        path: The SVG file.
    """
    with drawing(path, 10, 3.9, columns=len(PANELS)) as axes:
        for axis, (panel, title) in zip(axes, PANELS.items(), strict=True):
            axis.axvspan(*BAND, color="#f1f1ef", zorder=0)
            for number, (key, kinds) in enumerate(found[panel].items()):
                bits = [int(n) for n in kinds["retrained"]]
                means, spread = (
                    [value[k] for value in kinds["retrained"].values()] for k in (0, 1)
                )
                look: dict[str, Any] = {
                    "color": COLORS[number],
                    "marker": "o",
                    "markersize": 3.5,
                    "elinewidth": 0.8,
                }
                axis.errorbar(bits, means, yerr=spread, label=titles[key], **look)
            if panel in raw:
                axis.axhline(
                    raw[panel], color="#9b9a97", linestyle=":", linewidth=1.2, label="descriptors"
                )
            axis.set(xscale="log", xlabel="bits", title=title, ylim=(None, 101))
            axis.set_xticks([4, 8, 16, 32, 64, 128], ["4", "8", "16", "32", "64", "128"])
            axis.minorticks_off()
        axes[0].set_ylabel("mAP (%)")
        axes[0].text(
            28,
            axes[0].get_ylim()[0],
            "5–10 × ⌈log₂ 12⌉",
            ha="center",
            va="bottom",
            color="#787774",
            fontsize=7,
        )
        axes[1].legend(frameon=False, fontsize=8, loc="lower right")


def plot_grid_planes(planes: Mapping[str, Any], path: Path) -> None:
    """Two planes of settings: a cell for each, colored by mAP across modalities and inscribed with it."""
    labels = {"alpha": "α within (0: CM-NN)", "within": "margin within"}
    with drawing(path, 10, 3.4, columns=len(planes)) as axes:
        for axis, (name, plane) in zip(axes, planes.items(), strict=True):
            draw_cells(axis, np.array(plane["cells"]), plane["across"], plane[name])
            axis.set(xlabel="margin across", ylabel=labels[name])
        axes[0].set_title("margin within 1")
        axes[-1].set_title("α 0.3")


def plot_search(things: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Shapes side by side: rendered, their two descriptors, their two codes.

    Args:
        things: Each with ``title``, ``mesh``, ``bof``, ``ssbof`` and the bits ``code bof`` and ``code ssbof``.
        path: The SVG file.
    """
    with drawing(path, 2.9 * len(things), 5.6, columns=len(things)) as axes:
        for axis, thing in zip(axes, things, strict=True):
            axis.set_axis_off()
            axis.set_title(thing["title"], fontsize=9)
            render(axis.inset_axes((0.0, 0.46, 1.0, 0.54)), thing["mesh"])
            bars = axis.inset_axes((0.02, 0.24, 0.44, 0.18))
            bars.bar(np.arange(len(thing["bof"])), thing["bof"], width=1.0, color=COLORS[0])
            square = axis.inset_axes((0.54, 0.24, 0.44, 0.18))
            side = int(len(thing["ssbof"]) ** 0.5)
            square.imshow(np.asarray(thing["ssbof"]).reshape(side, side), cmap="Blues", vmin=0)
            for part, name in ((bars, "BoF"), (square, "SS-BoF")):
                part.set(xticks=[], yticks=[])
                part.set_xlabel(name, fontsize=8)
            for height, name in ((0.1, "bof"), (0.0, "ssbof")):
                _code(axis.inset_axes((0.02, height, 0.96, 0.07)), thing[f"code {name}"])


def _code(axis: "Axes", bits: NDArray[np.bool_]) -> None:
    """Bits as black and white squares."""
    axis.imshow(~np.asarray(bits)[None], cmap="gray", vmin=0, vmax=1)
    axis.set(xticks=np.arange(len(bits) + 1) - 0.5, yticks=[], xticklabels=[])
    axis.grid(axis="x", color="#9b9a97", linewidth=0.5)
    axis.tick_params(length=0)


def render(axis: "Axes", mesh: Mesh) -> None:
    """Draw a surface, far triangles first, as light falls on it from the front and above."""
    from matplotlib.collections import PolyCollection

    points = (mesh.vertices - mesh.vertices.mean(axis=0)) @ _upright(mesh.vertices)
    corners = points[mesh.faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
    light = 0.35 + 0.65 * np.abs(normal @ np.array([0.3, 0.5, 0.81]))
    order = np.argsort(corners[:, :, 2].mean(axis=1))
    colors = light[order, None] * np.array([0.62, 0.74, 0.82])
    flat = PolyCollection(
        [corner[:, :2] for corner in corners[order]],
        facecolors=colors,
        edgecolors=colors,
        linewidths=0.2,
    )
    flat.set_rasterized(True)
    axis.add_collection(flat)
    axis.set_aspect("equal")
    axis.autoscale_view()
    axis.set_axis_off()


def _upright(vertices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Axes of the page: the third coordinate up, what is longest across, turned a little toward the reader."""
    level = vertices[:, :2] - vertices[:, :2].mean(axis=0)
    _, _, (along, away) = np.linalg.svd(level, full_matrices=False)
    turn = np.deg2rad(30)
    across = np.cos(turn) * along + np.sin(turn) * away
    toward = np.array([across[1], -across[0]])
    return np.array([[*across, 0], [0, 0, 1], [*toward, 0]]).T

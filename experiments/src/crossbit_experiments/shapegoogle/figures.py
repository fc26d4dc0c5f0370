"""The paper's figures: mAP against bits, and an example of retrieval."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset
from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit.features.shape import Mesh
from crossbit_experiments.plots import plot_length_line
from crossbit_experiments.runs import RunStore
from crossbit_experiments.shapegoogle.descriptors import STRENGTH, write_meshes
from crossbit_experiments.shapegoogle.methods import NAMES
from crossbit_experiments.shapegoogle.shapes import list_shapes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Five to ten times the 4 bits that can distinguish twelve classes.
_RECOMMENDED_BITS = (20, 40)


def plot_bits(scores: Mapping[str, Any], path: Path) -> None:
    """Plot mAP across modalities against bits, one line per method.

    Args:
        scores: Method → its title, and ``"retrained"`` → length → mean and deviation.
        path: The SVG file.
    """
    with svg_figure(path, 5.5, 3.9) as (axis,):
        axis.axvspan(*_RECOMMENDED_BITS, color="#f1f1ef", zorder=0)
        for number, row in enumerate(scores.values()):
            plot_length_line(axis, row["retrained"], row["title"], COLORS[number])
        axis.set(xscale="log", xlabel="bits", ylabel="mAP (%)", ylim=(None, 101))
        axis.set_xticks([4, 8, 16, 32], ["4", "8", "16", "32"])
        axis.minorticks_off()
        axis.text(
            28,
            axis.get_ylim()[0],
            "5–10 × ⌈log₂ 12⌉",
            ha="center",
            va="bottom",
            color="#787774",
            fontsize=7,
        )
        axis.legend(frameon=False, fontsize=8, loc="lower right")


def draw_retrieval(
    data: Dataset, meshes: Path, cache: Path, out: Path, *, query: str = "dog-noise-3"
) -> None:
    """Draw a query, its best match, and the nearest shapes of another class and of no class.

    Args:
        data: The held-out data set.
        meshes: Folder of the source meshes.
        cache: Folder of the generated meshes.
        out: Folder of the results, with codes of MM-NN L2 of 16 bits.
        query: Name of the query shape; the first shape of the base if it does not exist.
    """
    run = RunStore(out)["held-out/mmnn-l2-16-0"]
    codes = {name: run.codes[f"base.{name}"].unpack() for name in NAMES}
    base = run.truth.rows["base.bof"]
    payload: Any = data.payload
    names = [str(payload[row]["name"]) for row in base]
    labels = np.asarray(data.labels)[base]
    query_place = names.index(query) if query in names else 0
    bits_apart = (codes["bof"][query_place] != codes["ssbof"]).sum(axis=1)
    apart = np.linalg.norm(data.views["bof"][base] - data.views["bof"][base[query_place]], axis=1)
    # Among equal distances, the match that looks least like the query comes first.
    order = np.lexsort((-apart, bits_apart))
    same_class = next(k for k in order if labels[k] == labels[query_place] and k != query_place)
    others = np.flatnonzero((labels != -1) & (labels != labels[query_place]))
    distractors = np.flatnonzero(labels < 0)
    roles = {
        "query": query_place,
        "same class": same_class,
        "another class": others[apart[others].argmin()],
        "distractor": distractors[apart[distractors].argmin()],
    }
    shapes = {shape.name: shape for shape in list_shapes()}
    panels = []
    for role, place in roles.items():
        shape = shapes[names[place]]
        distance = "" if role == "query" else f", {bits_apart[place]} bits away"
        kind = shape.kind if shape.label is None else f"{shape.label}, {shape.kind} {shape.step}"
        (path,) = write_meshes([shape], meshes, cache, strength=STRENGTH)
        panel = {"title": f"{role}{distance}\n{kind}", "mesh": Mesh.read(path)}
        panel |= {name: data.views[name][base[place]] for name in NAMES}
        panels.append(panel | {f"code {name}": codes[name][place] for name in NAMES})
    _plot_panels(panels, out / "retrieval.svg")


def _plot_panels(panels: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot shapes side by side: rendered, with their two descriptors and their two codes."""
    with svg_figure(path, 2.9 * len(panels), 5.6, columns=len(panels)) as axes:
        for axis, panel in zip(axes, panels, strict=True):
            axis.set_axis_off()
            axis.set_title(panel["title"], fontsize=9)
            _render(axis.inset_axes((0.0, 0.46, 1.0, 0.54)), panel["mesh"])
            bars = axis.inset_axes((0.02, 0.24, 0.44, 0.18))
            bars.bar(np.arange(len(panel["bof"])), panel["bof"], width=1.0, color=COLORS[0])
            square = axis.inset_axes((0.54, 0.24, 0.44, 0.18))
            side = int(len(panel["ssbof"]) ** 0.5)
            square.imshow(np.asarray(panel["ssbof"]).reshape(side, side), cmap="Blues", vmin=0)
            for inset, name in ((bars, "BoF"), (square, "SS-BoF")):
                inset.set(xticks=[], yticks=[])
                inset.set_xlabel(name, fontsize=8)
            for height, name in ((0.1, "bof"), (0.0, "ssbof")):
                _draw_code(axis.inset_axes((0.02, height, 0.96, 0.07)), panel[f"code {name}"])


def _draw_code(axis: "Axes", bits: NDArray[np.bool_]) -> None:
    """Draw bits as black and white squares."""
    axis.imshow(~np.asarray(bits)[None], cmap="gray", vmin=0, vmax=1)
    axis.set(xticks=np.arange(len(bits) + 1) - 0.5, yticks=[], xticklabels=[])
    axis.grid(axis="x", color="#9b9a97", linewidth=0.5)
    axis.tick_params(length=0)


def _render(axis: "Axes", mesh: Mesh) -> None:
    """Draw a surface lit from the front and above, distant triangles first."""
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
    """View axes: the third coordinate up, the longest extent across, rotated toward the viewer."""
    level = vertices[:, :2] - vertices[:, :2].mean(axis=0)
    _, _, (along, away) = np.linalg.svd(level, full_matrices=False)
    turn = np.deg2rad(30)
    across = np.cos(turn) * along + np.sin(turn) * away
    toward = np.array([across[1], -across[0]])
    return np.array([[*across, 0], [0, 0, 1], [*toward, 0]]).T

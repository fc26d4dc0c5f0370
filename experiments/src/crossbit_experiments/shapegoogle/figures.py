"""The paper's figures: mAP against bits, the parameter grid, and an example of retrieval."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset
from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit.features.shape import Mesh
from crossbit.tune.plots import draw_heatmap
from crossbit_experiments.methods import result_file
from crossbit_experiments.plots import plot_length_line
from crossbit_experiments.shapegoogle.descriptors import STRENGTH, write_meshes
from crossbit_experiments.shapegoogle.methods import NAMES, protocol_for, table_methods
from crossbit_experiments.shapegoogle.shapes import list_shapes
from crossbit_experiments.stored_codes import StoredCodes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = {"across": "BoF ↔ SS-BoF", "bof": "BoF", "ssbof": "SS-BoF"}
# Five to ten times the 4 bits that can distinguish twelve classes.
_RECOMMENDED_BITS = (20, 40)


def plot_bits(
    scores: Mapping[str, Any], titles: Mapping[str, str], raw: Mapping[str, float], path: Path
) -> None:
    """Plot mAP against bits across and within modalities, one line per method.

    Args:
        scores: Panel → method → ``"retrained"`` → length → mean and deviation.
        titles: Method → its title.
        raw: Panel → score of the unhashed descriptors, drawn dotted.
        path: The SVG file.
    """
    with svg_figure(path, 10, 3.9, columns=len(_PANELS)) as axes:
        for axis, (panel, title) in zip(axes, _PANELS.items(), strict=True):
            axis.axvspan(*_RECOMMENDED_BITS, color="#f1f1ef", zorder=0)
            for number, (key, kinds) in enumerate(scores[panel].items()):
                plot_length_line(axis, kinds["retrained"], titles[key], COLORS[number])
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
    """Plot two planes of settings as heat maps of mAP across modalities."""
    labels = {"alpha": "α within (0: CM-NN)", "within": "margin within"}
    with svg_figure(path, 10, 3.4, columns=len(planes)) as axes:
        for axis, (name, plane) in zip(axes, planes.items(), strict=True):
            draw_heatmap(axis, np.array(plane["cells"]), plane["across"], plane[name])
            axis.set(xlabel="margin across", ylabel=labels[name])
        axes[0].set_title("margin within 1")
        axes[-1].set_title("α 0.3")


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
    methods = table_methods(protocol_for("held-out"), 16)
    method = next(method for method in methods if method.key == "mmnn-l2")
    stored = StoredCodes.load(result_file(out / "held-out", method, 16, 0))
    codes = {name: stored.codes("base", name).unpack() for name in NAMES}
    base = stored.rows("base", "bof")
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

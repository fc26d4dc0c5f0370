"""Meshes, pictures of them and words find each other: the shapes of TOSCA, or a folder of yours.

python examples/shapes.py FOLDER           (names like cat0.off; needs the extra media)
"""

import io
import re
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from crossbit import ClassRidge
from crossbit.features import BagOfGeometry, BagOfTags, ColorHistogram, HeatKernelExtractor
from crossbit.features.shape import Mesh
from crossbit.metrics import evaluate, from_labels

if len(sys.argv) < 2:
    print("name a folder of meshes whose file names begin with their class, such as TOSCA's")
    sys.exit()
random = np.random.default_rng(0)


def draw(mesh: Mesh) -> bytes:
    """Return a picture from a random side, upright; triangles are shaded by their direction."""
    angle = random.uniform(0, 2 * np.pi)
    turn = np.array([[np.cos(angle), 0], [0, 1], [-np.sin(angle), 0]])
    side = np.array([np.sin(angle), 0, np.cos(angle)])
    points = mesh.vertices - mesh.vertices.mean(axis=0)
    flat = (48 + 46 * points @ turn * [1, -1] / np.abs(points).max())[mesh.faces]
    a, b, c = (points[corner] for corner in mesh.faces.T)
    normal = np.cross(b - a, c - a)
    shade = 40 + 180 * np.abs(normal @ side) / (np.linalg.norm(normal, axis=1) + 1e-12)
    image = Image.new("RGB", (96, 96), "white")
    for i in np.argsort((a + b + c) @ side):
        ImageDraw.Draw(image).polygon([tuple(xy) for xy in flat[i]], (int(shade[i]),) * 3)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


paths = sorted(path for path in Path(sys.argv[1]).iterdir() if ".off" in path.name)
names = [re.sub(r"[^a-z]", "", path.name.partition(".")[0].lower()) for path in paths]
words = tuple(dict.fromkeys(names))
solver = HeatKernelExtractor(invariant=True, n_pairs=64)
surfaces = [solver.heat_patches(path) for path in paths]
learn = np.arange(len(paths)) % 3 > 0
learned = [surfaces[i] for i in np.flatnonzero(learn)]
bag = BagOfGeometry.fit(learned, size=32, **solver.signature_settings())
views = {"mesh": np.stack([bag.bag(surface) for surface in surfaces])}
views["image"] = ColorHistogram().extract([draw(Mesh.read(path)) for path in paths])
views["text"] = BagOfTags(words).extract(names)
labels = np.array([words.index(name) for name in names])
model = ClassRidge(n_bits=32).fit({k: x[learn] for k, x in views.items()}, labels=labels[learn])
codes = {name: model.encode(name, x[~learn]) for name, x in views.items()}
for query, base in permutations(views, 2):
    mean = evaluate(codes[query], codes[base], from_labels(labels[~learn], labels[~learn]))["mAP"]
    print(f"{query:>5} → {base:<5} mAP {mean.value:6.1%}   chance {mean.chance:6.1%}")

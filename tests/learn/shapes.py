"""A folder of colored shapes and files of captions."""

import csv
import json
from itertools import product
from pathlib import Path

from PIL import Image, ImageDraw

COLORS = {"red": "#d33", "green": "#2a4", "blue": "#36c", "yellow": "#ec2", "black": "#111"}


def draw_gallery(folder: Path) -> Path:
    """Draw 62 images, one of them broken, and write captions as CSV, JSON lines and tokens."""
    pictures = folder / "pictures"
    (pictures / "more").mkdir(parents=True)
    said = []
    for number, (color, form, radius) in enumerate(
        product(COLORS, ("disc", "square"), (10, 14, 18, 22, 26, 30))
    ):
        name = f"{'more/' if number % 2 else ''}{color}-{form}-{radius}.png"
        picture = Image.new("RGB", (72, 64), "white")
        box = (36 - radius, 32 - radius, 36 + radius, 32 + radius)
        pen = ImageDraw.Draw(picture)
        (pen.ellipse if form == "disc" else pen.rectangle)(box, COLORS[color])
        picture.save(pictures / name)
        size = "large" if radius > 20 else "small"
        said.append(
            (
                name,
                [
                    f"a {size} {color} {form}",
                    f"The {form} is {color}.",
                    f"something {color} and {size}",
                ],
            )
        )
    (pictures / "broken.png").write_bytes(b"no picture")
    Image.new("RGB", (9, 9), "pink").save(pictures / "untold.png")
    said += [("broken.png", ["a broken thing"]), ("gone.png", ["a red thing that is gone"])]
    with open(folder / "captions.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption"])
        writer.writerows((name, caption) for name, captions in said for caption in captions)
    lines = (
        json.dumps({"image": name, "captions": captions, "year": 2012}) for name, captions in said
    )
    (folder / "captions.jsonl").write_text("\n".join(lines))
    tokens = (
        f"{name.rpartition('/')[2]}#{k}\t{caption}"
        for name, captions in said
        for k, caption in enumerate(captions)
    )
    (folder / "captions.token.txt").write_text("\n".join(tokens))
    return folder

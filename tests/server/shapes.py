"""A small collection for tests: images of colored shapes, and tags that describe them."""

import json
from itertools import product
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from crossbit import CCAITQ, Collection, HashModel
from crossbit.features import BagOfTags, ColorHistogram

COLORS = {
    "red": "#d33",
    "green": "#2a4",
    "blue": "#36c",
    "yellow": "#ec2",
    "black": "#111",
    "pink": "#f7b",
}
FORMS = ("circle", "square", "triangle", "bar")
SIZES = {"small": 12, "large": 26}
REPORT = {
    "directions": {
        "text → image": {
            "results": [
                {
                    "name": "mAP",
                    "value": 0.81,
                    "low": 0.7,
                    "high": 0.9,
                    "chance": 0.1,
                    "definition": "a mean",
                }
            ],
            "curve": {"recall": [0.1, 0.5, 1.0], "precision": [0.9, 0.8, 0.4]},
        }
    },
    "bits": [
        {"n_bits": n, "direction": "text → image", "name": "mAP", "value": n / 50}
        for n in (8, 16, 32)
    ],
    "attribution": {
        "text": "Shapes by the tests",
        "license": "CC0",
        "url": "https://example.org/shapes",
    },
}


def draw(color: str, form: str, radius: int, shift: int = 0) -> Image.Image:
    """Draw one shape on white."""
    image = Image.new("RGB", (72, 64), "white")
    pen = ImageDraw.Draw(image)
    x = 36 + shift
    y = 32
    r = radius
    if form == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), COLORS[color])
    elif form == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), COLORS[color])
    elif form == "triangle":
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], COLORS[color])
    else:
        pen.rectangle((x - r, y - r // 3, x + r, y + r // 3), COLORS[color])
    return image


def make_gallery(folder: Path) -> Path:
    """Create images in ``folder/images`` and a collection of them in ``folder/collection``."""
    images = folder / "images"
    images.mkdir(parents=True)
    payloads: list[dict[str, Any]] = []
    for color, form, size, shift in product(COLORS, FORMS, SIZES, (-6, 0, 6)):
        name = f"{size}-{color}-{form}{shift:+d}.png"
        draw(color, form, SIZES[size], shift).save(images / name)
        payloads.append({"picture": name, "tags": [color, form, size], "label": form})
    extractors = {
        "image": ColorHistogram(),
        "text": BagOfTags.fit(payload["tags"] for payload in payloads),
    }
    views = {
        "image": extractors["image"].extract([images / payload["picture"] for payload in payloads]),
        "text": extractors["text"].extract([payload["tags"] for payload in payloads]),
    }
    trained = CCAITQ(n_bits=32, regularization=0.01).fit(views)
    recipes = {name: extractor.recipe() for name, extractor in extractors.items()}
    model = HashModel(
        trained.encoders, trained.n_bits, recipes, {**trained.card, "media": str(images)}
    )
    with Collection.create(folder / "collection", model) as collection:
        collection.upsert(
            [payload["picture"].removesuffix(".png") for payload in payloads], views, payloads
        )
        collection.upsert(
            [7, "7"], {"text": ["red", "blue"]}, [{"tags": ["red"]}, {"tags": ["blue"]}]
        )
    (folder / "collection" / "report.json").write_text(json.dumps(REPORT))
    return folder / "collection"

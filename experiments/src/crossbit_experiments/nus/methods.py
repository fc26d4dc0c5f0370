"""The rows of the table: the paper's methods with its settings, and the features themselves.

Networks have one layer, margins 7 across and 3 within, α 0.3, inputs of unit length for pictures and ±1 for tags, and
learn from 5·10⁵ similar and 5·10⁵ dissimilar pairs a loss by conjugate gradients. CM-SSH learns from as many pairs.

The columns of these inputs are then standardized. That changes nothing about what is learned: one affine layer can undo
it, so the networks and the minimum are the same. But conjugate gradients come near it in a hundred steps, and are far
from it after two hundred as long as a thousand inputs are nearly always −1.
"""

from functools import partial
from typing import Any

import numpy as np

from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Evaluation, relevance
from crossbit.evaluation.protocol import Protocol
from crossbit.evaluation.topk import first_codes, first_vectors, places_needed
from crossbit.hashers import HASHERS
from crossbit.metrics import Ranking, evaluate_ranking
from crossbit_experiments.methods import Row

DIRECTIONS = ("image-tags", "tags-image", "image-image", "tags-tags")
PAIRS = (500_000, 500_000)  # similar and dissimilar, for each loss
PAPER = {
    "raw": {"image-image": 57.0, "tags-tags": 78.9},
    "mmnn": dict(zip(DIRECTIONS, (64.3, 55.0, 79.39, 87.41), strict=True)),
    "cmnn": dict(zip(DIRECTIONS, (61.1, 51.3, 75.62, 86.23), strict=True)),
    "cmssh": dict(zip(DIRECTIONS, (53.7, 50.2, 54.0, 76.0), strict=True)),
}
NETWORK: dict[str, Any] = {
    "inputs": {"image": "unit+standardize", "tags": "tags+standardize"},
    "loss": "contrastive",
    "optimizer": "cg",
    "validation": 0.0,
}
MARGINS = {"image-tags": 7.0, "image": 3.0, "tags": 3.0}


def rows(
    protocol: Protocol,
    *,
    pairs: tuple[int, int] = PAIRS,
    paper: bool = True,
    as_they_come: bool = False,
) -> list[Row]:
    """The features, MM-NN, CM-NN and CM-SSH.

    Args:
        protocol: Whom the features are searched with.
        pairs: How many similar and dissimilar pairs there are for each loss.
        paper: Whether the paper's numbers are of this data set and stand beside ours.
        as_they_come: Add our networks with nothing set: what they choose, they choose on training rows.
    """
    network = NETWORK | {"n_pairs": pairs}
    makes = {
        "mmnn": ("MM-NN", {**network, "margin": MARGINS, "alpha": 0.3}),
        "cmnn": ("CM-NN", {**network, "margin": MARGINS["image-tags"]}),
        "cmssh": ("CM-SSH", {"n_similar": pairs[0], "n_dissimilar": pairs[1]}),
    }
    raw = Row(
        key="raw",
        title="features",
        reference=partial(_features, protocol=protocol),
        paper=PAPER["raw"] if paper else {},
        bytes_an_item=4 * 500,
    )
    hashed = [
        Row(
            key=key,
            title=title,
            make=partial(HASHERS[key], **fields),
            paper=PAPER[key] if paper else {},
        )
        for key, (title, fields) in makes.items()
    ]
    ours = [
        Row(key=f"{key}-default", title=f"{HASHERS[key].__name__}, as it comes", make=HASHERS[key])
        for key in (("mmnn", "cmnn") if as_they_come else ())
    ]
    return [raw, *hashed, *ours]


def _features(data: Dataset, seed: int, *, protocol: Protocol) -> Evaluation:
    """Unhashed features by Euclidean distance, within each modality; every seed gives the same."""
    del seed
    reports = {
        (name, name): evaluate_ranking(
            rank_features(data, name, protocol), measures=protocol.measures
        )
        for name in data.modalities
    }
    return Evaluation(reports, protocol)


def rank_features(
    data: Dataset, name: str, protocol: Protocol, *, queries: slice = slice(None)
) -> Ranking:
    """Features of a modality by their distance to the queries.

    Args:
        data: With parts that the protocol names.
        name: The modality. Zeros and ones are ranked as codes: their squared distance is the number that differ.
        protocol: Who asks and who is searched, of which the first places count.
        queries: Only some of the queries.
    """
    places = places_needed(protocol.measures)
    if places is None:
        raise ValueError(f"protocol {protocol.name!r} looks at more than first places")
    asked, searched = (
        np.asarray(data.splits[protocol.queries])[queries],
        np.asarray(data.splits[protocol.base]),
    )
    relevant = relevance(data, (name, asked), (name, searched))
    view = data.views[name]
    if view.dtype.kind == "f":
        return first_vectors(view[asked], view[searched], relevant, places=places)
    return first_codes(
        Codes.pack(view[asked] > 0), Codes.pack(view[searched] > 0), relevant, places=places
    )

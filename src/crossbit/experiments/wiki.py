"""The paper's third experiment: Wikipedia articles and their pictures, 32 bits, mean average precision both ways.

Queries and database are the 693 test rows, the whole ranking counts, ties are taken in expectation, and the
query's own counterpart stays in the ranking. Every row of the paper's table is run beside its printed values.
"""

from collections.abc import Sequence
from typing import Any

from crossbit.data import Dataset
from crossbit.experiments import realvalued
from crossbit.experiments.directions import Evaluation
from crossbit.experiments.table import Make, Reference, Row
from crossbit.hashers import HASHERS
from crossbit.metrics import evaluate_ranking

DIRECTIONS = ("image-text", "text-image")
PAIRS = (10_000, 100_000)  # similar and dissimilar, as in the paper
SUBSPACE = 9  # canonical directions of CM and SCM: the ten topics of a text sum to one

# The paper gives no margins for this experiment; a comment in its source gives 49, 9, 9: probably 7², 3², 3².
LITERAL: dict[str, Any] = {"inputs": "unit", "optimiser": "cg", "n_pairs": PAIRS, "sums": True, "validation": 0.0}
MARGINS = {"image-text": 7.0, "image": 3.0, "text": 3.0}


def rows() -> list[Row]:
    """The rows of the table, in the paper's order, then ours."""
    return [
        _hashed("mmnn-l1-literal", "MM-NN L1, literal", "mmnn", (27.8, 21.2), **LITERAL, margin=MARGINS, alpha=0.3),
        _hashed(
            "mmnn-l2-literal",
            "MM-NN L2, literal",
            "mmnn",
            (28.5, 22.0),
            **LITERAL,
            margin=MARGINS,
            alpha=0.3,
            hidden=(128,),
        ),
        _hashed("cmnn-l1-literal", "CM-NN L1, literal", "cmnn", (26.7, 20.9), **LITERAL, margin=7.0),
        _hashed("cmnn-l2-literal", "CM-NN L2, literal", "cmnn", (27.1, 21.1), **LITERAL, margin=7.0, hidden=(128,)),
        _hashed("cmssh", "CM-SSH", "cmssh", (22.2, 18.4), n_similar=PAIRS[0], n_dissimilar=PAIRS[1]),
        _reference("cm", "CM", (24.9, 19.6), SUBSPACE),
        _reference("sm", "SM", (22.5, 22.3), 10),
        _reference("scm", "SCM", (27.7, 22.6), 10),
        _reference("scm-centred", "SCM, centred", None, 10),
        *(_hashed(name, HASHERS[name].__name__, name, None) for name in ("mmnn", "cmnn", "posteriorlsh", "classridge")),
        *(
            _hashed(name, HASHERS[name].__name__, name, None)
            for name in ("ccaitq", "spectralhashing", "diffhash", "lsh")
        ),
    ]


def _hashed(key: str, title: str, method: str, paper: tuple[float, float] | None, **fields: Any) -> Row:  # noqa: ANN401
    def make(n_bits: int, seed: int) -> Any:  # noqa: ANN401 - a hasher
        return HASHERS[method](n_bits=n_bits, seed=seed, **fields)

    made: Make = make
    return Row(key=key, title=title, make=made, paper=_printed(paper))


def _reference(key: str, title: str, paper: tuple[float, float] | None, width: int) -> Row:
    name = key.removesuffix("-centred")

    def run(train: Dataset, test: Dataset, seed: int) -> Evaluation:
        vectors = realvalued.embed(name, train, test, n_directions=SUBSPACE, seed=seed)  # type: ignore[arg-type]
        if key.endswith("-centred"):
            vectors = realvalued.centred(vectors)
        ways: Sequence[tuple[str, str]] = [("image", "text"), ("text", "image")]
        reports = {way: evaluate_ranking(realvalued.rank(vectors, test, *way)) for way in ways}
        return Evaluation(reports, "queries: test; base: test; cosine")

    reference: Reference = run
    return Row(key=key, title=title, reference=reference, paper=_printed(paper), bytes_an_item=4 * width)


def _printed(paper: tuple[float, float] | None) -> dict[str, float]:
    if paper is None:
        return {}
    # The paper rounds each average by itself.
    return dict(zip(DIRECTIONS, paper, strict=True)) | {"average": sum(paper) / 2}

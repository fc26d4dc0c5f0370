"""Evaluation protocols of the experiments, by name."""

from dataclasses import dataclass

from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Evaluation, Protocol, evaluate_model
from crossbit.metrics import AveragePrecision, Measure, Precision
from crossbit.model import HashModel
from crossbit_experiments.class_codes import evaluate_with_class_codes


@dataclass(frozen=True, kw_only=True)
class ClassCodesProtocol(Protocol):
    """A protocol whose base has class codes instead of codes of its features."""

    @property
    def summary(self) -> str:
        """One line with the splits, the treatment of self-matches and the codes of the base."""
        return f"{super().summary}, its codes made from its labels"


def evaluate(model: HashModel, data: Dataset, protocol: Protocol) -> Evaluation:
    """Evaluate a model under any protocol of the experiments."""
    if isinstance(protocol, ClassCodesProtocol):
        return evaluate_with_class_codes(model, data, protocol)
    return evaluate_model(model, data, protocol)


_WIKI = (
    Protocol(
        name="wiki",
        note="the paper's: queries and base are the 693 test rows, the query's own row counts",
    ),
    Protocol(name="wiki/train-as-base", base="train", note="the base is the training split"),
    ClassCodesProtocol(
        name="wiki/learned-base",
        base="train",
        note="as in papers that optimize the codes of the base together with its labels",
    ),
)

_FIRST_TEN: tuple[Measure, ...] = (AveragePrecision(at=10), Precision(at=10))

_CONCEPTS = (
    Protocol(
        name="nus/labeled",
        queries="query",
        base="database",
        measures=_FIRST_TEN,
        note=(
            "10⁴ queries and 1.8·10⁵ base items from the photographs with a concept; the others are"
            " the training split"
        ),
    ),
    Protocol(
        name="nus/ten-concepts",
        queries="query",
        base="database",
        measures=_FIRST_TEN,
        note=(
            "photographs with one of the ten most frequent concepts: 10⁴ queries, all others are"
            " the base, half of which is the training split"
        ),
    ),
    Protocol(
        name="flickr8k/concepts",
        queries="query",
        base="database",
        measures=_FIRST_TEN,
        note="the official test photographs are queries; training uses neither them nor the base",
    ),
)

_DIGITS = Protocol(
    name="digits",
    note="queries and base are the 1000 test rows, between all pairs of six modalities",
)

_SHAPES = (
    Protocol(
        name="shapegoogle/as-printed",
        queries="query",
        base="database",
        include_self=False,
        note=(
            "transductive: vocabularies and pairs come from the shapes of queries and base,"
            " including the distractors"
        ),
    ),
    Protocol(
        name="shapegoogle/held-out",
        queries="query",
        base="database",
        include_self=False,
        note=(
            "vocabularies and pairs come from every other pose of each class and every other"
            " distractor; shapes of the other poses are the queries, searched among the other"
            " distractors"
        ),
    ),
)

_LEADERBOARD = (
    Protocol(name="leaderboard/P1", note="queries and base are the test rows, both hashed"),
    Protocol(
        name="leaderboard/P2'",
        base="train",
        note="the base are the training rows, hashed from their features like new rows",
    ),
    ClassCodesProtocol(
        name="leaderboard/P2",
        base="train",
        note="the base are the training rows, with codes that are made from their labels",
    ),
)

PROTOCOLS = {
    protocol.name: protocol for protocol in (*_WIKI, _DIGITS, *_CONCEPTS, *_SHAPES, *_LEADERBOARD)
}
"""Name → protocol."""

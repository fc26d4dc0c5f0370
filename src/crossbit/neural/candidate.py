"""Candidates: ways of learning that are compared, and what they become when they have been trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import nn

from crossbit.model import Layer
from crossbit.neural.objective import Features
from crossbit.neural.parts import Part
from crossbit.neural.settings import Settings
from crossbit.neural.train import State

Chain: TypeAlias = tuple[list[Layer], list[Layer] | nn.Module]
"""Fixed input layers of a modality, and what is trained: layers, or a user's own network."""
Begin: TypeAlias = Callable[[Part], Mapping[str, Chain]]
"""Makes the layers of every modality from the rows it is given; the same rows, the same layers."""


@dataclass(frozen=True)
class Candidate:
    """One way of learning.

    Args:
        name: In the card and in checkpoints.
        settings: Of the training loop.
        begin: Makes the layers of every modality from the rows it is given; the same rows, the same layers.
    """

    name: str
    settings: Settings
    begin: Begin


@dataclass(frozen=True)
class Trained:
    """Networks that have been trained, and how it went; ``story`` is what the card says about it."""

    candidate: Candidate
    inputs: Mapping[str, Sequence[Layer]]
    networks: Mapping[str, nn.Module]
    features: Features
    state: State
    story: Mapping[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """The best validation that was seen."""
        return self.state.best_score or 0.0


Round: TypeAlias = Callable[[Sequence[Candidate]], list[Candidate]]
"""What to try next, given what has been tried, the best first."""


@dataclass(frozen=True)
class Plan:
    """What is tried.

    Args:
        candidates: Ways of learning, the first wins a tie.
        rounds: What to try after them.
        held_out: Share of what is known that decides when to stop and which candidate to take; 0: none. Nothing:
            candidates learn without labels, so that labels judge them on all rows.
    """

    candidates: Sequence[Candidate]
    rounds: Sequence[Round] = ()
    held_out: float | None = None

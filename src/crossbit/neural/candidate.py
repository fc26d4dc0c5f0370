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

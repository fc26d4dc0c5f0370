"""Weights of pairs that grow where the bits so far are wrong."""

import numpy as np

from crossbit.hashers.thresholds import Floats

_PERFECT = 1 - 1e-9


class Boosting:
    r"""Weights $w_k$ of pairs with signs $s_k = \pm 1$, multiplied by $e^{-\alpha s_k h_k}$ after each bit.

    $h_k = \pm 1$ tells whether the bit's two sides agree. AdaBoost's step is
    $\alpha = \tfrac12 \ln \frac{1 + r}{1 - r}$ with $r = \sum_k w_k s_k h_k$: under the new weights that bit has a
    correlation of zero, so that the next one must find something else.

    A bit that is right about every pair leaves nothing to weigh up. Then, and whenever `restart` is called, the weights
    begin anew from the first ones, each multiplied by a random number (exponential, the Bayesian bootstrap): what
    follows is another boosting of its own on a slightly different sample.

    Attributes:
        weights: The present weights; they sum to one.
        bound: The product of $\sum_k w_k e^{-\alpha s_k h_k}$ so far. It bounds the weighted share of pairs that a
            vote of the bits, each weighted by its $\alpha$, gets wrong.
    """

    def __init__(
        self, signs: Floats, weights: Floats, *, step: float | None, seed: int | list[int]
    ) -> None:
        """Begin with some weights; a ``step`` of None is AdaBoost's own."""
        self.signs = signs
        self.weights = self._first = weights / weights.sum()
        self.bound = 1.0
        self._step = step
        self._random = np.random.default_rng(seed)

    @property
    def signed(self) -> Floats:
        """Positive weights for similar pairs, negative for dissimilar ones."""
        signed: Floats = self.weights * self.signs
        return signed

    def update(self, agreement: Floats) -> None:
        """Raise the weights of pairs that a bit gets wrong, lower those of the others."""
        right = self.signs * agreement
        r = float(self.weights @ right)
        if r >= _PERFECT:
            self.restart()
            return
        alpha = 0.5 * np.log((1 + r) / (1 - r)) if self._step is None else self._step
        raised = self.weights * np.exp(-alpha * right)
        self.bound *= float(raised.sum())
        self.weights = raised / raised.sum()

    def restart(self) -> None:
        """Begin another boosting, from the first weights multiplied by random numbers."""
        weights = self._first * self._random.standard_exponential(len(self._first))
        self.weights = weights / weights.sum()
        self.bound = 1.0

"""Diff-hash: all directions at once from a difference of covariances."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from crossbit._validation import Positive
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._pairwise import Bit, Boosting, PairedRows, PairHasher
from crossbit.hashers.base import Run
from crossbit.linalg import Matrix
from crossbit.linalg.pca import singular_pairs
from crossbit.model.hashmodel import HashModel

_Direction = tuple[Matrix, Matrix]


@dataclass(kw_only=True)
class DiffHash(PairHasher):
    r"""Multimodal diff-hash of two modalities: all directions from one SVD.

    The directions $(p_t, q_t)$ are the singular vectors of the covariance of similar pairs minus
    that of dissimilar ones, in the order of their singular values,

    $$ C = \mathbb E\{x y^\top \mid P\} - \alpha\, \mathbb E\{x y^\top \mid N\}
         = \sum_t \sigma_t\, p_t q_t^\top , $$

    and the two thresholds of each bit jointly maximize
    $\mathbb E\{h \mid P\} - \alpha\, \mathbb E\{h \mid N\}$ with
    $h = \operatorname{sign}(p^\top x + a) \operatorname{sign}(q^\top y + b)$: for $\alpha = 1$ they
    minimize the sum of the false positive and false negative rates.

    There are at most as many directions as the narrower modality has columns. With more bits, a
    direction is reused with the thresholds that are best after the pairs its earlier bits got wrong
    have gained weight, as in AdaBoost. The first bits are the same for every code length.

    It learns from pairs across the two modalities, otherwise from labels, otherwise from aligned
    views.

    Args:
        alpha: $\alpha$, the weight of dissimilar pairs.
        n_similar: Maximum number of similar pairs drawn from labels or aligned views; refused with
            explicit pairs, which are all used.
        n_dissimilar: Maximum number of dissimilar pairs drawn; refused where some are given.

    Example:
        >>> from crossbit import DiffHash
        >>> from crossbit.data import synthetic
        >>> data = synthetic(seed=0)
        >>> DiffHash(n_bits=8).fit(data.views, labels=data.labels)
        HashModel(image, text → 8 bits)

    References:
        M. M. Bronstein. "Multimodal diff-hash." 2011, arXiv:1111.1461.
    """

    alpha: Positive = 1.0

    title: ClassVar[str] = "half-spaces of two modalities, all from one difference of covariances"

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        rows = self._paired_rows(data)
        directions = list(islice(self._directions(rows), self.n_bits))
        if not directions:
            raise rows.no_bit_error("diffhash")
        bits = [self._bits(rows, direction, t) for t, direction in enumerate(directions)]
        return rows.model([next(bits[t % len(bits)]) for t in run.steps(self.n_bits)])

    def _directions(self, rows: PairedRows) -> Iterator[_Direction]:
        """Yield the directions on which thresholds separate similar from dissimilar pairs."""
        signed = rows.balanced_weights(self.alpha) * rows.signs
        for p, q in singular_pairs(rows.covariance(signed)):
            if rows.bit(p, q, signed):
                yield p, q

    def _bits(self, rows: PairedRows, direction: _Direction, number: int) -> Iterator[Bit]:
        """Yield bits of one direction with ever new thresholds, without end."""
        weights = rows.balanced_weights(self.alpha)
        boosting = Boosting(rows.signs, weights, step=None, seed=[self.seed, 1, number])
        while True:
            if bit := rows.bit(*direction, boosting.signed):
                yield bit
                boosting.update(rows.agreement(bit))
            else:
                boosting.restart()

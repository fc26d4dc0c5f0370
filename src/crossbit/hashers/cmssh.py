"""Cross-modality similarity-sensitive hashing: boosted pairs of half-spaces."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from crossbit._progress import StepCounter
from crossbit._validation import Positive
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._pairwise import Bit, Boosting, PairedRows, PairHasher
from crossbit.hashers.base import Run
from crossbit.linalg import Matrix
from crossbit.linalg.pca import singular_pairs
from crossbit.model.hashmodel import HashModel


@dataclass(kw_only=True)
class CMSSH(PairHasher):
    r"""Cross-modality similarity-sensitive hashing (CM-SSH) of two modalities, learned bit by bit.

    Pairs $k = (i, j)$ have a sign $s_k = \pm 1$ (similar or not) and a weight $w_k$. Initially the
    similar pairs weigh as much as the dissimilar ones. For each bit

    1. $(p, q)$ are the leading singular vectors of $C = \sum_k w_k s_k\, x_i y_j^\top$ (rows
       centered),
    2. the thresholds $a, b$ jointly maximize the weighted correlation $r = \sum_k w_k s_k h_k$ with
       $h_k = \operatorname{sign}(p^\top x_i + a) \operatorname{sign}(q^\top y_j + b)$,
    3. $w_k \leftarrow w_k e^{-\alpha s_k h_k}$ with $\alpha = \tfrac12 \ln \frac{1 + r}{1 - r}$,
       normalized.

    If no thresholds on the leading pair reach $r > 0$, the next singular pair is tried. If none is
    left, or a bit classifies every pair correctly, boosting restarts on randomly reweighted pairs.
    All bits count equally in a code: $\alpha$ only updates the weights. The directions depend on
    the scales of the columns: ``inputs="standardize"`` or ``"whiten"`` may be much better than the
    raw columns of the original.

    It learns from pairs across the two modalities, otherwise from labels, otherwise from aligned
    views.

    Args:
        n_similar: Maximum number of similar pairs drawn from labels or aligned views; refused with
            explicit pairs, which are all used.
        n_dissimilar: Maximum number of dissimilar pairs drawn; refused where some are given.
        step: ``"adaboost"`` for the $\alpha$ above, or a number that every bit uses.

    Example:
        >>> from crossbit import CMSSH
        >>> from crossbit.data import synthetic
        >>> data = synthetic(seed=0)
        >>> CMSSH(n_bits=8).fit(data.views, labels=data.labels)
        HashModel(image, text → 8 bits)

    References:
        M. M. Bronstein, A. M. Bronstein, F. Michel, N. Paragios. "Data fusion through
        cross-modality metric learning using similarity-sensitive hashing." CVPR 2010.
    """

    step: Literal["adaboost"] | Positive = "adaboost"

    title: ClassVar[str] = "boosted half-spaces of two modalities, from signed pairs"

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        rows = self._paired_rows(data)
        step = None if self.step == "adaboost" else self.step
        boosting = Boosting(rows.signs, rows.balanced_weights(), step=step, seed=[self.seed, 1])
        bits: list[Bit] = []
        report = StepCounter(run.on_step, self.n_bits)
        while len(bits) < self.n_bits:
            bit = _leading_bit(rows, boosting.signed)
            if bit is None:
                if not bits:
                    raise rows.no_bit_error("cmssh")
                boosting.restart()
                continue
            bits.append(bit)
            boosting.update(rows.agreement(bit))
            report(loss=boosting.bound)
        return rows.model(bits)


def _leading_bit(rows: PairedRows, signed: Matrix) -> Bit | None:
    """The bit of the first singular pair that has thresholds of positive correlation."""
    pairs = singular_pairs(rows.covariance(signed))
    return next(filter(None, (rows.bit(p, q, signed) for p, q in pairs)), None)

"""Cross-modal networks: MM-NN without the losses within a modality."""

from dataclasses import dataclass
from typing import ClassVar

from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.mmnn import MMNN


@dataclass(kw_only=True)
class CMNN(MMNN):
    r"""Cross-modal hashing by coupled networks (CM-NN): `MMNN` with $\alpha = 0$.

    Only pairs across modalities count; all other options are those of `MMNN`. The paper uses it as
    a baseline: the difference shows the value of the losses within a modality.

    Example:
        >>> import numpy as np
        >>> from crossbit import CMNN
        >>> X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
        >>> hasher = CMNN(n_bits=8, inputs="standardize", steps=5)
        >>> hasher.fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 8 bits)

    References:
        J. Masci, M. M. Bronstein, A. M. Bronstein, J. Schmidhuber. "Multimodal
        similarity-preserving hashing." 2012.
    """

    alpha: float | dict[str, float] = 0.0

    title: ClassVar[str] = "coupled networks, across modalities only"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels", "pairs", "aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _check(self, data: TrainingSet) -> None:
        super()._check(data)
        if self.alpha:
            raise DataError(
                "cmnn has no losses within a modality, so alpha must be 0,"
                f" got {self.alpha!r}; use mmnn instead"
            )

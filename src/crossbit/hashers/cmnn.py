"""Cross-modal networks: MM-NN without the losses within a modality."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crossbit.data.training_set import TrainingSet
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

    alpha: float | Literal["auto"] | dict[str, float] = 0.0

    title: ClassVar[str] = "coupled networks, across modalities only"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels", "pairs", "aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _unused(self, data: TrainingSet) -> dict[str, str]:
        reason = "cmnn has no losses within a modality; mmnn has them"
        return super()._unused(data) | {"alpha": reason}

    @classmethod
    def printed_fields(
        cls, experiment: str, layers: int = 1, modalities: tuple[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the fields that `as_printed` sets: the margin across modalities, and no α."""
        fields = super().printed_fields(experiment, layers, modalities)
        return fields | {"alpha": 0.0, "margin": next(iter(fields["margin"].values()))}

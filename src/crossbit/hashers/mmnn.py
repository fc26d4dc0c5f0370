"""Multimodal networks: coupled siamese networks with nearly binary outputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from crossbit._progress import OnStep
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.inputs import Preparation, prepare
from crossbit.model.hashmodel import HashModel

if TYPE_CHECKING:
    from torch import nn


@dataclass(kw_only=True)
class MMNN(Hasher):
    r"""Multimodal similarity-preserving hashing by coupled siamese networks (MM-NN).

    Each modality has a network $\xi$ with outputs $\tanh(\beta\,\cdot)$; the sign is the code.
    Training pulls the outputs of similar pairs together and pushes those of dissimilar pairs a
    margin apart, across modalities and within,

    $$ \min\; \sum_{a < b} \mathcal L_{ab} + \sum_a \alpha_a \mathcal L_{aa}, \qquad
       \mathcal L_{ab} = \frac{1}{2|P|} \sum_{P} \|\xi_a - \xi_b\|^2
                       + \frac{1}{2|N|} \sum_{N} \max\{0, m_{ab} - \|\xi_a - \xi_b\|\}^2. $$

    It learns from labels, pairs or mixtures of them with aligned rows, for any number of
    modalities. With a single modality it is the siamese network. `AutoHash` chooses inputs and
    method for you; this class does what its fields say.

    Small sets (less than 50 million values in all views) are trained on one thread, so that the
    same seed gives the same model on any number of cores; larger ones on the threads of torch, and
    then models may differ in the last digits between machines.

    Args:
        hidden: Widths of hidden layers, for all modalities or ``{modality: widths}``; empty for one
            affine layer.
        alpha: $\alpha$, the weight of the losses within a modality, for all or
            ``{modality: weight}``.
        margin: $m$, a Euclidean distance between outputs (at most $2\sqrt{\text{bits}}$) or a share
            of that maximum such as ``"75%"``; for all, or a mapping with keys ``"image-text"`` (in
            either order), ``"image"`` and ``"default"``. ``"auto"`` chooses among 50, 75 and 100 %
            on the validation part; without one it is 75 %.
        loss: ``"contrastive"`` as above, ``"unhinged"`` (eq. 1 of the paper: no margin),
            ``"ranking"`` (a softmax over all pairs of a batch) or ``"precision"`` (a smooth average
            precision of the batch). Where only similar rows are known (aligned rows, similar pairs,
            neighbors), ``"ranking"``.
        temperature: Temperature of the ranking loss.
        sums: Sum over pairs, as printed in the paper, instead of averaging similar and dissimilar
            pairs separately.
        n_pairs: Numbers of similar and dissimilar pairs to draw from labels for each loss; None for
            all pairs.
        soft_labels: Two rows are similar with a probability that follows from their class
            posteriors, $\sum_c p_c q_c$, instead of by their labels; needs
            ``inputs="posteriors"``. All networks then start from the same weights.
        beta: Steepness $\beta$, or its first and last value: it then grows in ten stages.
        quantization: Weight of a penalty for outputs away from ±1.
        balance: Weight of a penalty for bits that are not +1 as often as −1.
        decay: Weight decay.
        dropout: Probability of zeroing a value that enters an affine layer, while training.
        rotate: Rotate the outputs of all modalities toward the corners of the cube after training.
        nested: Make the first 16, 32, 64, … bits good codes of their own, by a loss for each of
            these prefixes; candidates are then compared by the mean over prefixes.
        optimizer: ``"cg"`` (nonlinear conjugate gradients) or ``"lbfgs"`` on the full objective,
            ``"adam"`` or ``"sgd"`` on mini-batches with all pairs of the batch; ``"auto"`` uses
            conjugate gradients while the number of pairs of rows is small.
        learning_rate: Learning rate of Adam and SGD; it falls to 0 linearly.
        batch: Rows per step of Adam and SGD; with ``online``, similar and dissimilar pairs per
            step, at least 1.
        online: Draw pairs during training and read only their rows: views may be memory-mapped and
            of any size.
        steps: Maximum number of steps.
        validation: Share of the supervision that is held out to decide when to stop; training is
            then repeated on all rows. 0 trains for all steps.
        patience: Evaluations on the validation part without improvement before training stops.
        networks: Custom torch modules for some modalities, which map rows to ``n_bits`` scores. A
            copy is trained, exported to ONNX and stored in the model. Their rows stay as they are
            unless a mapping ``inputs`` names the modality.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.

    Example:
        >>> import numpy as np
        >>> from crossbit import MMNN
        >>> labels = np.arange(90) % 3
        >>> image = np.eye(3)[labels] + 0.1 * np.random.default_rng(0).normal(size=(90, 3))
        >>> model = MMNN(n_bits=16).fit({"image": image, "text": image[:, :2]}, labels=labels)
        >>> model.encode("text", image[:1, :2])
        Codes(1 × 16 bits)

    References:
        J. Masci, M. M. Bronstein, A. M. Bronstein, J. Schmidhuber. "Multimodal
        similarity-preserving hashing." TPAMI 2014.
    """

    inputs: str | dict[str, str] = "standardize"
    hidden: tuple[int, ...] | dict[str, tuple[int, ...]] = ()
    alpha: float | dict[str, float] = 0.3
    margin: float | str | dict[str, float | str] = "auto"
    loss: str = "contrastive"
    temperature: float = 0.2
    sums: bool = False
    n_pairs: tuple[int, int] | None = None
    soft_labels: bool = False
    beta: float | tuple[float, float] = 1.0
    quantization: float = 0.0
    balance: float = 0.0
    decay: float = 0.0
    dropout: float = 0.0
    rotate: bool = False
    nested: bool = False
    optimizer: Literal["auto", "cg", "lbfgs", "adam", "sgd"] = "auto"
    learning_rate: float = 0.003
    batch: int | None = None
    online: bool = False
    steps: int | None = None
    validation: float = 0.2
    patience: int = 10
    networks: "dict[str, nn.Module] | None" = None
    device: str = "auto"

    title: ClassVar[str] = "coupled siamese networks, within and across modalities"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels", "pairs", "aligned", "neighbors"})
    accepts_tensors: ClassVar[bool] = True
    libraries: ClassVar[tuple[str, ...]] = ("torch", "threadpoolctl")

    def __post_init__(self) -> None:
        """Convert lists, which TOML and result files contain, to tuples."""
        self.hidden = _to_tuples(self.hidden)
        self.n_pairs = _to_tuples(self.n_pairs)
        self.beta = _to_tuples(self.beta)

    def _check(self, data: TrainingSet) -> None:
        super()._check(data)
        if self.nested and self.rotate:
            raise DataError(
                "a rotation after training mixes all bits, so codes cannot be nested; set either"
                " nested or rotate"
            )
        custom = self.networks or {}
        if unknown := sorted(set(custom) - set(data.views)):
            raise DataError(f"networks: unknown modalities {unknown}; known: {sorted(data.views)}")
        for name, view in data.views.items():
            if view.ndim > 2 and name not in custom:
                raise DataError(
                    f"{name!r}: rows of shape {view.shape[1:]} need a custom network in networks="
                )
        inputs = self._inputs_by_modality(data)
        if self.soft_labels and set(inputs.values()) != {"posteriors"}:
            raise DataError(
                f"soft_labels needs inputs='posteriors' for every modality, got {self.inputs!r}"
            )

    def accepts(self, data: TrainingSet) -> str | None:
        """Return why the networks cannot learn from the data, None if they can."""
        problem = super().accepts(data)
        only_similar = not data.labels and all(pairs.similar.all() for pairs in data.pairs)
        needs_dissimilar = self.loss in ("contrastive", "unhinged")
        if problem is None and needs_dissimilar and (only_similar or data.neighbors):
            return (
                f"the {self.loss} loss learns from labels, or from similar and dissimilar pairs;"
                " where only similar rows are known, use RankedCCA (several modalities), RankedITQ"
                " (one) or loss='ranking'"
            )
        return problem

    def _inputs_by_modality(self, data: TrainingSet) -> dict[str, str]:
        inputs = super()._inputs_by_modality(data)
        named = self.inputs if isinstance(self.inputs, Mapping) else {}
        return inputs | {name: "none" for name in self.networks or {} if name not in named}

    def _prepare(self, data: TrainingSet) -> Preparation:
        return prepare(data, self._inputs_by_modality(data), self.seed, lazy=self.online)

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        from crossbit.neural.selection import fit_networks

        return fit_networks(
            data,
            vars(self),
            configuration=self.configuration(),
            checkpoint=checkpoint,
            on_step=on_step,
        )

    def configuration(self) -> dict[str, Any]:
        """Return the fields as JSON has them; a custom network is represented by its class name."""
        values = {name: _to_lists(value) for name, value in super().configuration().items()}
        if self.networks is not None:
            values["networks"] = {
                name: type(network).__name__ for name, network in self.networks.items()
            }
        return values


def _to_tuples(value: Any) -> Any:  # noqa: ANN401 - any field
    """Replace lists by tuples, also inside a mapping."""
    if isinstance(value, Mapping):
        return {key: _to_tuples(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _to_lists(value: Any) -> Any:  # noqa: ANN401 - any field
    """Replace tuples by lists, also inside a mapping."""
    if isinstance(value, Mapping):
        return {key: _to_lists(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value

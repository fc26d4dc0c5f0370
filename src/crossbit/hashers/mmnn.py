"""Multimodal networks: coupled siamese networks whose outputs are nearly binary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from crossbit._progress import OnStep
from crossbit.data import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.hashers.starts import by_chance, by_correlations
from crossbit.model import HashModel

if TYPE_CHECKING:
    from torch import nn

    from crossbit.neural.candidate import Begin, Plan
    from crossbit.neural.settings import Loss, Settings


@dataclass(kw_only=True)
class MMNN(Hasher):
    r"""Multimodal similarity-preserving hashing by coupled siamese networks (MM-NN).

    Each modality has a network $\xi$ with outputs $\tanh(\beta\,\cdot)$; the sign is the code. Its outputs
    are pulled together for similar pairs and pushed a margin apart for dissimilar ones, across modalities and within,

    $$ \min\; \sum_{a < b} \mathcal L_{ab} + \sum_a \alpha_a \mathcal L_{aa}, \qquad
       \mathcal L_{ab} = \frac{1}{2|P|} \sum_{P} \|\xi_a - \xi_b\|^2
                       + \frac{1}{2|N|} \sum_{N} \max\{0, m_{ab} - \|\xi_a - \xi_b\|\}^2. $$

    It learns from labels, from pairs, from rows that belong together, and from any mixture; any number of modalities,
    also a single one (the siamese network).

    **With nothing set** it needs no tuning. Where there are labels, each modality first gets a logistic regression on
    features whose preparation is chosen by cross-validation (square roots, unit length, radial basis functions, decay);
    the networks then learn from *out-of-fold* posteriors, rows being similar with the probability that these tell.
    Labels have not been seen by that second step, so they choose, on all rows, among margins, weights, steepness and
    losses; random hyperplanes of the posteriors are what every candidate must beat. Where all that is known is which
    rows belong together, networks begin as canonical correlations (`CCAITQ`), whose regularization a held-out part
    chooses. Otherwise networks learn from standardized features, and a held-out part stops them.

    Args:
        hidden: Widths of hidden layers, for all modalities or ``{modality: widths}``; none: one affine layer.
        inputs: How features are prepared, for all modalities or ``{modality: steps}``: ``"auto"``, or steps joined by
            ``+`` out of ``none``, ``unit``, ``l1``, ``sqrt``, ``standardize``, ``center``, ``tags`` (0 → −1) and
            ``rbf(landmarks, scale)``. They are stored in the model.
        landmarks: Rows that ``"auto"`` may compare others with, at most; more take longer and may gain a little.
        alpha: $\alpha$, the weight of the losses within a modality, for all or ``{modality: weight}``.
        margin: $m$, a Euclidean distance between outputs (at most $2\sqrt{\text{bits}}$) or a share of that such as
            ``"75%"``; for all, or a mapping with keys ``"image-text"`` (either order), ``"image"`` and ``"default"``.
        loss: ``"contrastive"`` as above, ``"ranking"`` (a softmax over all pairs of a batch), ``"precision"`` (the
            average precision of the batch, made smooth), or ``"auto"``: contrastive for labels and pairs, ranking where
            only similar rows are known.
        temperature: Of the ranking loss.
        sums: Add pairs up as the paper prints, instead of averaging similar and dissimilar ones each.
        n_pairs: Numbers of similar and dissimilar pairs drawn from labels for each loss; nothing: all pairs.
        beta: Steepness $\beta$, or its beginning and end: it then grows in ten stages.
        quantization: Weight of a penalty for outputs away from ±1.
        balance: Weight of a penalty for bits that are not +1 as often as −1.
        decay: Weight decay.
        dropout: Share of the values entering each affine layer that are zeroed while training.
        rotate: Turn outputs jointly toward the corners of the cube afterward.
        optimizer: ``"cg"`` (nonlinear conjugate gradients) or ``"lbfgs"`` on the full objective, ``"adam"`` or
            ``"sgd"`` on mini-batches with all pairs of the batch; ``"auto"``: conjugate gradients while all pairs of
            rows are few.
        learning_rate: Of Adam and SGD; it falls to 0 linearly.
        batch: Rows a step of Adam and SGD; online: similar and dissimilar pairs a step, from 1.
        online: Draw pairs as training goes, reading only their rows: views may be memory-mapped and of any size.
        steps: Steps at most.
        validation: Share of what is known that is held out to decide when to stop; training is then repeated on all.
        patience: Looks at the held-out part without a gain after which training stops.
        networks: A torch module of one's own for some modalities, which maps rows to ``n_bits`` scores. A copy is
            trained, exported to ONNX and stored in the model.
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
        J. Masci, M. M. Bronstein, A. M. Bronstein, J. Schmidhuber. "Multimodal similarity-preserving hashing."
        TPAMI 2014.
    """

    hidden: tuple[int, ...] | dict[str, tuple[int, ...]] = ()
    inputs: str | dict[str, str] = "auto"
    landmarks: int = 500
    alpha: float | dict[str, float] = 0.3
    margin: float | str | dict[str, float | str] = "auto"
    loss: Literal["auto", "contrastive", "ranking", "precision"] = "auto"
    temperature: float = 0.2
    sums: bool = False
    n_pairs: tuple[int, int] | None = None
    beta: float | tuple[float, float] = 1.0
    quantization: float = 0.0
    balance: float = 0.0
    decay: float = 0.0
    dropout: float = 0.0
    rotate: bool = False
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
    any_shape: ClassVar[bool] = True

    def _check(self, data: TrainingSet) -> None:
        super()._check(data)
        own = self.networks or {}
        if unknown := sorted(set(own) - set(data.views)):
            raise DataError(f"networks: unknown modalities {unknown}; known: {sorted(data.views)}")
        for name, view in data.views.items():
            if view.ndim > 2 and name not in own:
                raise DataError(
                    f"{name!r}: rows of shape {view.shape[1:]} need a network of their own, in networks="
                )

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        from crossbit.neural.finish import after, with_health
        from crossbit.neural.learn import learn
        from crossbit.neural.stacked import can_stack, stack

        plain = self.inputs != "auto" or self.networks or self.online or not can_stack(data)
        stacked = None if plain else stack(data, self.seed, self.landmarks)
        seen = data if stacked is None else stacked.data
        model = learn(
            seen,
            self._plan(seen, stacked=stacked is not None),
            rotate=self.rotate,
            configuration=self.configuration(),
            checkpoint=checkpoint,
            on_step=on_step,
        )
        if stacked is not None:
            model = after(stacked.before, model)
            model = replace(model, card={"inputs": stacked.chosen, **model.card})
        return with_health(model, data)

    def _plan(self, data: TrainingSet, *, stacked: bool) -> "Plan":
        """What is tried: on posteriors, from correlations, or networks as the fields say."""
        from crossbit.neural import tried

        settings, begin = self._settings(data), self._begin(data.modalities, stacked)
        free = self.loss == "auto" and self.margin == "auto"
        if free and stacked:
            base = replace(settings, steps=self.steps or 80, decay=self.decay or 0.002)
            largest = max(int(present.sum()) for present in data.present.values())
            return tried.on_posteriors(
                base, begin, data.modalities, largest, longer=self.steps or 250
            )
        plain = self.inputs == "auto" and not (self.networks or self.online or self.hidden)
        if (
            free
            and plain
            and data.rows
            and not data.labels
            and not data.pairs
            and len(data.views) > 1
        ):
            start = partial(by_correlations, n_bits=self.n_bits, seed=self.seed)
            return tried.from_correlations(
                replace(settings, steps=self.steps or 300), start, self.validation
            )
        return tried.as_given(settings, begin, free and bool(data.labels), self.validation)

    def _begin(self, names: Sequence[str], stacked: bool) -> "Begin":
        from crossbit.neural.settings import for_each

        default = "center" if stacked else "standardize"
        given = for_each(self.inputs, names, "inputs", "standardize")
        return partial(
            by_chance,
            inputs={name: default if steps == "auto" else steps for name, steps in given.items()},
            hidden=for_each(self.hidden, names, "hidden", ()),
            networks=self.networks or {},
            n_bits=self.n_bits,
            seed=self.seed,
            alike=stacked,
        )

    def _settings(self, data: TrainingSet) -> "Settings":
        from crossbit.neural.batches import MOST_CELLS
        from crossbit.neural.settings import Settings, for_each, margins, pair_key

        names = data.modalities
        alpha = for_each(self.alpha, names, "alpha", 0.3)
        weights = {
            pair_key(a, b): alpha[a] if a == b else 1.0
            for a, b in combinations_with_replacement(names, 2)
        }
        if len(names) == 1:
            weights = dict.fromkeys(weights, 1.0)
        largest = max(int(present.sum()) for present in data.present.values())
        small = largest**2 <= MOST_CELLS and not self.online
        optimizer = (
            self.optimizer
            if self.optimizer != "auto"
            else "cg"
            if small and self.batch is None
            else "adam"
        )
        whole = optimizer in ("cg", "lbfgs")
        batch = None if whole else (self.batch or (32 if self.online else 256))
        per_epoch = 1 if batch is None else -(-largest // batch)
        first, last = (self.beta, self.beta) if isinstance(self.beta, float | int) else self.beta
        return Settings(
            n_bits=self.n_bits,
            seed=self.seed,
            weights=weights,
            margins=margins("75%" if self.margin == "auto" else self.margin, names, self.n_bits),
            losses=self._losses(data),
            temperature=self.temperature,
            sums=self.sums,
            evenness=1.0,
            expected=False,
            beta=(first, last),
            n_pairs=self.n_pairs,
            quantization=self.quantization,
            balance=self.balance,
            decay=self.decay,
            anchored=False,
            dropout=self.dropout,
            optimizer=optimizer,
            rate=self.learning_rate,
            batch=batch,
            online=self.online,
            steps=self.steps or (200 if whole else max(2000, 30 * per_epoch)),
            every=5 if whole else max(20, per_epoch),
            patience=self.patience,
            device=self.device,
        )

    def _losses(self, data: TrainingSet) -> "dict[str, Loss]":
        if self.loss != "auto":
            return dict.fromkeys(("labels", "pairs", "rows"), self.loss)
        only_similar = all(pairs.similar.all() for pairs in data.pairs)
        return {
            "labels": "contrastive",
            "rows": "ranking",
            "pairs": "ranking" if only_similar else "contrastive",
        }

    def __post_init__(self) -> None:
        """Take lists, as TOML and result files have them, for tuples."""
        self.hidden, self.n_pairs, self.beta = map(_tuples, (self.hidden, self.n_pairs, self.beta))

    def configuration(self) -> dict[str, Any]:
        """The fields, sequences as lists; a network of one's own is told by its class."""
        values = {name: _plain(value) for name, value in super().configuration().items()}
        if self.networks is not None:
            values["networks"] = {
                name: type(network).__name__ for name, network in self.networks.items()
            }
        return values


def _tuples(value: Any) -> Any:  # noqa: ANN401 - any field
    """A value with tuples in place of lists."""
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value

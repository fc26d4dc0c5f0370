"""Multimodal networks (MM-NN): coupled siamese networks with nearly binary outputs.

Where the paper is in the code:

| paper | code |
| --- | --- |
| eqs. (3) and (4), the losses within and across modalities | `crossbit.neural.losses.contrastive` |
| eq. (5), their weighted sum | `crossbit.neural.losses.multimodal` |
| its summands, with their weights and margins | `MMNN._terms` |
| eq. (1), without a margin | `crossbit.neural.losses.unhinged` |
| the networks and their tanh | `crossbit.neural.networks.random_network`, \
`crossbit.neural.training.Objective` |
| conjugate gradients | `crossbit.neural.conjugate_gradients` |
| settings of the experiments | `MMNN.as_printed` |
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit._validation import BelowOne, Positive, check_known
from crossbit.codes import prefix_lengths
from crossbit.data.relations import relations
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers._selection import leave_out, make_judge
from crossbit.hashers.base import Hasher, Run
from crossbit.inputs import Preparation, prepare
from crossbit.model.hashmodel import HashModel

if TYPE_CHECKING:
    from torch import nn

    from crossbit.neural.losses import LossTerm
    from crossbit.neural.training import Checkpoint, Progress, Schedule

_LOG = logging.getLogger(__name__)
_LARGEST_MARGIN = 1.5  # as a share of the largest distance
_MARGINS = ("75%", "50%", "100%")  # the first wins a tie
_ALPHAS = (0.3, 0.1, 1.0)
_PERFECT = 99.99  # validation score, in percent, at which no other candidate is tried
_TEMPERATURE = 0.2
_LEARNING_RATE = 0.003
_BATCH = 256
_ONLINE_BATCH = 32


class _Printed(NamedTuple):
    """Settings of an experiment of the paper, for modalities X and Y.

    Attributes:
        modalities: Names of X and Y.
        n_bits: Length of a code.
        inputs: Inputs of X and Y.
        margins: m_XY, m_X and m_Y.
        n_pairs: Numbers of similar and of dissimilar pairs of each loss.
        alpha: α_X and α_Y with one layer; with two, both are 0.3.
        layers: Numbers of layers that are printed.
    """

    modalities: tuple[str, str]
    n_bits: int
    inputs: tuple[str, str]
    margins: tuple[float, float, float]
    n_pairs: tuple[int, int]
    alpha: tuple[float, float] = (0.3, 0.3)
    layers: tuple[int, ...] = (1, 2)


_PRINTED = {
    "wiki": _Printed(("image", "text"), 32, ("unit", "unit"), (7.0, 3.0, 3.0), (10**4, 10**5)),
    "shapegoogle": _Printed(
        ("bof", "ssbof"), 16, ("unit", "unit"), (3.0, 1.0, 1.0), (10**4, 5 * 10**4), (0.1, 0.3)
    ),
    "nus": _Printed(
        ("image", "tags"), 64, ("unit", "tags"), (7.0, 3.0, 3.0), (5 * 10**5,) * 2, layers=(1,)
    ),
}


@dataclass(kw_only=True)
class MMNN(Hasher):
    r"""Multimodal similarity-preserving hashing by coupled siamese networks (MM-NN).

    Each modality has a network with outputs $\tanh(\beta\,\cdot)$, $\xi$ for $X$ and $\eta$ for
    $Y$; the signs are the code. Training minimizes eq. (5) of the paper,

    $$ \mathcal L_{XY} + \alpha_X \mathcal L_X + \alpha_Y \mathcal L_Y, \qquad (5) $$

    of contrastive losses within a modality (3) and across modalities (4), which pull the outputs of
    similar pairs $P$ together and push those of dissimilar pairs $N$ a margin apart; with averages
    in place of the printed sums (which ``sums=True`` has),

    $$ \mathcal L_{XY} = \frac{1}{2|P|} \sum_P \|\xi(x) - \eta(y)\|^2
       + \frac{1}{2|N|} \sum_N \max\{0, m_{XY} - \|\xi(x) - \eta(y)\|\}^2. \qquad (4) $$

    `crossbit.neural.losses` has these equations by their numbers, which are those of the version of
    2012. With more modalities, (5) is the sum over every two of them; with a single one, (3) alone:
    the siamese network.

    It learns from labels or pairs; with ``loss="ranking"`` also from aligned rows, similar pairs or
    neighbors alone. `AutoHash` chooses inputs and method for you; this class is the paper's method
    and does what its fields say: a field that has no effect is refused.
    `as_printed` has the settings of its experiments.

    Small sets (less than 50 million values in all views) are trained on one thread, so that the
    same seed gives the same model on any number of cores; larger ones on the threads of torch, and
    then models may differ in the last digits between machines.

    Args:
        hidden: Widths of hidden layers, for all modalities or ``{modality: widths}``; empty for one
            affine layer.
        alpha: $\alpha$, the weight of the losses within a modality, for all or
            ``{modality: weight}`` with every modality. ``"auto"`` chooses among 0.1, 0.3 and 1 on
            the validation part.
        margin: $m$, a Euclidean distance between outputs (at most $2\sqrt{\text{bits}}$) or a share
            of that maximum such as ``"75%"``; for all, or a mapping with keys ``"image-text"`` (in
            either order), ``"image"`` and ``"default"``. ``"auto"`` chooses among 50, 75 and 100 %
            on the validation part; without one it is 75 %.
        beta: Steepness $\beta$.
        loss: ``"contrastive"`` as above, ``"unhinged"`` (eq. 1 of the paper: no margin),
            ``"ranking"`` (a softmax over all pairs of a batch) or ``"precision"`` (a smooth average
            precision of the batch).
        temperature: Temperature of the ranking loss; None: 0.2.
        sums: Sum over pairs, as printed in the paper, instead of averaging similar and dissimilar
            pairs separately.
        n_pairs: Numbers of similar and dissimilar pairs to draw from labels for each loss, with
            ``"cg"`` and ``"lbfgs"``; None: all pairs, or 500,000 of each kind where there are more
            than 10 million.
        soft_labels: Two rows are similar with a probability that follows from their class
            posteriors, $\sum_c p_c q_c$, instead of by their labels; needs
            ``inputs="posteriors"``. All networks then start from the same weights.
        decay: Weight decay.
        optimizer: ``"cg"`` (nonlinear conjugate gradients) or ``"lbfgs"`` on the full objective,
            ``"adam"`` or ``"sgd"`` on mini-batches with all pairs of the batch; ``"auto"``:
            conjugate gradients up to 10 million pairs of rows, else Adam.
        learning_rate: Learning rate of Adam and SGD, which falls to 0 linearly; None: 0.003.
        batch: Rows per step of Adam and SGD, None: 256; with ``online``, similar and dissimilar
            pairs per step, None: 32.
        online: Draw pairs during training and read only their rows: views may be memory-mapped and
            of any size.
        steps: Maximum number of steps; None: 200 of the full objective, or 30 passes over all rows
            and at least 2,000 steps.
        validation: Share of the supervision that is held out to decide when to stop; training is
            then repeated on all rows. 0 trains for all steps.
        patience: Evaluations on the validation part without improvement before training stops.
        nested: Make the first 16, 32, 64, … bits good codes of their own, by a loss for each of
            these prefixes; candidates are then compared by the mean over prefixes.
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
    alpha: float | Literal["auto"] | dict[str, float] = 0.3
    margin: float | str | dict[str, float | str] = "auto"
    beta: Positive = 1.0
    loss: str = "contrastive"
    temperature: float | None = None
    sums: bool = False
    n_pairs: tuple[int, int] | None = None
    soft_labels: bool = False
    decay: float = 0.0
    optimizer: Literal["auto", "cg", "lbfgs", "adam", "sgd"] = "auto"
    learning_rate: float | None = None
    batch: int | None = None
    online: bool = False
    steps: int | None = None
    validation: BelowOne = 0.2
    patience: int = 10
    nested: bool = False
    networks: "dict[str, nn.Module] | None" = None
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"

    title: ClassVar[str] = "coupled siamese networks, within and across modalities"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels", "pairs", "aligned", "neighbors"})
    accepts_tensors: ClassVar[bool] = True
    libraries: ClassVar[tuple[str, ...]] = ("torch", "threadpoolctl")

    @classmethod
    def as_printed(
        cls,
        experiment: Literal["wiki", "shapegoogle", "nus"],
        *,
        layers: Literal[1, 2] = 1,
        modalities: tuple[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - any fields
    ) -> Self:
        """Return the method with the settings that the paper prints for an experiment.

        Printed are the numbers of bits and of pairs, sums over pairs, conjugate gradients, margins
        and α of shapes and of NUS, and 128 hidden nodes for shapes. Only comments in the paper's
        source have unit length of rows, tags as −1 and 1, training "until convergence" (here 200
        steps), and for Wiki α = 0.3 and the margins 49, 9 and 9, probably the squares of 7, 3
        and 3. The paper leaves open: β (here 1), tanh in hidden layers, the first weights, which of
        the possible pairs are drawn (here evenly over the classes), and for Wiki the inputs (unit
        length) and the width of the hidden layer (128). The shapes have codes of 12 and of 16 bits
        (here 16).

        Args:
            experiment: ``"wiki"``, ``"shapegoogle"`` or ``"nus"``.
            layers: 1, or 2 with a hidden layer; of NUS one layer is printed.
            modalities: Names of the modalities X and Y of your views; by default ``image`` and
                ``text`` (Wiki), ``bof`` and ``ssbof`` (shapes), ``image`` and ``tags`` (NUS).
            fields: Fields to change, such as ``n_bits=12`` or ``seed=1``.
        """
        return cls(**(cls.printed_fields(experiment, layers, modalities) | fields))

    @classmethod
    def printed_fields(
        cls, experiment: str, layers: int = 1, modalities: tuple[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the fields that `as_printed` sets."""
        printed = _PRINTED[check_known(experiment, _PRINTED, "experiment of the paper")]
        if layers not in printed.layers:
            raise DataError(
                f"of {experiment} the paper prints {list(printed.layers)} layers, got {layers!r}"
            )
        x, y = modalities or printed.modalities
        alpha = printed.alpha if layers == 1 else (0.3, 0.3)
        return {
            "n_bits": printed.n_bits,
            "inputs": dict(zip((x, y), printed.inputs, strict=True)),
            "hidden": (128,) if layers == 2 else (),
            "alpha": dict(zip((x, y), alpha, strict=True)),
            "margin": dict(zip((f"{x}-{y}", x, y), printed.margins, strict=True)),
            "n_pairs": printed.n_pairs,
            "sums": True,
            "optimizer": "cg",
            "steps": 200,
            "validation": 0.0,
        }

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

    def _check_fields(self) -> None:
        super()._check_fields()
        if not isinstance(self.networks, Mapping | None):
            raise DataError(
                f"networks must be a mapping {{modality: torch module}}, got {self.networks!r}"
            )

    def _check(self, data: TrainingSet) -> None:
        from crossbit.neural.losses import LOSSES

        check_known(self.loss, LOSSES, "loss")
        for option in ("hidden", "alpha", "networks"):
            given = getattr(self, option)
            for name in given if isinstance(given, Mapping) else ():
                check_known(name, data.views, f"modality of {option}")
        if isinstance(self.alpha, Mapping) and (missing := data.views.keys() - self.alpha.keys()):
            raise DataError(f"alpha: no weight for {sorted(missing)}; name every modality")
        super()._check(data)
        for name, view in data.views.items():
            if view.ndim > 2 and name not in (self.networks or {}):
                raise DataError(
                    f"{name!r}: rows of shape {view.shape[1:]} need a custom network in networks="
                )
        if self.soft_labels and set(self._inputs_by_modality(data).values()) != {"posteriors"}:
            raise DataError(
                f"soft_labels needs inputs='posteriors' for every modality, got {self.inputs!r}"
            )
        names = data.modalities
        known = {"default", *names, *(f"{a}-{b}" for a, b in product(names, repeat=2))}
        for key in self.margin if isinstance(self.margin, Mapping) else ():
            check_known(key, known, "pair of modalities of margin")
        for a, b in combinations_with_replacement(names, 2):
            self._distance(a, b)

    def _unused(self, data: TrainingSet) -> dict[str, str]:
        """Return field → why it has no effect, given the other fields."""
        from crossbit.neural.losses import OPTIONS, OVER_PAIRS, options_of

        schedule = self._schedule(data)
        ignored = OPTIONS - options_of(self.loss)
        if self.loss not in OVER_PAIRS:
            ignored |= {"n_pairs"}
        unused = dict.fromkeys(ignored, f"loss={self.loss!r} does not use it")
        if schedule.batch is None:
            reason = f"optimizer={schedule.optimizer!r} steps on the full objective; use 'adam'"
            unused |= dict.fromkeys(("learning_rate", "batch", "online"), reason)
        elif self.n_pairs is not None:
            unused["n_pairs"] = "Adam and SGD compare all pairs of a batch; use optimizer='cg'"
        if not data.labels or self.soft_labels:
            unused["n_pairs"] = "pairs are drawn from labels only, not from posteriors"
        if not self.validation:
            unused["patience"] = "there is no validation"
            if self.alpha == "auto":
                unused["alpha"] = "there is no validation to choose it by"
        if len(data.views) == 1:
            unused["alpha"] = "a single modality has one loss, of weight 1"
        elif not data.labels and all(pairs.left != pairs.right for pairs in data.pairs):
            unused["alpha"] = "nothing is known about rows of the same modality"
        if self.nested and len(prefix_lengths(self.n_bits)) == 1:
            unused["nested"] = f"{self.n_bits} bits have no shorter prefix"
        return unused

    def _inputs_by_modality(self, data: TrainingSet) -> dict[str, str]:
        inputs = super()._inputs_by_modality(data)
        named = self.inputs if isinstance(self.inputs, Mapping) else {}
        return inputs | {name: "none" for name in self.networks or {} if name not in named}

    def _n_values(self, data: TrainingSet) -> int:
        return 0 if self.online else data.n_values

    def _prepare(self, data: TrainingSet) -> Preparation:
        return prepare(data, self._inputs_by_modality(data), self.seed, lazy=self.online)

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        from crossbit.neural.networks import to_model
        from crossbit.neural.training import Checkpoint

        near = tuple(found.pairs for found in data.neighbors.values())
        data = replace(data, pairs=(*data.pairs, *near), neighbors={})
        runs = _Runs(Checkpoint(run.checkpoint, data, self.configuration()), run.on_step)
        name, schedule, card = self._validate(data, runs)
        chosen = self._candidates()[name]
        networks, progress = chosen._train("all rows", data, schedule, runs)
        training = _describe(name, progress)
        custom = self.networks or {}
        model = to_model(networks, custom, data, n_bits=self.n_bits, beta=self.beta)
        return replace(model, card={**card, "training": training, **model.card})

    def _train(
        self,
        run: str,
        data: TrainingSet,
        schedule: "Schedule",
        runs: "_Runs",
        score: "Callable[[Mapping[str, nn.Module]], float] | None" = None,
    ) -> "tuple[Mapping[str, nn.Module], Progress]":
        """Minimize eq. (5) over new networks; return them and how it went."""
        from crossbit.neural.losses import OVER_PAIRS
        from crossbit.neural.pairs import Batches
        from crossbit.neural.training import Objective, find_device, train, worker_number

        device = find_device(self.device)
        networks = {name: network.to(device) for name, network in self._networks(data).items()}
        terms = self._terms(data)
        batches = Batches(
            data=data,
            relations=[term.relation for term in terms],
            size=schedule.batch,
            online=self.online,
            n_pairs=self.n_pairs,
            all_pairs=self.loss not in OVER_PAIRS,
            seed=self.seed,
            device=device,
            worker=worker_number() or 0,
        )
        progress = train(
            Objective(networks, terms, beta=self.beta, decay=self.decay),
            batches,
            schedule,
            run=run,
            checkpoint=runs.checkpoint,
            on_step=runs.report,
            score=None if score is None else partial(score, networks),
        )
        runs.steps += progress.step
        runs.left -= 1
        return networks, progress

    def _terms(self, data: TrainingSet) -> "list[LossTerm]":
        """Return the summands of eq. (5): 1 · eq. (4) across modalities, α · eq. (3) within one."""
        from crossbit.neural.losses import LossTerm, nested_loss

        terms = []
        for relation in relations(data, soft_labels=self.soft_labels):
            a, b = relation.left, relation.right
            alpha = self.alpha[a] if isinstance(self.alpha, Mapping) else self.alpha
            loss = nested_loss(
                self.loss,
                self._lengths,
                margin=self._distance(a, b),
                temperature=_TEMPERATURE if self.temperature is None else self.temperature,
                sums=self.sums,
            )
            within = a == b and len(data.views) > 1
            terms.append(LossTerm(relation, float(alpha) if within else 1.0, loss))
        terms = [term for term in terms if term.weight]
        if not terms:
            raise DataError(
                "nothing to learn from: labels, pairs or aligned rows must relate the modalities"
                " to each other, or a modality to itself with alpha above 0"
            )
        return terms

    def _validate(self, data: TrainingSet, runs: "_Runs") -> "tuple[str, Schedule, dict[str, Any]]":
        """Train every candidate on a part of the supervision and judge it by the rest.

        Returns:
            The name of the best candidate, the schedule with its number of steps for all rows, and
            facts for the card.
        """
        from crossbit.neural.networks import encode

        schedule = self._schedule(data)
        candidates = self._candidates()
        if not self.validation:
            return next(iter(candidates)), schedule, {}
        part, left_out = leave_out(data, self.validation, self.seed)
        judge = make_judge(left_out)
        if judge is None:
            _LOG.warning(
                "too little supervision for a validation split; training without early stopping"
            )
            return next(iter(candidates)), schedule, {}
        score = partial(judge.score, left_out, self._lengths)
        runs.left += len(candidates)
        trials: dict[str, Progress] = {}
        for name, candidate in candidates.items():
            _, trials[name] = candidate._train(
                name, part, schedule, runs, lambda networks: score(encode(networks, left_out))
            )
            if (trials[name].best_score or 0.0) >= _PERFECT:
                break
        best = max(trials, key=lambda name: trials[name].best_score or 0.0)
        trial = _describe(best, trials[best])
        card: dict[str, Any] = {"validation": trial | {"validated by": judge.name}}
        if len(trials) > 1:
            card["candidates"] = {
                name: f"{progress.best_score:.2f}" for name, progress in trials.items()
            }
        # Mini-batches need more steps for more rows.
        factor = 1.0 if schedule.batch is None else 1 / (1 - self.validation)
        return best, replace(schedule, steps=round(factor * trials[best].best_step)), card

    @property
    def _lengths(self) -> list[int]:
        """Numbers of leading bits that have a loss."""
        return prefix_lengths(self.n_bits) if self.nested else [self.n_bits]

    def _schedule(self, data: TrainingSet) -> "Schedule":
        """Return optimizer, batch and steps; defaults depend on the number of rows."""
        from crossbit.neural.pairs import MAX_ALL_PAIRS
        from crossbit.neural.training import Schedule, worker_number

        n_rows = max(int(present.sum()) for present in data.present.values())
        optimizer: str = self.optimizer
        if optimizer == "auto":
            small = n_rows**2 <= MAX_ALL_PAIRS and self.batch is None and not self.online
            optimizer = "cg" if small and worker_number() is None else "adam"
        batch, per_pass = None, 1
        if optimizer not in ("cg", "lbfgs"):
            batch = self.batch or (_ONLINE_BATCH if self.online else _BATCH)
            per_pass = -(-n_rows // batch)
        return Schedule(
            optimizer=optimizer,
            learning_rate=_LEARNING_RATE if self.learning_rate is None else self.learning_rate,
            batch=batch,
            steps=self.steps or (200 if batch is None else max(2000, 30 * per_pass)),
            eval_every=5 if batch is None else max(20, per_pass),
            patience=self.patience,
            seed=self.seed,
        )

    def _candidates(self) -> dict[str, Self]:
        """Return hashers with α and margins to compare by validation, by a name for the card."""
        alphas = _ALPHAS if self.alpha == "auto" else (self.alpha,)
        search = self.margin == "auto" and self.loss == "contrastive" and self.validation
        margins = _MARGINS if search else (self.margin,)
        candidates = {}
        for margin, alpha in product(margins, alphas):
            names = [f"margin {margin}"] if len(margins) > 1 else []
            names += [f"alpha {alpha}"] if len(alphas) > 1 else []
            name = ", ".join(names) or "network"
            candidates[name] = replace(self, alpha=alpha, margin=margin)
        return candidates

    def _distance(self, a: str, b: str) -> float:
        """Return the margin between two modalities as a Euclidean distance."""
        margin = _MARGINS[0] if self.margin == "auto" else self.margin
        if isinstance(margin, Mapping):
            keys = [f"{a}-{b}", f"{b}-{a}", *([a] if a == b else []), "default"]
            given = [margin[key] for key in keys if key in margin]
            if not given:
                raise DataError(f"margin: no value for '{a}-{b}'; add it or 'default'")
            margin = given[0]
        most: float = 2 * self.n_bits**0.5
        try:
            share = float(str(margin).removesuffix("%")) / (100 if "%" in str(margin) else most)
        except ValueError:
            share = 0.0
        if not 0 < share < float("inf") or ("%" in str(margin) and share > _LARGEST_MARGIN):
            raise DataError(
                "margin: expected a distance above 0, or a share of the largest distance such as"
                f" '75%', at most '150%'; got {margin!r}"
            )
        return share * most

    def _networks(self, data: TrainingSet) -> "dict[str, nn.Module]":
        """Return a network for every modality, with random weights or a copy of a custom one.

        Posteriors mean the same in every modality, so that networks with soft labels have the same
        initial weights.
        """
        from crossbit.neural.networks import copy_custom, random_network

        networks: dict[str, nn.Module] = {}
        for number, (name, view) in enumerate(data.views.items()):
            if self.networks and name in self.networks:
                networks[name] = copy_custom(name, self.networks[name], data, self.n_bits)
                continue
            random = np.random.default_rng([self.seed, 0 if self.soft_labels else number])
            hidden = self.hidden.get(name, ()) if isinstance(self.hidden, Mapping) else self.hidden
            networks[name] = random_network([view.shape[1], *hidden, self.n_bits], random)
        return networks

    def configuration(self) -> dict[str, Any]:
        """Return the fields as JSON has them; a custom network is represented by its class name."""
        values = super().configuration()
        if self.networks is not None:
            values["networks"] = {
                name: type(network).__name__ for name, network in self.networks.items()
            }
        return values


@dataclass
class _Runs:
    """Checkpoint and progress of trainings one after the other.

    Attributes:
        checkpoint: Where they are saved.
        on_step: Progress callback.
        left: Number of trainings that are left.
        steps: Steps of the trainings before.
    """

    checkpoint: "Checkpoint"
    on_step: OnStep | None
    left: int = 1
    steps: int = 0

    def report(self, step: Step) -> None:
        """Number the steps over all trainings; early stopping can only make them fewer."""
        if self.on_step is not None:
            most = self.steps + self.left * (step.of or 0)
            self.on_step(replace(step, number=self.steps + step.number, of=most))


def _describe(name: str, progress: "Progress") -> dict[str, Any]:
    """Describe a training for the card, with about a dozen points of its curve."""
    described = {"candidate": name, "steps": progress.step, "loss": progress.loss}
    if progress.best_score is not None:
        described |= {"best step": progress.best_step, "validation": progress.best_score}
    points = progress.history[:: max(1, len(progress.history) // 12)]
    described["curve of the loss"] = " ".join(f"{step}: {loss:.4g}" for step, loss, _ in points)
    if scores := [f"{step}: {score:.2f}" for step, _, score in points if score is not None]:
        described["curve of validation"] = " ".join(scores)
    return described

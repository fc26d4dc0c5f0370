"""AutoHash: chooses inputs and method for the supervision that is given."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product
from os import PathLike
from typing import Any, ClassVar, Literal

import numpy as np

from crossbit._io.arrays import available_memory
from crossbit._progress import OnStep
from crossbit._threads import training_threads
from crossbit._validation import check_installed, check_known
from crossbit.data.labels import LabelsArgument
from crossbit.data.neighbors import NeighborsArgument
from crossbit.data.pairs import Pairs
from crossbit.data.training_set import TrainingSet, Views
from crossbit.errors import DataError
from crossbit.hashers._selection import (
    Fold,
    Verdict,
    by_counterparts,
    by_labels,
    choose,
    fifth,
    halves,
    usable_rows,
)
from crossbit.hashers.base import HASHERS, Hasher, Run
from crossbit.hashers.batch import BATCH
from crossbit.hashers.ccaitq import CCAITQ
from crossbit.hashers.dch import DCH
from crossbit.hashers.mmnn import MMNN
from crossbit.hashers.rankedcca import RankedCCA
from crossbit.hashers.rankeditq import RankedITQ
from crossbit.hashers.softap import SoftAP
from crossbit.inputs import prepare, prepare_posteriors
from crossbit.inputs.posteriors import check_posteriors, fit_posteriors
from crossbit.inputs.weak_labels import can_fill, repair_labels, too_few_labels
from crossbit.metrics import rank_vectors
from crossbit.model.hashmodel import HashModel

_LOG = logging.getLogger(__name__)
_Kinds = Sequence[type[Hasher]]
_Choice = tuple[Hasher, dict[str, dict[str, str]]]
# The first stays unless another one is better.
_ON_POSTERIORS: _Kinds = (SoftAP, DCH, BATCH, CCAITQ)
_FROM_ROWS: _Kinds = (RankedCCA, CCAITQ)
_MIN_JUDGED = 200  # labeled rows below which a choice of the code stage would be noise
_MAX_COMPARED = 2000  # rows above which methods that learn from rows alone are not compared
_MIN_LEFT_OUT = 20  # items in a fifth of the set, below which there is no choice
_REGULARIZATIONS = (0.1, 1.0, 10.0, 100.0, 0.01)  # of correlations for unseen classes
_POWERS = (1.0, 2.0)
_CLASS_FOLDS = 3
_MIN_CLASSES = 4
_MAX_ROWS = 4000  # rows on which settings are compared by classes
_MAX_REFERENCE = 1000  # rows of the unhashed reference


@dataclass(kw_only=True)
class AutoHash(Hasher):
    r"""The default: inputs and method follow from what is known about the rows.

    | you give | it runs |
    | --- | --- |
    | labels | weak labels repaired, class posteriors, then the best code stage on the posteriors: \
`SoftAP`, `DCH`, `BATCH` or `CCAITQ` |
    | labels and ``unseen_classes=True`` | `CCAITQ`, its regularization chosen on held-out classes |
    | similar and dissimilar pairs, or mixtures with them | `MMNN` with ``margin="auto"`` |
    | aligned rows, or similar pairs only, of two or more modalities | `RankedCCA` or `CCAITQ`, \
whichever finds counterparts of held-out rows better; of more than 2,000 rows `RankedCCA` |
    | neighbors, similar pairs or nothing, of one kind of embeddings | `RankedITQ` |
    | one modality with labels | as with labels |
    | rows that do not fit in memory, custom networks | refused: `MMNN` has ``online=True`` and \
``networks=`` |

    With 200 labeled rows or more that have all views, each candidate is fitted on halves of the
    training rows and scored on the other half: every row is a query once, the base are the other
    modalities' rows, relevant are rows of the same class. The first candidate, `SoftAP`, stays
    unless another one is better by more than two standard errors. The card names what was chosen,
    what else was tried, and the score of the posteriors unhashed, $\sum_c p_c q_c$, which no code
    exceeds by much.

    Args:
        nested: Make the first 16, 32, 64, … bits good codes of their own.
        unseen_classes: Learn codes for classes that are not among the training labels.
        candidates: Names of the methods to choose from; by default the ones in the table. Those
            that cannot learn from the data are skipped. The first one is used if the rows are too
            few for a comparison.
        device: Of networks: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``; refused where no
            network is trained.

    Example:
        >>> import numpy as np
        >>> from crossbit import AutoHash
        >>> labels = np.arange(90) % 3
        >>> image = np.eye(3)[labels] + 0.1 * np.random.default_rng(0).normal(size=(90, 3))
        >>> model = AutoHash(n_bits=16).fit({"image": image, "text": image[:, :2]}, labels=labels)
        >>> model.encode("text", image[:1, :2])
        Codes(1 × 16 bits)
    """

    n_bits: int = 64
    inputs: ClassVar[str] = "none"  # type: ignore[misc] # no field: inputs are chosen
    nested: bool = False
    unseen_classes: bool = False
    candidates: tuple[str, ...] | None = None
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"

    title: ClassVar[str] = "inputs and method chosen for what is known about the rows (default)"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels", "pairs", "aligned", "neighbors"})

    @classmethod
    def name(cls) -> str:
        """Return ``"auto"``."""
        return "auto"

    def libraries_for(self, supervision: str) -> tuple[str, ...]:
        """Labels need scikit-learn; rows of two modalities and neighbors need nothing."""
        return ("sklearn",) if supervision == "labels" else ()

    def _check(self, data: TrainingSet) -> None:
        others = [name for name in HASHERS if name != self.name()]
        for name in self.candidates or ():
            check_known(name, others, "method among candidates")
        super()._check(data)
        if 4 * data.n_values > available_memory() / 2:
            raise DataError(
                f"the views have {data.n_values:,} values, which do not fit into memory; train on"
                " some of the rows, or read them while training: MMNN(online=True)"
            )
        if data.neighbors and data.labels:
            raise DataError("auto learns from labels or from neighbors; pass one of them")
        if data.neighbors and len(data.views) > 1:
            raise DataError(
                "auto learns neighbors of one modality at a time; fit one model per modality, or"
                " learn what the modalities share from aligned rows or pairs"
            )
        if self.unseen_classes and (len(data.views) < 2 or not data.aligned):
            raise DataError(
                "unseen_classes=True learns from what aligned views share: pass two or more views"
                " of the same rows, with one array of labels or none"
            )

    def _unused(self, data: TrainingSet) -> dict[str, str]:
        if self == AutoHash(n_bits=self.n_bits, seed=self.seed):
            return {}  # without a look at the labels, which takes time
        methods, _ = self._table(self._without_few_labels(data))
        unused = {}
        if len(methods) == 1:
            unused["candidates"] = f"{methods[0].name()} is the only method for this data"
        else:
            methods = self._kinds(methods)
        names = [method.name() for method in methods]
        for name in ("nested", "device"):
            if not any(hasattr(method, name) for method in methods):
                unused[name] = f"this data is learned by {' or '.join(names)}, without this option"
        return unused

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        card: dict[str, Any] = {}
        usable = self._without_few_labels(data)
        if usable is not data:
            card["labels"] = "too few to learn classes, left out"
            _LOG.warning("too few labels to learn classes; learning from aligned rows instead")
        kinds, inputs = self._table(usable)
        if inputs == "posteriors":
            usable, posteriors, note = repair_labels(
                usable, lambda repaired: fit_posteriors(repaired, self.seed), self.seed
            )
            prepared = prepare_posteriors(usable, posteriors)
            card |= {} if note is None else {"labels": note}
            card["unhashed"] = f"{_unhashed(prepared.data):.2f}"
        else:
            prepared = prepare(usable, dict.fromkeys(data.views, inputs), self.seed)
        method, scores = self._choose(self._methods(kinds, prepared.data, inputs), prepared.data)
        with training_threads(data.n_values, torch="torch" in method.libraries):
            model = prepared.in_front_of(method._learn(prepared.data, run))
        card |= {"chosen": method.name(), "settings": method.configuration(), **scores}
        return replace(model, card={**model.card, **card})

    def _without_few_labels(self, data: TrainingSet) -> TrainingSet:
        """Leave the labels out if too few rows have one."""
        if data.labels and not data.pairs and not self.unseen_classes:
            check_installed(*self.libraries_for("labels"))
            if too_few_labels(data):
                return replace(data, labels={}, aligned_supervision=True)
        return data

    def _table(self, data: TrainingSet) -> tuple[_Kinds, str]:
        """Return methods and inputs for this data: the table of the class, from top to bottom."""
        if self.unseen_classes:
            return (CCAITQ,), "standardize"
        if data.labels and not data.pairs and (check_posteriors(data) is None or can_fill(data)):
            return _ON_POSTERIORS, "posteriors"
        if data.labels or any(not pairs.similar.all() for pairs in data.pairs):
            return (MMNN,), "auto"
        return ((RankedITQ,), "none") if len(data.views) == 1 else (_FROM_ROWS, "auto")

    def _choose(self, methods: dict[str, Hasher], data: TrainingSet) -> _Choice:
        """Return the method that does best on rows left out, and the scores for the card.

        Without labels and with many rows the first one, `RankedCCA`, is used without a comparison:
        it starts almost like `CCAITQ` and keeps what it learns only if that is better on held-out
        rows. For unseen classes, the settings are compared that find classes best which were left
        out of training. Labels do not shape these codes, which would fit the classes of training
        only.
        """
        first = next(iter(methods.values()))
        if self.unseen_classes:
            return self._for_unseen_classes(first, data)
        verdict: Verdict | None = None
        if len(methods) == 1:
            return first, {}
        if data.posteriors:
            n_judged = min(int(mask.sum()) for mask in usable_rows(data).values())
            if n_judged >= _MIN_JUDGED:
                verdict = choose(methods, halves(data, self.seed), by_labels)
        elif self.candidates or max(map(len, data.views.values())) <= _MAX_COMPARED:
            fold = fifth(data, np.random.default_rng([self.seed, 12]), _MIN_LEFT_OUT)
            if fold is not None:
                verdict = choose(methods, [fold], by_counterparts)
        if verdict is None:
            return first, {}
        return methods[verdict.name], {"candidates": verdict.card()}

    def _for_unseen_classes(self, method: Hasher, data: TrainingSet) -> _Choice:
        folds = list(_class_folds(data, self.seed)) if data.labels else []
        if not folds:
            return method, {}
        candidates = {
            f"regularization {regularization:g}, power {power:g}": CCAITQ(
                n_bits=self.n_bits, seed=self.seed, regularization=regularization, power=power
            )
            for regularization, power in product(_REGULARIZATIONS, _POWERS)
        }
        verdict = choose(candidates, folds, by_labels)
        best = max(verdict.scores, key=lambda name: verdict.scores[name])
        return candidates[best], {"classes held out": verdict.card()}

    def _kinds(self, default: _Kinds) -> _Kinds:
        return default if self.candidates is None else [HASHERS[name] for name in self.candidates]

    def _methods(self, kinds: _Kinds, data: TrainingSet, inputs: str) -> dict[str, Hasher]:
        """Return the methods that can learn from prepared data, by name.

        Raises:
            DataError: None of them can.
        """
        options = self.get_params() | {"inputs": inputs}
        methods = {}
        kinds = self._kinds(kinds)
        for kind in kinds:
            known = {f.name for f in fields(kind)}
            method = kind(**{key: value for key, value in options.items() if key in known})
            if method.accepts(data) is None and (not self.nested or "nested" in known):
                check_installed(*method.libraries)
                methods[kind.name()] = method
        if not methods:
            nested = " with nested codes" if self.nested else ""
            names = [kind.name() for kind in kinds]
            raise DataError(f"none of the candidates {names} can learn from this data{nested}")
        return methods


def _unhashed(data: TrainingSet) -> float:
    """Mean average precision of the posteriors themselves, ranked by their inner products."""
    n = min(len(view) for view in data.views.values())
    rows = np.arange(0, n, -(-n // _MAX_REFERENCE))
    part = data.take({name: rows[mask[rows]] for name, mask in usable_rows(data).items()})
    ranks = partial(rank_vectors, metric="dot")
    return 100 * float(np.nanmean(by_labels(part, part.posteriors, ranks)))


def _class_folds(data: TrainingSet, seed: int) -> Iterator[Fold]:
    """Yield folds that leave out the rows of a third of the classes."""
    random = np.random.default_rng([seed, 11])
    name, labels = next(iter(data.labels.items()))
    usable = random.permutation(np.flatnonzero(usable_rows(data)[name]))
    rows = np.sort(usable[:_MAX_ROWS])
    member = labels[rows] if labels.ndim == 2 else labels[rows][:, None] == np.unique(labels[rows])
    if member.shape[1] < _MIN_CLASSES:
        return
    for chosen in np.array_split(random.permutation(member.shape[1]), _CLASS_FOLDS):
        left_out = member[:, chosen].any(axis=1)
        if min(left_out.sum(), (~left_out).sum()) >= 2:
            seen, unseen = (
                data.take(dict.fromkeys(data.views, rows[part])) for part in (~left_out, left_out)
            )
            # Only the classes left out are relevant, for rows of several classes.
            own = dict.fromkeys(data.views, member[left_out][:, chosen])
            yield seen, replace(unseen, labels=own)


def fit(
    views: Views,
    *,
    labels: LabelsArgument | None = None,
    pairs: Pairs | Sequence[Pairs] | None = None,
    aligned: bool | None = None,
    neighbors: NeighborsArgument | None = None,
    checkpoint: str | PathLike[str] | None = None,
    on_step: OnStep | None = None,
    verbose: bool = False,
    **fields: Any,  # noqa: ANN401 - the fields of `AutoHash`
) -> HashModel:
    """Learn a model with `AutoHash`: inputs and method follow from what is known about the rows.

    Args:
        views: Modality → rows of features, shape (n, d).
        labels: One array if the views are aligned, or modality → array.
        pairs: Similar and dissimilar pairs of row numbers.
        aligned: Row i of every view is the same item.
        neighbors: Learn the neighborhoods of the given features.
        checkpoint: File that stores the progress of networks.
        on_step: Progress callback.
        verbose: Show progress on stderr.
        fields: Fields of `AutoHash`, such as ``n_bits=32``.

    Example:
        >>> import numpy as np, crossbit
        >>> Z = np.random.default_rng(0).normal(size=(200, 8))
        >>> crossbit.fit({"image": Z @ np.ones((8, 20)) + 0.1, "text": Z}, n_bits=16)
        HashModel(image, text → 16 bits)
    """
    return AutoHash.from_configuration(fields).fit(
        views,
        labels=labels,
        pairs=pairs,
        aligned=aligned,
        neighbors=neighbors,
        checkpoint=checkpoint,
        on_step=on_step,
        verbose=verbose,
    )

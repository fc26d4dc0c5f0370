"""Canonical correlation analysis, rotated for quantization."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep
from crossbit._validation import check_number, present_rows
from crossbit.data.labels import is_known
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers._correspondence import linked_rows
from crossbit.hashers.base import Hasher
from crossbit.linalg.cca import CCA
from crossbit.linalg.itq import itq, random_rotation
from crossbit.metrics.evaluate import mean_average_precision
from crossbit.metrics.relevance import from_labels
from crossbit.model.hashmodel import HashModel
from crossbit.model.preprocessing import projection_layers

_REGULARIZATIONS = (0.1, 1.0, 10.0, 0.01)  # the first wins a tie
_HELD_OUT = 5  # one of this many links is held out to choose the regularization
_MAX_HELD_OUT = 1000
_MIN_HELD_OUT = 10
_FEW_LINKS = 0.1  # regularization where too few links can be held out
_POWERS = (1.0, 2.0)
_CLASS_FOLDS = 3
_MIN_CLASSES = 4
_MAX_ROWS = 4000  # on which settings are compared by classes

_Views = Mapping[str, NDArray[Any]]


@dataclass(kw_only=True)
class CCAITQ(Hasher):
    r"""Regularized canonical correlation analysis and one rotation for all modalities (CCA + ITQ).

    The directions $w_a$ of each modality maximize what the modalities share,

    $$ \sum_{a \ne b} w_a^\top C_{ab} w_b
       \quad\text{such that}\quad \sum_a w_a^\top (C_{aa} + r I) w_a = 1, $$

    which for two modalities is canonical correlation analysis. The joint projections $V$ of all
    modalities, each direction weighted by its correlation, are then rotated toward the corners of
    the cube: $R$ minimizes $\|\operatorname{sign}(VR) - VR\|$ by alternating between signs and an
    orthogonal Procrustes problem. With more bits than directions, $R$ has orthonormal rows instead
    of being square.

    It learns from aligned views or from similar pairs across modalities and ignores labels. It is
    the strongest of the fast linear methods if only correspondence is known.

    Args:
        regularization: $r$; columns are scaled to unit variance first. None chooses among 0.01,
            0.1, 1 and 10 the one at which held-out rows best find their counterparts.
        power: Directions are weighted by their correlation to this power.
        rounds: Number of alternations of the rotation.

    Example:
        >>> import numpy as np
        >>> from crossbit import CCAITQ
        >>> Z = np.random.default_rng(0).normal(size=(200, 8))
        >>> views = {"image": Z @ np.ones((8, 20)) + 0.1, "text": Z}
        >>> CCAITQ(n_bits=16).fit(views)
        HashModel(image, text → 16 bits)

    References:
        H. Hotelling. "Relations between two sets of variates." Biometrika 1936.
        Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin. "Iterative quantization." TPAMI 2013.
    """

    regularization: float | None = None
    power: float = 1.0
    rounds: int = 50

    title: ClassVar[str] = "canonical correlations and a joint rotation: fast, linear, no labels"
    supervision: ClassVar[frozenset[str]] = frozenset({"pairs", "aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        links = linked_rows(data)
        regularization = self.regularization
        if regularization is None:
            regularization = self._choose_regularization(data, links)
        cca = CCA(data.views, links, standardize=True)
        W = cca.directions(self.n_bits, regularization, self.power)
        X = {
            name: np.asarray(view[data.present[name]], np.float64) - cca.mean[name]
            for name, view in data.views.items()
        }
        V = np.concatenate([X[name] @ W[name] for name in X])
        start = random_rotation(V.shape[1], self.n_bits, np.random.default_rng(self.seed))
        R = itq(V, start, rounds=self.rounds, on_step=on_step)
        encoders = {
            name: projection_layers(cca.mean[name], W[name] @ R, X[name].std(axis=0)) for name in X
        }
        return HashModel(encoders, self.n_bits, card={"regularization": regularization})

    def _check_fields(self) -> None:
        super()._check_fields()
        value = self.regularization
        if value is not None and check_number(value, "regularization") < 0:
            raise DataError(f"regularization must not be negative, got {value!r}")

    def _choose_regularization(
        self, data: TrainingSet, links: Mapping[tuple[str, str], NDArray[np.int64]]
    ) -> float:
        """Choose by the rank of the linked row, for a fifth of the links that CCA does not see."""
        random = np.random.default_rng([self.seed, 3])
        held_out = {}
        for names, index in links.items():
            n = min(len(index) // _HELD_OUT, _MAX_HELD_OUT)
            held_out[names] = index[random.permutation(len(index))[:n]]
        if sum(map(len, held_out.values())) < _MIN_HELD_OUT:
            return _FEW_LINKS
        views = {}
        for name, view in data.views.items():
            hidden = [
                index[:, names.index(name)] for names, index in held_out.items() if name in names
            ]
            views[name] = np.array(view, np.float32)
            views[name][np.concatenate(hidden)] = np.nan
        seen = {name: present_rows(view) for name, view in views.items()}
        if min(mask.sum() for mask in seen.values()) < 2:
            return _FEW_LINKS
        kept = {
            (a, b): index[seen[a][index[:, 0]] & seen[b][index[:, 1]]]
            for (a, b), index in links.items()
        }
        cca = CCA(views, kept, standardize=True)
        return max(_REGULARIZATIONS, key=lambda r: self._score(cca, r, data, held_out))

    def _score(
        self,
        cca: CCA,
        regularization: float,
        data: TrainingSet,
        held_out: Mapping[tuple[str, str], NDArray[np.int64]],
    ) -> float:
        """Mean reciprocal rank of linked rows by cosine similarity, in both directions."""
        W = cca.directions(self.n_bits, regularization, self.power)
        ranks = []
        for names, index in held_out.items():
            rows = []
            for name, column in zip(names, index.T, strict=True):
                projected = (np.asarray(data.views[name][column], np.float64) - cca.mean[name]) @ W[
                    name
                ]
                length = np.linalg.norm(projected, axis=1, keepdims=True)
                rows.append(projected / np.maximum(length, 1e-12))
            similarity = rows[0] @ rows[1].T
            own = np.diag(similarity)
            ranks += [(similarity >= own[:, None]).sum(axis=1), (similarity >= own).sum(axis=0)]
        return float(np.mean(1 / np.concatenate(ranks)))


def fit_transfer(data: TrainingSet, n_bits: int, seed: int) -> HashModel:
    """Learn canonical correlations of aligned rows, for classes that are not among the labels.

    Labels do not shape the codes, which would fit the classes of training only. They choose the
    settings: each third of the classes is searched with codes that were learned from the others.

    Raises:
        DataError: There is one view, or the views are not aligned.
    """
    if len(data.views) < 2 or not data.aligned:
        raise DataError(
            "transfer=True learns from what aligned views share: pass two or more views of the same"
            " rows, with one array of labels or none"
        )
    folds = list(_class_folds(data, seed))
    scores = {
        settings: float(np.mean([_score(fold, settings, n_bits, seed) for fold in folds]))
        for settings in product(_REGULARIZATIONS, _POWERS)
        if folds
    }
    best = max(scores, key=lambda settings: scores[settings]) if scores else (None, 1.0)
    model = _hasher(best, n_bits, seed).fit(data.views, aligned=True)
    card: dict[str, Any] = {"regularization": model.card["regularization"], "power": best[1]}
    if scores:
        card["classes held out"] = {
            f"regularization {regularization:g}, power {power:g}": f"{100 * score:.2f}"
            for (regularization, power), score in scores.items()
        }
    return HashModel(model.encoders, n_bits, card=card)


def _hasher(settings: tuple[float | None, float], n_bits: int, seed: int) -> CCAITQ:
    regularization, power = settings
    return CCAITQ(n_bits=n_bits, seed=seed, regularization=regularization, power=power)


def _class_folds(data: TrainingSet, seed: int) -> Iterator[tuple[_Views, _Views, NDArray[Any]]]:
    """Yield the rows of some classes, and rows and labels of the other classes."""
    labels = next(iter(data.labels.values()), np.empty(0, np.int64))
    present = np.all([data.present[name] for name in data.views], axis=0)
    random = np.random.default_rng([seed, 11])
    rows = random.permutation(np.flatnonzero(present))
    if len(labels) == 0:
        return
    rows = np.sort(rows[is_known(labels[rows])][:_MAX_ROWS])
    member = labels[rows] if labels.ndim == 2 else labels[rows][:, None] == np.unique(labels[rows])
    if member.shape[1] < _MIN_CLASSES:
        return
    for chosen in np.array_split(random.permutation(member.shape[1]), _CLASS_FOLDS):
        held_out = member[:, chosen].any(axis=1)
        if min(held_out.sum(), (~held_out).sum()) < 2:
            continue
        seen, unseen = (
            {name: view[rows[part]] for name, view in data.views.items()}
            for part in (~held_out, held_out)
        )
        yield seen, unseen, member[held_out][:, chosen]


def _score(
    fold: tuple[_Views, _Views, NDArray[Any]], settings: tuple[float, float], n_bits: int, seed: int
) -> float:
    """Mean average precision between all views of classes that are held out."""
    seen, unseen, member = fold
    model = _hasher(settings, n_bits, seed).fit(seen, aligned=True)
    codes = {name: model.encode(name, rows) for name, rows in unseen.items()}
    relevant = from_labels(member, member)
    return float(
        np.mean(
            [
                mean_average_precision(codes[left], codes[right], relevant)
                for left, right in permutations(codes, 2)
            ]
        )
    )

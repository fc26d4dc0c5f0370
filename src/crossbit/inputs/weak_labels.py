r"""Weak labels: unknown ones are filled in, and wrong ones corrected, from views of aligned rows.

**Unknown labels** are filled in by label propagation on the graph of nearest rows: each row takes
the mean of the class scores of its neighbors, many times over, and the scores of each class are
scaled to the share of the class (Zhou et al. 2004, Zhu et al. 2003). Distances are those of all
views together. These scores are multiplied by the geometric mean of the posteriors of the views if
this predicts held-out labels better; one view alone replaces them if it does so by more than a
standard error.

**Wrong labels** are found by a model of the given labels. With $K$ classes and a share
$\varepsilon$ of wrong labels, any other class being equally likely, posteriors that were learned
from these labels are $p_v = (1 - \varepsilon)\, t_v + \varepsilon\, (1 - t_v) / (K - 1)$ of the
posteriors $t_v$ of the true classes. All views together know

$$ q \propto \pi \prod_v (t_v / \pi)^w, \qquad
   P(\text{label}) = (1 - \varepsilon)\, q + \varepsilon\, (1 - q) / (K - 1), $$

where $\pi$ is the share of each class. Views err independently if $w = 1$, together if $w$ is
smaller. $\varepsilon$ and $w$ have the greatest likelihood out of fold: views that err together on
hard rows lower $w$, whereas wrong labels contradict the views even where these are sure. Corrected
labels are kept if posteriors that are learned from them predict the *given* labels better, by more
than two standard errors.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crossbit.data.labels import class_sizes, is_known
from crossbit.data.training_set import TrainingSet
from crossbit.inputs.posteriors import Posteriors
from crossbit.linalg import Floats, Ints, Matrix
from crossbit.model.layers import Standardize

Fit = Callable[[TrainingSet], Posteriors]
_MIN_LABELS = 20  # labeled rows that always suffice, if they are …
_MIN_LABELS_PER_CLASS = 2  # … on average
_FEW = 0.2  # share of labeled rows above which fewer labels suffice
_MIN_AGREEMENT = 0.2  # of views, beyond chance, with which still fewer suffice
_MIN_UNKNOWN = 0.1  # least share of unknown labels that is filled in
_MAX_ROWS = 10_000  # rows among which labels spread
_NEIGHBORS = 10
_SPREADS = 30  # steps of propagation
_REACH = 0.85  # share of a score that moves on in each step
_FOLDS = 10
_MIN_ROWS = 50  # labeled rows of two views that show how many labels are wrong
_MIN_NOISE = 0.1  # least share of wrong labels that is corrected
_MAX_NOISE = 0.9  # as a share of the noise of random labels
_NOISES = 20  # values of ε that are compared
_WEIGHTS = (0.25, 0.5, 0.75, 1.0, 1.25)  # values of w that are compared
_NOISE_ROWS = 1000  # rows that suffice to compare them
_FLOOR = 1e-3  # least posterior of a class


def too_few_labels(data: TrainingSet) -> bool:
    """Whether aligned rows say more than their labels, because too few rows have one.

    Ten labels say less than a thousand items, each seen in two views; unless they spread to the
    same classes in every view, by Cohen's kappa.
    """
    from sklearn.metrics import cohen_kappa_score

    if not data.aligned or len(data.views) < 2 or not data.labels or data.pairs:
        return False
    labels = next(iter(data.labels.values()))
    n = int(is_known(labels).sum())
    n_classes = int(np.count_nonzero(class_sizes(labels)))
    complete = np.all(list(data.present.values()), axis=0)
    enough = n >= max(_MIN_LABELS, _MIN_LABELS_PER_CLASS * n_classes)
    if enough or n >= _FEW * complete.sum():
        return False
    if labels.ndim == 2 or n_classes < 2 or any(view.ndim != 2 for view in data.views.values()):
        return True
    known, rows = _rows_to_spread(data, labels, seed=0)
    if not len(rows):
        return True
    member = _member(labels, known)
    spread = [
        _spread_and_hold_out(_scaled(view[rows]), member)[0].argmax(axis=1)
        for view in data.views.values()
    ]
    kappas = [cohen_kappa_score(*pair) for pair in combinations(spread, 2)]
    return bool(np.mean(kappas) < _MIN_AGREEMENT)


def can_fill(data: TrainingSet) -> bool:
    """Whether unknown labels can be filled in: of aligned rows with one class each."""
    labels = _common_labels(data)
    return labels is not None and len(_rows_to_spread(data, labels, seed=0)[1]) > 0


def _common_labels(data: TrainingSet) -> Ints | None:
    """Return the labels that all views share; None if they differ or rows have several classes."""
    labels, *others = data.labels.values()
    same = all(np.array_equal(labels, other) for other in others)
    return labels if labels.ndim == 1 and data.aligned and same else None


def repair_labels(
    data: TrainingSet, fit: Fit, seed: int
) -> tuple[TrainingSet, Posteriors, str | None]:
    """Fill in unknown labels and correct wrong ones, of aligned rows with one class each.

    Args:
        data: Views and labels.
        fit: Learns posteriors of every view, out of fold for rows with a label.
        seed: Draws the rows, if there are many, and the folds.

    Returns:
        The set with repaired labels, posteriors learned from them, and a note for the model card;
        None if nothing changed.
    """
    labels = _common_labels(data)
    if labels is None:
        return data, fit(data), None
    known, rows = _rows_to_spread(data, labels, seed)
    notes = []
    if len(rows):
        first = fit(data) if len(known) >= _MIN_LABELS else None
        data = _with_labels(data, _fill_unknown(data, first, labels, known, rows))
        notes.append(f"labels of {len(rows) - len(known)} rows filled in")
    posteriors = fit(data)
    corrected, posteriors = _correct(data, posteriors, labels, fit, seed)
    if n_corrected := np.sum(corrected != next(iter(data.labels.values()))):
        data = _with_labels(data, corrected)
        notes.append(f"{100 * n_corrected / is_known(labels).sum():.0f} % of the labels corrected")
    return data, posteriors, "; ".join(notes) or None


def _with_labels(data: TrainingSet, labels: Ints) -> TrainingSet:
    return replace(data, labels=dict.fromkeys(data.labels, labels))


def _member(labels: Ints, rows: Ints) -> Matrix:
    """Return the classes of rows as zeros and ones, (n, classes)."""
    classes = np.unique(labels[labels >= 0])
    return np.asarray(labels[rows, None] == classes, np.float64)


def _rows_to_spread(data: TrainingSet, labels: Ints, seed: int) -> tuple[Ints, Ints]:
    """Return labeled rows that have all views, in random order, and then those to fill in.

    The latter start with the former. None are there if less than a tenth is unknown, or if too few
    are known, or more than enough.
    """
    random = np.random.default_rng([seed, 9])
    complete = np.all(list(data.present.values()), axis=0)
    known = random.permutation(np.flatnonzero(complete & (labels >= 0)))
    unknown = random.permutation(np.flatnonzero(complete & (labels < 0)))
    many = len(unknown) >= max(_MIN_UNKNOWN * (len(known) + len(unknown)), 1)
    if not many or not _FOLDS <= len(known) < _MAX_ROWS:
        return known, known[:0]
    return known, np.concatenate([known, np.sort(unknown[: _MAX_ROWS - len(known)])])


def _fill_unknown(
    data: TrainingSet, posteriors: Posteriors | None, labels: Ints, known: Ints, rows: Ints
) -> Ints:
    """Return the labels, filled in for some rows.

    Args:
        data: The views, aligned.
        posteriors: Learned from the labels, if they are not too few.
        labels: The given classes, −1 for unknown.
        known: Labeled rows in random order.
        rows: The same rows, then those to fill in.
    """
    member = _member(labels, known)
    scaled = [_scaled(view[rows]) for view in data.views.values()]
    candidates = [_spread_and_hold_out(np.hstack(scaled), member)]
    if posteriors is not None:
        views = [np.maximum(P[rows], _FLOOR) for P in posteriors.rows.values()]
        mean = np.exp(np.mean(np.log(views), axis=0))
        scores, held_out = candidates[0]
        candidates.append((_normalized(scores) * mean, _normalized(held_out) * mean[: len(known)]))
    n_together = len(candidates)
    if len(scaled) > 1:
        candidates += [_spread_and_hold_out(features, member) for features in scaled]
    right = [held_out.argmax(axis=1) == member.argmax(axis=1) for _, held_out in candidates]
    best, alone = (
        max(numbers, key=lambda i: right[i].mean(), default=0)
        for numbers in (range(n_together), range(n_together, len(candidates)))
    )
    gain = right[alone].astype(float) - right[best]
    if gain.mean() > gain.std() / np.sqrt(len(gain)):
        best = alone
    filled = labels.copy()
    column = candidates[best][0][len(known) :].argmax(axis=1)
    filled[rows[len(known) :]] = np.unique(labels[labels >= 0])[column]
    return filled


def _scaled(rows: NDArray[np.floating]) -> Floats:
    """Return rows whose columns have zero mean and equal variances, which sum to 1."""
    X = np.asarray(rows, np.float32)
    return np.asarray(Standardize.fit(X)(X) / np.sqrt(X.shape[1]), np.float32)


def _normalized(scores: Matrix) -> Matrix:
    """Return positive scores that sum to 1 in each row."""
    total = np.maximum(scores.sum(axis=1, keepdims=True), 1e-12)
    return np.asarray(np.maximum(scores / total, _FLOOR))


def _spread_and_hold_out(features: Floats, member: Matrix) -> tuple[Matrix, Matrix]:
    """Return class scores of all rows, and of labeled rows as if each had no label.

    Args:
        features: Features of all rows.
        member: Classes of the first rows, in random order, zeros and ones (n, classes).
    """
    from sklearn.neighbors import kneighbors_graph

    n_known, n_classes = member.shape
    near = kneighbors_graph(features, min(_NEIGHBORS, len(features) - 1))
    graph = near + near.T  # mutual neighbors count twice
    walk = graph.multiply(1 / graph.sum(axis=1)).tocsr()
    folds = np.arange(n_known) % _FOLDS
    own = np.zeros((len(features), _FOLDS + 1, n_classes))
    own[:n_known] = member[:, None] * (folds[:, None] != np.arange(_FOLDS + 1))[:, :, None]
    scores = own.reshape(len(own), -1)
    for _ in range(_SPREADS):
        scores = _REACH * (walk @ scores) + own.reshape(scores.shape)
    scores = scores.reshape(own.shape)
    scores *= (own.sum(axis=0) + 0.5) / np.maximum(scores.sum(axis=0), 1e-12)  # class mass
    return scores[:, _FOLDS], scores[np.arange(n_known), folds]


def _correct(
    data: TrainingSet, posteriors: Posteriors, given: Ints, fit: Fit, seed: int
) -> tuple[Ints, Posteriors]:
    """Correct the labels if this predicts the given ones better; return labels and posteriors.

    Args:
        data: Views and labels, those that were unknown filled in.
        posteriors: Learned from them.
        given: Labels that may be wrong, −1 for unknown.
        fit: As for `repair_labels`.
        seed: Draws the rows that show how many labels are wrong.
    """
    learned: Ints = next(iter(data.labels.values()))
    classes = posteriors.classes
    known = np.flatnonzero(is_known(given))
    column = np.searchsorted(classes, given[known])
    P = _stacked(posteriors, known)
    seen_twice = np.flatnonzero((~np.isnan(P[:, :, 0])).sum(axis=0) > 1)
    if len(classes) < 2 or len(seen_twice) < _MIN_ROWS:
        return learned, posteriors
    sample = np.random.default_rng([seed, 10]).permutation(seen_twice)[:_NOISE_ROWS]
    noise, w = _fit_noise(P[:, sample], column[sample])
    if noise < _MIN_NOISE:
        return learned, posteriors
    log_prior, ratios = _log_ratios(P, noise)
    scores = log_prior + w * ratios
    odds = (1 - noise) * (len(classes) - 1) / noise  # of the given class
    scores[np.arange(len(scores)), column] += np.log(odds)
    corrected = learned.copy()
    corrected[known] = classes[scores.argmax(axis=1)]
    if not np.array_equal(np.unique(corrected[corrected >= 0]), classes):
        return learned, posteriors
    again = fit(_with_labels(data, corrected))
    gain = _evidence(_stacked(again, known), column) - _evidence(P, column)
    if gain.mean() <= 2 * gain.std() / np.sqrt(len(gain)):
        return learned, posteriors
    return corrected, again


def _stacked(posteriors: Posteriors, rows: Ints) -> Matrix:
    """Return posteriors as one array, (views, n, classes)."""
    return np.stack([P[rows] for P in posteriors.rows.values()]).astype(np.float64)


def _noises(n_classes: int) -> Matrix:
    return np.linspace(0, _MAX_NOISE * (1 - 1 / n_classes), _NOISES)


def _log_likelihood(q: Matrix, column: Ints, noise: float) -> Matrix:
    """Log-likelihood of each label if a share of the labels is wrong, uniformly."""
    own = np.take_along_axis(q, column[:, None], axis=1)[:, 0]
    likelihood = (1 - noise) * own + noise * (1 - own) / (q.shape[1] - 1)
    return np.asarray(np.log(np.maximum(likelihood, 1e-12)))


def _evidence(P: Matrix, column: Ints) -> Matrix:
    """Log-likelihood of each label by all views, one by one, at the likeliest share of noise."""
    likelihoods: list[Matrix] = [
        np.nansum([_log_likelihood(view, column, noise) for view in P], axis=0)
        for noise in _noises(P.shape[2])
    ]
    return max(likelihoods, key=lambda each: float(each.mean()))


def _log_ratios(P: Matrix, noise: float) -> tuple[Matrix, Matrix]:
    r"""Return $\log \pi$ and $\sum_v \log (t_v / \pi)$, (n, classes).

    Args:
        P: Posteriors of each view, (views, n, classes), NaN where a row is absent.
        noise: Share of wrong labels among those that they were learned from.
    """
    floor = noise / (P.shape[2] - 1)  # probability of each wrong label
    true = np.maximum((P - floor) / (1 - noise - floor), _FLOOR)
    true /= true.sum(axis=2, keepdims=True)
    log_prior = np.log(np.nanmean(true, axis=(0, 1)))
    return log_prior, np.nansum(np.log(true) - log_prior, axis=0)


def _fit_noise(P: Matrix, column: Ints) -> tuple[float, float]:
    """Return the share of wrong labels and the weight of each view that are the likeliest.

    Args:
        P: Posteriors of each view, (views, n, classes), NaN where a row is absent.
        column: The column of each row's label.
    """
    from scipy.special import softmax

    likelihoods = {}
    for noise in _noises(P.shape[2]):
        log_prior, ratios = _log_ratios(P, noise)
        for w in _WEIGHTS:
            q = softmax(log_prior + w * ratios, axis=1)
            likelihoods[noise, w] = _log_likelihood(q, column, noise).mean()
    return max(likelihoods, key=lambda pair: likelihoods[pair])

"""What is tried when nothing is set: candidates, and the rounds in which the best of them are carried on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from crossbit.neural.candidate import Begin, Candidate
from crossbit.neural.settings import Settings, margins

# Evenness of similar and dissimilar pairs, margin in percent of the largest distance, β: noisy classes want even
# weights and large margins, clean ones the opposite.
_ON_POSTERIORS = ((0.0, 50, 4.0), (0.0, 71, 4.0), (0.5, 71, 4.0), (1.0, 71, 1.0), (1.0, 90, 1.0), (1.0, 100, 1.0))
_REGULARISATIONS = (0.1, 0.01, 1.0, 10.0)
_POWERS = (2.0, 0.5)
_STEEP = (2.0, 4.0)  # β of networks that maximise the metric itself
_WHOLE = 256  # rows up to which every step sees all of them


def as_given(base: Settings, begin: Begin, both: bool) -> list[Candidate]:
    """A network as the settings say; or ``both`` this and one by the ranking loss of labels."""
    found = [Candidate("network", base, begin)]
    if both:
        ranking = replace(base, losses={**base.losses, "labels": "ranking"})
        found.append(Candidate("network, ranking", ranking, begin))
    return found


def on_posteriors(base: Settings, begin: Begin, names: Sequence[str], largest: int) -> list[Candidate]:
    """Networks on posteriors, which tell how probably two rows are similar; they never look at labels.

    Args:
        base: Settings that all share.
        begin: Makes their layers.
        names: The modalities.
        largest: Rows of the largest of them.
    """
    batch = 192 if largest > _WHOLE else None
    base = replace(base, expected=True, optimiser="adam", rate=0.02, batch=batch, every=20, patience=3)
    found = []
    for evenness, share, beta in _ON_POSTERIORS:
        distances = margins(f"{share}%", names, base.n_bits)
        settings = replace(base, evenness=evenness, margins=distances, beta=(beta, beta))
        found.append(Candidate(f"margin {share}%, evenness {evenness:g}, beta {beta:g}", settings, begin))
    for beta in _STEEP:
        settings = replace(base, losses={**base.losses, "labels": "precision"}, beta=(beta, beta), decay=0.0)
        found.append(Candidate(f"precision, beta {beta:g}", settings, begin))
    return found


def at_length(ranked: Sequence[Candidate], steps: int) -> list[Candidate]:
    """The best two again, for more steps of larger batches."""
    found = []
    for candidate in ranked[:2]:
        batch = candidate.settings.batch and 256
        settings = replace(candidate.settings, steps=steps, every=steps, batch=batch)
        found.append(replace(candidate, name=f"{candidate.name}, longer", settings=settings))
    return found


def from_correlations(base: Settings, begin: Callable[[float, float], Begin]) -> list[Candidate]:
    """Canonical correlations as they are, by how much they are regularised.

    Args:
        base: Settings that all share.
        begin: Regularisation, and power of the correlations that weigh directions → what makes the layers.
    """
    still = replace(base, steps=0)
    return [Candidate(_named(r, 1.0), still, begin(r, 1.0)) for r in _REGULARISATIONS]


def weighed(ranked: Sequence[Candidate], begin: Callable[[float, float], Begin]) -> list[Candidate]:
    """The best regularisation with other weights of the directions."""
    best = next(r for r in _REGULARISATIONS if ranked[0].name == _named(r, 1.0))
    return [replace(ranked[0], name=_named(best, p), begin=begin(best, p)) for p in _POWERS]


def ranked_from(ranked: Sequence[Candidate], steps: int) -> list[Candidate]:
    """Networks that begin at the best correlations and do not go far from them, by the ranking loss."""
    found = []
    for sharpness, decay in product((1.0, 0.3), (0.1, 0.01)):
        settings = replace(ranked[0].settings, steps=steps, temperature=sharpness / ranked[0].settings.n_bits ** 0.5)
        settings = replace(settings, decay=decay, anchored=True)
        name = f"{ranked[0].name}, then ranking, temperature {settings.temperature:.2g}, decay {decay:g}"
        found.append(replace(ranked[0], name=name, settings=settings))
    return found


def _named(regularisation: float, power: float) -> str:
    return f"canonical correlations, regularisation {regularisation:g}, power {power:g}"

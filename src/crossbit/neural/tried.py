"""What is tried when nothing is set: candidates, and the rounds in which the best of them are carried on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TypeAlias

from crossbit.neural.candidate import Begin, Candidate, Chain, Plan
from crossbit.neural.settings import Settings, margins

Start: TypeAlias = Callable[..., Mapping[str, Chain]]

# Evenness of similar and dissimilar pairs, margin in percent of the largest distance, β: noisy classes want even
# weights and large margins, clean ones the opposite.
_ON_POSTERIORS = ((0.0, 71, 4.0), (1.0, 71, 1.0), (1.0, 90, 1.0), (1.0, 100, 1.0))
_REGULARIZATIONS = (0.1, 0.01, 1.0, 10.0)
_POWERS = (2.0, 0.5)
_STEEP = (2.0, 4.0)  # β of networks that maximize the metric itself
_WHOLE = 256  # rows up to which every step sees all of them


def as_given(base: Settings, begin: Begin, both: bool, held_out: float) -> Plan:
    """A network as the settings say; or ``both`` this and one by the ranking loss of labels."""
    found = [Candidate("network", base, begin)]
    if both:
        ranking = replace(base, losses={**base.losses, "labels": "ranking"})
        found.append(Candidate("network, ranking", ranking, begin))
    return Plan(found, held_out=held_out)


def on_posteriors(
    base: Settings, begin: Begin, names: Sequence[str], largest: int, longer: int
) -> Plan:
    """Networks on posteriors, which tell how probably two rows are similar; they never look at labels.

    All are tried briefly, the best two at length.

    Args:
        base: Settings that all share.
        begin: Makes their layers.
        names: The modalities.
        largest: Rows of the largest of them.
        longer: Steps at length.
    """
    batch = 192 if largest > _WHOLE else None
    base = replace(
        base, expected=True, optimizer="adam", rate=0.02, batch=batch, every=20, patience=3
    )
    found = []
    for evenness, share, beta in _ON_POSTERIORS:
        distances = margins(f"{share}%", names, base.n_bits)
        settings = replace(base, evenness=evenness, margins=distances, beta=(beta, beta))
        found.append(
            Candidate(f"margin {share}%, evenness {evenness:g}, beta {beta:g}", settings, begin)
        )
    for beta in _STEEP:
        settings = replace(
            base, losses={**base.losses, "labels": "precision"}, beta=(beta, beta), decay=0.0
        )
        found.append(Candidate(f"precision, beta {beta:g}", settings, begin))
    return Plan(found, [partial(_at_length, steps=longer)])


def _at_length(ranked: Sequence[Candidate], steps: int) -> list[Candidate]:
    """The best two again, for more steps of larger batches."""
    found = []
    for candidate in ranked[:2]:
        batch = candidate.settings.batch and 256
        settings = replace(candidate.settings, steps=steps, every=steps, batch=batch)
        found.append(replace(candidate, name=f"{candidate.name}, longer", settings=settings))
    return found


def from_correlations(base: Settings, start: Start, held_out: float) -> Plan:
    """Networks that begin as canonical correlations of rows that belong together.

    Regularizations are tried first, then weights of the directions, then the ranking loss from the best on.

    Args:
        base: Settings that all share.
        start: Makes layers of a part, given a regularization and the power of the correlations that weigh directions.
        held_out: Share of the rows that choose.
    """
    base = replace(base, optimizer="adam", rate=0.005, batch=256, every=50, patience=3)
    found = [_start(base, start, regularization, 1.0) for regularization in _REGULARIZATIONS]
    return Plan(
        found, [partial(_weighed, base=base, start=start), partial(_ranked, base=base)], held_out
    )


def _start(base: Settings, start: Start, regularization: float, power: float) -> Candidate:
    """Correlations as they are."""
    name = f"correlations, regularization {regularization:g}, power {power:g}"
    begin = partial(start, regularization=regularization, power=power)
    return Candidate(name, replace(base, steps=0), begin)


def _weighed(ranked: Sequence[Candidate], base: Settings, start: Start) -> list[Candidate]:
    """The best regularization with other weights of the directions."""
    tried = {_start(base, start, r, 1.0).name: r for r in _REGULARIZATIONS}
    return [_start(base, start, tried[ranked[0].name], power) for power in _POWERS]


def _ranked(ranked: Sequence[Candidate], base: Settings) -> list[Candidate]:
    """The best correlations, carried on by the ranking loss, which does not let them go far."""
    found = []
    for sharpness, decay in product((1.0, 0.3), (0.1, 0.01)):
        temperature = sharpness / base.n_bits**0.5
        settings = replace(base, temperature=temperature, decay=decay, anchored=True)
        name = f"{ranked[0].name}, ranking, temperature {temperature:.2g}, decay {decay:g}"
        found.append(replace(ranked[0], name=name, settings=settings))
    return found

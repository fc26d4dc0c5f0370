"""What methods are told: which shapes are of one class, and which are not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset, Pairs

N_PAIRS = (10_000, 50_000)  # similar and dissimilar, of each loss, as far as there are so many


def tell(
    train: Dataset, seed: int, *, share: float = 1.0, within: bool = True, distractors: bool = True
) -> Mapping[str, Any]:
    """Pairs drawn evenly from all there are: similar are shapes of one class, dissimilar those of different ones.

    A distractor is dissimilar to every shape of a class; nothing is said about two distractors.

    Args:
        train: Shapes to learn from; distractors have the label −1.
        seed: Of the draw.
        share: Of the pairs across modalities, so many are told.
        within: Whether pairs within the modalities are told, all of them.
        distractors: Whether pairs with distractors are among them.
    """
    (a, b), labels = train.modalities, np.asarray(train.labels)
    known = labels >= 0
    alike = (labels[:, None] == labels) & known
    unlike = (labels[:, None] != labels) & (
        (known[:, None] | known) if distractors else (known[:, None] & known)
    )
    random = np.random.default_rng(seed)
    pairs = [_draw(a, b, alike, unlike, share, random)]
    if within:
        upper = np.triu(np.ones_like(alike), 1)  # an unordered pair once
        pairs += [_draw(name, name, alike & upper, unlike & upper, 1.0, random) for name in (a, b)]
    return {"views": train.views, "pairs": pairs, "rows": False}


def _draw(
    left: str,
    right: str,
    alike: NDArray[np.bool_],
    unlike: NDArray[np.bool_],
    share: float,
    random: np.random.Generator,
) -> Pairs:
    drawn = []
    for cells, most in zip((alike, unlike), N_PAIRS, strict=True):
        index = np.argwhere(cells)
        chosen = random.choice(len(index), round(share * min(most, len(index))), replace=False)
        drawn.append(index[np.sort(chosen)])
    similar = np.repeat([True, False], [len(index) for index in drawn])
    return Pairs(left, right, np.concatenate(drawn), similar)

r"""Class codes: what a method makes of posteriors that are certain.

Papers on supervised hashing often give base items codes that were learned together with their
labels: the base knows its classes, and retrieval becomes classification of the query. The code of
a class, for a model whose inputs are class posteriors, is

$$\operatorname{sign} \frac1M \sum_{m=1}^M f_m(e_c),$$

where $f_m$ are the layers of modality $m$ after the posteriors and $e_c$ are posteriors of 1 for
the class $c$, or for each class of a row that has several, and 0 for all others. All modalities
share these codes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import (
    Evaluation,
    Protocol,
    encode_split,
    evaluate_splits,
    shared_directions,
)
from crossbit.model import HashModel, Layer, Softmax, Tanh

_Rows = NDArray[np.float32]


class NoPosteriorsError(DataError):
    """The inputs of a model are no class posteriors, so it has no class codes."""


def evaluate_with_class_codes(model: HashModel, data: Dataset, protocol: Protocol) -> Evaluation:
    """Evaluate a model on a base with class codes; queries are encoded from their features.

    So are base rows whose classes are unknown or did not occur in training.

    Args:
        model: A model whose inputs are posteriors of the classes of the training labels.
        data: Data set with labels of every modality.
        protocol: Splits and measures.

    Raises:
        NoPosteriorsError: The inputs of the model are no posteriors.
    """
    directions = shared_directions(model, data, protocol)
    classes = _training_classes(data, protocol.train_split)
    labels = data.labels_by_modality()
    queries = {}
    base = {}
    for name in dict.fromkeys(left for left, _ in directions):
        queries[name] = encode_split(model, data, protocol.queries, name)
        codes, rows = encode_split(model, data, protocol.base, name)
        if name not in labels:
            raise DataError(f"class codes need labels of every modality, {name!r} has none")
        own = np.asarray(labels[name])[rows]
        member = own[:, classes] if own.ndim == 2 else own[:, None] == classes
        known = member.any(axis=1)
        words = codes.words.copy()
        words[known] = class_codes(model, member[known], several=own.ndim == 2).words
        base[name] = Codes(words, model.n_bits), rows
    return evaluate_splits(queries, base, data, protocol, directions)


def class_codes(model: HashModel, member: NDArray[np.bool_], *, several: bool) -> Codes:
    """Return the codes of rows of known classes.

    Args:
        model: A model whose inputs are posteriors.
        member: Which classes each row has, shape (n, classes), in the order of the posteriors.
        several: Whether a row may have several classes. Their posteriors $p$ are the outputs
            $2p - 1$ of a layer `Tanh`; those of a single class are the outputs of a `Softmax`.

    Raises:
        NoPosteriorsError: The inputs of a modality are no such posteriors.
    """
    certain: _Rows = member.astype(np.float32)
    if several:
        certain = 2 * certain - 1
    kind = Tanh if several else Softmax
    method = HashModel(
        {name: _after_posteriors(model, name, kind) for name in model.modalities}, model.n_bits
    )
    for name in method.modalities:
        if method.width(name) not in (None, member.shape[1]):
            raise DataError(
                f"the model has posteriors of {method.width(name)} classes, the training labels"
                f" have {member.shape[1]}; use the labels that the model was trained on"
            )
    scores = [method.scores(name, certain).astype(np.float64) for name in method.modalities]
    return Codes.pack(np.mean(scores, axis=0) >= 0)


def _after_posteriors(model: HashModel, modality: str, kind: type[Layer]) -> Sequence[Layer]:
    """Return the layers after the posteriors: after the last layer of a kind among the inputs."""
    layers = model.encoders[modality]
    n_inputs = model.n_inputs[modality]
    for number in reversed(range(n_inputs)):
        if isinstance(layers[number], kind):
            return layers[number + 1 :]
    raise NoPosteriorsError(
        f"no class posteriors among the inputs of {modality!r}: expected a layer {kind.kind!r}"
        f" among its {n_inputs} input layers; train the method on posteriors"
    )


def _training_classes(data: Dataset, split: str) -> NDArray[np.int64]:
    """Class numbers that occur in the training labels of any modality, sorted: the columns."""
    labels = data.part(split).labels_by_modality()
    if not labels:
        raise DataError("class codes need labels, the data set has none")
    occurring = [
        np.flatnonzero(array.any(axis=0)) if array.ndim == 2 else array[array >= 0]
        for array in map(np.asarray, labels.values())
    ]
    return np.unique(np.concatenate(occurring))

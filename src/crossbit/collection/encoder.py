"""Encode what callers pass: rows of numbers, codes, or raw inputs."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit import features
from crossbit._validation import check_known, check_rows, present_rows
from crossbit.codes import Codes
from crossbit.collection.payloads import check_ids
from crossbit.collection.stores import EncodedView, FeatureBatches, StaleModelError
from crossbit.collection.values import KEPT, SCORES, Id, KeptRows
from crossbit.errors import DataError, RowError
from crossbit.features.extractor import Extractor, RawInput
from crossbit.features.image import limit_uploads
from crossbit.index.weights import quantize
from crossbit.kernels.matmul import pack_signs
from crossbit.metrics.weak import Thresholds, thresholds
from crossbit.model.hashmodel import HashModel

Inputs: TypeAlias = "ArrayLike | Codes | KeptRows | Sequence[RawInput | Sequence[RawInput] | None]"
"""Rows of numbers, codes, or raw inputs, possibly several per item, of a modality with a recipe."""

_ALTERNATIVES = "choose another modality, or pass vectors or an item's id"


def check_model(model: object) -> None:
    """Reject what is not a model, such as the path of one."""
    if not isinstance(model, HashModel):
        raise DataError(
            f"expected a HashModel, got {type(model).__name__}; load a folder with HashModel.load"
        )


def check_keep(keep: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return what a new collection shall keep, in a fixed order."""
    names = [keep] if isinstance(keep, str) else list(keep or ())
    if unknown := [name for name in names if name not in KEPT]:
        raise DataError(f"keep must be 'scores', 'features', both or None, got {unknown[0]!r}")
    return tuple(name for name in KEPT if name in names)


def encode_with_scores(
    model: HashModel, modality: str, rows: NDArray[Any]
) -> tuple[Codes, NDArray[np.float32]]:
    """Run the network once: the bits are the signs of the scores, 1 where ≥ 0."""
    scores = model.scores(modality, rows)
    return Codes(pack_signs(scores), model.n_bits, model=model.fingerprint()), scores


def encode_items(
    model: HashModel, modality: str, rows: NDArray[Any], counts: NDArray[np.intp]
) -> tuple[Codes, NDArray[Any], NDArray[Any]]:
    """Encode items with one or several rows each: the bits are the signs of the mean scores.

    Args:
        model: The model.
        modality: Modality of the rows.
        rows: Feature rows, item by item.
        counts: Number of rows of each item, at least 1.

    Returns:
        Codes, mean scores and mean rows of the items.
    """
    codes, scores = encode_with_scores(model, modality, rows)
    if len(counts) == len(rows):
        return codes, scores, rows
    starts = np.cumsum(counts) - counts
    mean_scores, mean_rows = (
        np.add.reduceat(values.astype(np.float64), starts, axis=0) / counts[:, None]
        for values in (scores, rows)
    )
    return replace(Codes.pack(mean_scores >= 0), model=codes.model), mean_scores, mean_rows


@dataclass(frozen=True)
class EncodedQueries:
    """Queries of one search after encoding.

    Args:
        codes: One code per query.
        scores: The real-valued outputs, or kept scores; None if they are not known or not needed.
        features: The rows that were encoded; None for codes.
        terms: Words or tags recognized in each query, if the queries were raw inputs.
        exact_terms: Whether the terms are tags of the extractor's vocabulary.
    """

    codes: Codes
    scores: NDArray[Any] | None = None
    features: NDArray[Any] | None = None
    terms: Sequence[Sequence[str]] = ()
    exact_terms: bool = False


class Encoder:
    """A model and the extractors of its recipes, each loaded once.

    Safe to use from many threads.

    Args:
        model: The model.
        keep: What the collection keeps beside the codes.
    """

    def __init__(self, model: HashModel, keep: Sequence[str] = ()) -> None:
        self.model = model
        self.keep = keep
        self._lock = threading.Lock()
        self._extractors: dict[str, Extractor] = {}

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the model."""
        return self.model.fingerprint()

    @cached_property
    def thresholds(self) -> Thresholds:
        """Distances beyond which matches are weak, per direction."""
        return thresholds(self.model)

    def accepts(self, modality: str, *, trusted: bool = True) -> str | None:
        """Return the kind of raw input of a modality, without loading its extractor."""
        check_known(modality, self.model.modalities)
        extractor = self._extractor_class(modality)
        if extractor is None:
            return None
        safe = extractor.accepts == "text" or extractor.accepts_uploads
        return extractor.accepts if trusted or safe else None

    @staticmethod
    def are_raw(inputs: object) -> bool:
        """Return whether inputs need an extractor: strings, paths, bytes or lists of tags."""
        if isinstance(inputs, str | bytes | PathLike):
            raise DataError(
                f"expected a list of inputs, got one {type(inputs).__name__}; pass [input]"
            )
        if not isinstance(inputs, list | tuple):
            return False
        first = next((raw for raw in inputs if raw is not None), None)
        if isinstance(first, list | tuple) and first:
            first = first[0]
        return isinstance(first, str | bytes | PathLike)

    def _extractor_class(self, modality: str) -> type[Extractor] | None:
        """Return the class of a modality's extractor; None without a recipe of a known kind."""
        try:
            return features.extractor_class(self.model.recipes[modality].kind)
        except (KeyError, DataError):
            return None

    def feature_batches(
        self, batches: Iterable[tuple[Sequence[Id], Mapping[str, Inputs]]]
    ) -> FeatureBatches:
        """Yield checked ids and the rows of their inputs, batch by batch."""
        for ids, views in batches:
            yield check_ids(ids), {name: self.features(name, x) for name, x in views.items()}

    def features(self, modality: str, inputs: Inputs, *, trusted: bool = True) -> NDArray[Any]:
        """Return feature rows, one per input; raw inputs pass through the modality's extractor."""
        check_known(modality, self.model.modalities)
        if not self.are_raw(inputs):
            return check_rows(inputs, f"rows of {modality!r}")  # type: ignore[arg-type]
        return self._extract(modality, inputs, trusted=trusted)  # type: ignore[arg-type]

    def encode_queries(
        self, modality: str, inputs: Inputs, *, with_scores: bool = False, trusted: bool = True
    ) -> EncodedQueries:
        """Encode the queries of a search, with scores if their hits shall be reranked."""
        if isinstance(inputs, Codes):
            return EncodedQueries(self._check_codes(modality, inputs))
        if isinstance(inputs, KeptRows):
            codes = self._check_codes(modality, inputs.codes)
            scores: NDArray[Any] | None = inputs.scores
            if with_scores and scores is None and inputs.features is not None:
                scores = self.model.scores(modality, inputs.features)
            return EncodedQueries(codes, scores, inputs.features)
        rows = self.features(modality, inputs, trusted=trusted)
        if with_scores:
            queries = EncodedQueries(*encode_with_scores(self.model, modality, rows), rows)
        else:
            queries = EncodedQueries(self.model.encode(modality, rows))
        if not self.are_raw(inputs):
            return queries
        extractor = self._extractor(modality)
        terms = [extractor.terms(raw) for raw in inputs]  # type: ignore[union-attr,arg-type]
        return replace(queries, terms=terms, exact_terms=extractor.exact_terms)

    def encode_views(
        self,
        views: Mapping[str, Inputs],
        n_items: int,
        *,
        trusted: bool = True,
    ) -> dict[str, EncodedView]:
        """Encode a batch of items.

        An item does not have a modality if its row there is all NaN, or its raw input is None.
        """
        if not isinstance(views, Mapping):
            raise DataError(
                f"views must map modalities to rows, such as {{'image': X}}; got"
                f" {type(views).__name__}"
            )
        return {
            modality: self._encode_view(modality, inputs, n_items, trusted=trusted)
            for modality, inputs in views.items()
        }

    def _encode_view(
        self, modality: str, inputs: Inputs, n_items: int, *, trusted: bool
    ) -> EncodedView:
        if _length(inputs) != n_items:
            raise DataError(
                f"rows of {modality!r}: expected one for each of {n_items} ids, got"
                f" {_length(inputs)}"
            )
        positions = _present(inputs)
        if len(positions) < n_items:
            inputs = (
                [inputs[i] for i in positions]
                if isinstance(inputs, list | tuple)
                else np.asarray(inputs)[positions]
            )
        if not len(positions):
            check_known(modality, self.model.modalities)
            empty = np.empty((0, -(-self.model.n_bits // 64)), np.uint64)
            return EncodedView(positions, Codes(empty, self.model.n_bits))
        if isinstance(inputs, Codes):
            return EncodedView(positions, self._check_codes(modality, inputs))
        if isinstance(inputs, KeptRows):
            codes = self._check_codes(modality, inputs.codes)
            return EncodedView(positions, codes, inputs.features, inputs.scores)
        owners = positions
        counts = None
        if self._has_lists(modality, inputs):
            inputs, counts = _flattened(modality, inputs)  # type: ignore[arg-type]
            owners = np.repeat(positions, counts)
        try:
            rows = self.features(modality, inputs, trusted=trusted)
            if counts is None and SCORES not in self.keep:
                return EncodedView(positions, self.model.encode(modality, rows), rows)
            counts = np.ones(len(rows), np.intp) if counts is None else counts
            codes, scores, rows = encode_items(self.model, modality, rows, counts)
        except RowError as error:  # the caller counts items, also those without an input
            raise error.renumbered(int(owners[error.row])) from error
        kept = quantize(scores.astype(np.float32)) if SCORES in self.keep else None
        return EncodedView(positions, codes, rows, kept)

    def _has_lists(self, modality: str, inputs: Inputs) -> bool:
        """Whether items have several raw inputs; a list of tags is one input."""
        extractor = self._extractor_class(modality)
        return (
            isinstance(inputs, list | tuple)
            and self.are_raw(inputs)
            and extractor is not None
            and not extractor.exact_terms
            and any(isinstance(raw, list | tuple) for raw in inputs)
        )

    def _check_codes(self, modality: str, codes: Codes) -> Codes:
        if codes.model not in (None, self.fingerprint):
            raise StaleModelError(
                f"the codes of {modality!r} were made by the model {str(codes.model)[:16]}, those"
                f" of the collection by {self.fingerprint[:16]}; encode again with its model"
            )
        check_known(modality, self.model.modalities)
        if codes.n_bits != self.model.n_bits:
            raise DataError(
                f"the collection holds codes of {self.model.n_bits} bits, got {codes!r}"
            )
        return codes

    def _extract(self, modality: str, inputs: Sequence[RawInput], *, trusted: bool) -> NDArray[Any]:
        if modality not in self.model.recipes:
            raise DataError(
                f"the model has no recipe for raw inputs of {modality!r}; pass rows of numbers or"
                " Codes (on the command line --rows or --like), or use a model that"
                " 'crossbit learn' trained"
            )
        if trusted:
            return self._extractor(modality).extract(inputs)
        self._check_untrusted(modality, inputs)
        with limit_uploads():
            return self._extractor(modality).extract(inputs)

    def _check_untrusted(self, modality: str, inputs: Sequence[RawInput]) -> None:
        """Refuse raw inputs of unknown origin that an extractor could take for the path of a file.

        This is a security boundary: extractors of images and other files open a string as a path.
        Text of a client may therefore only reach extractors of text, and all other extractors are
        given the bytes of a file, never its path.
        """
        kind = self.accepts(modality, trusted=False)
        if kind is None:
            raise DataError(f"{modality!r} accepts no raw inputs from clients; {_ALTERNATIVES}")
        is_allowed = _is_text if kind == "text" else _is_contents
        expected = "text" if kind == "text" else f"the contents of a file ({kind})"
        for raw in inputs:
            if not is_allowed(raw):
                actual = "text" if _is_text(raw) else type(raw).__name__
                raise DataError(f"{modality!r} accepts {expected}, got {actual}; {_ALTERNATIVES}")

    def _extractor(self, modality: str) -> Extractor:
        with self._lock:  # loading a network takes seconds and must happen once
            if modality not in self._extractors:
                self._extractors[modality] = features.load_extractor(self.model.recipes[modality])
            return self._extractors[modality]


def _flattened(
    modality: str, inputs: Sequence[RawInput | Sequence[RawInput]]
) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the inputs of all items, which have one or several, and how many each has."""
    lists = [list(raw) if isinstance(raw, list | tuple) else [raw] for raw in inputs]
    if not all(lists):
        raise DataError(f"{modality!r}: an item has an empty list; pass None if it has no input")
    return [raw for each in lists for raw in each], np.array([len(each) for each in lists])


def _is_text(raw: object) -> bool:
    """Return whether an input is a text or a list of tags."""
    if isinstance(raw, list | tuple):
        return all(isinstance(tag, str) for tag in raw)
    return isinstance(raw, str)


def _is_contents(raw: object) -> bool:
    """Return whether an input is the contents of a file, and not its path."""
    return isinstance(raw, bytes)


def _length(inputs: object) -> int:
    try:
        return len(inputs)  # type: ignore[arg-type]
    except TypeError as error:
        raise DataError(
            f"expected rows or a list of raw inputs, got {type(inputs).__name__}"
        ) from error


def _present(inputs: Inputs) -> NDArray[np.intp]:
    """Return the positions of inputs that are neither None nor all NaN."""
    if isinstance(inputs, list | tuple) and any(raw is None for raw in inputs):
        return np.flatnonzero([raw is not None for raw in inputs])
    if isinstance(inputs, np.ndarray) and inputs.ndim > 1:
        return np.flatnonzero(present_rows(inputs))
    return np.arange(_length(inputs))

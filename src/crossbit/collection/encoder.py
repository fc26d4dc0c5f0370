"""Encode what callers pass: rows of numbers, codes, or raw inputs."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit import features
from crossbit._validation import check_known, check_rows, present_rows
from crossbit.codes import Codes
from crossbit.collection.store import EncodedView
from crossbit.collection.types import Hit, Results
from crossbit.errors import DataError
from crossbit.features.extractor import Extractor, RawInput
from crossbit.index.hamming import weighted_hamming
from crossbit.kernels.matmul import pack_signs
from crossbit.model.hashmodel import HashModel

Inputs: TypeAlias = "ArrayLike | Codes | Sequence[RawInput | None]"
"""Rows of numbers, codes, or raw inputs of a modality whose model has a recipe."""

_ALTERNATIVES = "choose another modality, or pass vectors or an item's id"


@dataclass(frozen=True)
class _EncodedQueries:
    """Queries of one search after encoding.

    Args:
        codes: One code per query.
        scores: Real-valued outputs whose signs are the codes, if they were requested.
        terms: Words or tags recognized in each query, if the queries were raw inputs.
        exact_terms: Whether the terms are tags of the extractor's vocabulary.
    """

    codes: Codes
    scores: NDArray[np.float32] | None = None
    terms: Sequence[Sequence[str]] | None = None
    exact_terms: bool = False

    def results(self, answers: Sequence[list[Hit]], k: int, min_similarity: float) -> list[Results]:
        """Turn the hits of each query into results: reranked if there are scores, k at most."""
        return [
            Results(
                [hit for hit in self._rank(row, hits)[:k] if hit.similarity >= min_similarity],
                self.codes,
                row,
                terms=() if self.terms is None else self.terms[row],
                exact_terms=self.exact_terms,
            )
            for row, hits in enumerate(answers)
        ]

    def _rank(self, row: int, hits: list[Hit]) -> list[Hit]:
        """Order hits by the weighted distance of the query's scores; ties keep their order."""
        codes = [hit.code.words for hit in hits if hit.code is not None]
        if self.scores is None or not codes:
            return hits
        costs = weighted_hamming(self.scores[row], Codes(np.concatenate(codes), self.codes.n_bits))
        return [hits[i] for i in np.argsort(costs, kind="stable").tolist()]


class Encoder:
    """A model and the extractors of its recipes, each loaded once.

    Safe to use from many threads.

    Args:
        model: The model.
    """

    def __init__(self, model: HashModel) -> None:
        self.model = model
        self._lock = threading.Lock()
        self._extractors: dict[str, Extractor] = {}

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the model."""
        return self.model.fingerprint()

    def targets(self, target: str | Iterable[str] | None) -> list[str]:
        """Return the modalities to search: one name, several, or None for all."""
        if target is None:
            return self.model.modalities
        if not isinstance(target, Iterable):
            raise DataError(
                f"target: expected modalities of {self.model.modalities}, got {target!r}"
            )
        names = [target] if isinstance(target, str) else list(target)
        if not names:
            raise DataError(
                f"target: expected at least one modality of {self.model.modalities}, got none"
            )
        return [check_known(name, self.model.modalities) for name in dict.fromkeys(names)]

    def accepts(self, modality: str, *, trusted: bool = True) -> str | None:
        """Return the kind of raw input of a modality, without loading its extractor."""
        check_known(modality, self.model.modalities)
        extractor = self._extractor_class(modality)
        if extractor is None:
            return None
        safe = extractor.accepts == "text" or extractor.accepts_uploads
        return extractor.accepts if trusted or safe else None

    def _extractor_class(self, modality: str) -> type[Extractor] | None:
        """Return the class of a modality's extractor; None without a recipe of a known kind."""
        try:
            return features.extractor_class(self.model.recipes[modality].kind)
        except (KeyError, DataError):
            return None

    def features(self, modality: str, inputs: Inputs, *, trusted: bool = True) -> NDArray[Any]:
        """Return feature rows, one per input; raw inputs pass through the modality's extractor."""
        check_known(modality, self.model.modalities)
        if not _are_raw(inputs):
            return check_rows(inputs, f"rows of {modality!r}")  # type: ignore[arg-type]
        return self._extract(modality, inputs, trusted=trusted)  # type: ignore[arg-type]

    def encode_queries(
        self, modality: str, inputs: Inputs, *, with_scores: bool = False, trusted: bool = True
    ) -> _EncodedQueries:
        """Encode the queries of a search, with their scores if they will be reranked."""
        if isinstance(inputs, Codes):
            if with_scores:
                raise DataError(
                    "rerank needs real-valued scores; pass rows of numbers instead of Codes"
                )
            return _EncodedQueries(self._check_codes(modality, inputs))
        rows = self.features(modality, inputs, trusted=trusted)
        scores: NDArray[np.float32] | None = None
        if with_scores:
            # One pass through the network: the bits are the signs of the scores, 1 where ≥ 0.
            scores = self.model.scores(modality, rows)
            codes = Codes(pack_signs(scores), self.model.n_bits)
        else:
            codes = self.model.encode(modality, rows)
        if not _are_raw(inputs):
            return _EncodedQueries(codes, scores)
        extractor = self._extractor(modality)
        terms = [extractor.terms(raw) for raw in inputs]  # type: ignore[union-attr,arg-type]
        return _EncodedQueries(codes, scores, terms, extractor.exact_terms)

    def encode_views(
        self, views: Mapping[str, Inputs], n_items: int, *, trusted: bool = True
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
        rows = self.features(modality, inputs, trusted=trusted)
        return EncodedView(positions, self.model.encode(modality, rows), rows)

    def _check_codes(self, modality: str, codes: Codes) -> Codes:
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
        if not trusted:
            self._check_untrusted(modality, inputs)
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


def _are_raw(inputs: object) -> bool:
    """Return whether inputs need an extractor: strings, paths, bytes or lists of tags."""
    if isinstance(inputs, str | bytes | PathLike):
        raise DataError(f"expected a list of inputs, got one {type(inputs).__name__}; pass [input]")
    if not isinstance(inputs, list | tuple):
        return False
    first = next((raw for raw in inputs if raw is not None), None)
    if isinstance(first, list | tuple) and first:
        first = first[0]
    return isinstance(first, str | bytes | PathLike)


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

"""Hashing as a step of scikit-learn: `HashTransformer`, for `Pipeline` and `GridSearchCV`.

Install it with the extra ``train``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.codes import Codes
from crossbit.errors import DataError, MissingExtraError
from crossbit.hashers.base import Hasher
from crossbit.hashers.lsh import LSH

try:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
        clone,
    )
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("scikit-learn") from error

Columns = slice | Sequence[int] | Sequence[str]
"""Columns of one modality: a slice, their numbers, or their names in a frame."""

_ONLY_VIEW = "x"


class HashTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Binary codes as features: zeros and ones, one column per bit.

    `fit` trains a method of Crossbit; its labels are ``y`` if the method learns from labels. With
    ``views`` the columns of X are split into modalities, like those of scikit-learn's
    ``ColumnTransformer``, so that cross-validation can select rows of all modalities at once.

    Args:
        hasher: The method with its fields, default `LSH`. Fields are searched as
            ``hasher__n_bits`` and so on.
        views: Modality → its columns of X. None: all columns are one modality.
        modality: The modality whose codes `transform` returns. None: those of all modalities, side
            by side.

    Attributes:
        model_: The trained `HashModel`.
        n_features_in_: Number of columns of X.

    Example:
        >>> import numpy as np
        >>> from crossbit import LSH
        >>> X = np.random.default_rng(0).normal(size=(20, 5))
        >>> HashTransformer(LSH(n_bits=8)).fit_transform(X).shape
        (20, 8)
        >>> views = {"left": slice(0, 3), "right": slice(3, 5)}
        >>> HashTransformer(LSH(n_bits=8), views=views).fit(X).encode(X, "left")
        Codes(20 × 8 bits)
    """

    def __init__(
        self,
        hasher: Hasher | None = None,
        *,
        views: Mapping[str, Columns] | None = None,
        modality: str | None = None,
    ) -> None:
        self.hasher = hasher
        self.views = views
        self.modality = modality

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Train the hash functions.

        Args:
            X: Rows of numbers, or a frame, shape (n, d).
            y: Labels: numbers, words, or zeros and ones (n, classes).
        """
        array = validate_data(self, X, dtype=[np.float64, np.float32])
        hasher = LSH() if self.hasher is None else clone(self.hasher)
        labels = y if y is not None and "labels" in hasher.supervision else None
        self.model_ = hasher.fit(self._split(array), labels=labels)
        if self.modality is not None and self.modality not in self.model_.modalities:
            raise DataError(
                f"modality must be one of {self.model_.modalities}, got {self.modality!r}"
            )
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Return the bits of each row, shape (n, bits)."""
        return np.hstack([np.asarray(codes) for codes in self._encode(X, self.modality).values()])

    def encode(self, X: ArrayLike, modality: str | None = None) -> Codes:
        """Return the packed codes of one modality, for `HammingIndex` and `Collection`.

        Args:
            X: Rows, as for `transform`.
            modality: The modality; may be omitted if there is only one.
        """
        codes = self._encode(X, modality or self.modality)
        if len(codes) != 1:
            raise DataError(f"name the modality: one of {list(codes)}")
        return next(iter(codes.values()))

    def _encode(self, X: ArrayLike, modality: str | None) -> dict[str, Codes]:
        check_is_fitted(self)
        array = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        views = self._split(array)
        names = list(views) if modality is None else [modality]
        return {name: self.model_.encode(name, views[name]) for name in names}

    def _split(self, X: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Split the columns into modalities."""
        if self.views is None:
            return {_ONLY_VIEW: X}
        return {name: X[:, self._columns(columns)] for name, columns in self.views.items()}

    def _columns(self, columns: Columns) -> slice | list[int]:
        if isinstance(columns, slice):
            return columns
        names = list(getattr(self, "feature_names_in_", ()))
        missing = [name for name in columns if isinstance(name, str) and name not in names]
        if missing:
            raise DataError(f"X has no columns {missing}; it has {names or 'no names'}")
        return [names.index(name) if isinstance(name, str) else int(name) for name in columns]

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - a class of scikit-learn
        """Say that bits do not have the type of the features."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` returns, which names them."""
        views = 1 if self.modality is not None else len(self.model_.modalities)
        return views * self.model_.n_bits

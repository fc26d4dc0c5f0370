"""Conversion to and from faiss indexes.

Both sides use the same bytes: bit i of a code is bit i mod 8, counted from the least significant,
of byte ⌊i / 8⌋.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from crossbit.index.hamming import HammingIndex


def to_faiss(index: "HammingIndex") -> Any:  # noqa: ANN401 - faiss is not typed
    """Return a flat faiss index with an ID map."""
    faiss = _faiss()
    ids = index.ids()
    flat = faiss.IndexBinaryFlat(-(-index.n_bits // 8) * 8)
    mapped = faiss.IndexBinaryIDMap(flat)
    flat.this.disown()  # the ID map owns the flat index from here on
    mapped.own_fields = True
    mapped.add_with_ids(index.get(ids).to_bytes(), ids)
    return mapped


def from_faiss(index: Any, n_bits: int | None) -> tuple[NDArray[np.int64], Codes]:  # noqa: ANN401
    """Return ids and codes of a flat faiss index, with or without an ID map."""
    faiss = _faiss()
    ids = np.arange(index.ntotal, dtype=np.int64)
    if hasattr(index, "id_map"):
        ids = faiss.vector_to_array(index.id_map).astype(np.int64)
        index = faiss.downcast_IndexBinary(index.index)
    if not isinstance(index, faiss.IndexBinaryFlat):
        raise DataError(
            f"faiss's {type(index).__name__} does not store plain codes;"
            " pass an IndexBinaryFlat or an ID map of one"
        )
    as_bytes = faiss.vector_to_array(index.xb).reshape(index.ntotal, index.code_size)
    return ids, Codes.from_bytes(as_bytes, index.d if n_bits is None else n_bits)


def _faiss() -> Any:  # noqa: ANN401
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss", "faiss") from error
    return faiss

"""Corrupted MATLAB v5 files, on which SciPy would crash, are rejected first."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from crossbit.data import read
from crossbit.data.conversion import readers
from crossbit.errors import FormatError

IMAGES = np.random.default_rng(0).random((5, 3))


def written(path: Path, **arrays: Any) -> bytearray:  # noqa: ANN401
    scipy.io.savemat(path, arrays)
    return bytearray(path.read_bytes())


@pytest.mark.parametrize(
    ("offset", "value"),
    [(176, 8), (176, 200), (177, 255), (145, 8), (132, 255), (135, 255)],
    ids=[
        "undefined type",
        "no type",
        "small and no type",
        "imaginary parts",
        "too long",
        "beyond the file",
    ],
)
def test_a_corrupted_tag_is_detected(offset: int, value: int, tmp_path: Path) -> None:
    raw = written(tmp_path / "set.mat", XAll=IMAGES)
    raw[offset] = value
    (tmp_path / "set.mat").write_bytes(raw)
    with pytest.raises(
        FormatError,
        match=r"set\.mat: cannot be read as \.mat \(a matrix before byte \d+ is corrupted\)",
    ):
        read(tmp_path / "set.mat")


def test_a_corrupted_index_of_a_sparse_matrix_is_detected(tmp_path: Path) -> None:
    raw = written(tmp_path / "set.mat", XAll=scipy.sparse.csc_matrix(IMAGES))
    rows = np.tile(np.arange(5, dtype="<i4"), 3).tobytes()
    raw[raw.index(rows) + 3] = 0x40
    (tmp_path / "set.mat").write_bytes(raw)
    with pytest.raises(FormatError, match=r"set\.mat: cannot be read as \.mat \(indices"):
        read(tmp_path / "set.mat")


@pytest.mark.parametrize("settings", [{}, {"do_compression": True}, {"format": "4"}])
def test_valid_files_of_every_kind_pass(settings: dict[str, Any], tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "XAll": IMAGES,
        "c": IMAGES * 1j,
        "word": "abc",
        "none": np.empty((0, 3)),
        "one": True,
    }
    if "format" not in settings:
        arrays |= {
            "s": {"a": IMAGES},
            "cell": np.array([IMAGES, "x"], object),
            "p": scipy.sparse.eye_array(3),
        }
    scipy.io.savemat(tmp_path / "set.mat", arrays, **settings)
    readers._check_mat_tags(tmp_path / "set.mat")
    np.testing.assert_array_equal(read(tmp_path / "set.mat").views["image"], IMAGES)

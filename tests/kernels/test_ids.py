"""Ids of rows take as little memory as they need, and are found in every form."""

from pathlib import Path

import numpy as np
import pytest

from crossbit import Codes, HammingIndex
from crossbit.kernels.arrays import RowIds

FORMS = {
    "none": (np.arange(0), 0),
    "consecutive": (np.arange(7, 27), 0),
    "narrow": (np.array([3, 4, 9, 2**32 + 2]), 4),
    "wide": (np.array([3, 4, 9, 2**32 + 3]), 8),
    "large and consecutive": (np.arange(2**63 - 6, 2**63 - 1), 8),
    "large": (np.array([2**63 - 9, 2**63 - 1]), 8),
}


@pytest.mark.parametrize("form", FORMS)
def test_ids_are_the_same_in_every_form(form: str) -> None:
    array, nbytes = FORMS[form]
    ids = RowIds(array)
    assert len(ids) == len(array)
    assert ids.nbytes == nbytes * len(array)
    assert np.array_equal(ids.all(), array)
    assert ids.all().dtype == np.int64
    rows = np.arange(len(array))[::-2]
    assert np.array_equal(ids[rows], array[rows])
    assert np.array_equal(ids[1:3], array[1:3])
    mask = np.arange(len(array)) % 3 == 0
    assert np.array_equal(ids[mask], array[mask])
    for wanted in (array, array[::-1], array[:1] + 5, np.array([0, 1, 8, 2**40, 2**63 - 1])):
        found = ids.find(wanted)
        expected = [array.tolist().index(id_) if id_ in array else -1 for id_ in wanted.tolist()]
        assert found.tolist() == expected
    for id_ in (0, 1, 4, 8, 9, 10, 2**32 + 2, 2**63 - 5, 2**63 - 1):
        assert ids.count_below(id_) == int((array < id_).sum())


def test_ids_of_a_mapped_file_are_not_copied() -> None:
    array = np.array([1, 5, 6])
    assert RowIds(array, shrink=False).all() is not None
    assert RowIds(array, shrink=False).nbytes == array.nbytes
    assert RowIds(array + 0, shrink=True).nbytes == 12
    assert RowIds(np.arange(3), shrink=False).nbytes == 0


@pytest.mark.parametrize("form", [form for form in FORMS if form != "none"])
def test_an_index_of_any_ids_finds_deletes_and_loads_them(form: str, tmp_path: Path) -> None:
    array, _ = FORMS[form]
    rng = np.random.default_rng(0)
    codes = Codes.pack(rng.random((len(array), 40)) < 0.5)
    index = HammingIndex(40)
    index.add(array, codes)
    index.save(tmp_path / "index")
    for each in (index, HammingIndex.load(tmp_path / "index")):
        found = each.search(codes, 1)
        assert np.array_equal(found.ids[:, 0], array)
        assert np.array_equal(each.ids(), array)
        assert each.get(array[:1]) == codes[:1]
        assert each.delete(array[1:2]) == 1
        assert np.array_equal(each.ids(), np.delete(array, 1))

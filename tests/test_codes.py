from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from crossbit import Codes, DataError, FormatError, HashModel, hamming
from crossbit._io.files import ArrayFile
from crossbit.codes import FORMAT, prefix_lengths
from crossbit.model import Affine

Bits = NDArray[np.bool_]
widths = st.integers(1, 200)


@st.composite
def bit_matrices(draw: st.DrawFn, count: int) -> list[Bits]:
    """Boolean matrices of one width, 1–200 bits, 0–9 rows each."""
    width = draw(widths)
    return [draw(hnp.arrays(np.bool_, (draw(st.integers(0, 9)), width))) for _ in range(count)]


@given(bit_matrices(1))
def test_unpack_undoes_pack(matrices: list[Bits]) -> None:
    (bits,) = matrices
    codes = Codes.pack(bits)
    assert len(codes) == len(bits)
    assert codes.n_bits == bits.shape[1]
    np.testing.assert_array_equal(codes.unpack(), bits)


@given(bit_matrices(2))
def test_hamming_equals_the_definition(matrices: list[Bits]) -> None:
    a, b = matrices
    expected = (a[:, None, :] != b[None, :, :]).sum(axis=2)
    np.testing.assert_array_equal(hamming(Codes.pack(a), Codes.pack(b)), expected)


@given(bit_matrices(1), st.data())
def test_truncate_keeps_the_first_bits(matrices: list[Bits], data: st.DataObject) -> None:
    (bits,) = matrices
    n_bits = data.draw(st.integers(1, bits.shape[1]))
    assert Codes.pack(bits).truncate(n_bits) == Codes.pack(bits[:, :n_bits])


@given(bit_matrices(1))
def test_bytes_are_those_of_packbits(matrices: list[Bits]) -> None:
    (bits,) = matrices
    codes = Codes.pack(bits)
    np.testing.assert_array_equal(codes.to_bytes(), np.packbits(bits, axis=1, bitorder="little"))
    assert Codes.from_bytes(codes.to_bytes(), codes.n_bits) == codes


@pytest.mark.parametrize("n_bits", [1, 63, 64, 65, 127, 128, 1000, 1024])
def test_hamming_of_long_codes(n_bits: int) -> None:
    random = np.random.default_rng(n_bits)
    a, b = random.random((40, n_bits)) < 0.5, random.random((30, n_bits)) < 0.5
    expected = (a[:, None, :] != b[None, :, :]).sum(axis=2)
    np.testing.assert_array_equal(hamming(Codes.pack(a), Codes.pack(b)), expected)


def test_bit_order_is_documented_and_fixed() -> None:
    bits = np.zeros((1, 70), bool)
    bits[0, [0, 65]] = True
    assert Codes.pack(bits).words.tolist() == [[1, 2]]


def test_zeros_and_ones_of_any_type_can_be_packed() -> None:
    assert (
        Codes.pack([[1, 0], [0, 1]])
        == Codes.pack(np.array([[1.0, 0.0], [0.0, 1.0]]))
        == Codes.pack(np.eye(2) > 0)
    )


def test_rows_are_selected_like_those_of_an_array() -> None:
    codes = Codes.pack(np.random.default_rng(0).random((10, 20)) < 0.5)
    assert codes[3] == codes[[3]] == codes[3:4] == codes[np.arange(10) == 3] == codes[np.int64(-7)]
    with pytest.raises(IndexError, match="row 10 of 10 codes"):
        codes[10]


def test_codes_differ_from_other_objects() -> None:
    codes = Codes.pack([[True, False]])
    assert codes != Codes.pack([[True, False, False]])
    assert codes != "codes"
    assert repr(codes) == "Codes(1 × 2 bits)"


def test_save_and_load(tmp_path: Path) -> None:
    codes = Codes.pack(np.random.default_rng(0).random((100, 70)) < 0.5)
    codes.save(tmp_path / "a.codes")
    opened = Codes.load(tmp_path / "a.codes")
    assert opened == codes
    assert not opened.words.flags.writeable


@pytest.mark.parametrize("meta", [{}, {"n_bits": 71}, {"n_bits": "70"}, {"n_bits": 0}])
def test_a_file_that_does_not_hold_codes_is_a_format_error(
    tmp_path: Path, meta: dict[str, object]
) -> None:
    words = np.full((3, 2), 3, np.uint64)
    for arrays in ({"words": words.astype(np.int32)}, {"other": words}, {"words": words[0]}):
        ArrayFile.write(tmp_path / "codes", FORMAT, meta, arrays)
        with pytest.raises(FormatError, match="codes: the header does not describe codes"):
            Codes.load(tmp_path / "codes")


def test_codes_name_the_model_that_made_them(tmp_path: Path) -> None:
    model = HashModel({"image": [Affine(np.eye(3), np.zeros(3))]}, n_bits=3)
    codes = model.encode("image", np.eye(3))
    assert codes.model == model.fingerprint()
    assert codes[1].model == codes[:2].model == codes.model
    assert codes == Codes.pack(codes.unpack())  # the model does not count in a comparison
    assert codes.truncate(2).model is None
    codes.save(tmp_path / "a.codes")
    assert Codes.load(tmp_path / "a.codes").model == codes.model


def test_empty_codes(tmp_path: Path) -> None:
    codes = Codes.pack(np.zeros((0, 70), bool))
    codes.save(tmp_path / "none.codes")
    assert Codes.load(tmp_path / "none.codes") == codes
    assert hamming(codes, codes).shape == (0, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Codes(np.zeros((10, 3), np.uint64), 96),
            r"codes of 96 bits need uint64 words of shape \(n, 2\)",
        ),
        (lambda: Codes(np.zeros((1, 1), np.int64), 8), "uint64 words"),
        (
            lambda: Codes(np.full((1, 1), 256, np.uint64), 8),
            "the padding bits must be zero",
        ),
        (lambda: Codes(np.zeros((1, 1), np.uint64), 0), "integer from 1 to 1024, got 0"),
        (lambda: Codes.pack(np.zeros((1, 1025), bool)), "integer from 1 to 1024, got 1025"),
        (lambda: Codes.pack([True, False]), r"shape \(n, n_bits\), got \(2,\)"),
        (lambda: Codes.pack([[0.3, -0.2]]), "pack scores as X >= 0"),
        (
            lambda: Codes.from_bytes(np.zeros((2, 3), np.uint8), 32),
            r"32 bits need uint8 rows of 4 bytes, got uint8 \(2, 3\)",
        ),
        (lambda: Codes.pack([[True]]).truncate(2), "cannot truncate codes of 1 bits to 2"),
        (
            lambda: hamming(Codes.pack([[True]]), Codes.pack([[True, True]])),
            "cannot compare codes of 1 and 2 bits",
        ),
    ],
)
def test_invalid_codes_are_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_any_flipped_bit_of_a_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.codes"
    codes = Codes.pack(np.random.default_rng(0).random((20, 70)) < 0.5)
    codes.save(path)
    raw = path.read_bytes()
    length = int.from_bytes(raw[8:12], "little")
    padding = range(
        16 + length, 16 + length + -(16 + length) % 64
    )  # between header and arrays, never read
    for position in set(range(len(raw))) - set(padding):
        flipped = bytearray(raw)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(FormatError, match=r"a\.codes"):
            Codes.load(path)


@pytest.mark.parametrize("keep", [0, 5, 20, 100, -1])
def test_a_truncated_file_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.codes"
    Codes.pack(np.random.default_rng(0).random((20, 70)) < 0.5).save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FormatError, match=r"a\.codes"):
        Codes.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.codes: cannot be read"):
        Codes.load(tmp_path / "a.codes")


def test_nested_codes_are_learned_at_powers_of_two_and_at_their_length() -> None:
    lengths = {16: [16], 8: [8], 17: [16, 17], 128: [16, 32, 64, 128], 96: [16, 32, 64, 96]}
    assert {n_bits: prefix_lengths(n_bits) for n_bits in lengths} == lengths
    assert prefix_lengths(1024) == [16, 32, 64, 128, 256, 512, 1024]

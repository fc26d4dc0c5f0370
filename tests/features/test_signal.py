import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit import DataError, features
from crossbit.features import Extractor, RandomConvolutions, SignalStatistics, Vector
from crossbit.features.signal import _dilations, decode_signal
from tests.features.clips import npy

RANDOM = np.random.default_rng(0)
TRAINING = [npy(RANDOM.normal(size=(60, 3)) * [1, 5, 0.1]) for _ in range(12)]
EXTRACTORS = [SignalStatistics(3), RandomConvolutions.fit(TRAINING, size=400)]
ALL = pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda e: e.kind)
CSV = b"x,y,z\n1,2,3\n4,5,6.5\n"


def test_files_of_all_kinds_give_the_same_series(tmp_path: Path) -> None:
    expected = np.array([[1, 2, 3], [4, 5, 6.5]])
    (tmp_path / "series.csv").write_bytes(CSV)
    for raw in (
        CSV,
        CSV.partition(b"\n")[2],
        CSV.replace(b",", b";"),
        b"\xef\xbb\xbf" + CSV.replace(b",", b"\t").replace(b"\n", b"\r\n"),
        npy(expected),
        npy(np.asfortranarray(expected.astype(np.float32))),
        tmp_path / "series.csv",
        str(tmp_path / "series.csv"),
    ):
        np.testing.assert_array_equal(decode_signal(raw), expected)
    assert decode_signal(npy(np.arange(4))).shape == (4, 1)
    assert decode_signal(b"1\n2\n3\n").shape == (3, 1)


def test_pickles_are_refused() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"not a complete \.npy file of numbers"):
        decode_signal(file.getvalue())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "empty; expected numbers"),
        (b"hello", "neither a .npy file nor CSV of numbers"),
        (b"\x93NUMPY\x01", "not a complete .npy file"),
        (npy(np.ones((5, 2)))[:-8], "its header claims 80 bytes"),
        (npy(np.ones((5, 2))).replace(b"(5, 2)", b"(9999999, 99999)"), "not a complete .npy file"),
        (npy(np.array(["a"])), "expected an array of numbers"),
        (npy(np.ones((2, 2, 2))), r"expected an array \(time,\) or \(time, channels\)"),
        (npy(np.ones((0, 2))), r"got \(0, 2\)"),
        (npy(np.ones((2, 2000))), "2,000 channels; at most 1024 are supported. Time must be"),
        (npy(np.array([1, np.nan])), "some values are NaN, infinite or beyond"),
        (npy(np.array([1, 1e300])), "some values are NaN, infinite or beyond"),
        (b"1,2\n3,nan\n", "some values are NaN"),
        (b"1,2\n3\n", "not a series of numbers"),
        (b"x,y\n1,two\n", "not a series of numbers"),
        (b"\xff\xfe1,2", "neither a .npy file nor CSV"),
        (7, "expected the path or the bytes of a series, got int"),
    ],
)
def test_unusable_files_are_rejected(raw: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=message):
        decode_signal(raw)


def test_large_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.features.signal._MAX_CSV_BYTES", 10)
    with pytest.raises(DataError, match=r"CSV of more than 0 MB; save the series as \.npy"):
        decode_signal(CSV)
    monkeypatch.setattr("crossbit.features.signal._MAX_VALUES", 10)
    with pytest.raises(DataError, match="12 values; at most 10 are supported"):
        decode_signal(npy(np.ones((6, 2))))


@settings(max_examples=60)
@given(data=st.data())
def test_corrupted_files_are_rejected_or_decoded(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([TRAINING[0], CSV])))
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        assert np.isfinite(decode_signal(bytes(raw))).all()


@ALL
@settings(max_examples=30)
@given(length=st.integers(1, 200), constant=st.booleans(), scale=st.floats(1e-12, 1e12))
def test_a_series_of_any_length_and_scale_gives_a_finite_row(
    extractor: Extractor, length: int, constant: bool, scale: float
) -> None:
    series = scale * (np.ones((length, 3)) if constant else RANDOM.normal(size=(length, 3)))
    row = extractor.extract([npy(series)])
    assert row.shape == (1, extractor.width)
    assert np.isfinite(row).all()


@ALL
def test_another_number_of_channels_is_rejected(extractor: Extractor) -> None:
    with pytest.raises(DataError, match="expected 3 channels, got 2"):
        extractor.extract([npy(np.ones((9, 2)))])


@ALL
def test_an_extractor_survives_its_recipe(extractor: Extractor) -> None:
    again = features.load_extractor(extractor.recipe())
    rows = extractor.extract(TRAINING[:3])
    np.testing.assert_array_equal(again.extract(TRAINING[:3]), rows)
    np.testing.assert_array_equal(extractor.extract(TRAINING[1:2]), rows[1:2])


def statistics(series: NDArray[Any]) -> NDArray[Any]:
    """Statistics of each channel, shape (19, channels)."""
    channels = series.shape[1]
    row = SignalStatistics(channels).extract([npy(series)])[0]
    return np.asarray(row[: 19 * channels].reshape(19, channels))


def test_statistics_equal_their_definitions() -> None:
    scipy_stats = pytest.importorskip("scipy.stats", reason="needs the extra data")
    series = RANDOM.gamma(2, size=(50, 2)) * [1, 10]
    found = statistics(series)
    expected = [
        series.mean(axis=0),
        series.std(axis=0),
        *np.quantile(series, [0, 0.25, 0.5, 0.75, 1], axis=0),
        np.abs(np.diff(series, axis=0)).mean(axis=0),
        scipy_stats.skew(series),
        scipy_stats.kurtosis(series),
        (np.diff(series >= series.mean(axis=0), axis=0)).mean(axis=0),
    ]
    np.testing.assert_allclose(found[:11], expected, rtol=1e-4)
    np.testing.assert_allclose(found[11:].sum(axis=0), 1, rtol=1e-5)
    correlation = SignalStatistics(2).extract([npy(series)])[0, -1]
    np.testing.assert_allclose(
        correlation, float(np.corrcoef(series[:, 0], series[:, 1])[0, 1]), rtol=1e-4
    )


@settings(max_examples=20)
@given(gain=st.floats(1e-6, 1e6))
def test_gain_scales_what_has_a_unit_and_changes_nothing_else(gain: float) -> None:
    series = decode_signal(TRAINING[0])
    plain = statistics(series)
    louder = statistics(gain * series)
    np.testing.assert_allclose(louder[:8], gain * plain[:8], rtol=1e-3, atol=1e-6 * gain)
    np.testing.assert_allclose(louder[8:], plain[8:], rtol=1e-3, atol=1e-4)


def test_power_is_in_the_octave_of_its_frequency() -> None:
    time = np.arange(512)
    for cycles, octave in ((1, 0), (2, 0), (3, 1), (100, 6), (250, 7)):
        wave = np.sin(2 * np.pi * cycles * time / 512)
        assert statistics(wave[:, None])[11:, 0].argmax() == octave, cycles


def test_convolutions_equal_the_definition() -> None:
    extractor = EXTRACTORS[1]
    assert isinstance(extractor, RandomConvolutions)
    assert extractor.length == 60
    assert _dilations(60) == [1, 2, 4]
    series = decode_signal(TRAINING[0])
    z = (series - extractor.mean) / extractor.deviation
    row = extractor.extract([TRAINING[0]])[0].reshape(extractor.thresholds.shape)
    assert extractor.width == 3 * 84 * 2
    for level, kernel in ((0, 0), (1, 40), (2, 83)):
        dilation = _dilations(60)[level]
        taps = np.full(9, -1.0)
        subsets = [(a, b, c) for a in range(9) for b in range(a + 1, 9) for c in range(b + 1, 9)]
        taps[list(subsets[kernel])] = 2
        total = z[:, extractor.subsets[level, kernel]].sum(axis=1)
        out = np.array(
            [
                sum(
                    taps[j] * total[t + (j - 4) * dilation]
                    for j in range(9)
                    if 0 <= t + (j - 4) * dilation < 60
                )
                for t in range(60)
            ]
        )
        for quantile, threshold in enumerate(extractor.thresholds[level, kernel]):
            assert row[level, kernel, quantile] == pytest.approx((out > threshold).mean(), abs=0.02)


def test_the_same_seed_gives_the_same_convolutions() -> None:
    again = RandomConvolutions.fit(TRAINING, size=400)
    assert again.recipe() == EXTRACTORS[1].recipe()
    other = RandomConvolutions.fit(TRAINING, size=400, seed=1)
    assert other.recipe() != again.recipe()


def test_unusable_series_are_skipped_by_fit() -> None:
    assert SignalStatistics.fit([b"no", *TRAINING]).channels == 3
    assert RandomConvolutions.fit([b"no", *TRAINING], size=84).width == 252
    for cls in (SignalStatistics, RandomConvolutions, Vector):
        with pytest.raises(DataError, match=r"no usable series \(2 bytes: neither a .npy"):
            cls.fit([b"no"])


def test_inconsistent_arrays_are_refused() -> None:
    fitted = EXTRACTORS[1]
    assert isinstance(fitted, RandomConvolutions)
    with pytest.raises(DataError, match=r"expected mean and deviation \(channels,\), subsets"):
        RandomConvolutions(
            length=9,
            mean=fitted.mean[:2],
            deviation=fitted.deviation,
            subsets=fitted.subsets,
            thresholds=fitted.thresholds,
        )


def test_vectors_are_read_from_arrays_and_lines() -> None:
    vector = Vector.fit([npy(np.arange(3))])
    assert (vector.size, vector.width, vector.accepts) == (3, 3, "vector")
    rows = vector.extract([npy(np.array([1, 2.5, 3])), npy(np.array([[1, 2.5, 3]])), b"1,2.5,3"])
    np.testing.assert_array_equal(rows, [[1, 2.5, 3]] * 3)
    assert Vector(2000).extract([npy(np.zeros(2000))]).shape == (1, 2000)
    for raw in (npy(np.ones(4)), npy(np.ones((2, 3)))):
        with pytest.raises(DataError, match="expected 3 numbers, got an array of shape"):
            vector.extract([raw])

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from crossbit import DataError, MissingExtraError, features
from crossbit.features import AudioNetwork, LogMel, Mfcc
from crossbit.features.audio import decode_audio
from tests.features.clips import encoded_clip, tone
from tests.features.test_onnx import build

RANDOM = np.random.default_rng(0)
NOISE = 0.1 * RANDOM.normal(size=8000)
EXTRACTORS = [LogMel(bands=24, segments=4), Mfcc(bands=24, segments=4, coefficients=12)]
ALL = pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda e: e.kind)


def decode(raw: Any, rate: int = 16_000) -> Any:  # noqa: ANN401
    return decode_audio(raw, rate=rate, seconds=30)


@pytest.mark.parametrize("format_", ["WAV", "FLAC", "OGG"])
def test_every_format_is_decoded(format_: str, tmp_path: Path) -> None:
    raw = encoded_clip(tone(440), format_=format_)
    samples = decode(raw)
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, tone(440), atol=0.05)
    (tmp_path / "clip").write_bytes(raw)
    for path in (tmp_path / "clip", str(tmp_path / "clip")):
        np.testing.assert_array_equal(decode(path), samples)


def test_channels_are_averaged() -> None:
    stereo = np.stack([tone(440), np.zeros(8000)], axis=1)
    np.testing.assert_allclose(
        decode(encoded_clip(stereo)), decode(encoded_clip(tone(440) / 2)), atol=1e-4
    )


@pytest.mark.parametrize("rate", [8000, 22_050, 48_000])
def test_clips_are_resampled_without_aliases(rate: int) -> None:
    samples = decode(encoded_clip(tone(440, rate=rate), rate))
    assert len(samples) == 8000
    np.testing.assert_allclose(samples, tone(440), atol=0.01)
    high = decode(encoded_clip(tone(15_000, rate=48_000), 48_000))  # beyond 8 kHz: nothing is left
    assert np.abs(high).max() < 0.01


def test_what_follows_the_longest_clip_is_ignored() -> None:
    assert len(decode_audio(encoded_clip(NOISE), rate=16_000, seconds=0.1)) == 1600


@ALL
@settings(max_examples=20)
@given(gain=st.floats(1e-12, 1e12))
def test_gain_changes_nothing(extractor: LogMel, gain: float) -> None:
    np.testing.assert_allclose(
        extractor.from_samples(gain * NOISE), extractor.from_samples(NOISE), atol=1e-4
    )


@ALL
@settings(max_examples=25)
@given(length=st.integers(1, 2000), rate=st.sampled_from([1000, 8000, 44_100, 192_000]))
def test_a_clip_of_any_length_gives_a_finite_row(extractor: LogMel, length: int, rate: int) -> None:
    samples = np.resize(NOISE, length) + 0.01
    row = extractor.extract([encoded_clip(samples, rate)])
    assert row.shape == (1, extractor.width)
    assert np.isfinite(row).all()


@ALL
def test_silence_around_a_clip_is_cut_off(extractor: LogMel) -> None:
    late = np.concatenate([np.zeros(1600), tone(500), np.zeros(4000)])
    rows = np.stack([extractor.from_samples(samples) for samples in (tone(500), late)])
    other = extractor.from_samples(tone(2000))
    assert np.linalg.norm(rows[0] - rows[1]) < 0.2 * np.linalg.norm(rows[0] - other)


@ALL
@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(100), "silent: every sample is zero"),
        (np.array([0.1, np.nan, 0.2]), "some samples are NaN or infinite; repair the clip first"),
        (np.array([0.1, np.inf]), "some samples are NaN or infinite"),
        (np.empty(0), "no samples; the clip is empty"),
    ],
)
def test_unusable_samples_are_rejected(extractor: LogMel, samples: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=message):
        extractor.extract([encoded_clip(samples, subtype="FLOAT")])


def test_samples_of_another_shape_are_rejected() -> None:
    with pytest.raises(DataError, match=r"expected samples of shape \(n,\), got \(2, 2\)"):
        LogMel().from_samples(np.ones((2, 2)))
    with pytest.raises(DataError, match="NaN or infinite"):
        LogMel().from_samples(np.array([np.nan]))


def test_a_band_holds_the_tone_in_it_and_a_part_holds_its_time() -> None:
    mel = LogMel(bands=24, segments=2)
    low_high = np.concatenate([tone(300), tone(3000)])
    bands = mel.from_samples(low_high).reshape(2, 24).argmax(axis=1)
    alone = [
        mel.from_samples(tone(hertz)).reshape(2, 24).mean(axis=0).argmax() for hertz in (300, 3000)
    ]
    assert bands.tolist() == alone


def test_pooling_equals_the_mean_where_parts_are_whole_windows() -> None:
    mel = LogMel(bands=5, segments=3)
    frames = RANDOM.normal(size=(12, 5))
    np.testing.assert_allclose(mel._pool(frames), frames.reshape(3, 4, 5).mean(axis=1))
    np.testing.assert_allclose(mel._pool(frames[:1]), np.repeat(frames[:1], 3, axis=0))
    halves = LogMel(bands=5, segments=2)._pool(frames[:3])  # the middle window counts in both
    np.testing.assert_allclose(halves[0], (frames[0] + frames[1] / 2) / 1.5)


def test_cepstral_coefficients_are_a_cosine_transform() -> None:
    scipy_fft = pytest.importorskip("scipy.fft", reason="needs the extra data")
    frames = RANDOM.normal(size=(6, 24))
    described = EXTRACTORS[1]._describe(frames)
    expected = scipy_fft.dct(frames, type=2, norm="ortho", axis=1)[:, 1:13]
    np.testing.assert_allclose(described[:, :12], expected - expected.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(described[:, 12:], np.gradient(expected, axis=0), atol=1e-12)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not audio in one of the formats WAV, FLAC, OGG"),
        (b"hello, I am not audio", "not audio"),
        (b"FORM\0\0\0\x04AIFF", "not audio"),
        (b"RIFF\xff\xff\xff\xffWAVE", "corrupted audio"),
        (b"OggS" + bytes(200), "corrupted audio"),
        (encoded_clip(NOISE[:200], 400), "a sampling rate of 400 Hz; expected 1,000 to 192,000 Hz"),
        (encoded_clip(np.ones((5, 17))), "17 channels; at most 16 are supported"),
        ("no-such-file.wav", "cannot be read"),
        (["a", "list"], "expected the path or the bytes of an audio file, got list"),
    ],
)
def test_unusable_files_are_rejected(raw: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=message):
        decode(raw)


def test_a_header_that_claims_more_than_there_is_costs_nothing() -> None:
    raw = bytearray(encoded_clip(NOISE[:100]))
    position = raw.index(b"data") + 4
    raw[position : position + 4] = b"\xff\xff\xff\x7f"  # two gigabytes
    with contextlib.suppress(DataError):
        assert len(decode(bytes(raw))) <= 200


@pytest.mark.parametrize("format_", ["WAV", "FLAC", "OGG"])
@settings(max_examples=40)
@given(data=st.data())
def test_corrupted_files_are_rejected_or_decoded(format_: str, data: st.DataObject) -> None:
    raw = bytearray(encoded_clip(NOISE[:1000], format_=format_))
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        row = Mfcc().extract([bytes(raw[: data.draw(st.integers(5, len(raw)))])])
        assert np.isfinite(row).all()


def test_decoding_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.features.audio._MAX_SECONDS", -1.0)
    with pytest.raises(DataError, match="decoding takes more than -1 seconds"):
        decode(encoded_clip(NOISE))


def test_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.features.audio._MAX_BYTES", 1000)
    (tmp_path / "clip.wav").write_bytes(encoded_clip(NOISE))
    for raw in (tmp_path / "clip.wav", encoded_clip(NOISE)):
        with pytest.raises(DataError, match="more than 0 MB; reduce it first"):
            decode(raw)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtraError, match=r"'soundfile' is not installed.*media"):
        decode(encoded_clip(NOISE))


@ALL
def test_an_extractor_survives_its_recipe(extractor: LogMel) -> None:
    raw = [encoded_clip(NOISE), encoded_clip(tone(300))]
    again = features.load_extractor(extractor.recipe())
    np.testing.assert_array_equal(again.extract(raw), extractor.extract(raw))
    np.testing.assert_array_equal(extractor.extract(raw)[1:], extractor.extract(raw[1:]))


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"rate": 500}, "rate, in hertz, must be an integer of at least 1000, got 500"),
        ({"bands": 1}, "bands must be an integer of at least 2"),
        ({"segments": 0}, "segments must be an integer of at least 1"),
        ({"seconds": 0}, "seconds must be positive and at most 600, got 0"),
        ({"coefficients": 40}, "coefficients must be less than the number of bands, 40; got 40"),
    ],
)
def test_settings_are_validated(settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Mfcc(**settings_)


def pooling_network(axes: list[int | None]) -> bytes:
    """Return a network that averages the next to last axis, or nothing if there is one axis."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, axes)
    return build([helper.make_node("Identity", ["x"], ["y"])], [x], {})


@pytest.mark.parametrize("axes", [[None], [1, None], [1, 1, None]])
def test_a_network_gets_samples(axes: list[int | None]) -> None:
    network = AudioNetwork(network=pooling_network(axes), seconds=0.5, fixed=True)
    assert network.width == 8000
    np.testing.assert_allclose(network.extract([encoded_clip(tone(440))])[0], tone(440), atol=1e-3)
    short = network.extract([encoded_clip(tone(440, 0.25))])[0]
    np.testing.assert_array_equal(short[:4000], short[4000:])  # repeated


@pytest.mark.parametrize("axes", [[1, None, 24], [1, 1, None, 24]])
def test_a_network_gets_a_spectrogram_and_its_output_is_averaged(axes: list[int | None]) -> None:
    network = AudioNetwork(network=pooling_network(axes), input="log-mel", bands=24)
    expected = LogMel(bands=24, segments=1).extract([encoded_clip(tone(440))])
    np.testing.assert_allclose(network.extract([encoded_clip(tone(440))]), expected, rtol=1e-4)


def test_a_network_with_too_few_axes_is_reported() -> None:
    network = AudioNetwork(network=pooling_network([None]), input="log-mel")
    with pytest.raises(DataError, match="the network takes inputs of 1 axes, but a clip as"):
        network.extract([encoded_clip(tone(440))])


def test_a_network_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(pooling_network([None]))
    (tmp_path / "net.json").write_text(json.dumps({"rate": 8000, "fixed": True, "seconds": 1}))
    network = AudioNetwork.from_file(tmp_path / "net.onnx")
    assert network.width == 8000
    again = features.load_extractor(network.recipe())
    raw = [encoded_clip(NOISE)]
    np.testing.assert_array_equal(again.extract(raw), network.extract(raw))
    (tmp_path / "net.json").write_text(json.dumps({"input": "video"}))
    with pytest.raises(DataError, match="unknown input 'video'"):
        AudioNetwork.from_file(tmp_path / "net.onnx")

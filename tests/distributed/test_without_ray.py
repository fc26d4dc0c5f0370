"""Errors that are raised without Ray: a missing extra and invalid arguments."""

import sys
from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, LSH, MMNN, DataError, MissingExtraError, distributed
from crossbit.cli import main
from crossbit.data import synthetic


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    data = synthetic(n=40)
    data.save(tmp_path / "toy")
    LSH(n_bits=8).fit(data.views).save(tmp_path / "model")
    return tmp_path


def test_the_error_names_the_missing_extra(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in (
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN",
        "RAY_USAGE_STATS_ENABLED",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
    ):
        monkeypatch.setenv(name, "")  # monkeypatch then restores what the library sets
        monkeypatch.delenv(name)
    with pytest.raises(MissingExtraError, match=r"'ray' is not installed.*\[ray\]'"):
        distributed.fit(MMNN(n_bits=8), toy / "toy", toy / "out")
    with pytest.raises(MissingExtraError, match=r"'ray' is not installed.*\[ray\]'"):
        distributed.encode(
            distributed.EncodingJob(toy / "model", toy / "toy" / "image.npy", "image")
        )
    assert sorted(path.name for path in toy.iterdir()) == ["model", "toy"]


def test_invalid_arguments_are_rejected_before_a_cluster_starts(toy: Path) -> None:
    with pytest.raises(
        DataError, match=r"ccaitq does not train networks .*use one of \['cmnn', 'mmnn'\]"
    ):
        distributed.fit(CCAITQ(), toy / "toy", toy / "out")
    with pytest.raises(DataError, match="unknown split 'nonsense'"):
        distributed.fit(MMNN(), toy / "toy", toy / "out", split="nonsense")
    with pytest.raises(DataError, match="workers must be an integer of at least 1, got 0"):
        distributed.fit(MMNN(), toy / "toy", toy / "out", workers=0)
    with pytest.raises(DataError, match="unknown modality 'sound'"):
        distributed.encode(
            distributed.EncodingJob(toy / "model", toy / "toy" / "image.npy", "sound")
        )


def test_encoding_an_empty_file_needs_no_cluster(toy: Path) -> None:
    np.save(toy / "none.npy", np.zeros((0, 4)))
    encoded = distributed.encode(distributed.EncodingJob(toy / "model", toy / "none.npy", "image"))
    assert (len(encoded.codes), len(encoded.rows), encoded.n_rows) == (0, 0, 0)


def test_the_encode_command_needs_exactly_one_output(
    toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encode = ["encode", str(toy / "model"), str(toy / "toy" / "image.npy"), "-m", "image"]
    assert main(encode) == 1
    assert "name the file for the codes with --out FILE" in capsys.readouterr().err
    assert main([*encode, "--into", "collection"]) == 1
    assert "--into cannot be combined with encode without --ray" in capsys.readouterr().err
    assert main([*encode, "--ray", "local"]) == 1
    assert "exactly one output: --out FILE or --into COLLECTION" in capsys.readouterr().err
    assert main([*encode, "--ray", "local", "--out", "codes", "--into", "collection"]) == 1
    assert "exactly one output: --out FILE or --into COLLECTION" in capsys.readouterr().err

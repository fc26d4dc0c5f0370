from pathlib import Path

import pytest

from crossbit import DataError, FormatError
from crossbit.data.tables import Captioned, read_captions

DOG = Captioned("dog.jpg", ("A dog runs .", "A wet dog"))
CAT = Captioned("a cat#1.jpg", ("A cat, asleep",))


def written(folder: Path, text: str, name: str = "captions.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "dog.jpg#0\tA dog runs .\na cat#1.jpg#0\tA cat, asleep\ndog.jpg#1\tA wet dog\n",
        'image,caption\ndog.jpg,A dog runs .\na cat#1.jpg,"A cat, asleep"\ndog.jpg,A wet dog\n',
        "\ufeffFile\tCaption\ndog.jpg\tA dog runs .\na cat#1.jpg\tA cat, asleep\n"
        "dog.jpg\tA wet dog\n",
        '{"image": "dog.jpg", "captions": ["A dog runs .", "A wet dog"]}\n'
        '\n{"image": "a cat#1.jpg", "text": "A cat, asleep"}',
    ],
    ids=["tokens", "csv", "tabs", "json lines"],
)
def test_all_formats_give_the_same_captions(text: str, tmp_path: Path) -> None:
    assert read_captions(written(tmp_path, text)) == [DOG, CAT]


def test_other_columns_are_kept(tmp_path: Path) -> None:
    table = "year;tags;file;code;by;place\n2012;dog, wet;dog.jpg;007;nan;\n"
    (captioned,) = read_captions(written(tmp_path, table))
    assert captioned == Captioned(
        "dog.jpg", ("dog, wet",), {"year": 2012, "code": "007", "by": "nan"}
    )
    (captioned,) = read_captions(
        written(tmp_path, '{"name": "dog.jpg", "title": "A dog", "year": 2012}')
    )
    assert captioned.fields == {"year": 2012}


def test_an_image_without_captions_is_left_out(tmp_path: Path) -> None:
    assert read_captions(written(tmp_path, "image,caption\ndog.jpg,\ncat.jpg,A cat\n")) == [
        Captioned("cat.jpg", ("A cat",))
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected images and captions"),
        (" \n\n", "is empty"),
        ("dog.jpg#0\tA dog\nno token", "line 2: expected 'image#0<TAB>caption', got 'no token'"),
        (
            "image,year\ndog.jpg,2012\n",
            r"line 2: none of its columns \['image', 'year'\] is one of \['caption'",
        ),
        ("a,caption\ndog.jpg,A dog\n", r"line 2: none of its columns .* is one of \['image'"),
        ("image,caption\ndog.jpg,A dog,2012\n", "line 2: 3 cells, but the header in line 1"),
        ('{"image": "dog.jpg", "caption": "A dog"}\n{"image"', "line 2: not valid JSON"),
        (
            '{"image": "dog.jpg", "caption": "A dog", "deep": ' + 9999 * "[",
            "line 1: not valid JSON",
        ),
        ('{"image": "dog.jpg", "caption": "A dog"}\n[]', "line 2: expected a JSON object"),
        (
            '{"image": 5, "caption": "A dog"}',
            "line 1: expected the name of an image and its captions",
        ),
        (
            '{"image": "dog.jpg", "caption": [1]}',
            "line 1: expected the name of an image and its captions",
        ),
    ],
)
def test_a_malformed_line_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((DataError, FormatError), match=message):
        read_captions(written(tmp_path, text))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_captions(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(b"image,caption\ndog.jpg,un \xe9t\xe9\n")
    with pytest.raises(FormatError, match=r"latin.csv, line 2: not UTF-8 \(byte 0xe9\)"):
        read_captions(tmp_path / "latin.csv")

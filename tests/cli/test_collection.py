"""Collections on the command line: create, add from every kind of file, search, maintain."""

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from crossbit import Collection, HashModel
from crossbit._progress import OnStep, Step
from crossbit.cli import console, main, search
from crossbit.cli._options import split_address
from crossbit.collection.search import Option, SearchOptions
from crossbit.data import tables
from crossbit.features import BagOfTags, ColorHistogram
from crossbit.model import Affine

N = 25


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of four numbers, and texts of tags through a recipe."""
    random = np.random.default_rng(0)
    bag = BagOfTags.fit([["red", "food"], ["cloud", "sky"], ["dog"]])
    encoders = {
        "image": [Affine(random.normal(size=(4, 24)), np.zeros(24))],
        "text": [Affine(random.normal(size=(bag.width, 24)), np.zeros(24))],
    }
    folder = tmp_path_factory.mktemp("collections") / "model"
    HashModel(encoders, 24, {"text": bag.recipe()}).save(folder)
    return folder


@pytest.fixture
def photos(model: Path, tmp_path: Path) -> Path:
    kept = ("--keep", "scores", "--keep", "features")
    assert run("collection", "create", tmp_path / "photos", "--model", model, *kept) == 0
    return tmp_path / "photos"


def records() -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    tags = [["red", "food"], ["cloud"], ["dog", "sky"]]
    return [
        {
            "id": f"p{i}",
            "image": random.normal(size=4).round(3).tolist(),
            "tags": tags[i % 3],
            "year": 2000 + i,
        }
        for i in range(N)
    ]


def stored(folder: Path) -> dict[object, tuple[dict[str, Any], list[str]]]:
    with Collection.open(folder) as collection:
        return {item.id: (item.payload, item.modalities) for item in collection}


EXPECTED = {
    record["id"]: ({"tags": record["tags"], "year": record["year"]}, ["image", "text"])
    for record in records()
}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records()) + "\n\n")
    return path


@pytest.fixture
def filled(photos: Path, lines: Path) -> Path:
    assert run("add", photos, lines, "--column", "text=tags") == 0
    return photos


def test_create_prints_the_next_command_quoted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("collection", "create", tmp_path / "my photos", "--model", model) == 0
    assert f"add items with: crossbit add '{tmp_path}/my photos' FILE" in capsys.readouterr().err


def test_add_reads_json_lines_csv_and_parquet_alike(
    photos: Path, lines: Path, tmp_path: Path
) -> None:
    table = [
        {key: json.dumps(v) if isinstance(v, list) else v for key, v in record.items()}
        for record in records()
    ]
    header = "id,image,tags,year\n"
    rows = "".join(
        f'{r["id"]},"{r["image"]}","{r["tags"].replace(chr(34), 2 * chr(34))}",{r["year"]}\n'
        for r in table
    )
    (tmp_path / "items.csv").write_text(header + rows)
    pq.write_table(pa.Table.from_pylist(records()), tmp_path / "items.parquet")
    for name in ("items.jsonl", "items.csv", "items.parquet"):
        assert run("add", photos, tmp_path / name, "--column", "text=tags", "--batch", 10) == 0
        assert stored(photos) == EXPECTED
        with Collection.open(photos) as collection:
            assert collection.delete(list(EXPECTED)) == N


def test_add_reads_standard_input(
    photos: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines.read_text()))
    assert run("add", photos, "-", "--column", "text=tags") == 0
    assert stored(photos) == EXPECTED


def test_byte_order_marks_and_crlf_are_read(
    photos: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\ufeff" + lines.read_text().strip().replace("\n", "\r\n").replace("2000", '"caf\u00e9"')
    lines.write_bytes(text.encode())
    assert run("add", photos, lines, "--column", "text=tags") == 0
    assert stored(photos)["p0"] == (
        {"tags": ["red", "food"], "year": "caf\u00e9"},
        ["image", "text"],
    )
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(text.replace("caf", "th").encode()), "latin-1")
    )
    assert run("add", photos, "-", "--column", "text=tags", "--replace") == 0
    assert stored(photos)["p0"][0]["year"] == "th\u00e9"


def test_csv_cells_keep_their_values(photos: Path, tmp_path: Path) -> None:
    long = "x" * 200_000
    (tmp_path / "t.csv").write_text(
        f'id,image,name,isbn,price,note\n1,"[1,2,3,4]",nan,{"9" * 20},12.50,{long}\n'
    )
    assert run("add", photos, tmp_path / "t.csv") == 0
    payload = {"name": "nan", "isbn": "9" * 20, "price": 12.5, "note": long}
    assert stored(photos) == {"1": (payload, ["image"])}


def test_items_without_any_modality_are_reported(
    photos: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("id,picture\na,cat.jpg\n")
    assert run("add", photos, tmp_path / "t.csv") == 0
    printed = capsys.readouterr().err
    assert "no item has a value for image, text, so search cannot find" in printed
    assert "repeat the command with --replace and --column MODALITY=COLUMN" in printed
    assert run("add", photos, lines, "--column", "text=words") == 0
    assert "no item has the column of --column text=words" in capsys.readouterr().err


def test_add_reads_arrays(photos: Path, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(5, 4))
    X[2] = np.nan
    np.save(tmp_path / "image.npy", X)
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\ne\n")
    assert run("add", photos, tmp_path / "image.npy", "-m", "image") == 0
    assert (
        run(
            "add",
            photos,
            tmp_path / "image.npy",
            "-m",
            "image",
            "--ids-file",
            tmp_path / "names.txt",
            "--batch",
            2,
        )
        == 0
    )
    added = stored(photos)
    assert list(added) == [0, 1, 2, 3, 4, "a", "b", "c", "d", "e"]
    assert added[2] == ({}, [])
    assert added["b"] == ({}, ["image"])


def test_add_reads_a_data_set_folder(tmp_path: Path) -> None:
    assert run("data", "synthetic", "--out", tmp_path / "toy", "--rows", 60) == 0
    assert (
        run("fit", tmp_path / "toy", "--method", "ccaitq", "-b", 8, "-o", tmp_path / "model") == 0
    )
    assert run("collection", "create", tmp_path / "c", "--model", tmp_path / "model") == 0
    assert run("add", tmp_path / "c", tmp_path / "toy") == 0
    assert set(stored(tmp_path / "c")) == set(range(60))


def test_an_interrupted_add_says_how_far_it_came_and_goes_on(
    photos: Path, lines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    upsert = Collection.upsert
    calls = 0

    def interrupted(self: Collection, ids: Any, *given: Any, **options: Any) -> None:  # noqa: ANN401
        nonlocal calls
        calls += bool(ids)
        if calls == 3:
            raise KeyboardInterrupt
        upsert(self, ids, *given, **options)

    monkeypatch.setattr(Collection, "upsert", interrupted)
    command = ("add", photos, lines, "--column", "text=tags", "--batch", 10)
    assert run(*command) == 130
    assert "20 items added; go on with --skip-existing" in capsys.readouterr().err
    assert len(stored(photos)) == 20
    assert run(*command) == 1
    assert "--skip-existing" in capsys.readouterr().err
    assert run(*command, "--skip-existing", "--replace") == 1
    assert run(*command, "--skip-existing") == 0
    assert "5 items added; 25 in" in capsys.readouterr().err
    assert stored(photos) == EXPECTED


def test_search_prints_json_lines(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("search", filled, "red + food", "dog", "-m", "text", "--target", "text", "-k", 3) == 0
    )
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert {tuple(hit["payload"]["tags"]) for hit in first} == {("red", "food")}
    assert len(second) == 3
    np.save(tmp_path / "q.npy", [record["image"] for record in records()][:2])
    condition = '{"year": {"<": 2010}, "tags": {"has": "red"}}'
    assert (
        run(
            "search",
            filled,
            "--rows",
            tmp_path / "q.npy",
            "-m",
            "image",
            "--filter",
            condition,
            "--rerank",
            20,
        )
        == 0
    )
    hits = json.loads(capsys.readouterr().out.splitlines()[0])
    assert {hit["id"] for hit in hits} == {"p0", "p3", "p6", "p9"}
    own = ("-m", "image", "--target", "image")
    reranked = ("--rows", tmp_path / "q.npy", *own, "--rerank", 20, "--rerank-by")
    assert run("search", filled, *reranked, "scores") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])[0]["id"] == "p0"
    assert run("search", filled, "--like", "p4", *own, "-k", 20) == 0
    hits = json.loads(capsys.readouterr().out)
    assert "p4" not in {hit["id"] for hit in hits}  # a query is not its own answer
    assert run("search", filled, *reranked, "payload") == 2
    assert "'payload' is not one of" in capsys.readouterr().err
    like = ("--like", "p4", *own)
    assert run("search", filled, *like, "-k", 1, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] != "p4"
    assert run("search", filled, *like, "-k", 2, "--group-by", "year", "--offset", 1) == 0
    (grouped,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert len({2004, *(hit["payload"]["year"] for hit in grouped)}) == 3
    assert "weak" not in grouped[0]
    assert run("search", filled, *like, "--min-similarity", "auto") == 0
    assert run("search", filled, *like, "--min-similarity", "weak") == 1
    assert "or 'auto', got 'weak'" in capsys.readouterr().err
    assert run("search", filled, *like, "--filter", '{"yaer": 1}') == 1
    assert "known fields: 'tags', 'year'" in capsys.readouterr().err


def test_a_terminal_gets_tables(
    filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(console.out), "is_terminal", property(lambda _: True))
    assert run("search", filled, "--like", "p4", "-m", "image", "--target", "image", "-k", 2) == 0
    printed = capsys.readouterr().out
    assert "like p4" in printed
    heading = ["id", "modality", "payload", "similarity", "distance"]
    assert printed.splitlines()[1].split() == heading
    assert "tags: red, food, year: 2015" in printed
    assert "0.958" in printed
    assert (
        run(
            "search",
            filled,
            "--like",
            "p4",
            "-m",
            "image",
            "--target",
            "image",
            "-k",
            1,
            "--tags",
            "tags",
        )
        == 0
    )
    assert "dog" in capsys.readouterr().out


def test_tags_are_json_lines(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("search", filled, "red + food", "--target", "text", "-k", 5)
    assert run(*line, "--tags", "tags") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"name": "food", "score": 1.0, "votes": 5},
        {"name": "red", "score": 1.0, "votes": 5},
    ]


def test_update_merges_fields(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("update", filled, "p1", "p2", "--set", "year=7", "--set", "name=a b") == 0
    assert "2 items updated in" in capsys.readouterr().err
    assert run("update", filled, "p1", "--set", "sizes=[1, null]", "--remove", "tags") == 0
    found = stored(filled)
    assert found["p1"] == ({"year": 7, "name": "a b", "sizes": [1, None]}, ["image", "text"])
    assert found["p2"][0] == {**EXPECTED["p2"][0], "year": 7, "name": "a b"}
    assert {id_: found[id_] for id_ in EXPECTED if id_ not in ("p1", "p2")} == {
        id_: item for id_, item in EXPECTED.items() if id_ not in ("p1", "p2")
    }
    capsys.readouterr()
    for line, message in (
        (("p1", "absent", "--set", "year=8"), "absent"),
        (("p1",), "name the fields to change"),
        (("p1", "--set", "year"), "--set takes FIELD=VALUE, got 'year'"),
    ):
        assert run("update", filled, *line) == 1
        assert message in capsys.readouterr().err
    assert stored(filled) == found


def test_delete_takes_a_filter(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("delete", filled, "--filter", '{"year": {"<": 2003}}') == 0
    assert f"3 items deleted; {N - 3} in" in capsys.readouterr().err
    assert run("delete", filled, "p4", "--filter", '{"year": 2005}') == 1
    assert "ID cannot be combined with --filter" in capsys.readouterr().err
    assert run("delete", filled, "--filter", "year") == 1
    assert "--filter takes JSON" in capsys.readouterr().err
    assert len(stored(filled)) == N - 3


def test_add_with_replace_merges_fields(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prices.csv").write_text("id,price\np1,9.5\n")
    assert run("add", filled, tmp_path / "prices.csv") == 1
    assert run("add", filled, tmp_path / "prices.csv", "--replace") == 0
    assert stored(filled)["p1"] == ({**EXPECTED["p1"][0], "price": 9.5}, ["image", "text"])


def test_delete_takes_ids_and_files(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unwanted.txt").write_text("p2\np3\n")
    assert run("delete", filled, "p1", "absent", "--ids-file", tmp_path / "unwanted.txt") == 0
    assert f"3 items deleted; {N - 3} in" in capsys.readouterr().err
    assert run("delete", filled, "p4", "--modality", "image") == 0
    assert stored(filled)["p4"][1] == ["text"]


def test_id_files_are_read_with_any_line_endings(photos: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", np.eye(4)[:3])
    names = tmp_path / "names.txt"
    names.write_bytes("\ufeffcafé\r\na\u2028b\r\nc".encode())
    assert run("add", photos, tmp_path / "image.npy", "-m", "image", "--ids-file", names) == 0
    assert list(stored(photos)) == ["café", "a\u2028b", "c"]
    names.write_bytes("\ufeffcafé\r\n\r\na\u2028b\r\n".encode())
    assert run("delete", photos, "--ids-file", names) == 0
    assert list(stored(photos)) == ["c"]


def test_an_id_is_text_before_it_is_a_number(photos: Path) -> None:
    with Collection.open(photos) as collection:
        collection.upsert([7, "7", 8])
    assert run("delete", photos, "7", "8") == 0
    assert list(stored(photos)) == [7]


def test_export_and_import(
    filled: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Collection.open(filled) as collection:
        collection.delete(["p7"], modality="image")
        before = list(collection)
    assert run("collection", "export", filled, "--out", tmp_path / "e.jsonl") == 0
    assert run("collection", "export", filled) == 0
    assert capsys.readouterr().out == (tmp_path / "e.jsonl").read_text()
    assert run("collection", "create", tmp_path / "copy", "-M", model) == 0
    assert run("collection", "import", tmp_path / "copy", tmp_path / "e.jsonl") == 0
    with Collection.open(tmp_path / "copy") as collection:
        assert list(collection) == before
    assert run("collection", "export", filled, "--out", tmp_path / "e.jsonl") == 1
    assert "e.jsonl: exists already" in capsys.readouterr().err
    assert (
        run("collection", "export", tmp_path / "copy", "--out", tmp_path / "e.jsonl", "--replace")
        == 0
    )


def test_import_says_which_kept_rows_it_leaves_out(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = HashModel.load(model)
    with Collection.create(tmp_path / "full", loaded, keep=["scores", "features"]) as collection:
        collection.upsert(["a", "b"], {"image": np.eye(4)[:2]})
    assert run("collection", "export", tmp_path / "full", "--out", tmp_path / "e.jsonl") == 0
    for keep, left_out in (
        ((), "scores and features"),
        (("--keep", "scores"), "features"),
        (("--keep", "scores", "--keep", "features"), None),
    ):
        target = tmp_path / f"copy-{len(keep)}"
        assert run("collection", "create", target, "-M", model, *keep) == 0
        capsys.readouterr()
        assert run("collection", "import", target, tmp_path / "e.jsonl") == 0
        printed = capsys.readouterr().err
        assert "2 items imported" in printed
        if left_out is None:
            assert "does not keep" not in printed
        else:
            assert f"also has {left_out}, which {target} does not keep" in printed
            assert printed.rstrip().endswith("--keep features")


def test_get_prints_items_and_names_missing_ones(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("get", filled, "p7", "p1") == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["id"] for item in shown] == ["p7", "p1"]
    with Collection.open(filled) as collection:
        (item,) = collection.get(["p7"])
    assert item is not None
    assert shown[0]["payload"] == item.payload
    assert shown[0]["codes"]["image"] == item.codes["image"].to_bytes().tobytes().hex()
    assert run("get", filled, "p7", "absent") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["id"] == "p7"
    assert "absent" in printed.err


def test_an_output_that_is_not_utf8_loses_nothing(
    photos: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collection.open(photos) as collection:
        collection.upsert(
            ["é", "日本"], {"image": np.eye(4)[:2]}, [{"name": "naïve"}, {"name": "本"}]
        )
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "latin-1", write_through=True))
    assert run("search", photos, "--like", "é", "-m", "image", "-k", 1) == 0
    assert json.loads(written.getvalue())[0]["payload"] == {"name": "本"}
    written.truncate(0)
    written.seek(0)
    assert run("collection", "export", photos) == 0
    (tmp_path / "e.jsonl").write_bytes(written.getvalue())
    assert run("collection", "create", tmp_path / "copy", "-M", model) == 0
    assert run("collection", "import", tmp_path / "copy", tmp_path / "e.jsonl") == 0
    assert stored(tmp_path / "copy") == stored(photos)


def test_stats_check_compact_upgrade(
    filled: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(console.out), "is_terminal", property(lambda _: True))
        assert run("collection", "stats", filled) == 0
    printed = capsys.readouterr().out
    assert "25 codes" in printed
    assert "effective bits" in printed
    assert run("collection", "stats", filled) == 0
    assert json.loads(capsys.readouterr().out)["items"] == N
    assert run("collection", "compact", filled) == 0
    assert "indexes saved" in capsys.readouterr().err
    assert run("collection", "upgrade", filled, model) == 0
    loaded = HashModel.load(model)
    encoders = {**loaded.encoders, "image_v2": loaded.encoders["image"]}
    HashModel(encoders, 24, loaded.recipes).save(tmp_path / "extended")
    assert run("collection", "extend", filled, tmp_path / "extended") == 0
    assert "image, text, image_v2 → 24 bits" in capsys.readouterr().err
    assert run("collection", "extend", filled, tmp_path / "extended") == 1
    assert "adds no modality to" in capsys.readouterr().err
    assert run("collection", "check", filled) == 0
    assert "OK: 25 items" in capsys.readouterr().err


def test_check_compact_and_upgrade_show_counts(
    filled: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: dict[str, Step] = {}

    @contextmanager
    def steps(title: str) -> Iterator[OnStep]:
        yield lambda step: shown.update({title: step})

    monkeypatch.setattr(console, "steps", steps)
    assert run("collection", "check", filled) == 0
    assert run("collection", "compact", filled) == 0
    assert run("collection", "upgrade", filled, model) == 0
    rows = 2 * N  # image and text
    assert shown == {
        "checking rows": Step(N + 3 * rows, N + 3 * rows),  # items, codes, features, scores
        "compacting": Step(4, 4),
        "encoding with the other model": Step(rows, rows),
    }


def test_check_names_damage(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = filled / "items.sqlite"
    database.write_bytes(database.read_bytes().replace(b"2004}", b"2005}"))
    assert run("collection", "check", filled) == 1
    assert (
        "items.sqlite: table 'items': 1 rows do not match their checksums, of the items 'p4'"
        in capsys.readouterr().out
    )


REFUSED = [
    (
        ("add", "{photos}", "{lines}", "--column", "text"),
        "--column takes MODALITY=COLUMN, got 'text'",
    ),
    (("add", "{photos}", "{lines}", "--column", "sound=x"), "unknown modality 'sound'"),
    (
        ("add", "{photos}", "image.npy"),
        "image.npy: an array needs the modality of its rows, such as --modality image",
    ),
    (
        ("add", "{photos}", "items.xml"),
        "expected a table .csv, .tsv, .jsonl or .parquet",
    ),
    (
        ("add", "{photos}", "{lines}", "--id-column", "url"),
        "items.jsonl, line 1: there is no id column 'url'; the record has ['id', 'image', ",
    ),
    (
        ("add", "{photos}", "{lines}", "--ids-file", "names.txt"),
        "--ids-file names the rows of an array and needs --modality",
    ),
    (("add", "nowhere", "{lines}"), "nowhere: no such folder; create a collection"),
    (
        ("search", "{photos}", "-m", "text"),
        "give exactly one kind of query: inputs, --rows FILE, or --like ID",
    ),
    (("search", "{photos}", "--like", "zz", "-m", "text"), "there is no item 'zz'"),
    (("search", "{photos}", "dog", "-m", "text", "--filter", "{{"), "--filter takes JSON"),
    (("delete", "{photos}"), "name the items: give their ids, --ids-file or --filter"),
    (
        ("collection", "import", "{photos}", "{lines}"),
        "format None in its first line; expected one of",
    ),
    (
        ("collection", "create", "{photos}", "-M", "{model}"),
        "exists already; open it with Collection.open, or choose another path",
    ),
]


@pytest.mark.parametrize(
    ("command", "message"), REFUSED, ids=[message[:25] for _, message in REFUSED]
)
def test_an_error_is_one_line(
    command: tuple[str, ...],
    message: str,
    filled: Path,
    lines: Path,
    model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert run(*(part.format(photos=filled, lines=lines, model=model) for part in command)) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


TWO = '{"id": "a", "image": [1, 2, 3, 4]}\n{"id": "b", "image": '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not valid JSON"),
        ("[1]", "line 1: expected a JSON object, got '[1]'"),
        ('{"id": "a", "image": [1, 2]}', "expected shape (n, 4), got (1, 2)"),
        (TWO + "[1]}", "line 2: expected a list of 4 numbers for 'image', got [1]"),
        (
            TWO + "[1e300, 1, 1, 1]}",
            "bad.jsonl, line 2, item 'b': the row of 'image' contains NaN, infinity or numbers",
        ),
        (TWO + "5}", "line 2: expected a list of 4 numbers for 'image', got 5"),
        (TWO + '"cat.jpg"}', "line 2: expected a list of 4 numbers for 'image', got cat.jpg"),
        ('{"deep": ' + 9999 * "[", "line 1: not valid JSON"),
    ],
)
def test_damaged_lines_are_named(
    text: str, message: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl").write_text(text)
    assert run("add", photos, tmp_path / "bad.jsonl") == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["latin.jsonl", "latin.csv"])
def test_files_that_are_not_utf8_are_named(
    name: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(b'{"id": "caf\xe9"}\n')
    assert run("add", photos, tmp_path / name) == 1
    assert f"{name}, line 1: not UTF-8 (byte 0xe9); convert it" in capsys.readouterr().err


def test_invalid_csv_is_named(
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tables, "_MAX_CELL", 99)
    (tmp_path / "t.csv").write_text("id,name\na," + "x" * 100 + "\n")
    assert run("add", photos, tmp_path / "t.csv") == 1
    assert "t.csv, line 2: invalid CSV (field larger than field limit" in capsys.readouterr().err


def test_a_closed_standard_input_is_named(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run("add", photos, "-") == 1
    assert (
        "standard input is closed; pipe JSON lines into it, or name a file"
        in capsys.readouterr().err
    )


def test_codes_of_another_model_are_not_imported(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("collection", "export", filled, "-o", tmp_path / "e.jsonl") == 0
    HashModel({"image": [Affine(np.eye(4), np.zeros(4))]}, 4).save(tmp_path / "other")
    assert run("collection", "create", tmp_path / "c", "-M", tmp_path / "other") == 0
    assert run("collection", "import", tmp_path / "c", tmp_path / "e.jsonl") == 1
    assert "its codes come from another model" in capsys.readouterr().err


def test_a_collection_that_appears_meanwhile_is_not_replaced(
    model: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from crossbit.collection.local import schema

    create = schema._create_database

    def slow(*arguments: Any) -> None:  # noqa: ANN401
        create(*arguments)
        shutil.copytree(photos, tmp_path / "same")

    monkeypatch.setattr(schema, "_create_database", slow)
    assert run("collection", "create", tmp_path / "same", "-M", model) == 1
    assert "same: exists already; choose another path" in capsys.readouterr().err
    assert not list(tmp_path.glob(".same*"))
    assert stored(tmp_path / "same") == stored(photos)


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_new_collection_is_as_private_as_the_umask_says(model: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert run("collection", "create", tmp_path / "c", "-M", model) == 0
    finally:
        os.umask(before)
    paths = [tmp_path / "c", *(tmp_path / "c").rglob("*")]
    assert {path.name: oct(path.stat().st_mode & 0o077) for path in paths} == {
        path.name: "0o0" for path in paths
    }


def test_index_takes_fields(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("collection", "index", filled, "year", "tags") == 0
    assert "indexed fields: tags, year" in capsys.readouterr().err
    with Collection.open(filled) as collection:
        assert {"tags", "year"} <= set(collection.stats().fields)


@pytest.mark.parametrize("option", SearchOptions.all(), ids=lambda option: option.name)
def test_every_search_option_is_on_the_command_line(
    option: Option, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert run("search", "--help") == 0
    printed = " ".join(capsys.readouterr().out.split())
    name = option.name.replace("_", "-")
    assert (f"--{name} " if len(name) > 1 else f"-{name} ") in printed
    assert " ".join(option.doc.replace("``", "").split()[:5]) in printed


def test_a_new_search_option_needs_no_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    added = Option("depth", int | None, int | None, None, "How deep to search.")
    monkeypatch.setattr(SearchOptions, "all", lambda: (added,))

    def command(place: str, **options: object) -> None: ...

    parameters = signature(search._with_search_options(command)).parameters
    assert list(parameters) == ["place", "depth"]
    assert parameters["depth"].annotation.__metadata__[0].help == "How deep to search."


def test_search_options_of_all_types(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("search", filled, "red + food", "--target", "text", "--target", "image")
    assert run(*line, "--exclude", "p4", "--with-codes", "--min-similarity", 0.6, "-k", 25) == 0
    hits = json.loads(capsys.readouterr().out)
    assert hits
    for hit in hits:
        assert hit["id"] != "p4"
        assert hit["similarity"] >= 0.6
        assert len(bytes.fromhex(hit["code"])) == 3
    assert run(*line, "--offset", 2, "-k", 2, "--filter", '{"year": {"<": 2010}}') == 0
    page = json.loads(capsys.readouterr().out)
    assert [hit["payload"]["year"] < 2010 for hit in page] == [True, True]
    assert run("search", filled, "--like", "p4", "-m", "text", "--exclude", "p1") == 1
    assert "--exclude cannot be combined with --like" in capsys.readouterr().err


def test_the_modality_is_guessed(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("search", filled, "red + food", "--target", "text") == 0
    guessed = capsys.readouterr().out
    assert run("search", filled, "red + food", "--target", "text", "-m", "text") == 0
    assert capsys.readouterr().out == guessed
    for width, code in ((4, 0), (3, 1)):
        np.save(tmp_path / "q.npy", np.ones((1, width), np.float32))
        assert run("search", filled, "--rows", tmp_path / "q.npy") == code
    assert "add --modality with one of image, text" in capsys.readouterr().err
    assert run("search", filled, "--like", "p4") == 1
    assert "item 'p4' is not clear (several modalities take it)" in capsys.readouterr().err


def test_an_input_is_a_file_that_exists_or_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bag, colors = BagOfTags.fit([["dog.jpg", "cat"]]), ColorHistogram()
    Image.new("RGB", (32, 32), "red").save("red.jpg")
    widths = {"photo": colors.extract([Path("red.jpg")]).shape[1], "title": bag.width}
    random = np.random.default_rng(0)
    encoders = {
        name: [Affine(random.normal(size=(width, 8)), np.zeros(8))]
        for name, width in widths.items()
    }
    recipes = {"photo": colors.recipe(), "title": bag.recipe()}
    with Collection.create("shop", HashModel(encoders, 8, recipes)) as shop:
        shop.upsert(["a"], {"photo": [Path("red.jpg")], "title": [["cat"]]})
    for word, target in (("red.jpg", "title"), ("dog.jpg", "photo"), ("cat", "photo")):
        assert run("search", "shop", word) == 0
        assert json.loads(capsys.readouterr().out)[0]["modality"] == target
    assert run("search", "shop", "red.jpg", "cat") == 1
    assert "add --modality with one of photo, title" in capsys.readouterr().err
    two = {**encoders, "words": encoders["title"]}
    model = HashModel(two, 8, {**recipes, "words": bag.recipe()})
    Collection.create("two", model).close()
    assert run("search", "two", "cat") == 1
    assert "'cat' is not clear (several modalities take it)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "address", "folder"),
    [
        ("milvus://host:19530/photos#models/a", "milvus://host:19530/photos", Path("models/a")),
        ("postgresql://me@host/shop/photos", "postgresql://me@host/shop/photos", None),
        ("photos#2", "photos#2", None),  # a folder may be called so
    ],
)
def test_the_address_of_a_server_names_the_model(
    path: str, address: str, folder: Path | None
) -> None:
    assert split_address(path) == (address, folder)


def test_a_collection_on_a_server_needs_its_model(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pymilvus")
    assert run("collection", "stats", "milvus://localhost:1/photos") == 1
    assert "ADDRESS#MODEL" in capsys.readouterr().err
    assert run("collection", "create", "milvus://localhost:1/photos") == 1
    assert "--model MODEL" in capsys.readouterr().err

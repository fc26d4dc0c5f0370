"""Learning from a table of things of several kinds."""

import csv
import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from crossbit import (
    CCAITQ,
    ITQ,
    AutoHash,
    ClassRidge,
    Collection,
    DataError,
    FormatError,
    RankedCCA,
)
from crossbit.cli import main
from crossbit.data.tables import open_table
from crossbit.features import SentenceNetwork
from crossbit.learn import LearnResult, TableColumns, learn_table, plan_table
from crossbit.learn.columns import build_items, choose_columns, read_rows
from tests.features.clips import encoded_clip, npy, tone

RANDOM = np.random.default_rng(0)
COLORS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 210), "gray": (90,) * 3}
HERTZ = {"red": 300, "green": 700, "blue": 1500, "gray": 3200}
OPTIONS: dict[str, Any] = {
    "image": "photo",
    "text": "title,notes",
    "audio": "clip",
    "signal": "accel",
    "vector": "emb_0:emb_3",
    "id": "sku",
    "extractors": {
        "image": "histograms",
        "text": "tfidf",
        "signal": "statistics",
    },
    "hasher": CCAITQ(n_bits=32),
    "test_size": 0.2,
}


def write_things(folder: Path, n: int = 64) -> Path:
    """Write things of four colors: photo, title, notes, clip, series and vector, with gaps."""
    for name in ("photos", "clips", "series"):
        (folder / name).mkdir()
    rows = []
    for number in range(n):
        color = list(COLORS)[number % 4]
        pixels = np.clip(np.array(COLORS[color]) + RANDOM.normal(0, 9, (16, 16, 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{number}.png")
        clip = tone(HERTZ[color] * (1 + 0.01 * (number % 5)), 0.2) + 0.001 * RANDOM.normal(
            size=3200
        )
        (folder / "clips" / f"{number}.wav").write_bytes(encoded_clip(clip))
        level = list(COLORS).index(color)
        series = level * np.sin(np.arange(30))[:, None] + RANDOM.normal(0, 0.1, (30, 2)) + level
        (folder / "series" / f"{number}.npy").write_bytes(npy(series))
        clips = [f"clips/{number}.wav", f"clips/{(number + 4) % n}.wav"]
        row: dict[str, Any] = {
            "sku": f"s{number}",
            "photo": f"photos/{number}.png",
            "title": f"a {color} thing",
            "notes": json.dumps([f"it is {color}", f"it is very {color}"]) if number % 3 else "",
            "clip": json.dumps(clips) if number % 2 else clips[0],
            "accel": f"series/{number}.npy",
            "category": color,
            "price": 10 * number,
        }
        row |= {f"emb_{k}": level * (k == level) + 0.01 * RANDOM.normal() for k in range(4)}
        rows.append(row)
    rows[0]["photo"] = rows[1]["clip"] = rows[2]["accel"] = ""
    rows[3] |= {f"emb_{k}": "" for k in range(4)}
    rows[4]["photo"] = "photos/gone.png"
    with open(folder / "things.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder / "things.csv"


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_things(tmp_path_factory.mktemp("things"))


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, things: Path) -> None:
    monkeypatch.setenv("CROSSBIT_CACHE", str(things.parent / "cache"))


@pytest.fixture(scope="module")
def learned(things: Path) -> LearnResult:
    cache = things.parent / "cache"
    options = OPTIONS | {"hasher": ClassRidge(n_bits=32), "labels": "category", "cache": cache}
    return learn_table(things, things.parent / "shop", **options)


def test_every_kind_finds_every_other(learned: LearnResult, things: Path) -> None:
    names = ["image", "text", "audio", "signal", "vector"]
    assert learned.model.modalities == names
    assert len(learned.reports) == 20
    for direction, report in learned.reports.items():
        assert report["mAP"].value > 0.8, direction
    with Collection.open(learned.collection) as collection:
        (hits,) = collection.search("audio", [things.parent / "clips" / "9.wav"], 5, target="image")
        assert [hit.payload["category"] for hit in hits] == ["green"] * 5
        (hits,) = collection.search("text", ["something blue"], 5, target="signal")
        assert [hit.payload["category"] for hit in hits] == ["blue"] * 5


def test_gaps_lists_and_missing_files(learned: LearnResult) -> None:
    assert learned.items == 64
    assert learned.rows["image"] == 62
    assert learned.rows["vector"] == 63
    assert learned.rows["audio"] == 63 + 31
    assert any("there is no file photos/gone.png" in line for line in learned.skipped)
    with Collection.open(learned.collection) as collection:
        first, second, fourth = collection.get(["s0", "s1", "s3"])
        assert first is not None
        assert second is not None
        assert fourth is not None
        assert "image" not in first.modalities
        assert "audio" not in second.modalities
        assert "vector" not in fourth.modalities
        assert second.payload["picture"] == "photos/1.png"
        assert second.payload["signal"] == "series/1.npy"
        assert fourth.payload["audio"] == "clips/3.wav"
        assert second.payload["price"] == 10
        assert second.payload["tags"] == ["green"]
        assert "emb_0" not in second.payload
        assert Path(collection.model.card["media"]).name == learned.collection.parent.name


def test_several_inputs_are_merged_as_in_add(learned: LearnResult, things: Path) -> None:
    folder = things.parent
    paths = [folder / "clips" / "5.wav", folder / "clips" / "9.wav"]
    with Collection.open(learned.collection) as collection:
        (stored,) = collection.get(["s5"])
        collection.upsert(["again"], {"audio": [paths], "text": [["a green thing", "it is green"]]})
        (again,) = collection.get(["again"])
        assert stored is not None
        assert again is not None
        assert again.codes["audio"] == stored.codes["audio"]
        with pytest.raises(DataError, match="an item has an empty list"):
            collection.upsert(["x", "y"], {"audio": [paths, []]})
        collection.delete(["again"])


def test_later_rows_are_read_as_the_stored_columns_say(
    learned: LearnResult, things: Path, tmp_path: Path
) -> None:
    with Collection.open(learned.collection) as collection:
        card = json.loads(json.dumps(dict(collection.model.card)))
        columns = TableColumns.from_dict(card["table"])
        (stored,) = collection.get(["s5"])
    assert card == dict(learned.model.card)
    assert Path(card["media"]) == things.parent.resolve()
    assert (columns.id, columns.labels, columns.folder) == ("sku", "category", None)
    assert [m.columns for m in columns.modalities][1] == ("title", "notes")
    later = things.parent / "later.csv"  # paths are relative to it, as they were in the first table
    header, *lines = things.read_text().splitlines(keepends=True)
    later.write_text(header + lines[5])
    items = build_items(read_rows(open_table(later)), columns)
    assert stored is not None
    assert items.ids == ["s5"]
    assert {**items.payloads[0], "held_out": stored.payload["held_out"]} == stored.payload
    with Collection.open(learned.collection) as collection:
        views: dict[str, Any] = dict(items.inputs) | dict(items.vectors)
        collection.upsert(["again"], views)
        (again,) = collection.get(["again"])
        collection.delete(["again"])
    assert again is not None
    assert again.codes == stored.codes
    with pytest.raises(FormatError, match="not the columns of a table"):
        TableColumns.from_dict({"modalities": [{"name": "x"}]})


def test_aligned_rows_are_learned_from_without_labels(things: Path, tmp_path: Path) -> None:
    result = learn_table(things, tmp_path / "shop", **OPTIONS)
    assert result.reports["text → image"].relevance == "codes of the query's item"
    assert result.reports["vector → signal"]["mAP"].value > 2 / 12


def test_frames_and_files_give_the_same_plan(things: Path, tmp_path: Path) -> None:
    rows = pandas.read_csv(things)
    for column in ("clip", "notes"):
        rows[column] = [
            json.loads(cell) if str(cell).startswith("[") else cell for cell in rows[column]
        ]
    records = [
        {key: value for key, value in row.items() if isinstance(value, list) or value == value}
        for row in rows.to_dict(orient="records")
    ]
    (tmp_path / "things.jsonl").write_text("\n".join(map(json.dumps, records)))
    strings = polars.read_csv(things)
    strings.write_parquet(tmp_path / "things.parquet")
    (tmp_path / "things.tsv").write_text(strings.write_csv(separator="\t"))
    options = {key: value for key, value in OPTIONS.items() if key != "test_size"}
    options["folder"] = things.parent
    expected = plan_table(things, **options)
    for table in (
        rows,
        strings,
        tmp_path / "things.jsonl",
        tmp_path / "things.parquet",
        tmp_path / "things.tsv",
    ):
        plan = plan_table(table, **options)
        assert plan.items.inputs == expected.items.inputs
        assert list(plan.items.ids) == list(expected.items.ids)
        np.testing.assert_allclose(plan.items.vectors["vector"], expected.items.vectors["vector"])
        assert plan.counts() == expected.counts()


def test_a_table_can_be_piped(things: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(things)
    lines = [json.dumps({k: table.value(v) for k, v in row.items()}) for _, row in table.records()]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    monkeypatch.chdir(things.parent)  # what paths are relative to
    plan = plan_table(Path("-"), image="photo", vector="emb_*", id="sku")
    assert plan.counts() == {"image": (62, 2), "vector": (63, 1)}


def test_columns_are_guessed(things: Path) -> None:
    found = choose_columns(read_rows(open_table(things)), {})
    assert {m.name: (m.kind, m.columns) for m in found} == {
        "image": ("image", ("photo",)),
        "text": ("text", ("title", "notes")),
        "audio": ("audio", ("clip",)),
        "signal": ("signal", ("accel",)),
        "emb": ("vector", ("emb_0", "emb_1", "emb_2", "emb_3")),
    }
    assert all(modality.guessed for modality in found)


def test_a_column_can_make_several_modalities_of_one_kind(things: Path) -> None:
    plan = plan_table(things, text={"title": "title", "body": ["notes"]}, id="sku")
    assert dict(plan.items.kinds) == {"title": "text", "body": "text"}
    assert plan.items.inputs["title"][1] == ["a green thing"]
    assert plan.items.inputs["body"][1] == ["it is green", "it is very green"]
    assert plan.counts()["body"] == (84, 22)
    assert isinstance(plan.hasher, AutoHash)


def test_tags_of_a_cell_are_one_input(things: Path) -> None:
    plan = plan_table(things, text="notes", image="photo", extractors={"text": "tags"})
    assert plan.items.inputs["text"][1] == ["it is green, it is very green"]
    assert list(plan.items.ids) == list(range(64))


def write_sentence_encoder(folder: Path) -> SentenceNetwork:
    """Write an ONNX network that looks up a row for each of the four colors, and read it."""
    rows = np.vstack([np.full((1, 4), 0.1), np.eye(4)]).astype(np.float32)
    tokens = helper.make_tensor_value_info("x", TensorProto.INT64, [None, None])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    lookup = helper.make_node("Gather", ["table", "x"], ["y"])
    table = numpy_helper.from_array(rows, "table")
    graph = helper.make_graph([lookup], "network", [tokens], [output], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    words = {"[UNK]": 0} | {color: number + 1 for number, color in enumerate(COLORS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    return SentenceNetwork.from_folder(folder)


def test_words_search_vectors_whose_encoder_is_named(tmp_path: Path) -> None:
    encoder = write_sentence_encoder(tmp_path / "encoder")
    titles = [f"{list(COLORS)[number % 4]} thing {number}" for number in range(40)]
    rows = [{"id": n, "color": title.split()[0]} for n, title in enumerate(titles)]
    (tmp_path / "things.jsonl").write_text("\n".join(map(json.dumps, rows)))
    np.save(tmp_path / "titles.npy", encoder.extract(titles))
    name = f"text:onnx:{tmp_path / 'encoder'}"
    arguments = ["--vector", "words=titles.npy", "--labels", "color", "--bits", "16"]
    arguments += ["--features", f"words={name}", "--out", str(tmp_path / "out")]
    assert main(["learn", str(tmp_path / "things.jsonl"), *arguments]) == 0
    with Collection.open(tmp_path / "out") as collection:
        assert collection.accepts("words") == "text"
        (hits,) = collection.search("words", ["something green"], 5)
        assert {hit.payload["color"] for hit in hits} == {"green"}
    table = tmp_path / "things.jsonl"
    options: dict[str, Any] = {"vector": {"words": "titles.npy"}, "labels": "color"}
    for encoders, message in (
        ({"words": "text:tfidf"}, "'text:tfidf' cannot be a query encoder"),
        ({"words": "image:histograms"}, "makes rows of 192 numbers, but the vectors have 4"),
        ({"titles": name}, "unknown modality of vectors 'titles'"),
    ):
        with pytest.raises(DataError, match=message):
            learn_table(table, tmp_path / "other", query_encoders=encoders, **options)
    np.save(tmp_path / "titles.npy", np.zeros((3, 4)))
    with pytest.raises(DataError, match="one row of numbers for each of the 40 rows"):
        plan_table(table, **options)


def test_a_query_encoder_needs_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "things.csv").write_text("id,a0,a1\n1,2,3\n")
    arguments = ["--vector", "a0:a1", "--features", "minilm", "--out", str(tmp_path / "out")]
    assert main(["learn", str(tmp_path / "things.csv"), *arguments]) == 1
    assert "NAME=KIND:FEATURES, such as vector=text:minilm" in capsys.readouterr().err


def test_the_plan_is_shown_without_extracting(
    things: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--image", "photo", "--text", "name=title", "--text", "body=notes", "--id", "sku"]
    arguments += ["--dry-run", "--out", str(tmp_path / "shop"), "--labels", "category"]
    arguments += ["--features", "image=histograms", "--workers", "2"]
    assert main(["learn", str(things), *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "64 rows"
    assert "image  image from photo: 62 inputs, 2 rows without; features: histograms" in lines[1]
    assert "body   text from notes: 84 inputs, 22 rows without; features: minilm" in lines[3]
    assert "1 named files do not exist" in lines[4]
    assert lines[5] == "supervision: labels; method: auto, 128 bits"
    assert "features take about" in lines[6]
    assert not (tmp_path / "shop").exists()


@pytest.mark.parametrize("mode", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("hidden", "options", "libraries"),
    [
        ("torch tokenizers", "", "'torch', 'tokenizers'"),
        ("cv2", "--features image=sift", "'opencv-python-headless'"),
        ("torch", "--features image=histograms --features text=tags --method mmnn", "'torch'"),
    ],
)
def test_libraries_are_checked_before_features_are_extracted(
    hidden: str,
    options: str,
    libraries: str,
    mode: list[str],
    things: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in hidden.split():
        monkeypatch.setitem(sys.modules, module, None)
    arguments = ["--image", "photo", "--text", "title", "--out", str(tmp_path / "out")]
    arguments += [*options.split(), *mode]
    monkeypatch.setenv("CROSSBIT_CACHE", str(tmp_path / "cache"))
    assert main(["learn", str(things), *arguments]) == 1
    message = capsys.readouterr().err
    assert all(name in message for name in libraries.split(", "))
    assert "installed. Install" in message
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_refuses_what_the_run_would_refuse(
    things: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    few = things.parent / "few.csv"
    few.write_text("".join(things.read_text().splitlines(keepends=True)[:6]))
    arguments = ["--vector", "emb_*", "--dry-run", "--out"]
    for table, out, options, message in (
        (things, tmp_path, [], "exists; choose another folder"),
        (things, tmp_path / "file" / "out", [], "cannot write into"),
        (things, tmp_path / "out", ["--bits", "4096"], "from 1 to 1024, got 4096"),
        (few, tmp_path / "out", [], "expected at least 10 rows with 'vector', got 4"),
    ):
        assert main(["learn", str(table), *arguments, str(out), *options]) == 1
        assert message in " ".join(capsys.readouterr().err.split())


def test_the_command_learns_from_a_table(
    things: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--vector", "emb_0:emb_3", "--signal", "accel", "--features", "signal=statistics"]
    arguments += ["--labels", "category", "--id", "sku", "--bits", "32", "--workers", "1"]
    assert main(["learn", str(things), *arguments, "--out", str(tmp_path / "shop")]) == 0
    printed = capsys.readouterr()
    assert "signal → vector" in printed.out
    assert "--like ID -m signal" in printed.err
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"id": "new", "vector": [0, 1, 0, 0]}))
    assert main(["add", str(tmp_path / "shop"), str(more)]) == 0
    with Collection.open(tmp_path / "shop") as collection:
        (hits,) = collection.search("vector", np.array([[0.0, 1, 0, 0]]), 1, target="vector")
        assert hits[0].payload.get("category", "green") == "green"


def test_the_search_that_is_suggested_finds_something(
    things: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--text", "title", "--vector", "emb_*", "--features", "text=tfidf", "--bits", "16"]
    arguments += ["--method", "ccaitq", "--out", str(tmp_path / "shop"), "--workers", "1"]
    assert main(["learn", str(things), *arguments]) == 0
    printed = capsys.readouterr().err
    suggested = next(line for line in printed.splitlines() if "crossbit search" in line)
    assert main(shlex.split(suggested)[1:]) == 0
    assert "thing" in capsys.readouterr().out


def test_one_modality_is_learned_from_labels(things: Path, tmp_path: Path) -> None:
    result = learn_table(
        things,
        tmp_path / "shop",
        vector="emb_*",
        labels="category",
        hasher=ClassRidge(n_bits=16),
        test_size=0.3,
    )
    assert list(result.reports) == ["vector → vector"]
    assert result.reports["vector → vector"]["mAP"].value > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": "foto"}, r"there is no column 'foto'; it has \['sku', 'photo'"),
        ({"image": "photo", "labels": "class"}, "there is no column 'class'"),
        ({"image": "photo", "id": "key"}, "there is no column 'key'"),
        ({"image": "photo", "hasher": RankedCCA()}, "the table has neither labels nor rows with"),
        ({"image": "photo", "text": {"image": "title"}}, "two modalities are called 'image'"),
        ({"text": {"a b": "title"}}, "a modality name must consist of letters"),
        ({"image": "photo", "text": "title", "id": "title"}, "the id 'a red thing' occurs twice"),
        ({"image": "photo", "vector": "title"}, "no input of 'vector': every cell of title"),
        ({"image": "photo", "extractors": {"sound": "mfcc"}}, "unknown modality 'sound'"),
        ({"image": "photo", "extractors": {"image": "mfcc"}}, "unknown image extractor 'mfcc'"),
        ({"image": "photo", "text": "title", "hasher": ClassRidge()}, "classridge needs labels"),
        ({"image": "photo", "labels": "category", "hasher": CCAITQ()}, "the table gives labels"),
        ({"image": "photo", "lables": "category"}, "unknown option 'lables'"),
    ],
)
def test_unusable_options_are_refused_before_any_work(
    options: dict[str, Any], message: str, things: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        learn_table(things, tmp_path / "out", cache=tmp_path / "cache", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("photo,title\nhttps://x.org/a.jpg,A dog\n", "line 2: 'https://x.org/a.jpg' in column"),
        ("id,photo,title\n1,a.jpg,A\n1,b.jpg,B\n", "line 3: the id '1' occurs twice, first in"),
        ("id,photo,title\n,a.jpg,A\n2,b.jpg,B\n", "line 2: the id in column 'id' is missing"),
        ("photo,title\na,b,c\n", "line 2: 3 cells, but the header in line 1 names 2 columns"),
        ("photo,photo\na,b\n", "line 1: two columns have the same name"),
        ("photo,title\n", "has no rows"),
        ("photo,title\na.jpg,b\n", "no input of 'image': every cell of photo is empty or"),
    ],
)
def test_unusable_tables_are_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "things.csv").write_text(content)
    options: dict[str, Any] = {"extractors": {"image": "histograms", "text": "tfidf"}}
    with pytest.raises((DataError, FormatError), match=message):
        learn_table(
            tmp_path / "things.csv", tmp_path / "out", image="photo", text="title", **options
        )


def test_unusable_files_and_cells_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "things.jsonl"
    for content, message in (
        ("{", "line 1: not valid JSON"),
        ("[1]", "line 1: expected a JSON object"),
        ('{"photo": 3, "title": "x"}', "line 1: expected the path of a file in column 'photo'"),
    ):
        path.write_text(content)
        with pytest.raises((DataError, FormatError), match=message):
            plan_table(path, image="photo", text="title")
    path.write_text('{"emb": [1, 2], "title": "x"}\n{"emb": [1], "title": "x"}')
    with pytest.raises(DataError, match="line 2: expected a list of 2 numbers for 'vector', got"):
        plan_table(path, vector="emb", text="title")
    path.write_text('{"emb": [1, 2], "title": "x"}\n{"emb": [1, NaN], "title": "x"}')
    with pytest.raises(DataError, match="line 2: the row of 'vector' contains NaN or infinity"):
        plan_table(path, vector="emb", text="title")
    for table, message in (
        (tmp_path / "none.csv", "cannot be read"),
        (tmp_path / "things.xlsx", r"expected a table \.csv, \.tsv, \.jsonl or \.parquet"),
        (7, "expected the path of a table or a frame of pandas or polars, got int"),
    ):
        with pytest.raises(DataError, match=message):
            open_table(table)
    path.write_text('{"a": true}')
    with pytest.raises(DataError, match="no column looks like files, texts or numbered numbers"):
        plan_table(path)


def test_one_modality_without_labels_is_learned_from_neighbors(
    things: Path, tmp_path: Path
) -> None:
    plan = plan_table(things, vector="emb_*")
    assert plan.supervision == "neighbors"
    assert "supervision: neighbors in the features; method: auto, 128 bits" in plan.summary()
    hasher = AutoHash(n_bits=16)
    result = learn_table(things, tmp_path / "shop", vector="emb_*", hasher=hasher, test_size=0.4)
    report = result.reports["vector → vector"]
    assert report.relevance == "the 10 nearest neighbors of the query's features, by the cosine"
    assert report["mAP"].value > 0.6  # a quarter of the things are of the same color


def test_rows_with_one_modality_each_are_learned_from_neighbors(tmp_path: Path) -> None:
    lines = [
        json.dumps({"title": f"a {'red' if n % 3 else 'blue'} thing"} if n % 2 else {"emb": [n, 1]})
        for n in range(40)
    ]
    path = tmp_path / "things.jsonl"
    path.write_text("\n".join(lines))
    options: dict[str, Any] = {
        "text": "title",
        "vector": "emb",
        "extractors": {"text": "tfidf"},
        "hasher": ITQ(n_bits=16),
        "cache": tmp_path / "cache",
    }
    assert "each will find only itself" in plan_table(path, **options).summary()
    with pytest.raises(DataError, match="nothing relates text to vector"):
        plan_table(path, **options | {"hasher": None})
    result = learn_table(path, tmp_path / "out", **options)
    assert sorted(result.reports) == ["text → text", "vector → vector"]
    assert result.test_items == 6
    path.write_text("\n".join([*lines[:10], *lines[11::2]]))
    with pytest.raises(DataError, match="expected at least 10 rows with 'vector', got 5"):
        learn_table(path, tmp_path / "out2", **options)


def test_labels_can_be_lists(tmp_path: Path) -> None:
    rows = [
        {"emb": [n % 2, n % 3, 1], "more": [n % 2, n % 3], "kinds": [f"a{n % 2}", f"b{n % 3}"]}
        for n in range(60)
    ]
    (tmp_path / "things.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = learn_table(
        tmp_path / "things.jsonl",
        tmp_path / "out",
        vector={"left": "emb", "right": "more"},
        labels="kinds",
        cache=tmp_path / "cache",
    )
    assert result.reports["right → left"]["mAP"].value > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["t.csv", "--captions", "y.csv"], "captions describe a folder of pictures"),
        (["t.csv", "--image", "a", "--image", "b"], "--image makes two modalities called 'image'"),
    ],
)
def test_forms_of_the_command_are_not_mixed(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", *arguments, "--out", str(tmp_path / "out")]) == 1
    assert message in " ".join(capsys.readouterr().err.split())

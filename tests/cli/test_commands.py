"""Commands through ``main``, with files on disk."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from crossbit import HASHERS, Codes, Dataset, HashModel
from crossbit._install import Installation
from crossbit.cli import main
from crossbit.cli.doctor import EXTRAS
from crossbit.evaluation import read_result
from crossbit.metrics.weak import calibrate, thresholds

ROOT = Path(__file__).parents[2]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "toy"
    assert run("data", "synthetic", "--out", folder, "--rows", 200, "--set", "classes=4") == 0
    return folder


@pytest.fixture(scope="module")
def model(toy: Path) -> Path:
    folder = toy.with_name("model")
    assert run("fit", toy, "--method", "ccaitq", "--bits", 24, "--out", folder) == 0
    return folder


def test_fit_writes_a_model(model: Path) -> None:
    loaded = HashModel.load(model)
    assert (loaded.modalities, loaded.n_bits) == (["image", "text"], 24)
    assert loaded.card["method"] == "ccaitq"


@pytest.mark.parametrize(("split", "rows"), [("train", "split train"), ("all", "all rows")])
def test_fit_says_which_rows_it_used(
    split: str, rows: str, toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("fit", toy, "--method", "ccaitq", "--bits", 8, "--split", split)
    assert run(*line, "--out", tmp_path / "model") == 0
    assert f"trained by ccaitq on {rows} of Dataset(" in capsys.readouterr().err


def test_fit_learns_from_neighbors(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("--set", "steps=2", "--set", "loss=ranking", "--bits", 8)
    line = ("fit", toy, "--method", "mmnn", *settings, "-o", tmp_path / "model", "--neighbors")
    assert run(*line, "image=cosine(4)", "--neighbors", "text=euclidean") == 0
    data = HashModel.load(tmp_path / "model").card["data"]
    assert data["neighbors of image"].startswith("4 nearest by cosine of")
    assert data["neighbors of text"].startswith("10 nearest by euclidean of")
    assert run(*line, "cosine", "--neighbors", "text=cosine", "--replace") == 1
    assert "--neighbors: give one metric for all modalities" in capsys.readouterr().err
    assert run(*line, "cosine", "--ray", "local", "--replace") == 1
    alone = ("fit", toy, "-o", tmp_path / "other", "--bits", 8, "--neighbors")
    assert run(*alone, "cosine") == 1  # of two modalities
    assert "auto" in capsys.readouterr().err
    assert run(*alone, "sound=cosine") == 1
    assert "sound" in capsys.readouterr().err
    assert run(*alone, "image=cosine") == 0
    model = HashModel.load(tmp_path / "other")
    assert (model.modalities, model.card["chosen"]) == (["image"], "rankeditq")


def test_fields_come_from_a_file_and_from_the_line(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "fields.toml").write_text("regularization = 0.5\nn_bits = 12\n")
    code = run(
        "fit",
        toy,
        "--method",
        "ccaitq",
        "--config",
        tmp_path / "fields.toml",
        "--set",
        "rounds=3",
        "-o",
        tmp_path / "model",
    )
    assert code == 0
    fields = HashModel.load(tmp_path / "model").card["fields"]
    assert (fields["regularization"], fields["n_bits"], fields["rounds"]) == (0.5, 12, 3)


def test_the_line_overrules_the_file(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "fields.toml").write_text("n_bits = 12\nseed = 5\n")
    code = run(
        "fit",
        toy,
        "--method",
        "lsh",
        "--config",
        tmp_path / "fields.toml",
        "--bits",
        20,
        "-o",
        tmp_path / "model",
    )
    assert code == 0
    fields = HashModel.load(tmp_path / "model").card["fields"]
    assert (fields["n_bits"], fields["seed"]) == (20, 5)


def test_encode_writes_codes_or_packed_bytes(toy: Path, model: Path, tmp_path: Path) -> None:
    image = toy / "image.npy"
    assert (
        run("encode", model, image, "--modality", "image", "--out", tmp_path / "image.codes") == 0
    )
    assert run("encode", model, image, "--modality", "image", "--out", tmp_path / "image.npy") == 0
    expected = HashModel.load(model).encode("image", np.load(image))
    assert Codes.load(tmp_path / "image.codes") == expected
    assert Codes.load(tmp_path / "image.codes").model == expected.model
    assert Codes.from_bytes(np.load(tmp_path / "image.npy"), 24) == expected


def test_evaluate_prints_every_direction_and_writes_a_result(
    toy: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    assert run("evaluate", model, toy, "--at", 5, "--out", path) == 0
    printed = capsys.readouterr().out
    result = read_result(path)
    for direction in ("image → image", "image → text", "text → image", "text → text"):
        assert direction in printed
        report = result["directions"][direction.replace(" → ", "-")]
        first = report["results"][0]
        assert first["name"] == "mAP"
        assert f"{100 * first['value']:.1f}" in printed
        assert "expectation over all orders" in first["definition"]
    assert path.with_name(path.name + ".codes").is_file()
    assert (result["protocol"]["queries"], result["protocol"]["base"]) == ("test", "test")


def test_evaluate_shows_where_quality_is_lost(
    toy: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    assert run("evaluate", model, toy, "--stages", "--out", path) == 0
    printed = capsys.readouterr().out
    stages = read_result(path)["stages"]
    assert {stage["name"] for stage in stages} == {"mAP"}
    for stage in stages:
        (line,) = [row for row in printed.splitlines() if row.startswith(stage["stage"] + "  ")]
        assert ("–" if stage["value"] is None else f"{100 * stage['value']:.1f}") in line
    assert "hits of an index of the first 12 bits" in printed
    assert "the modalities have no common space yet" in printed
    assert "100 hits, by kept scores" in printed
    assert run("evaluate", model, toy, "--out", path) == 0
    assert "kept scores" not in capsys.readouterr().out


def test_a_model_or_a_file_in_the_place_of_a_data_set_is_named(
    toy: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("evaluate", toy, model) == 1
    assert f"{toy}: is a data set; expected a model" in capsys.readouterr().err
    assert run("evaluate", model, model) == 1
    assert f"{model}: is a model; expected a data set" in capsys.readouterr().err
    table = tmp_path / "table.csv"
    table.write_text("a_0,a_1\n1,2\n")
    assert run("fit", table, "--out", tmp_path / "m") == 1
    assert f"crossbit data convert {table} --out {tmp_path / 'table'}" in capsys.readouterr().err
    assert run("data", "info", tmp_path / "absent") == 1
    assert (
        "absent: no such folder; expected one of format 'crossbit.dataset/1'"
        in capsys.readouterr().err
    )


def test_fit_finds_the_distances_of_weak_matches_on_test_rows(
    toy: Path, model: Path, tmp_path: Path
) -> None:
    found = thresholds(HashModel.load(model))
    assert sorted(found) == [("image", "text"), ("text", "image")]
    test = Dataset.load(toy).part("test").views
    assert found == thresholds(calibrate(HashModel.load(model), test))
    line = ("fit", toy, "--method", "lsh", "--bits", 24)
    assert run(*line, "--split", "all", "--out", tmp_path / "all") == 0
    assert thresholds(HashModel.load(tmp_path / "all")) == {}
    data = Dataset.load(toy)
    views = {name: np.array(X) for name, X in data.views.items()}
    views["image"][np.asarray(data.splits["test"])] = np.nan
    Dataset(views=views, splits=data.splits).save(tmp_path / "gaps")
    line = ("fit", tmp_path / "gaps", "--method", "lsh", "--bits", 24)
    assert run(*line, "--out", tmp_path / "few") == 0
    assert thresholds(HashModel.load(tmp_path / "few")) == {}


def test_evaluation_without_a_test_split_warns(
    toy: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Dataset.load(toy)
    Dataset(views=data.views, labels=data.labels).save(tmp_path / "whole")
    capsys.readouterr()
    assert run("evaluate", model, tmp_path / "whole", "--out", tmp_path / "r.json") == 0
    assert (
        "has no test split: if the model was trained on these rows, the results are"
        in capsys.readouterr().err
    )
    assert run("evaluate", model, toy, "--out", tmp_path / "r.json") == 0
    assert "optimistic" not in capsys.readouterr().err


def test_a_result_has_a_default_path(
    toy: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("evaluate", model, toy) == 0
    assert (tmp_path / "results" / "evaluate" / "synthetic-ccaitq-24-0.json").is_file()


def test_evaluate_codes_reads_codes_in_many_forms(
    toy: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = HashModel.load(model).encode("image", np.load(toy / "image.npy"))
    bits = codes.unpack()
    labels = np.load(toy / "labels.npy")
    codes.save(tmp_path / "a.codes")
    np.save(tmp_path / "bool.npy", bits)
    np.save(tmp_path / "signs.npy", 2.0 * bits - 1)
    np.save(tmp_path / "packed.npy", codes.to_bytes())
    np.savez(tmp_path / "two.npz", B=bits.astype(np.int8), L=labels)
    scipy.io.savemat(tmp_path / "matlab.mat", {"B": 2.0 * bits - 1, "L": labels[:, None] + 1})
    forms = [
        ("a.codes", toy / "labels.npy"),
        ("bool.npy", toy / "labels.npy"),
        ("signs.npy", toy / "labels.npy"),
        ("two.npz:B", f"{tmp_path}/two.npz:L"),
        ("matlab.mat:B", f"{tmp_path}/matlab.mat:L"),
        ("packed.npy", toy / "labels.npy", "--bits", 24),
    ]
    values = []
    for codes_file, labels_file, *rest in forms:
        out = tmp_path / "report.json"
        line = ("evaluate", "--codes", f"{tmp_path}/{codes_file}", "--labels", labels_file, *rest)
        assert run(*line, "--at", 10, "--out", out) == 0
        values.append([result["value"] for result in json.loads(out.read_text())["results"]])
    assert all(value == values[0] for value in values)
    printed = capsys.readouterr().out
    assert "definition" in printed
    assert "\npercent\n" in printed


def test_evaluate_codes_against_another_base(toy: Path, model: Path, tmp_path: Path) -> None:
    for modality in ("image", "text"):
        assert (
            run("encode", model, toy / f"{modality}.npy", "-m", modality, "-o", tmp_path / modality)
            == 0
        )
    path = tmp_path / "r.json"
    base = ["--base", tmp_path / "text", "--base-labels", toy / "labels.npy"]
    assert (
        run(
            "evaluate",
            "--codes",
            tmp_path / "image",
            "--labels",
            toy / "labels.npy",
            *base,
            "--ties",
            "worst",
            "--out",
            path,
        )
        == 0
    )
    assert json.loads(path.read_text())["n_base"] == 200


def test_the_help_of_fit_lists_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit", "--help") == 0
    printed = capsys.readouterr().out
    for name, method in HASHERS.items():
        (line,) = [line for line in printed.splitlines() if line.split()[:1] == [name]]
        assert method.title.split()[0] in line


def test_doctor_shows_kernels_and_extras(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    printed = capsys.readouterr().out
    for word in ("kernels", "training on", "networks", "media"):
        assert word in printed
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(EXTRAS) == extras.keys() - {*("cli", "all", "docs", "dev", "dev-scale")}


def test_doctor_names_the_methods_that_need_torch() -> None:
    networks = [name for name, hasher in HASHERS.items() if "torch" in hasher.libraries]
    assert f"({', '.join(networks)})" in EXTRAS["networks"]


def test_doctor_says_how_to_install_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.cli.doctor.find_spec", lambda name: None)
    monkeypatch.setattr("crossbit.cli.doctor.installation", lambda: Installation("index"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("crossbit.kernels.level", lambda: "numpy")
    assert run("doctor") == 0
    printed = capsys.readouterr().out
    assert f"pip install 'crossbit[{','.join(EXTRAS)}]'\n" in printed
    assert "installed from  package index" in printed
    assert "for the CPU alone" in printed
    assert "no C compiler" in printed


def test_data_convert_info_and_list(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Dataset.load(toy)
    np.savez(
        tmp_path / "mine.npz",
        cnn=data.views["image"],
        bow=data.views["text"],
        y=np.asarray(data.labels),
    )
    maps = ["--map", "picture=cnn", "--map", "words=bow", "--map", "labels=y"]
    assert run("data", "convert", tmp_path / "mine.npz", "--out", tmp_path / "mine", *maps) == 0
    assert run("data", "info", tmp_path / "mine") == 0
    assert "picture" in capsys.readouterr().out
    assert Dataset.load(tmp_path / "mine").modalities == ["picture", "words"]
    monkeypatch.delenv("CROSSBIT_DATA", raising=False)
    assert run("data", "list") == 0
    assert "wiki" in capsys.readouterr().out


def test_data_synthetic_takes_modalities(tmp_path: Path) -> None:
    arguments = [
        "--modality",
        "image=8",
        "--modality",
        "sound=3",
        "-n",
        50,
        "--set",
        "missing=0.2",
        "--set",
        "labels_per_row=2.0",
    ]
    assert run("data", "synthetic", "--out", tmp_path / "three", *arguments) == 0
    data = Dataset.load(tmp_path / "three")
    assert data.modalities == ["image", "sound"]
    assert np.isnan(data.views["sound"]).any()


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("crossbit ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "TOY", "--method", "nonsense", "-o", "x"], "unknown method 'nonsense'; known: ["),
        (
            ["fit", "TOY", "--method", "lsh", "--set", "color", "-o", "x"],
            "--set takes FIELD=VALUE, got 'color'",
        ),
        (
            ["fit", "TOY", "--method", "lsh", "--set", "color=1", "-o", "x"],
            "lsh: unknown fields ['color']",
        ),
        (
            ["fit", "TOY", "--method", "lsh", "--split", "dev", "-o", "x"],
            "unknown split 'dev'; known: ['test', 'train']",
        ),
        (
            ["fit", "TOY", "--method", "lsh", "--bits", "0", "-o", "x"],
            "integer from 1 to 1024, got 0",
        ),
        (["fit", "nowhere", "--method", "lsh", "-o", "x"], "nowhere"),
        (
            ["encode", "MODEL", "TOY/text.npy", "-m", "image", "-o", "x"],
            "expected shape (n, 64), got (200, 32)",
        ),
        (["encode", "MODEL", "TOY/text.npy", "-m", "shape", "-o", "x"], "unknown modality 'shape'"),
        (
            ["encode", "MODEL", "nowhere.npy", "-m", "image", "-o", "x"],
            "nowhere.npy: no such file",
        ),
        (
            ["encode", "TOY", "TOY/text.npy", "-m", "text", "-o", "x"],
            "is a data set; expected a model",
        ),
        (["evaluate", "MODEL", "TOY", "--queries", "dev"], "unknown split 'dev'"),
        (["evaluate", "TOY", "MODEL"], "is a data set; expected a model"),
        (
            ["evaluate", "--codes", "TOY/image.npy", "--labels", "TOY/labels.npy"],
            "pack scores as X >= 0",
        ),
        (
            ["evaluate", "--codes", "TOY/labels.npy", "--labels", "TOY/labels.npy"],
            "shape (n, n_bits), got (200,)",
        ),
        (["evaluate", "--codes", "TOY/image.npy"], "--codes needs --labels"),
        (
            ["evaluate", "--codes", "x.npy", "--labels", "y.npy", "--base", "z.npy"],
            "--base needs --base-labels",
        ),
        (["evaluate", "MODEL", "TOY", "--codes", "x"], "MODEL cannot be combined with --codes"),
        (["evaluate", "MODEL", "TOY", "--sign"], "--sign cannot be combined with evaluate without"),
        (["evaluate", "MODEL"], "name a model and a data set"),
        (["fit", "TOY", "--like", "text", "-o", "x"], "--like cannot be combined with fit without"),
        (["fit", "TOY", "--workers", "2", "-o", "x"], "--workers cannot be combined with fit"),
        (
            ["fit", "TOY", "--extend", "MODEL", "--bits", "8", "-o", "x"],
            "--bits cannot be combined with --extend",
        ),
        (
            ["fit", "TOY", "--method", "mmnn", "--as-printed", "wiki:3", "-o", "x"],
            "EXPERIMENT:LAYERS, got 'wiki:3'",
        ),
        (
            ["encode", "MODEL", "TOY/text.npy", "-m", "text", "--into", "x"],
            "--into cannot be combined with encode without --ray",
        ),
        (
            ["encode", "MODEL", "TOY/image.npy", "-m", "image", "-o", "TOY/image.npy"],
            "holds the feature rows",
        ),
        (["evaluate", "MODEL", "TOY", "-o", "x.codes"], "name the result .json"),
        (
            ["fit", "TOY", "--method", "lsh", "--seed", "-1", "-o", "x"],
            "seed must be an integer of at least 0, got -1",
        ),
        (
            ["fit", "TOY", "--method", "ccaitq", "--set", "rounds=2.5", "-o", "x"],
            "rounds must be an integer of at least 0, got 2.5",
        ),
        (
            ["fit", "TOY", "--method", "ccaitq", "--set", "power=abc", "-o", "x"],
            "power must be a finite number of at least 0, got 'abc'",
        ),
        (["data", "synthetic", "-o", "x", "--modality", "image"], "--modality takes NAME=WIDTH"),
        (["data", "info", "nowhere"], "nowhere"),
    ],
)
def test_an_error_is_one_line_and_exit_1(
    toy: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    filled = [word.replace("TOY", str(toy)).replace("MODEL", str(model)) for word in arguments]
    assert run(*filled) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.startswith("crossbit: ")
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # nothing was written


def test_wrong_usage_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit") == 2
    assert run("nonsense") == 2
    assert "Usage" in capsys.readouterr().err
    assert run("serach", "photos") == 2
    assert "Did you mean 'search'" in capsys.readouterr().err


def test_an_invalid_settings_file_is_named(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fields.toml").write_text("n_bits = = 3")
    assert (
        run(
            "fit",
            toy,
            "--method",
            "lsh",
            "--config",
            tmp_path / "fields.toml",
            "-o",
            tmp_path / "model",
        )
        == 1
    )
    assert "fields.toml: not valid TOML" in capsys.readouterr().err


def test_ctrl_c_prints_one_line_and_leaves_nothing(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("crossbit.hashers.base.Hasher.fit", interrupt)
    assert run("fit", toy, "--method", "lsh", "-o", tmp_path / "model") == 130
    assert "stopped" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_typer_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "crossbit.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    assert run("doctor") == 1
    assert "[cli]'" in capsys.readouterr().err


def test_a_full_disk_or_forbidden_folder_is_one_line(
    toy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "model"))

    monkeypatch.setattr("crossbit.model.hashmodel.storage.save", full)
    assert run("fit", toy, "--method", "lsh", "-o", tmp_path / "model") == 1
    assert "No space left on device" in capsys.readouterr().err


def test_a_row_that_is_not_finite_is_named_by_its_number_in_the_file(
    tmp_path: Path,
    model: Path,
    toy: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("crossbit.cli.codes._ENCODE_ROWS", 16)
    X = np.load(toy / "image.npy")
    X[2] = np.nan
    X[50, 0] = np.inf
    np.save(tmp_path / "X.npy", X)
    command = ["encode", model, tmp_path / "X.npy", "-m", "image", "-o", tmp_path / "x.codes"]
    assert run(*command, "--skip-absent") == 1
    assert capsys.readouterr().err == (
        f"crossbit: {tmp_path / 'X.npy'}: row 50 (counted from 0) contains NaN, infinity or"
        " numbers beyond float32; remove or impute it\n"
    )


def test_a_missing_file_is_named_without_an_error_number(
    tmp_path: Path, model: Path, toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("collection", "create", tmp_path / "items", "--model", model) == 0
    capsys.readouterr()
    assert run("add", tmp_path / "items", tmp_path / "none.jsonl") == 1
    assert capsys.readouterr().err == (
        f"crossbit: {tmp_path / 'none.jsonl'}: cannot be read (No such file or directory)\n"
    )
    assert run("encode", model, toy, "-m", "image", "-o", tmp_path / "x.codes") == 1
    assert f"{toy}: a folder; expected a file that ends with" in capsys.readouterr().err


def test_add_says_which_batch_an_error_is_in(
    tmp_path: Path, model: Path, toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X = np.load(toy / "image.npy")
    X[70, 0] = np.nan
    np.save(tmp_path / "X.npy", X)
    assert run("collection", "create", tmp_path / "items", "--model", model) == 0
    capsys.readouterr()
    command = ["add", tmp_path / "items", tmp_path / "X.npy", "-m", "image"]
    assert run(*command, "--batch", 50) == 1
    printed = capsys.readouterr().err
    assert "X.npy, row 70 (counted from 0), item 70: the row of 'image' contains NaN" in printed
    assert "the 50 items before it were added, so after correcting the file" in printed
    assert run(*command, "--replace") == 1
    assert "X.npy, row 70 (counted from 0), item 70" in capsys.readouterr().err


def test_absent_rows_can_be_skipped(
    tmp_path: Path, model: Path, toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X = np.load(toy / "image.npy")
    X[::3] = np.nan
    np.save(tmp_path / "X.npy", X)
    assert run("encode", model, tmp_path / "X.npy", "-m", "image", "-o", tmp_path / "a.codes") == 1
    assert "row 0 (counted from 0) contains NaN" in (printed := capsys.readouterr().err)
    assert "or skip rows that are all NaN with --skip-absent" in printed
    assert (
        run(
            "encode",
            model,
            tmp_path / "X.npy",
            "-m",
            "image",
            "-o",
            tmp_path / "a.codes",
            "--skip-absent",
        )
        == 0
    )
    rows = np.load(tmp_path / "a.codes.rows.npy")
    assert (
        Codes.load(tmp_path / "a.codes")
        == HashModel.load(model).encode("image", np.load(toy / "image.npy"))[rows]
    )
    assert len(rows) == 133


def test_evaluate_codes_takes_real_numbers_and_a_row_of_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    np.save(tmp_path / "scores.npy", random.normal(size=(40, 8)))
    np.save(tmp_path / "labels.npy", (np.arange(40) % 3)[None])
    line = ("evaluate", "--codes", tmp_path / "scores.npy", "--labels", tmp_path / "labels.npy")
    assert run(*line, "--sign") == 0
    np.save(tmp_path / "labels.npy", np.arange(30) % 3)
    assert run(*line, "--sign") == 1
    assert "labels.npy: 30 labels for 40 codes" in capsys.readouterr().err


def test_an_unexpected_exception_is_one_line_too(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by chance")

    monkeypatch.delenv("CROSSBIT_DEBUG", raising=False)
    monkeypatch.setattr("crossbit.hashers.base.Hasher.fit", fail)
    assert run("fit", toy, "--method", "lsh", "-o", tmp_path / "model") == 1
    assert capsys.readouterr().err == (
        "crossbit: ZeroDivisionError: by chance; this is a bug,"
        " set CROSSBIT_DEBUG=1 to see the traceback\n"
    )
    monkeypatch.setenv("CROSSBIT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run("fit", toy, "--method", "lsh", "-o", tmp_path / "model")


def test_a_terminal_that_lacks_characters_gets_question_marks(
    toy: Path, model: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crossbit", "evaluate", str(model), str(toy), "-o", "r.json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "image ? text" in done.stdout
    assert (tmp_path / "r.json").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_prints_one_line_and_leaves_nothing(
    toy: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """A slow fit is stopped."""
    code = (
        # a background job of a script inherits an ignored SIGINT; a terminal does not
        "import signal, sys, time, crossbit.hashers.lsh as lsh\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def slow(*a, **k):\n    print('started', flush=True)\n    time.sleep(60)\n"
        "lsh.LSH._learn = slow\n"
        "from crossbit.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            code,
            "fit",
            str(toy),
            "--method",
            "lsh",
            "-o",
            str(tmp_path / "model"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("crossbit: stopped")
    assert list(tmp_path.iterdir()) == []


def test_a_narrow_terminal_gets_fewer_columns(
    toy: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from crossbit.cli import console

    monkeypatch.setattr(console.out, "width", 80)
    assert run("evaluate", model, toy, "-o", tmp_path / "r.json") == 0
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "ties" not in printed.splitlines()[0]


def test_reproduce_prints_ours_beside_the_papers(
    wiki_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            "reproduce", "wiki", "--data", wiki_folder, "--only", "cm", "--seeds", 1, "-o", tmp_path
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "24.9" in printed
    assert "chance 11.8" in printed
    assert (tmp_path / "runs.jsonl").is_file()


def test_reproduce_knows_its_rows(wiki_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reproduce", "wiki", "--data", wiki_folder, "--only", "nonsense") == 1
    assert "unknown method 'nonsense'; known: ['auto'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "tune", "evaluate"])
def test_a_bad_row_of_a_split_is_named_by_its_number_in_the_file(
    command: str, model: Path, toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Dataset.load(toy)
    X = np.array(data.views["text"])
    split = data.splits["test" if command == "evaluate" else "train"]
    bad = int(split[3])  # type: ignore[index]
    assert bad != 3
    X[bad, 1] = np.nan
    views = {**data.views, "text": X}
    Dataset(views=views, labels=data.labels, splits=data.splits).save(tmp_path / "bad")
    arguments: dict[str, list[object]] = {
        "fit": [tmp_path / "bad", "--method", "ccaitq", "-o", tmp_path / "out"],
        "tune": [tmp_path / "bad", "--method", "ccaitq", "--trials", 1, "-o", tmp_path / "out"],
        "evaluate": [model, tmp_path / "bad"],
    }
    capsys.readouterr()
    assert run(command, *arguments[command]) == 1
    message = f"bad/text.npy, row {bad} (counted from 0): the row of 'text' contains NaN"
    assert message in capsys.readouterr().err


def test_an_output_that_exists_is_not_replaced(
    toy: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ("fit", toy, "--method", "lsh", "-o", tmp_path / "model")
    encode = ("encode", model, toy / "image.npy", "-m", "image", "-o", tmp_path / "image.codes")
    for command in (fit, encode):
        out = Path(str(command[-1]))
        assert run(*command) == 0
        before = out.stat().st_mtime_ns
        capsys.readouterr()
        assert run(*command) == 1
        assert f"{out}: exists already; choose another path, or add --replace" in (
            capsys.readouterr().err
        )
        assert out.stat().st_mtime_ns == before
        assert run(*command, "--replace") == 0
        assert out.stat().st_mtime_ns != before
    (tmp_path / "x.codes.rows.npy").write_text("mine")
    encode = (*encode[:-1], tmp_path / "x.codes")
    assert run(*encode, "--skip-absent") == 1
    assert (tmp_path / "x.codes.rows.npy").read_text() == "mine"
    assert run(*encode) == 0

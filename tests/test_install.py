"""How a copy was installed, the command that adds an extra, and checks of optional libraries."""

import ast
import inspect
import pickle
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from crossbit import AutoHash, _install
from crossbit._install import LIBRARIES, Installation, installation
from crossbit._validation import check_installed
from crossbit.cli import main
from crossbit.errors import MissingExtraError
from crossbit.hashers import HASHERS
from crossbit.learn.extractors import DEFAULT_EXTRACTORS, required_libraries
from scripts import pins

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {"numpy", "safetensors"}
# Modules that come with a library of the table: module → that library.
COMPANIONS = {
    "google": "onnx",  # protobuf
    "grpc": "pymilvus",
    "pydantic": "fastapi",
    "pydantic_core": "fastapi",
    "starlette": "fastapi",
}


@pytest.fixture(autouse=True)
def pip_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_install, "_pip", lambda: "pip")


@pytest.mark.parametrize(
    ("record", "source", "command"),
    [
        (
            {"url": "file:///src/crossbit", "dir_info": {"editable": True}},
            "clone at /src/crossbit",
            "pip install --editable '/src/crossbit[cli,train]'",
        ),
        (
            {"url": "file:///my%20src/crossbit", "dir_info": {}},
            "folder at /my src/crossbit",
            "pip install '/my src/crossbit[cli,train]'",
        ),
        (
            {"url": "file:///dist/crossbit-0.1.0-py3-none-any.whl", "archive_info": {}},
            "file at file:///dist/crossbit-0.1.0-py3-none-any.whl",
            "pip install 'crossbit[cli,train] @ file:///dist/crossbit-0.1.0-py3-none-any.whl'",
        ),
        (
            {
                "url": "https://example.org/crossbit.git",
                "vcs_info": {"vcs": "git", "requested_revision": "v0.1.0", "commit_id": "1f2e"},
            },
            "repository at git+https://example.org/crossbit.git@v0.1.0",
            "pip install 'crossbit[cli,train] @ git+https://example.org/crossbit.git@v0.1.0'",
        ),
    ],
)
def test_the_command_repeats_the_source(record: dict[str, Any], source: str, command: str) -> None:
    found = _install._from_record(record)
    assert str(found) == source
    assert found.command("cli", "train") == command


def test_a_clone_brings_its_constraints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "constraints.txt").touch()
    clone = Installation("clone", str(tmp_path))
    constraints = tmp_path / "constraints.txt"
    assert clone.command("cli") == (
        f"pip install --editable '{tmp_path}[cli]' --constraint {constraints}"
    )
    monkeypatch.chdir(tmp_path)
    assert clone.command("cli") == "pip install --editable '.[cli]' --constraint constraints.txt"


def test_without_a_record_the_copy_is_of_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            return None

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Distribution())
    assert str(installation()) == "package index"
    assert installation().command("cli") == "pip install 'crossbit[cli]'"


def test_an_importable_folder_is_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", distribution)
    assert installation() == Installation("clone", str(ROOT))


def test_the_pip_of_another_interpreter_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    folder = tmp_path / "my environment"
    folder.mkdir()
    for name in ("python", "pip"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "")
    assert _install._pip() == f"'{folder / 'python'}' -m pip"
    monkeypatch.setenv("PATH", str(folder))
    assert _install._pip() == "pip"


def test_windows_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.name", "nt")
    assert _install._quote("crossbit[cli]") == '"crossbit[cli]"'


def test_all_missing_libraries_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "cv2", "faiss"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(_install, "installation", lambda: Installation("index"))
    with pytest.raises(MissingExtraError) as raised:
        check_installed("torch", "rich", "cv2", "faiss")
    message = (
        "'torch', 'opencv-python-headless', 'faiss-cpu' are not installed."
        " Install them with: pip install 'crossbit[media,networks]' && pip install faiss-cpu"
    )
    assert str(raised.value) == message
    assert str(pickle.loads(pickle.dumps(raised.value))) == message
    check_installed("rich", "typer")


@pytest.mark.parametrize(
    ("hidden", "arguments", "libraries"),
    [
        ("emojis fastapi", "demo --out z", "'emojis', 'fastapi'"),
        ("emojis resvg_py", "demo --no-serve --out z", "'emojis', 'resvg_py'"),
        ("torch", "demo --no-serve --features efficientnet --out z", "'torch'"),
        ("torch", "fit x --method mmnn --out z", "'torch'"),
        ("ray", "fit x --method lsh --ray local --out z", "'ray'"),
        ("optuna torch", "tune x --out z", "'optuna', 'torch'"),
        ("uvicorn", "serve x", "'uvicorn'"),
    ],
)
def test_commands_check_their_libraries_before_they_read_anything(
    hidden: str,
    arguments: str,
    libraries: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # none of the inputs exists
    for module in hidden.split():
        monkeypatch.setitem(sys.modules, module, None)
    assert main(arguments.split()) == 1
    message = capsys.readouterr().err
    assert all(name in message for name in libraries.split(", "))
    assert "installed. Install" in message
    assert list(tmp_path.iterdir()) == []


def extra(name: str) -> set[str]:
    """Distributions of an extra and of the extras that it refers to."""
    distributions: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][name]:
        if match := re.match(r"crossbit\[(.*)\]", requirement):
            for part in match[1].split(","):
                distributions |= extra(part)
        else:
            distributions.add(re.split(r"[\[<>=; ]", requirement)[0])
    return distributions


def imported_modules() -> set[str]:
    """Top-level modules of other distributions that the package imports anywhere."""
    modules = set()
    for path in (ROOT / "src" / "crossbit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.partition(".")[0])
    return {name for name in modules if name not in {*sys.stdlib_module_names, "crossbit"}}


def test_every_optional_import_is_in_an_extra() -> None:
    imported = imported_modules() - CORE
    assert imported - LIBRARIES.keys() - COMPANIONS.keys() == set()
    assert LIBRARIES.keys() - imported == set()
    for module, (distribution, name) in LIBRARIES.items():
        assert not name or distribution in extra(name), (module, name)


def test_every_error_names_known_libraries() -> None:
    known = {distribution for distribution, _ in LIBRARIES.values()} | {"setuptools<81"}
    for path in (ROOT / "src" / "crossbit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MissingExtraError":
                names = {part.value for part in node.args if isinstance(part, ast.Constant)}
                assert names <= known, path


def test_there_are_few_extras_and_all_has_all_of_them() -> None:
    extras = PROJECT["optional-dependencies"].keys() - {"dev", "dev-scale", "docs"}
    assert len(extras) <= 14
    for name in extras:
        assert extra(name) <= extra("all"), name


def test_the_service_needs_no_torch() -> None:
    assert "torch" not in {d for name in pins.FILES["service"] or [] for d in extra(name)}


def test_the_default_method_needs_no_torch() -> None:
    assert "torch" not in extra("train")
    assert "torch" not in AutoHash().libraries_for("labels")


def test_the_default_encoders_come_with_learn() -> None:
    with_converters = {
        LIBRARIES[module][0]
        for kind, name in DEFAULT_EXTRACTORS.items()
        for module in required_libraries(kind, name, cache=Path("none"))
    }
    assert with_converters <= extra("learn")


@pytest.mark.parametrize("name", sorted(HASHERS))
def test_methods_that_train_networks_declare_torch(name: str) -> None:
    hasher = HASHERS[name]
    tree = ast.parse(Path(inspect.getfile(hasher)).read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    if any(module.startswith("crossbit.neural") for module in imported):
        assert "torch" in hasher.libraries

"""The documentation runs, and lags nothing."""

import doctest
import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import crossbit
from crossbit import HASHERS
from crossbit.data import synthetic
from crossbit_experiments.docs import write_docs

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("getting-started", "inputs", "collections", "tuning", "defects")
    ),
]
MODULES = sorted(module.name for module in pkgutil.walk_packages(crossbit.__path__, "crossbit."))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks(page, "python")
    assert code
    names: dict[str, object] = {}
    for block in code:
        exec(compile(block, str(page), "exec"), names)  # the blocks of a page build on each other


def test_the_python_of_the_page_of_the_default_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "methods" / "auto.md"
    data = synthetic(n=120, classes=4, modalities={"image": 12, "text": 8})
    names = {"X": data.views["image"], "Y": data.views["text"], "labels": data.labels}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


def test_the_first_example_finds_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    first = blocks(ROOT / "README.md", "python")[0]
    exec(first, {})
    assert len(re.findall(r"\d+", capsys.readouterr().out)) == 5


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    lines = [
        line
        for line in blocks(ROOT / "README.md", "sh")[2].splitlines()
        if line.startswith("crossbit ")
    ]
    lines = [line for line in lines if "wikipedia_dataset" not in line]  # not ours to ship
    assert len(lines) >= 6
    for line in lines:
        command = line.split("#")[0].replace("crossbit ", f"{sys.executable} -m crossbit ")
        done = subprocess.run(
            command.split(), cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    if name == "crossbit.__main__":
        return
    failures, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failures == 0


def test_every_public_name_is_in_the_api_page() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in crossbit.__all__ if f"`{name}" not in page]
    assert missing == []


def test_every_method_has_a_page_that_is_linked() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "methods").glob("*.md"))
    for hasher in HASHERS.values():
        assert hasher.__name__ in index
        assert hasher.__name__ in pages


def test_tables_of_the_pages_are_those_of_the_results(tmp_path: Path) -> None:
    docs = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    assert write_docs(ROOT / "results", docs) == []


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_results_that_a_page_names_are_there(page: Path) -> None:
    for name in re.findall(r"`(results/[\w./-]+\.(?:jsonl|json|txt))`", page.read_text()):
        assert (ROOT / name).is_file(), name

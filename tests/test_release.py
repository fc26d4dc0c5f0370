"""Files that releases depend on: pins, workflows, container, version."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import pins

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
CORE: list[str] = PROJECT["project"]["dependencies"]


def pinned(path: Path) -> dict[str, list[Requirement]]:
    """Name → its pins, of which there may be several for different platforms."""
    found: dict[str, list[Requirement]] = {}
    for line in path.read_text().splitlines():
        if re.match("[A-Za-z0-9]", line):
            requirement = Requirement(line.removesuffix("\\"))
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def requirements(extras: list[str]) -> list[Requirement]:
    """Requirements of the package with some extras."""
    found = [Requirement(line) for line in CORE]
    for line in [line for extra in extras for line in EXTRAS[extra]]:
        requirement = Requirement(line)
        if requirement.name == "crossbit":
            found += requirements(sorted(requirement.extras))
        else:
            found.append(requirement)
    return found


TORCH = pinned(pins.FOLDER / "torch.txt")
CONSTRAINTS = pinned(pins.CONSTRAINTS)


@pytest.mark.parametrize("name", [name for name, extras in pins.FILES.items() if extras])
def test_pins_agree_with_the_project(name: str) -> None:
    found = pinned(pins.FOLDER / f"{name}.txt") | TORCH
    for requirement in requirements(pins.FILES[name] or []):
        candidates = found.get(canonicalize_name(requirement.name), [])
        assert candidates, f"{requirement} is not pinned in requirements/{name}.txt: make pins"
        for pin in candidates:
            (version,) = pin.specifier
            assert requirement.specifier.contains(version.version, prereleases=True), (
                f"{requirement} does not fit {pin} of requirements/{name}.txt: make pins"
            )


def test_pins_of_the_build_agree_with_the_project() -> None:
    found = pinned(pins.FOLDER / "build.txt")
    for line in [*PROJECT["build-system"]["requires"], "build"]:
        requirement = Requirement(line)
        (pin,) = found[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(next(iter(pin.specifier)).version)


@pytest.mark.parametrize("name", [*pins.FILES, "torch"])
def test_every_pin_has_hashes_and_the_version_of_the_constraints(name: str) -> None:
    path = pins.FOLDER / f"{name}.txt"
    blocks = pins._blocks(path.read_text().partition("\n")[2])
    assert blocks
    for block in blocks:
        assert re.match(r"[\w.-]+==\S+( ; [^\n]*)? \\\n    --hash=sha256:[0-9a-f]{64}", block), (
            block
        )
    for key, versions in pinned(path).items():
        allowed = {str(pin.specifier) for pin in CONSTRAINTS[key]}
        assert {str(pin.specifier) for pin in versions} <= allowed, key


def test_the_experiments_need_nothing_beyond_the_development_extras() -> None:
    project = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text())["project"]
    (line,) = project["dependencies"]
    needed = {str(r) for r in requirements(sorted(Requirement(line).extras))}
    assert needed <= {str(r) for r in requirements(["dev"])}


def test_torch_with_cuda_is_pinned_for_linux_alone() -> None:
    for name, entries in TORCH.items():
        if name != "torch":
            for entry in entries:
                assert isinstance(entry.marker, Marker)
                assert not entry.marker.evaluate({"sys_platform": "darwin"})
                assert not entry.marker.evaluate({"sys_platform": "win32"})
    assert not TORCH.keys() & pinned(pins.FOLDER / "service.txt").keys()


SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[bf]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.compose-spec": "compose.yaml",
    "vendor.citation-file-format": "CITATION.cff",
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_their_schemas(schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="needs make setup")
    files = sorted(str(path) for path in ROOT.glob(SCHEMAS[schema]))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_actions_are_pinned_by_version() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses: (\S+)", path.read_text()):
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", action), action


def test_the_dockerfile_has_no_lint() -> None:
    command = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("needs make setup on Linux")
    done = subprocess.run(
        [command, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_container_gets_every_file_that_its_script_copies() -> None:
    script = (ROOT / "scripts" / "container-install").read_text()
    copied = re.findall(r"^cp -R (.*) \"", script, re.MULTILINE)[0].split()
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in [*copied, "requirements", "scripts/container-install"]} <= set(
        ignore
    )


def test_the_versions_agree() -> None:
    fallback = PROJECT["tool"]["setuptools_scm"]["fallback_version"]
    released = re.findall(
        r"^## (\d\S*) \(\d{4}-\d\d-\d\d\)", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    citation = (ROOT / "CITATION.cff").read_text()
    if released:
        assert released[0] == fallback
        assert f"\nversion: {fallback}\n" in citation
    else:  # nothing was published
        assert fallback.endswith(".dev0")
        assert "\nversion:" not in citation

"""Write constraints.txt and the hashed pins in requirements/ from pyproject.toml: make pins.

python scripts/pins.py              keep versions that still fit, pin what is new
python scripts/pins.py --upgrade    move everything to the newest versions

Each file of requirements/ is complete: pip installs it with --no-deps and --require-hashes. The
hashes are those of the files on PyPI. torch is in a file of its own, together with the libraries of
CUDA that its Linux build needs, because a build for the CPU alone comes from elsewhere and needs
none of them; see scripts/setup.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
FOLDER = ROOT / "requirements"
FILES = {
    "build": None,  # build-system.requires
    "cli": ["cli"],
    "demo": ["demo"],
    "dev": ["dev"],
    "scale": ["dev-scale"],
    "service": ["cli", "data", "media", "server", "milvus", "postgres"],
}
"""File → extras."""
TORCH = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")
_HEAD = "# Made by `make pins`; do not edit.\n"


def main() -> None:
    """Resolve all extras together, then each file with the versions found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="move to the newest versions")
    arguments = parser.parse_args()
    everything = sorted({extra for extras in FILES.values() for extra in extras or []} | {"all"})
    old = [] if arguments.upgrade else ["--constraint", str(CONSTRAINTS)]
    versions = _compile("pyproject.toml", *_options(everything), *old)
    blocks = [*_blocks(versions), *_blocks(_compile_build(old))]
    lines = sorted({block.strip().replace(" \\", "") for block in blocks}, key=str.lower)
    CONSTRAINTS.write_text(
        "# Exact versions that the development environment and the tests use; lower bounds are in"
        f" pyproject.toml.\n{_HEAD}" + "\n".join(lines) + "\n"
    )
    _write_files()


def _write_files() -> None:
    FOLDER.mkdir(exist_ok=True)
    pinned = ["--constraint", str(CONSTRAINTS), "--generate-hashes"]
    torch: dict[str, str] = {}
    for name, extras in FILES.items():
        if extras is None:
            blocks = _blocks(_compile_build(pinned))
        else:
            blocks = _blocks(_compile("pyproject.toml", *_options(extras), *pinned))
        torch |= {block.split()[0]: block for block in blocks if TORCH.match(block)}
        rest = sorted(block for block in blocks if not TORCH.match(block))
        (FOLDER / f"{name}.txt").write_text(_HEAD + "".join(rest))
    (FOLDER / "torch.txt").write_text(_HEAD + "".join(torch[key] for key in sorted(torch)))


def _compile_build(options: list[str]) -> str:
    """Pin the requirements of the build and its front end."""
    lines = (ROOT / "pyproject.toml").read_text().partition("requires = [")[2]
    requirements = re.findall(r'"([^"]+)"', lines.partition("]")[0])
    return _compile("-", *options, text="\n".join([*requirements, "build", "wheel"]))


def _compile(source: str, *options: str, text: str = "") -> str:
    """Resolve for all platforms and Python versions, and return the requirements."""
    command = [sys.executable, "-m", "uv", "pip", "compile", source, "--universal", "--no-header"]
    command += ["--no-annotate", "--python-version", "3.11", *options]
    done = subprocess.run(
        command, cwd=ROOT, input=text, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"make pins: {' '.join(command)} failed")
    return done.stdout


def _options(extras: list[str]) -> list[str]:
    return [word for extra in extras for word in ("--extra", extra)]


def _blocks(text: str) -> list[str]:
    """Split requirements: one line, or one line and its hashes."""
    return [block for block in re.split(r"(?m)^(?=[A-Za-z0-9])", text) if block.strip()]


if __name__ == "__main__":
    main()

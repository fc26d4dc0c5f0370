"""Take the screenshots of the documentation from a collection of emojis, such as that of the demo.

Run ``make demo ARGS=--no-serve`` first, then
``python scripts/screenshots.py demo/histograms docs/screenshots``.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright

QUERY = f"/#/text/{quote('cat + smile')}"
SHOTS = {  # name → path, width, color scheme, whether bits are drawn
    "words": (QUERY, 1280, "light", True),
    "dark": (QUERY, 1280, "dark", True),
    "phone": (QUERY, 390, "light", False),
    "item": ("/#/item/%221F431.png%22", 1280, "light", True),
    "model": ("/#/model", 1280, "light", False),
}


def take(address: str, out: Path) -> None:
    """Take all screenshots of a running service."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (path, width, scheme, with_bits) in SHOTS.items():
            page = browser.new_page(
                viewport={"width": width, "height": 860},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            page.goto(address + path)
            page.wait_for_load_state("networkidle")
            if with_bits:
                page.get_by_label("Bits", exact=True).check()
            page.wait_for_timeout(2000)  # animations, and what loads late
            page.screenshot(path=out / f"{name}.png")
        browser.close()


def main() -> None:
    """Serve the collection and take the screenshots."""
    collection, out = Path(sys.argv[1]), Path(sys.argv[2])
    command = [sys.executable, "-m", "crossbit", "serve", str(collection), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stderr is not None  # noqa: S101
            line = next(line for line in service.stderr if "serving at" in line)
            take(line.split()[2], out)
        finally:
            service.terminate()


if __name__ == "__main__":
    main()

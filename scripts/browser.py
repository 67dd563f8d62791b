"""Builds the page of examples/browser, opens it in a headless browser, and checks what it tells of itself.

python scripts/browser.py [--browser chromium]

The page is opened from its file, without a server or a network. It classifies a known image, which has to come out as on this machine, and
the ten digits, drawn on its canvas.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 1 << 20
TOLERANCE = 1e-5
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def found(browser: str, page: Path, folder: Path) -> dict[str, Any]:
    """Return what the page found of itself in a browser."""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--virtual-time-budget=20000", "--dump-dom")
    done = subprocess.run([browser, *flags, f"{page.as_uri()}#try"], capture_output=True, text=True, timeout=300)
    told = re.search(r'data-found="([^"]*)"', done.stdout)
    if told is None:
        raise SystemExit(f"the page tells nothing: {done.stderr[-500:]}")
    result: dict[str, Any] = json.loads(html.unescape(told[1]))
    return result


def main() -> int:
    """Return 0 where the page does what it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--browser", default=next(filter(shutil.which, BROWSERS), None))
    browser = parser.parse_args().browser
    if browser is None:
        raise SystemExit(f"there is no browser: install one of {', '.join(BROWSERS)}, or name one by --browser")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, str(ROOT / "examples" / "browser" / "build.py"), str(folder)], check=True, cwd=ROOT)
        page = folder / "digits.html"
        told = found(browser, page, folder / "profile")
        size = page.stat().st_size
    version = subprocess.run([browser, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    print(f"{version}: {told}")
    right = "problem" not in told and told["off"] <= TOLERANCE and all(drawn == seen for drawn, seen in told["told"])
    return int(not right or size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())

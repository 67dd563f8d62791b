"""Checks the built site: every link leads to a file and a place in it; in a real browser no page complains, and searching finds.

python3 scripts/build_site.py && python3 scripts/check_site.py [--no-browser]

The browser is Chromium (or Chrome), headless; without one, ask for `--no-browser`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_CONSOLE = re.compile(r'CONSOLE[^"]*"(.*)", source: (\S+)')


class Page(HTMLParser):
    """What a page links to and loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        target = found.get("src") or (found.get("href") if tag == "link" and found.get("rel") != "canonical" else None)
        if tag in ("img", "script", "link") and target:
            self.loads.append(target)


def broken(site: Path) -> Iterator[str]:
    """Yield what pages link to or load and is not there, and what they load from elsewhere."""
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses are those of a server's root
            continue
        where = path.relative_to(site.resolve())
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    yield f"{where}: loads {link}, which is not part of the site"
                continue
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(urlsplit(address).path)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{where}: nothing is at {link}"
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                yield f"{where}: {link} has no such place"


def complaints(site: Path, browser: str) -> Iterator[str]:
    """Yield what pages write on the console of a browser, and pages that it does not show."""
    if not re.search(r"[1-9]\d* matching document", shown(browser, f"{(site / 'index.html').resolve().as_uri()}?q=skew").stdout):
        yield "searching for a word finds nothing"
    for path in sorted(site.rglob("*.html")):
        done = shown(browser, path.resolve().as_uri())
        where = path.relative_to(site)
        yield from (f"{where}: {text} ({source})" for text, source in _CONSOLE.findall(done.stderr))
        if "</article>" not in done.stdout and path.name != "404.html":
            yield f"{where}: not shown (status {done.returncode})"


def shown(browser: str, address: str) -> subprocess.CompletedProcess[str]:
    """Return what a browser has made of a page, and what it says of it."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0"]
        command = [browser, *options, "--virtual-time-budget=5000", "--dump-dom", address]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def main(arguments: list[str]) -> int:
    if not (SITE / "index.html").is_file():
        print("there is no site: run `python3 scripts/build_site.py` first", file=sys.stderr)
        return 1
    found = list(broken(SITE))
    if "--no-browser" not in arguments:
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is None:
            print("there is no Chromium on the path: install it, or say `--no-browser`", file=sys.stderr)
            return 1
        found += complaints(SITE, browser)
    print("\n".join(found) if found else f"{len(list(SITE.rglob('*.html')))} pages: every link leads somewhere, no page complains")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

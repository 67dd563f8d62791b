"""Writes docs/stdlib.md: every operator and function of the standard library, with its signature and what is said above it.

python scripts/stdlib_page.py            writes the page
python scripts/stdlib_page.py --check    exits with 1 if the page is not what would be written
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "stdlib.md"
sys.path.insert(0, str(ROOT))

from tensorlang.diagnostics import Source  # noqa: E402
from tensorlang.syntax.parse import parse  # noqa: E402
from tensorlang.syntax.summary import Entry, entries, purpose  # noqa: E402

INTRODUCTION = """# The standard library

In a `.tl` file `use std.norm (softmax)` makes an operator known, `use std.norm as n` all of a module, as `n.softmax` (see
[language.md](language.md#other-files)). From Python they are attributes: `tl.std.softmax(x)`, `tl.std.norm.layer_norm(x, g)`.
`tensorlang list std.norm` prints what stands here. Where an operator computes one of ONNX, the versions of that are told.
Generated: `python scripts/stdlib_page.py`.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join(
        [INTRODUCTION, *_everywhere(), *(line for path in sorted((ROOT / "stdlib" / "ops").glob("*.tl")) for line in _section(path))]
    )


def _everywhere() -> Iterator[str]:
    """Yield the section of what needs no `use`."""
    file = _file(ROOT / "tensorlang" / "prelude.tl")
    yield from (
        "## Known in every file",
        "",
        "Functions of one element, which need no `use`; reducers are in [language.md](language.md).",
        "",
        "```tl",
    )
    yield from (e.signature for e in entries(file, functions=True))
    yield from ("```", "")


def _section(path: Path) -> Iterator[str]:
    file = _file(path)
    yield from (f"## std.{path.stem}", "", purpose(file), "")
    found = entries(file, functions=True)
    for entry in (e for e in found if e.kind == "op"):
        yield from _entry(entry)
    functions = [e.signature for e in found if e.kind == "fn"]
    if functions:
        yield from ("Functions of one element:", "", "```tl", *functions, "```", "")


def _entry(entry: Entry) -> Iterator[str]:
    yield from (f"### {entry.name}", "", *_sentences(entry.doc), "```text", entry.signature, "```", "")


def _sentences(doc: str) -> Iterator[str]:
    if doc:
        yield from (" ".join(doc.split("\n")), "")


def _file(path: Path):  # type: ignore[no-untyped-def]
    return parse(Source(path.name, path.read_text("utf-8")))


def main(arguments: list[str]) -> int:
    text = page()
    if "--check" in arguments:
        if PAGE.is_file() and PAGE.read_text("utf-8") == text:
            return 0
        print("docs/stdlib.md is out of date: run `python scripts/stdlib_page.py`", file=sys.stderr)
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

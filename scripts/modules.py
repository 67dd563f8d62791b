"""Writes docs/modules.md: every folder of the compiler and what each file of it is for, in the first sentence of its own documentation.

python scripts/modules.py            writes the page
python scripts/modules.py --check    exits with 1 if the page is not what would be written
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "modules.md"
PACKAGES = ("tensorlang", "polyhedral", "codegen", "stdlib")
INTRODUCTION = """# Modules

Every file of the compiler, in the first sentence of its own documentation.
[ARCHITECTURE.md](ARCHITECTURE.md) says how they belong together.
Generated: `python scripts/modules.py`.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([INTRODUCTION, *(_section(folder) for package in PACKAGES for folder in _folders(ROOT / package))])


def _folders(package: Path) -> Iterator[Path]:
    yield from sorted(p.parent for p in package.rglob("__init__.py"))


def _section(folder: Path) -> str:
    files = sorted(p for p in folder.glob("*.py") if p.name != "__init__.py")
    purpose = sentence(folder / "__init__.py")
    lines = [f"## {folder.relative_to(ROOT).as_posix()}", "", *([purpose, ""] if purpose else [])]
    if files:
        lines += ["| file | |", "|---|---|", *(f"| `{p.name}` | {sentence(p).replace('|', chr(92) + '|')} |" for p in files), ""]
    return "\n".join(lines)


def sentence(path: Path) -> str:
    """Return the first paragraph of a module's documentation, as one line; nothing if it has none."""
    words = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(words.split("\n\n")[0].split())


def main(arguments: list[str]) -> int:
    text = page()
    if "--check" in arguments:
        if PAGE.read_text("utf-8") == text:
            return 0
        print("docs/modules.md is out of date: run `python scripts/modules.py`", file=sys.stderr)
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Golden files of the loop IR: a sentence on the first line, then named sections; the sections after `loops` are results."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def cases(prefix: str) -> list[Path]:
    """Return the golden files that are called `<prefix>_<idea>.txt`."""
    found = sorted(GOLDEN.glob(f"{prefix}_*.txt"))
    if not found:
        raise FileNotFoundError(f"no golden files {prefix}_*.txt")
    return found


def read(path: Path) -> tuple[str, dict[str, str]]:
    """Return the title of a golden file and its sections."""
    title, *sections = path.read_text(encoding="utf-8").split("=== ")
    return title, {name: body for name, _, body in (section.partition("\n") for section in sections)}


def check(path: Path, **results: str) -> None:
    """Compare sections with `results`; with UPDATE_GOLDEN=1 in the environment, write them instead (read the diff)."""
    title, sections = read(path)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        sections |= results
        path.write_text(title + "".join(f"=== {name}\n{body}" for name, body in sections.items()), encoding="utf-8")
    for name, result in results.items():
        assert sections.get(name) == result

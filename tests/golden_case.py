"""Golden cases, one file each: what goes in, a line `---`, and what comes out.

A new case is what goes in and the line; `pytest … --update-golden` writes the rest, and never touches what goes in.
"""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
SEPARATOR = "\n---\n"


class WrongCase(Exception):
    """A file that is no golden case; the text says which and why."""


def cases(folder: Path | str, ending: str = "tl") -> list[Path]:
    """Return the cases of a folder, of `tests/golden` if it is a name; there has to be one at least."""
    found = sorted((GOLDEN / folder).glob(f"*.{ending}"))
    if not found:
        raise WrongCase(f"{GOLDEN / folder} holds no file *.{ending}")
    return found


def source(path: Path) -> str:
    """Return what goes in."""
    return _halves(path)[0]


def expected(path: Path) -> str:
    """Return what comes out."""
    text = _halves(path)[1]
    if not text.strip():
        raise WrongCase(f"{path}: nothing stands below `---`: run once with --update-golden and read what it wrote")
    return text


def renew(path: Path, output: str) -> None:
    """Write what comes out below what goes in."""
    path.write_text(_halves(path)[0].removesuffix("\n") + SEPARATOR + output, "utf-8")


def _halves(path: Path) -> tuple[str, str]:
    above, separator, below = f"\n{path.read_text('utf-8')}".partition(SEPARATOR)
    if not separator:
        raise WrongCase(f"{path}: no line `---` between what goes in and what comes out")
    if not above.strip():
        raise WrongCase(f"{path}: nothing stands above `---`")
    return above[1:] + "\n", below

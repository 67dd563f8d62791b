"""Measures how long an editor waits for diagnostics after a letter is typed, in every file of the library.

    python benchmarks/lsp.py

In each operator of a file a letter of its last line is deleted and typed again; what counts is the time from the message of the edit to the
diagnostics of that version, as a client over standard input and output sees it. Needs `tensorlang[lsp]`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "lsp")]

from editor import Editor, editor  # noqa: E402


def waits(there: Editor, path: Path) -> list[float]:
    """Return the seconds from each edit of a file to its diagnostics."""
    text, uri = path.read_text("utf-8"), path.as_uri()
    there.open(uri, text)
    there.problems(uri, 1)
    lines, version, found = text.split("\n"), 1, list[float]()
    for number, line in enumerate(lines):
        if line == "}" and lines[number - 1].strip():
            end = len(lines[number - 1])
            for add in (" + 0", ""):
                version += 1
                began = time.perf_counter()
                there.type(uri, (number - 1, end), add, version, until=(number - 1, end + (0 if add else 4)))
                there.first_problems(uri, version)
                found.append(time.perf_counter() - began)
                there.problems(uri, version)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, editor(Path(folder)) as there:
        there.start()
        for path in sorted((ROOT / "stdlib" / "ops").glob("*.tl")):
            found = waits(there, path)
            print(f"{path.name:16} {len(found):3} edits: median {median(found) * 1e3:4.0f} ms, most {max(found) * 1e3:4.0f} ms", flush=True)


if __name__ == "__main__":
    main()

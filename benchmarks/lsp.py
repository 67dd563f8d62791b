"""Measures how long an editor waits for diagnostics after a letter is typed, in every file of the library.

    python benchmarks/lsp.py [sort.tl …]

In each operator of a file a mistake is typed at the end of its last line, one that its check finds, and deleted again; what counts is the
time from the message of the edit to diagnostics, as a client over standard input and output sees it: `first` is when those come that
say of the line what is said in the end, and `all` when what uses the operator is checked as well. Needs `tensorlang[lsp]`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "lsp")]

from editor import Editor, editor  # noqa: E402

MISTAKE = " + (1 and 2)"


def waits(there: Editor, path: Path) -> list[tuple[float, float]]:
    """Return the seconds from each edit of a file to its diagnostics, the first and all."""
    text, uri = path.read_text("utf-8"), path.as_uri()
    there.open(uri, text)
    there.problems(uri, 1)
    lines, version, found = text.split("\n"), 1, list[tuple[float, float]]()
    for number, line in enumerate(lines):
        if line == "}" and lines[number - 1].strip():
            end = len(lines[number - 1])
            for add in (MISTAKE, ""):
                version += 1
                began = time.perf_counter()
                there.type(uri, (number - 1, end), add, version, until=(number - 1, end + (0 if add else len(MISTAKE))))
                end_said = any(_is_at(d, number - 1) for d in there.problems(uri, version))
                said = [(at, d) for (v, d), at in zip(there.diagnostics[uri], there.arrivals[uri], strict=True) if v == version]
                agreeing = [at for at, diagnostics in said if any(_is_at(d, number - 1) for d in diagnostics) == end_said]
                found.append((agreeing[0] - began, said[-1][0] - began))
    return found


def _is_at(diagnostic: dict[str, Any], line: int) -> bool:
    """Tell whether a diagnostic is a mistake that has to do with a line."""
    near = [diagnostic["range"], *(r["location"]["range"] for r in diagnostic.get("relatedInformation", ()))]
    return diagnostic["severity"] == 1 and any(r["start"]["line"] <= line <= r["end"]["line"] for r in near)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, editor(Path(folder)) as there:
        there.start()
        for path in sorted(p for p in (ROOT / "stdlib" / "ops").glob("*.tl") if p.name in sys.argv[1:] or not sys.argv[1:]):
            found = waits(there, path)
            first, whole = ([seconds * 1e3 for seconds in kind] for kind in zip(*found, strict=True))
            told = ", ".join(f"{n}: median {median(s):4.0f} ms, most {max(s):4.0f} ms" for n, s in (("first", first), ("all", whole)))
            print(f"{path.name:16} {len(found):3} edits; {told}", flush=True)


if __name__ == "__main__":
    main()

"""Writes docs/schedules/pictures.md and docs/pictures: what directives do to iterations, drawn by the compiler from its plan.

python scripts/pictures.py            writes them
python scripts/pictures.py --check    exits with 1 if one is not what would be written
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tensorlang.check.module import load_module  # noqa: E402
from tensorlang.diagnostics import Source  # noqa: E402
from tensorlang.picture.plot import plotted  # noqa: E402
from tensorlang.syntax.parse import parse  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
PAGE = ROOT / "docs" / "schedules" / "pictures.md"

PROGRAMS = {
    "scale": """op scale(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, j] = 2 * x[i, j]
}
""",
    "smooth": """op smooth(x: f32[T, N]) -> (y: f32[T, N]) where N >= 3 {
    y[t, i] = y[t - 1, i - 1] + y[t - 1, i] + y[t - 1, i + 1]   for t in 1..T, i in 1..N-1
    y[t, i] = x[t, i]                                           otherwise
}
""",
    "cumsum": """op cumsum(x: f32[N]) -> (y: f32[N]) {
    y[0] = x[0]
    y[i] = y[i - 1] + x[i]   for i in 1..N
}
""",
    "paths": """op paths(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, j] = x[i, j] + max(y[i - 1, j], y[i, j - 1])   for i in 1..M, j in 1..N
    y[i, j] = x[i, j]                                   otherwise
}
""",
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """`name`: of the directive, and of the file; `text`: what is said about it; `axes`: of reductions."""

    name: str
    program: str
    directives: str
    text: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    axes: tuple[str, ...] = ()
    target: str = "cpu"
    accepted: bool = True


EIGHT = {"M": 8, "N": 8, "T": 6}
DRAWINGS = (
    Drawing(
        "split", "scale", "split j by 4 -> jo, ji", "Pieces of four columns. The order is the one there was: splitting alone changes none."
    ),
    Drawing("tile", "scale", "tile y (i, j) by (4, 4) -> io, jo, ii, ji", "One tile after the other, and inside each row by row."),
    Drawing("order", "scale", "order j, i", "Column by column."),
    Drawing("reverse", "scale", "reverse i", "The rows backwards."),
    Drawing(
        "fuse",
        "scale",
        "fuse i, j -> f\nsplit f by 12 -> fo, fi",
        "One loop of two, cut into pieces of twelve, which do not end where rows do.",
    ),
    Drawing(
        "cut",
        "scale",
        "cut j at i + 1 -> a, b\norder a, i, b",
        "What is on or below the diagonal column by column, then the rest row by row.",
    ),
    Drawing("vectorize", "scale", "split j by 4 -> jo, ji\nvectorize ji", "Four points at a time."),
    Drawing("parallel", "scale", "split i by 2 -> io, ii\nparallel io", "Each colour is a thread."),
    Drawing(
        "skew",
        "smooth",
        "skew i by t\nsplit i by 4 -> io, ii\norder io, t, ii",
        "Tiles that lean: every arrow goes into its own tile or a later one.",
    ),
    Drawing(
        "affine",
        "smooth",
        "affine y (t + i, t - i) -> a, b\ntile y (a, b) by (4, 4) -> ao, bo, ai, bi",
        "Diamonds: tiles of `t + i` and `t - i`, of which only every other point is one.",
    ),
    Drawing(
        "tile-refused",
        "smooth",
        "split i by 4 -> io, ii\norder io, t, ii",
        "The same tiles without the skew. The schedule is refused: the red arrows go back into tiles that have run already.",
        accepted=False,
    ),
    Drawing(
        "wavefront",
        "paths",
        "skew j by i\norder j, i\nparallel i",
        "Along diagonals nothing depends on anything: `i` may run on threads.",
        {"M": 6, "N": 6},
    ),
    Drawing(
        "vectorize-refused",
        "cumsum",
        "split i by 4 -> io, ii\nvectorize ii",
        "A recurrence on lanes is refused: they need each other.",
        {"N": 12},
        accepted=False,
    ),
    Drawing(
        "bind",
        "scale",
        "tile y (i, j) by (4, 4) -> io, jo, ii, ji\nbind io, jo to block.y, block.x\nbind ii, ji to thread.y, thread.x",
        "On a graphics processor: tiles are blocks, and each point is a thread.",
        target="cuda",
    ),
)


def pictures(drawing: Drawing) -> tuple[str, str]:
    """Return the pictures before and after."""
    lines = "".join(f"    {line}\n" for line in drawing.directives.split("\n"))
    schedule = f"schedule {drawing.program} for {drawing.target} {{\n{lines}}}\n"
    module = load_module(parse(Source(f"{drawing.name}.tl", PROGRAMS[drawing.program] + schedule)))
    sizes = {n: v for n, v in {**EIGHT, **drawing.sizes}.items() if n in PROGRAMS[drawing.program].split(")")[0] or n in drawing.sizes}
    return tuple(  # type: ignore[return-value]
        plotted(module, drawing.program, given, None, drawing.axes, sizes, title).svg
        for given, title in ((None, "before"), (module.schedules[0], "after"))
    )


def page() -> str:
    """Return the text of the page."""
    parts = [
        "# Pictures",
        "",
        "What directives do to the order of iterations, before and after. A point is an instance of the equation; the thin line is",
        "the order in which they run; light areas are tiles, colours threads, thick lines the lanes of a vector; arrows lead from the",
        "instance that computes an element to the one that reads it, and are red where the order breaks them. The compiler draws them",
        "from its plan (`python scripts/pictures.py`), and anybody can:",
        "",
        "```python",
        "import tensorlang as tl",
        "",
        'ops = tl.parse("""op scale(x: f32[M, N]) -> (y: f32[M, N]) {',
        "    y[i, j] = 2 * x[i, j]",
        '}""")',
        'picture = tl.plot(ops.scale.schedule("tile y (i, j) by (4, 4) -> io, jo, ii, ji"), sizes={"M": 8, "N": 12})',
        'assert str(picture).startswith("<svg")  # picture.save("tiles.svg"); a notebook shows it',
        "```",
        "",
        "From the command line: `tensorlang plot f.tl scale M=8 N=12 -o tiles.svg` (`--plain` for the loops as written).",
        "",
    ]
    seen: set[str] = set()
    for drawing in DRAWINGS:
        parts += [f"## {drawing.name.replace('-', ', ')}", "", drawing.text, ""]
        if drawing.program not in seen:
            seen.add(drawing.program)
            parts += ["```tl", PROGRAMS[drawing.program].rstrip("\n"), "```", ""]
        lines = [f"    {line}" for line in drawing.directives.split("\n")]
        parts += ["```tl", f"schedule {drawing.program} for {drawing.target} {{", *lines, "}", "```", ""]
        parts += [f"![{drawing.program} before](../pictures/{drawing.name}-before.svg)"]
        parts += [f"![{drawing.program} after {drawing.name}](../pictures/{drawing.name}.svg)", ""]
    return "\n".join(parts)


def files() -> dict[Path, str]:
    """Return every file with its text."""
    found = {PAGE: page()}
    for drawing in DRAWINGS:
        before, after = pictures(drawing)
        found |= {FOLDER / f"{drawing.name}-before.svg": before, FOLDER / f"{drawing.name}.svg": after}
    return found


def main(arguments: list[str]) -> int:
    found = files()
    if "--check" in arguments:
        old = [p for p, text in found.items() if not p.is_file() or p.read_text("utf-8") != text]
        old += [p for p in FOLDER.glob("*.svg") if p not in found]
        for path in old:
            print(f"{path.relative_to(ROOT)} is out of date: run `python scripts/pictures.py`", file=sys.stderr)
        return 1 if old else 0
    for path in FOLDER.glob("*.svg"):
        path.unlink()
    for path, text in found.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

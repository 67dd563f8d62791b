"""An iteration space as SVG: a small text, the same for the same plan.

tiles      light areas of two tints        order      a thin line from each point to the next of its thread; a ring is the first
lanes      points on one thick line        threads    colours of points
dependences  arrows from the point that computes to the one that reads; red where the order breaks them
witness    red rings around the two instances that refute the order, 1 around the one that has to run first
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise

from tensorlang.picture.points import Point, Space

CELL = 28
_LEFT, _TOP, _RIGHT, _LINE = 44, 40, 20, 16
_TINTS = ("#e6edf7", "#d3dff1")
_COLOURS = ("#1f4e8c", "#b35900", "#2e7d32", "#7b3fa0", "#8c6d1f", "#00737f")
_PLAIN = "#333"
_MOST_ARROWS = 2000
_NUMBER = "fill:#c62828;font-weight:bold;paint-order:stroke;stroke:#fff;stroke-width:3"

STYLE = (
    "text{font:12px sans-serif;fill:#333}.axis{font-style:italic}.order{fill:none;stroke:#999;stroke-width:1}"
    ".lane{stroke-width:13;stroke-linecap:round;opacity:.35}.dep{fill:none;stroke:#555;stroke-width:1.2;marker-end:url(#a)}"
    ".broken{stroke:#c62828;stroke-width:1.8;marker-end:url(#b)}"
)


def draw(space: Space, title: str = "") -> str:
    """Return the picture of a space, with `title` above it."""
    places = [*(p.place for p in space.points), *(place for place in space.witness if place is not None)]
    low = tuple(min(p[k] for p in places) for k in (0, 1))
    high = tuple(max(p[k] for p in places) for k in (0, 1))
    rows, columns = high[0] - low[0] + 1, high[1] - low[1] + 1
    notes = list(_notes(space))
    longest = max((len(t) for t in (title, *notes)), default=0)
    width = max(_LEFT + columns * CELL + _RIGHT, _LEFT + 7 * longest)
    height = _TOP + rows * CELL + 12 + _LINE * len(notes)

    def middle(place: tuple[int, int]) -> tuple[int, int]:
        return _LEFT + (place[1] - low[1]) * CELL + CELL // 2, _TOP + (place[0] - low[0]) * CELL + CELL // 2

    at = [middle(p.place) for p in space.points]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title or f'iterations of {space.tensor}')}</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{_marker('a', '#555')}{_marker('b', '#c62828')}</defs>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="14">{escape(title)}</text>',
        *_scales(space, low, high),
        *_tiles(space.points, at),
        *_lanes(space.points, at),
        *_order(space.points, at),
        *_arrows(space, at),
        *_dots(space.points, at),
        *_witness([None if place is None else middle(place) for place in space.witness]),
    ]
    bottom = _TOP + rows * CELL + 12
    lines += [f'<text x="{_LEFT}" y="{bottom + _LINE * k + 8}">{escape(note)}</text>' for k, note in enumerate(notes)]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _marker(name: str, colour: str) -> str:
    head = f'<path d="M0 0L6 3L0 6z" fill="{colour}"/>'
    return f'<marker id="{name}" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">{head}</marker>'


def _notes(space: Space) -> Iterator[str]:
    """Yield what the picture cannot show: the loops with their marks, what is fixed, that arrows are broken, and that there are others."""
    if space.loops:
        words = (name.rsplit(".", 1)[-1] + ("" if mark == "serial" else f" ({mark})") for name, mark in space.loops)
        yield f"loops: {', '.join(words)}"
    if space.fixed:
        yield "drawn at " + ", ".join(f"{name} = {value}" for name, value in space.fixed.items())
    broken = sum(arrow.broken for arrow in space.arrows)
    if broken:
        yield f"red: {broken} of {len(space.arrows)} dependences are broken"
    different = len(_different(space))
    if different > _MOST_ARROWS:
        yield f"{_MOST_ARROWS} of {different} arrows are drawn"


def _scales(space: Space, low: Sequence[int], high: Sequence[int]) -> Iterator[str]:
    rows, columns = space.axes
    if columns:
        yield f'<text class="axis" x="{_LEFT - 14}" y="{_TOP - 8}">{escape(columns)}</text>'
        for value in sorted({low[1], high[1]}):
            yield f'<text x="{_LEFT + (value - low[1]) * CELL + CELL // 2}" y="{_TOP - 8}" text-anchor="middle">{value}</text>'
    if rows:
        yield f'<text class="axis" x="8" y="{_TOP + CELL // 2 + 4}">{escape(rows)}</text>'
        for value in sorted({low[0], high[0]}):
            yield f'<text x="{_LEFT - 8}" y="{_TOP + (value - low[0]) * CELL + CELL // 2 + 4}" text-anchor="end">{value}</text>'


def _tiles(points: Sequence[Point], at: Sequence[tuple[int, int]]) -> Iterator[str]:
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for point, place in zip(points, at, strict=True):
        if point.tile:
            groups.setdefault(point.tile, []).append(place)
    for tile, places in groups.items():
        tint = _TINTS[sum(tile) % 2]
        path = "L".join(f"{x} {y}" for x, y in _hull(places))
        yield (
            f'<path d="M{path}z" fill="{tint}" stroke="{tint}" stroke-width="{CELL - 4}" stroke-linejoin="round" stroke-linecap="round"/>'
        )


def _hull(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the corners of the convex hull, in their order around it."""
    found = sorted(set(places))
    if len(found) < 3:
        return found

    def half(sequence: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        corners: list[tuple[int, int]] = []
        for p in sequence:
            while len(corners) > 1 and _turn(corners[-2], corners[-1], p) <= 0:
                corners.pop()
            corners.append(p)
        return corners

    return half(found)[:-1] + half(found[::-1])[:-1]


def _turn(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> int:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _colours(points: Sequence[Point]) -> dict[tuple[int, ...], str]:
    threads = list(dict.fromkeys(p.thread for p in points))
    return {thread: _COLOURS[k % len(_COLOURS)] if thread else _PLAIN for k, thread in enumerate(threads)}


def _lanes(points: Sequence[Point], at: Sequence[tuple[int, int]]) -> Iterator[str]:
    colours, groups = _colours(points), dict[tuple[int, ...], list[int]]()
    for number, point in enumerate(points):
        if point.lane:
            groups.setdefault(point.lane, []).append(number)
    for numbers in groups.values():
        (x, y), (u, v) = at[numbers[0]], at[numbers[-1]]
        yield f'<path class="lane" d="M{x} {y}L{u} {v}" stroke="{colours[points[numbers[0]].thread]}"/>'


def _order(points: Sequence[Point], at: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield a line through the points of each thread as they run, with a ring around the first."""
    threads: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for point, place in zip(points, at, strict=True):
        threads.setdefault(point.thread, []).append(place)
    for places in threads.values():
        if len(places) > 1:
            yield f'<path class="order" d="M{"L".join(f"{x} {y}" for x, y in _straightened(places))}"/>'
            yield f'<circle class="order" cx="{places[0][0]}" cy="{places[0][1]}" r="7"/>'


def _straightened(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a way without the points that lie on a straight part of it, or where it stays."""
    places = [place for place, _ in groupby(places)]
    kept = list(places[:1])
    for (a, b), (_, c) in pairwise(pairwise(places)):
        if _turn(a, b, c) or (b[0] - a[0]) * (c[0] - b[0]) < 0 or (b[1] - a[1]) * (c[1] - b[1]) < 0:
            kept.append(b)
    return [*kept, *places[-1:]]


def _arrows(space: Space, at: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield arrows, the broken ones last, so that they lie above the others, and are there where not all are."""
    for source, target, broken in _different(space)[-_MOST_ARROWS:]:
        (x, y), (u, v) = at[source], at[target]
        length = max(abs(u - x), abs(v - y))
        dx, dy = 6 * (u - x) // max(length, 1), 6 * (v - y) // max(length, 1)
        yield f'<path class="dep{" broken" if broken else ""}" d="M{x + dx} {y + dy}L{u - dx} {v - dy}"/>'


def _different(space: Space) -> list[tuple[int, int, bool]]:
    """Return the arrows, one for each pair of places, by the numbers of their points: the broken ones last."""
    points = space.points
    found: dict[tuple[tuple[int, int], tuple[int, int], bool], tuple[int, int, bool]] = {}
    for a in space.arrows:
        found.setdefault((points[a.source].place, points[a.target].place, a.broken), (a.source, a.target, a.broken))
    return sorted(found.values(), key=lambda arrow: arrow[2])


def _witness(places: Sequence[tuple[int, int] | None]) -> Iterator[str]:
    """Yield a ring around each instance of a witness, with its number on the side where the other is not, and the arrow to it; both numbers
    where they have one place."""
    numbers: dict[tuple[int, int], list[int]] = {}
    for number, place in enumerate(places, 1):
        if place is not None:
            numbers.setdefault(place, []).append(number)
    for (x, y), found in numbers.items():
        offset, anchor = (-10, "end") if any(u > x for u, _ in numbers) else (10, "start")
        yield f'<circle cx="{x}" cy="{y}" r="9" fill="none" stroke="#c62828" stroke-width="2.5"/>'
        shown = f'<text x="{x + offset}" y="{y - 7}" text-anchor="{anchor}" style="{_NUMBER}">'
        yield f"{shown}{', '.join(map(str, found))}</text>"


def _dots(points: Sequence[Point], at: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield the points, those of one thread as one path of dots."""
    colours, groups = _colours(points), dict[tuple[int, ...], list[tuple[int, int]]]()
    for point, place in zip(points, at, strict=True):
        groups.setdefault(point.thread, []).append(place)
    for thread, places in groups.items():
        dots = "".join(f"M{x} {y}h0" for x, y in sorted(set(places)))
        yield f'<path d="{dots}" stroke="{colours[thread]}" stroke-width="7" stroke-linecap="round"/>'

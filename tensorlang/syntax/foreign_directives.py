"""Lines of schedules as other tools write them, and what is written here for each: `split(i, 8)`, `c.vectorize(j, 8)`, `tile i, j by 8, 8`.

Only what a line says by itself is used: the names of loops, numbers, and names for loops that are made. A tensor that it does not name is
`TENSOR`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensorlang.syntax.directive_forms import FORMS, directive_called

TENSOR = "TENSOR"
"""Stands for a tensor that a line does not name."""

_LINE = re.compile(r"(?:(?P<owner>[\w.]+)\.)?(?P<name>\w+)\s*(?P<rest>.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|\d+")
_LINKING = frozenset(
    ["as", "at", "by", "factor", "factors", "from", "in", "inner", "into", "n", "nparts", "num", "outer", "over", "size", "sizes", "to",
     "width", "with"]
)  # fmt: skip
_PLACES = {"threadIdx": "thread", "blockIdx": "block"}


@dataclass(frozen=True, slots=True)
class _Said:
    """What a line names: a tensor before its dot, loops, numbers, and names for what is made."""

    owner: str
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    made: tuple[str, ...]


def written_here(line: str) -> tuple[str, ...]:
    """Return the lines to write for one of another tool, or of ours in another form; () where the line does not say enough."""
    found = _LINE.fullmatch(line.strip().rstrip(";").strip())
    meant = directive_called(found["name"], FORMS) if found is not None else None
    if found is None or meant is None or re.search(r"\)\s*\.|[+*{]", found["rest"]):
        return ()
    rest = found["rest"].partition(" //")[0].partition("#")[0]
    inside, _, after = re.sub(r"[()\[\]]", " ", rest).partition("->")
    inside, _, into = inside.partition(" into ")
    words = [word for word in _WORD.findall(inside) if word not in _LINKING]
    made = _WORD.findall(after or into.partition(" by ")[0])
    words += _WORD.findall(into.partition(" by ")[2]) if into else []
    names, numbers = (tuple(w for w in words if w.isdigit() is digits) for digits in (False, True))
    said = _Said(found["owner"] or "", names, numbers, tuple(made))
    if found["name"] in ("interchange", "swap"):
        said = _Said(said.owner, names[::-1], numbers, said.made)
    lines = _written(meant, said)
    return () if lines == (line.strip(),) else lines


def _written(meant: str, said: _Said) -> tuple[str, ...]:
    match meant, said:
        case "split", _Said(names=(loop, *more), numbers=(factor,)):
            return (_split(loop, factor, said.made or tuple(more)),)
        case "fuse", _Said(names=(outer, inner, *more), numbers=()):
            result = (*said.made, *more, _last(outer) + _last(inner))[0]
            return (f"fuse {outer}, {inner} -> {result}",)
        case "tile", _:
            return _tile(said)
        case (("vectorize" | "unroll" | "parallel"), _Said(names=(loop,), numbers=(factor,))):
            return _split(loop, factor, said.made), f"{meant} {_inner(loop, said.made)}"
        case (("vectorize" | "unroll" | "parallel"), _Said(names=(_, *_) as loops, numbers=())) if meant != "vectorize" or len(loops) == 1:
            return (f"{meant} {', '.join(loops)}",)
        case "order", _Said(names=(_, _, *_) as loops, numbers=()):
            return (f"order {', '.join(loops)}",)
        case (("at" | "store_at"), _Said(names=(tensor, loop), numbers=())):
            return (f"{meant} {tensor} at {loop}",)
        case (("inline" | "root"), _Said(names=(tensor,), numbers=())):
            return (f"{meant} {tensor}",)
        case "bind", _Said(names=(loop, place), numbers=()) if place.partition(".")[0] in (*_PLACES, *_PLACES.values()):
            kind, dot, axis = place.partition(".")
            return (f"bind {loop} to {_PLACES.get(kind, kind)}{dot}{axis}",)
        case _:
            return ()


def _tile(said: _Said) -> tuple[str, ...]:
    """Return a tile of two loops: `tile c (i, j) by (8, 8) -> io, jo, ii, ji`."""
    names, sizes = said.names, said.numbers * 2 if len(said.numbers) == 1 else said.numbers
    tensor = said.owner or TENSOR
    if len(names) in (3, 7) and "." not in names[0]:
        tensor, names = names[0], names[1:]
    owners = {name.rpartition(".")[0] for name in names[:2]}
    if len(owners) == 1 and (owner := owners.pop()):
        tensor = owner
    if len(names) not in (2, 6) or len(sizes) != 2:
        return ()
    loops = [_last(name) for name in names[:2]]
    made = said.made if len(said.made) == 4 else tuple(names[2:]) or tuple(f"{loop}{end}" for end in "oi" for loop in loops)
    return (f"tile {tensor} ({', '.join(loops)}) by ({', '.join(sizes)}) -> {', '.join(made)}",)


def _last(loop: str) -> str:
    return loop.rsplit(".", 1)[-1]


def _inner(loop: str, made: tuple[str, ...]) -> str:
    return made[1] if len(made) == 2 else f"{_last(loop)}i"


def _split(loop: str, factor: str, made: tuple[str, ...]) -> str:
    outer = made[0] if len(made) == 2 else f"{_last(loop)}o"
    return f"split {loop} by {factor} -> {outer}, {_inner(loop, made)}"


def told(lines: tuple[str, ...]) -> str:
    """Return lines as help says them."""
    return "write " + ", then ".join(f"`{line}`" for line in lines)

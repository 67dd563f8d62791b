"""A schedule: a tree of loops whose leaves are placements, and the nest of each placement.

parallel io {
    jo {
        C.init
        vector ji { C }
    }
}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never, get_args

import islpy as isl

from polyhedral.errors import ScheduleError
from polyhedral.expr import Expr, Int, Name
from polyhedral.model import Leaf, Loop, Mark, Scop, Statement, Tree
from polyhedral.nest import Nest
from polyhedral.once import once

MARKS: tuple[Mark, ...] = get_args(Mark)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a leaf stands: `path` is its position among its siblings at each level, `loops` are the loops around it."""

    path: tuple[int, ...]
    loops: tuple[Loop, ...]


@dataclass(frozen=True, eq=False)
class Schedule:
    scop: Scop
    nests: Mapping[str, Nest]
    tree: tuple[Tree, ...]

    @once
    def places(self) -> dict[str, Place]:
        """Return where each placement stands, in order of execution."""
        return dict(_places(self.tree, (), ()))

    @once
    def statements(self) -> dict[str, Statement]:
        return {s.name: s for s in self.scop.statements}

    def placements(self, statement: str) -> list[Nest]:
        """Return the nests of `statement` in order of execution."""
        return self._by_statement.get(statement, [])

    @once
    def _by_statement(self) -> dict[str, list[Nest]]:
        found: dict[str, list[Nest]] = {}
        for placement in self.places:
            found.setdefault(self.nests[placement].statement, []).append(self.nests[placement])
        return found

    def accessing(self, tensor: str) -> list[str]:
        """Return the placements whose statements read or write `tensor`, in order of execution."""
        return self._by_tensor.get(tensor, [])

    @once
    def _by_tensor(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for placement in self.places:
            statement = self.statements[self.nests[placement].statement]
            for tensor in dict.fromkeys(a.tensor for a in (statement.write, *statement.reads)):
                found.setdefault(tensor, []).append(placement)
        return found

    def shared(self, first: str, second: str) -> int:
        """Return how many loops the two placements have in common."""
        a, b = self.places[first].path, self.places[second].path
        if first == second:
            return len(a) - 1
        return next(k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)

    def time(self, placement: str) -> isl.Map:
        """Return `{ [loops] -> [position, loop, position, …] }` over the placement's points, padded to one length for all placements."""
        nest, path = self.nests[placement], self.places[placement].path
        depth = max(len(p.path) for p in self.places.values())
        values: list[Expr] = [Int(path[0])]
        for name, position in zip(nest.loops, path[1:], strict=True):
            values += [Name(name), Int(position)]
        values += [Int(0)] * (2 * depth - 1 - len(values))
        points = nest.points.intersect_params(nest.context)
        return isl.Map.from_multi_aff(nest.frame.multi_aff(values)).intersect_domain(points)

    def before(self, first: str, second: str) -> bool:
        """Whether `first` comes textually before `second`."""
        return self.places[first].path < self.places[second].path


def _places(tree: tuple[Tree, ...], path: tuple[int, ...], loops: tuple[Loop, ...]) -> Iterator[tuple[str, Place]]:
    for position, node in enumerate(tree):
        match node:
            case Leaf(placement):
                yield placement, Place((*path, position), loops)
            case Loop(_, body, _):
                yield from _places(body, (*path, position), (*loops, node))
            case _:
                assert_never(node)


def loops_in(tree: Iterable[Tree], depth: int = 0) -> list[tuple[Loop, int]]:
    """Return the loops of `tree` in order, each with how many more are around it than the `depth` given."""
    result: list[tuple[Loop, int]] = []
    for node in tree:
        match node:
            case Loop(_, body, _):
                result += [(node, depth), *loops_in(body, depth + 1)]
            case Leaf():
                pass
            case _:
                assert_never(node)
    return result


def placements_in(node: Tree) -> list[str]:
    """Return the placements at or below `node`, in order."""
    return [name for name, _ in _places((node,), (), ())]


def validate(schedule: Schedule) -> None:
    """Raise `ScheduleError` unless the tree's leaves are exactly the nests and their loops agree by name."""
    listed = [name for name, _ in _places(schedule.tree, (), ())]
    twice = next((n for n in listed if listed.count(n) > 1), None)
    if twice is not None:
        raise ScheduleError(f"the placement `{twice}` stands in the tree twice")
    if set(listed) != set(schedule.nests):
        odd = sorted(set(listed) ^ set(schedule.nests))[0]
        raise ScheduleError(f"the placement `{odd}` is not both in the tree and among the nests")
    for name, place in schedule.places.items():
        nest = schedule.nests[name]
        around = tuple(loop.name for loop in place.loops)
        if nest.loops != around:
            raise ScheduleError(f"`{name}` has loops {', '.join(nest.loops)} but stands under {', '.join(around)}")
        if nest.statement not in schedule.statements:
            raise ScheduleError(f"`{name}` places the unknown statement `{nest.statement}`")


def show(schedule: Schedule) -> str:
    """Return the tree as text; `parse` reads it back."""
    return "".join(f"{line}\n" for node in schedule.tree for line in _show(node, 0))


def _show(node: Tree, depth: int) -> Iterator[str]:
    indent = "    " * depth
    match node:
        case Leaf(placement):
            yield f"{indent}{placement}"
        case Loop(name, body, mark):
            yield f"{indent}{'' if mark == 'serial' else mark + ' '}{name} {{"
            for child in body:
                yield from _show(child, depth + 1)
            yield f"{indent}}}"
        case _:
            assert_never(node)


def parse(text: str) -> tuple[Tree, ...]:
    """Return the tree that `show` printed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    nodes, rest = _parse(lines)
    if rest:
        raise ScheduleError(f"`{rest[0]}` is left over after the tree")
    return nodes


def _parse(lines: list[str]) -> tuple[tuple[Tree, ...], list[str]]:
    nodes: list[Tree] = []
    while lines and lines[0] != "}":
        line, lines = lines[0], lines[1:]
        if not line.endswith("{"):
            nodes.append(Leaf(line))
            continue
        words = line[:-1].split()
        mark: Mark = next((m for m in MARKS if words[0] == m and len(words) == 2), "serial")
        body, lines = _parse(lines)
        if not lines:
            raise ScheduleError(f"the loop `{words[-1]}` is not closed")
        nodes.append(Loop(words[-1], body, mark))
        lines = lines[1:]
    return tuple(nodes), lines

"""What expressions are made of: their values, each computed once, the instructions for these, and which operations take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorlang.policy.cpu.cost import CALL_OPERATIONS, EXTREMUM_OPERATIONS
from tensorlang.tensor.nodes import Binary, Call, Const, Expr, Let, Name, Read, Reduce, Select
from tensorlang.tensor.walk import children, index_names, nodes


@dataclass(frozen=True, slots=True)
class Value:
    """A value that some operations take: the names that it depends on, and those that they do. `times`: how many take it, `term`: the only
    sum with such operations, by its number; None where there are others."""

    names: frozenset[str]
    taken_for: frozenset[str]
    times: int
    term: int | None
    is_computed: bool


class Values:
    """The values that expressions are made of, each computed once: for each, the names that it depends on. What reductions make is there
    already."""

    def __init__(self, roots: Sequence[Expr], step: set[str]) -> None:
        self._roots, self._step = roots, step
        self.names: dict[Expr, frozenset[str]] = {}
        self._lets: dict[str, frozenset[str]] = {}
        for e in roots:
            self._visit(e)

    def _visit(self, e: Expr) -> frozenset[str]:
        """Return the names that a value depends on, after a look at all that it is made of."""
        if e not in self.names:
            below = () if isinstance(e, Reduce) else children(e)
            found = frozenset[str]()
            for child in below:
                found |= self._visit(child)
                if isinstance(e, Let) and child is e.value:
                    self._lets[e.name] = found
            if isinstance(e, Name):
                found = self._lets.get(e.name, found)
            self.names[e] = found if below and not isinstance(e, Read) else found | index_names(e)
        return self.names[e]

    def operations(self, *, before: bool) -> dict[frozenset[str], int]:
        """Return how many instructions the steps of the innermost loop take, or what is `before` it, by the names that their values depend
        on."""
        found: dict[frozenset[str], int] = {}
        for e, names in self.names.items():
            count = instructions(e)
            if count and before == (bool(self._step) and not names & self._step):
                found[names] = found.get(names, 0) + count
        return found

    def taken(self, point: set[str]) -> tuple[tuple[frozenset[str], ...], tuple[Value, ...]]:
        """Return the names of what steps of the innermost loop take of values that are the same in all of them, and the values that
        operations take, or accumulators, which there are for each `point`, where they are others in each step."""
        kept, found = dict[Expr, None](), dict[Expr, Value]()
        for number, root in enumerate(self._roots):
            taking, rest = {root: [frozenset(point)]}, [root]
            while rest:
                e = rest.pop()
                # What a sum before this one takes is computed already.
                for child in () if e in found or isinstance(e, Read | Reduce) else dict.fromkeys(children(e)):
                    if child not in taking:
                        rest.append(child)
                    taking.setdefault(child, []).append(self.names[e])
            for e, by in taking.items():
                if isinstance(e, Const):
                    continue
                if self._step and not self.names[e] & self._step:
                    kept.update({e: None} if any(names & self._step for names in by) else {})
                else:
                    before = found.get(e)
                    wide = frozenset().union(*by, before.taken_for if before else ())
                    times = len(by) + (before.times if before else 0)
                    found[e] = Value(self.names[e], wide, times, None if before else number, instructions(e) > 0)
        return tuple(self.names[e] for e in kept), tuple(found.values())


def instructions(e: Expr) -> int:
    """Return how many vector instructions a value takes, when what it is made of is there."""
    match e:
        case Binary("/" | "%" | "//") | Call():
            return CALL_OPERATIONS
        case Binary() | Select():
            return 1
        case _:
            return 0


def folding(reduce: Reduce) -> int:
    """Return how many instructions take a term into an accumulator: none beside those of a product that is added."""
    reducer, (term, *_) = reduce.reducer, reduce.body
    if reducer.kind in ("min", "max") and reducer.dtypes[0].is_float:
        return EXTREMUM_OPERATIONS
    if reducer.kind is None:
        return max(1, sum(map(instructions, dict.fromkeys(n for e in reducer.combine for n in nodes(e)))))
    while isinstance(term, Let):
        term = term.body
    return int(not (reducer.kind == "sum" and isinstance(term, Binary) and term.op == "*"))

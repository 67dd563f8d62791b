"""What expressions are made of: their values, each computed once, the instructions for these, and which operations take them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tensorlang.policy.cpu.cost import CALL_OPERATIONS, EXTREMUM_OPERATIONS
from tensorlang.tensor.nodes import Binary, Call, Const, Expr, Let, Name, Read, Reduce, Select
from tensorlang.tensor.walk import children, index_names, map_children, nodes


@dataclass(frozen=True, slots=True)
class Value:
    """A value that some operations take: the names that it depends on, and the `wider` ones that they do beside. `repeated`: whether
    several of the last sum with such operations take it, `term`: the number of that sum; None where there are others."""

    names: frozenset[str]
    wider: frozenset[str]
    repeated: bool
    term: int | None
    is_computed: bool


class Values:
    """The values that expressions are made of, each computed once and known by a number (value numbering): what it is, the values that it
    takes, and the names that it depends on. What reductions make is there already."""

    def __init__(self, roots: Sequence[Expr], step: set[str]) -> None:
        self._step = step
        self.computed: list[Expr] = []
        self._operands: list[tuple[int, ...]] = []
        self._names: list[frozenset[str]] = []
        self._numbers: dict[Expr, int] = {}
        self._lets: dict[str, frozenset[str]] = {}
        self._roots = [self._number(e) for e in roots]

    def _number(self, e: Expr) -> int:
        """Return the number of a value, after a look at all that it is made of."""
        operands: list[int] = []

        def operand(child: Expr) -> Expr:
            operands.append(self._number(child))
            if isinstance(e, Let) and child is e.value:
                self._lets[e.name] = self._names[operands[-1]]
            return Name(str(operands[-1]))

        key = e
        if isinstance(e, Read):
            for child in children(e):
                operand(child)
        elif not isinstance(e, Reduce):
            # Operands stand by their numbers, so that no expression is compared as a whole.
            key = map_children(operand, e)
        if key not in self._numbers:
            self._numbers[key] = len(self.computed)
            self.computed.append(e)
            self._operands.append(() if isinstance(e, Read) else tuple(operands))
            self._names.append(self._names_of(e, operands))
        return self._numbers[key]

    def _names_of(self, e: Expr, operands: Sequence[int]) -> frozenset[str]:
        below = frozenset[str]().union(*(self._names[v] for v in operands))
        if isinstance(e, Name):
            return self._lets.get(e.name, below)
        return below if operands and not isinstance(e, Read) else below | index_names(e)

    def operations(self, *, before: bool) -> dict[frozenset[str], int]:
        """Return how many instructions the steps of the innermost loop take, or what is `before` it, by the names that their values depend
        on."""
        found: dict[frozenset[str], int] = {}
        for e, names in zip(self.computed, self._names, strict=True):
            count = instructions(e)
            if count and before == (bool(self._step) and not names & self._step):
                found[names] = found.get(names, 0) + count
        return found

    def taken(self, point: set[str]) -> tuple[tuple[frozenset[str], ...], Counter[Value]]:
        """Return the names of what steps of the innermost loop take of values that are the same in all of them, and the values that
        operations take, or accumulators, which there are for each `point`, where they are others in each step: how many there are of those
        that are alike."""
        kept, found = dict[int, None](), dict[int, Value]()
        for term, root in enumerate(self._roots):
            taking, rest = {root: [frozenset(point)]}, [root]
            while rest:
                v = rest.pop()
                # What a sum before this one takes is computed already.
                for operand in () if v in found else dict.fromkeys(self._operands[v]):
                    if operand not in taking:
                        rest.append(operand)
                    taking.setdefault(operand, []).append(self._names[v])
            for v, by in taking.items():
                e, names = self.computed[v], self._names[v]
                if isinstance(e, Const):
                    continue
                if self._step and not names & self._step:
                    kept.update({v: None} if any(n & self._step for n in by) else {})
                else:
                    before = found.get(v)
                    wide = frozenset().union(*by, before.wider if before else ())
                    found[v] = Value(names, wide - names, len(by) > 1, None if before else term, instructions(e) > 0)
        return tuple(self._names[v] for v in kept), Counter(found.values())


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

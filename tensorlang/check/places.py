"""Which thread holds what of an instruction that several threads run together.

    where a[m, k] in warp(4*(m % 8) + k % 8 // 2, k % 2 + 2*(m // 8) + 4*(k // 8))

Element a[m, k] is with lane 4*(m % 8) + … of the warp, and is element k % 2 + … of those that the lane has. Every place holds one element,
which is seen by going through all of them where sizes are numbers; of an operand whose extents are names, where an instruction gets them.

Operands of an instruction of four warps (`warpgroup`) that have no place lie in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.check.problems import error
from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show

SCOPES = {"warp": 32, "warpgroup": 128}
"""How many threads run an instruction together."""
MOST_ELEMENTS = 1 << 16
"""Of an operand, of which each is looked at."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Element `axes` of an operand is the `register`-th that thread `lane` of the `scope` has."""

    axes: tuple[str, ...]
    scope: str
    lane: Affine
    register: Affine

    def at(self, *point: int) -> tuple[int, int]:
        """Return thread and number of the element at `point`."""
        where = dict(zip(self.axes, point, strict=True))
        return affine.evaluate(self.lane, where), affine.evaluate(self.register, where)


def spread_of(operator: sx.Operator) -> dict[str, Spread]:
    """Return where each operand of an instruction lies; {} where none is said to. Raises CompileError T0155 for what cannot be."""
    found: dict[str, Spread] = {}
    for place in operator.places:
        name = place.element.name
        if name in found:
            raise _wrong(place, f"`{name}` has a place already")
        found[name] = _spread(operator, place)
    missing = [p for p in operator.params if p.name not in found]
    if missing and any(spread.scope == "warp" for spread in found.values()):
        raise _wrong(operator.places[0], f"`{missing[0].name}` has no place", f"write `{missing[0].name}[…] in warp(lane, register)` too")
    return found


def misplaced(operator: sx.Operator) -> Iterator[Diagnostic]:
    """Yield what is wrong with the places of an instruction's operands."""
    try:
        spread_of(operator)
    except CompileError as problem:
        yield from problem.diagnostics


def _spread(operator: sx.Operator, place: sx.Place) -> Spread:
    name, threads = place.element.name, SCOPES.get(place.scope)
    if threads is None:
        raise _wrong(place, f"there are no threads `{place.scope}`", f"known are {', '.join(SCOPES)}")
    param = next((p for p in operator.params if p.name == name), None)
    if param is None:
        raise _wrong(place, f"`{name}` is no operand of `{operator.name}`", "results lie where what is added to lies")
    dims = (param.type.dims if isinstance(param.type, sx.TensorType) else None) or ()
    axes = tuple(slot.name for slot in place.element.slots if isinstance(slot, sx.Id))
    if not axes or len(axes) != len(dims) or len(axes) != len(place.element.slots) or len(set(axes)) < len(axes):
        raise _wrong(place, f"`{show(place.element)}` is no element of an operand")
    spread = Spread(axes, place.scope, _affine(place.lane, axes), _affine(place.register, axes))
    extents = _extents(param)
    if extents is None:
        return spread
    if prod(extents) > MOST_ELEMENTS:
        raise _wrong(place, f"`{name}` has more than {MOST_ELEMENTS} elements", "instructions work on a few hundred")
    each, rest = divmod(prod(extents), threads)
    if rest:
        raise _wrong(place, f"{prod(extents)} elements of `{name}` cannot be shared by {threads} threads")
    holders: dict[tuple[int, int], tuple[int, ...]] = {}
    for point in product(*map(range, extents)):
        lane, register = spread.at(*point)
        element = f"{name}[{', '.join(map(str, point))}]"
        if not (0 <= lane < threads and 0 <= register < each):
            why = f"`{element}` is element {register} of thread {lane}, and {threads} threads have {each} elements each"
            raise _wrong(place, why)
        other = holders.setdefault((lane, register), point)
        if other != point:
            raise _wrong(place, f"`{name}[{', '.join(map(str, other))}]` and `{element}` are both element {register} of thread {lane}")
    return spread


def _extents(param: sx.Param) -> list[int] | None:
    dims = (param.type.dims if isinstance(param.type, sx.TensorType) else None) or ()
    numbers = [int(d.text) for d in dims if isinstance(d, sx.Number) and not d.is_float]
    return numbers if dims and len(numbers) == len(dims) else None


def _affine(e: sx.Expr, axes: tuple[str, ...]) -> Affine:
    """Return an expression over the axes of an operand."""
    match e:
        case sx.Number(text) if not e.is_float:
            return affine.to_expr(int(text))
        case sx.Id(name) if name in axes:
            return Name(name)
        case sx.Binary("+", lhs, rhs):
            return affine.add(_affine(lhs, axes), _affine(rhs, axes))
        case sx.Binary("-", lhs, rhs):
            return affine.sub(_affine(lhs, axes), _affine(rhs, axes))
        case sx.Binary(("//" | "%") as op, lhs, sx.Number(text)) if text.isdigit() and int(text) > 0:
            return (affine.floor if op == "//" else affine.mod)(_affine(lhs, axes), int(text))
        case sx.Binary("*", lhs, rhs) if (product_ := affine.mul(_affine(lhs, axes), _affine(rhs, axes))) is not None:
            return product_
        case _:
            raise error("T0155", f"`{show(e)}` is no sum, multiple, quotient or remainder of indices", e.span, "said here")


def _wrong(node: sx.Node, why: str, help: str | None = None) -> CompileError:
    return error("T0155", why, node.span, "said here", help=help)

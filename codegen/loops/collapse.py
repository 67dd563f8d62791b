"""Several parallel loops as one range of iterations that can be cut anywhere.

    before   for i in 0 .. I parallel { for j in 0 .. J parallel { S } }        I * J iterations, counted through
    after    for i in begin // J .. (end - 1) // J + 1 {                        those from `begin` to `end`
                 for j in max(0, begin - J*i) .. min(J, end - J*i) { S } }

Seven blocks of channels are no even share for two threads; seven times fourteen rows are. The loops stay loops, so addresses leave them as
usual and nothing is divided per iteration. Only a loop that is the whole body of the one around it takes part, and only where extents are
numbers: then what the body needs to know about its loops follows from numbers.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from codegen.loops.nodes import Add, FloorDiv, For, Index, Int, Max, Min, Mul, Stmt, Var


def nested(loop: For) -> tuple[int, ...]:
    """Return the extents of the parallel loops inside `loop` that can be counted through with it, from the outside in."""
    extents: list[int] = []
    body: tuple[Stmt, ...] = loop.body
    while True:
        match body:
            case (For(_, Int(0), Int(extent), inside, "parallel"),) if extent > 0:
                extents.append(extent)
                body = inside
            case _:
                return tuple(extents)


def part(loop: For, extents: tuple[int, ...], begin: Index, end: Index) -> For:
    """Return iterations `begin` to `end`, which are not none and not negative, of `loop` counted through with the parallel loops of these
    extents inside it, as serial loops."""
    if not extents:
        return replace(loop, lo=begin, hi=end, kind="serial")
    inner = loop.body[0]
    assert isinstance(inner, For)
    count = Int(prod(extents))
    before = Mul(Mul(Int(-1), count), Var(loop.var))
    body = part(inner, extents[1:], Max(Int(0), Add(begin, before)), Min(count, Add(end, before)))
    return replace(loop, lo=FloorDiv(begin, count), hi=Add(FloorDiv(Add(end, Int(-1)), count), Int(1)), body=(body,), kind="serial")

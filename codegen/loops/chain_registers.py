"""Keep whole numbers that iterations wait for in registers of vectors, where a minimum or maximum is one instruction.

    before   for i in 1 .. n serial { s[0] = max(s[0], 0_i32) + x[i];  y[i] = s[0] }
    after    for l in 0 .. 4 vector { s_lanes[l] = s[0] }
             for i in 1 .. n serial {
                 for l in 0 .. 4 vector { s_lanes[l] = max(s_lanes[l], 0_i32) + x[i] }
                 y[i] = s_lanes[0]
             }
             s[0] = s_lanes[0]

All lanes hold the same, and the first one is read. Of general registers a minimum is a comparison and a choice, one after the other, which
compilers make branches of, besides. Only loops of single statements change, of which all that waits takes operations that vectors have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codegen.dtypes import i32
from codegen.loops.nodes import Alloc, Binary, Buffer, Expr, For, Function, Index, Int, Let, Load, Name, Stmt, Store, Unary, Var
from codegen.loops.replace_loops import replace_loops
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Fresh, Node, children, fresh_for, loads, map_expr, stores, walk

LANES = 4
"""Of the smallest registers."""
_OPERATIONS = ("+", "-", "min", "max", "bitand", "bitor", "bitxor")


def chains_in_vectors(function: Function) -> Function:
    """Return `function` with whole numbers of 32 bits that serial loops carry, through minima and maxima, in lanes."""
    fresh = fresh_for(function)

    def replaced(loop: For, env: Env) -> Sequence[Stmt]:
        chain = _chain(loop, env) if loop.kind == "serial" else None
        return _in_lanes(loop, chain, fresh) if chain is not None else ()

    return replace_loops(function, replaced)


@dataclass(frozen=True, slots=True)
class Chain:
    """What a loop carries: buffers of one element in registers, and the names that are bound to what is made of them."""

    buffers: frozenset[str]
    names: frozenset[str]

    def is_late(self, *parts: Node) -> bool:
        return any(
            (isinstance(n, Load) and n.buffer in self.buffers) or (isinstance(n, Name) and n.name in self.names) for n in walk(*parts)
        )

    def is_in_lanes(self, e: Expr) -> bool:
        """Tell whether all operations from what is carried to `e` are those that vectors have."""
        match e:
            case Binary(op, a, b) if op in _OPERATIONS:
                return self.is_in_lanes(a) and self.is_in_lanes(b)
            case Unary("neg" | "abs", value):
                return self.is_in_lanes(value)
            case Load() | Name():
                return not self.is_late(*children(e))
            case _:
                return not self.is_late(e)


def _chain(loop: For, env: Env) -> Chain | None:
    """Return what a loop carries in whole numbers of 32 bits through a minimum or maximum, and through nothing else that lanes do worse;
    None where it is no such loop."""
    body = [s for s in loop.body if isinstance(s, Let | Store)]
    if len(body) < len(loop.body):
        return None
    stored, inside = {s.buffer for s in stores(*loop.body)}, env.with_loop(loop)
    own = frozenset(n for n in stored if _is_one(env.buffers[n]))
    if not own or any(n.buffer in stored - own for n in loads(*loop.body)):
        return None
    chain, extremum = Chain(own, frozenset()), False
    for s in body:
        late = chain.is_late(s.value) or (isinstance(s, Store) and s.buffer in own)
        if late and (dtype_of(s.value, inside) != i32 or not chain.is_in_lanes(s.value)):
            return None
        extremum |= late and any(isinstance(n, Binary) and n.op in ("min", "max") and chain.is_late(n) for n in walk(s.value))
        if isinstance(s, Store) and chain.is_late(*s.index):
            return None
        if isinstance(s, Let) and late:
            chain = replace(chain, names=chain.names | {s.name})
        inside = inside.after(s)
    return chain if extremum else None


def _is_one(buffer: Buffer) -> bool:
    return buffer.space == "registers" and buffer.dtype == i32 and all(extent == Int(1) for extent in buffer.shape)


def _in_lanes(loop: For, chain: Chain, fresh: Fresh) -> list[Stmt]:
    """Return a loop that carries its numbers in lanes, with what stands before and behind it."""
    lane = fresh(f"{loop.var}_lane")
    lanes = {name: fresh(f"{name}_lanes") for name in sorted(chain.buffers)}
    there = {s.buffer: s.index for s in stores(*loop.body)}
    early: list[Stmt] = []
    late: list[Stmt] = []
    behind: list[Stmt] = []
    made: list[str] = []
    for s in loop.body:
        match s:
            case Let(name, value):
                (late if name in chain.names else early).append(Let(name, _lane_of(value, lanes, lane)))
            case Store(buffer, _, value) if buffer in chain.buffers:
                late.append(Store(lanes[buffer], (Var(lane),), _lane_of(value, lanes, lane)))
            case Store(buffer, _, value) if chain.is_late(value):
                made.append(fresh(f"{buffer}_lanes"))
                late.append(Store(made[-1], (Var(lane),), _lane_of(value, lanes, lane)))
                behind.append(replace(s, value=Load(made[-1], (Int(0),))))
            case _:
                behind.append(s)
    inner = [*early, *map(_registers, made), _vector(lane, late), *behind]
    return [
        *map(_registers, lanes.values()),
        _vector(lane, [Store(new, (Var(lane),), Load(name, there[name])) for name, new in lanes.items()]),
        replace(loop, body=tuple(inner)),
        *(Store(name, there[name], Load(new, (Int(0),))) for name, new in lanes.items()),
    ]


def _lane_of(e: Expr, lanes: Mapping[str, str], lane: str) -> Expr:
    """Return an expression that reads what is carried in its own lane."""
    if isinstance(e, Load) and e.buffer in lanes:
        return replace(e, buffer=lanes[e.buffer], index=(Var(lane),))

    def same(index: Index) -> Index:
        return index

    return map_expr(e, same, lambda part: _lane_of(part, lanes, lane))


def _registers(name: str) -> Stmt:
    return Alloc(Buffer(name, i32, (Int(LANES),), "registers"))


def _vector(lane: str, body: Sequence[Stmt]) -> For:
    return For(lane, Int(0), Int(LANES), tuple(body), kind="vector", extent=LANES)

"""Finds what is wrong with a function before anybody runs or emits it.

`verify` checks names and ranks, types, loop marks, memory spaces, and the rule for stores in vector loops, as nodes.py states them.
It does not check bounds or races, which depend on sizes; `interp` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, Never, assert_never

from codegen.dtypes import DType, bool_, called_dtype, f32, i64, u32, u64
from codegen.errors import InternalError
from codegen.loops import dots
from codegen.loops.nodes import (
    Add,
    Alloc,
    Barrier,
    Binary,
    Box,
    Boxes,
    Buffer,
    Call,
    Cast,
    Commit,
    Compare,
    Const,
    Dot,
    Expr,
    FloorDiv,
    Fma,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Max,
    Min,
    Mma,
    Mod,
    Mul,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
    Wait,
    WaitBoxes,
)
from codegen.loops.notes import Begins, Note
from codegen.loops.printer import show_buffer, show_expr, show_index, show_stmt
from codegen.loops.running_results import OPERATIONS, running_results
from codegen.loops.swizzle import swizzle_problem
from codegen.loops.walk import Node, free_vars, loads, walk

ARITY: Mapping[str, int] = {
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "erf", "sigmoid", "isnan", "isinf"), 1),
    **dict.fromkeys(("bits", "from_bits"), 1),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"), 1),
    **dict.fromkeys(("floor", "ceil", "round", "round_bf16", "round_tf32", "trunc"), 1),
    **dict.fromkeys(("pow", "fmod", "atan2"), 2),
}
"""How many arguments each elementary function takes."""


@dataclass(frozen=True, slots=True)
class Env:
    """What is in scope: loop variables and sizes, `Let` values, buffers. `constant` are the loop variables that unrolling fixes."""

    indices: frozenset[str] = frozenset()
    values: Mapping[str, DType] = field(default_factory=dict)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()

    @staticmethod
    def of(function: Function) -> Env:
        """Return what is in scope at the start of the body of `function`."""
        return Env(frozenset(function.sizes), {}, {p.name: p for p in function.params})

    def with_index(self, name: str) -> Env:
        return replace(self, indices=self.indices | {name})

    def with_loop(self, loop: For) -> Env:
        """Return what is in scope in the body of `loop`."""
        env = self.with_index(loop.var)
        unrolled = loop.kind in ("unroll", "vector", "tensor", "tile") and self.is_constant(loop.lo)
        return replace(env, constant=env.constant | {loop.var}) if unrolled else env

    def is_constant(self, *index: Index) -> bool:
        """Tell whether unrolling turns `index` into constants."""
        return free_vars(*index) <= self.constant and not any(isinstance(node, ValueIndex) for node in walk(*index))

    def with_value(self, name: str, dtype: DType) -> Env:
        return replace(self, values={**self.values, name: dtype})

    def with_buffer(self, buffer: Buffer) -> Env:
        return replace(self, buffers={**self.buffers, buffer.name: buffer})

    def after(self, s: Stmt) -> Env:
        """Return what is in scope behind a statement, in the block that it stands in."""
        match s:
            case Let(name, value):
                return self.with_value(name, dtype_of(value, self))
            case Alloc(buffer):
                return self.with_buffer(buffer)
            case _:
                return self

    def __contains__(self, name: str) -> bool:
        return name in self.indices or name in self.values or name in self.buffers


@dataclass(frozen=True, slots=True)
class _Lane:
    """What differs between the lanes of the vector loop around a statement: variables, values, and buffers allocated inside."""

    vars: frozenset[str]
    names: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()

    def varies(self, *nodes: Node) -> bool:
        if not self.vars.isdisjoint(free_vars(*nodes)):
            return True
        return any(
            (isinstance(node, Name) and node.name in self.names) or (isinstance(node, Load) and node.buffer in self.buffers)
            for node in walk(*nodes)
        )


@dataclass(frozen=True, slots=True)
class _Scope:
    """`Env`, and where in the loop nest we are."""

    env: Env
    written: frozenset[str]
    lanes: tuple[_Lane, ...] = ()
    kept: frozenset[Store] = frozenset()
    """What keeps the running results of the vector loop of whose body this is a statement."""


def verify(function: Function) -> None:
    """Return if `function` keeps the rules of nodes.py; otherwise raise InternalError that says which one it breaks and where."""
    params = [p.name for p in function.params]
    seen: set[str] = set()
    for name in [*function.sizes, *params]:
        if name in seen:
            _fail(f"`{name}` is declared twice in the header of `{function.name}`")
        seen.add(name)
    for name in sorted(function.written - set(params)):
        _fail(f"`{name}` is marked as written but is no parameter of `{function.name}`")
    sizes = Env(frozenset(function.sizes))
    for param in function.params:
        if param.space != "param":
            _fail(f"parameter `{show_buffer(param)}` lies in {param.space}")
        if param.notes:
            _fail(f"parameter `{show_buffer(param)}` is the caller's, so nothing is asked of it")
        _check_buffer(param, sizes)
    _check_block(function.body, _Scope(Env.of(function), function.written))


# ---------------------------------------------------------------- types


def dtype_of(e: Expr, env: Env) -> DType:
    """Return the element type of `e`, which is taken to be well formed."""
    match e:
        case Const(_, dtype) | Cast(dtype, _):
            return dtype
        case Load(buffer, _):
            return env.buffers[buffer].dtype
        case IndexValue():
            return i64
        case Name(name):
            return env.values[name]
        case Compare():
            return bool_
        case Call("isnan" | "isinf" | "bits" | "from_bits" as fn, (value,)):
            return called_dtype(fn, dtype_of(value, env))
        case Unary(_, value) | Binary(_, value, _) | Select(_, value, _) | Fma(value, _, _):
            return dtype_of(value, env)
        case Call("pack" | "bits_tf32", _):
            return u32
        case Call(_, args):
            return dtype_of(args[0], env)
        case Dot(c=value):
            return dtype_of(value, env)
        case _:
            assert_never(e)


def check_expr(e: Expr, env: Env) -> DType:
    """Return the element type of `e`; raise InternalError when some part of it is not well formed in `env`."""
    match e:
        case Const(_, dtype):
            _check_const(e)
            return dtype
        case Load(buffer, index):
            return _check_access(buffer, index, env).dtype
        case IndexValue(index_value):
            check_index(index_value, env)
            return i64
        case Name(name):
            if name not in env.values:
                _fail(f"value `{name}` is not bound")
            return env.values[name]
        case Unary(op, value):
            return _check_operand(op, check_expr(value, env), e)
        case Binary(binary, lhs, rhs):
            return _check_operand(binary, _same(check_expr(lhs, env), check_expr(rhs, env), e), e)
        case Compare(compare, lhs, rhs):
            dtype = _same(check_expr(lhs, env), check_expr(rhs, env), e)
            _check_operand("equal" if compare in ("==", "!=") else "order", dtype, e)
            return bool_
        case Select(cond, then, orelse):
            _expect_bool(cond, env)
            return _same(check_expr(then, env), check_expr(orelse, env), e)
        case Cast(dtype, value, _):
            check_expr(value, env)
            return dtype
        case Call("pack", args):
            _check_pack([check_expr(arg, env) for arg in args], e)
            return u32
        case Call("bits_tf32", args):
            if [check_expr(arg, env) for arg in args] not in ([f32], [u32]):
                _fail(f"`{show_expr(e)}` is of one f32, or of the bits of one")
            return u32
        case Call(fn, args):
            return _check_call(fn, [check_expr(arg, env) for arg in args], e)
        case Fma(a, b, c):
            dtype = _same(_same(check_expr(a, env), check_expr(b, env), e), check_expr(c, env), e)
            return _check_operand("fma", dtype, e)
        case Dot():
            return _check_dot(e, env)
        case _:
            assert_never(e)


def _check_dot(e: Dot, env: Env) -> DType:
    a, b, c = (check_expr(part, env) for part in (e.a, e.b, e.c))
    if dots.accumulator(a, b) != c:
        _fail(f"`{show_expr(e)}` adds products of {a} and {b} to {c}")
    if e.count != dots.group(a) or not e.a.index or not e.b.index:
        _fail(f"`{show_expr(e)}` does not take {dots.BITS} bits of each operand")
    return c


def check_index(e: Index, env: Env) -> None:
    """Raise InternalError when some part of the index expression `e` is not well formed in `env`."""
    match e:
        case Int():
            return
        case Var(name):
            if name not in env.indices:
                _fail(f"index variable `{name}` is not bound")
        case FloorDiv(_, Int(divisor)) | Mod(_, Int(divisor)) if divisor <= 0:
            _fail(f"division by {divisor} in `{show_index(e)}`")
        case Add(lhs, rhs) | Mul(lhs, rhs) | FloorDiv(lhs, rhs) | Mod(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            check_index(lhs, env)
            check_index(rhs, env)
        case ValueIndex(value):
            dtype = check_expr(value, env)
            if not dtype.is_integer:
                _fail(f"index `{show_index(e)}` has type {dtype}")
        case _:
            assert_never(e)


def _check_const(e: Const) -> None:
    if e.dtype.is_float:
        return
    low = -(1 << (e.dtype.bits - 1)) if e.dtype.kind == "int" else 0
    high = low + (1 << e.dtype.bits) - 1
    valid = isinstance(e.value, bool) if e.dtype == bool_ else e.value == int(e.value) and low <= e.value <= high
    if not valid:
        _fail(f"{e.value} is no value of type {e.dtype}")


def _check_operand(op: str, dtype: DType, e: Expr) -> DType:
    """Return `dtype` if operation `op` takes values of that type."""
    match op:
        case "not" | "and" | "or":
            valid = dtype == bool_
        case "bitnot" | "shl" | "shr":
            valid = dtype.is_integer
        case "bitand" | "bitor" | "bitxor":
            valid = not dtype.is_float
        case "/" | "fma":
            valid = dtype.is_float
        case "equal":
            valid = True
        case "neg" | "abs" | "+" | "-" | "*" | "//" | "%" | "min" | "max" | "order":
            valid = dtype.is_integer or dtype.is_float
        case _:
            _fail(f"unknown operation {op!r}")
    if not valid:
        _fail(f"`{show_expr(e)}` is not defined for {dtype}")
    _check_wide(dtype, e)
    return dtype


def _check_wide(dtype: DType, e: Expr) -> None:
    if dtype.is_float and dtype.bits < 32:
        _fail(f"`{show_expr(e)}` computes in {dtype}; cast to f32 first")


def _check_pack(args: list[DType], e: Expr) -> None:
    if len(set(args)) != 1 or len(args) * args[0].bits != 32 or len(args) == 1:
        _fail(f"`{show_expr(e)}` does not fill 32 bits with elements of one type")


def _check_call(fn: str, args: list[DType], e: Expr) -> DType:
    if fn not in ARITY:
        _fail(f"unknown function `{fn}`")
    if len(args) != ARITY[fn]:
        _fail(f"`{fn}` takes {ARITY[fn]} arguments, not {len(args)}")
    for dtype in args:
        _same(args[0], dtype, e)
        if not (dtype in (u32, u64) if fn == "from_bits" else dtype.is_float):
            _fail(f"`{show_expr(e)}` is not defined for {dtype}")
        _check_wide(dtype, e)
        if fn == "round_tf32" and dtype != f32:
            _fail(f"`{show_expr(e)}` is not defined for {dtype}")
    return called_dtype(fn, args[0])


def _same(a: DType, b: DType, e: Expr) -> DType:
    if a != b:
        _fail(f"`{show_expr(e)}` mixes {a} and {b}")
    return a


def _expect_bool(cond: Expr, env: Env) -> None:
    dtype = check_expr(cond, env)
    if dtype != bool_:
        _fail(f"the condition `{show_expr(cond)}` needs bool, not {dtype}")


# ---------------------------------------------------------------- statements


def _check_block(block: tuple[Stmt, ...], scope: _Scope) -> None:
    for s in block:
        scope = _check_stmt(s, scope)


def _check_stmt(s: Stmt, scope: _Scope) -> _Scope:
    """Return the scope of the rest of the block after `s`."""
    env = scope.env
    match s:
        case For():
            _check_for(s, scope)
        case Store():
            _check_store(s, scope)
        case Let(name, value):
            _check_new(name, env)
            dtype = check_expr(value, env)
            lanes = tuple(replace(lane, names=lane.names | {name}) if lane.varies(value) else lane for lane in scope.lanes)
            return replace(scope, env=env.with_value(name, dtype), lanes=lanes)
        case If(cond, then, orelse):
            _expect_bool(cond, env)
            _check_block(then, replace(scope, kept=frozenset()))
            _check_block(orelse, replace(scope, kept=frozenset()))
        case Alloc(buffer):
            _check_new(buffer.name, env)
            _check_buffer(buffer, env)
            if buffer.space == "param":
                _fail(f"`{show_stmt(s)}` allocates a parameter")
            lanes = tuple(replace(lane, buffers=lane.buffers | {buffer.name}) for lane in scope.lanes)
            return replace(scope, env=env.with_buffer(buffer), lanes=lanes)
        case Prefetch(buffer_name, index, _, locality):
            _check_access(buffer_name, index, env)
            if not 0 <= locality <= 3:
                _fail(f"`{show_stmt(s)}` has a locality outside 0 .. 3")
        case Require(cond, code):
            _expect_bool(cond, env)
            if code <= 0:
                _fail(f"`{show_stmt(s)}` returns a code that is not positive")
        case Wait(pending) if pending < 0:
            _fail(f"`{show_stmt(s)}` waits for groups that there are not yet")
        case LoadMatrix():
            _check_matrix(s, env)
        case Mma(_, sums, rows, columns):
            spaces = [_check_access(operand.buffer, operand.index, env).space for operand in (sums, rows, columns)]
            if spaces not in (["registers"] * 3, ["registers", "shared", "shared"]) or not sums.index:
                _fail(f"`{show_stmt(s)}` multiplies what is not in registers, nor in shared memory")
        case Boxes(barriers, group, boxes):
            _check_groups(s, barriers, group, env)
            for box in boxes:
                target = _check_access(box.target.buffer, box.target.index, env)
                source = _check_access(box.source.buffer, box.source.index, env)
                if target.space != "shared" or target.dtype != source.dtype or not _is_box(box, target, source):
                    _fail(f"`{show_stmt(s)}` copies what is no box")
        case WaitBoxes(barriers, group) | Release(barriers, group) | Reclaim(barriers, group):
            _check_groups(s, barriers, group, env)
        case Producer(body, registers):
            _check_producer(s, body, registers)
            _check_block(body, scope)
        case Barrier() | Commit() | Wait():
            pass
        case _:
            assert_never(s)
    return scope


def _is_box(box: Box, target: Buffer, source: Buffer) -> bool:
    """Tell whether a box fills a part of the one buffer and stands in the other along axes that there are."""
    rank = len(source.shape)
    of_axes = len(box.extents) == rank and len(box.steps) in (0, rank) and sorted(box.axes) == list(range(rank))
    long = [box.extents[axis] for axis in box.axes if box.extents[axis] > 1] if of_axes else []
    return of_axes and _lies_together(long, [e.value for e in target.shape if isinstance(e, Int) and e.value > 1])


def _lies_together(long: list[int], sides: list[int]) -> bool:
    """Tell whether a box of these extents fills cells that lie together: whole axes of a buffer, but for the first, which may be longer."""
    while long and sides and long[-1] == sides[-1]:
        long, sides = long[:-1], sides[:-1]
    return not long or (bool(sides) and prod(long) <= sides[-1])


def _check_groups(s: Stmt, barriers: str, group: Index, env: Env) -> None:
    check_index(group, env)
    buffer = env.buffers.get(barriers)
    if buffer is None or buffer.space != "shared" or buffer.dtype != u64 or len(buffer.shape) != 1:
        _fail(f"`{show_stmt(s)}` counts at what are no barriers")


def _check_producer(s: Producer, body: tuple[Stmt, ...], registers: tuple[int, ...]) -> None:
    if not all(map(_producer_runs, body)):
        _fail(f"`{show_stmt(s)}` has the producer do what it does not")
    if len(registers) not in (0, 2):
        _fail(f"`{show_stmt(s)}` deals out registers other than to both sides")


def _producer_runs(s: Stmt) -> bool:
    """Tell whether a producer does `s`."""
    match s:
        case If(_, then, orelse):
            return all(map(_producer_runs, (*then, *orelse)))
        case Boxes() | Reclaim():
            return True
        case _:
            return False


def _check_matrix(s: LoadMatrix, env: Env) -> None:
    target = _check_access(s.buffer, s.index, env)
    if target.space != "registers" or target.dtype != u32 or not s.index:
        _fail(f"`{show_stmt(s)}` fills what are no registers of 32 bits")
    _check_new(s.lane, env)
    source = _check_access(s.source.buffer, s.source.index, env.with_index(s.lane))
    if source.space != "shared" or 16 % source.dtype.size_bytes:
        _fail(f"`{show_stmt(s)}` reads what does not lie in shared memory")
    if s.count not in (1, 2, 4) or (s.transposed and source.dtype.size_bytes != 2):
        _fail(f"`{show_stmt(s)}` is no instruction")


def _check_for(loop: For, scope: _Scope) -> None:
    env = scope.env
    _check_new(loop.var, env)
    check_index(loop.lo, env)
    check_index(loop.hi, env)
    header = f"for {loop.var} in {show_index(loop.lo)} .. {show_index(loop.hi)} {loop.kind}"
    if loop.kind in ("unroll", "vector", "tensor", "tile") and loop.extent is None:
        _fail(f"`{header}` has no extent")
    match loop:
        case For(lo=Int(lo), hi=Int(hi), extent=int(extent)) if hi - lo > extent:
            _fail(f"`{header}` runs more often than its extent {extent}")
        case For(extent=int(extent)) if extent < 0:
            _fail(f"`{header}` has the negative extent {extent}")
        case _:
            pass
    _check_notes(header, loop.notes, "loop")
    lanes = tuple(replace(lane, vars=lane.vars | {loop.var}) if lane.varies(loop.lo, loop.hi) else lane for lane in scope.lanes)
    if loop.kind == "vector":
        lanes += (_Lane(frozenset((loop.var,))),)
    kept = frozenset(x.kept for x in running_results(loop).values()) if loop.kind == "vector" and not scope.lanes else frozenset()
    _check_block(loop.body, replace(scope, env=env.with_loop(loop), lanes=lanes, kept=kept))


def _check_store(s: Store, scope: _Scope) -> None:
    buffer = _check_access(s.buffer, s.index, scope.env)
    dtype = check_expr(s.value, scope.env)
    if dtype != buffer.dtype:
        _fail(f"`{show_stmt(s)}` stores {dtype} into {buffer.dtype}")
    if s.later and buffer.space != "shared":
        _fail(f"`{show_stmt(s)}` lands later, and not in shared memory")
    if buffer.space == "param" and buffer.name not in scope.written:
        _fail(f"`{show_stmt(s)}` writes to a parameter that is not marked as written")
    for lane in scope.lanes:
        if s.buffer not in lane.buffers and not lane.varies(*s.index) and not is_reduction(s) and s not in scope.kept:
            _fail(f"`{show_stmt(s)}` writes one address from all lanes and is no reduction")


def is_reduction(s: Store) -> bool:
    """Tell whether `s` has the form `a[..] = a[..] op e`, where `e` does not read that element."""
    here = Load(s.buffer, s.index)
    match s.value:
        case Binary(op, lhs, rest) if lhs == here and (op in OPERATIONS or op == "-"):
            return all(load != here for load in loads(rest))
        case Binary(op, rest, rhs) if rhs == here and op in OPERATIONS:
            return all(load != here for load in loads(rest))
        case Fma(a, b, c) if c == here:
            return all(load != here for load in loads(a, b))
        case _:
            return False


# ---------------------------------------------------------------- names, buffers, accesses


def _check_new(name: str, env: Env) -> None:
    if name in env:
        _fail(f"`{name}` shadows another `{name}`")


def _check_buffer(buffer: Buffer, env: Env) -> None:
    for extent in buffer.shape:
        check_index(extent, env)
        if buffer.space in ("registers", "stack", "tiles") and not isinstance(extent, Int):
            _fail(f"`{show_buffer(buffer)}` has an extent that is not constant")
    if buffer.align < 1 or buffer.align & (buffer.align - 1):
        _fail(f"the alignment of `{show_buffer(buffer)}` is no power of two")
    if buffer.swizzle:
        _check_swizzle(buffer)
    _check_notes(show_buffer(buffer), buffer.notes, "buffer")
    begin = buffer.note(Begins)
    if begin is not None and not _is_row(env.buffers.get(begin.parameter), buffer):
        _fail(f"`{begin.parameter}` is no parameter with room for one of the two rows of `{show_buffer(buffer)}`")


def _is_row(parameter: Buffer | None, buffer: Buffer) -> bool:
    """Tell whether a parameter holds what each of the two rows of a heap buffer does."""
    return (
        parameter is not None
        and (parameter.space, buffer.space) == ("param", "heap")
        and parameter.dtype == buffer.dtype
        and buffer.shape == (Int(2), *parameter.shape)
    )


def _check_notes(what: str, notes: tuple[Note, ...], about: Literal["loop", "buffer"]) -> None:
    stray = next((note for note in notes if note.about != about), None)
    if stray is not None:
        _fail(f"`{what}` is no {stray.about}, and `{stray}` is about one")
    if len({note.word for note in notes}) < len(notes):
        _fail(f"`{what}` has two notes of one kind")


def _check_swizzle(buffer: Buffer) -> None:
    if buffer.space != "shared" or not buffer.shape or not all(isinstance(e, Int) for e in buffer.shape):
        _fail(f"`{show_buffer(buffer)}` is swizzled, and not in shared memory, with rows of constant extents")
    last = buffer.shape[-1]
    why = swizzle_problem(buffer.swizzle, last.value, buffer.dtype.size_bytes) if isinstance(last, Int) else ""
    if why:
        _fail(f"`{show_buffer(buffer)}` is swizzled: {why}")


def _check_access(name: str, index: tuple[Index, ...], env: Env) -> Buffer:
    if name not in env.buffers:
        _fail(f"buffer `{name}` is not bound")
    buffer = env.buffers[name]
    if len(index) != len(buffer.shape):
        _fail(f"`{name}` has rank {len(buffer.shape)} and is accessed with {len(index)} subscripts")
    for e in index:
        check_index(e, env)
    if buffer.space in ("registers", "tiles") and not env.is_constant(*index):
        place = ", ".join(map(show_index, index))
        _fail(f"`{name}[{place}]` is in {buffer.space} at an address that unrolling does not make constant")
    return buffer


def _fail(detail: str) -> Never:
    raise InternalError("verify loops", detail)

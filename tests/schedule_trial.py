"""One trial of a scheduled program: prove, lower, run in the loop interpreter and natively, compare with what the operator says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from bits import difference
from strategies_schedule import Arrays, Case, small_arrays

from codegen.dtypes import DType, bool_, compute_dtype
from codegen.errors import InternalError as LoopError
from codegen.llvm.emit import emit
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.pool import pool_imports, set_threads
from codegen.llvm.target import host
from codegen.llvm.workspace import workspace_bytes
from codegen.loops.evaluate import evaluate
from codegen.loops.interp import run
from codegen.loops.nodes import Function
from codegen.loops.printer import show as show_loops
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.bounded_cache import by_identity
from tensorlang.diagnostics import CompileError
from tensorlang.lower.kernel import Lowered
from tensorlang.replay import replay
from tensorlang.schedule.blocks import from_block, to_block
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.storage import axis_names
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Binary, Cast, Const, Definition, Expr, IndexValue, Name, Piece, Program, Reduce
from tensorlang.tensor.scop import in_order
from tensorlang.tensor.walk import map_children, shape_of, tensor_table

Kind = Literal["accepted", "replayed", "silent", "unknown", "impossible", "different", "crash"]
"""`silent`: refused, and no run shows why. `impossible`: a directive that makes no sense there, or is not supported yet."""

Layouts = Mapping[str, Storage]
NONE: Layouts = {}
STALE = 77
GUARD = 256
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


class Placed(Protocol):
    """An array somewhere in memory."""

    inside: np.ndarray[Any, Any]

    def intact(self) -> bool:
        """Tell whether nothing was written around it."""
        ...


Placing = Callable[[np.ndarray[Any, Any], int], Placed]
"""Places an array at a multiple of so many bytes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    kind: Kind
    text: str = ""


def trial(case: Case, seed: int, *, natively: bool, placed: Placing | None = None) -> Outcome:
    """Return how the case fares. An accepted schedule that computes something else is `different`; any other surprise is a `crash`.
    `placed`: where native code finds its arrays; between guard bytes, unless it is given."""
    try:
        lowered = loops_of(proven(case.program, case.schedule, case.layouts, advised=False), "kernel")
    except CompileError as refused:
        return refusal(case, refused)
    inputs = small_arrays(case.program, case.sizes, seed)
    signed = keeps_signed_zeros(case.schedule)
    text = differs(case.program, lowered, case.sizes, inputs, case.layouts, natively=natively, placed=placed, signed_zeros=signed)
    return Outcome("different", f"{text}\n{show_loops(lowered.function)}") if text else Outcome("accepted")


def keeps_signed_zeros(schedule: Schedule) -> bool:
    """Tell whether a zero that a program computes is the same zero: where products are regrouped its sign may be another."""
    return all(d.name != "factorize" for d in schedule.directives)


def refusal(case: Case, refused: CompileError) -> Outcome:
    """Return what replaying a refused schedule shows."""
    code, text = refused.diagnostics[0].code, str(refused)
    if code == "S0400":
        return Outcome("unknown", text)
    if not code.startswith("S03"):
        return Outcome("impossible", text)
    programs = (case.program, distinct(case.program), sequential(distinct(case.program)))
    for program, schedule in ((p, s) for s in (case.schedule, *apart(case.schedule, code)) for p in programs):
        for seed in range(4):
            try:
                seen = replay(program, schedule, case.layouts, seed=seed)
            except CompileError:
                if program is case.program:
                    raise
                break  # it has other loops than the program that the schedule is for
            if seen is not None:
                return Outcome("replayed", f"{code} {type(seen).__name__}")
    return Outcome("silent", text)


def apart(schedule: Schedule, code: str) -> list[Schedule]:
    """Return the schedule with a cell for each element, where it is refused for its order: in a shared cell there may be a value, and the
    right one, before the element is computed."""
    rest = tuple(d for d in schedule.directives if d.name != "fold")
    return [replace(schedule, directives=rest)] if code != "S0308" and len(rest) < len(schedule.directives) else []


def distinct(program: Program) -> Program:
    """Return `program` with something added to every element that depends on where it stands: the same reads in the same order, but no
    two elements alike that a wrong order could mix up unseen."""

    def piece(definition: Definition, p: Piece) -> Piece:
        dtype = compute_dtype(definition.tensors[0].dtype)
        if len(definition.tensors) > 1 or dtype == bool_:
            return p
        place: Affine = affine.to_expr(1)
        for k, axis in enumerate(definition.axes):
            place = affine.add(place, affine.scale((3, 5, 11, 17)[k % 4], affine.to_expr(axis)))
        return replace(p, value=Binary("+", p.value, Cast(dtype, IndexValue(place))))

    definitions = tuple(replace(d, pieces=tuple(piece(d, p) for p in d.pieces)) for d in program.definitions)
    return replace(program, definitions=definitions)


def sequential(program: Program) -> Program:
    """Return `program` with every reduction that has to run in order made one that every order shows: the same reads in the same order, but
    whatever is added halves what came before it, and no two terms are equal. Sums of two terms, of equal ones, and extremes are the same in
    any order. Components that are no floats, which may be indices, are what came last."""

    def combined(left: str, right: str, dtype: DType) -> Expr:
        half = Const(0.5, dtype)
        return Binary("+", Binary("*", Name(left), half), Name(right)) if dtype.is_float else Name(right)

    def changed(e: Expr) -> Expr:
        e = map_children(changed, e)
        if not isinstance(e, Reduce) or not in_order(e.reducer, program.mode):
            return e
        reducer = e.reducer
        combine = tuple(map(combined, reducer.left, reducer.right, reducer.dtypes))
        place = affine.to_expr(1)
        for k, binder in enumerate(e.binders):
            place = affine.add(place, affine.scale((3, 5, 11, 17)[k % 4], affine.to_expr(binder.name)))
        parts = zip(e.body, reducer.dtypes, strict=True)
        body = tuple(Binary("+", b, Cast(dtype, IndexValue(place))) if dtype.is_float else b for b, dtype in parts)
        return replace(e, reducer=replace(reducer, combine=combine, commutative=False, kind=None), body=body)

    definitions = (replace(d, pieces=tuple(replace(p, value=changed(p.value)) for p in d.pieces)) for d in program.definitions)
    return replace(program, definitions=tuple(definitions))


def differs(
    program: Program,
    lowered: Lowered,
    sizes: Mapping[str, int],
    inputs: Arrays,
    layouts: Layouts = NONE,
    *,
    natively: bool,
    close: float = 0.0,
    placed: Placing | None = None,
    signed_zeros: bool = True,
) -> str:
    """Return where the function's results differ from what the program says, run by the interpreter or natively; "" where nowhere.
    `close`: the relative error that is none, for elementary functions; `placed`: as in `trial`; `signed_zeros`: a zero has a sign, which
    it need not keep where products are regrouped."""
    expected = interpret(program, sizes, inputs)
    try:
        got = interpreted(program, lowered, sizes, inputs, layouts)
    except LoopError as fault:
        return f"interpreter: {fault}"
    text = first_difference(got, expected, close, signed_zeros)
    if text:
        return f"interpreter: {text}"
    if natively:
        got, damage = native(program, lowered, sizes, inputs, layouts, placed=placed)
        text = damage or first_difference(got, expected, close, signed_zeros)
    return f"native: {text}" if text else ""


def interpreted(program: Program, lowered: Lowered, sizes: Mapping[str, int], inputs: Arrays, layouts: Layouts = NONE) -> Arrays:
    function = lowered.function
    arrays = {name: a.copy() for name, a in buffers(program, lowered, sizes, inputs, layouts).items()}
    named = {b.name: arrays[name] for b, name in zip(function.params, lowered.params, strict=True)}
    code = run(function, _sizes(program, function, sizes), named)
    if code:
        raise LoopError(f"requirement {code} failed: {lowered.requirements[code - 1].text}", "run")
    return {name: plain(program, name, arrays[name], sizes, layouts) for name in program.results}


def plain(program: Program, name: str, block: np.ndarray[Any, Any], sizes: Mapping[str, int], layouts: Layouts) -> np.ndarray[Any, Any]:
    """Return what a result's block holds, row-major. The block may have merged axes."""
    if name not in layouts:
        return block
    storage, shape = layouts[name], shape_of(tensor_table(program)[name], sizes)
    block = block.reshape([int(affine.evaluate(extent, sizes)) for extent in storage.shape])
    return from_block(storage, axis_names(program, name), block, shape, sizes)


def buffers(program: Program, lowered: Lowered, sizes: Mapping[str, int], inputs: Arrays, layouts: Layouts = NONE) -> Arrays:
    """Return inputs and stale results by tensor name, in the shapes of the function, which may have merged axes."""
    table = tensor_table(program)
    known = _sizes(program, lowered.function, sizes)
    out: Arrays = {}
    for buffer, name in zip(lowered.function.params, lowered.params, strict=True):
        shape = tuple(evaluate(extent, known) for extent in buffer.shape)
        stale = STALE if table[name].dtype.name != "bool" else True
        if name in inputs and name in layouts:
            box = inputs[name].reshape(shape_of(table[name], sizes))
            out[name] = to_block(layouts[name], axis_names(program, name), box, sizes, stale).reshape(shape)
        else:
            out[name] = inputs[name].reshape(shape) if name in inputs else np.full(shape, stale, table[name].dtype.numpy)
    return out


def _sizes(program: Program, function: Function, sizes: Mapping[str, int]) -> dict[str, int]:
    return dict(zip(function.sizes, (sizes[s] for s in program.sizes), strict=True))


def native(
    program: Program,
    lowered: Lowered,
    sizes: Mapping[str, int],
    inputs: Arrays,
    layouts: Layouts = NONE,
    threads: int = 2,
    placed: Placing | None = None,
) -> tuple[Arrays, str]:
    """Return the results of the compiled function, and what it damaged around its buffers and workspace, if anything."""
    place = placed or _Guarded
    function, library = _loaded(lowered)
    threads = set_threads(threads)
    aligned = dict(zip(lowered.params, (b.align for b in function.params), strict=True))
    blocks = {name: place(np.ascontiguousarray(a), aligned[name]) for name, a in buffers(program, lowered, sizes, inputs, layouts).items()}
    known = _sizes(program, function, sizes)
    space = place(np.full(workspace_bytes(function, threads, known), 0xAB, np.uint8), 64)
    slots = [blocks[name].inside.ctypes.data for name in lowered.params] + [known[s] for s in function.sizes]
    arguments = (ctypes.c_int64 * max(len(slots), 1))(*slots)
    code = int(_ENTRY(library.address(function.name))(ctypes.addressof(arguments), space.inside.ctypes.data))
    if code:
        return {}, f"the function returned {code}"
    damaged = [name for name, block in (*blocks.items(), ("workspace", space)) if not block.intact()]
    given = buffers(program, lowered, sizes, inputs, layouts)
    changed = [name for name in inputs if blocks[name].inside.tobytes() != given[name].tobytes()]
    text = f"wrote outside {', '.join(damaged)}" if damaged else f"changed the input {', '.join(changed)}" if changed else ""
    return {name: plain(program, name, blocks[name].inside, sizes, layouts) for name in program.results}, text


@by_identity(1)
def _loaded(lowered: Lowered) -> tuple[Function, Library]:
    """Return a function and its code, which is compiled once where it runs at several sizes."""
    function = replace(lowered.function, name="kernel")
    return function, load([compile_object(emit(function, host()), host())], pool_imports())


class _Guarded:
    """An array at a multiple of 64 bytes with guard bytes on both sides."""

    def __init__(self, values: np.ndarray[Any, Any], align: int) -> None:
        assert 64 % align == 0
        self.block = np.full(values.nbytes + 2 * GUARD + 64, 0x5C, np.uint8)
        self.start = GUARD + (-(self.block.ctypes.data + GUARD)) % 64
        self.end = self.start + values.nbytes
        self.inside = self.block[self.start : self.end].view(values.dtype).reshape(values.shape)
        self.inside[...] = values

    def intact(self) -> bool:
        return bool((self.block[: self.start] == 0x5C).all() and (self.block[self.end :] == 0x5C).all())


def first_difference(
    got: Mapping[str, np.ndarray[Any, Any]], expected: Mapping[str, np.ndarray[Any, Any]], close: float = 0.0, signed_zeros: bool = True
) -> str:
    """Return the first element that differs, in bits; NaN equals NaN, and floats may differ by what regrouping large sums rounds."""
    for name, want in expected.items():
        have = got[name].reshape(want.shape)
        if not signed_zeros and want.dtype.kind == "f":
            have, want = (np.where(a == 0, np.zeros_like(a), a) for a in (have, want))
        text = difference(have, want)
        if text and not _rounding(have, want) and not _close(have, want, close):
            return f"`{name}`, as the operator says it: {text}"
    return ""


def _rounding(have: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> bool:
    """Tell whether values too large to be exact differ by no more than rounding."""
    if have.dtype.kind in "iub":
        return False
    exact = {1: 2**3, 2: 2**7, 4: 2**22, 8: 2**50}[have.dtype.itemsize]
    a, b = have.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        largest = np.abs(b).max(initial=0.0)
        if not largest > exact:
            return False
        tolerance = largest / exact * 2
        return bool((((a == b) | (np.abs(a - b) <= tolerance)) | (np.isnan(a) & np.isnan(b))).all())


def _close(have: np.ndarray[Any, Any], want: np.ndarray[Any, Any], close: float) -> bool:
    if not close or have.dtype.kind in "iub":
        return False
    narrow = 8 if have.dtype.itemsize < 4 else 1
    a, b = have.astype(np.float64), want.astype(np.float64)
    return bool(np.allclose(a, b, rtol=close * narrow, atol=close * narrow, equal_nan=True))


def minimal(case: Case, seed: int, kind: str, *, natively: bool) -> Case:
    """Return the case with every directive left out that its outcome does not need."""
    directives = list(case.schedule.directives)
    k = len(directives) - 1
    while k >= 0:
        shorter = replace(case, schedule=replace(case.schedule, directives=tuple(directives[:k] + directives[k + 1 :])))
        try:
            found: str = trial(shorter, seed, natively=natively).kind
        except Exception:
            found = "crash"
        if found == kind:
            del directives[k]
            case = shorter
        k -= 1
    return case

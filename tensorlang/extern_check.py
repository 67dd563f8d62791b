"""Kernels of extern operators held against what the operators say: on random arrays, in memory that is watched.

    tl.check_extern(ops.topk)                       against its body
    tl.check_extern(ops.topk, x, k=3, against=f)    on arrays like these, against a function of NumPy's arrays

A kernel is run twice for each trial, on results that hold different bytes before: what it leaves unwritten shows. Around every array lie
bytes that have to stay, and what it reads has to stay as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType
from codegen.llvm.target import host
from codegen.store import Cache
from polyhedral import affine
from tensorlang.backends.cpu.extern import address_of, call_watched
from tensorlang.check.extern_calls import members_of, sizes_of
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.trials import choices
from tensorlang.check.types import belongs, limits
from tensorlang.diagnostics import CompileError, Diagnostic, Label, RunError, error, trimmed
from tensorlang.externs import CSymbol, LLVMText, PythonFunction
from tensorlang.runtime.externs import extern_named, without_externs
from tensorlang.runtime.feeds import results_of
from tensorlang.runtime.operator import Operator
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.nodes import ExternCall, Program, Tensor
from tensorlang.tensor.walk import caller_shape

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

_EXTENTS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 33)
_RANKS = (1, 2, 0, 3)
_COUNTS = (2, 1, 3)
_ATTEMPTS = 30
"""So many choices are made for each trial that is wanted: many fit no conditions."""
_TOLERANCES = {
    "f64": 1e-9,
    "f32": 1e-4,
    "f16": 1e-2,
    "bf16": 3e-2,
    "f8e4m3": 0.15,
    "f8e5m2": 0.3,
    "f8e4m3fnuz": 0.15,
    "f8e5m2fnuz": 0.3,
    "f4e2m1": 0.6,
}


@dataclass(frozen=True, slots=True)
class _Trial:
    """A call of the kernel: its program, the arrays of its parameters, and what is said by name besides."""

    program: Program
    arrays: tuple[Array, ...]
    numbers: Mapping[str, Any]

    @property
    def call(self) -> ExternCall:
        return self.program.externs[0]

    def given(self, declaration: sx.Operator) -> dict[str, Array | list[Array]]:
        """Return copies of the arrays by the names of the parameters that they are for, lists of them where these are `each` of several."""
        arrays = {p.name: a.copy() for p, a in zip(self.program.params, self.arrays, strict=True)}
        out: dict[str, Array | list[Array]] = {}
        for param in declaration.params:
            if param.kind == "tensor" and param.each:
                out[param.name] = [arrays[name] for name in members_of(param, list(arrays))]
            elif param.name in arrays:
                out[param.name] = arrays[param.name]
        return out

    def __str__(self) -> str:
        given = [f"{p.name}: {p.dtype}{list(a.shape)}" for p, a in zip(self.program.params, self.arrays, strict=True)]
        return ", ".join([*given, *(f"{name} = {value}" for name, value in self.numbers.items())])


@trimmed
def check_extern(
    operator: Operator, /, *args: Any, trials: int = 32, against: Function | None = None, tolerance: float | None = None, **named: Any
) -> int:
    """Return on how many trials the kernel of an extern operator was found to compute what its body says, or the function `against`: of
    arrays in the order of the parameters, None for one that is left out, with attributes and sizes by name. Shapes, types and numbers are
    random ones that the declaration allows; with arguments, these are the first trial, and the others are like it.

    Integers have to be the same, floats within `tolerance` of the largest (None: by their type). Nothing that was not looked at is known
    for it.

    Raises CompileError C0120 for a kernel that computes something else or touches what is not its own, C0121 where there is nothing to
    check or to check against, C0114 to C0116 for kernels that are not to be had, R0316 for a status."""
    if not isinstance(operator, Operator):
        raise error("C0121", f"an operator is expected, not {type(operator).__name__}", help="`tl.check_extern(ops.f)`")
    declaration = extern_named(operator.module, operator.name)
    kernel = operator.module.defining_module(operator.name).externs.get(declaration.name)
    if not isinstance(kernel, CSymbol | LLVMText | PythonFunction):
        raise _unchecked(declaration, "no kernel stands for it on processors", "give one: `tl.load(…, externs={…})`")
    meaning = _body_of(operator, declaration) if against is None else _function(against, declaration)
    found = 0
    for trial in _like(operator, args, named, trials) if args or named else _random(operator, declaration, trials):
        try:
            expected = meaning(trial)
        except RunError as refused:
            if refused.diagnostics[0].code.startswith("R03") and not args:
                continue  # data that the body refuses, at random indices
            raise
        _compare(declaration, trial, expected, tolerance)
        found += 1
    if not found:
        raise _unchecked(declaration, "no random arguments fit it", "give some: `tl.check_extern(ops.f, x, k=3)`")
    return found


def _unchecked(declaration: sx.Operator, why: str, help: str) -> CompileError:
    at = declaration.name_span if declaration.name_span.end else declaration.span
    return error("C0121", f"extern `{declaration.name}` cannot be checked: {why}", at, "declared here", help=help)


# ---------------------------------------------------------------- what it has to compute


def _body_of(operator: Operator, declaration: sx.Operator) -> Callable[[_Trial], list[Array]]:
    if not declaration.clauses:
        raise _unchecked(declaration, "it has no body", "write one, or give a function of NumPy's arrays: `against=f`")
    plain = Operator(operator.name, without_externs(operator.module), operator.tools, operator.roles)

    def computed(trial: _Trial) -> list[Array]:
        return results_of(plain(**trial.given(declaration), **trial.numbers))

    return computed


def _function(against: Function, declaration: sx.Operator) -> Callable[[_Trial], list[Array]]:
    def computed(trial: _Trial) -> list[Array]:
        given = trial.given(declaration)
        found = results_of(against(*(given.get(p.name) for p in declaration.params if p.kind == "tensor"), **trial.numbers))
        wanted = [(caller_shape(t, {}), t.dtype.numpy) for t in trial.call.results]
        if [a.shape for a in found] != [shape for shape, _ in wanted]:
            told = f"it returns the shapes {[a.shape for a in found]} for {trial}, and {[shape for shape, _ in wanted]} are declared"
            raise error(
                "C0121", "what the kernel is checked against does not fit its declaration", notes=(told,), help="correct the function"
            )
        return [a.astype(dtype) for a, (_, dtype) in zip(found, wanted, strict=True)]

    return computed


# ---------------------------------------------------------------- trials


def _like(operator: Operator, args: Sequence[Any], named: Mapping[str, Any], trials: int) -> Iterator[_Trial]:
    """Yield a call of the operator, and others that differ in the elements."""
    call = operator.call(*args, **named)
    program = instantiate(operator.module, operator.name, call.types, call.attrs, call.sizes)
    numbers = {**call.attrs, **call.sizes}
    yield _Trial(program, tuple(np.asarray(a, order="C") for a in call.arrays), numbers)
    rng = np.random.default_rng(0)
    for _ in range(trials - 1):
        yield _Trial(program, tuple(_elements(rng, p, a.shape) for p, a in zip(program.params, call.arrays, strict=True)), numbers)


def _random(operator: Operator, declaration: sx.Operator, trials: int) -> Iterator[_Trial]:
    """Yield calls with random shapes, types, attributes and elements that the declaration allows."""
    rng = np.random.default_rng(0)
    assignments = [attrs for tried in choices(declaration) for attrs in tried]
    lacking: list[CompileError] = []
    yielded = 0
    for _ in range(_ATTEMPTS * trials):
        if yielded == trials or not assignments:
            break
        made = _drawn(operator, declaration, rng, dict(assignments[rng.integers(len(assignments))]))
        if made is None:
            continue
        try:
            address_of(made.call, host(), Cache())
        except CompileError as refused:
            lacking.append(refused)  # there is a function for other types, perhaps
            continue
        yielded += 1
        yield made
    if lacking and not yielded:
        raise lacking[0]


def _drawn(operator: Operator, declaration: sx.Operator, rng: np.random.Generator, attrs: dict[str, object]) -> _Trial | None:
    """Return a call, or None where the declaration does not allow what was drawn."""
    extents: dict[str, tuple[int, ...]] = {}
    count, apart = int(rng.choice(_COUNTS)), _one_of_each(declaration)
    for name, pack in sizes_of(declaration):
        rank = count if name in apart else int(rng.choice(_RANKS)) if pack else 1
        extents[name] = tuple(int(rng.choice(_EXTENTS)) for _ in range(rank))
    types = {g.name: _type(rng, g.bound) for g in declaration.generics}
    given: list[ArgType | tuple[ArgType, ...] | None] = []
    for param in declaration.params:
        if param.kind == "tensor":
            own = [{**extents, **{name: extents[name][k : k + 1] for name in apart}} for k in range(count)] if param.each else [extents]
            dtype = types.get(_written(param)) or _declared(rng, param)
            shapes = [_shape(param, known) for known in own]
            found = tuple(ArgType(dtype, shape) for shape in shapes if shape is not None and prod(shape) <= 1 << 16)
            if len(found) != len(shapes):
                return None
            omitted = param.default is not None and rng.integers(2) == 0
            given.append(None if omitted else found if param.each else found[0])
    sizes = {p.name: extents[p.name] if p.pack else extents[p.name][0] for p in declaration.params if p.kind == "size"}
    told = {p.name for p in declaration.params if p.kind == "tensor"}
    free = {name: dtype.name for name, dtype in types.items() if name in attrs and name not in told}
    try:
        program = instantiate(operator.module, operator.name, given, {**attrs, **free}, sizes)
        arrays = tuple(_elements(rng, p, caller_shape(p, {})) for p in program.params)
    except (RunError, ValueError):
        return None
    return _Trial(program, arrays, {**attrs, **free, **sizes})


def _one_of_each(declaration: sx.Operator) -> frozenset[str]:
    """Return the sizes of which `each` of several tensors has one."""
    dims = [d for p in (*declaration.params, *declaration.results) if isinstance(p.type, sx.TensorType) for d in p.type.dims or ()]
    return frozenset(d.name for d in dims if isinstance(d, sx.Each))


def _written(param: sx.Param) -> str:
    return param.type.dtype if isinstance(param.type, sx.TensorType) else ""


def _declared(rng: np.random.Generator, param: sx.Param) -> DType:
    return DTYPES.get(_written(param)) or _type(rng, _written(param))


def _type(rng: np.random.Generator, bound: str | None) -> DType:
    fitting = [dtype for dtype in DTYPES.values() if belongs(dtype, bound)]
    return fitting[int(rng.integers(len(fitting)))]


def _shape(param: sx.Param, extents: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape of a parameter for such sizes, None where it is made of other things than sizes and numbers."""
    out: list[int] = []
    for dim in (param.type.dims or ()) if isinstance(param.type, sx.TensorType) else ():
        found = _extents(dim, extents)
        if found is None:
            return None
        out += found
    return tuple(out)


def _extents(dim: sx.Node, extents: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    match dim:
        case sx.Number(text) if text.isdigit():
            return (int(text),)
        case sx.Id(name) | sx.Pack(sx.Id(name)) if name in extents:
            return extents[name]
        case sx.Broadcast(value):
            return _extents(value, extents)
        case sx.Each(name) if name in extents:
            return extents[name]
        case sx.Apply("sum", (sx.Pack(sx.Id(name)),)) if name in extents:
            return (sum(extents[name]),)
        case sx.TupleOf(items):
            parts = [_extents(item, extents) for item in items]
            return None if None in parts else (prod(n for part in parts if part is not None for n in part),)
        case sx.Binary("+" | "-" | "*" as op, lhs, rhs):
            a, b = _extents(lhs, extents), _extents(rhs, extents)
            if a is None or b is None or len(a) != 1 or len(b) != 1:
                return None
            total = a[0] + b[0] if op == "+" else a[0] - b[0] if op == "-" else a[0] * b[0]
            return (total,) if total >= 0 else None
        case _:
            return None


def _elements(rng: np.random.Generator, param: Tensor, shape: tuple[int, ...]) -> Array:
    """Return random elements of a parameter, in its declared range. Raises ValueError where that is empty."""
    dtype = param.dtype
    if dtype.is_float and param.declared_range is None:
        return rng.standard_normal(shape).astype(dtype.numpy)
    low, high = (-8, 9) if dtype.kind != "bool" else (0, 2)
    if param.declared_range is not None:
        low, high = (affine.constant(side) or 0 for side in param.declared_range)
    if dtype.is_float:
        return np.asarray(rng.integers(4 * low, 4 * high, shape) / 4).astype(dtype.numpy)
    least, most = limits(dtype)
    return rng.integers(max(low, int(least)), min(high, int(most) + 1), shape).astype(dtype.numpy)


# ---------------------------------------------------------------- comparing


def _compare(declaration: sx.Operator, trial: _Trial, expected: Sequence[Array], tolerance: float | None) -> None:
    """Raise CompileError C0120 where the kernel does not compute what is expected, or touches what is not its own."""
    runs = [call_watched(trial.call, trial.arrays, fill, host(), Cache()) for fill in (0xA5, 0x5A)]
    for run in runs:
        if run.changed:
            raise _wrong(declaration, trial, f"it changes bytes {run.changed}")
    for result, first, second, want in zip(trial.call.results, runs[0].results, runs[1].results, expected, strict=True):
        unwritten = _differing(first, second, result.dtype, 0.0)
        if unwritten is not None:
            raise _wrong(declaration, trial, f"it leaves `{result.name}{_index(unwritten)}` unwritten, or computes what changes")
        limit = _TOLERANCES.get(result.dtype.name, 0.0) if tolerance is None else tolerance
        at = _differing(first, want, result.dtype, limit)
        if at is not None:
            told = f"`{result.name}{_index(at)}` is {first[at]!s} and should be {want[at]!s}"
            raise _wrong(declaration, trial, told)


def _index(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]" if at else ""


def _differing(found: Array, want: Array, dtype: DType, tolerance: float) -> tuple[int, ...] | None:
    """Return where two arrays differ first."""
    if not dtype.is_float:
        wrong = found != want
    else:
        a, b = found.astype(np.float64), want.astype(np.float64)
        finite = b[np.isfinite(b)]
        room = tolerance * max(1.0, float(np.abs(finite).max()) if finite.size else 0.0)
        with np.errstate(invalid="ignore"):
            wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= room))
    places = np.argwhere(wrong)
    return tuple(int(k) for k in places[0]) if len(places) else None


def _wrong(declaration: sx.Operator, trial: _Trial, why: str) -> CompileError:
    at = declaration.name_span if declaration.name_span.end else declaration.span
    notes = (why, f"called with {trial}" if str(trial) else "called with nothing", f"its kernel is {trial.call.kernel}")
    help = "correct the kernel, or what it is checked against"
    return CompileError(
        Diagnostic("C0120", f"the kernel for extern `{declaration.name}` is wrong", (Label(at, "declared here"),), notes, help)
    )

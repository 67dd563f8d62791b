"""Instructions that a file names for LLVM, held against their equations: what this machine computes has to be what the equation says.

An instruction is run on the extremes of its element types in all places, on mixtures of values where roundings, signs or wrapping show, and
on random bits. Sums of integers are those of the interpreter; a product of floats that is added is rounded once, as loops have it, and
every NaN is as good as another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import DType
from codegen.intrinsics import Intrinsic
from codegen.llvm import intrinsics
from codegen.llvm.target import Target, host
from codegen.loops import scalars
from polyhedral import affine
from tensorlang.diagnostics import CompileError, error
from tensorlang.schedule.plan import Named
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import tensor_table

Array = np.ndarray[Any, Any]

_MIXED, _RANDOM = 64, 64
"""So many samples are mixtures of special values, and random bits."""
_FLOATS = (0.0, 1.0, 1.5, 3.0, 1 / 3, 0.1, float("inf"), float("nan"))


def usable(named: tuple[Named, ...], target: Target) -> tuple[Intrinsic, ...]:
    """Return those instructions that `target` has, each shown to compute its equation; loops do without the others.

    Raises CompileError S0215 for equations in whose place no instruction comes yet, S0226 for names that LLVM does not have with these
    operands, S0227 for what does not compute its equation, S0228 for what this machine cannot try, or the features do not bring."""
    return tuple(n.intrinsic for n in named if _is_usable(n, target))


def _is_usable(named: Named, target: Target) -> bool:
    it = named.intrinsic
    if not intrinsics.is_valid(it):
        kinds = ", ".join(intrinsics.operand_type(it, o) for o in it.operands)
        raise _refused("S0226", named, f"LLVM has no instruction `{it.name}` without effects that takes {kinds}")
    types = (it.a, it.b, it.total)
    if not it.is_supported and not all(t.is_integer and t.bits >= 8 for t in types):
        raise _unsupported(named)
    absent = intrinsics.lacks(it, target)
    if not absent:
        _check_features(named)
        wrong = difference(named.program, it)
        if wrong is not None:
            raise _refused("S0227", named, f"`{it.name}` does not compute what `{named.program.name}` says", wrong)
    if not it.is_supported:
        raise _unsupported(named)
    return not absent


def _unsupported(named: Named) -> CompileError:
    it = named.intrinsic
    title = f"not supported yet: an instruction named for LLVM that adds {it.count} products of {it.a} and {it.b} a lane up in {it.total}"
    return _refused("S0215", named, title, help="f32, f64: one product; i16: two, bytes: four, in i32")


def _check_features(named: Named) -> None:
    it = named.intrinsic
    if not intrinsics.is_implemented(it):
        raise _refused(
            "S0228", named, f"`{it.name}` is no instruction of processors with {', '.join(it.needs)} alone", help="name what it needs"
        )
    absent = intrinsics.lacks(it, host())
    if absent:
        title = f"`{it.name}` cannot be tried on this machine, which lacks {', '.join(absent)}"
        raise _refused("S0228", named, title, help="compile on a machine that has it, or leave the name out")


def _refused(code: str, named: Named, title: str, note: str | None = None, help: str | None = None) -> CompileError:
    notes = () if note is None else (note,)
    return error(code, title, named.span, f"`{named.program.name}` goes here", notes=notes, help=help)


# ---------------------------------------------------------------- the trial


@lru_cache(maxsize=64)
def difference(program: Program, intrinsic: Intrinsic) -> str | None:
    """Return operands of which this machine computes something else than the equation, with both results; None where none is found."""
    names = dict(zip(intrinsic.operands, (p.name for p in program.params), strict=True))
    shapes = {o: tuple(affine.constant(n) or 0 for n in tensor_table(program)[name].shape) for o, name in names.items()}
    samples = list(_samples(intrinsic, shapes))
    flat = {o: np.stack([_all_lanes(intrinsic, o, s[o]) for s in samples]) for o in intrinsic.operands}
    found = intrinsics.computed(intrinsic, flat)
    for k, sample in enumerate(samples):
        if intrinsic.total.is_float:
            expected = _rounded_once(intrinsic.total, [flat[o][k] for o in ("a", "b", "c")])
        else:
            expected = _interpreted(program, names, sample)
        wrong = _unlike(found[k], expected)
        if wrong is not None:
            given = ", ".join(f"{names[o]} = {_shown(flat[o][k].reshape(intrinsic.lanes, -1)[wrong])}" for o in intrinsic.operands)
            return f"of {given} the equation makes {expected[wrong]}, and this machine {found[k][wrong]}"
    return None


def _all_lanes(intrinsic: Intrinsic, operand: str, values: Array) -> Array:
    """Return the elements of an operand for every lane, in the order of lanes."""
    return np.resize(values, (intrinsic.elements(operand),))


def _interpreted(program: Program, names: Mapping[str, str], sample: Mapping[str, Array]) -> Array:
    results = interpret(program, {}, {names[o]: values for o, values in sample.items()})
    return results[program.results[0]]


def _rounded_once(dtype: DType, operands: Sequence[Array]) -> Array:
    values = ([scalars.Value(dtype, x) for x in operand] for operand in operands)
    return np.array([scalars.fma(a, b, c).scalar for a, b, c in zip(*values, strict=True)], dtype.numpy)


def _unlike(found: Array, expected: Array) -> int | None:
    """Return the first lane whose bits differ, but for those of NaN."""
    same = found.view(f"u{found.itemsize}") == expected.view(f"u{expected.itemsize}")
    if found.dtype.kind == "f":
        same |= np.isnan(found) & np.isnan(expected)
    return None if same.all() else int(np.argmin(same))


def _shown(values: Array) -> str:
    return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"


# ---------------------------------------------------------------- what is tried


def _samples(intrinsic: Intrinsic, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, Array]]:
    random = np.random.default_rng(0)
    special = {o: _special(intrinsic.dtype(o)) for o in intrinsic.operands}
    yield from _extremes(intrinsic, shapes, special, random)
    for _ in range(_MIXED):
        yield {o: random.choice(special[o], shapes[o]) for o in intrinsic.operands}
    for _ in range(_RANDOM):
        yield {o: _random(random, intrinsic.dtype(o), shapes[o]) for o in intrinsic.operands}


def _extremes(
    intrinsic: Intrinsic, shapes: Mapping[str, tuple[int, ...]], special: Mapping[str, Array], random: np.random.Generator
) -> Iterator[dict[str, Array]]:
    """Yield the least and the greatest element in all places of what a lane multiplies, each with each."""
    first, second = (np.array(list(product(special[o][:2], repeat=intrinsic.count)), special[o].dtype) for o in ("a", "b"))
    at_once = prod(shapes["b"]) // intrinsic.count
    for row in first:
        for k in range(0, len(second), at_once):
            sample = {"a": np.resize(row, shapes["a"]), "b": np.resize(second[k : k + at_once], shapes["b"])}
            yield sample | {o: random.choice(special[o], shapes[o]) for o in intrinsic.operands if o == "c"}


def _special(dtype: DType) -> Array:
    """Return values where results go wrong first; the least and the greatest come first."""
    if dtype.is_float:
        info = np.finfo(dtype.numpy)
        found = [info.min, info.max, info.tiny, info.smallest_subnormal, info.eps, 1 + info.eps, 1 - info.epsneg, *_FLOATS]
        return np.array([*found, *(-x for x in found[2:])], dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    inner = {limits.min + 1, limits.max - 1, limits.max // 2, 0, 1, 2, max(limits.min, -1)} - {limits.min}
    return np.array([limits.min, limits.max, *sorted(inner)], dtype.numpy)


def _random(random: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    bytes_ = random.integers(0, 256, (*shape, dtype.size_bytes), dtype=np.uint8)
    return np.ascontiguousarray(bytes_).view(dtype.numpy).reshape(shape)

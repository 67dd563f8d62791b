"""Random operators, written as text, compiled without a schedule and run natively, compared bit by bit with `program.Evaluation`.

Values are small integers, with which sums of floats are exact in every order; in `strict` operators they are fractions. Tensors of indices
hold whatever their type can, now and then: a read that is not inside has to be refused, and one that nobody asks for must not happen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from random import Random
from typing import Any

import numpy as np
from guarded import SIDES

from fuzzing import written
from fuzzing.drawing import Drawing
from fuzzing.front import Outcome
from fuzzing.native import between_walls
from fuzzing.program import (
    Arith,
    Call,
    Define,
    Evaluation,
    Int,
    Outside,
    Param,
    Program,
    TooMuch,
    Var,
    batched,
    is_float,
    limits,
    numpy_type,
    resized,
    simpler,
    text,
)
from fuzzing.shrink import without_some
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import CompileError, RunError, Source
from tensorlang.runtime.operator import Operators, sorted_out

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """`sizes`: those of each call, one after the other. `wild`: how far values of index tensors may lie outside. `outer`: the axes that a
    pack in the signature stands for, None where there is no pack. `told`: the size that is written as a multiple of another one plus a
    number, with both, None where every size has its name."""

    program: Program
    sizes: tuple[Mapping[str, int], ...]
    symbolic: bool
    seed: int
    wild: bool
    threads: int
    outer: tuple[int, ...] | None = None
    told: tuple[str, int, int] | None = None

    @property
    def text(self) -> str:
        """The program as it is compiled."""
        program = self.program if self.outer is None else batched(self.program)
        if self.told is None:
            return text(program)
        size, factor, shift = self.told
        return text(resized(program, size, Arith("+", Arith("*", Int(factor), Var("H")), Int(shift))))


class Language:
    name = "language"
    seconds = 30.0
    batch = 8
    share = 3.0

    def prepare(self) -> None:
        np.seterr(all="ignore")
        sys.setrecursionlimit(20000)
        for symbolic in (False, True):
            source = Source("warm.tl", "op f(x: f32[M, N]) -> (y: f32[M]) { y[i] = sum(k) x[i, k] }")
            Operators(source, _tools(1), sizes="symbolic" if symbolic else "static").f(np.ones((2, 3), np.float32))

    def draw(self, seed: int) -> Case:
        random = Random(f"language:{seed}")
        program = Drawing(random).program()
        symbolic = random.random() < 0.4
        sizes = tuple(_sizes(program, random) for _ in range(3 if symbolic else 1))
        case = Case(program, sizes, symbolic, seed % 10**6, random.random() < 0.3, random.choice((1, 1, 2)))
        packed = program.params and not any(isinstance(d, Call) for d in program.defines) and random.random() < 0.15
        case = replace(case, outer=random.choice(((), (1,), (2,), (3,), (2, 3), (0,)))) if packed else case
        return _with_told(case, random) if random.random() < 0.15 else case

    def run(self, case: Case) -> Outcome:
        try:
            operator = Operators(Source("case.tl", case.text), _tools(case.threads), sizes="symbolic" if case.symbolic else "static").f
        except CompileError as refused:
            return _refused(refused)
        runs = 0
        for k, sizes in enumerate(case.sizes):
            arrays = arrays_of(case, sizes)
            try:
                call = sorted_out(operator.declaration, tuple(arrays.values()), {})
                native = operator.compiled(call).native
            except RunError as refused:
                return Outcome("refused", refused.diagnostics[0].code, str(refused))
            except CompileError as refused:
                return _refused(refused, not case.symbolic and not may_refuse(case, sizes, arrays))
            runs += 1
            try:
                found = between_walls(native, [np.ascontiguousarray(a) for a in call.arrays], SIDES[(case.seed + k) % 2])
            except RunError as refused:
                if not may_refuse(case, sizes, arrays):
                    return Outcome("wrong", "refuses data that is fine", str(refused), runs)
                continue
            problem = difference(case, sizes, arrays, found)
            if problem:
                return Outcome("wrong", problem.partition(":")[0], f"sizes {dict(sizes)}\n{problem}", runs)
        return Outcome("ok", native=runs)

    def smaller(self, case: Case) -> Iterator[Case]:
        program = case.program
        for k in range(len(case.sizes)):
            if len(case.sizes) > 1:
                yield replace(case, sizes=(*case.sizes[:k], *case.sizes[k + 1 :]))
        if case.threads > 1:
            yield replace(case, threads=1)
        if case.outer is not None:
            yield replace(case, outer=None)
        if case.outer:
            yield replace(case, outer=case.outer[1:])
        if case.told is not None:
            yield replace(case, told=None)
        if case.wild:
            yield replace(case, wild=False)
        for defines in without_some(program.defines):
            made = {n for d in defines for n in (d.names if isinstance(d, Define) else (d.name,))}
            results = tuple(r for r in program.results if r in made)
            if results:
                yield replace(case, program=replace(program, defines=defines, results=results))
        if len(program.results) > 1:
            for results in without_some(program.results):
                if results:
                    yield replace(case, program=replace(program, results=results))
        for params in without_some(program.params):
            yield replace(case, program=replace(program, params=params))
        if program.mode:
            yield replace(case, program=replace(program, mode=""))
        for where in without_some(program.where):
            yield replace(case, program=replace(program, where=where))
        for smaller in simpler(program):
            yield replace(case, program=smaller)
        for k, sizes in enumerate(case.sizes):
            for name, size in sizes.items():
                for less in sorted({0, 1, 2, size - 1}):
                    if 0 <= less < size and (case.told is None or case.told[0] != name):
                        changed = {**sizes, name: less}
                        yield replace(case, sizes=(*case.sizes[:k], changed, *case.sizes[k + 1 :]))
        if case.symbolic:
            yield replace(case, symbolic=False, sizes=case.sizes[:1])

    def show(self, case: Case) -> str:
        kind, wild = "symbolic" if case.symbolic else "static", ", wild" if case.wild else ""
        how = f"{kind} sizes, {case.threads} threads, arrays of {case.seed}{wild}"
        values = "".join(f"  {n} = {a.tolist()}\n" for n, a in arrays_of(case, case.sizes[-1]).items() if a.size < 60)
        return f"{case.text}{[dict(s) for s in case.sizes]}, {how}\n{values}"

    def test(self, case: Case) -> str:
        sizes = case.sizes[-1]
        arrays = arrays_of(case, sizes)
        expected: Mapping[str, Array] | str
        try:
            each = [Evaluation(case.program, sizes, one) for one in _apart(case, arrays)]
            expected = {
                name: np.array([_stored(e, case.program, name) for e in each]).reshape((*(case.outer or ()), *each[0].shape(name)))
                for name in case.program.results
            }
        except (Outside, TooMuch):
            expected = "R0306"
        options = (', sizes="symbolic"' if case.symbolic else "") + f", threads={case.threads}"
        return written.call(case.text, list(arrays.values()), expected, operator="f", options=options)


def _tools(threads: int) -> Any:
    return toolchain(threads=threads, cache=False)


def _refused(refused: CompileError, fine: bool = False) -> Outcome:
    """Return the outcome of a program that the compiler does not take: without a schedule it has no reason to speak of one, and what is
    `fine` at the sizes it is compiled for has no read outside."""
    code = refused.diagnostics[0].code
    unfounded = code.startswith("S") or (fine and code == "T0301")
    return Outcome("unfounded" if unfounded else "refused", code, str(refused))


# ---------------------------------------------------------------- arguments


def _sizes(program: Program, random: Random) -> dict[str, int]:
    names = sorted({n.name for p in program.params for n in p.shape if hasattr(n, "name")})
    least = 1 if program.where else 0
    while True:
        sizes = {n: max(least, random.choice((0, 1, 2, 3, 3, 4, 5, 6, 7, 9))) for n in names}
        if int(np.prod([max(s, 1) for s in sizes.values()])) <= 250:
            return sizes


def _with_told(case: Case, random: Random) -> Case:
    """Return the case with one of its sizes written as `factor * H + shift`, and made such a number where it is none."""
    size, (factor, shift) = random.choice(sorted(case.sizes[0])), random.choice(((1, 1), (1, 2), (2, 0), (2, 1), (3, 1), (-1, 9)))
    if factor < 0:
        return replace(case, told=(size, factor, shift))
    least = 1 if case.program.where and not shift else 0
    fitting = ({**sizes, size: factor * max(least, (sizes[size] - shift) // factor) + shift} for sizes in case.sizes)
    return replace(case, sizes=tuple(fitting), told=(size, factor, shift))


def arrays_of(case: Case, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return the arguments of a call: the same for the same case, whatever else of it is cut."""
    each = [{p.name: _array(p, case, sizes, k) for p in case.program.params} for k in range(prod(case.outer or ()))]
    if case.outer is None:
        return each[0]
    none = {p.name: _array(p, case, sizes, 0) for p in case.program.params}
    return {name: np.array([one[name] for one in each], a.dtype).reshape((*case.outer, *a.shape)) for name, a in none.items()}


def _apart(case: Case, arrays: Mapping[str, Array]) -> list[Mapping[str, Array]]:
    """Return the arrays at each place along the pack."""
    return [arrays] if case.outer is None else [{name: a[at] for name, a in arrays.items()} for at in np.ndindex(*case.outer)]


def _array(p: Param, case: Case, sizes: Mapping[str, int], place: int) -> Array:
    shape = tuple(sizes[n.name] if hasattr(n, "name") else n.value for n in p.shape)  # type: ignore[union-attr]
    random = Random(f"{case.seed}:{p.name}:{sorted(sizes.items())}" + (f":{place}" if place else ""))
    count = int(np.prod(shape))
    if p.name == "ids":
        values: list[Any] = [_place(p, case, sizes, random) for _ in range(count)]
    elif p.dtype == "bool":
        values = [random.random() < 0.5 for _ in range(count)]
    else:
        low = 0 if p.dtype[0] == "u" else -3
        values = [random.randint(low, 4) for _ in range(count)]
        if is_float(p.dtype) and case.program.mode == "strict":
            values = [v + random.random() for v in values]
    return np.array(values, np.float64 if is_float(p.dtype) else numpy_type(p.dtype)).astype(numpy_type(p.dtype)).reshape(shape)


def _place(p: Param, case: Case, sizes: Mapping[str, int], random: Random) -> int:
    """Return a value for an index: inside, or, where values are wild, a little or far outside."""
    low, high = (0, max(sizes.values(), default=1))
    if p.within is not None:
        bounds = Evaluation(case.program, sizes, {})
        low, high = (bounds.index(e, {}) for e in p.within)
    least, most = (int(n) for n in limits(p.dtype))
    if case.wild and random.random() < 0.15:
        return random.choice([n for n in (low - 1, high, least, most, 10**7, -7) if least <= n <= most])
    return min(most, random.randint(max(low, least), max(high - 1, low, least)) if high > low else max(low, least))


# ---------------------------------------------------------------- comparing


def declared_hold(case: Case, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> bool:
    """Tell whether values lie in the ranges that their parameters declare."""
    bounds = Evaluation(case.program, sizes, {})
    for p in case.program.params:
        if p.within is not None:
            low, high = (bounds.index(e, {}) for e in p.within)
            if any(not low <= int(n) < high for n in arrays[p.name].reshape(-1)):
                return False
    return True


def may_refuse(case: Case, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> bool:
    """Tell whether any element of any tensor, needed or not, reads outside."""
    return any(_may_refuse(case, sizes, one) for one in _apart(case, arrays))


def _may_refuse(case: Case, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> bool:
    if not declared_hold(case, sizes, arrays):
        return True
    evaluation = Evaluation(case.program, sizes, arrays)
    try:
        for d in case.program.defines:
            for name in d.names if isinstance(d, Define) else (d.name,):
                evaluation.array(name)
    except (Outside, TooMuch):
        return True
    return False


def difference(case: Case, sizes: Mapping[str, int], arrays: Mapping[str, Array], found: tuple[Array, ...]) -> str:
    """Return what is wrong with the results, "" for nothing."""
    outer = case.outer or ()
    if any(a.shape[: len(outer)] != outer for a in found):
        return f"another shape: {[a.shape for a in found]} where all begin with {outer}"
    for at, one in zip(np.ndindex(*outer), _apart(case, arrays), strict=True):
        problem = _difference(case, sizes, one, tuple(np.asarray(a[at]) for a in found))
        if problem:
            return f"{problem} at {at}" if outer else problem
    return ""


def _difference(case: Case, sizes: Mapping[str, int], arrays: Mapping[str, Array], found: tuple[Array, ...]) -> str:
    if not declared_hold(case, sizes, arrays):
        return "takes values outside their declared range:"
    evaluation = Evaluation(case.program, sizes, arrays)
    for name, have in zip(case.program.results, found, strict=True):
        try:
            want = _stored(evaluation, case.program, name)
        except Outside as problem:
            return f"a read outside is not refused: {problem}"
        except TooMuch:
            continue
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"another shape: {have.dtype}{have.shape}, not {want.dtype}{want.shape}"
        bits = f"u{have.dtype.itemsize}"
        same = (have.view(bits) == want.view(bits)) | ((have != have) & (want != want))
        wrong = np.argwhere(~np.asarray(same))
        if not len(wrong) or (evaluation.inexact and case.program.mode != "strict" and is_float(evaluation.dtype(name))):
            continue
        at = tuple(int(k) for k in wrong[0])
        label = "the sign of a zero" if bool(np.all(np.asarray(have == want)[~np.asarray(same)])) else "another value"
        return f"{label}: {name}{list(at)} is {have[at]!r}, not {want[at]!r} ({len(wrong)} differ)"
    return ""


def _stored(evaluation: Evaluation, program: Program, name: str) -> Array:
    """Return a result as the operator gives it, whose elements are of the type in its header."""
    table = {n: t for d in program.defines if isinstance(d, Define) for n, t in zip(d.names, d.dtypes, strict=True)}
    found = evaluation.array(name)
    return found.astype(numpy_type(table[name])) if name in table else found

"""Random schedules: directives of every kind over names that exist where they stand, so that a good part is legal and a good part is not.

    case = draw(scheduled())            a program, sizes for it, and a schedule that can be applied (its proof is another matter)

Programs are the random ones of `strategies_tensor` and the families below: contractions, padded convolutions, row programs, stencils in
time, mutual and two-dimensional recurrences in every direction, triangular and guarded reductions, tuple and ordered reducers, strides,
reads that depend on data, several results. Their arithmetic is exact on small integers, so that every legal order of a sum gives the same
bits; `strict` programs are given fractions.

A schedule starts from nothing or from some of the directives that the compiler derives for a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies_tensor import random_program

from codegen.dtypes import DTYPES, DType
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from stdlib.library import library
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.cpu.layouts import derive_layouts
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import Outline, apply, outline
from tensorlang.schedule.instructions import instruction
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.scan import growths
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.storage import axis_names, to_storage
from tensorlang.schedule.tables import of_byte
from tensorlang.schedule.windows import windows
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.parse import parse
from tensorlang.tensor import notation
from tensorlang.tensor.bands import bands
from tensorlang.tensor.dead_code import eliminate_dead
from tensorlang.tensor.factorize import Factorized, factorized
from tensorlang.tensor.invariant_axes import invariant_axes
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.printer import show
from tensorlang.tensor.searches import bounded
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import components, definition_reads, reads, reduces, shape_of, substitute_sizes

Arrays = dict[str, np.ndarray[Any, Any]]

FAMILIES = """
op matmul[T: num](a: T[M, K], b: T[K, N]) -> (y: T[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }

op linear[T: num](x: T[M, K], w: T[N, K], b: T[N]) -> (y: T[M, N]) { y[i, j] = b[j] + sum(k) x[i, k] * w[j, k] }

op conv[T: num](x: T[C, H, W], w: T[F, C, 3, 3]) -> (y: T[F, H, W]) {
    y[f, p, q] = sum(c, r, s) x[c, p + r - 1, q + s - 1 | 0] * w[f, c, r, s]
}

op strided[T: num](x: T[C, H], w: T[F, C, 3]) -> (y: T[F, (H + 1) // 2]) {
    y[f, p] = sum(c, r) x[c, 2*p + r - 1 | 0] * w[f, c, r]
}

op pool[T: num](x: T[H, W]) -> (y: T[(H + 1) // 2, W]) { y[p, q] = max(r in 0..2) x[2*p + r, q | skip] }

op rows[T: num](x: T[M, N]) -> (y: T[M, N]) where N >= 1 {
    m[i]    = max(j) x[i, j]
    e[i, j] = x[i, j] - m[i]
    s[i]    = sum(k) e[i, k]
    y[i, j] = e[i, j] + s[i] * 2
}

op blur[T: num](x: T[M, N]) -> (y: T[M, N]) {
    h[i, j] = x[i, j - 1 | 0] + x[i, j] + x[i, j + 1 | 0]
    y[i, j] = h[i - 1, j | 0] + h[i, j] + h[i + 1, j | 0]
}

op chain[T: num](x: T[M, N]) -> (y: T[M, N], s: T[M]) {
    a[i, j] = x[i, j] * 2 + 1
    b[i, j] = a[i, j] * x[i, j]
    c[i, j] = b[i, j] - a[i, N - 1 - j]
    s[i]    = sum(j) b[i, j]
    y[i, j] = c[i, j] + s[i]
}

op heat[T: num](x: T[N], size T1) -> (y: T[N]) {
    s[0, i]     = x[i]
    s[t + 1, i] = s[t, i] + s[t, i - 1] - s[t, i + 1]   for t in 0..T1, i in 1..N-1
    s[t + 1, i] = s[t, i]                               otherwise
    y[i]        = s[T1, i]
}

op sweep[T: num](x: T[M, N]) -> (y: T[M, N]) {
    y[i, j] = x[i, j] + y[i - 1, j] - y[i, j - 1]   for i in 1..M, j in 1..N
    y[i, j] = x[i, j]                               otherwise
}

op scan[T: num](x: T[M, N]) -> (y: T[M, N]) {
    y[i, 0] = x[i, 0]
    y[i, j] = y[i, j - 1] + x[i, j]   for j in 1..N
}

op backward[T: num](x: T[N], w: T[N, N]) -> (y: T[N]) { y[i] = x[i] - sum(j in i+1..N) w[i, j] * y[j] }

op forward[T: num](x: T[N], w: T[N, N]) -> (y: T[N]) { y[i] = x[i] - sum(j in 0..i) w[i, j] * y[j] }

op triangle[T: num](a: T[N, N], b: T[N, N]) -> (y: T[N, N]) { y[i, j] = sum(k in j..i+1) a[i, k] * b[k, j] }

op twins[T: num](x: T[N, M]) -> (y: T[M], z: T[M]) {
    a[0, j]     = 1
    b[0, j]     = 2
    g[t, j]     = x[t, j] + a[t, j] - b[t, M - 1 - j]
    b[t + 1, j] = g[t, j] + b[t, j]    for t in 0..N
    a[t + 1, j] = b[t + 1, j] - a[t, j]    for t in 0..N
    y[j]        = a[N, j]
    z[j]        = b[N, j]
}

op best[T: num](x: T[M, N]) -> (y: T[M], at: i64[M]) where N >= 1 { y[i], at[i] = first_max(j in 0..N) (x[i, j], j) }

reducer first_max[T] (v1, i1) (v2, i2) from none = if before_max(v1, i1, v2, i2) then (v1, i1) else (v2, i2)

op latest[T: num](x: T[M, N], keep: T[M, N]) -> (y: T[M]) { y[i] = last(j, keep[i, j] > 0, from 0) x[i, j] }

ordered reducer last a b from none = b

op picked[T: num](table: T[N, M], ids: i64[K] in 0..N) -> (y: T[K, M], s: T[M]) {
    t[n, m] = table[n, m] + 1
    y[k, m] = t[ids[k], m]
    s[m]    = sum(k, ids[k] > 0) y[k, m]
}

op pieces[T: num](a: T[M, N], b: T[M, N]) -> (y: T[2*M, N]) {
    y[i, j]     = a[i, j] * 2    for i in 0..M
    y[M + i, j] = b[i, j] + sum(k) a[i, k]    for i in 0..M
}

op halves(x: bf16[M, K], w: bf16[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) f32(x[i, k]) * f32(w[k, j]) }

op bytes(x: u8[M, K], w: i8[K, N]) -> (y: i32[M, N]) { y[i, j] = sum(k) i32(x[i, k]) * i32(w[k, j]) }

op two[T: num](a: T[M, K], b: T[K, N], c: T[N, M]) -> (y: T[M, M]) {
    p[i, j] = sum(k) a[i, k] * b[k, j]
    y[i, l] = sum(j) p[i, j] * c[j, l]
}

op guarded[T: num](x: T[M, N], g: T[M]) -> (y: T[M], z: T[M]) {
    y[i] = if i >= 1 then sum(k) x[i - 1, k] else 0
    z[i] = if g[i] > 0 then sum(k, x[i, k] > 0) x[i, k] * g[i] else g[i]
}

op bag[T: num](x: T[R, N], ids: i64[K] in -1..R) -> (y: T[K]) { y[q] = if ids[q] >= 0 then sum(k) x[ids[q], k] else 0 }

op suffixes[T: num](x: T[M, N]) -> (y: T[M, N], z: T[M, N]) {
    y[i, j] = x[i, j] + z[i, j + 1 | 0]
    z[i, j] = x[i, j] - y[i, j + 1 | 1] - z[i + 1, j | 2]
}

op both[T: num](x: T[N]) -> (y: T[N], z: T[N]) {
    y[i] = x[i] - y[i + 1 | 0]
    z[i] = x[i] + y[i] - z[i - 1 | 1]
}

op gaps[T: num](x: T[M, N]) -> (d: T[M, N]) {
    d[i, j] = min(d[i - 1, j - 1 | 5] + x[i, j], p[i, j], q[i, j])
    p[i, j] = min(d[i - 1, j | 5], p[i - 1, j | 6])   for i in 0..M, j in 0..N
    q[i, j] = min(d[i, j - 1 | 4], q[i, j - 1 | 5])   for i in 0..M, j in 0..N
}

op paths[T: num](x: T[N, N]) -> (y: T[N, N]) {
    d[0, i, j]     = x[i, j]
    d[t + 1, i, j] = min(d[t, i, j], d[t, i, t] + d[t, t, j])   for t in 0..N
    y[i, j]        = d[N, i, j]
}

op seidel[T: num](x: T[M, N], size T1) -> (y: T[M, N]) {
    s[0, i, j]     = x[i, j]
    s[t + 1, i, j] = s[t + 1, i - 1, j] - s[t, i + 1, j] + s[t, i, j] - s[t + 1, i, j - 1]   for t in 0..T1, i in 1..M-1, j in 1..N
    s[t + 1, i, j] = s[t, i, j]                                                             otherwise
    y[i, j]        = s[T1, i, j]
}

op pairs[T: num](x: T[M, N]) -> (y: T[M, N // 2], z: T[N, M]) {
    y[i, j] = x[i, 2*j] - x[i, 2*j + 1]
    z[j, i] = y[i, j // 2 | 3] + x[i, j] * (if j % 2 == 0 then 1 else 2)
}

op span[T: num](x: T[M, N]) -> (lo: T[M], hi: T[M], y: T[M]) where N >= 1 {
    lo[i], hi[i] = least_greatest(j) (x[i, j], x[i, j])
    y[i]         = hi[i] - lo[i]
}

reducer least_greatest[T] (l1, h1) (l2, h2) from none = (min(l1, l2), max(h1, h2))

op bins[T: num](x: T[N, M], ids: i64[N] in 0..K, size K) -> (y: T[K, M], c: T[K]) {
    y[k, m] = sum(n, ids[n] == k) x[n, m]
    c[k]    = sum(n, ids[n] == k) x[n, 0 | 1]
}

op routed[T: num](x: T[N, M], ids: i64[K] in 0..L, near: i64[L] in 0..N) -> (y: T[K, M], s: T[K]) {
    y[k, m] = x[near[ids[k]], m] * 2
    s[k]    = sum(m) (y[k, m] - x[near[ids[K - 1 - k]], m])
}

op factors[T: num](a: T[N, N]) -> (l: T[N, N], u: T[N, N]) {
    l[i, j] = a[i, j] - sum(k in 0..j) l[i, k] * u[k, j]   for j < i
    l[i, j] = 1                                            otherwise
    u[i, j] = a[i, j] - sum(q in 0..i) l[i, q] * u[q, j]   for i <= j
    u[i, j] = 0                                            otherwise
}

op norms[T: num](x: T[M, N]) -> (y: T[M, N], s: T[M], z: T[M, N]) {
    y[i, j] = x[i, j] * 2 - 1
    s[i]    = sum(j) y[i, j]
    z[i, j] = y[i, j] + s[i]
}
"""


@cache
def families() -> Module:
    return load_module(parse(Source("families.tl", FAMILIES)))


@dataclass(frozen=True)
class Case:
    program: Program
    sizes: dict[str, int]
    schedule: Schedule
    layouts: Mapping[str, Storage] = field(default_factory=dict)
    """How the caller stores inputs and results that are not row-major."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print no nodes of programs, as hypothesis would."""
        printer.text(str(self))

    def __str__(self) -> str:
        layouts = "".join(f"{n} stored as [{', '.join(map(notation.show, s.dims))}]\n" for n, s in self.layouts.items())
        return f"{show(self.program)}\nsizes {self.sizes}\n{layouts}{self.schedule}"


# ---------------------------------------------------------------- programs

_ELEMENTS = ("f64", "f64", "f32", "i32", "i64", "i8")


def family(name: str, dtype: DType) -> Program:
    """Return the family's program with symbolic sizes."""
    operator = families().operators[name]
    tensors = [p for p in operator.params if p.kind == "tensor"]
    sizes = {p.name: p.name for p in operator.params if p.kind == "size"}
    args = [ArgType(dtype if p.type.dtype == "T" else DTYPES[p.type.dtype], tuple(map(_extent, p.type.dims))) for p in tensors]
    return verify(instantiate(families(), name, args, sizes=sizes, symbolic=True))


def _extent(dim: Any) -> int | str:
    return dim.name if isinstance(dim, syntax.Id) else int(dim.text)


def family_names() -> list[str]:
    return sorted(families().operators)


@st.composite
def scheduled(draw: Any, directives: int = 7) -> Case:
    """Return a program, sizes for it (some of them fixed in the program), and a schedule that `apply` takes."""
    program = some_program(draw(st.randoms(use_true_random=False)))
    return random_case(program, Random(draw(st.integers(0, 2**32))), directives)


def some_program(random: Random) -> Program:
    """Return a program of the families, or a random one."""
    if random.randint(0, 3):
        return family(random.choice(family_names()), DTYPES[random.choice(_ELEMENTS)])
    return random_program(random)


def random_case(program: Program, random: Random, directives: int = 7) -> Case:
    """Return sizes for a program (some of them fixed in it) and a schedule that `apply` takes."""
    program = some_static(eliminate_dead(program), random)
    if random.random() < 0.15:
        program = replace(program, mode="strict")
    layouts = random_layouts(program, random)
    return Case(program, draw_sizes(program, random), random_schedule(program, random, directives, layouts), layouts)


def random_layouts(program: Program, random: Random) -> dict[str, Storage]:
    """Return layouts for some inputs and results: none for most programs, those that derived schedules ask for, or any in blocks."""
    match random.randint(0, 7):
        case 0:
            machine = Machine(random.choice((16, 32)), 16, 1, target="cpu")
            wanted = derive_layouts(program, machine, {}, frozenset(p.name for p in program.params if random.random() < 0.5))
            return {name: to_storage(program, name, layout) for name, layout in wanted.items()}
        case 1:
            tensors = [*program.params, *(t for d in program.definitions for t in d.tensors if t.name in program.results)]
            return {t.name: _blocked(program, t, random) for t in tensors if t.shape and random.random() < 0.5}
        case _:
            return {}


def _blocked(program: Program, tensor: Tensor, random: Random) -> Storage:
    """Return a layout with the axes in any order, one of them in blocks."""
    pairs: list[tuple[Affine, Affine]] = [(Name(a), e) for a, e in zip(axis_names(program, tensor.name), tensor.shape, strict=True)]
    random.shuffle(pairs)
    k, block = random.randrange(len(pairs)), random.choice((2, 4))
    axis, extent = pairs[k]
    pairs[k] = affine.floor(axis, block), affine.ceil_div(extent, block)
    pairs.append((affine.mod(axis, block), affine.to_expr(block)))
    return Storage(tuple(d for d, _ in pairs), tuple(e for _, e in pairs))


def some_static(program: Program, random: Random) -> Program:
    """Return `program` with all, some, or none of its sizes turned into numbers."""
    share = random.choice((0.0, 0.5, 1.0, 1.0))
    fixed = {s: affine.to_expr(random.choice((0, 1, 2, 3, 4, 5, 5, 6, 7, 9))) for s in program.sizes if random.random() < share}
    made = substitute_sizes(program, fixed)
    return made if allowed(made, dict.fromkeys(made.sizes, 7)) else program


def draw_sizes(program: Program, random: Random) -> dict[str, int]:
    """Return sizes that the program's context allows: often 0 or 1, and no multiples of what loops are split by."""
    while True:
        sizes = {s: random.choice((0, 1, 2, 3, 5, 5, 6, 7, 9)) for s in program.sizes}
        if allowed(program, sizes) and prod(sizes.values()) <= 200:
            return sizes


def allowed(program: Program, sizes: Mapping[str, int]) -> bool:
    """Tell whether the context holds and every input declared `in lo..hi` has a value to hold."""
    for p in program.params:
        if p.declared_range is not None and 0 not in shape_of(p, sizes):
            low, high = (affine.evaluate(e, sizes) for e in p.declared_range)
            if low >= high:
                return False
    return bool(affine.holds(program.context, sizes))


def small_arrays(program: Program, sizes: Mapping[str, int], seed: int) -> Arrays:
    """Return inputs of small integers, within the declared range where there is one; small fractions for `strict` programs."""
    rng = np.random.default_rng(seed)
    return {p.name: _small(p, sizes, rng, program.mode == "strict") for p in program.params}


def _small(param: Tensor, sizes: Mapping[str, int], rng: np.random.Generator, fractions: bool) -> np.ndarray[Any, Any]:
    shape = shape_of(param, sizes)
    low, high = -3, 4
    if param.declared_range is not None:
        low, high = (int(affine.evaluate(e, sizes)) for e in param.declared_range)
    if high <= low:
        return np.zeros(shape, param.dtype.numpy)
    whole = rng.integers(low, high, shape)
    return np.asarray(whole + rng.random(shape) if fractions and param.dtype.is_float else whole).astype(param.dtype.numpy)


# ---------------------------------------------------------------- schedules


def random_schedule(program: Program, random: Random, directives: int, layouts: Mapping[str, Storage]) -> Schedule:
    """Return up to `directives` random directives, each of which `outline` accepts after those before it; where some that are seen to fit
    when stages are placed stand among them, `apply` too."""
    schedule = Schedule(program.name) if random.random() < 0.6 else some_derived(program, random, layouts)
    seen = outline(program, schedule, layouts)
    if program.name in _DOTS and random.random() < 0.6:
        plain = outline(program, Schedule(program.name), layouts)
        tiled = _tensorize(Schedule(program.name), plain, Drawing(random, plain))
        if tiled is not None and outline_or_none(program, tiled, layouts) is not None:
            schedule, seen = tiled, outline(program, tiled, layouts)
    wanted = random.randint(1, directives)
    for kinds, share in ((REWRITES, 0.3), (LOOPS, 0.7), (_MARKS, 0.6)):
        for _ in range(wanted):
            if random.random() >= share:
                continue
            drawn = random.choice(kinds)(schedule, seen, Drawing(random, seen))
            if drawn is None:
                continue
            try:
                seen = outline(program, drawn, layouts)
                if any(x.name in ("tensorize", "prefetch") for x in drawn.directives):
                    apply(program, drawn, layouts)
            except CompileError:
                continue
            except Exception:
                return drawn  # whoever tries it meets the crash and reports it
            schedule = drawn
    return schedule


def some_derived(program: Program, random: Random, layouts: Mapping[str, Storage]) -> Schedule:
    """Return what the compiler derives for a machine with short vectors, or with some directives left out."""
    machine = Machine(random.choice((16, 32)), random.choice((8, 16, 32)), random.choice((1, 2)), target="cpu")
    derived = derive(program, machine, layouts)
    kept = [d for d in derived.directives if random.random() < 0.8] if random.random() < 0.5 else derived.directives
    some = replace(derived, directives=tuple(kept))
    return some if outline_or_none(program, some, layouts) is not None else derived


@dataclass
class Drawing:
    """Draws names that exist."""

    random: Random
    seen: Outline
    count: int = 0

    def stage(self) -> str:
        return self.random.choice(list(self.seen.loops))

    def tensor(self) -> str:
        return self.random.choice([t.name for d in self.seen.program.definitions for t in d.tensors])

    def read(self) -> str:
        return self.random.choice([*self.seen.program.params, *(t for d in self.seen.program.definitions for t in d.tensors)]).name

    def local(self) -> str | None:
        names = [t.name for d in self.seen.program.definitions for t in d.tensors if t.name not in self.seen.program.results]
        return self.random.choice(names) if names else None

    def loop(self, stage: str | None = None) -> str | None:
        loops = [loop for name, found in self.seen.loops.items() for loop in found if stage is None or name == stage]
        return self.random.choice(loops) if loops else None

    def factor(self) -> int:
        return self.random.choice((1, 2, 2, 3, 4, 4, 8))

    def fresh(self, loop: str, letters: str) -> tuple[str, ...]:
        used = {name.rsplit(".", 1)[-1] for found in self.seen.loops.values() for name in found}
        base = loop.rsplit(".", 1)[-1]
        out: list[str] = []
        for letter in letters:
            name = f"{base}{letter}"
            while name in used or name in out:
                name += letter
            out.append(name)
        return tuple(out)


def _split(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    return s.split(loop, d.factor(), d.fresh(loop, "oi")) if loop else None


def _tile(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    stage = d.stage()
    loops = list(seen.loops[stage])
    if len(loops) < 2:
        return None
    i, j = sorted(d.random.sample(range(len(loops)), 2))
    a, b = loops[i], loops[j]
    (io, ii), (jo, ji) = d.fresh(a, "oi"), d.fresh(b, "oi")
    return s.tile(stage, (a, b), (d.factor(), d.factor()), (io, jo, ii, ji))


def _order(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loops = list(seen.loops[d.stage()])
    if len(loops) < 2:
        return None
    some = d.random.sample(loops, d.random.randint(2, len(loops)))
    return s.order(*some)


def _fuse(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loops = seen.loops[d.stage()]
    if len(loops) < 2:
        return None
    k = d.random.randrange(len(loops) - 1)
    return s.fuse(loops[k], loops[k + 1], d.fresh(loops[k], "f")[0])


def _distribute(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    stage = d.stage()
    return s.distribute(stage, at=d.loop(stage) if d.random.random() < 0.5 else None)


def _skew(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loops = seen.loops[d.stage()]
    if len(loops) < 2:
        return None
    loop, by = d.random.sample(loops, 2)
    return s.skew(loop, by, d.random.choice((1, 1, 2, -1)))


def _shift(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    return s.shift(loop, d.random.choice((1, 2, -1))) if loop else None


def _reverse(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    return s.reverse(loop) if loop else None


def _peel(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    return s.peel(loop, d.random.choice((1, 1, 2, 3))) if loop else None


def _cut(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Cut a loop at a number, at a share of a size, or where another loop of its stage stands."""
    stage = d.stage()
    loop, other = d.loop(stage), d.loop(stage)
    if loop is None:
        return None
    sizes = [f"{size} // {d.factor()}" for size in seen.program.sizes]
    point = d.random.choice([str(d.random.choice((0, 1, 2, 3, 5))), *sizes, f"{other} + {d.random.choice((0, 1))}"])
    return s.cut(loop, point, d.fresh(loop, "uv") if d.random.random() < 0.7 else ())


def _affine(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Put loops in the place of one or two others: sums and differences with strides, tiles by hand, loops of one iteration."""
    stage = d.stage()
    loops = seen.loops[stage]
    if not loops:
        return None
    i, j = d.loop(stage), d.loop(stage)
    n, f = d.random.choice((1, 1, 2, -1)), d.factor()
    to = d.random.choice(
        [
            (f"{n} * {i} + {j}", j),
            (f"{i} + {j}", f"{i} - {j}"),
            (f"{i} // {f}", f"{i} % {f}"),
            (f"{i} // {f}", j, f"{i} % {f}"),
            (f"2 * {i} + {n}",),
            (i, "0"),
        ]
    )
    return s.affine(stage, to, d.fresh(i or "", "xyz"[: len(to)]))


def _own_loops(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Give some statements of a stage loops of their own, or put them in another order."""
    stage = d.stage()
    statements = list(seen.statements[stage])
    some = d.random.sample(statements, d.random.randint(1, len(statements)))
    if len(some) > 1 and d.random.random() < 0.4:
        return s.order(*some)
    loops = d.random.sample(seen.loops[stage], min(len(seen.loops[stage]), d.random.choice((1, 2))))
    return s.distribute(*some, at=loops, into=[d.fresh(loop, "w")[0] for loop in loops]) if loops else None


def _own_sum(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Give a sum loops of its own, in the place of some of those around it."""
    stage = d.stage()
    sums = [loop for loop in seen.loops[stage] if loop in seen.reductions]
    around = [loop for loop in seen.loops[stage] if loop not in seen.reductions]
    if not sums or not around:
        return None
    loops = around[d.random.randrange(len(around)) :]
    return s.distribute(d.random.choice(sums), at=loops, into=[d.fresh(loop, "u")[0] for loop in loops])


def _join_loops(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Make one loop of two of a stage, of statements that have been given loops of their own most often."""
    apart = _own_loops(s, seen, d) if d.random.random() < 0.7 else s
    found = None if apart is None else outline_or_none(seen.program, apart)
    loops = [] if found is None else list(found.loops.get(d.stage(), ()))
    if apart is None or len(loops) < 2:
        return None
    one, other = d.random.sample(loops, 2)
    return apart.together(one, other, into=d.fresh(one, "s"))


def _partition(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    return s.partition(loop) if loop else None


def _at(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    tensor, loop = d.local(), d.loop()
    return s.at(tensor, loop) if tensor and loop else None


def _at_reader(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Place a tensor at a loop of one that reads it: legal more often than any loop."""
    tensor = d.local()
    readers = [x.tensors[0].name for x in seen.program.definitions if tensor in definition_reads(x)]
    readers = [r for r in readers if r in seen.loops and r != tensor]
    loop = d.loop(d.random.choice(readers)) if readers else None
    return s.at(tensor, loop) if tensor and loop else None


def _root(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    return s.root(d.stage())


def _store_at(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    tensor, loop = d.local(), d.loop()
    return s.store_at(tensor, "root" if d.random.random() < 0.4 else loop) if tensor and loop else None


def _at_kept(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Compute a tensor in a loop that reads it, and keep it outside of that loop, a few rows at a time."""
    placed = _at_reader(s, seen, d)
    if placed is None:
        return None
    tensor = placed.directives[-1].operands[0]
    assert isinstance(tensor, syntax.Id)
    definition = next(x for x in seen.program.definitions for t in x.tensors if t.name == tensor.name)
    kept = placed.store_at(tensor.name, "root") if d.random.random() < 0.8 else placed
    if definition.axes and d.random.random() < 0.7:
        return kept.fold(tensor.name, d.random.choice(definition.axes), d.random.choice((1, 2, 3, 4)))
    return kept


def _together(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Let two or three stages share their outer loops."""
    stages = [name for name, loops in seen.loops.items() if loops]
    if len(stages) < 2:
        return None
    some = d.random.sample(stages, min(len(stages), d.random.choice((2, 2, 2, 3))))
    some = [name for name in stages if name in some] if d.random.random() < 0.7 else some
    count = d.random.randint(1, min(len(seen.loops[name]) for name in some))
    return s.together(*some, into=[d.fresh(loop, "s")[0] for loop in seen.loops[some[0]][:count]])


def _trim(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    return s.trim(loop) if loop else None


def _stages(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Copy a tensor in a loop that reads it, iterations ahead."""
    tensor = d.read()
    readers = [x.tensors[0].name for x in seen.program.definitions if tensor in definition_reads(x)]
    readers = [r for r in readers if r in seen.loops]
    loop = d.loop(d.random.choice(readers)) if readers else None
    return s.pack(tensor, (), loop).stages(loop, d.random.choice((1, 2, 2, 3))) if loop else None


def _unfold(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    sums = [r for x in seen.program.definitions for p in x.pieces for r in reduces(p.value) if len(r.binders) > 1]
    if not sums:
        return None
    chosen = d.random.choice(sums)
    factors = sorted({r.tensor for e in chosen.body for r in reads(e)})
    some = factors if d.random.random() < 0.7 else d.random.sample(factors, d.random.randint(1, len(factors)))
    over = [b.name for b in chosen.binders if d.random.random() < 0.9]
    return s.unfold(*some, over=over, into=d.fresh("row", "k")[0]) if over else None


def _hoist(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Take axes off a tensor: those along which it is the same, or any."""
    for group in components(seen.program):
        found = invariant_axes(seen.program, group)
        if found and d.random.random() < 0.8:
            return s.hoist(*(f"{tensor}.{axis}" for tensor, axis in found))
    local = d.local()
    definition = next((x for x in seen.program.definitions for t in x.tensors if t.name == local), None)
    return s.hoist(f"{local}.{d.random.choice(definition.axes)}") if definition is not None and definition.axes else None


def _lift(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Give the reductions of an equation tensors of their own: of one that has several, or of any."""
    several = [x for x in seen.program.definitions if sum(1 for p in x.pieces for _ in reduces(p.value)) > 1]
    chosen = d.random.choice(several if several and d.random.random() < 0.8 else seen.program.definitions)
    return s.lift(chosen.tensors[0].name)


def _factorize(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Reduce factor by factor: what gains by it, or anything."""
    names = [x.tensors[0].name for x in seen.program.definitions]
    gaining = [name for name in names if isinstance(factorized(seen.program, name), Factorized)]
    return s.factorize(d.random.choice(gaining if gaining and d.random.random() < 0.9 else names))


def _scan(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Run a reduction along an axis, in stretches or as a whole: one that it grows along, or any."""
    axes = [(x, a) for x in seen.program.definitions for a in x.axes]
    growing = [(x, a) for x, a in axes if next(growths(seen.program, x, a), None) is not None]
    some = growing if growing and d.random.random() < 0.9 else axes
    if not some:
        return None
    definition, axis = d.random.choice(some)
    return s.scan(f"{definition.tensors[0].name}.{axis}", to=d.random.choices((2, 3, 5), k=d.random.randint(0, 2)))


def _compose(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Make the windows of a reduction of shorter ones."""
    found = [(x, w) for x in seen.program.definitions for w in windows(x)]
    if not found:
        return None
    definition, window = d.random.choice(found)
    count = d.random.randint(0, 2)
    lengths = sorted(d.random.sample(range(1, window.count + 1), min(count, window.count)))
    return s.compose(f"{definition.tensors[0].name}.{window.binder.name}", lengths)


def _tabulate(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Look a function of a byte up in a table."""
    found = [x.tensors[0].name for x in seen.program.definitions if not isinstance(of_byte(seen.program, x.tensors[0].name), str)]
    return s.tabulate(d.random.choice(found)) if found else None


def _narrow(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Let a reduction go through the values that its conditions leave a name: one that they do, or any."""
    names = [(x, b.name) for x in seen.program.definitions for p in x.pieces for r in reduces(p.value) for b in r.binders]
    kept = [(x, b.name) for x in seen.program.definitions for b, _ in bands(x)]
    some = kept if kept and d.random.random() < 0.9 else names
    if not some:
        return None
    definition, binder = d.random.choice(some)
    return s.narrow(f"{definition.tensors[0].name}.{binder}")


def _bisect(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Search for the terms that conditions on data leave."""
    found = [f"{x.tensors[0].name}.{b.binder.name}" for x in seen.program.definitions for b in bounded(seen.program, x)]
    return s.bisect(d.random.choice(found)) if found else None


def _store(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    results = seen.program.results
    if len(results) < 2:
        return None
    first, second = d.random.sample(list(results), 2)
    return s.store(first, together_with=second)


def _inline(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    tensor = d.local()
    return s.inline(tensor) if tensor else None


def _rfactor(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    binders = [b.name for x in seen.program.definitions for p in x.pieces for r in reduces(p.value) for b in r.binders]
    return s.rfactor(d.random.choice(binders), d.factor(), chunked=d.random.random() < 0.5) if binders else None


def _block(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Cut a sum at multiples of a block."""
    binders = [b.name for x in seen.program.definitions for p in x.pieces for r in reduces(p.value) for b in r.binders]
    return s.block(d.random.choice(binders), d.random.choice((2, 2, 3, 4))) if binders else None


def _trust(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Trust what the proof does not decide: nothing here is so, and what is refuted stays refused."""
    return s.trust("nobody knows") if not any(x.name == "trust" for x in s.directives) else None


def _flatten(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    return s.flatten()


def _pack(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    tensor = d.read()
    at = d.loop() if d.random.random() < 0.5 else None
    return s.pack(tensor, (), at)


def _pack_as(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    tensor = d.read()
    before = outline_or_none(seen.program, Schedule(s.operator).pack(tensor))
    if before is None:
        return None
    copies = [x for x in before.program.definitions if x.tensors[0].name.startswith(f"{tensor}.pack")]
    if not copies:
        return None
    at = d.loop() if d.random.random() < 0.4 else None
    return s.pack(tensor, _dims(list(copies[-1].axes), d), at)


def _dims(axes: list[str], d: Drawing) -> list[str]:
    """Return a layout of `axes`, now and then one that loses elements."""
    dims = d.random.sample(axes, len(axes))
    if dims and d.random.random() < 0.6:
        axis, block = d.random.choice(dims), d.factor()
        k = dims.index(axis)
        dims[k] = f"{axis} // {block}"
        dims.append(f"{axis} % {block}")
    match d.random.randint(0, 9):
        case 0 if len(dims) > 1:
            dims.pop()
        case 1 if dims:
            dims[0] = f"{dims[0]} + 1" if " " not in dims[0] else dims[0]
        case _:
            pass
    return dims


def _layout(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    local = d.local()
    if local is None:
        return None
    definition = next(x for x in seen.program.definitions for t in x.tensors if t.name == local)
    return s.layout(local, _dims(list(definition.axes), d)) if definition.axes else None


def _fold(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    local = d.local()
    definition = next((x for x in seen.program.definitions for t in x.tensors if t.name == local), None)
    if local is None or definition is None or not definition.axes:
        return None
    return s.fold(local, d.random.choice(definition.axes), d.random.choice((1, 2, 2, 3, 4)))


def _unroll(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    return s.unroll(loop) if loop else None


def _vectorize(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    if loop is not None and d.random.random() < 0.6:
        stage = next(name for name, loops in seen.loops.items() if loop in loops)
        loop = seen.loops[stage][-1]
    return s.vectorize(loop) if loop else None


def _parallel(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    loop = d.loop()
    if loop is not None and d.random.random() < 0.5:
        stage = next(name for name, loops in seen.loops.items() if loop in loops)
        loop = seen.loops[stage][0]
    return s.parallel(loop) if loop else None


def _stream(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    return s.stream(d.tensor())


def _prefetch(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Ask for a tensor at a loop of a stage that reads it, most often."""
    tensor = d.read()
    readers = [x.tensors[0].name for x in seen.program.definitions if tensor in definition_reads(x)]
    readers = [r for r in readers if r in seen.loops]
    stage = d.random.choice(readers) if readers and d.random.random() < 0.8 else d.stage()
    loop = d.loop(stage)
    if loop is None:
        return None
    inside = seen.loops[stage][seen.loops[stage].index(loop) + 1 :]
    within = d.random.sample(inside, d.random.randint(0, len(inside))) if d.random.random() < 0.4 else []
    return s.prefetch(tensor, loop, d.random.choice((0, 1, 1, 2, 5)), within)


_DOTS = {"halves": ("dot_bf16", 2), "bytes": ("dot_u8i8", 4)}
"""The instruction that fits a family, and how many products of a lane it adds up."""


def _tensorize(s: Schedule, seen: Outline, d: Drawing) -> Schedule | None:
    """Put an instruction in the place of two loops: as it should be written for products of narrow elements, of any two now and then."""
    name, group = _DOTS.get(s.operator, ("dot_bf16", 2))
    dot = instruction(library().operators[name])
    loops = seen.loops[d.stage()]
    if not {"y.j", "y.k"} <= set(loops) or d.random.random() < 0.2:
        return s.tensorize(*loops[-2:], by=dot) if len(loops) > 1 else None
    (jo, jv), (ko, kr) = d.fresh("y.j", "ov"), d.fresh("y.k", "or")
    tiled = s.split("y.j", d.random.choice((2, 4, 8, 16)), (jo, jv)).split("y.k", group, (ko, kr))
    dims = [jo, ko, jv, kr]
    if d.random.random() < 0.2:
        d.random.shuffle(dims)
    return tiled.pack("w", dims).order(jo, ko, jv, kr).tensorize(jv, kr, by=dot)


def outline_or_none(program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None = None) -> Outline | None:
    try:
        return outline(program, schedule, layouts)
    except Exception:
        return None


REWRITES = (
    _inline,
    _rfactor,
    _rfactor,
    _block,
    _block,
    _flatten,
    _pack,
    _pack_as,
    _unfold,
    _store,
    _hoist,
    _scan,
    _scan,
    _compose,
    _tabulate,
    _narrow,
    _narrow,
    _bisect,
    _lift,
    _factorize,
)
LOOPS = (
    *(
        _split,
        _split,
        _tile,
        _tile,
        _order,
        _order,
        _fuse,
        _distribute,
        _skew,
        _shift,
        _reverse,
        _peel,
        _peel,
        _cut,
        _cut,
        _affine,
        _affine,
        _own_loops,
        _own_loops,
        _own_sum,
        _own_sum,
        _join_loops,
        _join_loops,
    ),
    *(_at, _at_reader, _at_reader, _at_reader, _at_kept, _root, _store_at, _layout, _fold, _together, _together, _trim),
)
MARKS_ANYWHERE = (_unroll, _vectorize, _vectorize, _split, _pack)
_MARKS = (
    *(_unroll, _vectorize, _vectorize, _parallel, _parallel, _split, _pack, _partition, _partition),
    *(_stream, _prefetch, _prefetch, _stages, _tensorize, _tensorize, _tensorize, _trust),
)

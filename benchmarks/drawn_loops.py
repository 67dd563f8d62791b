"""Programs drawn at random, as equations and as the loops that anyone would write for them in C, on one thread.

    python benchmarks/drawn_loops.py                       40 programs of seed 0, against gcc -O3 -march=native -ffast-math
    python benchmarks/drawn_loops.py --seed 7 --count 100
    python benchmarks/drawn_loops.py --seed 7 --only 12 --keep DIR     one of them; its two texts are written to DIR
    python benchmarks/drawn_loops.py --kinds chain table

The compiler is `cc`, or what `--compiler` names. Both sides know all sizes, read the same arrays and write into arrays that exist; results
are compared, whole numbers exactly. A kind is a function that draws a program: `KINDS`.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import geometric_mean
from typing import Any, NamedTuple

from harness import Array, error_of, mark, paired, ratio, table, urgent, with_threads, write  # isort: skip

import numpy as np

import tensorlang
from codegen.dtypes import DTYPES
from tensorlang.diagnostics import CompileError

FLAGS = ("-O3", "-march=native", "-ffast-math", "-fwrapv", "-shared", "-fPIC", "-w")
TOLERANCE = {"f32": 2e-3, "f64": 1e-8, "i32": 0.0, "i64": 0.0}
LOW = 0.95
"""What a program must not fall below, as a share of the other compiler's speed."""


class Both(NamedTuple):
    """An expression in the language, and in C."""

    tl: str
    c: str


class Loop(NamedTuple):
    """A loop over `name` from `first` up to, and without, `end`; downwards where said."""

    name: str
    first: str
    end: str
    down: bool = False


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array: its shape, its element type, and, for indices, how many things they name."""

    shape: tuple[int, ...]
    kind: str
    things: int = 0


@dataclass(slots=True)
class Program:
    """A program as it is drawn: the clauses of its operator, and the statements of its function."""

    kind: str
    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)
    clauses: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def read(self, name: str, *indices: str) -> Both:
        return Both(f"{name}[{', '.join(indices)}]", f"{name}({', '.join(indices)})")

    def input(self, kind: str, shape: Sequence[int], things: int = 0) -> str:
        name = "abcdefgh"[len(self.inputs)]
        self.inputs[name] = Tensor(tuple(shape), kind, things)
        return name

    def assign(self, target: Both, value: Both, loops: Sequence[Loop]) -> None:
        """Say a clause, and the nest of loops that computes it."""
        tail = ", ".join(f"{v.name} in {v.first}..{v.end}" for v in loops)
        self.clauses.append(f"{target.tl} = {value.tl}" + (f"   for {tail}" if tail else ""))
        self.statements.append(nest(loops, f"{target.c} = {value.c};"))

    @property
    def tl(self) -> str:
        given = ", ".join(f"{n}: {_tl_type(t)}" for n, t in self.inputs.items())
        results = ", ".join(f"{n}: {_tl_type(t)}" for n, t in self.outputs.items())
        return "\n".join([f"op drawn({given}) -> ({results}) {{", *(f"    {c}" for c in self.clauses), "}"])

    @property
    def c(self) -> str:
        arrays = {**self.inputs, **self.outputs}
        lines = [
            "#include <math.h>",
            "#include <stdint.h>",
            "#define min(a, b) ((a) < (b) ? (a) : (b))",
            "#define max(a, b) ((a) > (b) ? (a) : (b))",
            "#define clamp(i, n) ((i) < 0 ? 0 : (i) >= (n) ? (n) - 1 : (i))",
        ]
        for name, t in (arrays | self.kept).items():
            names = [f"i{k}" for k in range(len(t.shape))]
            place = "+".join(f"(int64_t)({v})*{int(np.prod(t.shape[k + 1 :]))}" for k, v in enumerate(names)) or "0"
            lines.append(f"#define {name}({', '.join(names)}) {name}_[{place}]")
        lines += [f"static {_c_type(t)} {name}_[{int(np.prod(t.shape))}];" for name, t in self.kept.items()]
        given = ", ".join(f"{'const ' if n in self.inputs else ''}{_c_type(t)} *restrict {n}_" for n, t in arrays.items())
        return "\n".join([*lines, f"void drawn({given}) {{", *self.statements, "}", ""])


def nest(loops: Sequence[Loop], body: str) -> str:
    """Return loops of C around a statement."""
    for v in reversed(loops):
        up = f"int {v.name} = {v.first}; {v.name} < {v.end}; {v.name}++"
        down = f"int {v.name} = ({v.end}) - 1; {v.name} >= {v.first}; {v.name}--"
        body = f"for ({down if v.down else up}) {{ {body} }}"
    return body


def _tl_type(t: Tensor) -> str:
    return t.kind + (f"[{', '.join(map(str, t.shape))}]" if t.shape else "")


def _c_type(t: Tensor) -> str:
    return {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t"}[t.kind]


# ---------------------------------------------------------------- expressions


def number(value: float, kind: str) -> Both:
    if kind[0] == "i":
        return Both(f"{int(value)}", f"{int(value)}")
    return Both(f"{value:.4f}", f"{value:.4f}{'f' if kind == 'f32' else ''}")


def binary(sign: str, a: Both, b: Both) -> Both:
    return Both(f"({a.tl} {sign} {b.tl})", f"({a.c} {sign} {b.c})")


def call(name: str, a: Both, b: Both) -> Both:
    return Both(f"{name}({a.tl}, {b.tl})", f"{name}({a.c}, {b.c})")


def magnitude(a: Both) -> Both:
    return call("max", a, Both(f"-({a.tl})", f"-({a.c})"))


def choice(condition: Both, a: Both, b: Both) -> Both:
    return Both(f"(if {condition.tl} then {a.tl} else {b.tl})", f"({condition.c} ? {a.c} : {b.c})")


def mixed(rng: Random, terms: Sequence[Both], kind: str, *, choices: bool = True) -> Both:
    """Return an expression of all terms, none of which grows it much."""
    signs = ["+", "-", "min", "max", "weighted", *(["choice"] if choices else []), *([] if kind[0] == "i" else ["*"])]
    result = terms[0]
    for t in terms[1:]:
        match rng.choice(signs):
            case "+" | "-" | "*" as sign:
                result = binary(sign, result, t)
            case "min" | "max" as name:
                result = call(name, result, t)
            case "weighted":
                weight = number(rng.choice([2, 3, 0.5, 0.3] if kind[0] == "f" else [2, 3]), kind)
                result = binary("+", binary("*", weight, result), t)
            case _:
                other = rng.choice(terms)
                result = choice(binary(rng.choice(["<", ">"]), t, other), result, binary("+", result, t))
    return result


# ---------------------------------------------------------------- kinds


def sums(rng: Random) -> Program:
    """Sums, maxima and minima over one or two binders of products, distances or gaps of a few arrays, each over some of the indices."""
    p, kind = Program("sums"), rng.choice(["f32", "f32", "f64", "i32"])
    free, bound = "ij"[: rng.choice([1, 2, 2])], "kl"[: rng.choice([1, 1, 2])]
    budget = rng.choice([1e6, 4e6, 2e7])
    side = max(3, int(budget ** (1 / len(free + bound))))
    extent = {v: max(2, int(side * rng.choice([0.3, 0.7, 1, 1.5]))) for v in free + bound}
    if rng.random() < 0.4:
        extent[rng.choice(bound)] = rng.choice([2, 3, 5, 8])
    reads, used = list[Both](), set[str]()
    for _ in range(rng.choice([1, 2, 2, 3])):
        own = rng.sample(free + bound, rng.randint(1, len(free + bound)))
        if len(own) == 4:
            own = own[:3]
        shape, places = [extent[v] for v in own], list(own)
        if rng.random() < 0.25:  # a window
            shape[0] += extent[bound[0]]
            places[0] = f"{own[0]} + {bound[0]}" if own[0] != bound[0] else f"{own[0]} + {free[0]}"
            shape[0] += 0 if own[0] != bound[0] else extent[free[0]]
        reads.append(p.read(p.input(kind, shape), *places))
        used |= set(own) | set(bound[:1] if " + " in places[0] else "")
    missing = [v for v in free + bound if v not in used]
    if missing:
        reads.append(p.read(p.input(kind, [extent[v] for v in missing]), *missing))
    body = reads[0]
    for r in reads[1:]:
        body = binary(rng.choice("**-"), body, r)
    body = rng.choice([lambda e: e, lambda e: e, lambda e: binary("*", e, e), magnitude])(body)
    reducer = rng.choice(["sum", "sum", "sum", "max", "min"])
    triangular = len(bound) == 1 and rng.random() < 0.25
    ends = {v: str(extent[v]) for v in bound}
    if triangular:
        extent[free[0]] = min(extent[free[0]], extent[bound])
        ends[bound] = f"{free[0]} + 1"
    out = Tensor(tuple(extent[v] for v in free), kind)
    p.outputs["y"] = out
    binders = ", ".join(f"{v} in 0..{ends[v]}" for v in bound)
    first = {"sum": "0", "max": f"{body.c}", "min": f"{body.c}"}[reducer]
    step = f"s += {body.c};" if reducer == "sum" else f"s = {reducer}(s, {body.c});"
    found = Both(f"({reducer}({binders}) {body.tl})", "s")
    value = rng.choice([found, call("max", found, number(0, kind)), binary("+", binary("*", number(2, kind), found), number(1, kind))])
    outer = [Loop(v, "0", str(extent[v])) for v in free]
    p.clauses.append(f"y[{', '.join(free)}] = {value.tl}   for {', '.join(f'{v} in 0..{extent[v]}' for v in free)}")
    zero = "".join(f"int {v} = 0; " for v in bound)
    begin = f"{_c_type(out)} s; {{ {zero} s = {first}; }}"
    p.statements.append(nest(outer, f"{begin} {nest([Loop(v, '0', ends[v]) for v in bound], step)} y({', '.join(free)}) = {value.c};"))
    return p


def stencil(rng: Random) -> Program:
    """Steps in time over a line or a plane: the neighbours' values of the step before, or, in place, of this one where it has them."""
    p, kind = Program("stencil"), rng.choice(["f32", "f64"])
    rank, steps, reach = rng.choice([1, 2, 2]), rng.choice([10, 30, 60]), rng.choice([1, 1, 2])
    shape = (rng.choice([4001, 30000, 200000]),) if rank == 1 else (rng.choice([60, 200, 300]), rng.choice([64, 127, 300]))
    names = "ij"[:rank]
    near = [(d,) for d in range(-reach, reach + 1)] if rank == 1 else [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    points = rng.sample(near, rng.randint(2, min(len(near), 6)))
    in_place = rng.random() < 0.3
    p.inputs["a"] = Tensor(shape, kind)
    p.outputs["y"] = Tensor(shape, kind)
    source = rng.random() < 0.3
    if source:
        p.inputs["b"] = Tensor(shape, kind)

    def at(step: str, point: tuple[int, ...]) -> Both:
        places = [f"{v} {'-' if d < 0 else '+'} {abs(d)}" if d else v for v, d in zip(names, point, strict=True)]
        return Both(f"u[{step}, {', '.join(places)}]", f"u({', '.join(places)})")

    terms = []
    for point in points:
        step = "t + 1" if in_place and point < (0,) * rank else "t"
        terms.append(binary("*", number(rng.uniform(0.5, 1.0) / len(points), kind), at(step, point)))
    value = terms[0]
    for term in terms[1:]:
        value = binary(rng.choice("++-"), value, term)
    if source:
        value = binary("+", value, binary("*", number(0.1, kind), p.read("b", *names)))
    where = ", ".join(f"{v} in {reach}..{n - reach}" for v, n in zip(names, shape, strict=True))
    own = ", ".join(names)
    p.clauses += [
        f"u[0, {own}] = a[{own}]",
        f"u[t + 1, {own}] = {value.tl}   for t in 0..{steps}, {where}",
        f"u[t + 1, {own}] = u[t, {own}]   otherwise",
        f"y[{own}] = u[{steps}, {own}]",
    ]
    whole = [Loop(v, "0", str(n)) for v, n in zip(names, shape, strict=True)]
    inner = [Loop(v, str(reach), str(n - reach)) for v, n in zip(names, shape, strict=True)]
    p.kept["u"] = Tensor(shape, kind)
    if in_place:
        step = nest(inner, f"u({own}) = {value.c};")
    else:
        p.kept["w"] = Tensor(shape, kind)
        step = nest(inner, f"w({own}) = {value.c};") + nest(inner, f"u({own}) = w({own});")
        if steps % 2 == 0:  # there and back, as the suite's programs do
            back = value.c.replace("u(", "w(")
            p.statements.append(nest(whole, f"w({own}) = a({own});"))
            step = nest(inner, f"w({own}) = {value.c};") + nest(inner, f"u({own}) = {back};")
            steps //= 2
    p.statements += [nest(whole, f"u({own}) = a({own});"), nest([Loop("t", "0", str(steps))], step), nest(whole, f"y({own}) = u({own});")]
    return p


def chain(rng: Random) -> Program:
    """One to three states that go along a line, each from its last values, those of the others and what is read."""
    p, kind = Program("chain"), rng.choice(["f32", "f64", "i32", "i64"])
    n, count = rng.choice([10000, 40000, 200000]), rng.choice([1, 1, 2, 3])
    arrays = [p.input(kind, (n,)) for _ in range(rng.choice([1, 1, 2]))]
    states, down = ["s", "r", "q"][:count], rng.random() < 0.2
    before, other = ("i + 1", n - 1) if down else ("i - 1", 0)
    updates = []
    for s in states:
        terms = [p.read(v, before) for v in rng.sample(states, rng.randint(1, count))]
        if p.read(s, before) not in terms and rng.random() < 0.8:
            terms.append(p.read(s, before))
        terms += [p.read(a, "i") for a in rng.sample(arrays, rng.randint(1, len(arrays)))]
        rng.shuffle(terms)
        match rng.choice(["linear", "choice", "bounded"]):
            case "linear" if kind[0] == "f":
                value = binary("*", number(rng.uniform(0.1, 0.5), kind), terms[0])
                for t in terms[1:]:
                    value = binary(rng.choice("+-"), value, binary("*", number(rng.uniform(0.1, 0.4), kind), t))
            case "choice":
                condition = binary(rng.choice(["<", ">"]), terms[0], terms[-1])
                value = choice(condition, rng.choice(terms), binary(rng.choice("+-"), terms[0], terms[-1]))
            case _:
                value = mixed(rng, terms, kind, choices=False)
        limit = number(rng.choice([10, 50, 1000]), kind)
        if rng.random() < 0.7 or kind[0] == "f":
            value = call("min", call("max", value, Both(f"-{limit.tl}", f"-{limit.c}")), limit)
        updates.append((s, value))
    last = rng.random() < 0.3
    for s, value in updates:
        p.clauses.append(f"{s}[{other}] = {p.read(arrays[0], str(other)).tl}")
        p.clauses.append(f"{s}[i] = {value.tl}   for i in {'0..' + str(n - 1) if down else '1..' + str(n)}")
        if last:
            p.clauses.append(f"y{s} = {s}[{n - 1 if not down else 0}]")
            p.outputs[f"y{s}"] = Tensor((), kind)
        else:
            p.outputs[s] = Tensor((n,), kind)
    loop = Loop("i", "0", str(n - 1), True) if down else Loop("i", "1", str(n))
    c_type = _c_type(Tensor((), kind))
    start = "".join(f"{c_type} v{s} = {arrays[0]}({other}); " + ("" if last else f"{s}({other}) = v{s}; ") for s in states)
    body = ""
    for s, value in updates:
        text = value.c
        for v in states:
            text = text.replace(f"{v}({before})", f"v{v}")
        body += f"{c_type} n{s} = {text}; "
    body += "".join(f"v{s} = n{s}; " + ("" if last else f"{s}(i) = n{s}; ") for s in states)
    p.statements.append(start + nest([loop], body) + "".join(f"y{s}() = v{s};" for s in states if last))
    return p


def dynamic(rng: Random) -> Program:
    """A table of two indices, each entry from some of those above, before and beside it."""
    p, kind = Program("dynamic"), rng.choice(["f32", "i32", "i32", "f64"])
    m, n = rng.choice([200, 300, 700]), rng.choice([128, 333, 900])
    near = rng.sample([("i - 1", "j"), ("i", "j - 1"), ("i - 1", "j - 1"), ("i - 1", "j + 1"), ("i - 2", "j")], rng.randint(1, 3))
    up, beside = 2 if ("i - 2", "j") in near else 1, 1 if ("i - 1", "j + 1") in near else 0
    a, b, w = p.input(kind, (m,)), p.input(kind, (n,)), p.input(kind, (m, n))
    cost = rng.choice(
        [
            p.read(w, "i", "j"),
            magnitude(binary("-", p.read(a, "i"), p.read(b, "j"))),
            choice(binary("<", p.read(a, "i"), p.read(b, "j")), number(1, kind), number(-2, kind)),
        ]
    )
    olds = [p.read("t", *place) for place in near]
    value = olds[0]
    for old in olds[1:]:
        old = binary("+", old, number(rng.choice([1, 2]), kind)) if rng.random() < 0.5 else old
        value = call(rng.choice(["min", "max"]), value, old)
    value = binary("+", value, cost) if rng.random() < 0.7 else call("max", value, cost)
    p.outputs["t"] = Tensor((m, n), kind)
    inner = [Loop("i", str(up), str(m)), Loop("j", "1", str(n - beside))]
    whole = [Loop("i", "0", str(m)), Loop("j", "0", str(n))]
    p.clauses += [
        f"t[i, j] = {value.tl}   for i in {up}..{m}, j in 1..{n - beside}",
        f"t[i, j] = {w}[i, j]   otherwise",
    ]
    p.statements += [nest(whole, f"t(i, j) = {w}(i, j);"), nest(inner, f"t(i, j) = {value.c};")]
    return p


def scans(rng: Random) -> Program:
    """Running values along one axis of a matrix, and what is made of them: by rows, by columns, with sums of each."""
    p, kind = Program("scans"), rng.choice(["f32", "f64", "i32"])
    m, n = rng.choice([(40, 3000), (300, 300), (2000, 65), (7, 20000)])
    a = p.input(kind, (m, n))
    along_rows, down = rng.random() < 0.5, rng.random() < 0.25
    extent, index = (n, "j") if along_rows else (m, "i")
    before = f"{index} + 1" if down else f"{index} - 1"
    place = ("i", before) if along_rows else (before, "j")
    first = str(extent - 1 if down else 0)
    begin = ("i", first) if along_rows else (first, "j")
    new, old = p.read(a, "i", "j"), p.read("s", *place)
    value = rng.choice(
        [
            binary("+", old, new),
            call("max", old, new),
            binary("+", binary("*", number(0.9, kind), old), binary("*", number(0.1, kind), new))
            if kind[0] == "f"
            else call("min", old, new),
            call("max", number(0, kind), binary("+", old, new)),
            choice(binary(">", new, number(0, kind)), binary("+", old, number(1, kind)), number(0, kind)),
        ]
    )
    if kind == "i32" and value == binary("+", old, new):
        value = binary("-", new, old)
    around = Loop("i", "0", str(m)) if along_rows else Loop("j", "0", str(n))
    scan = Loop(index, "0", str(extent - 1), True) if down else Loop(index, "1", str(extent))
    p.clauses += [
        f"s[{', '.join(begin)}] = {a}[{', '.join(begin)}]   for {around.name} in 0..{around.end}",
        f"s[i, j] = {value.tl}   for {around.name} in 0..{around.end}, {index} in {scan.first}..{scan.end}",
    ]
    loops = [around, scan] if along_rows else [scan, around]
    p.kept["s"] = Tensor((m, n), kind)
    p.statements += [nest([around], f"s({', '.join(begin)}) = {a}({', '.join(begin)});"), nest(loops, f"s(i, j) = {value.c};")]
    s, total = p.read("s", "i", "j"), Both("z[i]", "z(i)")
    after = rng.choice(["itself", "difference", "sum", "share"])
    if after == "itself":
        p.outputs["s"] = p.kept.pop("s")
    elif after == "difference":
        p.outputs["y"] = Tensor((m, n), kind)
        p.assign(p.read("y", "i", "j"), binary("-", s, new), [Loop("i", "0", str(m)), Loop("j", "0", str(n))])
    else:
        p.kept["z"] = Tensor((m,), kind)
        p.clauses.append(f"z[i] = sum(j in 0..{n}) s[i, j]   for i in 0..{m}")
        step = f"{_c_type(p.kept['z'])} v = 0; {nest([Loop('j', '0', str(n))], 'v += s(i, j);')} z(i) = v;"
        p.statements.append(nest([Loop("i", "0", str(m))], step))
        if after == "sum":
            p.outputs["z"] = p.kept.pop("z")
        else:
            p.outputs["y"] = Tensor((m, n), kind)
            value = binary("-", binary("*", s, number(2, kind)), total)
            p.assign(p.read("y", "i", "j"), value, [Loop("i", "0", str(m)), Loop("j", "0", str(n))])
    return p


def windows(rng: Random) -> Program:
    """Two or three filters one after the other over a plane, with what lies outside taken from the rim, or nothing."""
    p, kind = Program("windows"), rng.choice(["f32", "f32", "f64", "i32"])
    m, n = rng.choice([(100, 130), (400, 300), (800, 640)])
    p.inputs["a"] = Tensor((m, n), kind)
    last = "a"
    count = rng.choice([1, 2, 3])
    for stage in range(count):
        name = "y" if stage == count - 1 else f"v{stage}"
        (p.outputs if name == "y" else p.kept)[name] = Tensor((m, n), kind)
        near = rng.sample([(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)], rng.randint(2, 7))
        terms = []
        for a, b in near:
            i, j = (f"{v} {'-' if d < 0 else '+'} {abs(d)}" if d else v for v, d in (("i", a), ("j", b)))
            terms.append(Both(f"{last}[{i}, {j} | clamp]", f"{last}(clamp({i}, {m}), clamp({j}, {n}))"))
        style = rng.choice(["blur", "extreme", "median", "edge"])
        value = terms[0]
        for t in terms[1:]:
            if style == "extreme":
                value = call("max", value, t)
            elif style == "median":
                value = call(rng.choice(["min", "max"]), value, t)
            else:
                value = binary("-" if style == "edge" and rng.random() < 0.5 else "+", value, t)
        if style == "edge":
            value = magnitude(value)
        if kind[0] == "f" and style in {"blur", "edge"}:
            value = binary("*", value, number(1 / len(terms), kind))
        if rng.random() < 0.3:
            value = binary("-", value, Both(f"{last}[i, j]", f"{last}(i, j)"))
        p.assign(p.read(name, "i", "j"), value, [Loop("i", "0", str(m)), Loop("j", "0", str(n))])
        last = name
    return p


def indexed(rng: Random) -> Program:
    """Rows, or single elements, that are found by numbers, and sums and maxima of those that belong to a number."""
    p, kind = Program("indexed"), rng.choice(["f32", "f64", "i32"])
    (width, n), things = rng.choice([(1, 100000), (8, 5000), (64, 1000)]), rng.choice([16, 300, 5000])
    ids = p.input("i64" if rng.random() < 0.5 else "i32", (n,), things)
    style = rng.choice(["gather", "sum", "max", "count", "both"])
    if style in {"gather", "both"}:
        a = p.input(kind, (things, width))
        b = p.input(kind, (n, width))
        value = mixed(rng, [Both(f"{a}[{ids}[i], j]", f"{a}({ids}(i), j)"), p.read(b, "i", "j")], kind)
        p.outputs["y"] = Tensor((n, width), kind)
        p.assign(p.read("y", "i", "j"), value, [Loop("i", "0", str(n)), Loop("j", "0", str(width))])
    if style == "count":
        p.outputs["z"] = Tensor((things,), "i32")
        p.clauses.append(f"z[g] = sum(i in 0..{n}, {ids}[i] == g) i32(1)   for g in 0..{things}")
        p.statements += [nest([Loop("g", "0", str(things))], "z(g) = 0;"), nest([Loop("i", "0", str(n))], f"z({ids}(i)) += 1;")]
    if style in {"sum", "max", "both"}:
        c = p.input(kind, (n, width))
        p.outputs["z"] = Tensor((things, width), kind)
        whole = [Loop("g", "0", str(things)), Loop("j", "0", str(width))]
        each = [Loop("i", "0", str(n)), Loop("j", "0", str(width))]
        reducer = "max" if style == "max" else "sum"
        start = ", from 0" if reducer == "max" else ""
        p.clauses.append(f"z[g, j] = {reducer}(i in 0..{n}, {ids}[i] == g{start}) {c}[i, j]   for g in 0..{things}, j in 0..{width}")
        step = f"z({ids}(i), j) += {c}(i, j);" if reducer == "sum" else f"z({ids}(i), j) = max(z({ids}(i), j), {c}(i, j));"
        p.statements += [nest(whole, "z(g, j) = 0;"), nest(each, step)]
    return p


def solving(rng: Random) -> Program:
    """Triangular systems, for one or many right-hand sides, and factorisations, the matrix as it is or transposed."""
    p, kind = Program("solving"), rng.choice(["f32", "f64", "f64"])
    n, many = rng.choice([200, 300, 500]), rng.choice([0, 0, 5, 64])
    turned, down = rng.random() < 0.4, rng.random() < 0.4
    a = "a"
    p.inputs[a] = Tensor((n, n), kind)
    entry: Callable[[str, str], Both] = lambda i, k: p.read(a, k, i) if turned else p.read(a, i, k)  # noqa: E731
    scale = 4.0 * n
    low, high = ("i + 1", str(n)) if down else ("0", "i")
    column = ["j"] if many else []
    b = p.input(kind, (n, many) if many else (n,))
    p.outputs["x"] = Tensor((n, many) if many else (n,), kind)
    product = binary("*", entry("i", "k"), p.read("x", "k", *column))
    diagonal = binary("+", entry("i", "i"), number(scale, kind))
    loops = [Loop("i", "0", str(n), down), *([Loop("j", "0", str(many))] if many else [])]
    own, given = p.read("x", "i", *column), p.read(b, "i", *column)
    rest = Both(f"({given.tl} - (sum(k in {low}..{high}) {product.tl}))", f"({given.c} - v)")
    value = binary("/", rest, diagonal)
    p.clauses.append(f"{own.tl} = {value.tl}   for {', '.join(f'{v.name} in {v.first}..{v.end}' for v in loops)}")
    body = f"{_c_type(p.outputs['x'])} v = 0; {nest([Loop('k', low, high)], f'v += {product.c};')} {own.c} = {value.c};"
    p.statements.append(nest(loops, body))
    return p


def moves(rng: Random) -> Program:
    """Elements moved and mixed: axes in another order, backwards, every second one, one half of a matrix."""
    p, kind = Program("moves"), rng.choice(["f32", "f64", "i32"])
    rank = rng.choice([1, 2, 2, 3])
    planes, spaces = [(300, 700), (1000, 33), (512, 512)], [(30, 50, 60), (100, 8, 90), (9, 100, 64)]
    extents = {1: (200000,), 2: rng.choice(planes), 3: rng.choice(spaces)}[rank]
    names = "ijk"[:rank]
    terms = []
    for _ in range(rng.choice([1, 2, 2])):
        order = rng.sample(range(rank), rank)
        shape, places = [extents[k] for k in order], [names[k] for k in order]
        axis, turn = rng.randrange(rank), rng.choice(["", "", "back", "second", "third"])
        if turn == "back":
            places[axis] = f"{shape[axis] - 1} - {places[axis]}"
        elif turn:
            step = 2 if turn == "second" else 3
            places[axis] = f"{step} * {places[axis]} + 1"
            shape[axis] = step * shape[axis] + 1
        terms.append(p.read(p.input(kind, shape), *places))
    value = mixed(rng, terms, kind)
    p.outputs["y"] = Tensor(extents, kind)
    whole = [Loop(v, "0", str(e)) for v, e in zip(names, extents, strict=True)]
    own = p.read("y", *names)
    if rank == 2 and rng.random() < 0.4:
        p.clauses.append(f"{own.tl} = {value.tl}   for i in 0..{extents[0]}, j in 0..{extents[1]}, j <= i")
        p.clauses.append(f"{own.tl} = {number(0, kind).tl}   otherwise")
        p.statements.append(nest(whole, f"{own.c} = j <= i ? {value.c} : 0;"))
    else:
        p.assign(own, value, whole)
    return p


KINDS: Mapping[str, Callable[[Random], Program]] = {
    f.__name__: f for f in (sums, stencil, chain, dynamic, scans, windows, indexed, solving, moves)
}  # fmt: skip


# ---------------------------------------------------------------- running


def drawn(seed: int, index: int, kinds: Sequence[str]) -> Program:
    """Return the program of that number, the same for the same seed and kinds."""
    rng = Random(f"{seed}/{index}")
    return KINDS[kinds[index % len(kinds)]](rng)


def arrays_of(program: Program, seed: int) -> dict[str, Array]:
    """Return arguments, small numbers all of them."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, t in program.inputs.items():
        kind = DTYPES[t.kind].numpy
        if t.things:
            made[name] = rng.integers(0, t.things, t.shape).astype(kind)
        elif t.kind[0] == "i":
            made[name] = rng.integers(-9, 10, t.shape).astype(kind)
        else:
            made[name] = rng.standard_normal(t.shape).astype(kind)
    return made


def native(program: Program, folder: Path, compiler: str, given: Mapping[str, Array], outs: Sequence[Array]) -> Callable[[], None]:
    """Return a call of the function that the C compiler makes."""
    source, library = folder / "drawn.c", folder / f"drawn{len(list(folder.iterdir()))}.so"
    source.write_text(program.c)
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(library), "-lm"], check=True)
    function = ctypes.CDLL(str(library)).drawn
    addresses = [ctypes.c_void_p(a.ctypes.data) for a in (*given.values(), *outs)]
    return lambda: function(*addresses)


def measured(program: Program, seed: int, seconds: float, compiler: str, keep: Path | None) -> dict[str, Any]:
    """Return how both sides do with a program: seconds, their ratio, the largest error; or what was refused."""
    found: dict[str, Any] = {"kind": program.kind}
    given = arrays_of(program, seed)
    ours = [np.zeros(t.shape, DTYPES[t.kind].numpy) for t in program.outputs.values()]
    theirs = [np.zeros_like(a) for a in ours]
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / "drawn.tl").write_text(program.tl + "\n")
        (keep / "drawn.c").write_text(program.c)
    try:
        operator = tensorlang.parse(program.tl, threads=1).drawn
        out = tuple(ours) if len(ours) > 1 else ours[0]
        operator(*given.values(), out=out)
    except CompileError as refused:
        return found | {"refused": str(refused)}
    with tempfile.TemporaryDirectory() as folder:
        other = native(program, Path(folder), compiler, given, theirs)
        other()
        found["error"] = max(error_of(a, b) for a, b in zip(ours, theirs, strict=True))
        found["right"] = all(error_of(a, b) <= TOLERANCE[t.kind] for a, b, t in zip(ours, theirs, program.outputs.values(), strict=True))
        run = with_threads(1, lambda: operator(*given.values(), out=out))
        a, b = paired({"tensorlang": run, compiler: other}, seconds)
    return found | {"ours": a.median, "theirs": b.median, "ratio": ratio(a, b), "mark": mark(a) or mark(b)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of programs")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=0.3, help="how long to measure each program")
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--keep", type=Path, help="write the texts of the last program here")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    options = parser.parse_args(argv)
    if options.urgent and not urgent():
        parser.error("--urgent needs the right to raise priorities")
    results = []
    for index in options.only or range(options.count):
        program = drawn(options.seed, index, options.kinds)
        found = {"number": index, **measured(program, options.seed, options.seconds, options.compiler, options.keep)}
        results.append(found)
        print(*_row(found), file=sys.stderr, flush=True)
    write(options.out, "Programs drawn at random, against C", results, _report(results))
    return 0


def _row(r: Mapping[str, Any]) -> list[str]:
    if "refused" in r:
        return [str(r["number"]), r["kind"], "refused", "", "", r["refused"].split("\n")[0]]
    times = [f"{r[side] * 1e6:.1f}" for side in ("ours", "theirs")]
    return [str(r["number"]), r["kind"], *times, f"{r['ratio']:.2f}{r['mark']}", f"{'' if r['right'] else 'WRONG '}{r['error']:.1e}"]


def _report(results: Sequence[Mapping[str, Any]]) -> str:
    ratios = [r["ratio"] for r in results if "ratio" in r]
    rows = sorted(results, key=lambda r: r.get("ratio", 0.0))
    lines = [table(["program", "kind", "ours us", "theirs us", "ratio", "error"], map(_row, rows)), ""]
    if ratios:
        high = sum(r >= LOW for r in ratios)
        lines.append(f"Geometric mean {geometric_mean(ratios):.2f} of {len(ratios)}; {high} at {LOW} or more, lowest {min(ratios):.2f}.")
    lines.append(f"Refused: {sum('refused' in r for r in results)}. Wrong: {sum(not r.get('right', True) for r in results)}.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

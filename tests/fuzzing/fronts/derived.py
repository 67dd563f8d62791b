"""What is derived for random programs of several equations, for machines with caches so small that everything is cut into pieces.

A case is a program with a few schedules: each is derived for a machine of its own, with sizes that are numbers, open, or open and expected
to be as large as some sample; or a few random directives somebody might have written, of which the rest is derived. All of them
compute what the interpreter of tensors does, natively, with pages around their arrays that nobody may touch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from guarded import Walled
from schedule_trial import first_difference, keeps_signed_zeros, native
from strategies_schedule import Arrays, random_schedule, small_arrays

from codegen.dtypes import DTYPES
from codegen.llvm.target import host
from fuzzing import written
from fuzzing.equations import SIZES, Drawn, Equations
from fuzzing.front import Outcome
from fuzzing.shrink import without_some
from stdlib.library import library
from tensorlang.backends.cpu.driver import loops_of, machine_of, plan_kernel
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.planning import Rules, Scheduled
from tensorlang.policy.complete import DERIVE
from tensorlang.policy.machine import Machine
from tensorlang.runtime.library import with_roles
from tensorlang.runtime.protocol import installed_roles
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove


@dataclass(frozen=True)
class Asked:
    """A schedule to derive. `at`: the sample of open sizes, None where sizes are numbers. `part`: the number that draws what was written
    before, 0 for nothing."""

    machine: Machine
    at: tuple[tuple[str, int], ...] | None
    part: int = 0


@dataclass(frozen=True)
class Case:
    drawn: Drawn
    sizes: tuple[tuple[str, int], ...]
    seed: int
    asked: tuple[Asked, ...] = field(default=())


class Derived:
    name = "derived"
    seconds = 60.0
    batch = 8
    share = 3.0

    def prepare(self) -> None:
        np.seterr(all="ignore")
        sys.setrecursionlimit(20000)
        installed_roles(), library()

    def draw(self, seed: int) -> Case:
        random = Random(f"derived:{seed}")
        drawn = Equations(random).drawn()
        sizes = tuple((s, n) for s, n in _sizes(random, drawn.least).items())
        return Case(drawn, sizes, seed % 10**6, tuple(_asked(random) for _ in range(4)))

    def run(self, case: Case) -> Outcome:
        module = load_module(parse(Source("case.tl", case.drawn.text)))
        programs: dict[bool, Program] = {}
        expected: Arrays = {}
        runs, refused, seen = 0, "", set[str]()
        for k, asked in enumerate(case.asked):
            open_ = asked.at is not None
            if open_ not in programs:
                programs[open_] = program_of(module, case, open_)
            program, sizes = programs[open_], dict(case.sizes) if open_ else {}
            inputs = arrays_of(program, sizes, case.seed)
            expected = expected or interpret(program, sizes, inputs)
            try:
                scheduled = planned_as(module, program, asked)
                lowered = loops_of(scheduled.plan, "kernel", threads=asked.machine.threads if asked.machine.threads == 1 else None)
            except CompileError as problem:
                code = problem.diagnostics[0].code
                if not asked.part:
                    return Outcome("unfounded", code, f"{asked}\n{problem}", runs)
                refused = code
                continue
            text = f"{scheduled.schedule}\n{asked.machine.threads} {open_}"
            if text in seen:
                continue
            seen.add(text)
            Walled.count = case.seed + k
            found, damage = native(program, lowered, sizes, inputs, threads=asked.machine.threads, placed=Walled)
            runs += 1
            problem_ = damage or first_difference(found, _finite(expected, found), signed_zeros=keeps_signed_zeros(scheduled.schedule))
            if problem_:
                return Outcome("wrong", problem_.split(":")[0], f"{problem_}\n{asked}\n{text}", runs)
        return Outcome("ok" if runs else "refused", refused, native=runs)

    def smaller(self, case: Case) -> Iterator[Case]:
        for asked in without_some(case.asked):
            if asked:
                yield replace(case, asked=asked)
        drawn = case.drawn
        for equations in without_some(drawn.equations):
            names = [typed.partition(":")[0] for made, _ in equations for typed in made]
            results = tuple(n for n in names if n in drawn.results) or tuple(names[-1:])
            if names:
                yield replace(case, drawn=replace(drawn, equations=equations, results=results))
        if len(drawn.results) > 1:
            for results in without_some(drawn.results):
                if results:
                    yield replace(case, drawn=replace(drawn, results=results))
        for params in without_some(drawn.params):
            yield replace(case, drawn=replace(drawn, params=params))
        if drawn.mode:
            yield replace(case, drawn=replace(drawn, mode=""))
        for k, (name, size) in enumerate(case.sizes):
            for less in sorted({0, 1, 2, size // 2, size - 1}):
                if drawn.least <= less < size:
                    yield replace(case, sizes=(*case.sizes[:k], (name, less), *case.sizes[k + 1 :]))

    def show(self, case: Case) -> str:
        return "\n".join([case.drawn.text, f"sizes {dict(case.sizes)}, arrays of {case.seed}", *map(str, case.asked)])

    def test(self, case: Case) -> str:
        module = load_module(parse(Source("case.tl", case.drawn.text)))
        program = program_of(module, case, True)
        sizes = dict(case.sizes)
        arrays = arrays_of(program, sizes, case.seed)
        schedule = ""
        for asked in case.asked:
            try:
                asked_program = program_of(module, case, asked.at is not None)
                schedule = str(planned_as(module, asked_program, asked).schedule)
            except Exception:
                continue
        named = ", ".join(f"{name}={size}" for name, size in case.sizes)
        return written.call(
            case.drawn.text,
            list(arrays.values()),
            interpret(program, sizes, arrays),
            operator="f",
            schedule=schedule,
            named=named,
        )


def program_of(module: Module, case: Case, open_: bool) -> Program:
    """Return the program for the case's sizes, or for any."""
    operator, sizes = module.operators["f"], dict(case.sizes)
    declared = [p.type for p in operator.params if isinstance(p.type, syntax.TensorType)]
    types = [ArgType(DTYPES[t.dtype], tuple(_dim(d, sizes) for d in t.dims or ())) for t in declared]
    program = instantiate(module, "f", types, sizes=sizes, symbolic=open_)
    prove(program)
    return program


def _dim(dim: syntax.Node, sizes: Mapping[str, int]) -> int:
    """Return the extent that a dimension, a sum of products of sizes and numbers, has."""
    match dim:
        case syntax.Number(text):
            return int(text)
        case syntax.Id(name):
            return sizes[name]
        case syntax.Binary(op, left, right):
            one, other = _dim(left, sizes), _dim(right, sizes)
            return one * other if op == "*" else one + other
    raise TypeError(dim)


def planned_as(module: Module, program: Program, asked: Asked) -> Scheduled:
    rules = Rules(with_roles(module, installed_roles()), None, at=dict(asked.at) if asked.at else None)
    if not asked.part:
        return plan_kernel(program, asked.machine, rules=rules)
    some = random_schedule(program, Random(asked.part), 3, {})
    part = Schedule(some.operator, some.target, (*some.directives, syntax.Directive(DERIVE)), some.instructions)
    return plan_kernel(program, asked.machine, part, rules=rules)


def _sizes(random: Random, least: int) -> dict[str, int]:
    while True:
        sizes = {s: max(least, random.choice((0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 20, 33))) for s in SIZES}
        if np.prod([max(1, s) for s in sizes.values()]) <= 1500:
            return sizes


def _asked(random: Random) -> Asked:
    machine = Machine(
        random.choice((16, 32, 64)),
        random.choice((8, 16, 32)),
        random.choice((1, 1, 2)),
        random.choice((64, 256, 1024, 4096, 1 << 20)),
        cache_bytes=random.choice((256, 4096, 1 << 16, 1 << 25)),
        target="cpu",
    )
    if random.random() < 0.2:
        machine = machine_of(host(), random.choice((1, 2)))
    at = tuple((s, random.choice((3, 17, 64, 100, 1000))) for s in SIZES) if random.random() < 0.6 else None
    return Asked(machine, at, random.randrange(1, 10**6) if random.random() < 0.25 else 0)


def arrays_of(program: Program, sizes: dict[str, int], seed: int) -> Arrays:
    arrays = small_arrays(program, sizes, seed)
    if "start" in arrays:
        arrays["start"] = np.sort(arrays["start"] + 2)
    return arrays


def _finite(expected: Arrays, found: Arrays) -> Arrays:
    """Return what is expected, and what was found where that is no number: what overflows does so in another order too."""
    out = {}
    for name, want in expected.items():
        if want.dtype.kind in "iub":
            out[name] = want
        else:
            bad = ~np.isfinite(want.astype(np.float64))
            out[name] = np.where(bad, found.get(name, want).reshape(want.shape), want).astype(want.dtype)
    return out

"""Programs of the standard library, as the checker makes them, survive every step of the tensor IR."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyhedral import affine
from polyhedral.expr import Int
from polyhedral.expr import Name as N
from tensorlang.check import definition
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.dead_code import eliminate_dead
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import prove
from tensorlang.tensor.scop import to_scop
from tensorlang.tensor.simplify import common_subexpressions, inline_all, simplify
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import caller_shape

LIBRARY = Path(__file__).parents[2] / "stdlib" / "ops"
FILES = ("linear", "recurrent")


def programs(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """Return the programs that checking a file of the library proves: each operator for several ranks."""
    seen: list[Program] = []
    monkeypatch.setattr(definition, "prove", seen.append)
    path = LIBRARY / f"{name}.tl"
    module = load_module(parse(Source(path.name, path.read_text("utf-8"))))
    for operator in sorted(module.declared):
        definition.check_operator(module, operator)
    assert seen
    return seen


@pytest.mark.parametrize("name", FILES)
def test_library_programs_are_sound_and_read_back_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in programs(name, monkeypatch):
        prove(verify(program))
        to_scop(verify(lift(program)))
        if all(isinstance(s, Int | N) for p in program.params for s in p.shape) and not any(p.grouping for p in program.params):
            assert read_back(program) == program, show(program)


def read_back(program: Program) -> Program:
    module = load_module(parse(Source("shown.tl", show(program))))
    shapes = [tuple(s.value if isinstance(s, Int) else s.name for s in p.shape if isinstance(s, Int | N)) for p in program.params]
    args = [ArgType(p.dtype, shape) for p, shape in zip(program.params, shapes, strict=True)]
    bound = {s.name for p in program.params for s in p.shape if isinstance(s, N)}
    return instantiate(module, program.name, args, sizes={s: s for s in program.sizes if s not in bound}, symbolic=True)


@pytest.mark.parametrize("name", FILES)
def test_every_pass_keeps_every_bit_of_library_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    compared = 0
    for program in programs(name, monkeypatch):
        sizes = {s: int(rng.integers(1, 4)) for s in program.sizes}
        if not affine.holds(program.context, sizes):
            continue
        arrays = {}
        for p in program.params:
            lo, hi = (int(affine.evaluate(b, sizes)) for b in p.declared_range or (Int(0), Int(3)))
            shape = caller_shape(p, sizes)
            drawn = rng.standard_normal(shape) if p.dtype.is_float else rng.integers(lo, max(hi, lo + 1), shape)
            arrays[p.name] = np.asarray(drawn).astype(p.dtype.numpy)
        before = {n: a.tobytes() for n, a in interpret(program, sizes, arrays).items()}
        smaller = simplify(eliminate_dead(inline_all(program, lambda d, uses: uses < 4)))
        for after in (smaller, common_subexpressions(program), lift(program)):
            assert {n: a.tobytes() for n, a in interpret(verify(after), sizes, arrays).items()} == before
        compared += 1
    assert compared

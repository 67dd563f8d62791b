"""A reduction that keeps the place of a term starts with its first one, where it has one and its identity gives way to all."""

from __future__ import annotations

import numpy as np
import pytest
from scheduled_programs import argument, assert_same, lowered_of, operator

from codegen.loops.printer import show as show_loops
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import is_sound
from tensorlang.tensor.walk import reduces

SIGNATURE = "x: f32[N, 5]) -> (m: f32[N], k: i64[N])"
VALUES = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0)

FLOOR = """
reducer over_zero (v1, i1) (v2, i2) from (0, -1) = if v2 > v1 or v2 == v1 and i1 < 0 then (v2, i2) else (v1, i1)
"""


def starts_with_a_term(program: Program) -> bool:
    return all(r.reducer.identity is None for d in lift(program).definitions for p in d.pieces for r in reduces(p.value))


@pytest.mark.parametrize(("name", "left"), [("first_min", ""), ("first_max", ""), ("first_min", ", q != 0"), ("first_max", ", q % 3 == 1")])
def test_the_first_of_terms_that_are_there_needs_no_identity(name: str, left: str) -> None:
    program = operator(SIGNATURE, f"m[i], k[i] = {name}(q in 0..5{left}) (x[i, q], q)")
    assert starts_with_a_term(program)
    assert all(is_sound(lift(program), d) for d in lift(program).definitions)
    x = np.random.default_rng(1).choice(VALUES, (40, 5)).astype(np.float32)
    x[:6] = np.array(VALUES, np.float32)[:, None]
    want, found = (interpret(p, {"N": 40}, {"x": x}) for p in (program, lift(program)))
    assert all(want[n].tobytes() == found[n].tobytes() for n in ("m", "k"))
    assert_same(program, proven(program, derive(program, Machine(target="cpu"))), {"N": 21})


@pytest.mark.parametrize(
    ("dtype", "place", "grows"), [("i32", "3*q + i", True), ("u8", "60*q", True), ("u8", "100*q", False), ("i8", "2 - q", False)]
)
def test_a_place_that_is_cast_grows_where_its_type_holds_it(dtype: str, place: str, *, grows: bool) -> None:
    program = operator(
        f"x: f32[N, 5]) -> (m: f32[N], k: {dtype}[N])", f"m[i], k[i] = first_max(q in 0..5) (x[i, q], {dtype}({place}))", {"N": 21}
    )
    assert starts_with_a_term(program)
    plan = proven(program, derive(program, Machine(target="cpu")))
    assert ("old1 <" not in show_loops(lowered_of(plan).function)) is grows
    assert_same(program, plan, {})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("m[i], k[i] = first_min(q in 0..5, x[i, q] > 0) (x[i, q], q)", id="data leave terms out"),
        pytest.param("m[i], k[i] = first_min(q in 0..5, q < i) (x[i, q], q)", id="a condition leaves terms out"),
        pytest.param("m[i], k[i] = first_min(q in 0..5, q > 4) (x[i, q], q)", id="a condition leaves none"),
        pytest.param("m[i], k[i] = first_min(q in 0..5, from (0, 7)) (x[i, q], q)", id="it starts from a value"),
        pytest.param("m[i], k[i] = first_min(q in 0..N) (x[q, 0], q)", id="there may be none"),
        pytest.param("m[i], k[i] = first_min(q in 0..5) (x[i, q], i64(x[i, q]))", id="no place is kept"),
    ],
)
def test_others_keep_their_identity(body: str) -> None:
    assert not starts_with_a_term(operator(SIGNATURE, body))


def test_of_a_long_range_few_points_are_looked_at() -> None:
    body = f"m[], k[] = first_min(q in 0..{10**13}, r in 0..{10**13}, q != r) (f32(q), q)"
    assert starts_with_a_term(operator("x: f32[N]) -> (m: f32[], k: i64[])", body))


def test_what_an_identity_does_not_give_way_to_is_compared_with_it() -> None:
    text = f"op f({SIGNATURE} {{ m[i], k[i] = over_zero(q in 0..5) (x[i, q], q) }}\n{FLOOR}"
    module = load_module(parse(Source("f.tl", text)))
    program = instantiate(module, "f", [argument(p, {}) for p in module.operators["f"].params], symbolic=True)
    assert not starts_with_a_term(program)


def test_terms_that_are_kept_by_what_they_are_compared_with_are_in_vectors_of_one_register() -> None:
    program = operator("x: f32[5, N]) -> (m: f32[N], k: i64[N])", "m[j], k[j] = first_min(q in 0..5) (x[q, j], q)", {"N": 300})
    schedule = derive(program, Machine(target="cpu", vector_bytes=64))
    assert "split m.j_w by 16 -> j_u, j_v" in map(show, schedule.directives)
    assert_same(program, proven(program, schedule), {})

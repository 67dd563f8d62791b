"""What registers hold of a buffer stays known while other elements of it are written, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvm_run import check, values

from codegen.llvm.emit import emit
from codegen.llvm.held import Held, HeldElements
from codegen.llvm.target import named
from codegen.loops.parser import parse
from codegen.polynomials import Poly


def reads(text: str) -> int:
    return emit(parse(text), named("x86-64-v4")).count("load <8 x double>")


def steps(rows: int, next_step: str = "(t + 1) % 2") -> str:
    """A stencil over rows that reads one step and writes the other, rows written out."""
    above, below = (f"u[{next_step}, i {side}, j]" for side in ("- 1", "+ 1"))
    inner = f"for i in 1 .. {rows - 1} unroll {rows - 2} {{ for j in 0 .. 8 vector 8 {{ u[t % 2, i, j] = {above} + {below} }} }}"
    return f"func f()(out u: f64[2, {rows}, 8]) {{ for t in 1 .. 5 serial 4 {{ {inner} }} }}"


def test_rows_of_another_step_are_read_once() -> None:
    assert reads(steps(8)) == 8
    check(steps(8), u=values("f64", 128).reshape(2, 8, 8))


def test_rows_of_the_same_step_are_read_once_where_they_are_not_written() -> None:
    text = steps(8, "t % 2")
    assert reads(text) == 7  # rows 1 to 5 are known once they are written: 0, 2; 3; 4; 5; 6; 7
    check(text, u=values("f64", 128).reshape(2, 8, 8))


def test_rows_of_an_unknown_step_are_read_anew() -> None:
    text = steps(8, "3 * t // 4 % 2")
    assert reads(text) == 12
    check(text, u=values("f64", 128).reshape(2, 8, 8))


OVERLAPPING = {
    "neighbours": "u[j + {k}] = u[j + 4] + 1.0_f64",
    "some lanes": "if index(j) < {k}_i64 {{ u[j + 2] = u[j + 4] + 1.0_f64 }}",
    "lanes apart": "u[2*j + {k}] = u[j + 20] }} for j in 0 .. 8 vector 8 {{ u[j + 20] = u[j + 4] + 1.0_f64",
}


@pytest.mark.parametrize("stored", OVERLAPPING.values(), ids=OVERLAPPING)
def test_what_is_written_over_is_read_anew(stored: str) -> None:
    loops = " ".join(f"for j in 0 .. 8 vector 8 {{ {stored.format(k=k)} }}" for k in range(5))
    check(f"func f()(out u: f64[32]) {{ {loops} }}", u=values("f64", 32))


def test_what_one_side_of_a_branch_writes_is_not_known_behind_it() -> None:
    text = """func f()(c: i32[1], out u: f64[4, 8], out y: f64[8]) {
        for j in 0 .. 8 vector 8 { y[j] = u[1, j] }
        if c[0] > 0_i32 { for j in 0 .. 8 vector 8 { u[1, j] = u[2, j] } }
        for j in 0 .. 8 vector 8 { y[j] = y[j] + u[1, j] + u[2, j] }
    }"""
    for c in (0, 1):
        check(text, c=np.array([c], np.int32), u=values("f64", 32).reshape(4, 8), y=np.zeros(8))


def elements(row: int, step: int, start: int, count: int | None) -> Held:
    return Held("y", (Poly({("i",): 1, (): row}), Poly({("j",): step, (): start})), count, count or 4, ())


ELEMENTS = st.builds(elements, st.integers(0, 2), st.sampled_from([0, 3, 16]), st.integers(0, 40), st.sampled_from([1, 4, 16, None]))


@given(st.lists(ELEMENTS, max_size=30), ELEMENTS)
def test_what_is_apart_from_what_is_written_stays_held(kept: list[Held], written: Held) -> None:
    known = HeldElements()
    for k, one in enumerate(kept):
        known.keep(one, str(k))
    known.forget(written)
    left = {one: str(k) for k, one in enumerate(kept) if one.is_apart(written)}
    assert {one: known.found(one) for one in kept if known.found(one) is not None} == left


def test_a_store_among_many_is_compared_with_its_neighbours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, is_apart, known = list[Held](), Held.is_apart, HeldElements()

    def asked(one: Held, other: Held) -> bool:
        compared.append(one)
        return is_apart(one, other)

    monkeypatch.setattr(Held, "is_apart", asked)
    for row in range(10):
        for k in range(100):
            known.keep(elements(row, 16, 16 * k, 16), f"%{row}_{k}")
    known.forget(elements(3, 16, 16 * 50 + 8, 16))
    assert compared == [elements(3, 16, 16 * k, 16) for k in (50, 51)]

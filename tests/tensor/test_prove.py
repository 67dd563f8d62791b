"""What is proven of programs, and what is said when it is not so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from strategies_tensor import conv, cumsum, definition, heat, matmul, max_of, programs, read, softmax, tensor

from codegen.dtypes import f32, i64
from polyhedral import affine
from polyhedral.expr import TRUE, Cond, Int
from polyhedral.expr import Name as N
from polyhedral.record import recording
from tensorlang.diagnostics import CompileError, Source, Span
from tensorlang.tensor.nodes import Binary, Binder, Const, Definition, Dynamic, Expr, Holds, Piece, Program, Read, Reduce, Select
from tensorlang.tensor.prove import Prover, prove

ONE = Const(1.0, f32)
HERE = Span(Source("a.tl", "y[i] = x[i + 1]"), 7, 15)


def of(*definitions: Definition, context: Cond = TRUE, sizes: tuple[str, ...] = ("n",)) -> Program:
    return Program("p", sizes, (tensor("x", f32, "n"), tensor("ids", i64, "n")), (definitions[-1].tensors[0].name,), definitions, context)


def y(*pieces: Piece | Expr) -> Definition:
    return definition(tensor("y", f32, "n"), ("i",), *pieces)


def refusal(program: Program) -> str:
    with pytest.raises(CompileError) as caught:
        prove(program)
    return str(caught.value)


@pytest.mark.parametrize("program", [matmul(), conv(), cumsum(), softmax(), heat()], ids=lambda p: p.name)
def test_sound_programs_are_proven(program: Program) -> None:
    prove(program)


def test_what_was_proven_is_proven_again_only_to_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    program, proven = of(y(read("x", "i"))), list[Definition]()
    prove(program)
    monkeypatch.setattr(Prover, "elements", lambda prover, definition: proven.append(definition))
    prove(program)
    assert proven == []
    with recording():
        prove(program)
    assert proven == list(program.definitions)


def test_what_was_proven_of_one_length_says_nothing_of_another() -> None:
    definition = y(read("x", affine.add("i", 1)))
    prove(Program("p", ("n",), (tensor("x", f32, affine.add("n", 1)),), ("y",), (definition,)))
    assert "T0301" in refusal(Program("p", ("n",), (tensor("x", f32, "n"),), ("y",), (definition,)))
    prove(of(definition, context=affine.compare("==", "n", 0)))
    assert "T0301" in refusal(of(definition))


def test_a_read_that_can_leave_its_tensor_is_shown_with_the_smallest_example() -> None:
    text = refusal(of(y(Read("x", (affine.add("i", 1),), span=HERE))))
    assert "error[T0301]: `x` is read outside its bounds when n=1" in text
    assert "axis 0 is 1 here at i=0, but has 1 element" in text and "| clamp" in text


def test_an_axis_is_in_the_bounds_of_its_own_tensor_alone() -> None:
    shorter = Program("p", ("n", "m"), (tensor("x", f32, "m"),), ("y",), (y(read("x", "i")),))
    assert "`x` is read outside its bounds when n=1, m=0" in refusal(shorter)


def test_a_condition_around_a_read_is_used() -> None:
    after = affine.add("i", 1)
    prove(of(y(Select(Holds(affine.compare("<", after, "n")), read("x", after), ONE))))
    assert "T0301" in refusal(of(y(Select(Holds(affine.compare("<", after, "n")), ONE, read("x", after)))))
    either = Binary("or", Holds(affine.compare("==", after, "n")), Binary("and", Holds(affine.compare(">", "n", 0)), Holds(TRUE)))
    assert "T0301" in refusal(of(y(Select(either, read("x", after), ONE))))
    prove(of(y(Select(either, ONE, read("x", after)))))


def test_overlapping_and_missing_clauses_are_shown() -> None:
    small, rest = affine.compare("<=", "i", 2), affine.compare(">=", "i", 2)
    assert "error[T0302]: `y[2]` is defined twice when n=3" in refusal(of(y(Piece(ONE, small), Piece(ONE, rest))))
    assert "error[T0303]: `y[3]` is not defined when n=4" in refusal(of(y(Piece(ONE, small))))
    prove(of(y(Piece(ONE, small)), context=affine.compare("<=", "n", 3)))


def test_an_element_that_depends_on_itself_is_shown() -> None:
    backwards = of(y(read("y", affine.sub(affine.sub("n", 1), "i"))))
    assert "error[T0304]: `y[0]` depends on itself when n=1" in refusal(backwards)


def test_a_cycle_through_several_tensors_is_shown_read_by_read() -> None:
    source = Source("a.tl", "y[i] = a[i]\na[i] = b[i]\nb[i] = y[i]\n")

    def copy(name: str, other: str, offset: int) -> Definition:
        return definition(tensor(name, f32, "n"), ("i",), Read(other, (N("i"),), span=Span(source, offset + 7, offset + 11)))

    assert refusal(of(copy("y", "a", 0), copy("a", "b", 12), copy("b", "y", 24))) == (
        "error[T0304]: `y[0]` depends on itself when n=1\n"
        " --> a.tl:1:8\n  |\n1 | y[i] = a[i]\n  |        ^^^^ `y[0]` needs `a[0]`\n"
        "2 | a[i] = b[i]\n  |        ---- `a[0]` needs `b[0]`\n"
        "3 | b[i] = y[i]\n  |        ---- `b[0]` needs `y[0]`\n"
        "  = help: let each element read elements that come earlier, as `y[i]` reads `y[i - 1]`, or other tensors"
    )


def test_tensors_may_define_each_other_step_by_step() -> None:
    first, later = affine.compare("==", "i", 0), affine.compare(">=", "i", 1)
    a = definition(tensor("a", f32, "n"), ("i",), Piece(read("x", "i"), first), Piece(read("y", affine.sub("i", 1)), later))
    prove(of(a, y(read("a", "i"))))


def test_a_reduction_without_identity_must_not_be_empty() -> None:
    top = Reduce(max_of(f32), (Binder("k", Int(0), N("n")),), (read("x", "k"),))
    scalar = definition(tensor("y", f32), (), top)
    assert "error[T0306]: `max` has no identity, but its range can be empty when n=0" in refusal(of(scalar))
    prove(of(scalar, context=affine.compare(">=", "n", 1)))
    prove(of(definition(tensor("y", f32), (), replace(top, init=(ONE,)))))


def test_a_pooling_window_that_always_meets_its_image_is_not_empty() -> None:
    at = affine.add(affine.scale(2, "i"), "r", -1)
    window = Reduce(max_of(f32), (Binder("r", Int(0), Int(3)),), (read("x", at),), affine.within(at, 0, "n"))
    pooled = definition(tensor("y", f32, affine.floor(affine.add("n", 1), 2)), ("i",), window)
    prove(of(pooled))
    far = definition(tensor("y", f32, "n"), ("i",), window)
    assert "T0306" in refusal(of(far))


def test_a_range_with_one_point_that_its_condition_leaves_is_not_empty() -> None:
    binders = (Binder("p", Int(0), Int(3)), Binder("q", Int(0), Int(2)))
    top = Reduce(max_of(f32), binders, (read("x", "p"),), affine.compare(">=", affine.add("p", "q"), 3))
    scalar = definition(tensor("y", f32), (), top)
    prove(of(scalar, context=affine.compare(">=", "n", 3)))
    none = replace(top, where=affine.compare(">=", affine.add("p", "q"), 4))
    assert "T0306" in refusal(of(definition(tensor("y", f32), (), none), context=affine.compare(">=", "n", 3)))


def test_an_index_from_data_needs_a_range_that_fits_or_a_check_at_run_time() -> None:
    fits = Dynamic(read("ids", "i"), Int(0), N("n"))
    prove(of(y(Read("x", (fits,)))))
    loose = Read("x", (Dynamic(read("ids", "i")),))
    prove(of(y(loose)))
    wide = Dynamic(read("ids", "i"), Int(0), affine.add("n", 1))
    assert "error[T0305]: the range 0..n + 1 of an index does not fit axis 0 of `x`" in refusal(of(y(Read("x", (wide,)))))
    clamped = Dynamic(read("ids", "i"), Int(0), affine.maximum(N("n"), Int(1)))
    prove(of(y(Read("x", (clamped,)))))
    empty = refusal(of(definition(tensor("y", f32, 3), ("i",), Read("x", (clamped,)))))
    assert "T0305" in empty and "`x` may have no elements: say that it has, `where n >= 1`" in empty


@pytest.mark.parametrize(
    ("extent", "declared", "help"),
    [
        (0, (0, 3), "`x` has no elements: say what the read is instead, `| 0` at the end of the bracket"),
        (2, (0, 3), "declare the range 0..2, or add `| clamp`"),
        ("n", (0, 3), "declare the range 0..n, or add `| clamp`, or say that it fits, `where n >= 3`"),
        ("n", (-1, 3), "declare the range 0..n, or add `| clamp`"),
        ("n", (0, affine.add("n", 1)), "declare the range 0..n, or add `| clamp`"),
    ],
)
def test_the_help_for_a_range_that_does_not_fit_asks_for_nothing_that_cannot_hold(extent, declared, help) -> None:
    ids, x = tensor("ids", i64, 4), tensor("x", f32, extent)
    lo, hi = (affine.to_expr(e) for e in declared)
    value = definition(tensor("y", f32, 4), ("i",), Read("x", (Dynamic(read("ids", "i"), lo, hi),)))
    program = Program("f", ("n",) if extent == "n" else (), (x, ids), ("y",), (value,))
    assert refusal(program).rstrip().endswith(f"= help: {help}")


@given(programs())
@settings(max_examples=30, deadline=None)
def test_random_programs_are_proven(program: Program) -> None:
    prove(program)

"""Schedules as values and as texts say the same: what one prints, the other reads."""

from __future__ import annotations

import re

import pytest
from golden_case import GOLDEN, cases, source
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduled_programs import legal, loops, written

from codegen.loops.printer import show
from tensorlang.diagnostics import CompileError, Source
from tensorlang.schedule.check import proven
from tensorlang.schedule.directives.table import DIRECTIVES, TABLE
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse

CASES = cases("schedules")


def reread(schedule: Schedule) -> Schedule:
    (declaration,) = parse(Source("again.tl", f"{schedule}\n")).declarations
    assert isinstance(declaration, sx.Schedule)
    assert all(isinstance(d, sx.Directive) for d in declaration.body)
    return Schedule(declaration.operator, declaration.target, tuple(d for d in declaration.body if isinstance(d, sx.Directive)))


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_a_schedule_that_is_printed_and_read_again_is_the_same(case):
    schedule = written(source(case)).schedule
    assert reread(schedule) == schedule


NAMES = st.sampled_from(["i", "j", "k", "io", "ii", "y.k", "s.t", "p.e.j", "d.0", "y.sum.k"])
COUNTS = st.integers(1, 512)
FRESH = st.lists(st.sampled_from(["ao", "ai", "bo", "bi"]), min_size=4, max_size=4, unique=True)


def step(s: Schedule, a: str, b: str, n: int, m: int, new: list[str]) -> list[Schedule]:
    """Return `s` with one more directive, of every kind."""
    return [
        s.split(a, n, new[:2]),
        s.tile("y", (a, b), (n, 2), new),
        s.order(a, b),
        s.fuse(a, b, "ab"),
        s.distribute("y"),
        s.distribute("y", at=a),
        s.skew(a, b, m or 1),
        s.shift(a, m),
        s.reverse(a),
        s.peel(a, n),
        s.unroll(a, b),
        s.vectorize(a),
        s.parallel(a),
        s.stream("h", "g"),
        s.at("h", a),
        s.at("h", a, "y"),
        s.root("h"),
        s.together("h", "g", into=(a, b)),
        s.inline("h", "g"),
        s.store_at("h", a),
        s.pack("x", (a, f"{b} // {n}", f"{b} % {n}", "h + 1")),
        s.pack("x", (a,), b),
        s.pack("x"),
        s.layout("h", (a, b)),
        s.fold("h", "i", n),
        s.trim(a, b),
        s.partition(a, b),
        s.cut(a, n),
        s.distribute("h.0.acc", "h.0", at=[a, b], into=["c", "d"]),
        s.affine("h", (f"{a} + {n}*{b}", f"{a} // {n}"), ("c", "d")),
        s.cut(a, [f"{b} + {n}", "N // 2"], (a, b, "c")),
        s.rfactor("k", n),
        s.rfactor("k", n, chunked=True),
        s.prefetch("a", "i", n),
        s.prefetch("a", "i", n, within=("j", "k")),
        s.flatten(),
    ]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Return any schedule that the Python interface can build; none of it needs to make sense."""
    s = Schedule("op")
    for _ in range(draw(st.integers(0, 6))):
        s = draw(st.sampled_from(step(s, draw(NAMES), draw(NAMES), draw(COUNTS), draw(st.integers(-3, 3)), draw(FRESH))))
    return s


@settings(deadline=None, max_examples=60)
@given(schedules())
def test_every_schedule_that_python_builds_can_be_printed_and_read(schedule):
    assert reread(schedule) == schedule


def test_python_can_build_every_directive():
    """By a method of its own, or as it is written."""
    own = {name for name in dir(Schedule) if not name.startswith("_")}
    assert all(Schedule("op").then(f"{name} a, b").directives[0].name == name for name in DIRECTIVES - own)
    assert len(DIRECTIVES & own) >= 38


def test_every_directive_says_how_it_is_written_and_that_is_a_line_of_a_schedule():
    for name, kind in TABLE.items():
        assert kind.name == name and re.match(rf"write `{name}( |`)", kind.shape), kind.shape
        assert kind.target in (None, "cpu", "cuda")


def test_a_directive_may_be_given_to_python_as_it_is_written():
    assert Schedule("op").then("split i by 4 -> io, ii") == Schedule("op").split("i", 4, ("io", "ii"))
    with pytest.raises(ValueError, match="not one directive"):
        Schedule("op").then("knobs m in {2, 4}")
    with pytest.raises(CompileError):
        Schedule("op").then("split by by")


def test_python_and_text_give_the_same_loops():
    found, plan = legal(source(GOLDEN / "schedules" / "register_tile.tl"))
    built = (
        Schedule("matmul")
        .tile("c", ("i", "j"), (4, 8), into=("io", "jo", "ii", "ji"))
        .order("jo", "io", "k", "ii", "ji")
        .unroll("ii")
        .vectorize("ji")
        .parallel("jo")
    )
    assert show(loops(proven(found.program, built))) == show(loops(plan))

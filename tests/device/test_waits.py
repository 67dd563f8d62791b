"""Which accesses copies leave exposed, against a definition that looks at all pairs of accesses, event by event."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.dtypes import f32
from codegen.loops.nodes import (
    Add,
    Alloc,
    Barrier,
    Buffer,
    Commit,
    For,
    Function,
    Index,
    Int,
    Load,
    Mod,
    Stmt,
    Store,
    Var,
    Wait,
)
from tensorlang.lower.barriers import exposed

THREADS, TRIPS, STAGES = 2, 4, 3


@dataclass(frozen=True)
class Move:
    """Thread t copies to, or reads from, cell `(t + beside) % THREADS` of stage `(k + ahead) % STAGES`."""

    copies: bool
    ahead: int
    beside: int


Step = Move | Commit | Wait | Barrier

steps = st.one_of(
    st.builds(Move, st.booleans(), st.integers(0, 2), st.integers(0, 1)),
    st.just(Commit()),
    st.builds(Wait, st.integers(0, 2)),
    st.just(Barrier()),
)


@dataclass(frozen=True)
class Event:
    thread: int
    time: int
    cell: tuple[int, int]
    writes: bool
    ends: int | None
    """When it is over: at once, or at a wait; None: never."""


def statement(step: Step, k: Index) -> Stmt:
    if not isinstance(step, Move):
        return step
    stage: Index = Mod(Add(k, Int(step.ahead)), Int(STAGES))
    place = (stage, Mod(Add(Var("t"), Int(step.beside)), Int(THREADS)))
    move = Store("s", place, Load("x", (Var("t"),)), later=True) if step.copies else Store("y", (Var("t"),), Load("s", place))
    return For("t", Int(0), Int(THREADS), (move,), "thread", THREADS)


def function(before: list[Step], inside: list[Step]) -> Function:
    loop = For("k", Int(0), Int(TRIPS), tuple(statement(s, Var("k")) for s in inside))
    shared = Alloc(Buffer("s", f32, (Int(STAGES), Int(THREADS)), "shared"))
    block = For("one", Int(0), Int(1), (shared, *(statement(s, Int(0)) for s in before), loop), "block.x", 1)
    params = (Buffer("x", f32, (Int(THREADS),)), Buffer("y", f32, (Int(THREADS),)))
    return Function("kernel", (), params, (block,), frozenset(("y",)))


def events(thread: int, line: list[tuple[int, Step]]) -> list[Event]:
    """Return what one thread does to shared memory."""
    waits: list[tuple[int, int]] = []
    groups = 0
    for time, (_, step) in enumerate(line):
        if isinstance(step, Commit):
            groups += 1
        elif isinstance(step, Wait):
            waits.append((time, groups - step.pending))
    found: list[Event] = []
    groups = 0
    for time, (k, step) in enumerate(line):
        if isinstance(step, Commit):
            groups += 1
        elif isinstance(step, Move):
            ends = time
            if step.copies:
                ends = next((t for t, ended in waits if t > time and ended > groups), None)
            cell = ((k + step.ahead) % STAGES, (thread + step.beside) % THREADS)
            found.append(Event(thread, time, cell, step.copies, ends))
    return found


def is_exposed(before: list[Step], inside: list[Step]) -> bool:
    """Tell whether two accesses to a cell, one a write, are unordered: the first is not over, or no barrier follows its end, before the
    second begins."""
    line = [(0, s) for s in before] + [(k, s) for k in range(TRIPS) for s in inside]
    barriers = [time for time, (_, step) in enumerate(line) if isinstance(step, Barrier)]
    every = [e for t in range(THREADS) for e in events(t, line)]
    for first, second in product(every, every):
        if first is second or first.cell != second.cell or not (first.writes or second.writes) or first.time > second.time:
            continue
        over = first.ends is not None and first.ends < second.time
        if first.thread == second.thread:
            ordered = over or not first.writes
        else:
            ordered = over and any(first.ends is not None and first.ends < b < second.time for b in barriers)
        if not ordered:
            return True
    return False


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=4), st.lists(steps, min_size=1, max_size=6))
def test_exposed_is_what_looking_at_all_pairs_finds(before, inside):
    assert (exposed(function(before, inside)) is not None) == is_exposed(before, inside)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 3), st.integers(0, 2), st.permutations(["wait", "barrier", "copy", "read"]), st.integers(0, 1))
def test_orders_of_a_pipeline_are_told_apart(stages, pending, order, beside):
    """The steps of a loop with copies ahead, in every order and with every wait: few of them are right."""
    ahead = stages - 1
    inside: list[Step] = []
    for name in order:
        match name:
            case "wait":
                inside.append(Wait(pending))
            case "barrier":
                inside.append(Barrier())
            case "copy":
                inside += [Move(True, ahead, 0), Commit()]
            case _:
                inside.append(Move(False, 0, beside))
    before: list[Step] = [s for k in range(ahead) for s in (Move(True, k, 0), Commit())]
    assert (exposed(function(before, inside)) is not None) == is_exposed(before, inside)

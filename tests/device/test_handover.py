"""What a thread beside the others may overwrite, and when they may read it, against a definition that builds all events of all threads and
looks for a way from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.dtypes import f32, i64, u64
from codegen.loops.nodes import (
    Add,
    Alloc,
    Box,
    Boxes,
    Buffer,
    Compare,
    Const,
    For,
    Function,
    If,
    IndexValue,
    Int,
    Load,
    Mod,
    Producer,
    Reclaim,
    Release,
    Stmt,
    Store,
    Var,
    WaitBoxes,
)
from codegen.loops.verify import verify
from polyhedral.verdict import Unknown
from tensorlang.lower.barriers import exposed

THREADS, TRIPS = 2, 5


@dataclass(frozen=True)
class Line:
    """The steps of an iteration k, in their order. Number `k + ahead` is landed, released and reclaimed, where `k + ahead` is not below
    `least`; a thread reads the stage of iteration `k + read`."""

    stages: int
    order: tuple[str, ...]
    landed: int
    released: int
    least: int
    reclaimed: int
    read: int

    def function(self) -> Function:
        k, stages = Var("k"), Int(self.stages)

        def at(ahead: int) -> Add:
            return Add(k, Int(ahead))

        box = Box(Load("s", (Mod(k, stages), Int(0))), Load("x", (k, Int(0))), (1, THREADS))
        read = Store("y", (Var("t"),), Load("s", (Mod(at(self.read + self.stages), stages), Var("t"))))
        steps: dict[str, Stmt] = {
            "beside": Producer((Reclaim("empty", at(self.reclaimed)), Boxes("full", k, (box,)))),
            "landed": WaitBoxes("full", at(self.landed)),
            "read": For("t", Int(0), Int(THREADS), (read,), "thread", THREADS),
            "release": If(Compare(">=", IndexValue(at(self.released)), Const(self.least, i64)), (Release("empty", at(self.released)),)),
        }
        buffers = Buffer("s", f32, (stages, Int(THREADS)), "shared"), *(Buffer(n, u64, (stages,), "shared") for n in ("full", "empty"))
        loop = For("k", Int(0), Int(TRIPS), tuple(steps[name] for name in self.order))
        block = For("one", Int(0), Int(1), (*map(Alloc, buffers), loop), "block.x", 1)
        params = Buffer("x", f32, (Int(TRIPS), Int(THREADS))), Buffer("y", f32, (Int(THREADS),))
        return Function("kernel", (), params, (block,), frozenset(("y",)))


Event = tuple[str, int, int]
"""What happens, its number or stage, and to whom: a thread, or THREADS, who is beside the others; boxes land at nobody's."""


def events(line: Line) -> list[Event]:
    """Return what happens, in the order of the text."""
    found: list[Event] = []
    everybody = range(THREADS)
    for k in range(TRIPS):
        for step in line.order:
            match step:
                case "beside":
                    found += [("reclaim", k + line.reclaimed, THREADS), ("box", k, THREADS), ("lands", k, -1)]
                case "landed":
                    found += [("landed", k + line.landed, t) for t in everybody]
                case "read":
                    found += [("read", (k + line.read) % line.stages, t) for t in everybody]
                case _ if k + line.released >= line.least:
                    found += [("release", k + line.released, t) for t in everybody]
    return found


def numbers(line: Line, what: str) -> list[int]:
    return [n for kind, n, who in events(line) if kind == what and who in (0, THREADS)]


def is_counted(line: Line) -> bool:
    """Tell whether numbers go up one by one, and each after what it stands for."""
    asked, landed, released, reclaimed = (numbers(line, what) for what in ("box", "landed", "release", "reclaim"))
    in_turn = all(sequence == list(range(len(sequence))) for sequence in (asked, landed, released))
    everything = [(kind, n) for kind, n, who in events(line) if who in (0, THREADS)]
    pairs = [("landed", "box"), ("release", "landed"), ("reclaim", "release")]
    after = all(
        (later == "reclaim" and n < 0) or (sooner, n) in everything[:k]
        for later, sooner in pairs
        for k, (kind, n) in enumerate(everything)
        if kind == later
    )
    return in_turn and len(landed) == len(asked) and after and all(n < 1 or n - 1 in reclaimed for n in reclaimed)


def is_ordered(line: Line) -> bool:
    """Tell whether of every two events that touch one cell, or count at one barrier, the first of the text comes first."""
    happened = events(line)
    after: dict[int, set[int]] = {}
    for k, (kind, n, who) in enumerate(happened):
        causes = {j for j in range(k) if happened[j][2] == who and who >= 0}
        meant = {"lands": "box", "landed": "lands", "reclaim": "release"}.get(kind)
        causes |= {j for j in range(k) if happened[j][:2] == (meant, n)}
        after[k] = causes.union(*(after[j] for j in causes)) if causes else set()
    for j, k in product(range(len(happened)), repeat=2):
        (first, one, _), (second, two, _) = happened[j], happened[k]
        match first, second:
            case ("lands", "read") | ("lands", "box") | ("read", "box") | ("landed", "box"):
                met = one % line.stages == two % line.stages
            case _:
                continue
        if met and j < k and j not in after[k]:
            return False
    return True


lines = st.integers(2, 3).flatmap(
    lambda stages: st.builds(
        Line,
        st.just(stages),
        st.permutations(["beside", "landed", "read", "release"]).map(tuple),
        st.sampled_from([0, 0, 0, -1]),
        st.sampled_from([0, 0, -1]),
        st.sampled_from([0, 0, 0, 1]),
        st.sampled_from([-stages, -stages, 1 - stages, -stages - 1]),
        st.sampled_from([0, 0, 0, -1]),
    )
)


@settings(max_examples=120, deadline=None)
@given(lines)
def test_exposed_is_what_the_events_of_all_threads_leave_unordered(line):
    function = line.function()
    verify(function)
    found = exposed(function)
    assert not isinstance(found, Unknown)
    assert (found is None) == (is_counted(line) and is_ordered(line)), found


def test_some_lines_are_right():
    right = Line(2, ("beside", "landed", "read", "release"), 0, 0, 0, -2, 0)
    assert is_counted(right) and is_ordered(right) and exposed(right.function()) is None

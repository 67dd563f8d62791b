"""A repetition as a function of LLVM IR: it runs the function of its calls turn by turn, and tells each where its memory is.

words    the bases of the caller, then those of this turn: two for each of `carried`, one for each of `rows`
turn k   reads what turn k - 1 wrote: `initial`, then `result` and `scratch` in turns
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.llvm.builder import quoted
from codegen.llvm.calls import Number, Repetition, Slot, address, loaded_bases, loaded_number
from codegen.llvm.signals import ASKED, STOPPED

COPY = """
; Copies so many bytes, from lower to higher addresses.
define internal void @copy(ptr %to, ptr %from, i64 %count) nounwind {
entry:
  %whole = and i64 %count, -8
  br label %words
words:
  %k = phi i64 [ 0, %entry ], [ %next, %word ]
  %more = icmp ult i64 %k, %whole
  br i1 %more, label %word, label %bytes
word:
  %wf = getelementptr i8, ptr %from, i64 %k
  %wt = getelementptr i8, ptr %to, i64 %k
  %w = load i64, ptr %wf, align 1
  store i64 %w, ptr %wt, align 1
  %next = add i64 %k, 8
  br label %words
bytes:
  %j = phi i64 [ %whole, %words ], [ %following, %byte ]
  %rest = icmp ult i64 %j, %count
  br i1 %rest, label %byte, label %done
byte:
  %bf = getelementptr i8, ptr %from, i64 %j
  %bt = getelementptr i8, ptr %to, i64 %j
  %b = load i8, ptr %bf, align 1
  store i8 %b, ptr %bt, align 1
  %following = add i64 %j, 1
  br label %bytes
done:
  ret void
}

; Sets so many bytes to zero.
define internal void @clear(ptr %to, i64 %count) nounwind {
entry:
  br label %bytes
bytes:
  %j = phi i64 [ 0, %entry ], [ %following, %byte ]
  %rest = icmp ult i64 %j, %count
  br i1 %rest, label %byte, label %done
byte:
  %bt = getelementptr i8, ptr %to, i64 %j
  store i8 0, ptr %bt, align 1
  %following = add i64 %j, 1
  br label %bytes
done:
  ret void
}
"""


SOON, LATE = 10_000_000, 100_000_000
"""After how many nanoseconds signals are asked for, and after how many that should have been sooner."""


def repetition_ir(r: Repetition, name: str, body: str, parameters: str, times: range | None, asks: bool) -> str:
    """Return the function `name`, which runs the function `body` of the calls of a repetition. `times`: the calls that are timed as
    beginning now, None where none is, or an outer repetition has done so. `asks`: signals may stop it (`signals.py`)."""
    lines = [
        f"define internal i32 @{quoted(name)}({parameters}) nounwind {{",
        "entry:",
        f"  %words = alloca [{r.first_base + 2 * len(r.carried) + len(r.rows)} x i64], align 8",
        *loaded_bases(_slots(r)),
        *(line for label, slot in _named_slots(r) for line in address(label, slot)),
        *(line for label, number in _numbers(r) for line in _loaded(label, number)),
        f"  call void @copy(ptr %words, ptr %bases, i64 {8 * r.first_base})",
        *_times(times),
        *_limit(r),
        *(_CLOCK if asks else ()),
        "  br label %again",
        "again:",
        "  %k = phi i64 [ 0, %entry ], [ %next, %calm ]",
        "  %go = phi i1 [ %first, %entry ], [ %more, %calm ]",
        "  %within = icmp slt i64 %k, %limit",
        "  %runs = and i1 %within, %go",
        "  br i1 %runs, label %turn, label %done",
        "turn:",
        "  store i64 %k, ptr %a.iteration, align 8",
        "  %isfirst = icmp eq i64 %k, 0",
        "  %parity = and i64 %k, 1",
        "  %odd = icmp ne i64 %parity, 0",
        *(line for j in range(len(r.carried)) for line in _carried(r, j)),
        *(line for j in range(len(r.rows)) for line in _row(r, j)),
        f"  %code = call i32 @{quoted(body)}({parameters.replace('%bases', '%words')})",
        "  %ok = icmp eq i32 %code, 0",
        "  br i1 %ok, label %ran, label %failed",
        "failed:",
        "  ret i32 %code",
        "ran:",
        "  %next = add i64 %k, 1",
        *_truth("more", "a.next", r.next_condition),
        *(_ASKED if asks else ("  br label %calm",)),
        "calm:",
        "  br label %again",
        "done:",
        "  store i64 %k, ptr %a.trip_count, align 8",
        "  %none = icmp eq i64 %k, 0",
        "  %last = and i64 %k, 1",
        "  %inplace = icmp ne i64 %last, 0",
        *(line for j in range(len(r.carried)) for line in _finished(j)),
        *(line for j, row in enumerate(r.rows) if row.written and r.most is not None for line in _cleared(j, row.backwards)),
        "  ret i32 0",
        "}",
    ]
    return "\n".join([*lines, ""])


_CLOCK = (
    "  %asked.clock = alloca [2 x i64], align 8",
    "  %asked.at = alloca i64, align 8",
    "  %asked.turn = alloca i64, align 8",
    "  %asked.stride = alloca i64, align 8",
    "  %asked.start = call i64 @now(ptr %asked.clock)",
    "  store i64 %asked.start, ptr %asked.at, align 8",
    "  store i64 1, ptr %asked.turn, align 8",
    "  store i64 1, ptr %asked.stride, align 8",
)
"""Notes when signals were last asked for, the turn before which the clock is looked at again, and how many turns lie between."""
_ASKED = (
    "  %asked.due = load i64, ptr %asked.turn, align 8",
    "  %asked.wait = icmp ult i64 %next, %asked.due",
    "  br i1 %asked.wait, label %calm, label %look",
    "look:",
    "  %asked.now = call i64 @now(ptr %asked.clock)",
    "  %asked.before = load i64, ptr %asked.at, align 8",
    "  %asked.since = sub i64 %asked.now, %asked.before",
    "  %asked.n = load i64, ptr %asked.stride, align 8",
    "  %asked.twice = mul i64 %asked.n, 2",
    f"  %asked.soon = icmp ult i64 %asked.since, {SOON}",
    "  %asked.more = add i64 %asked.n, 1",
    "  %asked.half = udiv i64 %asked.more, 2",
    f"  %asked.late = icmp ugt i64 %asked.since, {LATE}",
    "  %asked.less = select i1 %asked.late, i64 %asked.half, i64 %asked.n",
    "  %asked.m = select i1 %asked.soon, i64 %asked.twice, i64 %asked.less",
    "  store i64 %asked.m, ptr %asked.stride, align 8",
    "  %asked.then = add i64 %next, %asked.m",
    "  store i64 %asked.then, ptr %asked.turn, align 8",
    "  br i1 %asked.soon, label %calm, label %ask",
    "ask:",
    "  store i64 %asked.now, ptr %asked.at, align 8",
    f"  %asked.stop = call i32 @{ASKED}()",
    "  %asked.calm = icmp eq i32 %asked.stop, 0",
    "  br i1 %asked.calm, label %calm, label %stopped",
    "stopped:",
    f"  ret i32 {STOPPED - (1 << 32)}",
)


def _named_slots(r: Repetition) -> Iterator[tuple[str, Slot]]:
    """Yield the slots of a repetition, each with the name that its address has."""
    named = {
        "a.iteration": r.iteration,
        "a.trip_count": r.trip_count,
        "a.limit": r.limit,
        "a.condition": r.condition,
        "a.next": r.next_condition,
    }
    yield from ((label, slot) for label, slot in named.items() if slot is not None)
    for j, carried in enumerate(r.carried):
        yield from ((f"a.initial{j}", carried.initial), (f"a.result{j}", carried.result), (f"a.scratch{j}", carried.scratch))
    yield from ((f"a.rows{j}", rows.whole) for j, rows in enumerate(r.rows))


def _slots(r: Repetition) -> Iterator[Slot]:
    return (slot for _, slot in _named_slots(r))


def _numbers(r: Repetition) -> Iterator[tuple[str, int | Number]]:
    """Yield the sizes of a repetition, each with the name that it has."""
    yield from ((f"n.carried{j}", carried.size_bytes) for j, carried in enumerate(r.carried))
    yield from ((f"n.rows{j}", rows.row_bytes) for j, rows in enumerate(r.rows))
    if r.most is not None:
        yield "n.most", r.most


def _loaded(label: str, number: int | Number) -> list[str]:
    return loaded_number(f"%{label}", number) if isinstance(number, Number) else [f"  %{label} = add i64 {number}, 0"]


def _times(times: range | None) -> Iterator[str]:
    if times is None:
        return
    yield "  %clock = alloca [2 x i64], align 8"
    yield "  %now = call i64 @now(ptr %clock)"
    for number in range(2 * times.start, 2 * times.stop):
        yield f"  %time{number} = getelementptr i64, ptr %times, i64 {number}"
        yield f"  store i64 %now, ptr %time{number}, align 8"


def _limit(r: Repetition) -> list[str]:
    """Return the instructions that make `%limit` of how many turns there are at most, and `%first` of whether the first runs."""
    largest = (1 << 63) - 1
    lines = ["  %said = load i64, ptr %a.limit, align 8"] if r.limit is not None else [f"  %said = add i64 {largest}, 0"]
    lines.append("  %most = add i64 %n.most, 0" if r.most is not None else f"  %most = add i64 {largest}, 0")
    lines += ["  %less = icmp slt i64 %said, %most", "  %limit = select i1 %less, i64 %said, i64 %most"]
    return [*lines, *_truth("first", "a.condition", r.condition)]


def _truth(name: str, place: str, slot: Slot | None) -> list[str]:
    """Return the instructions that make `%name` of the truth value that lies at a place, or of one that holds where there is none."""
    if slot is None:
        return [f"  %{name} = icmp eq i64 0, 0"]
    return [f"  %{name}.byte = load i8, ptr %{place}, align 1", f"  %{name} = icmp ne i8 %{name}.byte, 0"]


def _carried(r: Repetition, j: int) -> list[str]:
    base = r.first_base + 2 * j
    return [
        f"  %before{j} = select i1 %odd, ptr %a.result{j}, ptr %a.scratch{j}",
        f"  %read{j} = select i1 %isfirst, ptr %a.initial{j}, ptr %before{j}",
        f"  %written{j} = select i1 %odd, ptr %a.scratch{j}, ptr %a.result{j}",
        *_told(f"read{j}", base),
        *_told(f"written{j}", base + 1),
    ]


def _row(r: Repetition, j: int) -> list[str]:
    number = "%k"
    lines = []
    if r.rows[j].backwards:
        lines = [f"  %left{j} = sub i64 %most, %k", f"  %number{j} = sub i64 %left{j}, 1"]
        number = f"%number{j}"
    lines += [f"  %offset{j} = mul i64 {number}, %n.rows{j}", f"  %row{j} = getelementptr i8, ptr %a.rows{j}, i64 %offset{j}"]
    return [*lines, *_told(f"row{j}", r.first_base + 2 * len(r.carried) + j)]


def _told(pointer: str, base: int) -> list[str]:
    return [f"  %{pointer}.w = getelementptr i64, ptr %words, i64 {base}", f"  store ptr %{pointer}, ptr %{pointer}.w, align 8"]


def _finished(j: int) -> list[str]:
    """Return the instructions that bring what is carried where it is to be in the end."""
    return [
        f"  %last{j} = select i1 %none, ptr %a.initial{j}, ptr %a.scratch{j}",
        f"  %bytes{j} = select i1 %inplace, i64 0, i64 %n.carried{j}",
        f"  call void @copy(ptr %a.result{j}, ptr %last{j}, i64 %bytes{j})",
    ]


def _cleared(j: int, backwards: bool) -> list[str]:
    """Return the instructions that make rows zero which no turn has written: the last ones, or, where turns go backwards, the first."""
    return [
        f"  %done{j} = mul i64 %k, %n.rows{j}",
        f"  %all{j} = mul i64 %most, %n.rows{j}",
        f"  %rest{j} = sub i64 %all{j}, %done{j}",
        f"  %from{j} = getelementptr i8, ptr %a.rows{j}, i64 {0 if backwards else f'%done{j}'}",
        f"  call void @clear(ptr %from{j}, i64 %rest{j})",
    ]

"""Which thread ran which iterations of parallel loops, and when, for traces of models.

    tl_parallel(body, context, begin, end)    hands on to the pool's (`codegen.llvm.pool`), and notes each piece while there is room

Linked in the place of the pool's entry it sees every region of the kernels beside it. Times are nanoseconds of the monotonic clock, that of
`run_timed` (`codegen.llvm.program`).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.llvm.jit import Library
from codegen.llvm.program import NOW
from codegen.llvm.target import Target

Array = np.ndarray[Any, Any]

UNTRACED = "tl_parallel_untraced"
"""What the pool's entry is called beside the trace."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Iterations `first` up to `last` of a parallel loop, run by one thread (0 is the caller) in the time [begin, end), in nanoseconds."""

    thread: int
    begin: int
    end: int
    first: int
    last: int


def trace_ir(target: Target) -> str:
    """Return the trace as LLVM IR; it imports the pool's entry under the name `UNTRACED`."""
    return _TRACE.replace("<TRIPLE>", target.triple).replace("<NOW>", NOW).replace("<POOL>", UNTRACED)


def traced(library: Library, room: int) -> tuple[Array, _Head]:
    """Let the trace of a library note at most `room` pieces from now on, in rows of the array that is returned; with 0, none."""
    head = _Head.from_address(library.address("tl_trace"))
    rows = np.zeros((room, 5), np.int64)
    head.rows, head.room, head.count = rows.ctypes.data, room, 0
    return rows, head


def pieces(rows: Array, head: _Head) -> tuple[Piece, ...]:
    """Return what was noted in `rows`, in the order it ended."""
    return tuple(Piece(*map(int, row)) for row in rows[: min(head.count, head.room)])


class _Head(ctypes.Structure):
    """What the trace writes into: the address of rows, how many there are, and how many pieces have been run."""

    _fields_ = (("rows", ctypes.c_uint64), ("room", ctypes.c_int64), ("count", ctypes.c_int64))


_TRACE = """
target triple = "<TRIPLE>"

declare i32 @clock_gettime(i32, ptr)
declare void @<POOL>(ptr, ptr, i64, i64)

%head = type { ptr, i64, i64 }
%job = type { ptr, ptr }

@tl_trace = global %head zeroinitializer, align 64
<NOW>
define internal void @noted(ptr %job, i64 %begin, i64 %end, i64 %thread) nounwind {
entry:
  %clock = alloca [2 x i64], align 8
  %body = load ptr, ptr %job
  %cp = getelementptr %job, ptr %job, i64 0, i32 1
  %context = load ptr, ptr %cp
  %rp = getelementptr %head, ptr @tl_trace, i64 0, i32 1
  %room = load i64, ptr %rp
  %records = icmp ne i64 %room, 0
  br i1 %records, label %measure, label %run
run:
  call void %body(ptr %context, i64 %begin, i64 %end, i64 %thread)
  ret void
measure:
  %t0 = call i64 @now(ptr %clock)
  call void %body(ptr %context, i64 %begin, i64 %end, i64 %thread)
  %t1 = call i64 @now(ptr %clock)
  %np = getelementptr %head, ptr @tl_trace, i64 0, i32 2
  %row = atomicrmw add ptr %np, i64 1 monotonic
  %fits = icmp slt i64 %row, %room
  br i1 %fits, label %write, label %done
write:
  %rows = load ptr, ptr @tl_trace
  %at = getelementptr [5 x i64], ptr %rows, i64 %row
  store i64 %thread, ptr %at
  %p1 = getelementptr i64, ptr %at, i64 1
  store i64 %t0, ptr %p1
  %p2 = getelementptr i64, ptr %at, i64 2
  store i64 %t1, ptr %p2
  %p3 = getelementptr i64, ptr %at, i64 3
  store i64 %begin, ptr %p3
  %p4 = getelementptr i64, ptr %at, i64 4
  store i64 %end, ptr %p4
  br label %done
done:
  ret void
}

define void @tl_parallel(ptr %body, ptr %context, i64 %begin, i64 %end) nounwind {
entry:
  %job = alloca %job, align 8
  store ptr %body, ptr %job
  %cp = getelementptr %job, ptr %job, i64 0, i32 1
  store ptr %context, ptr %cp
  call void @<POOL>(ptr @noted, ptr %job, i64 %begin, i64 %end)
  ret void
}
"""

"""The threads that run parallel loops: one pool per process, shared by all kernels.

    tl_parallel(body, context, begin, end)    run body(context, b, e, thread) on pieces [b, e) of [begin, end); returns when all are done
    tl_set_threads(n)                         use n threads from the next region on (the caller is thread 0)

A region is cut into pieces, eight per thread, that threads *claim* from an atomic counter, the caller among them. So nobody waits for
a thread that has not started, and a busy processor costs its share of the work rather than a barrier. Workers spin for a while after a
region, then sleep in a futex; the next region wakes them. Worker k is pinned to the k-th processor that the process may use; the caller
is not pinned, and a worker that it meets on its processor changes places with it: two spinning threads on one processor would halve both.

    state    generation << 48 | threads << 40 | pieces << 20 | claimed      replaced as a whole when a region starts

A claim is a compare-and-swap of `state`, so it holds for the very region it was computed for. A region that starts while another one
runs (from another thread of the program) runs on its caller alone.

The pool is itself emitted as LLVM IR: it needs no C compiler where it runs. After a fork the child starts its own workers; when the
interpreter exits the workers are joined before their code goes away.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from functools import cache

from codegen.llvm.cache import Cache, cache_key
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.target import Target, host

MAX_THREADS = 128
_SPINS = 20_000
"""How often a thread looks for work, or for the end of a region, before it gives its processor away: then others take a time slice."""
_PIECES_PER_THREAD = 8


def set_threads(count: int) -> int:
    """Use `count` threads for parallel loops from now on and return how many that is: at least 1, at most the processors allowed."""
    return int(_functions().set_threads(max(1, min(count, available_threads()))))


def threads() -> int:
    """Return how many threads parallel loops use."""
    return int(_functions().get_threads())


def available_threads() -> int:
    """Return how many processors this process may use."""
    return min(len(_processors()), MAX_THREADS)


def wake() -> None:
    """Wake sleeping workers, so that the parallel loops that follow shortly find them ready."""
    _functions().wake()


def pool_imports() -> dict[str, int]:
    """Return the addresses that objects with parallel loops link to."""
    return _functions().imports


class _Functions:
    """The pool's entry points, loaded."""

    def __init__(self, library: Library) -> None:
        count = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
        self.library = library
        self.set_threads = count(library.address("tl_set_threads"))
        self.get_threads = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("tl_get_threads"))
        self.wake = ctypes.CFUNCTYPE(None)(library.address("tl_wake"))
        self.forked = ctypes.PYFUNCTYPE(None)(library.address("tl_forked"))
        self.stop = ctypes.CFUNCTYPE(None)(library.address("tl_stop"))
        self.imports = {"tl_parallel": library.address("tl_parallel"), "tl_wake": library.address("tl_wake")}


_LOCK = threading.Lock()


def _functions() -> _Functions:
    with _LOCK:
        return _loaded()


@cache
def _loaded() -> _Functions:
    functions = _Functions(load([_object(host())]))
    processors = (ctypes.c_int32 * MAX_THREADS).from_address(functions.library.address("tl_processors"))
    for i in range(MAX_THREADS):
        processors[i] = -1
    for i, processor in enumerate(_processors()[:MAX_THREADS]):
        processors[i] = processor
    functions.set_threads(available_threads())
    os.register_at_fork(after_in_child=functions.forked)
    atexit.register(functions.stop)
    return functions


def _object(target: Target) -> bytes:
    text = pool_ir(target)
    store = Cache()
    key = cache_key(["pool", text], target)
    data = store.get(key)
    if data is None:
        data = compile_object(text, target)
        store.put(key, data)
    return data


def _processors() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pool_ir(target: Target) -> str:
    """Return the pool as LLVM IR."""
    pause, futex = ("call void @llvm.x86.sse2.pause()", 202) if target.is_x86 else ("call void @llvm.aarch64.hint(i32 1)", 98)
    declare = "declare void @llvm.x86.sse2.pause()" if target.is_x86 else "declare void @llvm.aarch64.hint(i32)"
    text = _POOL
    for mark, value in (
        ("TRIPLE", target.triple),
        ("DECLARE_PAUSE", declare),
        ("PAUSE", pause),
        ("FUTEX", str(futex)),
        ("SPINS", str(_SPINS)),
        ("MAX", str(MAX_THREADS)),
        ("PIECES", str(_PIECES_PER_THREAD)),
    ):
        text = text.replace(f"<{mark}>", value)
    return text


_POOL = """
target triple = "<TRIPLE>"

<DECLARE_PAUSE>
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getcpu()
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

%job = type { ptr, ptr, i64, i64 }

@state = internal global i64 0, align 64
@done = internal global i64 0, align 64
@sleepers = internal global i32 0, align 64
@bell = internal global i32 0, align 64
@job = internal global %job zeroinitializer, align 64
@busy = internal global i32 0, align 64
@stopping = internal global i32 0, align 64
@active = internal global i64 1
@started = internal global i64 1
@handles = internal global [<MAX> x i64] zeroinitializer
@tl_processors = global [<MAX> x i32] zeroinitializer

; Claim a piece and run it. False when there is nothing to claim.
define internal i1 @take(i64 %thread) noinline nounwind {
entry:
  br label %again
again:
  %s = load atomic i64, ptr @state acquire, align 8
  %claimed = and i64 %s, 1048575
  %s1 = lshr i64 %s, 20
  %pieces = and i64 %s1, 1048575
  %s2 = lshr i64 %s, 40
  %threads = and i64 %s2, 255
  %left = icmp ult i64 %claimed, %pieces
  %mine = icmp ult i64 %thread, %threads
  %may = and i1 %left, %mine
  br i1 %may, label %try, label %none
try:
  %next = add i64 %s, 1
  %swap = cmpxchg ptr @state, i64 %s, i64 %next acq_rel acquire
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %again
run:
  %body = load ptr, ptr @job
  %cp = getelementptr %job, ptr @job, i64 0, i32 1
  %context = load ptr, ptr %cp
  %bp = getelementptr %job, ptr @job, i64 0, i32 2
  %begin = load i64, ptr %bp
  %np = getelementptr %job, ptr @job, i64 0, i32 3
  %count = load i64, ptr %np
  %m0 = mul i64 %claimed, %count
  %d0 = udiv i64 %m0, %pieces
  %b = add i64 %begin, %d0
  %c1 = add i64 %claimed, 1
  %m1 = mul i64 %c1, %count
  %d1 = udiv i64 %m1, %pieces
  %e = add i64 %begin, %d1
  call void %body(ptr %context, i64 %b, i64 %e, i64 %thread)
  %old = atomicrmw add ptr @done, i64 1 release
  ret i1 true
none:
  ret i1 false
}

; The calling thread is on processor %cpu: the worker pinned there, if any, takes the processor the caller was thought to be on.
define internal void @settle(i32 %cpu) noinline nounwind {
entry:
  %mask = alloca [128 x i8], align 8
  %left = load i32, ptr @tl_processors
  br label %loop
loop:
  %k = phi i64 [ 1, %entry ], [ %k1, %next ]
  %end = icmp uge i64 %k, <MAX>
  br i1 %end, label %done, label %look
look:
  %p = getelementptr i32, ptr @tl_processors, i64 %k
  %there = load i32, ptr %p
  %found = icmp eq i32 %there, %cpu
  br i1 %found, label %swap, label %next
next:
  %k1 = add i64 %k, 1
  br label %loop
swap:
  store i32 %cpu, ptr @tl_processors
  store i32 %left, ptr %p
  %have = load i64, ptr @started
  %running = icmp ult i64 %k, %have
  %byte = lshr i32 %left, 3
  %known = icmp ult i32 %byte, 128
  %move = and i1 %running, %known
  br i1 %move, label %pin, label %done
pin:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %bit = and i32 %left, 7
  %bits = shl i32 1, %bit
  %bits8 = trunc i32 %bits to i8
  %byte64 = zext i32 %byte to i64
  %mp = getelementptr i8, ptr %mask, i64 %byte64
  store i8 %bits8, ptr %mp
  %hp = getelementptr i64, ptr @handles, i64 %k
  %handle = load i64, ptr %hp
  %moved = call i32 @pthread_setaffinity_np(i64 %handle, i64 128, ptr %mask)
  br label %done
done:
  ret void
}

define internal ptr @worker(ptr %argument) nounwind {
entry:
  %mask = alloca [128 x i8], align 8
  %thread = ptrtoint ptr %argument to i64
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %pp = getelementptr i32, ptr @tl_processors, i64 %thread
  %cpu = load i32, ptr %pp
  %byte = lshr i32 %cpu, 3
  %known = icmp ult i32 %byte, 128
  br i1 %known, label %pin, label %loop
pin:
  %bit = and i32 %cpu, 7
  %bits = shl i32 1, %bit
  %bits8 = trunc i32 %bits to i8
  %byte64 = zext i32 %byte to i64
  %mp = getelementptr i8, ptr %mask, i64 %byte64
  store i8 %bits8, ptr %mp
  %pinned = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %loop
loop:
  %idle = phi i64 [ 0, %entry ], [ 0, %pin ], [ 0, %loop ], [ %idle1, %spin ], [ 0, %awake ]
  %ran = call i1 @take(i64 %thread)
  br i1 %ran, label %loop, label %check
check:
  %stop = load atomic i32, ptr @stopping acquire, align 4
  %stops = icmp ne i32 %stop, 0
  br i1 %stops, label %exit, label %count
count:
  %idle1 = add i64 %idle, 1
  %tired = icmp ugt i64 %idle1, <SPINS>
  br i1 %tired, label %doze, label %spin
spin:
  <PAUSE>
  br label %loop
doze:
  %o1 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %heard = load atomic i32, ptr @bell seq_cst, align 4
  %late = call i1 @take(i64 %thread)
  %stop2 = load atomic i32, ptr @stopping seq_cst, align 4
  %stops2 = icmp ne i32 %stop2, 0
  %stay = or i1 %late, %stops2
  br i1 %stay, label %awake, label %sleep
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 <FUTEX>, ptr @bell, i32 128, i32 %heard, ptr null, ptr null, i32 0)
  br label %awake
awake:
  %o2 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %loop
exit:
  ret ptr null
}

define void @tl_wake() nounwind {
entry:
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %none = icmp eq i32 %asleep, 0
  br i1 %none, label %done, label %ring
ring:
  %o = atomicrmw add ptr @bell, i32 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 <FUTEX>, ptr @bell, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %done
done:
  ret void
}

; Start workers until there are as many as threads in use; a thread that cannot be created is done without.
define internal void @grow(i64 %threads) noinline nounwind {
entry:
  %have = load i64, ptr @started
  br label %loop
loop:
  %k = phi i64 [ %have, %entry ], [ %k1, %made ]
  %more = icmp ult i64 %k, %threads
  br i1 %more, label %make, label %done
make:
  %handle = getelementptr i64, ptr @handles, i64 %k
  %argument = inttoptr i64 %k to ptr
  %r = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr %argument)
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %done, label %made
made:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr @started
  br label %loop
done:
  ret void
}

define void @tl_parallel(ptr %body, ptr %context, i64 %begin, i64 %end) nounwind {
entry:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %enough, label %done
enough:
  %count = sub i64 %end, %begin
  %threads = load atomic i64, ptr @active monotonic, align 8
  %one = icmp ult i64 %threads, 2
  %single = icmp eq i64 %count, 1
  %alone = or i1 %one, %single
  br i1 %alone, label %serial, label %lock
lock:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %open, label %serial
serial:
  call void %body(ptr %context, i64 %begin, i64 %end, i64 0)
  br label %done
open:
  %cpu = call i32 @sched_getcpu()
  %mine = load i32, ptr @tl_processors
  %moved = icmp ne i32 %cpu, %mine
  br i1 %moved, label %place, label %ready
place:
  call void @settle(i32 %cpu)
  br label %ready
ready:
  %have = load i64, ptr @started
  %short = icmp ult i64 %have, %threads
  br i1 %short, label %more, label %publish
more:
  call void @grow(i64 %threads)
  br label %publish
publish:
  store ptr %body, ptr @job
  %cp = getelementptr %job, ptr @job, i64 0, i32 1
  store ptr %context, ptr %cp
  %bp = getelementptr %job, ptr @job, i64 0, i32 2
  store i64 %begin, ptr %bp
  %np = getelementptr %job, ptr @job, i64 0, i32 3
  store i64 %count, ptr %np
  store atomic i64 0, ptr @done monotonic, align 8
  %most = mul i64 %threads, <PIECES>
  %pieces = call i64 @llvm.umin.i64(i64 %count, i64 %most)
  %s = load atomic i64, ptr @state monotonic, align 8
  %g0 = lshr i64 %s, 48
  %g1 = add i64 %g0, 1
  %g2 = shl i64 %g1, 48
  %t2 = shl i64 %threads, 40
  %p2 = shl i64 %pieces, 20
  %n0 = or i64 %g2, %t2
  %n1 = or i64 %n0, %p2
  %previous = atomicrmw xchg ptr @state, i64 %n1 seq_cst
  call void @tl_wake()
  br label %work
work:
  %ran = call i1 @take(i64 0)
  br i1 %ran, label %work, label %wait
wait:
  %spins = phi i64 [ 0, %work ], [ %spins1, %spin ], [ 0, %yield ]
  %finished = load atomic i64, ptr @done acquire, align 8
  %all = icmp eq i64 %finished, %pieces
  br i1 %all, label %unlock, label %again
again:
  %spins1 = add i64 %spins, 1
  %tired = icmp ugt i64 %spins1, <SPINS>
  br i1 %tired, label %yield, label %spin
spin:
  <PAUSE>
  br label %wait
yield:
  %y = call i32 @sched_yield()
  br label %wait
unlock:
  store atomic i32 0, ptr @busy release, align 4
  br label %done
done:
  ret void
}

define i64 @tl_set_threads(i64 %n) nounwind {
entry:
  store atomic i64 %n, ptr @active monotonic, align 8
  ret i64 %n
}

define i64 @tl_get_threads() nounwind {
entry:
  %n = load atomic i64, ptr @active monotonic, align 8
  ret i64 %n
}

; In the child of a fork no worker exists.
define void @tl_forked() nounwind {
entry:
  store i64 0, ptr @state
  store i32 0, ptr @sleepers
  store i32 0, ptr @busy
  store i64 1, ptr @started
  ret void
}

define void @tl_stop() nounwind {
entry:
  store atomic i64 1, ptr @active monotonic, align 8
  store atomic i32 1, ptr @stopping seq_cst, align 4
  call void @tl_wake()
  %have = load i64, ptr @started
  br label %loop
loop:
  %k = phi i64 [ 1, %entry ], [ %k1, %join ]
  %more = icmp ult i64 %k, %have
  br i1 %more, label %join, label %done
join:
  %hp = getelementptr i64, ptr @handles, i64 %k
  %handle = load i64, ptr %hp
  %r = call i32 @pthread_join(i64 %handle, ptr null)
  %k1 = add i64 %k, 1
  br label %loop
done:
  store i64 1, ptr @started
  ret void
}
"""

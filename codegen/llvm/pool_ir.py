"""The pool of threads as LLVM IR; `pool` says how it works."""

from __future__ import annotations

from codegen.llvm.target import Target

MAX_THREADS = 127
_SPINS = 20_000
"""How often a thread looks for work, or for the end of a region, before it gives its processor away: then others take a time slice."""
_PIECES_PER_THREAD = 64
"""A thread claims half of what is left at a time, so the last piece, which another may have to wait for, is this part of a share."""


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

@state = internal global i64 0, align 128
@homes = internal global [<MAX> x [16 x i64]] zeroinitializer, align 128
@done = internal global i64 0, align 128
@sleepers = internal global i32 0, align 128
@bell = internal global i32 0, align 64
@job = internal global %job zeroinitializer, align 128
@busy = internal global i32 0, align 128
@stopping = internal global i32 0, align 64
@active = internal global i64 1
@started = internal global i64 1
@handles = internal global [<MAX> x i64] zeroinitializer
@tl_processors = global [<MAX> x i32] zeroinitializer

; Claim some pieces, of this thread's own part while there are any, and run them. Returns how many; 0 when there is nothing to claim.
define internal i64 @take(i64 %thread) noinline nounwind {
entry:
  %s = load atomic i64, ptr @state acquire, align 8
  %generation = lshr i64 %s, 26
  %pieces = and i64 %s, 8191
  %s1 = lshr i64 %s, 13
  %threads = and i64 %s1, 8191
  %mine = icmp ult i64 %thread, %threads
  br i1 %mine, label %look, label %none
look:
  %part = phi i64 [ %thread, %entry ], [ %following, %onward ]
  %home = getelementptr [16 x i64], ptr @homes, i64 %part
  br label %again
again:
  %word = load atomic i64, ptr %home acquire, align 8
  %tag = lshr i64 %word, 26
  %over = icmp ugt i64 %tag, %generation
  br i1 %over, label %none, label %here
here:
  %current = icmp eq i64 %tag, %generation
  %w1 = lshr i64 %word, 13
  %word_next = and i64 %w1, 8191
  %word_end = and i64 %word, 8191
  %f0 = mul i64 %part, %pieces
  %first = udiv i64 %f0, %threads
  %l0 = add i64 %f0, %pieces
  %last = udiv i64 %l0, %threads
  %next = select i1 %current, i64 %word_next, i64 %first
  %end = select i1 %current, i64 %word_end, i64 %last
  %some = icmp ult i64 %next, %end
  br i1 %some, label %try, label %onward
try:
  %left = sub i64 %end, %next
  %r0 = add i64 %left, 1
  %count = lshr i64 %r0, 1
  %own = icmp eq i64 %part, %thread
  %up = add i64 %next, %count
  %down = sub i64 %end, %count
  %from = select i1 %own, i64 %next, i64 %down
  %to = select i1 %own, i64 %up, i64 %end
  %rest_next = select i1 %own, i64 %up, i64 %next
  %rest_end = select i1 %own, i64 %end, i64 %down
  %n0 = shl i64 %generation, 26
  %n1 = shl i64 %rest_next, 13
  %n2 = or i64 %n0, %n1
  %claim = or i64 %n2, %rest_end
  %swap = cmpxchg ptr %home, i64 %word, i64 %claim acq_rel acquire
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %again
onward:
  %f1 = add i64 %part, 1
  %wraps = icmp uge i64 %f1, %threads
  %following = select i1 %wraps, i64 0, i64 %f1
  %round = icmp eq i64 %following, %thread
  br i1 %round, label %none, label %look
run:
  %body = load ptr, ptr @job
  %cp = getelementptr %job, ptr @job, i64 0, i32 1
  %context = load ptr, ptr %cp
  %bp = getelementptr %job, ptr @job, i64 0, i32 2
  %begin = load i64, ptr %bp
  %np = getelementptr %job, ptr @job, i64 0, i32 3
  %items = load i64, ptr %np
  %m0 = mul i64 %from, %items
  %d0 = udiv i64 %m0, %pieces
  %b = add i64 %begin, %d0
  %m1 = mul i64 %to, %items
  %d1 = udiv i64 %m1, %pieces
  %e = add i64 %begin, %d1
  call void %body(ptr %context, i64 %b, i64 %e, i64 %thread)
  ret i64 %count
none:
  ret i64 0
}

; Make %mask, of 128 bytes, the set of processor %cpu alone. Returns whether there is room for it.
define internal i1 @only(ptr %mask, i32 %cpu) nounwind {
entry:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %byte = lshr i32 %cpu, 3
  %known = icmp ult i32 %byte, 128
  br i1 %known, label %mark, label %done
mark:
  %bit = and i32 %cpu, 7
  %bits = shl i32 1, %bit
  %bits8 = trunc i32 %bits to i8
  %byte64 = zext i32 %byte to i64
  %mp = getelementptr i8, ptr %mask, i64 %byte64
  store i8 %bits8, ptr %mp
  br label %done
done:
  ret i1 %known
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
  br i1 %running, label %where, label %done
where:
  %known = call i1 @only(ptr %mask, i32 %left)
  br i1 %known, label %pin, label %done
pin:
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
  %pp = getelementptr i32, ptr @tl_processors, i64 %thread
  %cpu = load i32, ptr %pp
  %known = call i1 @only(ptr %mask, i32 %cpu)
  br i1 %known, label %pin, label %loop
pin:
  %pinned = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %loop
loop:
  %idle = phi i64 [ 0, %entry ], [ 0, %pin ], [ 0, %more ], [ %idle1, %spin ], [ 0, %awake ]
  %ran = phi i64 [ 0, %entry ], [ 0, %pin ], [ %ran1, %more ], [ 0, %spin ], [ %late, %awake ]
  %found = call i64 @take(i64 %thread)
  %any = icmp ne i64 %found, 0
  br i1 %any, label %more, label %tell
more:
  %ran1 = add i64 %ran, %found
  br label %loop
tell:
  %news = icmp ne i64 %ran, 0
  br i1 %news, label %report, label %check
report:
  %old = atomicrmw add ptr @done, i64 %ran release
  br label %check
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
  %late = call i64 @take(i64 %thread)
  %ran_late = icmp ne i64 %late, 0
  %stop2 = load atomic i32, ptr @stopping seq_cst, align 4
  %stops2 = icmp ne i32 %stop2, 0
  %stay = or i1 %ran_late, %stops2
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

; What follows uses so many threads and has parallel loops.
define void @tl_begin(i64 %n) nounwind {
entry:
  store atomic i64 %n, ptr @active monotonic, align 8
  call void @tl_wake()
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
  %m0 = mul i64 %threads, <PIECES>
  %most = call i64 @llvm.umin.i64(i64 %m0, i64 8191)
  %pieces = call i64 @llvm.umin.i64(i64 %count, i64 %most)
  %s = load atomic i64, ptr @state monotonic, align 8
  %g0 = lshr i64 %s, 26
  %g1 = add i64 %g0, 1
  %g2 = shl i64 %g1, 26
  %t2 = shl i64 %threads, 13
  %n0 = or i64 %g2, %t2
  %n1 = or i64 %n0, %pieces
  %previous = atomicrmw xchg ptr @state, i64 %n1 seq_cst
  call void @tl_wake()
  br label %work
work:
  %ran = phi i64 [ 0, %publish ], [ %ran1, %work ]
  %found = call i64 @take(i64 0)
  %ran1 = add i64 %ran, %found
  %any = icmp ne i64 %found, 0
  br i1 %any, label %work, label %left
left:
  %others = sub i64 %pieces, %ran1
  br label %wait
wait:
  %spins = phi i64 [ 0, %left ], [ %spins1, %spin ], [ 0, %yield ]
  %finished = load atomic i64, ptr @done acquire, align 8
  %all = icmp eq i64 %finished, %others
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

; In the child of a fork no worker exists. Generations go on: what is left of a part counts under the one it was claimed in.
define void @tl_forked() nounwind {
entry:
  %s = load i64, ptr @state
  %g0 = lshr i64 %s, 26
  %g1 = shl i64 %g0, 26
  store i64 %g1, ptr @state
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

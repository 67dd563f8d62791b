"""The pool of threads as LLVM IR: what those of the process and those of libraries share. `pool` says how it works. It keeps to one block
of memory, so there may be several.

filled(HEAD + … + POOL, target)     the text, of which the parts in between say how a thread sleeps (`doze`) and is woken (`rouse`)

A run may enter a pool of its own: regions of the calling thread then run there. What a pool is for the threads that entered none,
`process_pool_ir` and `context_pool_ir` say.
"""

from __future__ import annotations

from codegen.llvm.target import Target

MAX_THREADS = 127
_SPINS = 20_000
"""How often a thread looks for work, or for the end of a region, before it gives its processor away: then others take a time slice."""
_PIECES_PER_THREAD = 64
"""A thread claims half of what is left at a time, so the last piece, which another may have to wait for, is this part of a share."""
_LINE = 128
MASK_BYTES = 128
"""How large sets of processors are: for 1024 of them."""


def _places() -> tuple[dict[str, int], int]:
    """Return where the fields of a pool lie, those that several threads write on cache lines of their own, and how large it is."""
    fields = {
        "STATE": 8, "HOMES": MAX_THREADS * _LINE, "DONE": 8, "SLEEPERS": 4, "BELL": 4, "JOB": 32, "BUSY": 4, "STOPPING": 4, "ACTIVE": 16,
        "ENTERED": 4, "OWNER": 4, "ALLOWED": MASK_BYTES, "AVOIDED": 8,
        "HANDLES": 8 * MAX_THREADS, "MEMBERS": 16 * MAX_THREADS, "PROCESSORS": 4 * MAX_THREADS, "MUTEX": _LINE, "CONDITION": _LINE,
        "CALLBACK": 24,
    }  # fmt: skip
    places, at = {}, 0
    for name, size in fields.items():
        places[name] = at
        at += -(-size // _LINE) * _LINE
    places["STARTED"] = places["ACTIVE"] + 8
    places["AVOIDS"] = places["AVOIDED"] + 4
    places["SHORT"] = places["CALLBACK"] + 16
    return places, at


PLACES, POOL_BYTES = _places()
"""Where the fields of a pool lie, in bytes, and how large it is."""


_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
"""What tells a processor that a thread waits for another; elsewhere nothing does."""


def filled(text: str, target: Target) -> str:
    """Return the text of pools with its marks in place of what they stand for."""
    declare, pause = _PAUSES.get(target.family, ("", ""))
    marks = {
        "TRIPLE": target.triple,
        "DECLARE_PAUSE": declare,
        "PAUSE": pause,
        "FUTEX": "202" if target.is_x86 else "98",
        "SPINS": str(_SPINS),
        "MAX": str(MAX_THREADS),
        "PIECES": str(_PIECES_PER_THREAD),
        "BYTES": str(POOL_BYTES),
        **{f"{name}_AT": str(at) for name, at in PLACES.items()},
    }
    for mark, value in marks.items():
        text = text.replace(f"<{mark}>", value)
    return text


HEAD = """
target triple = "<TRIPLE>"

<DECLARE_PAUSE>
declare i32 @sched_yield()
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getcpu()
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)

@key = internal global i32 0
@running = internal global i64 0

%job = type { ptr, ptr, i64, i64 }
"""

POOL = """
; Regions of the calling thread run on this pool from now on; on none of its own where it is null. Returns which it was before.
define ptr @tl_pool_enter(ptr %pool) nounwind {
entry:
  %k = load i32, ptr @key
  %before = call ptr @pthread_getspecific(i32 %k)
  %r = call i32 @pthread_setspecific(i32 %k, ptr %pool)
  call void @count(ptr %pool, i32 1)
  ret ptr %before
}

; The run for which the calling thread entered a pool is over: its regions run on the pool %before again.
define void @tl_pool_leave(ptr %before) nounwind {
entry:
  %k = load i32, ptr @key
  %pool = call ptr @pthread_getspecific(i32 %k)
  %r = call i32 @pthread_setspecific(i32 %k, ptr %before)
  call void @count(ptr %pool, i32 -1)
  ret void
}

; So many runs more are on %pool. Workers of pools that no run is on do not wait for one while others have work.
define internal void @count(ptr %pool, i32 %runs) nounwind {
entry:
  %there = icmp ne ptr %pool, null
  br i1 %there, label %add, label %done
add:
  %at.entered = getelementptr i8, ptr %pool, i64 <ENTERED_AT>
  %o1 = atomicrmw add ptr %at.entered, i32 %runs monotonic
  %wide = sext i32 %runs to i64
  %o2 = atomicrmw add ptr @running, i64 %wide monotonic
  br label %done
done:
  ret void
}

; Whether a worker is to sleep at once when it finds nothing to do: no run is on its pool, and there are some on others.
define internal i1 @in_the_way(ptr %pool) nounwind {
entry:
  %at.entered = getelementptr i8, ptr %pool, i64 <ENTERED_AT>
  %here = load atomic i32, ptr %at.entered monotonic, align 4
  %all = load atomic i64, ptr @running monotonic, align 8
  %none = icmp eq i32 %here, 0
  %some = icmp ne i64 %all, 0
  %r = and i1 %none, %some
  ret i1 %r
}

; The pool that the calling thread entered, null for none.
define internal ptr @entered() nounwind {
entry:
  %k = load i32, ptr @key
  %pool = call ptr @pthread_getspecific(i32 %k)
  ret ptr %pool
}

; Claim some pieces, of this thread's own part while there are any, and run them. Returns how many; 0 when there is nothing to claim.
define internal i64 @take(ptr %pool, i64 %thread) noinline nounwind {
entry:
  %at.state = getelementptr i8, ptr %pool, i64 <STATE_AT>
  %at.homes = getelementptr i8, ptr %pool, i64 <HOMES_AT>
  %at.job = getelementptr i8, ptr %pool, i64 <JOB_AT>
  %s = load atomic i64, ptr %at.state acquire, align 8
  %generation = lshr i64 %s, 26
  %pieces = and i64 %s, 8191
  %s1 = lshr i64 %s, 13
  %threads = and i64 %s1, 8191
  %mine = icmp ult i64 %thread, %threads
  br i1 %mine, label %look, label %none
look:
  %part = phi i64 [ %thread, %entry ], [ %following, %onward ]
  %home = getelementptr [16 x i64], ptr %at.homes, i64 %part
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
  %body = load ptr, ptr %at.job
  %cp = getelementptr %job, ptr %at.job, i64 0, i32 1
  %context = load ptr, ptr %cp
  %bp = getelementptr %job, ptr %at.job, i64 0, i32 2
  %begin = load i64, ptr %bp
  %np = getelementptr %job, ptr %at.job, i64 0, i32 3
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
define internal void @settle(ptr %pool, i32 %cpu) noinline nounwind {
entry:
  %at.started = getelementptr i8, ptr %pool, i64 <STARTED_AT>
  %at.handles = getelementptr i8, ptr %pool, i64 <HANDLES_AT>
  %at.processors = getelementptr i8, ptr %pool, i64 <PROCESSORS_AT>
  %mask = alloca [128 x i8], align 8
  %left = load i32, ptr %at.processors
  br label %loop
loop:
  %k = phi i64 [ 1, %entry ], [ %k1, %next ]
  %end = icmp uge i64 %k, <MAX>
  br i1 %end, label %done, label %look
look:
  %p = getelementptr i32, ptr %at.processors, i64 %k
  %there = load i32, ptr %p
  %found = icmp eq i32 %there, %cpu
  br i1 %found, label %swap, label %next
next:
  %k1 = add i64 %k, 1
  br label %loop
swap:
  store i32 %cpu, ptr %at.processors
  store i32 %left, ptr %p
  %have = load i64, ptr %at.started
  %running = icmp ult i64 %k, %have
  br i1 %running, label %where, label %done
where:
  %known = call i1 @only(ptr %mask, i32 %left)
  br i1 %known, label %pin, label %done
pin:
  %hp = getelementptr i64, ptr %at.handles, i64 %k
  %handle = load i64, ptr %hp
  %moved = call i32 @pthread_setaffinity_np(i64 %handle, i64 128, ptr %mask)
  br label %done
done:
  ret void
}

; The calling thread is on processor %cpu: workers may run on all others that are allowed.
define internal void @avoid(ptr %pool, i32 %cpu) noinline nounwind {
entry:
  %mask = alloca [128 x i8], align 8
  %at.started = getelementptr i8, ptr %pool, i64 <STARTED_AT>
  %at.handles = getelementptr i8, ptr %pool, i64 <HANDLES_AT>
  %at.allowed = getelementptr i8, ptr %pool, i64 <ALLOWED_AT>
  %at.avoided = getelementptr i8, ptr %pool, i64 <AVOIDED_AT>
  store i32 %cpu, ptr %at.avoided
  %known = call i1 @only(ptr %mask, i32 %cpu)
  %have = load i64, ptr %at.started
  br label %words
words:
  %w = phi i64 [ 0, %entry ], [ %w1, %words ]
  %mp = getelementptr i64, ptr %mask, i64 %w
  %ap = getelementptr i64, ptr %at.allowed, i64 %w
  %here = load i64, ptr %mp
  %all = load i64, ptr %ap
  %not = xor i64 %here, -1
  %others = and i64 %all, %not
  store i64 %others, ptr %mp
  %w1 = add i64 %w, 1
  %more_words = icmp ult i64 %w1, 16
  br i1 %more_words, label %words, label %loop
loop:
  %k = phi i64 [ 1, %words ], [ %k1, %set ]
  %more = icmp ult i64 %k, %have
  br i1 %more, label %set, label %done
set:
  %hp = getelementptr i64, ptr %at.handles, i64 %k
  %handle = load i64, ptr %hp
  %r = call i32 @pthread_setaffinity_np(i64 %handle, i64 128, ptr %mask)
  %k1 = add i64 %k, 1
  br label %loop
done:
  ret void
}

define internal ptr @worker(ptr %argument) nounwind {
entry:
  %mask = alloca [128 x i8], align 8
  %pool = load ptr, ptr %argument, align 8
  %np = getelementptr i64, ptr %argument, i64 1
  %thread = load i64, ptr %np, align 8
  %at.done = getelementptr i8, ptr %pool, i64 <DONE_AT>
  %at.sleepers = getelementptr i8, ptr %pool, i64 <SLEEPERS_AT>
  %at.bell = getelementptr i8, ptr %pool, i64 <BELL_AT>
  %at.stopping = getelementptr i8, ptr %pool, i64 <STOPPING_AT>
  %at.processors = getelementptr i8, ptr %pool, i64 <PROCESSORS_AT>
  %pp = getelementptr i32, ptr %at.processors, i64 %thread
  %cpu = load i32, ptr %pp
  %known = call i1 @only(ptr %mask, i32 %cpu)
  br i1 %known, label %pin, label %loop
pin:
  %pinned = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %loop
loop:
  %idle = phi i64 [ 0, %entry ], [ 0, %pin ], [ 0, %more ], [ %idle1, %spin ], [ 0, %awake ]
  %ran = phi i64 [ 0, %entry ], [ 0, %pin ], [ %ran1, %more ], [ 0, %spin ], [ %late, %awake ]
  %found = call i64 @take(ptr %pool, i64 %thread)
  %any = icmp ne i64 %found, 0
  br i1 %any, label %more, label %tell
more:
  %ran1 = add i64 %ran, %found
  br label %loop
tell:
  %news = icmp ne i64 %ran, 0
  br i1 %news, label %report, label %check
report:
  %old = atomicrmw add ptr %at.done, i64 %ran release
  br label %check
check:
  %stop = load atomic i32, ptr %at.stopping acquire, align 4
  %stops = icmp ne i32 %stop, 0
  br i1 %stops, label %exit, label %count
count:
  %idle1 = add i64 %idle, 1
  %tired = icmp ugt i64 %idle1, <SPINS>
  %obstructs = call i1 @in_the_way(ptr %pool)
  %rests = or i1 %tired, %obstructs
  br i1 %rests, label %doze, label %spin
spin:
  <PAUSE>
  br label %loop
doze:
  %o1 = atomicrmw add ptr %at.sleepers, i32 1 seq_cst
  %heard = load atomic i32, ptr %at.bell seq_cst, align 4
  %late = call i64 @take(ptr %pool, i64 %thread)
  %ran_late = icmp ne i64 %late, 0
  %stop2 = load atomic i32, ptr %at.stopping seq_cst, align 4
  %stops2 = icmp ne i32 %stop2, 0
  %stay = or i1 %ran_late, %stops2
  br i1 %stay, label %awake, label %sleep
sleep:
  call void @doze(ptr %pool, i32 %heard)
  br label %awake
awake:
  %o2 = atomicrmw sub ptr %at.sleepers, i32 1 seq_cst
  br label %loop
exit:
  ret ptr null
}

define internal void @pool_wake(ptr %pool) nounwind {
entry:
  %at.sleepers = getelementptr i8, ptr %pool, i64 <SLEEPERS_AT>
  %at.bell = getelementptr i8, ptr %pool, i64 <BELL_AT>
  %asleep = load atomic i32, ptr %at.sleepers seq_cst, align 4
  %none = icmp eq i32 %asleep, 0
  br i1 %none, label %done, label %ring
ring:
  %o = atomicrmw add ptr %at.bell, i32 1 seq_cst
  call void @rouse(ptr %pool)
  br label %done
done:
  ret void
}

; What follows uses so many threads and has parallel loops.
define internal void @pool_begin(ptr %pool, i64 %n) nounwind {
entry:
  %at.active = getelementptr i8, ptr %pool, i64 <ACTIVE_AT>
  store atomic i64 %n, ptr %at.active monotonic, align 8
  call void @pool_wake(ptr %pool)
  ret void
}

; Start workers until there are as many as threads in use; a thread that cannot be created is done without.
define internal void @grow(ptr %pool, i64 %threads) noinline nounwind {
entry:
  %at.started = getelementptr i8, ptr %pool, i64 <STARTED_AT>
  %at.handles = getelementptr i8, ptr %pool, i64 <HANDLES_AT>
  %have = load i64, ptr %at.started
  br label %loop
loop:
  %k = phi i64 [ %have, %entry ], [ %k1, %made ]
  %more = icmp ult i64 %k, %threads
  br i1 %more, label %make, label %done
make:
  %handle = getelementptr i64, ptr %at.handles, i64 %k
  %members = getelementptr i8, ptr %pool, i64 <MEMBERS_AT>
  %argument = getelementptr [2 x i64], ptr %members, i64 %k
  store ptr %pool, ptr %argument, align 8
  %number = getelementptr i64, ptr %argument, i64 1
  store i64 %k, ptr %number, align 8
  %r = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr %argument)
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %done, label %made
made:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %at.started
  br label %loop
done:
  ret void
}

define internal void @pool_parallel(ptr %pool, ptr %body, ptr %context, i64 %begin, i64 %end) nounwind {
entry:
  %at.state = getelementptr i8, ptr %pool, i64 <STATE_AT>
  %at.done = getelementptr i8, ptr %pool, i64 <DONE_AT>
  %at.job = getelementptr i8, ptr %pool, i64 <JOB_AT>
  %at.busy = getelementptr i8, ptr %pool, i64 <BUSY_AT>
  %at.active = getelementptr i8, ptr %pool, i64 <ACTIVE_AT>
  %at.started = getelementptr i8, ptr %pool, i64 <STARTED_AT>
  %at.processors = getelementptr i8, ptr %pool, i64 <PROCESSORS_AT>
  %at.avoided = getelementptr i8, ptr %pool, i64 <AVOIDED_AT>
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %enough, label %done
enough:
  %count = sub i64 %end, %begin
  %threads = load atomic i64, ptr %at.active monotonic, align 8
  %one = icmp ult i64 %threads, 2
  %single = icmp eq i64 %count, 1
  %alone = or i1 %one, %single
  br i1 %alone, label %serial, label %lock
lock:
  %swap = cmpxchg ptr %at.busy, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %open, label %serial
serial:
  call void %body(ptr %context, i64 %begin, i64 %end, i64 0)
  br label %done
open:
  %mine = load i32, ptr %at.processors
  %free = icmp slt i32 %mine, 0
  br i1 %free, label %ready, label %find
find:
  %cpu = call i32 @sched_getcpu()
  %moved = icmp ne i32 %cpu, %mine
  br i1 %moved, label %place, label %ready
place:
  call void @settle(ptr %pool, i32 %cpu)
  br label %ready
ready:
  %have = load i64, ptr %at.started
  %short = icmp ult i64 %have, %threads
  br i1 %short, label %more, label %spread
more:
  store i32 -1, ptr %at.avoided
  call void @grow(ptr %pool, i64 %threads)
  br label %spread
spread:
  %at.avoids = getelementptr i8, ptr %pool, i64 <AVOIDS_AT>
  %avoids = load i32, ptr %at.avoids
  %stays = icmp eq i32 %avoids, 0
  br i1 %stays, label %publish, label %whereabouts
whereabouts:
  %on = call i32 @sched_getcpu()
  %was = load i32, ptr %at.avoided
  %same = icmp eq i32 %on, %was
  br i1 %same, label %publish, label %leave_it
leave_it:
  call void @avoid(ptr %pool, i32 %on)
  br label %publish
publish:
  store ptr %body, ptr %at.job
  %cp = getelementptr %job, ptr %at.job, i64 0, i32 1
  store ptr %context, ptr %cp
  %bp = getelementptr %job, ptr %at.job, i64 0, i32 2
  store i64 %begin, ptr %bp
  %np = getelementptr %job, ptr %at.job, i64 0, i32 3
  store i64 %count, ptr %np
  store atomic i64 0, ptr %at.done monotonic, align 8
  %m0 = mul i64 %threads, <PIECES>
  %most = call i64 @llvm.umin.i64(i64 %m0, i64 8191)
  %pieces = call i64 @llvm.umin.i64(i64 %count, i64 %most)
  %s = load atomic i64, ptr %at.state monotonic, align 8
  %g0 = lshr i64 %s, 26
  %g1 = add i64 %g0, 1
  %g2 = shl i64 %g1, 26
  %t2 = shl i64 %threads, 13
  %n0 = or i64 %g2, %t2
  %n1 = or i64 %n0, %pieces
  %previous = atomicrmw xchg ptr %at.state, i64 %n1 seq_cst
  call void @pool_wake(ptr %pool)
  br label %work
work:
  %ran = phi i64 [ 0, %publish ], [ %ran1, %work ]
  %found = call i64 @take(ptr %pool, i64 0)
  %ran1 = add i64 %ran, %found
  %any = icmp ne i64 %found, 0
  br i1 %any, label %work, label %left
left:
  %others = sub i64 %pieces, %ran1
  br label %wait
wait:
  %spins = phi i64 [ 0, %left ], [ %spins1, %spin ], [ 0, %yield ]
  %finished = load atomic i64, ptr %at.done acquire, align 8
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
  store atomic i32 0, ptr %at.busy release, align 4
  br label %done
done:
  ret void
}

define internal i64 @pool_set_threads(ptr %pool, i64 %n) nounwind {
entry:
  %at.active = getelementptr i8, ptr %pool, i64 <ACTIVE_AT>
  store atomic i64 %n, ptr %at.active monotonic, align 8
  ret i64 %n
}

define internal i64 @pool_get_threads(ptr %pool) nounwind {
entry:
  %at.active = getelementptr i8, ptr %pool, i64 <ACTIVE_AT>
  %n = load atomic i64, ptr %at.active monotonic, align 8
  ret i64 %n
}

; In the child of a fork no worker exists. Generations go on: what is left of a part counts under the one it was claimed in.
define internal void @pool_forked(ptr %pool) nounwind {
entry:
  %at.state = getelementptr i8, ptr %pool, i64 <STATE_AT>
  %at.sleepers = getelementptr i8, ptr %pool, i64 <SLEEPERS_AT>
  %at.busy = getelementptr i8, ptr %pool, i64 <BUSY_AT>
  %at.started = getelementptr i8, ptr %pool, i64 <STARTED_AT>
  %s = load i64, ptr %at.state
  %g0 = lshr i64 %s, 26
  %g1 = shl i64 %g0, 26
  store i64 %g1, ptr %at.state
  store i32 0, ptr %at.sleepers
  store i32 0, ptr %at.busy
  store i64 1, ptr %at.started
  %at.entered = getelementptr i8, ptr %pool, i64 <ENTERED_AT>
  store i32 0, ptr %at.entered
  store i64 0, ptr @running
  ret void
}

define internal void @pool_stop(ptr %pool) nounwind {
entry:
  %at.stopping = getelementptr i8, ptr %pool, i64 <STOPPING_AT>
  %at.active = getelementptr i8, ptr %pool, i64 <ACTIVE_AT>
  %at.started = getelementptr i8, ptr %pool, i64 <STARTED_AT>
  %at.handles = getelementptr i8, ptr %pool, i64 <HANDLES_AT>
  store atomic i64 1, ptr %at.active monotonic, align 8
  store atomic i32 1, ptr %at.stopping seq_cst, align 4
  call void @pool_wake(ptr %pool)
  %have = load i64, ptr %at.started
  br label %loop
loop:
  %k = phi i64 [ 1, %entry ], [ %k1, %join ]
  %more = icmp ult i64 %k, %have
  br i1 %more, label %join, label %done
join:
  %hp = getelementptr i64, ptr %at.handles, i64 %k
  %handle = load i64, ptr %hp
  %r = call i32 @pthread_join(i64 %handle, ptr null)
  %k1 = add i64 %k, 1
  br label %loop
done:
  store i64 1, ptr %at.started
  ret void
}
"""

"""Pools for the contexts of a library (`c_interface`) as LLVM IR: the block of each is given, it sleeps by what POSIX has, and regions find
the pool of the run that the calling thread is in."""

from __future__ import annotations

from codegen.llvm.pool_ir import HEAD, POOL, filled
from codegen.llvm.quota_ir import quota_ir
from codegen.llvm.target import Target


def context_pool_ir(target: Target, root: str = "") -> str:
    """Return pools of contexts as LLVM IR. Nothing that POSIX lacks is called but to learn of processors, and to be kept on one. `root`:
    what the paths of the files of control groups begin with."""
    return filled(HEAD + _CONDITION_SLEEP + POOL + _OF_CONTEXTS, target) + quota_ir(root)


_CONDITION_SLEEP = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_mutex_destroy(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_cond_destroy(ptr)

; Sleep until the bell has rung since it was %heard. Who rings it takes the lock afterwards, so nobody misses it in between.
define internal void @doze(ptr %pool, i32 %heard) nounwind {
entry:
  %bell = getelementptr i8, ptr %pool, i64 <BELL_AT>
  %mutex = getelementptr i8, ptr %pool, i64 <MUTEX_AT>
  %condition = getelementptr i8, ptr %pool, i64 <CONDITION_AT>
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %look
look:
  %now = load atomic i32, ptr %bell seq_cst, align 4
  %silent = icmp eq i32 %now, %heard
  br i1 %silent, label %wait, label %done
wait:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
done:
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @rouse(ptr %pool) nounwind {
entry:
  %mutex = getelementptr i8, ptr %pool, i64 <MUTEX_AT>
  %condition = getelementptr i8, ptr %pool, i64 <CONDITION_AT>
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

"""

_OF_CONTEXTS = """
declare i32 @pthread_key_delete(i32)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @getpid()

@pools = internal global i64 0
@pools.mutex = internal global [64 x i8] zeroinitializer, align 8

; There is a pool more, or one less. A process has few keys, so the library has one while it has pools. Returns 0, or what went wrong.
define internal i32 @count_pools(i64 %more) nounwind {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @pools.mutex)
  %before = load i64, ptr @pools
  %after = add i64 %before, %more
  %none.before = icmp eq i64 %before, 0
  br i1 %none.before, label %make, label %keep
make:
  %made = call i32 @pthread_key_create(ptr @key, ptr null)
  %fine = icmp eq i32 %made, 0
  br i1 %fine, label %keep, label %done
keep:
  store i64 %after, ptr @pools
  %none.after = icmp eq i64 %after, 0
  br i1 %none.after, label %drop, label %done
drop:
  %k = load i32, ptr @key
  %dropped = call i32 @pthread_key_delete(i32 %k)
  br label %done
done:
  %code = phi i32 [ %made, %make ], [ 0, %keep ], [ 0, %drop ]
  %u = call i32 @pthread_mutex_unlock(ptr @pools.mutex)
  ret i32 %code
}

define i64 @tl_pool_bytes() nounwind {
entry:
  ret i64 <BYTES>
}

; A pool in %pool, of %threads threads, or as many as there are processors to run on, no more than %most; nothing of it exists where
; %callback runs the regions. Returns 0, or what went wrong.
define i32 @tl_pool_create(ptr %pool, i64 %asked, i64 %most, i64 %pinned, ptr %callback, ptr %user) nounwind {
entry:
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %pool, i8 0, i64 <BYTES>, i1 false)
  %ke = call i32 @count_pools(i64 1)
  %failed = icmp ne i32 %ke, 0
  br i1 %failed, label %bad, label %processors
bad:
  ret i32 1
undo:
  %ku = call i32 @count_pools(i64 -1)
  ret i32 1
processors:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %a = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %places = getelementptr i8, ptr %pool, i64 <PROCESSORS_AT>
  call void @llvm.memset.p0.i64(ptr %places, i8 -1, i64 508, i1 false)
  br label %bits
bits:
  %cpu = phi i64 [ 0, %processors ], [ %cpu1, %next ]
  %seen = phi i64 [ 0, %processors ], [ %seen1, %next ]
  %wordn = lshr i64 %cpu, 6
  %wp = getelementptr i64, ptr %mask, i64 %wordn
  %word = load i64, ptr %wp
  %bit = and i64 %cpu, 63
  %shifted = lshr i64 %word, %bit
  %set = and i64 %shifted, 1
  %is = icmp ne i64 %set, 0
  %keep = icmp ne i64 %pinned, 0
  %room = icmp ult i64 %seen, <MAX>
  %w1 = and i1 %is, %keep
  %write = and i1 %w1, %room
  br i1 %write, label %note, label %next
note:
  %pp = getelementptr i32, ptr %places, i64 %seen
  %cpu32 = trunc i64 %cpu to i32
  store i32 %cpu32, ptr %pp
  br label %next
next:
  %seen1 = add i64 %seen, %set
  %cpu1 = add i64 %cpu, 1
  %more = icmp ult i64 %cpu1, 1024
  br i1 %more, label %bits, label %counted
counted:
  %none = icmp eq i64 %seen1, 0
  %there = select i1 %none, i64 1, i64 %seen1
  %granted = call i64 @quota()
  %n0 = call i64 @llvm.umin.i64(i64 %there, i64 %granted)
  %n1 = call i64 @llvm.umin.i64(i64 %n0, i64 %most)
  %own = icmp eq i64 %asked, 0
  %threads = select i1 %own, i64 %n1, i64 %asked
  %wrong = call i32 @make_bed(ptr %pool)
  %fine = icmp eq i32 %wrong, 0
  br i1 %fine, label %set_up, label %undo
set_up:
  %process = call i32 @getpid()
  %at.owner = getelementptr i8, ptr %pool, i64 <OWNER_AT>
  store i32 %process, ptr %at.owner
  %started = getelementptr i8, ptr %pool, i64 <STARTED_AT>
  store i64 1, ptr %started
  %cb = getelementptr i8, ptr %pool, i64 <CALLBACK_AT>
  store ptr %callback, ptr %cb
  %up = getelementptr i64, ptr %cb, i64 1
  store ptr %user, ptr %up
  %active = getelementptr i8, ptr %pool, i64 <ACTIVE_AT>
  store atomic i64 %threads, ptr %active monotonic, align 8
  %foreign = icmp ne ptr %callback, null
  br i1 %foreign, label %done, label %start
start:
  call void @grow(ptr %pool, i64 %threads)
  br label %done
done:
  ret i32 0
}

; What workers sleep by. Returns 0, or what went wrong.
define internal i32 @make_bed(ptr %pool) nounwind {
entry:
  %mutex = getelementptr i8, ptr %pool, i64 <MUTEX_AT>
  %m = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %condition = getelementptr i8, ptr %pool, i64 <CONDITION_AT>
  %c = call i32 @pthread_cond_init(ptr %condition, ptr null)
  %wrong = or i32 %m, %c
  ret i32 %wrong
}

; Whether the workers are those of another process, of which this one is a fork: nobody is there to be woken or waited for.
define internal i1 @is_forked(ptr %pool) nounwind {
entry:
  %at.owner = getelementptr i8, ptr %pool, i64 <OWNER_AT>
  %owner = load i32, ptr %at.owner
  %process = call i32 @getpid()
  %r = icmp ne i32 %owner, %process
  ret i1 %r
}

; A run is to enter the pool: in a fork it begins anew, and regions start workers again.
define void @tl_pool_resume(ptr %pool) nounwind {
entry:
  %at.started = getelementptr i8, ptr %pool, i64 <STARTED_AT>
  %started = load i64, ptr %at.started
  %alone = icmp ult i64 %started, 2
  br i1 %alone, label %done, label %ask
ask:
  %forked = call i1 @is_forked(ptr %pool)
  br i1 %forked, label %anew, label %done
anew:
  call void @pool_forked(ptr %pool)
  %wrong = call i32 @make_bed(ptr %pool)
  %process = call i32 @getpid()
  %at.owner = getelementptr i8, ptr %pool, i64 <OWNER_AT>
  store i32 %process, ptr %at.owner
  br label %done
done:
  ret void
}

define void @tl_pool_destroy(ptr %pool) nounwind {
entry:
  %forked = call i1 @is_forked(ptr %pool)
  br i1 %forked, label %done, label %stop
stop:
  call void @pool_stop(ptr %pool)
  %mutex = getelementptr i8, ptr %pool, i64 <MUTEX_AT>
  %m = call i32 @pthread_mutex_destroy(ptr %mutex)
  %condition = getelementptr i8, ptr %pool, i64 <CONDITION_AT>
  %c = call i32 @pthread_cond_destroy(ptr %condition)
  br label %done
done:
  %k = call i32 @count_pools(i64 -1)
  ret void
}

%region = type { ptr, ptr, i64, i64, i64, i64 }

; A number that says nothing of any other one.
define internal i64 @mixed(i64 %x) nounwind {
entry:
  %a = mul i64 %x, -7046029254386353131
  %high = lshr i64 %a, 32
  %b = xor i64 %a, %high
  %c = mul i64 %b, -4658895280553007687
  ret i64 %c
}

; A piece of a %region that a caller's loop runs: { body, context, begin, end, threads }, and the sum over the pieces that ran of
; mixed(end) - mixed(begin). That of the region comes of pieces alone of which each begins where another ends, as numbers that are mixed
; cancel against themselves alone. A piece that is empty, outside, or on no thread does not run.
define internal void @piece(ptr %region, i64 %b, i64 %e, i64 %thread) nounwind {
entry:
  %cp = getelementptr %region, ptr %region, i64 0, i32 1
  %bp = getelementptr %region, ptr %region, i64 0, i32 2
  %ep = getelementptr %region, ptr %region, i64 0, i32 3
  %tp = getelementptr %region, ptr %region, i64 0, i32 4
  %begin = load i64, ptr %bp
  %end = load i64, ptr %ep
  %threads = load i64, ptr %tp
  %after = icmp sge i64 %b, %begin
  %before = icmp sle i64 %e, %end
  %inside = and i1 %after, %before
  %some = icmp slt i64 %b, %e
  %known = icmp ult i64 %thread, %threads
  %real = and i1 %some, %known
  %right = and i1 %inside, %real
  br i1 %right, label %run, label %done
run:
  %body = load ptr, ptr %region
  %context = load ptr, ptr %cp
  call void %body(ptr %context, i64 %b, i64 %e, i64 %thread)
  %first = call i64 @mixed(i64 %b)
  %last = call i64 @mixed(i64 %e)
  %covered = sub i64 %last, %first
  %sp = getelementptr %region, ptr %region, i64 0, i32 5
  %o = atomicrmw add ptr %sp, i64 %covered release
  br label %done
done:
  ret void
}

; Whether a caller's loop left pieces of a region out, or ran some twice, since this was asked before.
define i32 @tl_pool_is_short(ptr %pool) nounwind {
entry:
  %at.short = getelementptr i8, ptr %pool, i64 <SHORT_AT>
  %short = load i32, ptr %at.short
  store i32 0, ptr %at.short
  ret i32 %short
}

define void @tl_begin(i64 %n) nounwind {
entry:
  %pool = call ptr @entered()
  %there = icmp ne ptr %pool, null
  br i1 %there, label %wake, label %done
wake:
  call void @pool_wake(ptr %pool)
  br label %done
done:
  ret void
}

define void @tl_parallel(ptr %body, ptr %context, i64 %begin, i64 %end) nounwind {
entry:
  %region = alloca %region, align 8
  %pool = call ptr @entered()
  %there = icmp ne ptr %pool, null
  br i1 %there, label %look, label %alone
look:
  %cb = getelementptr i8, ptr %pool, i64 <CALLBACK_AT>
  %callback = load ptr, ptr %cb
  %foreign = icmp ne ptr %callback, null
  br i1 %foreign, label %hand_on, label %own
hand_on:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %ask, label %done
ask:
  %up = getelementptr i64, ptr %cb, i64 1
  %user = load ptr, ptr %up
  %at.active = getelementptr i8, ptr %pool, i64 <ACTIVE_AT>
  %threads = load atomic i64, ptr %at.active monotonic, align 8
  %r0 = insertvalue %region zeroinitializer, ptr %body, 0
  %r1 = insertvalue %region %r0, ptr %context, 1
  %r2 = insertvalue %region %r1, i64 %begin, 2
  %r3 = insertvalue %region %r2, i64 %end, 3
  %r4 = insertvalue %region %r3, i64 %threads, 4
  store %region %r4, ptr %region
  call void %callback(ptr %user, ptr @piece, ptr %region, i64 %begin, i64 %end)
  %sp = getelementptr %region, ptr %region, i64 0, i32 5
  %covered = load atomic i64, ptr %sp acquire, align 8
  %first = call i64 @mixed(i64 %begin)
  %last = call i64 @mixed(i64 %end)
  %whole = sub i64 %last, %first
  %complete = icmp eq i64 %covered, %whole
  br i1 %complete, label %done, label %short
short:
  %at.short = getelementptr i8, ptr %pool, i64 <SHORT_AT>
  store i32 1, ptr %at.short
  br label %done
own:
  call void @pool_parallel(ptr %pool, ptr %body, ptr %context, i64 %begin, i64 %end)
  br label %done
alone:
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %serial, label %done
serial:
  call void %body(ptr %context, i64 %begin, i64 %end, i64 0)
  br label %done
done:
  ret void
}
"""

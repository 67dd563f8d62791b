"""The pools of this process as LLVM IR: one for all that entered none, others in blocks of memory that are given. They sleep in a futex.

i32 tl_call(entry, bases, pool)      entry(bases), whose regions run on a pool of its own
"""

from __future__ import annotations

from codegen.llvm.pool_ir import HEAD, POOL, filled
from codegen.llvm.target import Target


def process_pool_ir(target: Target) -> str:
    """Return the pools of this process as LLVM IR."""
    return filled(HEAD + _FUTEX_SLEEP + POOL + _OF_THE_PROCESS, target)


_FUTEX_SLEEP = """
declare i64 @syscall(i64, ...)

; Sleep until the bell has rung since it was %heard.
define internal void @doze(ptr %pool, i32 %heard) nounwind {
entry:
  %bell = getelementptr i8, ptr %pool, i64 <BELL_AT>
  %slept = call i64 (i64, ...) @syscall(i64 <FUTEX>, ptr %bell, i32 128, i32 %heard, ptr null, ptr null, i32 0)
  ret void
}

define internal void @rouse(ptr %pool) nounwind {
entry:
  %bell = getelementptr i8, ptr %pool, i64 <BELL_AT>
  %r = call i64 (i64, ...) @syscall(i64 <FUTEX>, ptr %bell, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}

"""

_OF_THE_PROCESS = """
@tl_pool = global [<BYTES> x i8] zeroinitializer, align 128

define i32 @tl_prepare() nounwind {
entry:
  %r = call i32 @pthread_key_create(ptr @key, ptr null)
  ret i32 %r
}

define i32 @tl_call(ptr %entry_code, ptr %bases, ptr %pool) nounwind {
entry:
  %before = call ptr @tl_pool_enter(ptr %pool)
  %code = call i32 %entry_code(ptr %bases)
  call void @tl_pool_leave(ptr %before)
  ret i32 %code
}

define void @tl_parallel(ptr %body, ptr %context, i64 %begin, i64 %end) nounwind {
entry:
  %own = call ptr @entered()
  %none = icmp eq ptr %own, null
  %pool = select i1 %none, ptr @tl_pool, ptr %own
  call void @pool_parallel(ptr %pool, ptr %body, ptr %context, i64 %begin, i64 %end)
  ret void
}

; A pool that was entered has as many threads as it was made with.
define void @tl_begin(i64 %n) nounwind {
entry:
  %own = call ptr @entered()
  %none = icmp eq ptr %own, null
  br i1 %none, label %shared, label %wake
shared:
  call void @pool_begin(ptr @tl_pool, i64 %n)
  ret void
wake:
  call void @pool_wake(ptr %own)
  ret void
}

define i64 @tl_set_threads(i64 %n) nounwind {
entry:
  %r = call i64 @pool_set_threads(ptr @tl_pool, i64 %n)
  ret i64 %r
}

define i64 @tl_get_threads() nounwind {
entry:
  %r = call i64 @pool_get_threads(ptr @tl_pool)
  ret i64 %r
}

define void @tl_forked(ptr %pool) nounwind {
entry:
  call void @pool_forked(ptr %pool)
  ret void
}

define void @tl_stop(ptr %pool) nounwind {
entry:
  call void @pool_stop(ptr %pool)
  ret void
}
"""

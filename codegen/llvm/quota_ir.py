"""What the control group of a process grants of its processors' time, asked by LLVM IR: `i64 quota()`, in processors, rounded up.

Version 2 of control groups has one file for the time and the period, version 1 has two.
"""

from __future__ import annotations

from codegen.llvm.builder import text_constant
from codegen.llvm.pool_ir import MAX_THREADS

_QUOTA_FILES = {
    "file": "/sys/fs/cgroup/cpu.max",
    "time": "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "period": "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
}
"""Where a process finds what its control group grants: in a container its own, elsewhere that of all."""


def quota_ir(root: str = "") -> str:
    """Return the function, which needs `open`, `read`, `close` and nothing else. `root`: what the paths of the files begin with."""
    files = (text_constant(f"quota.{name}", root + path) for name, path in _QUOTA_FILES.items())
    return "\n".join(files) + _QUOTA.replace("<MAX>", str(MAX_THREADS))


_QUOTA = """
declare i32 @open(ptr, i32, ...)
declare i64 @read(i32, ptr, i64)
declare i32 @close(i32)

; Read a number of %text from %at on. Returns it, 0 where there is none, and where it ends.
define internal { i64, i64 } @number(ptr %text, i64 %at, i64 %length) nounwind {
entry:
  br label %loop
loop:
  %k = phi i64 [ %at, %entry ], [ %k1, %digit ]
  %sum = phi i64 [ 0, %entry ], [ %sum1, %digit ]
  %more = icmp ult i64 %k, %length
  br i1 %more, label %look, label %done
look:
  %cp = getelementptr i8, ptr %text, i64 %k
  %c = load i8, ptr %cp
  %c64 = zext i8 %c to i64
  %d = sub i64 %c64, 48
  %is = icmp ult i64 %d, 10
  br i1 %is, label %digit, label %done
digit:
  %s10 = mul i64 %sum, 10
  %s1 = add i64 %s10, %d
  %sum1 = call i64 @llvm.umin.i64(i64 %s1, i64 1000000000000)
  %k1 = add i64 %k, 1
  br label %loop
done:
  %r0 = insertvalue { i64, i64 } undef, i64 %sum, 0
  %r1 = insertvalue { i64, i64 } %r0, i64 %k, 1
  ret { i64, i64 } %r1
}

; Read a file into the 64 bytes of %text. Returns how many bytes that are, 0 where it cannot be read.
define internal i64 @content(ptr %path, ptr %text) nounwind {
entry:
  %fd = call i32 (ptr, i32, ...) @open(ptr %path, i32 524288)
  %opened = icmp sge i32 %fd, 0
  br i1 %opened, label %take, label %none
take:
  %length = call i64 @read(i32 %fd, ptr %text, i64 64)
  %c = call i32 @close(i32 %fd)
  %some = icmp sgt i64 %length, 0
  br i1 %some, label %done, label %none
done:
  ret i64 %length
none:
  ret i64 0
}

; How many processors' time the control group grants, rounded up; as many as there can be where it grants all. Version 2 has one file for
; the time and the period, version 1 has two.
define internal i64 @quota() nounwind {
entry:
  %text = alloca [64 x i8], align 8
  %length = call i64 @content(ptr @quota.file, ptr %text)
  %first = call { i64, i64 } @number(ptr %text, i64 0, i64 %length)
  %end = extractvalue { i64, i64 } %first, 1
  %start = add i64 %end, 1
  %second = call { i64, i64 } @number(ptr %text, i64 %start, i64 %length)
  %older = icmp eq i64 %length, 0
  br i1 %older, label %separate, label %found
separate:
  %length1 = call i64 @content(ptr @quota.time, ptr %text)
  %time = call { i64, i64 } @number(ptr %text, i64 0, i64 %length1)
  %length2 = call i64 @content(ptr @quota.period, ptr %text)
  %span = call { i64, i64 } @number(ptr %text, i64 0, i64 %length2)
  br label %found
found:
  %g0 = phi { i64, i64 } [ %first, %entry ], [ %time, %separate ]
  %p0 = phi { i64, i64 } [ %second, %entry ], [ %span, %separate ]
  %granted = extractvalue { i64, i64 } %g0, 0
  %period = extractvalue { i64, i64 } %p0, 0
  %g = icmp ne i64 %granted, 0
  %p = icmp ne i64 %period, 0
  %both = and i1 %g, %p
  br i1 %both, label %divide, label %none
divide:
  %up = add i64 %granted, %period
  %up1 = sub i64 %up, 1
  %count = udiv i64 %up1, %period
  ret i64 %count
none:
  ret i64 <MAX>
}
"""

"""How a context finds the weights, and tells whether they are those of its library."""

from __future__ import annotations

from codegen.llvm.builder import bytes_text
from codegen.llvm.c_interface.context import MAGIC, Field, Option
from codegen.llvm.c_interface.description import Code, Interface
from codegen.llvm.c_interface.text import Function, by_level, signed

HEAD_BYTES = 64
CHECKSUM_STEP = 0x9E3779B97F4A7C15
"""The checksum of weights is the sum of all words of 8 bytes, word k times `k * CHECKSUM_STEP | 1`: times an odd number different words
stay different, and large steps tell places from each other."""


def weights_ir(of: Interface) -> str:
    """Return what the functions of this page call, and what the file of weights begins with."""
    head = bytes_text(of.weights_head)
    where = "" if of.weights_symbol is None else f"@{of.weights_symbol} = external hidden constant i8"
    return f"""
declare i32 @open(ptr, i32, ...)
declare i64 @lseek(i32, i64, i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @close(i32)
declare i32 @memcmp(ptr, ptr, i64)
@weights.head = internal constant [{len(of.weights_head)} x i8] c"{head}", align 64
{where}"""


def taken_ir(of: Interface) -> str:
    """Return the function that finds the weights: inside, in memory that is given, or in a file that it maps."""
    total = of.weights_bytes
    inside = f"@{of.weights_symbol}" if of.weights_symbol is not None else "null"
    offsets = [level.weights[0] if level.weights else 0 for level in of.levels]
    f = Function()
    level = f.word("%context", Field.LEVEL)
    offset = by_level(f, level, offsets)
    choose = "\n".join(f.lines)
    return f"""
define internal i32 @weights(ptr %context, ptr %options) nounwind {{
entry:
{choose}
  %gp = getelementptr i64, ptr %options, i64 {Option.WEIGHTS}
  %given = load ptr, ptr %gp, align 8
  %np = getelementptr i64, ptr %options, i64 {Option.WEIGHTS_BYTES}
  %bytes = load i64, ptr %np, align 8
  %pp = getelementptr i64, ptr %options, i64 {Option.PATH}
  %path = load ptr, ptr %pp, align 8
  %has = icmp ne ptr %given, null
  br i1 %has, label %memory, label %look
memory:
  %address = ptrtoint ptr %given to i64
  %low = and i64 %address, 63
  %aligned = icmp eq i64 %low, 0
  %large = icmp eq i64 %bytes, {total}
  %fits = and i1 %aligned, %large
  br i1 %fits, label %compare, label %changed
look:
  %named = icmp ne ptr %path, null
  br i1 %named, label %file, label %within
within:
  %inside = icmp ne ptr {inside}, null
  br i1 %inside, label %compare, label %missing
file:
  %fd = call i32 (ptr, i32, ...) @open(ptr %path, i32 524288)
  %opened = icmp sge i32 %fd, 0
  br i1 %opened, label %measure, label %missing
measure:
  %size = call i64 @lseek(i32 %fd, i64 0, i32 2)
  %whole = icmp eq i64 %size, {total}
  br i1 %whole, label %map, label %short
short:
  %c0 = call i32 @close(i32 %fd)
  br label %changed
map:
  %mapped = call ptr @mmap(ptr null, i64 {total}, i32 1, i32 1, i32 %fd, i64 0)
  %c1 = call i32 @close(i32 %fd)
  %failed = icmp eq ptr %mapped, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %missing, label %keep
keep:
  %mp = getelementptr i64, ptr %context, i64 {Field.MAPPED}
  store ptr %mapped, ptr %mp, align 8
  %mb = getelementptr i64, ptr %context, i64 {Field.MAPPED_BYTES}
  store i64 {total}, ptr %mb, align 8
  br label %compare
compare:
  %found = phi ptr [ %given, %memory ], [ {inside}, %within ], [ %mapped, %keep ]
  %own = phi i1 [ false, %memory ], [ false, %within ], [ true, %keep ]
  %order = call i32 @memcmp(ptr %found, ptr @weights.head, i64 {len(of.weights_head)})
  %same = icmp eq i32 %order, 0
  br i1 %same, label %good, label %other
other:
  br i1 %own, label %unmap, label %changed
unmap:
  %u = call i32 @munmap(ptr %found, i64 {total})
  br label %changed
good:
  %here = getelementptr i8, ptr %found, i64 {offset}
  %wp = getelementptr i64, ptr %context, i64 {Field.WEIGHTS}
  store ptr %here, ptr %wp, align 8
  ret i32 0
missing:
  ret i32 {int(Code.WEIGHTS_MISSING)}
changed:
  ret i32 {int(Code.WEIGHTS_CHANGED)}
}}
"""


def check_weights_ir(of: Interface) -> str:
    """Return the function that compares the checksum of the weights of a context with that of those that were made."""
    f = Function()
    f.require(f.new("icmp ne ptr %context, null"), Code.NULL_ARGUMENT)
    f.require(f.new(f"icmp eq i64 {f.word('%context', Field.MAGIC)}, {MAGIC}"), Code.CONTEXT)
    here = f.word("%context", Field.WEIGHTS, "ptr")
    offset = by_level(f, f.word("%context", Field.LEVEL), [-level.weights[0] if level.weights else 0 for level in of.levels])
    start = f.new(f"getelementptr i8, ptr {here}, i64 {offset}")
    f.add("br label %before")
    return (
        f"define i32 @{of.name}_check_weights(ptr %context) nounwind {{\nentry:\n"
        + "\n".join(f.lines)
        + f"""
before:
  br label %words
words:
  %k = phi i64 [ 0, %before ], [ %k1, %words ]
  %step = phi i64 [ 0, %before ], [ %step1, %words ]
  %sum = phi i64 [ 0, %before ], [ %sum1, %words ]
  %p = getelementptr i64, ptr {start}, i64 %k
  %word = load i64, ptr %p, align 8
  %factor = or i64 %step, 1
  %product = mul i64 %word, %factor
  %sum1 = add i64 %sum, %product
  %step1 = add i64 %step, {signed(CHECKSUM_STEP)}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {of.weights_bytes // 8}
  br i1 %more, label %words, label %compare
compare:
  %whole = icmp eq i64 %sum1, {signed(of.weights_checksum)}
  %code = select i1 %whole, i32 0, i32 {int(Code.WEIGHTS_CHANGED)}
  ret i32 %code
}}
"""
    )

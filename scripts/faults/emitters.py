"""Faults in the emission of LLVM IR."""

from __future__ import annotations

from faults.fault import Fault

RUNTIME = ("tests/codegen/test_llvm_runtime.py",)
KERNELS = ("tests/codegen/test_llvm_kernels.py",)
VALUES = ("tests/codegen/test_llvm_values.py",)
MATH = ("tests/codegen/test_llvm_math.py::test_extremes_over_lanes_find_nan",)

FAULTS = (
    Fault(
        "llvm-mask-not-turned",
        "codegen/llvm/memory.py",
        'mask = None if mask is None else _reversed(b, "i1", mask, lanes)',
        "mask = mask",
        "a store backwards is masked forwards",
        RUNTIME + KERNELS,
    ),
    Fault(
        "llvm-store-under-a-guard",
        "codegen/llvm/memory.py",
        "    if scope.guard is not None:\n        spare",
        "    if False:\n        spare",
        "an element that all lanes share is written whatever the condition",
        KERNELS + RUNTIME,
    ),
    Fault(
        "llvm-stale-loads",
        "codegen/llvm/memory.py",
        "    state.note_change(memory.uid, elements)\n",
        "",
        "what was loaded before a store is used after it",
        (*KERNELS, "tests/codegen/test_loops_differential.py"),
    ),
    Fault(
        "llvm-stale-lanes",
        "codegen/llvm/held.py",
        "return distance.offset >= count or -distance.offset >= other",
        "return distance.offset >= 1 or -distance.offset >= 1",
        "what was loaded stays known where a store overlaps it",
        ("tests/codegen/test_llvm_held.py",),
    ),
    Fault(
        "llvm-stale-rows",
        "codegen/llvm/held.py",
        "return distance.offset % step >= count and -distance.offset % step >= other",
        "return True",
        "rows that may be one are taken for two",
        ("tests/codegen/test_llvm_held.py",),
    ),
    Fault(
        "llvm-table-of-one-lane",
        "codegen/llvm/tables.py",
        "by_data = varies[-1:] == [True] and not any(varies[:-1])",
        "by_data = varies[-1:] == [True]",
        "all lanes pick from the row of the first",
        ("tests/codegen/test_llvm_tables.py",),
    ),
    Fault(
        "llvm-alignment",
        "codegen/llvm/addresses.py",
        "factor = gcd(memory.buffer.align, poly.multiple_of() * memory.dtype.size_bytes)",
        "factor = memory.buffer.align",
        "vectors count as aligned wherever they begin",
        KERNELS,
    ),
    Fault(
        "llvm-strided-beyond",
        "codegen/llvm/memory.py",
        "start = part * (lanes - 1) if offset is None",
        "start = part * lanes if offset is None",
        "strided reads go beyond their last element",
        RUNTIME,
    ),
    Fault(
        "llvm-equal-numbers",
        "codegen/llvm/arithmetic.py",
        "fcmp {'ogt' if op == 'max' else 'olt'} {x.typed}, {y.text}",
        "fcmp {'oge' if op == 'max' else 'ole'} {x.typed}, {y.text}",
        "of two zeros the wrong one is the greatest",
        VALUES,
    ),
    Fault(
        "llvm-zero-of-constants",
        "codegen/llvm/arithmetic.py",
        '(1.0 if op == "max" else -1.0)',
        '(-1.0 if op == "max" else 1.0)',
        "`max(0, y)` may have a sign",
        VALUES,
    ),
    Fault(
        "llvm-least-is-greatest",
        "codegen/loops/running_results.py",
        'limits(dtype)[op == "min"]',
        'limits(dtype)[op == "max"]',
        "lanes without elements decide a minimum",
        KERNELS,
    ),
    Fault(
        "llvm-half-of-the-lanes",
        "codegen/llvm/reduce.py",
        "for start in (0, half))",
        "for start in (0, 0))",
        "the upper lanes do not count",
        (*KERNELS, *MATH),
    ),
    Fault(
        "llvm-subtraction-turned",
        "codegen/llvm/lanes.py",
        'case Binary(op, lhs, rhs) if rhs == own and op in COMBINES and op != "-":',
        "case Binary(op, lhs, rhs) if rhs == own and op in COMBINES:",
        "lanes combine `e - a` as if it were a sum",
        (*KERNELS, "tests/codegen/test_loops_differential.py"),
        equivalent="the verifier of loops refuses such a store by lanes before it reaches the emitter",
    ),
    Fault(
        "llvm-lanes-read-private",
        "codegen/llvm/lanes.py",
        'if kind == "vector" or _varies(lo, varying, private) or _varies(hi, varying, private):',
        'if kind == "vector" or _varies(lo, varying, private):',
        "lanes with loops of different lengths run together",
        (*KERNELS, "tests/codegen/test_loops_differential.py"),
    ),
    Fault(
        "llvm-floor",
        "codegen/llvm/arithmetic.py",
        'lower = b.pure(f"sub {x.type} {quotient}, {one}")',
        "lower = quotient",
        "quotients of negative integers round towards zero",
        VALUES,
    ),
    Fault(
        "fill-without-the-rest",
        "codegen/llvm/fills.py",
        "Int(count.value % lanes)",
        "Int(0)",
        "a row is filled up to its last whole vector",
        KERNELS,
    ),
)

"""Which instructions a processor has, asked by compiled code itself: no more than LLVM IR is needed where it runs.

    i1 @tl_has(ptr features)      whether the processor, and the operating system, have all of them

Features are bits of words: of what the `cpuid` instruction returns on x86-64 (`WORDS`), of what Linux tells a program on AArch64 and RISC-V
(`getauxval`), and how long vectors of RISC-V are, which those that have any tell in a register. `mask` gives what code needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from codegen.llvm.target import Target

WORDS = ((1, 0, "c"), (1, 0, "d"), (7, 0, "b"), (7, 0, "c"), (7, 1, "a"), (0x80000001, 0, "c"))
"""Leaf, subleaf and register of the words that are asked for."""
_C1, _D1, _B7, _C7, _A71, _C8 = range(6)
_BITS = {
    "sse3": (_C1, 0), "pclmul": (_C1, 1), "ssse3": (_C1, 9), "fma": (_C1, 12), "cx16": (_C1, 13), "sse4.1": (_C1, 19),
    "sse4.2": (_C1, 20), "movbe": (_C1, 22), "popcnt": (_C1, 23), "aes": (_C1, 25), "xsave": (_C1, 27), "avx": (_C1, 28),
    "f16c": (_C1, 29), "bmi": (_B7, 3), "avx2": (_B7, 5), "bmi2": (_B7, 8), "avx512f": (_B7, 16), "avx512dq": (_B7, 17),
    "adx": (_B7, 19), "avx512ifma": (_B7, 21), "avx512cd": (_B7, 28), "avx512bw": (_B7, 30), "avx512vl": (_B7, 31),
    "avx512vbmi": (_C7, 1), "avx512vbmi2": (_C7, 6), "gfni": (_C7, 8), "vaes": (_C7, 9), "vpclmulqdq": (_C7, 10),
    "avx512vnni": (_C7, 11), "avx512bitalg": (_C7, 12), "avx512vpopcntdq": (_C7, 14), "avxvnni": (_A71, 4), "avx512bf16": (_A71, 5),
    "sahf": (_C8, 0), "lzcnt": (_C8, 5),
}  # fmt: skip
_BASE = frozenset(("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87", "crc32"))
"""What every x86-64 processor has, or has with SSE 4.2."""
_ARM_BITS = {"neon": (0, 1), "dotprod": (0, 20), "i8mm": (1, 13), "bf16": (1, 14), "fullfp16": (0, 10)}
_RISCV_BITS = {letter: (0, ord(letter) - ord("a")) for letter in "mafdcv"}
_RISCV_VECTOR_BYTES = {"zvl128b": 0, "zvl256b": 32}
"""How long vectors have to be, where they are not anyway (`v` has 128 bits)."""
_TABLES = {"x86_64": _BITS, "aarch64": _ARM_BITS, "riscv64": _RISCV_BITS}
_HELD = {"x86_64": _BASE, "riscv64": frozenset(_RISCV_VECTOR_BYTES), "aarch64": frozenset[str]()}
"""What a processor of a family has anyway, or with another feature that code asks for, and what is no bit of a word."""
_AVX_STATE, _AVX512_STATE = 0x06, 0xE6


def unknown(family: str, features: Iterable[str]) -> tuple[str, ...]:
    """Return the features that code of a family cannot ask for."""
    known = _TABLES.get(family, {}).keys() | _HELD.get(family, frozenset())
    return tuple(sorted(f for f in features if f not in known))


def with_known_features(target: Target) -> Target:
    """Return a target without the features that code cannot ask for where it runs."""
    listed = [f for f in target.features.split(",") if f]
    kept = ["-" + f[1:] if f.startswith("+") and unknown(target.family, (f[1:],)) else f for f in listed]
    return replace(target, features=",".join(kept))


def mask(family: str, features: Iterable[str]) -> tuple[int, ...]:
    """Return for each word the bits that must be set, and last the state that the operating system must save, of RISC-V the bytes that a
    vector must have."""
    words = [0] * ((len(WORDS) if family == "x86_64" else 2) + 1)
    for feature in features:
        if family == "riscv64":
            words[-1] = max(words[-1], _RISCV_VECTOR_BYTES.get(feature, 0))
        if feature not in _HELD[family]:
            word, bit = _TABLES[family][feature]
            words[word] |= 1 << bit
            if family == "x86_64" and feature.startswith(("avx", "fma", "f16c")):
                words[-1] |= _AVX512_STATE if feature.startswith("avx512") else _AVX_STATE
    return tuple(words)


def has_ir(family: str) -> str:
    """Return `tl_has` as LLVM IR."""
    if family == "x86_64":
        return _cpuid_ir()
    return _AUXILIARY + (_VECTOR_BYTES if family == "riscv64" else "  ret i1 %all\n}\n")


_AUXILIARY = """
declare i64 @getauxval(i64)

define internal i1 @tl_has(ptr %features) nounwind noinline {
entry:
  %first = call i64 @getauxval(i64 16)
  %second = call i64 @getauxval(i64 26)
  %need = load i32, ptr %features, align 4
  %p = getelementptr i32, ptr %features, i64 1
  %need2 = load i32, ptr %p, align 4
  %f = trunc i64 %first to i32
  %s = trunc i64 %second to i32
  %a = and i32 %f, %need
  %b = and i32 %s, %need2
  %fits = icmp eq i32 %a, %need
  %fits2 = icmp eq i32 %b, %need2
  %all = and i1 %fits, %fits2
"""
_VECTOR_BYTES = """  %p2 = getelementptr i32, ptr %features, i64 2
  %bytes = load i32, ptr %p2, align 4
  %any = icmp ne i32 %bytes, 0
  %asks = select i1 %all, i1 %any, i1 false
  br i1 %asks, label %vectors, label %done
vectors:
  %length = call i32 @tl_vector_bytes()
  %long = icmp uge i32 %length, %bytes
  br label %done
done:
  %has = phi i1 [ %all, %entry ], [ %long, %vectors ]
  ret i1 %has
}

declare i32 @llvm.vscale.i32()

define internal i32 @tl_vector_bytes() nounwind noinline "target-features"="+v" {
  %scale = call i32 @llvm.vscale.i32()
  %bytes = shl i32 %scale, 3
  ret i32 %bytes
}
"""
"""In a function of its own, which processors without vectors do not run."""


def _cpuid_ir() -> str:
    lines = [
        "define internal i1 @tl_has(ptr %features) nounwind noinline {",
        "entry:",
        *_asked("top", 0, 0),
        *_asked("extended", 0x80000000, 0),
    ]
    held = ["%all0"]
    lines.append("  %all0 = icmp eq i32 0, 0")
    for k, (leaf, subleaf, register) in enumerate(WORDS):
        highest = "%extended.a" if leaf >= 0x80000000 else "%top.a"
        lines += [
            *_asked(f"w{k}", leaf, subleaf),
            f"  %there{k} = icmp uge i32 {highest}, {leaf}",
            f"  %found{k} = select i1 %there{k}, i32 %w{k}.{register}, i32 0",
            f"  %p{k} = getelementptr i32, ptr %features, i64 {k}",
            f"  %need{k} = load i32, ptr %p{k}, align 4",
            f"  %both{k} = and i32 %found{k}, %need{k}",
            f"  %fits{k} = icmp eq i32 %both{k}, %need{k}",
            f"  %all{k + 1} = and i1 {held[-1]}, %fits{k}",
        ]
        held.append(f"%all{k + 1}")
    last = len(WORDS)
    return "\n".join(
        [
            *lines,
            f"  %sp = getelementptr i32, ptr %features, i64 {last}",
            "  %state = load i32, ptr %sp, align 4",
            "  %stateless = icmp eq i32 %state, 0",
            "  br i1 %stateless, label %done, label %saved",
            "saved:",
            "  %osbit = and i32 %w0.c, 134217728",  # OSXSAVE
            "  %os = icmp ne i32 %osbit, 0",
            "  br i1 %os, label %ask, label %none",
            "ask:",
            '  %x = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)',
            "  %low = extractvalue { i32, i32 } %x, 0",
            "  %kept = and i32 %low, %state",
            "  %whole = icmp eq i32 %kept, %state",
            f"  %result = and i1 %whole, {held[-1]}",
            "  ret i1 %result",
            "none:",
            "  ret i1 false",
            "done:",
            f"  ret i1 {held[-1]}",
            "}",
            "",
        ]
    )


def _asked(name: str, leaf: int, subleaf: int) -> list[str]:
    signed = leaf - 2**32 if leaf >= 2**31 else leaf
    constraint = "={ax},={bx},={cx},={dx},{ax},{cx}"
    return [
        f'  %{name} = call {{ i32, i32, i32, i32 }} asm sideeffect "cpuid", "{constraint}"(i32 {signed}, i32 {subleaf})',
        *(f"  %{name}.{register} = extractvalue {{ i32, i32, i32, i32 }} %{name}, {k}" for k, register in enumerate("abcd")),
    ]

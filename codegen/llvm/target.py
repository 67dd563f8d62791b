"""The machines code is emitted for, told apart by what they can do rather than by their names.

    x86-64, x86-64-v2, x86-64-v3, x86-64-v4, x86-64-amx
    aarch64              NEON
    aarch64-v8.2         and dot products of bytes, arithmetic of f16
    aarch64-v8.6         and products of matrices of bytes (i8mm), dot products of bf16
    riscv64gcv           RISC-V with vectors of at least 128 bits, of which 128 are used
    riscv64gcv-256       of at least 256
    wasm32               WebAssembly with vectors of 128 bits
    wasm32-relaxed       and relaxed ones: multiply-adds that round once or twice, as the machine below does

A level (`x86-64-v3`) is a promise about instructions. `host()` gives the highest level this processor keeps, with all its features,
and the processor model that LLVM should schedule for. Where `$TENSORLANG_LEVEL` names a level below it, `host()` is a machine of that level
and nothing more: one machine stands for several.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache

import llvmlite.binding as llvm

from codegen.dtypes import DType
from codegen.llvm.caches import SMALL, USUAL, Caches, caches_here
from codegen.llvm.permission import permitted

_V2 = "+cx16,+sahf,+popcnt,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = _V2 + ",+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
_V4 = _V3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_AMX = (
    _V4 + ",+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8"
    # What else LLVM takes for granted of this model, and uses where it likes.
    ",+avx512bitalg,+avx512fp16,+avx512ifma,+avx512vbmi,+avx512vbmi2,+avx512vpopcntdq,+avxvnni,+gfni"
)
_NEEDS_V2 = ("popcnt", "sse4.1", "sse4.2", "ssse3")
_NEEDS_V3 = (*_NEEDS_V2, "avx2", "bmi2", "f16c", "fma")
_NEEDS_V4 = (*_NEEDS_V3, "avx512f", "avx512bw", "avx512dq", "avx512vl")


MOST_TABLES = 4
"""Registers that a row may lie in of which elements are picked: of two at once, of four by a choice between two pairs."""
LEVEL = "TENSORLANG_LEVEL"
"""The variable that names the level which `host()` keeps to. It is read once, when the first code is made."""


class TargetError(ValueError):
    """There is no target of that name."""


class LevelError(TargetError):
    """`$TENSORLANG_LEVEL` names no level that this machine has."""


class Lacking(Exception):
    """Code for one processor was to be compiled for, or loaded on, another that lacks what it needs."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What code asks of the processor that runs it. `target` is the name of the target it was made for, `family` an instruction set."""

    target: str
    family: str
    features: frozenset[str]


@dataclass(frozen=True, slots=True)
class Target:
    """What LLVM is asked to compile for. `vector_bits` is the width of the widest useful register."""

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    has_fma: bool
    """Whether it multiplies and adds in one instruction, which rounds once."""
    has_f16: bool
    """Whether f16 converts to and from f32 in hardware."""
    caches: Caches = USUAL
    relaxed_fma: bool = False
    """Whether it has such an instruction that rounds once or twice, as whoever runs it likes."""

    def lanes(self, dtype: DType) -> int:
        """Return how many elements of `dtype` one vector register holds."""
        return self.vector_bits // (8 * dtype.size_bytes)

    def has(self, feature: str) -> bool:
        """Tell whether it has a feature, by LLVM's name."""
        return f"+{feature}" in self.features.split(",")

    @property
    def family(self) -> str:
        """The instruction set: `x86_64`, `aarch64`, `riscv64` or `wasm32`."""
        return self.triple.split("-")[0].replace("arm64", "aarch64")

    @property
    def is_x86(self) -> bool:
        return self.family == "x86_64"

    @property
    def is_wasm(self) -> bool:
        return self.family == "wasm32"

    @property
    def gathers(self) -> bool:
        """Whether one instruction loads each lane from a place of its own in no more time than one load for each lane takes."""
        return self.has("avx512f") or self.has("v")

    def tables(self, size: int) -> tuple[int, int]:
        """Return of how many bytes a register is of which elements of `size` bytes are picked by place, and in how many of them, one, two
        or four, a row may lie."""
        if self.has({1: "avx512vbmi", 2: "avx512bw"}.get(size, "avx512f")):
            return 64, MOST_TABLES
        return (32, 1) if size == 4 and self.has("avx2") else (0, 0)

    @property
    def masked_bytes(self) -> tuple[int, ...]:
        """Of how many bytes elements are of which one instruction loads those that a mask has."""
        return (1, 2, 4, 8) if self.has("avx512bw") else (4, 8) if self.has("avx2") else ()

    @property
    def contracts(self) -> bool:
        """Whether a product and the sum it stands in are better computed by one instruction than by two."""
        return self.has_fma or self.relaxed_fma

    @property
    def needs(self) -> Needs:
        return Needs(self.name, self.family, frozenset(f[1:] for f in self.features.split(",") if f.startswith("+")))


def _x86(name: str, cpu: str, features: str, bits: int) -> Target:
    has_fma = "+fma" in features.split(",")
    return Target(name, "x86_64-unknown-linux-gnu", cpu, features, bits, 32 if bits == 512 else 16, has_fma, has_fma)


def _arm(name: str, features: str) -> Target:
    return Target(name, "aarch64-unknown-linux-gnu", "generic", features, 128, 32, True, True)


def _riscv(name: str, bits: int) -> Target:
    features = f"+m,+a,+f,+d,+c,+v,+zvl{bits}b"
    return Target(name, "riscv64-unknown-linux-gnu", "generic-rv64", features, bits, 32, True, False, SMALL)


def _wasm(name: str, features: str, relaxed: bool) -> Target:
    # Engines on x86-64 give out sixteen registers, one of them to themselves.
    return Target(name, "wasm32-unknown-unknown", "generic", features, 128, 16, False, False, SMALL, relaxed)


_NEON = "+neon"
_NEON_DOT = _NEON + ",+dotprod,+fullfp16"
_NEON_MATRIX = _NEON_DOT + ",+i8mm,+bf16"
_SIMD = "+simd128,+bulk-memory,+mutable-globals,+nontrapping-fptoint,+sign-ext"

_LEVELS: dict[str, Target] = {
    target.name: target
    for target in (
        _x86("x86-64", "x86-64", "+sse2", 128),
        _x86("x86-64-v2", "x86-64-v2", _V2, 128),
        _x86("x86-64-v3", "x86-64-v3", _V3, 256),
        _x86("x86-64-v4", "x86-64-v4", _V4, 512),
        _x86("x86-64-amx", "sapphirerapids", _AMX, 512),
        _arm("aarch64", _NEON),
        _arm("aarch64-v8.2", _NEON_DOT),
        _arm("aarch64-v8.6", _NEON_MATRIX),
        _riscv("riscv64gcv", 128),
        _riscv("riscv64gcv-256", 256),
        _wasm("wasm32", _SIMD, False),
        _wasm("wasm32-relaxed", _SIMD + ",+relaxed-simd", True),
    )
}


def names() -> tuple[str, ...]:
    """Return the names that `named` knows."""
    return ("host", *_LEVELS)


def named(name: str) -> Target:
    """Return the target called `name`. Raises TargetError when there is none."""
    if name == "host":
        return host()
    if name not in _LEVELS:
        raise TargetError(f"unknown target `{name}`; known are {', '.join(names())}")
    return _LEVELS[name]


@cache
def host() -> Target:
    """Return this machine, or the part of it that `$TENSORLANG_LEVEL` allows.

    Raises LevelError when this machine has no such level."""
    allowed = os.environ.get(LEVEL)
    return at_level(this_machine(), allowed) if allowed else this_machine()


def levels() -> tuple[str, ...]:
    """Return the names of the levels that this machine has, with less before more."""
    return tuple(level.name for level in _LEVELS.values() if not lacking(level.needs, this_machine()))


def at_level(machine: Target, name: str) -> Target:
    """Return a machine of the level `name`, which `machine` has. Raises LevelError when it has none of that name."""
    known = [level.name for level in _LEVELS.values() if level.family == machine.family]
    if name not in known:
        raise LevelError(f"`{LEVEL}` is `{name}`; levels of `{machine.family}` are {', '.join(known)}")
    missing = lacking(_LEVELS[name].needs, machine)
    if missing:
        raise LevelError(f"`{LEVEL}` is `{name}`, and this machine lacks {', '.join(missing)}")
    return replace(_LEVELS[name], name="host", triple=machine.triple, caches=machine.caches)


@cache
def this_machine() -> Target:
    """Return this machine with all it has."""
    triple = llvm.get_process_triple()
    return replace(_x86_host(triple) if triple.startswith("x86_64") else _other_host(triple), caches=caches_here())


def _x86_host(triple: str) -> Target:
    has = llvm.get_host_cpu_features()
    features = permitted(has.flatten())
    if all(has.get(f, False) for f in _NEEDS_V4):
        # Only this model has a full 512-bit machine description; others spill accumulators that fit.
        return Target("host", triple, "sapphirerapids", features, 512, 32, True, True)
    if all(has.get(f, False) for f in _NEEDS_V3):
        return Target("host", triple, "x86-64-v3", features, 256, 16, True, True)
    level = _LEVELS["x86-64-v2" if all(has.get(f, False) for f in _NEEDS_V2) else "x86-64"]
    return Target("host", triple, level.cpu, features, 128, 16, False, False)


def _other_host(triple: str) -> Target:
    if not triple.startswith(("aarch64", "arm64")):
        raise TargetError(f"no code generation for `{triple}` yet; x86-64 and aarch64 are supported")
    return Target("host", triple, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), 128, 32, True, True)


@cache
def runs_here(target: Target) -> bool:
    """Return whether this machine has every feature that `target` asks for."""
    return not lacking(target.needs, host())


@cache
def lacking(needs: Needs, machine: Target) -> tuple[str, ...]:
    """Return what `machine` lacks to run code: features, or, where the code is of another family, that."""
    if needs.family != machine.family:
        return (needs.family,)
    return tuple(sorted(needs.features - machine.needs.features))

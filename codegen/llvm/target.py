"""The machines code is emitted for, told apart by what they can do rather than by their names.

A level (`x86-64-v3`) is a promise about instructions. `host()` gives the highest level this processor keeps, with all its features,
and the processor model that LLVM should schedule for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from codegen.dtypes import DType
from codegen.llvm.permission import permitted

_V2 = "+cx16,+sahf,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = _V2 + ",+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
_V4 = _V3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_NEEDS_V2 = ("popcnt", "sse4.1", "sse4.2", "ssse3")
_NEEDS_V3 = (*_NEEDS_V2, "avx2", "bmi2", "f16c", "fma")
_NEEDS_V4 = (*_NEEDS_V3, "avx512f", "avx512bw", "avx512dq", "avx512vl")


class TargetError(ValueError):
    """The named target does not exist, or this machine cannot run it."""


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
    has_f16: bool
    """Whether f16 converts to and from f32 in hardware."""

    def lanes(self, dtype: DType) -> int:
        """Return how many elements of `dtype` one vector register holds."""
        return self.vector_bits // (8 * dtype.size_bytes)

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")


def _x86(name: str, cpu: str, features: str, bits: int) -> Target:
    has_fma = "+fma" in features.split(",")
    return Target(name, "x86_64-unknown-linux-gnu", cpu, features, bits, 32 if bits == 512 else 16, has_fma, has_fma)


_LEVELS: dict[str, Target] = {
    target.name: target
    for target in (
        _x86("x86-64", "x86-64", "+sse2", 128),
        _x86("x86-64-v2", "x86-64-v2", _V2, 128),
        _x86("x86-64-v3", "x86-64-v3", _V3, 256),
        _x86("x86-64-v4", "x86-64-v4", _V4, 512),
        _x86("x86-64-amx", "sapphirerapids", _V4 + ",+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8", 512),
        Target("aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon", 128, 32, True, True),
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
    """Return this machine."""
    triple = llvm.get_process_triple()
    if not triple.startswith("x86_64"):
        return _other_host(triple)
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
    mine = host()
    if target.is_x86 != mine.is_x86:
        return False
    has = set(mine.features.split(","))
    return all(f in has for f in target.features.split(",") if f.startswith("+"))

"""The table of instructions that multiply whole tiles (AMX)."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.dtypes import DType, bf16, i8, u8


@dataclass(frozen=True, slots=True)
class Form:
    """An instruction: types of the elements of rows and columns, what the processor must have, LLVM's name, and how many products it adds
    up for each multiply-add of f32 in vectors of 512 bits."""

    a: DType
    b: DType
    needs: tuple[str, ...]
    intrinsic: str
    rate: int


_BYTES = ("amx-tile", "amx-int8")
FORMS: tuple[Form, ...] = (
    Form(bf16, bf16, ("amx-tile", "amx-bf16"), "llvm.x86.tdpbf16ps", 16),
    Form(i8, i8, _BYTES, "llvm.x86.tdpbssd", 32),
    Form(i8, u8, _BYTES, "llvm.x86.tdpbsud", 32),
    Form(u8, i8, _BYTES, "llvm.x86.tdpbusd", 32),
    Form(u8, u8, _BYTES, "llvm.x86.tdpbuud", 32),
)
"""Rates are those of the processors that have them: 512 products of bf16 a cycle where vectors make 32 of f32."""


def form(features: str, a: DType, b: DType) -> Form | None:
    """Return the instruction that multiplies rows of `a` with columns of `b` on a processor with `features`, if there is one."""
    has = {f[1:] for f in features.split(",") if f.startswith("+")}
    return next((f for f in FORMS if (f.a, f.b) == (a, b) and has.issuperset(f.needs)), None)


def tile_pairs(features: str) -> frozenset[tuple[DType, DType]]:
    """Return the types of which a processor with `features` multiplies tiles."""
    return frozenset((f.a, f.b) for f in FORMS if form(features, f.a, f.b) is not None)

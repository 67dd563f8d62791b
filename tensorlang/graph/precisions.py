"""What contractions of models multiply in: what was asked for, and what that comes to on a target.

    f32       f32
    bf16      operands rounded to bf16
    f16       operands rounded to f16, on graphics processors
    tf32      operands rounded to tf32 when they are multiplied, on graphics processors
    bf16x3    f32 as sums of three products of bf16 parts, or f32
    bf16x6    of six, or f32

Sums of products of parts are at best as good as products of f32, and have no other use than to be faster. They can be where the target
adds up more than three (six) products of bf16 in the time of one of f32. Everywhere else such a model is compiled as it is in f32, unless
they are forced.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.dtypes import DType, bf16, f16
from codegen.llvm.target import Target
from tensorlang.diagnostics import error
from tensorlang.options import DEVICE_PRECISIONS as DEVICE_PRECISIONS

PARTS = {"bf16x3": 3, "bf16x6": 6}
"""How many products of bf16 stand for one of f32."""
NARROW = {"bf16": bf16, "f16": f16}
"""What operands are rounded to."""
PRECISIONS = ("f32", "bf16", *PARTS)


TILE = 16
"""Rows and columns from which products of parts are faster, where they are: those of a tile."""


@dataclass(frozen=True, slots=True)
class Precision:
    """`requested`: one of PRECISIONS. `used`: what contractions multiply in; where that is another, `reason` says why. `least`: how many
    rows and columns a contraction needs to be made of parts."""

    requested: str
    used: str
    reason: str = ""
    least: int = 1

    @property
    def parts(self) -> int:
        """Return how many products of bf16 stand for one of f32, 0 for none."""
        return PARTS.get(self.used, 0)

    @property
    def rounded(self) -> bool:
        """Tell whether operands are rounded to tf32 when they are multiplied."""
        return self.used == "tf32"

    @property
    def multiplied(self) -> DType | None:
        """Return what operands are rounded to, None where they stay as they are."""
        return NARROW.get(self.used)


F32 = Precision("f32", "f32")


def chosen(name: str, target: Target, force_precision: bool = False) -> Precision:
    """Return what the precision called `name` comes to on `target`; with `force_precision` what it says, whether that pays or not.

    Raises CompileError C0103 for one that is not known."""
    _check(name, PRECISIONS)
    if name not in PARTS or force_precision:
        return Precision(name, name)
    from codegen.llvm.dot import rate

    return profitable_precision(name, rate(target.features, target.vector_bits, bf16, bf16))


def chosen_on(name: str, rate: float | None, force_precision: bool = False) -> Precision:
    """Return what the precision called `name` comes to on a graphics processor that adds up `rate` products of bf16 in the time of one of
    f32 (None: nobody says how many). Raises CompileError C0103 for one that is not known."""
    _check(name, DEVICE_PRECISIONS)
    if name == "tf32" and rate == 0 and not force_precision:
        return Precision(name, "f32", "the device has no instruction for products of tf32")
    return Precision(name, name) if name not in PARTS or force_precision else profitable_precision(name, rate)


def _check(name: str, known: tuple[str, ...]) -> None:
    if name in DEVICE_PRECISIONS and name not in known:
        title = f"not supported yet on a processor: precision `{name}`"
        raise error("C0103", title, help=f'`target="cuda"` has it; known here are {", ".join(f"`{p}`" for p in known)}')
    if name not in known:
        raise error("C0103", f"not supported yet: precision `{name}`", help=f"known are {', '.join(f'`{p}`' for p in known)}")


def profitable_precision(name: str, rate: float | None) -> Precision:
    """Return what a precision of PARTS comes to where `rate` products of bf16 are added up in the time of one of f32."""
    if rate is None:
        return Precision(
            name, "f32", "how many products of bf16 there are in the time of one of f32 is not documented here for this device"
        )
    if rate > PARTS[name]:
        return Precision(name, name, least=TILE)
    speed = f"run {rate:.3g} times as fast" if rate > 1 else "are as fast as those of f32" if rate else "have no instruction"
    return Precision(name, "f32", f"{PARTS[name]} products of bf16 for one of f32 do not pay where products of bf16 {speed}")

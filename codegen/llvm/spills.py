"""Which innermost loops of machine code keep values on the stack that found no register, told from LLVM's comments in assembly.

vmovups 64(%rsp), %zmm1             # 64-byte Reload                    a reload of a vector
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from codegen.llvm.inner_loops import InnerLoop

_SPILL = re.compile(r"(?P<bytes>\d+)-byte (?:Folded )?(?P<kind>Spill|Reload)")


@dataclass(frozen=True, slots=True)
class Spills:
    """What one iteration of an innermost loop stores to the stack and loads from there, in numbers of values. `label`: of its first
    block, as emission calls it."""

    label: str
    stores: int
    loads: int


def spills_of(loops: Sequence[InnerLoop], least_bytes: int = 16) -> tuple[Spills, ...]:
    """Return what each loop that spills values of so many bytes does so."""
    return tuple(found for found in (_spills(loop, least_bytes) for loop in loops) if found.stores or found.loads)


def _spills(loop: InnerLoop, least_bytes: int) -> Spills:
    kinds = [s["kind"] for s in map(_SPILL.search, loop.lines) if s is not None and int(s["bytes"]) >= least_bytes]
    return Spills(loop.label, kinds.count("Spill"), kinds.count("Reload"))

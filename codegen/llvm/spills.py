"""Which innermost loops of machine code keep values on the stack that found no register, told from LLVM's comments in assembly.

.LBB0_5:                                # %loop50                           the loop that emission began at the label loop50
                                        # =>This Inner Loop Header: Depth=3
    vmovups 64(%rsp), %zmm1             # 64-byte Reload                    a reload of a vector
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^(?:\.L(?P<label>BB\d+_\d+):|(?:#|//|;) %bb\.\d+:)\s*(?:(?:#|//|;) %(?P<name>[\w.]+))?")
_HEADER = re.compile(r"=>\s*This Inner Loop Header:")
_INSIDE = re.compile(r"^\s*(?:#|//|;)\s+in Loop: Header=(?P<header>BB\d+_\d+)")
_SPILL = re.compile(r"(?P<bytes>\d+)-byte (?:Folded )?(?P<kind>Spill|Reload)")


@dataclass(frozen=True, slots=True)
class Spills:
    """What one iteration of an innermost loop stores to the stack and loads from there, in numbers of values. `label`: of its first
    block, as emission calls it."""

    label: str
    stores: int
    loads: int


def spills_of(assembly: str, least_bytes: int = 16) -> tuple[Spills, ...]:
    """Return the innermost loops that spill values of so many bytes, in text order. `assembly` is one with LLVM's comments."""
    names: dict[str, str] = {}
    found: dict[str, list[int]] = {}
    label = name = ""
    loop: str | None = None
    for line in assembly.splitlines():
        block = _BLOCK.match(line)
        if block is not None:
            label, name, loop = block["label"] or "", block["name"] or "", None
        if _HEADER.search(line) and label:
            names[label], loop = name, label
        elif (inside := _INSIDE.match(line)) is not None:
            loop = inside["header"]
        spill = _SPILL.search(line)
        if spill is not None and loop is not None and int(spill["bytes"]) >= least_bytes:
            found.setdefault(loop, [0, 0])[spill["kind"] == "Reload"] += 1
    return tuple(Spills(names[header], *found[header]) for header in names if header in found)

"""The data caches of a processor, in bytes, as its system describes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_KIB = 1024
_MIB = 1024 * _KIB
_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True, slots=True)
class Caches:
    """What one core has near (`l1_bytes`, `l2_bytes`), and the last cache before memory, which cores share."""

    l1_bytes: int = 32 * _KIB
    l2_bytes: int = 1 * _MIB
    last_bytes: int = 32 * _MIB

    @property
    def levels(self) -> tuple[tuple[str, int], ...]:
        """Their names and bytes, the smallest first; the last is shared by all threads."""
        sizes = sorted({self.l1_bytes, self.l2_bytes, self.last_bytes})
        return tuple((f"L{level}", size) for level, size in enumerate(sizes, 1))


USUAL = Caches()
"""Taken for machines that code is made for elsewhere, and where the system does not say."""


SMALL = Caches(l2_bytes=512 * _KIB, last_bytes=4 * _MIB)
"""Taken for machines that are small more often than not: boards, and what a browser leaves to a page."""


def caches_here(folder: Path = _SYSTEM) -> Caches:
    """Return the caches of this machine, `USUAL` ones where its system does not tell (read from `folder`, as Linux has it)."""
    sizes = _levels(folder)
    if not sizes:
        return USUAL
    l1 = sizes.get(1, USUAL.l1_bytes)
    l2 = sizes.get(2, max(l1, USUAL.l2_bytes))
    return Caches(l1, l2, max(sizes.values()))


def _levels(folder: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / part).read_text("utf-8").strip() for part in ("level", "type", "size"))
            if kind != "Instruction":
                found[int(level)] = int(size.rstrip("KMG")) * {"K": _KIB, "M": _MIB, "G": 1024 * _MIB}.get(size[-1:], 1)
        except (OSError, ValueError):  # a container may hide or empty some of them
            continue
    return {level: size for level, size in found.items() if size > 0}

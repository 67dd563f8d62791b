"""A supply of names that nothing else has: of variables, buffers, identifiers in generated code."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Fresh:
    """Names that are not in `used`: `k` gives `k` if it is free, else the first of `k_1`, `k_2`, … that is, and takes it."""

    used: set[str] = field(default_factory=set)

    def __call__(self, stem: str) -> str:
        name, count = stem, 0
        while name in self.used:
            count += 1
            name = f"{stem}_{count}"
        self.used.add(name)
        return name

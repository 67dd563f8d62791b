"""Names that are safe in generated code: letters, digits and underscores, unique in a kernel, the user's own where possible."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from codegen.fresh_names import Fresh


@dataclass(slots=True)
class Names:
    """Maps names of any spelling to safe ones, deterministically."""

    given: dict[tuple[str, str], str] = field(default_factory=dict)
    fresh_names: Fresh = field(default_factory=Fresh)

    def of(self, kind: str, name: str) -> str:
        """Return the safe name for `name` of `kind` (loop, tensor, size…): the same one each time."""
        key = (kind, name)
        if key not in self.given:
            self.given[key] = self.fresh(name)
        return self.given[key]

    def fresh(self, stem: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_]", "_", stem)[:48] or "t"
        if base[0].isdigit():
            base = f"t{base}"
        return self.fresh_names(base)

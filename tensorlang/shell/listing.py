"""What `tensorlang list` prints: modules of installed packages, and the operators of one of them or of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tensorlang.diagnostics import Source, error
from tensorlang.syntax import modules
from tensorlang.syntax.parse import load, parse
from tensorlang.syntax.summary import Entry, entries, purpose


@dataclass(frozen=True, slots=True)
class Listed:
    """A file or a module, what it is for, and its operators."""

    title: str
    purpose: str
    entries: tuple[Entry, ...]

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        operators = [{"name": e.name, "signature": e.signature, "doc": e.doc} for e in self.entries]
        return {"module": self.title, "purpose": self.purpose, "operators": operators}

    def lines(self, *, briefly: bool) -> Iterator[str]:
        """Yield its lines: the module alone, or each operator's header with the first line of its comment."""
        yield self.title + (f"   {self.purpose}" if self.purpose else "")
        for entry in () if briefly else self.entries:
            yield ""
            yield f"    {entry.signature}"
            if entry.brief:
                yield f"        {entry.brief}"


def listed(what: str | None) -> tuple[Listed, ...]:
    """Return what is asked for: a file by its path, a package or a module by its words, or all modules there are.

    Raises CompileError C0214 for what is neither, and what is wrong with the file."""
    if what is None:
        return tuple(_listed(m.title, m.source()) for m in modules.modules())
    if what.endswith(".tl") or Path(what).is_file():
        return (_listed(what, load(what)),)
    found = modules.find(what)
    if found is None or found.name is not None:
        known = [*modules.packages(), *(m.title for m in modules.modules())]
        close = get_close_matches(what, known, 1)
        offered = f"installed packages offer {', '.join(f'`{p}`' for p in modules.packages()) or 'none'}"
        home = modules.declaring(what)
        if home is not None:
            raise error("C0214", f"`{what}` is no module", help=f"it is in `{home}`: `tensorlang list {home}`")
        help = f"did you mean `{close[0]}`?" if close else f"name a `.tl` file or a module; {offered}"
        raise error("C0214", f"there is no file and no module `{what}`", help=help)
    return tuple(_listed(m.title, m.source()) for m in found.modules)


def _listed(title: str, source: Source) -> Listed:
    file = parse(source)
    return Listed(title, purpose(file), entries(file))

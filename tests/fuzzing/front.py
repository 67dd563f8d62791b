"""What is fuzzed: a front draws cases from numbers, tries them, and cuts them down.

case = front.draw(seed)           the same case for the same number, in every process
found = front.run(case)           how it fares; whatever it raises is a crash
smaller = front.smaller(case)     cases with something left out, the largest cuts first
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from tensorlang.diagnostics import CompileError

Kind = Literal["ok", "refused", "unknown", "silent", "unfounded", "wrong", "crash", "signal", "timeout"]
"""How a case fares.

    ok          accepted, and all results are right
    refused     a coded diagnostic, for a reason
    unknown     a schedule that could neither be proven nor refuted
    silent      a schedule is refused, and no run of it shows why
    unfounded   a program without a schedule is refused by codes of schedules, which blame what nobody wrote
    wrong       accepted, and a result is another, or memory beyond the results was written
    crash       an exception that is no coded diagnostic
    signal      the process died: it touched memory that is not its own
    timeout     it took longer than a case may
"""

KINDS: tuple[Kind, ...] = ("ok", "refused", "unknown", "silent", "unfounded", "wrong", "crash", "signal", "timeout")
FINDINGS: frozenset[Kind] = frozenset(("silent", "unfounded", "wrong", "crash", "signal", "timeout"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case fared. `label`: what is alike in outcomes of one cause: a code, or an exception and the line that raised it.
    `native`: how many runs of compiled code had pages without access around their arrays."""

    kind: Kind
    label: str = ""
    text: str = ""
    native: int = 0

    @property
    def found(self) -> bool:
        return self.kind in FINDINGS

    def like(self, other: Outcome) -> bool:
        """Tell whether two outcomes are of one class, as those before and after cutting a case down have to be."""
        return (self.kind, self.label) == (other.kind, other.label)


class Front(Protocol):
    """One kind of random cases."""

    @property
    def name(self) -> str: ...

    @property
    def seconds(self) -> float:
        """Return how much time of a processor a case may take."""
        ...

    @property
    def batch(self) -> int:
        """Return how many cases share a process: one where native code may damage what later ones need."""
        ...

    @property
    def share(self) -> float:
        """Return the weight of this front where several share the time."""
        ...

    def prepare(self) -> None:
        """Load whatever cases need, once, before processes are forked."""
        ...

    def draw(self, seed: int) -> Any:
        """Return the case of a number."""
        ...

    def run(self, case: Any) -> Outcome: ...

    def smaller(self, case: Any) -> Iterator[Any]: ...

    def show(self, case: Any) -> str:
        """Return the case for people."""
        ...

    def test(self, case: Any) -> str:
        """Return the body of a test that fails where the case does, with its imports, unindented."""
        ...


@runtime_checkable
class Expecting(Protocol):
    """A front whose cases need things that are cheaper to make for several at once."""

    def expect(self, seeds: tuple[int, ...]) -> None:
        """Take note of what this process will be asked to draw and run. Raises nothing: what is wrong with a case shows when it runs."""
        ...


def tried(front: Front, case: Any) -> Outcome:
    """Return how a case fares, in this process."""
    try:
        return front.run(case)
    except CompileError as refused:
        return Outcome("refused", refused.diagnostics[0].code, str(refused))
    except Exception as fault:
        return crashed(fault)


def drawn_case(front: Front, seed: int) -> Any:
    """Return the case of a number, or None where drawing it ends in an exception."""
    try:
        return front.draw(seed)
    except Exception:
        return None


def crashed(fault: BaseException) -> Outcome:
    """Return the outcome of an exception that nobody should see."""
    frames = traceback.extract_tb(fault.__traceback__)
    own = [f for f in frames if "/tests/" not in f.filename] or list(frames)
    last = own[-1] if own else None
    place = f"{'/'.join(last.filename.split('/')[-2:])}:{last.name}" if last else "?"
    text = "".join(traceback.format_exception(fault, limit=-6))
    return Outcome("crash", f"{type(fault).__name__} in {place}", text)

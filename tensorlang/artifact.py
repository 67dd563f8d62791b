"""What becomes of a kernel: an object, how it is called, and texts about it for people."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import eq

from codegen.loops.evaluate import evaluate
from codegen.loops.nodes import Index, Int

DERIVED_FIRST = "what is derived first"
"""How `Artifact.tried` calls the derived schedule that a plainer one stands in for, because its proof did not end."""
DERIVED_FOR_SAMPLES = "what is derived for samples of open sizes"
DERIVED_PLAIN = "what is derived, plainly"


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a run-time check is about: the tensor that is read or whose range is declared, "" for sizes, and what is wrong when it fails."""

    tensor: str
    text: str


@dataclass(frozen=True, slots=True)
class SizeCase:
    """Loops of a kernel that run for a range of sizes: `why` they are others, and the schedule of them."""

    range: str
    why: str
    schedule: str


class Validated:
    """What was, or was not, validated against its equations (`tensorlang.validation`)."""

    __slots__ = ()
    validated: str
    """What came of it; "" when nobody asked."""
    validation_budget: int
    """How many operations that was allowed to take."""

    def is_validated(self, budget: int) -> bool:
        """Tell whether nothing more would come of validating with such a budget."""
        return self.validated.startswith("validated") or self.validation_budget >= budget


@dataclass(frozen=True, slots=True)
class Artifact(Validated):
    """A compiled kernel. ABI: `i32 symbol(ptr slots, ptr workspace)`, slots are the buffers of `params` in order, then `sizes` as i64.
    A result k > 0 means that `requirements[k - 1]` failed. `schedule` and `loops` are texts for people."""

    symbol: str
    object: bytes = field(repr=False)
    params: tuple[str, ...]
    sizes: tuple[str, ...]
    requirements: tuple[Requirement, ...]
    schedule: str
    loops: str
    times_ms: Mapping[str, float]
    cached: bool = False

    origin: str = "derived"
    """Where the schedule came from."""
    tried: tuple[str, ...] = ()
    """Schedules that were looked at and not taken, and why."""

    trusted: str = ""
    """What of the schedule is not proven, and why somebody trusts it; "" where all is proven."""
    scratch: tuple[Index, Index] = (Int(0), Int(0))
    """What all threads share of the workspace, and what each needs for itself: bytes, over `sizes`."""
    validated: str = ""
    validation_budget: int = 0
    cases: tuple[SizeCase, ...] = ()
    """The ranges of open sizes that have loops of their own, the first that holds; none where all sizes run the same. `schedule` is that of
    the last one."""

    @property
    def is_plain(self) -> bool:
        """Whether the schedule is a plainer one than what would be derived first."""
        return any(told.startswith(DERIVED_FIRST) for told in self.tried)

    def told_as(self, named: Mapping[str, str]) -> Artifact:
        """Return it with other names for sizes in what people are told of it, where that is a kernel of another program, too."""
        if all(map(eq, named, named.values())):
            return self

        def told(text: str) -> str:
            return re.sub(r"[\w.]+", lambda word: named.get(word[0], word[0]), text)

        requirements = tuple(replace(r, text=told(r.text)) for r in self.requirements)
        cases = tuple(SizeCase(told(c.range), told(c.why), told(c.schedule)) for c in self.cases)
        return replace(self, requirements=requirements, schedule=told(self.schedule), cases=cases)

    def workspace_bytes(self, threads: int, sizes: Sequence[int] = ()) -> int:
        """Return what so many threads need of the workspace where `sizes` are these."""
        known = dict(zip(self.sizes, sizes, strict=True))
        shared, private = (evaluate(part, known) for part in self.scratch)
        return shared + threads * private

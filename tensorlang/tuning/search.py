"""A search for a faster schedule of one kernel on one kind of machine: what to try next, and what became of what was tried.

    first     the schedules that were fastest for kernels of other sizes
    then      the inner loops of next fewest predicted cycles (`policy.cpu.alternatives`)
    then      what differs from the fastest so far in one directive, or in two (`shell.variants`)

What became of each is kept beside the cache, by program, machine and compiler, as text: whoever is interrupted, or killed, goes on from
there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from codegen.store import Cache, default_directory
from tensorlang.shell.variants import LEAST_GAIN, variants
from tensorlang.tuning.subjects import Answer, Tunable

ENDED = "ended"
"""What became of a schedule over which two processes died, or did not answer."""
_FAILURES = ("refused", "wrong", ENDED)
_KIN = 8
"""How many schedules kernels of other sizes are told of."""


@dataclass(frozen=True, slots=True)
class Found:
    """The fastest schedule of a kernel that was found. `ratio`: how many times as fast as its own, 1 where that is the fastest."""

    kernel: str
    ratio: float
    schedule: tuple[str, ...]


class Search:
    """What is known of the schedules of a kernel."""

    def __init__(self, tunable: Tunable, seed: int) -> None:
        self.tunable = tunable
        self._random = random.Random(seed)
        directory = default_directory()
        self._database = Cache(directory.with_name(f"{directory.name}-tuned"))
        self._known: dict[str, Answer | str] = self._read(tunable.key)
        self.known_before = len(self._known)
        self._asked: dict[str, int] = {}
        """Schedules that somebody tries, and how many have died over each."""
        self._ahead = self._beginning()

    @property
    def tried(self) -> int:
        """How many schedules something is known of, or will be."""
        return len(self._known) + len(self._asked)

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Of how many schedules each thing became."""
        counts = dict.fromkeys(("measured", *_FAILURES), 0)
        for outcome in self._known.values():
            counts[outcome if isinstance(outcome, str) else "measured"] += 1
        return counts

    def next(self) -> str | None:
        """Return a schedule that nobody has tried, None where there is none."""
        for text in self._ahead:
            if self._is_new(text):
                self._asked[text] = 0
                return text
        fresh = list(dict.fromkeys(text for text in self._near() if self._is_new(text)))
        if not fresh:
            return None
        chosen = self._random.choice(fresh)
        self._asked[chosen] = 0
        return chosen

    def told(self, text: str, answer: Answer | None) -> bool:
        """Note what became of a schedule, None where the process that tried it has died: it is tried once more. Return whether it is
        known now what becomes of it."""
        died = self._asked.get(text, 0) + (answer is None)
        if answer is None and died < 2:
            self._asked[text] = died
            return False
        self._asked.pop(text, None)
        self._note(text, ENDED if answer is None else answer)
        return True

    def fastest(self) -> Found:
        """Return the fastest schedule so far."""
        found = [(text, value) for text, value in self._known.items() if isinstance(value, float)]
        text, ratio = max(found, key=lambda pair: pair[1], default=("", 1.0))
        return Found(self.tunable.name, ratio, tuple(text.splitlines())) if ratio > 1.0 else self.own()

    def own(self) -> Found:
        """Return the schedule that the kernel has by itself."""
        return Found(self.tunable.name, 1.0, self.tunable.own)

    def confirmed(self, ratio: float | None) -> Found:
        """Return the fastest schedule, which is so many times as fast when it is measured once more (None: it was not), the own one where
        that gains too little. Searches and kernels of other sizes begin with it."""
        found = self.fastest()
        if ratio is not None:
            found = Found(found.kernel, ratio, found.schedule)
            self._note("\n".join(found.schedule), ratio)
        if found.ratio < LEAST_GAIN:
            return self.own()
        kin = {**self._kin(), "\n".join(found.schedule): found.ratio}
        best = sorted(kin.items(), key=lambda pair: -pair[1])[:_KIN]
        self._database.put(self.tunable.kin, json.dumps(dict(best)).encode())
        return found

    def _note(self, text: str, outcome: Answer | str) -> None:
        """Keep what became of a schedule, beside what others have found meanwhile."""
        self._known = {**self._read(self.tunable.key), **self._known, text: outcome}
        self._database.put(self.tunable.key, json.dumps(self._known).encode())

    def _read(self, key: str) -> dict[str, Answer | str]:
        """Return what is stored, without what no search has written."""
        try:
            found = json.loads(self._database.get(key) or b"{}")
        except (ValueError, RecursionError):
            return {}
        return {text: value for text, value in found.items() if _is_outcome(value)} if isinstance(found, dict) else {}

    def _kin(self) -> dict[str, float]:
        """Return the schedules that were fastest for kernels of other sizes, and how many times as fast they were."""
        return {text: value for text, value in self._read(self.tunable.kin).items() if isinstance(value, float)}

    def _is_new(self, text: str) -> bool:
        return text not in self._known and text not in self._asked

    def _beginning(self) -> Iterator[str]:
        yield from self._kin()
        yield from ("\n".join(lines) for lines in self.tunable.first)

    def _near(self) -> Iterator[str]:
        """Yield what differs from the fastest so far in one directive; where all of that is known, in two."""
        one = [v.lines for v in variants(self.tunable.program, self.fastest().schedule)]
        yield from ("\n".join(lines) for lines in one)
        if one and not any(self._is_new("\n".join(lines)) for lines in one):
            for lines in self._random.sample(one, min(4, len(one))):
                yield from ("\n".join(v.lines) for v in variants(self.tunable.program, lines))


def _is_outcome(value: object) -> bool:
    return value in _FAILURES if isinstance(value, str) else isinstance(value, float) and 0 < value < inf

"""A run of the fuzzer: which front is next, what was found, and what is told of it.

    campaign = Campaign(fronts, jobs=2, first=0, minutes=60, out=Path("found"))
    campaign.run()                    ends at its limits, or at Ctrl-C
    print(campaign.table())

Time goes to fronts by their share of it. What is found is cut down and told, a few times at most for one cause (kind and label), and
written to `out`: `findings.jsonl`, a line for each finding, and a test for each that was cut down.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.front import KINDS, Front, Outcome
from fuzzing.server import Report, Server, Task, from_json, trying
from fuzzing.shrink import cutting

EVERY = 10.0
"""Seconds between lines of progress."""
ALIKE = 3
"""How many findings of one cause are cut down."""
CUTTING = 60.0
"""Seconds by the clock for cutting a case down."""


@dataclass
class Counts:
    """What became of the cases of a front. `spent`: seconds of the processor."""

    kinds: Counter[str] = field(default_factory=Counter)
    labels: Counter[tuple[str, str]] = field(default_factory=Counter)
    native: int = 0
    given: int = 0
    spent: float = 0.0

    @property
    def cases(self) -> int:
        return sum(self.kinds.values())


@dataclass
class Campaign:
    fronts: Sequence[Front]
    jobs: int = 1
    first: int = 0
    minutes: float | None = None
    cases: int | None = None
    out: Path | None = None
    cut: bool = True
    quiet: bool = False
    counts: dict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    findings: list[dict[str, Any]] = field(default_factory=list)
    _pending: list[Task] = field(default_factory=list)
    _cutting: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _uncut: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    _began: float = 0.0

    def run(self) -> None:
        """Try cases until the limits are reached or somebody interrupts."""
        for front in self.fronts:
            front.prepare()
        self._began = told = time.monotonic()
        server = Server(self.jobs)
        try:
            for report in server.serve(self._following):
                self._take(report)
                if time.monotonic() - told > EVERY and not self.quiet:
                    told = time.monotonic()
                    print(self.progress(), flush=True)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
        finally:
            server.close()
            for (name, seed), outcome in self._uncut.items():
                self._told(name, seed, outcome, {"note": "not cut down"})

    # ---- what to do next

    def _following(self) -> Task | None:
        """Return what to do next, or None: for now, where findings that are still to come will have to be cut down."""
        if self._pending:
            return self._pending.pop()
        if self._over():
            return None
        front = min(self.fronts, key=lambda f: (self.counts[f.name].spent / f.share, self.counts[f.name].given / f.share))
        counts = self.counts[front.name]
        size = front.batch if self.cases is None else min(front.batch, self.cases - self._given())
        start = self.first + counts.given
        counts.given += size
        return Task(front, tuple(range(start, start + size)), trying(front), front.seconds)

    def _given(self) -> int:
        return sum(c.given for c in self.counts.values())

    def _over(self) -> bool:
        if self.cases is not None and self._given() >= self.cases:
            return True
        return self.minutes is not None and time.monotonic() - self._began > 60 * self.minutes

    # ---- what was found

    def _take(self, report: Report) -> None:
        outcome = from_json(report.said)
        name = report.task.front.name
        if report.task.cutting:
            first = self._uncut.pop((name, report.seed))
            whole = "test" in report.said
            self._told(name, report.seed, outcome if whole else first, report.said if whole else {"note": "cutting it down did not end"})
            return
        counts = self.counts[name]
        counts.kinds[outcome.kind] += 1
        counts.native += outcome.native
        counts.spent += report.spent
        if outcome.label:
            counts.labels[outcome.kind, outcome.label] += 1
        if outcome.found:
            self._found(report.task.front, report.seed, outcome)

    def _found(self, front: Front, seed: int, outcome: Outcome) -> None:
        cause = (front.name, outcome.kind, outcome.label)
        self._cutting[cause] += 1
        if self._cutting[cause] > ALIKE:
            return
        if self.cut:
            self._uncut[front.name, seed] = outcome
            self._pending.append(Task(front, (seed,), cutting(front, outcome, CUTTING), 4 * CUTTING, cutting=True))
        else:
            self._told(front.name, seed, outcome, {})

    def _told(self, name: str, seed: int, outcome: Outcome, said: dict[str, Any]) -> None:
        finding = {
            "front": name,
            "seed": seed,
            "kind": outcome.kind,
            "label": outcome.label,
            "note": said.get("note", ""),
            "case": said.get("case", ""),
            "text": outcome.text,
        }
        self.findings.append(finding)
        if not self.quiet:
            print(f"---- {name}:{seed} {outcome.kind} {outcome.label} {finding['note']}\n{finding['case']}\n", flush=True)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            with (self.out / "findings.jsonl").open("a") as file:
                file.write(json.dumps(finding) + "\n")
            if said.get("test"):
                path = self.out / f"test_{name}_{seed}.py"
                path.write_text(test_file(name, seed, outcome, said["test"]))

    # ---- what is told

    def progress(self) -> str:
        seconds = time.monotonic() - self._began
        return f"{seconds:6.0f} s  " + "  ".join(f"{name} {_numbers(counts)}" for name, counts in self.counts.items() if counts.cases)

    def table(self) -> str:
        """Return the counts per front, and beneath them what was refused, found or remarkable, by label."""
        head = f"{'front':<10} {'cases':>7} {'native':>7} {'cpu s':>7} {'per s':>6}  " + "  ".join(f"{k:>9}" for k in KINDS)
        lines = [head]
        for front in self.fronts:
            c = self.counts[front.name]
            rate = c.cases / c.spent if c.spent else 0.0
            numbers = "  ".join(f"{c.kinds[k]:>9}" for k in KINDS)
            lines.append(f"{front.name:<10} {c.cases:>7} {c.native:>7} {c.spent:>7.0f} {rate:>6.1f}  {numbers}")
        total = sum(c.cases for c in self.counts.values())
        native = sum(c.native for c in self.counts.values())
        lines.append(f"{total} cases, {native} runs of compiled code between pages without access, {time.monotonic() - self._began:.0f} s")
        for front in self.fronts:
            for (kind, label), count in sorted(self.counts[front.name].labels.items(), key=lambda item: (item[0][0], -item[1])):
                lines.append(f"{front.name:<10} {count:>7}  {kind} {label}")
        return "\n".join(lines)


def _numbers(counts: Counts) -> str:
    kinds = " ".join(f"{kind} {counts.kinds[kind]}" for kind in KINDS if counts.kinds[kind])
    return f"{counts.cases} ({kinds})"


def test_file(name: str, seed: int, outcome: Outcome, body: str) -> str:
    """Return a file with one test. Imports at the head of `body` go before it."""
    lines = body.splitlines()
    heads = [line for line in lines if re.match(r"(import|from) ", line)]
    rest = indented([line for line in lines if line not in heads])
    said = outcome.label.replace('"', "'").replace("\\", "/")
    title = f'"""Found by `scripts/fuzz.py --replay {name}:{seed}`: {outcome.kind} {said}"""'
    return "\n".join([title, "", *heads, "", "", f"def test_{name}_{seed}() -> None:", *rest, ""])


def indented(lines: Sequence[str]) -> list[str]:
    """Return lines of a program four blanks further in, those within texts of several lines as they are."""
    out, within = [], False
    for line in lines:
        out.append(line if within or not line else f"    {line}")
        within ^= line.count('"""') % 2 == 1
    return out

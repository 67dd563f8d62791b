"""For which processors the tests made code, and for which of them it ran: `conftest` closes with it.

Code runs where its instructions are (`codegen.llvm.jit.load` sees to that). For other processors it is read: as text, as proofs of its
schedules, and as loops in their interpreter. No test is left out for that, so the reader is told which tests did only that.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from codegen.llvm.target import LEVEL, Needs, Target, host, lacking, this_machine

RAN, READ = "ran on", "read for"


@dataclass
class Observer:
    """What happened since `forget`: code of which names was loaded, of which it was written, and what this machine lacks to run that."""

    loaded: set[str] = field(default_factory=set)
    written: dict[str, str] = field(default_factory=dict)

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        match event, args:
            case "tensorlang.load", (Needs() as needs,):
                self.loaded.add(needs.target)
            case "tensorlang.emit", (Target() as target,):
                self.written[target.name] = ", ".join(lacking(target.needs, host()))
            case _:
                pass

    def forget(self) -> None:
        self.loaded.clear()
        self.written.clear()

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield what is known of a test, in a form that travels with its report."""
        for name in sorted(self.loaded):
            yield RAN, name
        for name, lacks in sorted(self.written.items()):
            if name not in self.loaded and lacks:
                yield READ, f"{name}: {lacks}"


def observed() -> Observer:
    """Return an observer of what is raised in this process by `sys.audit`. A hook would be called for all else that raises auditing events
    as well, each call of `id` among them, of which compiling and interpreting make millions."""
    found, raised = Observer(), sys.audit

    def audit(event: str, *args: object) -> None:
        found(event, args)
        raised(event, *args)

    vars(sys)["audit"] = audit
    return found


def summary(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Yield lines about the tests that were reported."""
    ran: dict[str, int] = defaultdict(int)
    read: dict[str, list[str]] = defaultdict(list)
    lacks: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        for kind, what in report.user_properties:
            if kind == RAN:
                ran[str(what)] += 1
            elif kind == READ:
                name, missing = str(what).split(": ")
                read[name].append(report.nodeid.split("::")[0])
                lacks[name].update(missing.split(", "))
    if not ran and not read:
        return
    kept = f", which {LEVEL} keeps to less than it is" if host() != this_machine() else ""
    yield f"this machine is {host().cpu}{kept}"
    for name, count in sorted(ran.items()):
        yield f"ran here:  code for {'this machine' if name == 'host' else name}, loaded by {count} tests"
    for name, files in sorted(read.items()):
        yield f"read only: code for {name}, as text and as loops in their interpreter: this machine lacks {', '.join(sorted(lacks[name]))}"
        yield from (f"           {files.count(file)} in {file}" for file in sorted(set(files)))

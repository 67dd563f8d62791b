"""A plugin of pytest that writes down what becomes of each test, as it happens: what is written stays when the process is lost.

    TOLD=FILE pytest -p told …        a JSON line for the tests that there are, for each that begins and for each that ends

Tests that the file says have begun are left out, so that a second process goes on after the test that ended the first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FILE = "TOLD"
WHY = 800
"""How much is kept of why a test failed: the last characters."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a file says: how many tests there are; those that began, in their order; which passed; why others failed."""

    there: int = 0
    begun: tuple[str, ...] = ()
    passed: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Those during which a process ended."""
        return tuple(name for name in self.begun if name not in self.passed and name not in self.failed)


def read(path: Path) -> Told:
    """Return what is told so far. A line that is not whole is not counted."""
    lines = list(_lines(path))
    ended = [line for line in lines if "ended" in line]
    failed = {line["ended"]: str(line["why"]) for line in ended if not line["passed"]}
    passed = frozenset(line["ended"] for line in ended if line["passed"] and line["ended"] not in failed)
    return Told(max((n for line in lines for n in [line.get("there", 0)]), default=0), _begun(lines), passed, failed)


def _begun(lines: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line["begun"] for line in lines if "begun" in line))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def _tell(**what: object) -> None:
    with open(os.environ[FILE], "a", encoding="utf-8") as file:
        file.write("\n" + json.dumps(what) + "\n")  # the last process may have ended within a line


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    begun = set(read(Path(os.environ[FILE])).begun)
    _tell(there=len(items))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in begun])
    items[:] = [item for item in items if item.nodeid not in begun]


def pytest_runtest_logstart(nodeid: str) -> None:
    _tell(begun=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed or report.when == "call":
        _tell(ended=report.nodeid, passed=report.passed, why=report.longreprtext[-WHY:], seconds=round(report.duration, 2))

"""Schedules for kernels of models, in a file: what `tl.tune` found for a model, and `tl.compile(…, schedules=…)` takes.

    {"tensorlang schedules": 1, "kernels": {<key>: {"kernel": "conv", "schedule": ["split y.k by 16 -> …", …], "ratio": 1.2}}}

A key is a digest of a kernel's program, the layouts of its buffers and which of them are constants: schedules reach kernels that are equal
to those they were found for, wherever these are, and no others. They are text, proven where they are used like any other, so what is in a
file can make a model slow, and not wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorlang.diagnostics import CompileError, error
from tensorlang.graph.programs import program_key
from tensorlang.runtime.jobs import Job

_FORMAT = "tensorlang schedules"
_VERSION = 1
_MOST_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class BookEntry:
    """A schedule for kernels called `kernel` when it was found. `ratio`: how many times as fast it was as the kernel's own."""

    kernel: str
    schedule: tuple[str, ...]
    ratio: float

    @property
    def text(self) -> str:
        """The schedule as the language writes it, of an operator that is called `kernel` whatever its name is."""
        body = "\n".join(f"    {line}" for line in self.schedule)
        return f"schedule kernel for cpu {{\n{body}\n}}\n"


@dataclass(frozen=True)
class ScheduleBook:
    """Schedules by the keys of kernels."""

    entries: Mapping[str, BookEntry] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{len(self.entries)} schedules for kernels>"

    @property
    def digest(self) -> str:
        """A digest of what the schedules say; that of no schedules is empty."""
        found = sorted((key, entry.schedule) for key, entry in self.entries.items())
        return hashlib.sha256(repr(found).encode()).hexdigest() if found else ""

    def schedule_of(self, job: Job) -> str | None:
        """Return the text of the schedule for a kernel, None where there is none."""
        found = self.entries.get(key_of_job(job)) if self.entries else None
        return None if found is None else found.text

    @property
    def text(self) -> str:
        """The schedules as a file has them."""
        kernels = {k: {"kernel": e.kernel, "schedule": list(e.schedule), "ratio": e.ratio} for k, e in sorted(self.entries.items())}
        return json.dumps({_FORMAT: _VERSION, "kernels": kernels}, indent=1) + "\n"


def key_of_job(job: Job) -> str:
    """Return the key of a kernel's schedule."""
    parts = (program_key(job.program), job.layouts_text, *sorted(job.constants))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def schedule_book(given: object) -> ScheduleBook:
    """Return what is given as schedules for a model's kernels: a book, the path of one, or None for an empty one. Raises CompileError
    C0145."""
    if given is None:
        return ScheduleBook()
    if isinstance(given, ScheduleBook):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise error("C0145", f"`schedules` is {given!r:.60}", help="give the file that `tl.tune(model, …).save(…)` wrote")
    path = Path(os.fsdecode(given))
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise error("C0145", f"cannot read `{path}`: {why}", help="name a file that `tensorlang tune MODEL -o` wrote") from None
    if len(data) > _MOST_BYTES:
        raise _no_book(path, f"it has more than {_MOST_BYTES >> 20} MiB")
    try:
        return ScheduleBook(_entries(json.loads(data)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise _no_book(path, str(problem) or type(problem).__name__) from None


def _entries(found: Any) -> Mapping[str, BookEntry]:
    if found.get(_FORMAT) != _VERSION:
        raise ValueError(f"it has no line `{_FORMAT}` of version {_VERSION}")
    return {key: _entry(value) for key, value in found["kernels"].items()}


def _entry(found: Any) -> BookEntry:
    kernel, schedule, ratio = found["kernel"], found["schedule"], found["ratio"]
    if not isinstance(kernel, str) or not isinstance(schedule, list) or not all(isinstance(line, str) for line in schedule):
        raise ValueError("a schedule is no list of lines")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not math.isfinite(ratio):
        raise ValueError("a ratio is no number")
    return BookEntry(kernel, tuple(schedule), float(ratio))


def _no_book(path: Path, why: str) -> CompileError:
    help = "let it be written again: `tensorlang tune MODEL -o FILE`"
    return error("C0145", f"`{path}` is no file of schedules", notes=(why,), help=help)

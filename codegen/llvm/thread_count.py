"""How many threads to use where nobody says: what the environment asks for, or what the system grants.

TENSORLANG_THREADS=3      three, or as many as there are processors to run on
affinity                  the processors that the process may run on (`taskset`, a scheduler's cpuset)
quota                     the processor time of its control group (`docker --cpus=1.5`), in processors: two threads for 1.5, as more
                          would wait for the next period while they hold up the others
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from codegen.llvm.pool_ir import MAX_THREADS

THREADS = "TENSORLANG_THREADS"


class ThreadsError(ValueError):
    """`$TENSORLANG_THREADS` is no number of threads."""


@dataclass(frozen=True, slots=True)
class ThreadCount:
    """How many threads to use, and what decides that, in words."""

    count: int
    why: str


def available_cpus() -> list[int]:
    """Return the processors that this process may run on, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def default_threads(root: Path = Path("/")) -> ThreadCount:
    """Return how many threads to use, on a system whose files are under `root`. Raises ThreadsError for `$TENSORLANG_THREADS` that is no
    number of them."""
    there = len(available_cpus())
    most, granted, asked = min(there, MAX_THREADS), cpu_limit(root), os.environ.get(THREADS, "").strip()
    if asked:
        count = _number(asked)
        more = f", and {most} can run at once" if count > most else ""
        return ThreadCount(min(count, most), f"{THREADS} asks for {count}{more}")
    if granted is not None and (whole := max(1, ceil(granted))) < most:
        return ThreadCount(whole, f"the control group grants the time of {granted:.4g} processors")
    return ThreadCount(most, f"{there} of {os.cpu_count()} processors may be used")


def _number(asked: str) -> int:
    if not (asked.isascii() and asked.isdigit()) or int(asked[:9]) < 1:
        raise ThreadsError(f"`{THREADS}` is `{asked}`")
    return int(asked[:9])  # more than any machine has


def cpu_limit(root: Path = Path("/")) -> float | None:
    """Return the processor time that control groups of this process grant, in processors; None where they set no limit."""
    return min(_limits(root), default=None)


def _limits(root: Path) -> Iterator[float]:
    """Yield the limit of each control group that this process is in, the groups above it among them."""
    try:
        groups = (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines()
        mounts = (root / "proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    parts = (line.split(":", 2) for line in groups)
    paths = {part[1]: part[2] for part in parts if len(part) == 3}
    for line in mounts:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" and "" in paths:
            yield from _of_folders(root, fields[4], fields[3], paths[""], _limit)
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            path = next((p for controllers, p in paths.items() if "cpu" in controllers.split(",")), "/")
            yield from _of_folders(root, fields[4], fields[3], path, _limit_of_first_version)


def _of_folders(root: Path, mounted: str, part: str, path: str, limit: Callable[[Path], float | None]) -> Iterator[float]:
    """Yield the limits of the group `path` and those above it, in a hierarchy whose group `part` is mounted at `mounted`."""
    top = root / mounted.lstrip("/")
    below = Path(path).relative_to(part) if Path(path).is_relative_to(part) else Path()
    folder = top / below if ".." not in below.parts else top  # a group of another namespace: what is mounted is all there is to see
    for place in (folder, *folder.parents):
        found = limit(place)
        if found is not None and found > 0:
            yield found
        if place == top:
            return


def _limit(folder: Path) -> float | None:
    """Return the limit of a group of version 2: `150000 100000`, or `max 100000` for none."""
    return _ratio(_words(folder / "cpu.max"))


def _limit_of_first_version(folder: Path) -> float | None:
    """Return the limit of a group of version 1, which has -1 for none."""
    return _ratio(_words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us"))


def _ratio(words: list[str]) -> float | None:
    """Return the time of a group over its period, where both are numbers."""
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").split()
    except OSError:
        return []

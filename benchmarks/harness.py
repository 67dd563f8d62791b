"""What the benchmarks share: paired runs, signs of disturbance, the description of the machine, tables.

Runs are compared in turns (A B A B …). Each turn begins when the threads of the one before sleep, with runs that do not count. A run
is *disturbed* when the process was preempted while it ran, or when multiply-adds just before or after it were slow: other work had the
processors. Medians are taken over the runs that were not disturbed if there are at least three, and the share of disturbed runs is part
of every result.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # the repository root comes first

from codegen.dtypes import f32
from codegen.llvm.emit import emit
from codegen.llvm.jit import compile_object, load
from codegen.llvm.pool import available_threads, pool_imports, set_threads, threads
from codegen.llvm.probe import copy_bandwidth, fma_flops
from codegen.llvm.target import host
from codegen.loops.parser import parse
from tensorlang.shell.measure import settle

Array = np.ndarray[Any, Any]
Run = Callable[[], object]

ROOT = Path(__file__).parents[1]
SLOW = 0.8
"""A probe below this share of the usual speed marks the run beside it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one contender. `disturbed` is the share of its runs that other work disturbed."""

    name: str
    median: float
    best: float
    runs: int
    disturbed: float

    @property
    def steady(self) -> bool:
        return self.disturbed <= 0.5


@dataclass(frozen=True, slots=True)
class _Sample:
    seconds: float
    disturbed: bool


# ---------------------------------------------------------------- measuring


def paired(runs: Mapping[str, Run], seconds: float, *, rounds: int = 3) -> list[Timing]:
    """Return the timing of each run; all of them take turns for about `seconds` seconds, and at least `rounds` times.

    Between turns is a rest until the waiting threads of the last contender sleep; then come runs that do not count, which wake those of the
    next: at least one, for at least a millisecond."""
    probe = _Probe()
    for run in runs.values():
        run()
    batch = {name: _batch(run) for name, run in runs.items()}
    samples: dict[str, list[_Sample]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    done = 0
    while done < rounds or time.perf_counter() < end:
        for name, run in runs.items():
            settle()
            before = probe.slow()
            _awake(run)
            taken = [_sample(run, batch[name]) for _ in range(_PER_TURN)]
            slow = before or probe.slow()
            samples[name] += [_Sample(s.seconds, s.disturbed or slow) for s in taken]
        done += 1
    return [_timing(name, found) for name, found in samples.items()]


_PER_TURN = 3
_WAKING = 1e-3


def _awake(run: Run) -> None:
    """Run once, and again until the threads that take part have surely woken."""
    start = time.perf_counter()
    while True:
        run()
        if time.perf_counter() - start >= _WAKING:
            return


def urgent() -> bool:
    """Let all threads of this process, and those they start, run before most others; return whether that is allowed.

    For machines that do other work: what remains is that caches and memory are shared. Where the system groups processes by
    session it is the group's priority that counts; it is given back at the end, for a session outlives its commands."""
    try:
        for thread in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), -20)
    except OSError:
        return False
    group = Path("/proc/self/autogroup")
    with contextlib.suppress(OSError):
        before = group.read_text().rpartition("nice")[2].strip()
        group.write_text("-20")
        atexit.register(group.write_text, before)
    return True


def ratio(ours: Timing, theirs: Timing) -> float:
    """Return how many times faster we are, by medians."""
    return theirs.median / ours.median


def ceiling(count: int = 1) -> float:
    """Return the multiply-add ceiling of `count` threads in operations per second: the best of three tries."""
    return max(fma_flops(f32, threads=count, seconds=0.2) for _ in range(3))


def copy_ceiling(size: int) -> float:
    """Return the bytes per second, read plus written, at which one thread copies so many bytes, by either kind of store."""
    return max(copy_bandwidth(size, stream=stream, seconds=0.2) for stream in (False, True))


def _sample(run: Run, batch: int) -> _Sample:
    preempted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    start = time.perf_counter()
    for _ in range(batch):
        run()
    taken = (time.perf_counter() - start) / batch
    return _Sample(taken, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw > preempted)


def _batch(run: Run) -> int:
    """Return how many runs take about 100 microseconds, so that the clock does not count."""
    start = time.perf_counter()
    run()
    return max(1, min(1000, int(1e-4 / max(time.perf_counter() - start, 1e-9))))


def _timing(name: str, samples: Sequence[_Sample]) -> Timing:
    calm = [s.seconds for s in samples if not s.disturbed]
    every = [s.seconds for s in samples]
    used = calm if len(calm) >= 3 else every
    return Timing(name, median(used), min(every), len(every), 1 - len(calm) / len(every))


_PROBE = """func probe()(a: f32[16] align 64, out y: f32[12, 16] align 64) {
  alloc acc: f32[12, 16] registers
  for c in 0 .. 12 unroll 12 { for l in 0 .. 16 vector 16 { acc[c, l] = 0.0_f32 } }
  for k in 0 .. 60000 { for c in 0 .. 12 unroll 12 { for l in 0 .. 16 vector 16 { acc[c, l] = fma(a[l], a[l], acc[c, l]) } } }
  for c in 0 .. 12 unroll 12 { for l in 0 .. 16 vector 16 { y[c, l] = acc[c, l] } }
}"""


class _Probe:
    """Multiply-adds for about 100 microseconds, and how long they take when nothing else runs."""

    def __init__(self) -> None:
        function = parse(_PROBE)
        self._library = load([compile_object(emit(function, host()), host())], pool_imports())
        self._arrays = [aligned(16), aligned(192)]
        self._block = (ctypes.c_int64 * 2)(*(a.ctypes.data for a in self._arrays))
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(self._library.address(function.name))
        self._usual = min(self._seconds() for _ in range(200))

    def slow(self) -> bool:
        """Tell whether the processor is slower than usual now."""
        taken = self._seconds()
        self._usual = min(self._usual, taken)
        return taken > self._usual / SLOW

    def _seconds(self) -> float:
        start = time.perf_counter()
        self._entry(ctypes.addressof(self._block), None)
        return time.perf_counter() - start


def aligned(count: int) -> Array:
    """Return `count` zeros that start at a multiple of 64 bytes."""
    raw = np.zeros(count + 16, np.float32)
    start = (-raw.ctypes.data // 4) % 16
    return raw[start : start + count]


def error_of(ours: Array, theirs: Array) -> float:
    """Return the largest difference over the largest magnitude."""
    wide, reference = ours.astype(np.float64), theirs.astype(np.float64)
    scale = float(np.max(np.abs(reference), initial=0.0)) or 1.0
    return float(np.max(np.abs(wide - reference), initial=0.0)) / scale


# ---------------------------------------------------------------- the machine


_VERSIONS = ("tensorlang", "numpy", "llvmlite", "islpy", "onnx", "onnxruntime", "openvino", "torch")


def machine() -> dict[str, Any]:
    """Return what figures depend on: processor, versions, load, date. It names no host."""
    target = host()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _cpuinfo("model name"),
        "family": _cpuinfo("cpu family"),
        "threads": available_threads(),
        "vector_bits": target.vector_bits,
        "caches": _caches(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _VERSIONS},
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "unknown")


def _caches() -> str:
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


# ---------------------------------------------------------------- writing


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a markdown table, its columns aligned."""
    cells = [[str(c) for c in head], *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))) + " |"

    rule = "|" + "|".join("-" * (w + 2) if k == 0 else "-" * (w + 1) + ":" for k, w in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def write(path: str | None, title: str, results: Sequence[Mapping[str, Any]], text: str) -> None:
    """Print the text; with a path also write `<path>.json` and `<path>.md`."""
    print(text)
    if path is None:
        return
    about = machine()
    lines = ["{", f' "title": {json.dumps(title)},', f' "machine": {json.dumps(about)},', ' "results": [']
    lines += [f"  {json.dumps(r)}{',' if k + 1 < len(results) else ''}" for k, r in enumerate(results)]
    Path(f"{path}.json").write_text("\n".join([*lines, " ]", "}", ""]))
    Path(f"{path}.md").write_text(f"# {title}\n\n{described(about)}\n\n{text}\n")


def described(about: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {v}" for name, v in about["versions"].items() if v)
    return (
        f"{about['date']}; {about['processor']} (family {about['family']}), {about['threads']} threads, "
        f"{about['vector_bits']}-bit vectors, {about['caches']}, {about['memory_gib']} GiB; load {about['load']:.1f}; "
        f"Python {about['python']}, {versions}."
    )


def mark(timing: Timing) -> str:
    """Return a sign for timings most of whose runs were disturbed."""
    return "" if timing.steady else " ~"


def with_threads(count: int, run: Run) -> Run:
    """Return `run` under a pool of `count` threads."""

    def go() -> object:
        if threads() != count:
            set_threads(count)
        return run()

    return go

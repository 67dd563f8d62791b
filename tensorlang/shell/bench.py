"""A model or an operator next to every peer: times, rates, the share of the roofline, differences between results, memory.

                           median ms   best ms  GFLOP/s  roofline     than ours  differs by
tensorlang                    1.9200    1.9100    265.1       98%
onnxruntime 1.31.1            2.0300    2.0000    250.9       93%  1.06x slower       1e-07
tensorlang is 1.06x faster than onnxruntime, the fastest peer in f32

What is measured is a run on arrays that are sorted out once: ours and those of peers that offer it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang.runtime.feeds import in_rows, results_of
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.work import Roofline
from tensorlang.shell.measure import Timing, largest_difference, measured, measured_on_device
from tensorlang.shell.peers import DeviceRun, Peer, Run, Task, device_runs, runs

Array = np.ndarray[Any, Any]
OURS = "tensorlang"


@dataclass(frozen=True, slots=True)
class Contender:
    """One line of a comparison. `difference`: of its results from ours, relative to the largest value; `peak_mib`: of a process that does
    nothing else, None where that was not asked for or failed."""

    timing: Timing
    version: str
    precision: str
    difference: float | None = None
    peak_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours first, then the peers. On a GPU `threads` is 0."""

    contenders: tuple[Contender, ...]
    roofline: Roofline
    threads: int

    @property
    def best(self) -> Contender | None:
        """The fastest peer that computes in f32."""
        exact = [c for c in self.contenders[1:] if c.precision == "f32"]
        return min(exact, key=lambda c: c.timing.median_seconds, default=None)

    def ratio(self, other: Contender) -> float:
        """Return how many times as long as ours the other takes, by medians."""
        return other.timing.median_seconds / self.contenders[0].timing.median_seconds


def bench_model(model: CompiledModel, task: Task, threads: int, precision: str, chosen: Sequence[Peer], seconds: float) -> Comparison:
    """Return a compiled model next to `chosen`, all of which may write into arrays that exist."""
    inputs = {name: np.asarray(array, order="C") for name, array in task.inputs.items()}
    prepared = model.prepared(inputs)
    task = task if task.results else replace(task, results=tuple(np.array(r) for r in prepared().values()))
    return _compared(lambda: list(prepared().values()), task, model.roofline(inputs), threads, precision, chosen, seconds)


def bench_operator(
    operator: Operator, given: Mapping[str, Any], task: Task, threads: int, chosen: Sequence[Peer], seconds: float
) -> Comparison:
    """Return an operator next to `chosen`."""
    dense = in_rows(given)
    prepared = operator.prepared(**dense)
    return _compared(lambda: results_of(prepared()), task, operator.roofline(**dense), threads, "f32", chosen, seconds)


def _compared(
    ours: Run, task: Task, roofline: Roofline, threads: int, precision: str, chosen: Sequence[Peer], seconds: float
) -> Comparison:
    others = runs(task, threads, chosen)
    expected = [np.array(r) for r in ours()]
    differences = {name: largest_difference(expected, run()) for name, run in others.items()}
    by_name = {p.name: p for p in chosen}
    first, *rest = measured({OURS: ours, **others}, seconds)
    peers = (Contender(t, by_name[t.name].version, by_name[t.name].precision, differences[t.name]) for t in rest)
    return Comparison((Contender(first, "", precision), *peers), roofline, threads)


def bench_on_device(timed: DeviceRun, task: Task, roofline: Roofline, precision: str, chosen: Sequence[Peer], seconds: float) -> Comparison:
    """Return a run on a device next to those of `chosen` that can do the task there; nothing is copied from or to the host."""
    expected = [np.array(r) for r in timed.results()]
    others = device_runs(task, chosen)
    differences = {name: largest_difference(expected, run.results()) for name, run in others.items()}
    by_name = {p.name: p for p in chosen}
    first, *rest = measured_on_device({OURS: timed.seconds, **{name: run.seconds for name, run in others.items()}}, seconds)
    peers = (Contender(t, by_name[t.name].version, by_name[t.name].precision, differences[t.name]) for t in rest)
    return Comparison((Contender(first, "", precision), *peers), roofline, 0)


# ---------------------------------------------------------------- memory


def with_memory(found: Comparison, file: Path, inputs: Mapping[str, Array], options: Mapping[str, Any]) -> Comparison:
    """Return the comparison of a model, compiled with `options`, with the memory that each contender needs."""
    with tempfile.TemporaryDirectory() as folder:
        arrays = str(Path(folder) / "inputs.npz")
        np.savez(arrays, allow_pickle=False, **inputs)
        peaks = {
            c.timing.name: first_result(c.timing.name, str(file), arrays, found.threads, options).get("peak_mib") for c in found.contenders
        }
    return replace(found, contenders=tuple(replace(c, peak_mib=peaks[c.timing.name]) for c in found.contenders))


def first_result(name: str, file: str, inputs: str, threads: int, options: Mapping[str, Any], **environment: str) -> dict[str, Any]:
    """Return what `first` or `first_of_peer` say of a contender's first result in a process of its own: `first_result_s`, `peak_mib`;
    or why there is none, as `failed`. `inputs` is a file of arrays, `options` are those of `tensorlang.compile`."""
    ours = [f"{_HERE}.first", file, inputs, str(threads), json.dumps(dict(options))]
    arguments = ours if name == OURS else [f"{_HERE}.first_of_peer", name, file, inputs, str(threads)]
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | environment
    done = subprocess.run([sys.executable, "-m", *arguments], env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        titles = [line[line.index("error[") :] for line in said if "error[" in line]
        return {"failed": titles[0] if titles else said[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


_HERE = __name__.rpartition(".")[0]


# ---------------------------------------------------------------- reporting


def as_text(found: Comparison) -> str:
    """Return a table with a line for each contender, at most 100 columns wide, and how ours compares with the fastest f32 peer."""
    columns = [c for c in _columns(found) if any(c[2])]
    lines = [_row("", [(title, width) for title, width, _ in columns])]
    for k, contender in enumerate(found.contenders):
        name = f"{contender.timing.name} {contender.version}".strip()
        lines.append(_row(name, [(cells[k], width) for _, width, cells in columns]))
    best = found.best
    if best is not None:
        lines.append(f"tensorlang is {_pace(found.ratio(best))} {best.timing.name}, the fastest peer in f32")
    disturbed = [f"{c.timing.name} {c.timing.disturbed:.0%}" for c in found.contenders if c.timing.disturbed]
    if disturbed:
        lines.append(f"runs that other work disturbed: {', '.join(disturbed)}")
    return "\n".join(lines)


def _columns(found: Comparison) -> list[tuple[str, int, list[str]]]:
    """Return the columns of the table: title, width, and a cell for each contender, which may be empty."""
    each, roofline, ours = found.contenders, found.roofline, found.contenders[0]
    flops = roofline.work.flops * 1e-9
    return [
        ("median ms", 11, [f"{c.timing.median_seconds * 1e3:.4f}" for c in each]),
        ("best ms", 10, [f"{c.timing.best_seconds * 1e3:.4f}" for c in each]),
        ("GFLOP/s", 9, [f"{flops / c.timing.median_seconds:.1f}" if flops else "" for c in each]),
        ("roofline", 9, [f"{roofline.seconds / c.timing.median_seconds:.0%}" if roofline.seconds else "" for c in each]),
        ("than ours", 14, ["" if c is ours else _pace(1 / found.ratio(c)).removesuffix(" than").removesuffix(" as") for c in each]),
        ("differs by", 11, ["" if c.difference is None else f"{c.difference:.1g}" for c in each]),
        ("MiB", 7, ["" if c.peak_mib is None else f"{c.peak_mib:.0f}" for c in each]),
    ]


def _row(name: str, cells: Sequence[tuple[str, int]]) -> str:
    return f"{name:28}{''.join(f'{text:>{width}}' for text, width in cells)}".rstrip()


def _pace(ratio: float) -> str:
    """Say how fast something is that takes the other's time divided by `ratio`: `1.3x faster than`."""
    if 0.995 < ratio < 1.005:
        return "as fast as"
    times = max(ratio, 1 / ratio)
    digits = 2 if times < 10 else 1 if times < 100 else 0
    return f"{times:.{digits}f}x {'faster' if ratio > 1 else 'slower'} than"


def as_data(found: Comparison) -> dict[str, Any]:
    """Return the same for programs."""
    best, roofline = found.best, found.roofline
    contenders = [
        {
            **asdict(c.timing),
            "version": c.version,
            "precision": c.precision,
            "gflops": roofline.work.flops / c.timing.median_seconds * 1e-9,
            "roofline": roofline.seconds / c.timing.median_seconds,
            "largest_difference": c.difference,
            "peak_mib": c.peak_mib,
        }
        for c in found.contenders
    ]
    return {
        "threads": found.threads,
        "operations": roofline.work.flops,
        "moved_bytes": roofline.work.moved_bytes,
        "roofline_seconds": roofline.seconds,
        "timings": contenders,
        "best_f32_peer": None if best is None else best.timing.name,
        "ratio": None if best is None else found.ratio(best),
    }

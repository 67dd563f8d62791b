"""How long each kernel of a model took in a run: as a table, and as a trace for Chrome (`chrome://tracing`) and Perfetto."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

from tensorlang.diagnostics import counted, error, plain_text, text_columns
from tensorlang.graph.edit import members, size_bytes
from tensorlang.graph.nodes import Extern, Graph, Kernel
from tensorlang.html import html_text, table
from tensorlang.runtime.kernel_time import KernelTime
from tensorlang.runtime.report import bytes_text, kernel_name
from tensorlang.runtime.run_trace import RunTrace, ThreadPiece
from tensorlang.runtime.work import Work, work_of

_HEADER = ("time", "share", "sum", "GFLOP/s", "bytes", "kernel")
_WIDTHS = (12, 7, 7, 9, 11)
_LEAST_WIDTH = sum(_WIDTHS) + 12


@dataclass(frozen=True, slots=True, repr=False)
class Profile(Sequence[KernelTime]):
    """The times of a model's kernels, in the order they run. `print` shows them as a table, the longest first.

    `target` is what the model ran on, `run` one run as it went, where that is known."""

    model: str
    target: str
    kernels: tuple[KernelTime, ...]
    run: RunTrace | None = None

    @overload
    def __getitem__(self, k: int, /) -> KernelTime: ...
    @overload
    def __getitem__(self, k: slice, /) -> tuple[KernelTime, ...]: ...
    def __getitem__(self, k: int | slice, /) -> KernelTime | tuple[KernelTime, ...]:
        return self.kernels[k]

    def __len__(self) -> int:
        return len(self.kernels)

    def __repr__(self) -> str:
        return self.table()

    @property
    def seconds(self) -> float:
        """What all kernels took together."""
        return sum(k.seconds for k in self.kernels)

    def table(self, width: int = 100) -> str:
        """Return the kernels, the longest first, in lines of at most `width` columns: the time of each, its share of all and that of it
        and those before it, operations a second, bytes that enter and leave, and what it computes."""
        room = max(width, _LEAST_WIDTH) - sum(_WIDTHS) - 2
        lines = [_cut(self._title(), max(width, _LEAST_WIDTH))]
        for *numbers, name in (_HEADER, *self._rows()):
            lines.append("".join(f"{n:>{w}}" for n, w in zip(numbers, _WIDTHS, strict=True)) + f"  {_cut(name, room)}")
        return "\n".join(lines)

    def trace(self) -> dict[str, Any]:
        """Return a run as an object of the trace event format. The first row has the run, in it the kernels, in these what the thread
        that calls them did of their parallel loops; each other thread has a row of its own. Where it is not known when kernels began,
        they follow each other."""
        traced = self.run or _one_after_the_other(self.kernels)
        named = [("process_name", 1, f"model {plain_text(self.model)}"), ("thread_name", 1, self.target)]
        named += [("thread_name", thread + 1, f"thread {thread}") for thread in range(1, traced.threads)]
        head = [{"name": what, "ph": "M", "pid": 1, "tid": row, "args": {"name": name}} for what, row, name in named]
        end = max((start + seconds for start, seconds in traced.kernels), default=0.0)
        run = _complete(f"run {plain_text(self.model)}".rstrip(), "model", 1, 0.0, end, {"kernels": len(self)})
        events = [_event(k, start, seconds) for k, (start, seconds) in zip(self.kernels, traced.kernels, strict=True)]
        loops = [self._loop_event(s, traced) for s in traced.pieces]
        return {
            "traceEvents": [*head, run, *events, *loops],
            "displayTimeUnit": "ms",
            "otherData": {"model": self.model, "target": self.target},
        }

    def _loop_event(self, done: ThreadPiece, traced: RunTrace) -> dict[str, Any]:
        """Return what a thread did, under the name of the kernel that it was for."""
        number = max(0, bisect_right([start for start, _ in traced.kernels], done.start) - 1)
        name = plain_text(self.kernels[number].name)
        return _complete(name, "loop", done.thread + 1, done.start, done.seconds, {"iterations": f"{done.first}..{done.last}"})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `trace` to a file as JSON. Raises CompileError C0203 where that is not possible."""
        try:
            Path(path).write_text(json.dumps(self.trace()), encoding="utf-8")
        except OSError as problem:
            raise error("C0203", f"cannot write `{path}`: {(problem.strerror or str(problem)).lower()}") from None

    def _repr_html_(self) -> str:
        return f"<div><strong>{html_text(self._title())}</strong>{table(_HEADER, self._rows(), frozenset((5,)))}</div>"

    def _title(self) -> str:
        name = f"`{plain_text(self.model)}` " if self.model else ""
        return f"model {name}on {self.target}: {counted(len(self), 'kernel')}, {_time(self.seconds)}"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        total, so_far = self.seconds or 1.0, 0.0
        for k in sorted(self.kernels, key=lambda k: -k.seconds):
            so_far += k.seconds
            rate = f"{k.work.flops / k.seconds * 1e-9:.1f}" if k.work.flops and k.seconds else "-"
            yield _time(k.seconds), f"{k.seconds / total:.1%}", f"{so_far / total:.1%}", rate, bytes_text(k.work.moved_bytes), _label(k)


def profile_of(
    name: str, target: str, nodes: Sequence[tuple[Graph, Kernel | Extern]], seconds: Sequence[float], run: RunTrace | None = None
) -> Profile:
    """Return the profile of a model whose kernels, each a node of a graph, take so many seconds; of those that are not in the language it
    is known only what they read and write. `run`: of one run of it."""
    times = (
        KernelTime(kernel_name(k), members(k), graph.values[k.outputs[0]], taken, _work(graph, k))
        for (graph, k), taken in zip(nodes, seconds, strict=True)
    )
    return Profile(name, target, tuple(times), run)


def _work(graph: Graph, node: Kernel | Extern) -> Work:
    if isinstance(node, Kernel):
        return work_of(node.program)
    read, written = (sum(size_bytes(graph.values[v]) for v in dict.fromkeys(names)) for names in (node.inputs, node.outputs))
    return Work(0, read, written)


def _time(seconds: float) -> str:
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 1e4:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds:.1f} s"


def _label(kernel: KernelTime) -> str:
    return plain_text(f"{kernel.name}: {' + '.join(kernel.members)}" if kernel.members else kernel.name)


def _event(kernel: KernelTime, start: float, seconds: float) -> dict[str, Any]:
    args: dict[str, Any] = {
        "computes": [plain_text(m) for m in kernel.members],
        "result": f"{kernel.result.dtype}{list(kernel.result.shape)}",
        "operations": kernel.work.flops,
        "bytes": kernel.work.moved_bytes,
        "best us": kernel.seconds * 1e6,
    }
    if kernel.seconds:
        args["GFLOP/s"] = kernel.work.flops / kernel.seconds * 1e-9
    return _complete(plain_text(kernel.name), "kernel", 1, start, seconds, args)


def _complete(name: str, category: str, row: int, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    """Return a complete event of the format: times are in microseconds."""
    return {"name": name, "cat": category, "ph": "X", "pid": 1, "tid": row, "ts": start * 1e6, "dur": seconds * 1e6, "args": args}


def _one_after_the_other(kernels: Sequence[KernelTime]) -> RunTrace:
    starts = accumulate((k.seconds for k in kernels), initial=0.0)
    return RunTrace(tuple((start, k.seconds) for k, start in zip(kernels, starts, strict=False)))


def _cut(text: str, width: int) -> str:
    """Return a text that takes at most so many columns."""
    if text_columns(text) <= width:
        return text
    kept, room = "", width - 1
    for character in text:
        room -= text_columns(character)
        if room < 0:
            break
        kept += character
    return kept + "…"

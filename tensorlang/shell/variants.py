"""Schedules near the one that an operator runs under, measured next to it: what to write instead, and what that gains.

split      another factor: half, twice, and one or two more or less where lanes do not decide it
dropped    a directive that changes no loop: `prefetch`, `stream`, `pack`, `parallel`, `partition`
packed     an operand that is read along a split loop, stored in the order in which its elements are read

Each is proven like any other; what is refused is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhedral.expr import Name
from tensorlang.diagnostics import CompileError
from tensorlang.runtime.feeds import in_rows
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.protocol import Progress
from tensorlang.shell.measure import measured
from tensorlang.tensor.nodes import Definition, Program
from tensorlang.tensor.walk import reads

_SPLIT = re.compile(r"(?P<head>split (?P<loop>[\w.]+) by )(?P<factor>\d+)(?P<rest> -> (?P<outer>[\w.]+), (?P<inner>[\w.]+).*)")
_DROPPED = ("prefetch", "stream", "pack", "parallel", "partition")
_MOST_FACTOR = 4096
LEAST_GAIN = 1.02
"""How many times as fast a schedule has to be to be told of."""
_FINALISTS = 3


@dataclass(frozen=True, slots=True)
class Variant:
    """A schedule by its lines, and in words what differs."""

    change: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Faster:
    """`ratio`: how many times as fast as the operator under its own schedule, by the shortest of their runs, which took turns."""

    ratio: float
    variant: Variant


@dataclass(frozen=True, slots=True)
class Tried:
    """`count` schedules were measured, `refused` could not be; those that are faster come fastest first."""

    count: int
    refused: int
    faster: tuple[Faster, ...]


def variants(program: Program, lines: Sequence[str]) -> Iterator[Variant]:
    """Yield schedules near one, whose directives are `lines` as explained schedules print them; each differs in one of them."""
    vectors = {name for line in lines if line.startswith("vectorize ") for name in re.findall(r"[\w.]+", line)[1:]}
    for k, line in enumerate(lines):
        split = _SPLIT.fullmatch(line)
        if split is not None:
            for factor in _factors(int(split["factor"]), _ends_in(split["inner"], vectors)):
                other = f"{split['head']}{factor}{split['rest']}"
                yield Variant(f"`{other}` for `{line}`", (*lines[:k], other, *lines[k + 1 :]))
        elif line.split(" ", 1)[0] in _DROPPED:
            yield Variant(f"without `{line}`", (*lines[:k], *lines[k + 1 :]))
    for line in _packs(program, lines):
        yield Variant(f"with `{line}`", (*lines, line))


def _factors(factor: int, are_lanes: bool) -> list[int]:
    near = [factor // 2, 2 * factor] if are_lanes else [factor // 2, factor - 2, factor - 1, factor + 1, factor + 2, 2 * factor]
    return [n for n in dict.fromkeys(near) if 1 < n <= _MOST_FACTOR and n != factor]


def _ends_in(name: str, loops: set[str]) -> bool:
    """Tell whether one of the loops, which may have the name of their tensor before theirs, is called `name`."""
    return any(loop.rpartition(".")[2] == name for loop in loops)


def _packs(program: Program, lines: Sequence[str]) -> Iterator[str]:
    """Yield a directive for each operand that is read at axes and binders alone, the last of which is split."""
    packed = {line.split(" ")[1] for line in lines if line.startswith("pack ")}
    for definition in program.definitions:
        stage = definition.tensors[0].name
        for tensor, loops in _operands(program, definition).items():
            inner = _split_of(f"{stage}.{loops[-1]}", stage, lines)
            if inner is not None and tensor not in packed and not any(_split_of(f"{stage}.{name}", stage, lines) for name in loops[:-1]):
                dims = [inner[0], *(f"{stage}.{name}" for name in loops[:-1]), inner[1]]
                yield f"pack {tensor} as [{', '.join(dims)}]"


def _operands(program: Program, definition: Definition) -> Mapping[str, list[str]]:
    """Return the parameters that a definition reads in one way, each with the names along whose values it does so."""
    params = {p.name for p in program.params if len(p.shape) > 1}
    found: dict[str, list[list[str]]] = {}
    for read in (r for piece in definition.pieces for r in reads(piece.value) if r.tensor in params):
        names = [s.name for s in read.index if isinstance(s, Name)]
        found.setdefault(read.tensor, []).append(names if len(names) == len(read.index) else [])
    return {tensor: ways[0] for tensor, ways in found.items() if len(ways) == 1 and ways[0]}


def _split_of(loop: str, stage: str, lines: Sequence[str]) -> tuple[str, str] | None:
    """Return the two loops that one is split into, as schedules name them."""
    for split in filter(None, map(_SPLIT.fullmatch, lines)):
        if split["loop"] == loop:
            return f"{stage}.{split['outer']}", f"{stage}.{split['inner']}"
    return None


def tried(operator: Operator, given: Mapping[str, Any], seconds: float, progress: Progress) -> Tried:
    """Return what schedules near that of a call gain, measured in turns for about so many seconds after they are compiled."""
    dense = in_rows(given)
    made: Any = operator.compiled(operator.call(**dense))
    lines = [line.strip() for line in made.artifact.schedule.splitlines() if line.startswith(" ")]
    near = list(variants(made.program, lines))
    runs: dict[int, Callable[[], object]] = {-1: operator.prepared(**dense)}
    for k, variant in enumerate(near):
        progress("compiling schedules", k, len(near))
        try:
            runs[k] = operator.schedule("\n".join(variant.lines)).prepared(**dense)
        except CompileError:
            continue
    progress("compiling schedules", len(near), len(near))
    first = _ratios(runs, seconds * 0.6)
    last = sorted((k for k in first if k >= 0), key=lambda k: -first[k])[:_FINALISTS]
    again = _ratios({k: runs[k] for k in (-1, *last)}, seconds * 0.4) if last else {}
    best = sorted((k for k in again if k >= 0 and again[k] >= LEAST_GAIN), key=lambda k: -again[k])
    return Tried(len(runs) - 1, len(near) - len(runs) + 1, tuple(Faster(again[k], near[k]) for k in best))


def _ratios(runs: Mapping[int, Callable[[], object]], seconds: float) -> dict[int, float]:
    """Return how many times as fast as number -1 each run is."""
    times = {int(t.name): t.best_seconds for t in measured({str(k): run for k, run in runs.items()}, seconds)}
    return {k: times[-1] / taken for k, taken in times.items()}


def tried_text(operator: str, target: str, found: Tried) -> str:
    """Return a section of a report: what is faster, and the fastest to be pasted."""
    refused = f", {found.refused} more {'was' if found.refused == 1 else 'were'} refused" if found.refused else ""
    lines = [f"measured   {found.count} schedules that differ in one directive{refused}"]
    lines += [f"           {f.ratio:.2f}x as fast: {f.variant.change}" for f in found.faster]
    if not found.faster:
        return "\n".join([*lines, f"           none is {LEAST_GAIN:.2f}x as fast"])
    body = "\n".join(f"    {line}" for line in found.faster[0].variant.lines)
    return "\n".join([*lines, "", f"schedule {operator} for {target} {{", body, "}"])

"""Programs cut where they call kernels that are not in the language: in between are programs to schedule, each as if it were alone.

    a[i] = 2 * x[i]        segment 0: x -> a
    s = sort(a)            the call of a kernel
    y[i] = s[i] + a[i]     segment 1: s, a -> y

What a definition needs decides before which calls it can run; it runs right before the first that reads it, or with what reads it first,
so that what is done to results of a kernel is one program. A tensor that is made in one segment and read in another is a result of the one
and a parameter of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tensorlang.diagnostics import CompileError, InternalError, error
from tensorlang.tensor.nodes import Definition, ExternCall, Program, Tensor
from tensorlang.tensor.walk import components, definition_reads, tensor_table

Segment: TypeAlias = Program | ExternCall


def segments(program: Program) -> tuple[Segment, ...]:
    """Return what a program does, in order. A program that calls no kernel is its own one segment. Raises CompileError T0145 where a kernel
    needs its own result."""
    if not program.externs:
        return (program,)
    depth = _depths(program)
    last = max(depth[t.name] for call in program.externs for t in call.results)
    groups = components(program)
    place = _places(program, groups, depth)
    out: list[Segment] = []
    for number in range(last + 1):
        mine = [d for group in groups if place[group[0].tensors[0].name] == number for d in group]
        out += _program(program, mine, number)
        out += [call for call in program.externs if depth[call.results[0].name] == number + 1]
    _check_order(program, tuple(out))
    return tuple(out)


def parts_of(program: Program) -> tuple[Program, ...]:
    """Return what lies between the calls of kernels: programs to schedule, in order."""
    return tuple(part for part in segments(program) if isinstance(part, Program))


def _check_order(program: Program, made: tuple[Segment, ...]) -> None:
    """Raise InternalError unless running the segments in order computes the program: each definition and each call stands in one of them,
    and all that a segment reads from outside of itself was there before it began. So every call is a barrier, and what is proven of the
    order inside of one segment, and inside of the next, holds of both one after the other."""
    there = {p.name for p in program.params}
    for segment in made:
        reads = {p.name for p in segment.params} if isinstance(segment, Program) else set(segment.reads)
        if not reads <= there:
            raise InternalError("segments", f"{', '.join(sorted(reads - there))} is read before it is computed")
        there |= set(segment.results) if isinstance(segment, Program) else {t.name for t in segment.results}
    definitions = [d for segment in made if isinstance(segment, Program) for d in segment.definitions]
    calls = [segment for segment in made if isinstance(segment, ExternCall)]
    once = len(definitions) == len(program.definitions) and len(calls) == len(program.externs)
    if not once or {id(d) for d in definitions} != {id(d) for d in program.definitions} or not set(program.results) <= there:
        raise InternalError("segments", f"`{program.name}` is not cut into all that it computes")


def _depths(program: Program) -> dict[str, int]:
    """Return how many kernels, one needing the other, have run before each tensor is there."""
    depth = {p.name: 0 for p in program.params}
    groups = components(program)
    pending: list[tuple[frozenset[str], tuple[Tensor, ...], int]] = [(frozenset(c.reads), c.results, 1) for c in program.externs]
    for group in groups:
        made = tuple(t for d in group for t in d.tensors)
        needs = frozenset[str]().union(*map(definition_reads, group)) - {t.name for t in made}
        pending.append((needs, made, 0))
    while pending:
        ready = [item for item in pending if item[0] <= depth.keys()]
        if not ready:
            raise _cyclic(program, [item[1][0].name for item in pending])
        for needs, made, more in ready:
            depth |= dict.fromkeys((t.name for t in made), max((depth[n] for n in needs), default=0) + more)
        pending = [item for item in pending if item not in ready]
    return depth


def _cyclic(program: Program, waiting: list[str]) -> CompileError:
    """Return what is said of a kernel that needs its own result, where these tensors cannot be computed."""
    call = next(call for call in program.externs if call.results[0].name in waiting)
    title = f"a call of `{call.operator}` needs its own result"
    help = "a kernel works on whole tensors: what it is given must be computed before it is called"
    return error("T0145", title, call.span, "declared here", help=help)


def _places(program: Program, groups: Sequence[tuple[Definition, ...]], depth: Mapping[str, int]) -> dict[str, int]:
    """Return the segment of each definition, by its tensors."""
    wanted: dict[str, list[int]] = {}
    for call in program.externs:
        for name in call.reads:
            wanted.setdefault(name, []).append(depth[call.results[0].name] - 1)
    place: dict[str, int] = {}
    for group in reversed(groups):
        names = [t.name for d in group for t in d.tensors]
        found = min((at for name in names for at in wanted.get(name, ())), default=depth[names[0]])
        place |= dict.fromkeys(names, found)
        for definition in group:
            for name in definition_reads(definition) - set(names):
                wanted.setdefault(name, []).append(found)
    return place


def _program(program: Program, mine: list[Definition], number: int) -> Iterator[Program]:
    """Yield the program of these definitions, if there are any: it returns what is read elsewhere, or is a result."""
    if not mine:
        return
    table = tensor_table(program)
    own = {t.name for d in mine for t in d.tensors}
    needs = {name for d in mine for name in definition_reads(d)} - own
    elsewhere = {name for d in program.definitions if d.tensors[0].name not in own for name in definition_reads(d)}
    elsewhere |= {name for call in program.externs for name in call.reads} | set(program.results)
    yield replace(
        program,
        name=f"{program.name}.{number}",
        params=tuple(table[name] for name in table if name in needs),
        results=tuple(t.name for d in mine for t in d.tensors if t.name in elsewhere),
        definitions=tuple(mine),
        externs=(),
        idioms=(),
    )

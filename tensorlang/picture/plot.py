"""`tl.plot`: the iteration space of an operator under its schedule, as a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyhedral import affine
from polyhedral.expr import Int
from tensorlang.check.definition import representative
from tensorlang.check.module import Module
from tensorlang.diagnostics import error
from tensorlang.picture.points import space
from tensorlang.picture.svg import draw
from tensorlang.policy.select import read
from tensorlang.runtime.operator import Operator
from tensorlang.schedule.apply import apply
from tensorlang.schedule.schedule import Schedule
from tensorlang.shell.files import write_text
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import substitute_sizes

SIZE = 8
"""What a size is unless told."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing. Notebooks show it; `str()` of it is the SVG."""

    svg: str

    def __str__(self) -> str:
        return self.svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG to a file. Raises CompileError C0203 where that is not possible."""
        write_text(Path(path), self.svg)


def plot(
    operator: Operator, *, tensor: str | None = None, axes: Sequence[str] = (), sizes: Mapping[str, int] | None = None, title: str = ""
) -> Picture:
    """Return a picture of the instances that compute `tensor` (a recurrence, else the first result), over `axes` (the first two; names of
    axes and of reduction indices), at `sizes` and whole attributes (8 for sizes not named, defaults for attributes), in the order that the
    schedule gives them: that of `operator.schedule(…)`, or the order of loops as written. A schedule that is refused is drawn all the same;
    what it breaks is red.

    Raises CompileError C0241 for what cannot be drawn, S01xx and S02xx for a schedule that cannot be applied."""
    return plotted(operator.module, operator.name, operator.given, tensor, axes, sizes or {}, title)


def plotted(
    module: Module,
    name: str,
    schedule: Schedule | sx.Schedule | None,
    tensor: str | None,
    axes: Sequence[str],
    sizes: Mapping[str, int],
    title: str,
) -> Picture:
    """Return a picture of an operator of a module under a schedule, or as written where that is None."""
    whole = {p.name for p in module.operators[name].params if p.kind == "attr" and p.type == sx.Id("int") and not p.pack}
    found = representative(module, name, {n: v for n, v in sizes.items() if n in whole})
    if found is None:
        raise error("C0241", f"`{name}` has mistakes, or needs attributes that nobody can guess", help="`tensorlang check` says which")
    given = _given(found.program, {n: v for n, v in sizes.items() if n not in whole})
    program = substitute_sizes(found.program, {n: Int(v) for n, v in given.items()})
    if isinstance(schedule, sx.Schedule):
        schedule = read(module, schedule, program, attrs=found.attrs).schedule
    plan = apply(program, schedule if schedule is not None else Schedule(name))
    return Picture(draw(space(plan, given, tensor, axes), title))


def _given(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return a number for every size. Raises CompileError C0241 for one that there is not, or that the operator does not allow."""
    unknown = [n for n in sizes if n not in program.sizes]
    if unknown:
        raise error("C0241", f"`{program.name}` has no size `{unknown[0]}`", help=f"its sizes are {', '.join(program.sizes) or 'none'}")
    found = {n: int(sizes.get(n, SIZE)) for n in program.sizes}
    if not affine.holds(program.context, found):
        told = ", ".join(f"{n} = {v}" for n, v in found.items())
        raise error("C0241", f"`{program.name}` does not allow {told}", help="give other sizes")
    return found

"""What every back end makes of a graph: the passes that its tools choose, and the kernels as jobs, equal ones once.

optimised(loaded, tools)    the graph that is compiled
distinct(jobs)              the different jobs, and which of them each one is
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from polyhedral import affine
from tensorlang.graph.merged_axes import merged_axes
from tensorlang.graph.nodes import Form, Graph, Kernel
from tensorlang.graph.passes.memory.layout import layouts_of
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.programs import constant_params, program_key, samples_in
from tensorlang.graph.sizes import PREFIX, is_least, is_proven_least
from tensorlang.planning import Rules
from tensorlang.runtime.protocol import Tools
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import tensors

_SIZE = re.compile(rf"'{re.escape(PREFIX)}\w+'")
"""A symbol of sizes in the text of a program."""


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel to compile: its program, the layouts of its buffers (row-major ones are absent), which parameters are constants, and the
    schedules to choose from."""

    program: Program
    layouts: Mapping[str, Layout]
    constants: frozenset[str] = frozenset()
    rules: Rules | None = None
    at: Mapping[str, int] = field(default_factory=dict)
    """Samples of the sizes that the program leaves open."""
    forms: tuple[Form, ...] = ()
    """Other ways to compute what the program does, for some of those sizes."""

    @property
    def layouts_text(self) -> str:
        """Return the layouts as text that is the same for equal ones."""
        return repr(sorted(self.layouts.items(), key=lambda item: item[0]))


def optimised(loaded: Graph, tools: Tools) -> Graph:
    """Return an imported graph as the tools would compile it."""
    return optimise(loaded, tools.graph_options(), tools.passes)


def job_of(graph: Graph, kernel: Kernel, bounded: bool = False) -> Job:
    """Return what is to be compiled for a kernel: of open sizes it knows what was assumed of them, limits where they are `bounded`, or
    where an extent is what a limit leaves, `6 - past`."""
    program, forms = kernel.program, kernel.forms
    layouts: Mapping[str, Layout] = layouts_of(graph, kernel)
    if graph.symbols is not None and program.sizes:
        extents = {e: graph.symbols.size(e) for tensor in tensors(program) for e in tensor.shape}
        below = {e: n for e, n in extents.items() if not is_least(n)}
        known = graph.symbols.conditions(program.sizes, bounded or bool(below))
        least = (affine.compare(">=", e, 0) for e, n in below.items() if is_proven_least(n))
        given = (*known, *least)
        program = replace(program, context=affine.conj(program.context, *given))
        forms = tuple(replace(f, program=replace(f.program, context=affine.conj(f.program.context, *given))) for f in forms)
        if not forms:  # which name elements by the axes that there are
            program, layouts = merged_axes(program, layouts, graph.symbols)
    return Job(program, layouts, constant_params(graph, kernel), at=samples_in(graph, program), forms=forms)


def distinct(jobs: Sequence[Job]) -> tuple[list[Job], list[int]]:
    """Return the first job of each program, layouts and constants, and for every job the position of the one that is equal to it, but for
    what open sizes are called: kernels are told them by their positions. Samples are about as large."""
    found: dict[tuple[str, tuple[str, ...], tuple[int, ...]], int] = {}
    keys: dict[int, str] = {}
    first: list[Job] = []
    numbers: list[int] = []
    for job in jobs:
        program = job.program
        text = keys[id(program)] = keys.get(id(program)) or program_key(program)
        text += repr(job.forms) if job.forms else ""
        text = _with_sizes_numbered(text + job.layouts_text) if program.sizes else text + job.layouts_text
        scales = tuple(map(_scale, (job.at[name] for name in program.sizes if name in job.at)))
        numbers.append(found.setdefault((text, tuple(sorted(job.constants)), scales), len(first)))
        if numbers[-1] == len(first):
            first.append(job)
    return first, numbers


def _with_sizes_numbered(text: str) -> str:
    """Return the text of a program with its symbols of sizes called by numbers, in the order in which they come."""
    numbers: dict[str, str] = {}
    return _SIZE.sub(lambda name: numbers.setdefault(name[0], str(len(numbers))), text)


def _scale(sample: int) -> int:
    """Return what two samples share of which one schedule is as good for: powers of four that they are between."""
    return sample.bit_length() // 2

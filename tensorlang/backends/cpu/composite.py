"""An operator that calls kernels which are not in the language: what lies between the calls is compiled part by part, all of it one native
call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.llvm.call import Callable as Native
from codegen.llvm.call import Port
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.executable import Executable, timed
from tensorlang.backends.cpu.ready import prepared_on, written_into
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.graph.externs import graph_of, trusted
from tensorlang.graph.verify import verify
from tensorlang.planning import ScheduleRequest, refuse_written
from tensorlang.runtime.feeds import row_major
from tensorlang.runtime.limits import Explained
from tensorlang.runtime.protocol import Timer
from tensorlang.runtime.report import us
from tensorlang.runtime.timing import mean_time
from tensorlang.tensor.nodes import Program

Array = np.ndarray[Any, Any]


_PROVEN = "proven     every read is in bounds, every element is defined once, the order keeps all dependences of this part"


@dataclass(frozen=True, slots=True, eq=False)
class Composite:
    """Such an operator as native code (`tensorlang.runtime.protocol.Ready`)."""

    executable: Executable

    @property
    def outputs(self) -> Sequence[Port]:
        return self.executable.call.outputs

    @property
    def loops(self) -> str:
        return "\n".join(made.loops for made in self.executable.artifacts)

    @property
    def direct(self) -> Native:
        return self.executable.call

    @property
    def is_plain(self) -> bool:
        return any(made.is_plain for made in self.executable.artifacts)

    def __call__(self, arrays: Sequence[Array]) -> Any:
        return self.executable.call(*(row_major(a) for a in arrays))

    def into(self, arrays: Sequence[Array], results: Mapping[str, object]) -> Any:
        return written_into(self.executable.call, arrays, results)

    def prepared(self, arrays: Sequence[Array], results: Mapping[str, object] | None) -> Callable[[], Any]:
        return prepared_on(self.executable.call, arrays, results)

    def timer(self, arrays: Sequence[Array]) -> Timer:
        given = [row_major(a) for a in arrays]
        return lambda repeats: mean_time(lambda: self.executable.call(*given), repeats)

    def explain(self, program: Program, arrays: Sequence[Array], roles: bool = False) -> Explained:
        """Return the report of one signature: for each part its schedule and its loops, the kernels that are trusted, and the times."""
        executable = self.executable
        seconds = timed(executable, [row_major(a) for a in arrays])
        made = {node.name: artifact for node, artifact in zip(executable.kernels, executable.artifacts, strict=True)}
        lines: list[str] = []
        for node, taken in zip(executable.steps, seconds, strict=True):
            found = made.get(node.name)
            if found is None:
                lines += [f"{node.name}, took {us(taken)}", ""]
            else:
                lines += [f"part {node.name}, took {us(taken)}", "", found.schedule, "", f"schedule   {found.origin}", ""]
                lines += [found.loops.rstrip(), "", _PROVEN, ""]
        return Explained("\n".join((*lines, *trusted(executable.graph))))


def composite(program: Program, tools: Toolchain, request: ScheduleRequest) -> Composite:
    """Return a program that calls such kernels, compiled. Raises CompileError S0605 for a schedule that somebody wrote for it, C0114 to
    C0116 for kernels that are not to be had."""
    refuse_written(program, request)
    return Composite(build(verify(graph_of(program)), tools))

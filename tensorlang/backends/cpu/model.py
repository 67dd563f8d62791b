"""A model on this machine for one combination of input shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorlang.backends.cpu.executable import Executable, profiled, with_element
from tensorlang.diagnostics import Diagnostic, InternalError, RunError
from tensorlang.graph.nodes import Value
from tensorlang.runtime.feeds import check_disjoint, checked, in_place, named_arrays
from tensorlang.runtime.profile import Profile
from tensorlang.runtime.protocol import MemoryUse, ModelSummary, Timer
from tensorlang.runtime.timing import mean_time
from tensorlang.runtime.work import Roofline

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Specialised:
    """A model on this machine for one combination of input shapes."""

    executable: Executable

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.executable.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.executable.outputs

    @property
    def quick(self) -> Callable[[Mapping[str, object]], Any]:
        by_name = self.executable.call.by_name
        return by_name if by_name is not None else lambda feeds: NotImplemented

    def on(self, workers: Any) -> Specialised:
        return Specialised(self.executable.on(workers))

    def run(self, feeds: Mapping[str, object], stream: object = None) -> dict[str, Array]:
        if stream is not None:
            raise RunError(Diagnostic("R0308", "a run on this machine's processor has no stream", help="leave `stream` out"))
        found: Any = self.quick(feeds)
        if type(found) is dict:
            return found
        results = self.executable(checked(feeds, self.inputs))
        return dict(zip((value.name for value in self.outputs), results, strict=True))

    def with_element(self, refused: RunError, feeds: Mapping[str, object]) -> RunError:
        return with_element(self.executable, refused, checked(feeds, self.inputs))

    def prepared(self, feeds: Mapping[str, object], results: Mapping[str, object] | None) -> Callable[[], dict[str, Array]]:
        if results is None:
            results = {v.name: np.empty(v.shape, v.dtype.numpy) for v in self.outputs}
        inputs, arrays = in_place(feeds, self.inputs, "input"), in_place(results, self.outputs, "output")
        check_disjoint(named_arrays(self.inputs, inputs), named_arrays(self.outputs, arrays))
        again = self.executable.call.bound(inputs, arrays)
        found: dict[str, Any] = {value.name: results[value.name] for value in self.outputs}

        def run(kept: Executable = self.executable) -> dict[str, Array]:
            try:
                again()
            except RunError as refused:
                raise with_element(kept, refused, inputs).with_traceback(None) from None
            return found

        return run

    @property
    def summary(self) -> ModelSummary:
        made = self.executable
        arena = None if made.workers is None else made.workers.scratch
        memory = MemoryUse(made.weights_bytes, made.arena_bytes)
        return ModelSummary(made.parts.graph.name, len(made.parts.kernels), memory, made.constants, arena)

    def explain(self, feeds: Mapping[str, object] | None) -> str:
        from tensorlang.backends.cpu.explain import explained

        return explained(self.executable, None if feeds is None else checked(feeds, self.inputs))

    def profile(self, feeds: Mapping[str, object]) -> Profile:
        return profiled(self.executable, checked(feeds, self.inputs))

    def timer(self, feeds: Mapping[str, object]) -> Timer:
        given = checked(feeds, self.inputs)
        return lambda repeats: mean_time(lambda: self.executable(given), repeats)

    def roofline(self) -> Roofline:
        return self.executable.toolchain.roofline([k.program for k in self.executable.kernels])

    def text(self, stage: str) -> str:
        raise InternalError("show", f"a model for a processor has no stage `{stage}`")

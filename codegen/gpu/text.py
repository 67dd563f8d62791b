"""The text of a kernel as it grows, and where in the kernel what comes next is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from codegen.gpu.expressions import Printer
from codegen.gpu.geometry import Geometry
from codegen.gpu.launches import BlockCode
from codegen.gpu.names import Identifiers
from codegen.gpu.program import TensorMap
from codegen.gpu.tensor_maps import map_of
from codegen.loops.nodes import THREADS, Box, Buffer, For, LoopKind


@dataclass(slots=True)
class KernelText:
    """The text of a kernel as it grows."""

    block: BlockCode
    geometry: Geometry
    names: Identifiers
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    shared_bytes: int = 0
    shared: list[str] = field(default_factory=list)
    reads_asynchronously: bool = False
    """Whether asynchronous products read shared memory."""

    maps: list[TensorMap] = field(default_factory=list)
    barriers: Mapping[str, int] = field(default_factory=dict)
    """Shared buffers of barriers → how many arrivals end a phase of theirs."""
    bulk_copied: frozenset[str] = frozenset()
    """Shared buffers that bulk copies write."""
    specialised: bool = False
    """Whether what is written is one role of a block: its barriers are not those of the other role."""
    in_producer: bool = False
    """Whether that role is the producer, whose loops are never unrolled."""
    rank: str = ""
    """What the number of the block in its cluster is called, where blocks share boxes."""

    def map_of(self, box: Box, buffers: dict[str, Buffer]) -> TensorMap:
        """Return the tensor map for a box."""
        made = map_of(box, buffers)
        for found in self.maps:
            if replace(found, name="") == made:
                return found
        self.maps.append(replace(made, name=self.names.fresh(f"{self.names(made.buffer)}_map")))
        return self.maps[-1]

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{" if head else "{")
        self.indent += 1
        yield
        self.indent -= 1
        self.line("}")


@dataclass(frozen=True, slots=True)
class Scope:
    """Where in the kernel we are. `places` are the digits of the thread that loops around have bound."""

    printer: Printer
    buffers: dict[str, Buffer]
    places: frozenset[LoopKind] = frozenset()

    def with_loop(self, loop: For) -> Scope:
        algebra = self.printer.algebra.with_loop(loop.var, loop.lo, loop.hi, loop.extent)
        printer = replace(self.printer, algebra=algebra, env=self.printer.env.with_index(loop.var))
        if loop.kind in THREADS:
            return replace(self, printer=printer, places=self.places | {loop.kind})
        return replace(self, printer=printer)

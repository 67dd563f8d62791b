"""A model in a few lines: what it takes and returns, what it was compiled for, and the memory that takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorlang.diagnostics import counted, plain_text
from tensorlang.html import html_text, table
from tensorlang.runtime.protocol import MemoryUse
from tensorlang.runtime.report import bytes_text
from tensorlang.runtime.signature import Signature


@dataclass(frozen=True, slots=True)
class Description:
    """`shapes` are the combinations that there is code for, the last one used last, of a model of open shapes; None of any other.
    `signature` None: the importer of an open model does not tell it. `kernels` are those of a run, None where there is no code yet."""

    target: str
    threads: int
    on_device: bool
    signature: Signature | None
    shapes: Sequence[Mapping[str, tuple[int, ...]]] | None
    kernels: int | None
    memory: MemoryUse

    def lines(self) -> list[str]:
        """Return what `repr` shows of the model."""
        tensors: list[str] = []
        if self.signature is not None:
            tensors = [f"    {t}" for t in self.signature.inputs] + [f"    -> {t}" for t in self.signature.outputs]
        found = [f"<{self._title()}", *tensors, *(f"    {line}" for line in self._facts())]
        return [*found[:-1], f"{found[-1]}>"]

    def html(self) -> str:
        """Return the same as a notebook shows it."""
        rows: list[tuple[str, str, str]] = []
        if self.signature is not None:
            rows = [("input", t.name, t.type_text) for t in self.signature.inputs]
            rows += [("output", t.name, t.type_text) for t in self.signature.outputs]
        facts = "".join(f"<div>{html_text(line)}</div>" for line in self._facts())
        return f"<div><strong>{html_text(self._title())}</strong>{table(('', 'name', 'type'), rows, frozenset((0, 1, 2)))}{facts}</div>"

    def _title(self) -> str:
        name = f" `{plain_text(self.signature.name)}`" if self.signature is not None and self.signature.name else ""
        threads = "" if self.on_device else f", {counted(self.threads, 'thread')}"
        return f"model{name} for {self.target}{threads}"

    def _facts(self) -> Iterator[str]:
        if self.shapes is not None:
            what = "compiled for each combination of shapes when it comes; none so far"
            if self.shapes:
                last = ", ".join(f"{plain_text(name)} {list(shape)}" for name, shape in self.shapes[-1].items())
                what = f"compiled for {counted(len(self.shapes), 'combination')} of shapes, the last: {last}"
            yield what
        if self.kernels is not None:
            several = " in all" if self.shapes is not None and len(self.shapes) > 1 else ""
            weights, arena = bytes_text(self.memory.weights_bytes), bytes_text(self.memory.arena_bytes)
            yield f"{counted(self.kernels, 'kernel')}, {weights} of weights{several}, {arena} for values in between"

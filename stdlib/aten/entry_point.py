"""The importer as `tensorlang` finds it, by the entry-point group `tensorlang.importers`. It imports nothing of torch but where torch has
made what is to be read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tensorlang.graph.nodes import Graph
from tensorlang.runtime.signature import Signature, TensorSignature
from tensorlang.torch.program import Program


class Importer:
    """Reads programs of ATen and, by way of these, what `torch.export.export` returns."""

    def __init__(self) -> None:
        self._read: tuple[Any, Program] | None = None

    def matches(self, source: object) -> bool:
        """Tell whether `source` is something this importer reads."""
        return isinstance(source, Program) or _is_exported(source)

    def load(self, source: Any, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
        """Return the program as a graph; `shapes` are those of inputs with dimensions that are open. Raises CompileError O010 to O014."""
        from stdlib.aten.importer import imported

        return imported(self._program(source), shapes)

    def signature(self, source: Any) -> Signature:
        """Return what the program takes and returns, with its symbols."""
        program = self._program(source)
        returned = tuple(TensorSignature(name, *program.output_type(k)) for k, name in program.output_names())
        return Signature(program.name, tuple(TensorSignature(i.name, i.dtype, i.dims) for i in program.inputs), returned)

    def fingerprint(self, source: Any) -> bytes | None:
        """Return a digest of all there is to say about the program, parameters too; None where functions of Python are called."""
        return self._program(source).digest()

    def check(self, program: Program) -> None:
        """Raise CompileError O010 for operators that nothing is there for."""
        from stdlib.aten.importer import check_operators

        check_operators(program)

    def serves(self, operator: str) -> bool:
        """Tell whether an operator of ATen, `add.Tensor`, is read as it is; torch takes others apart."""
        from stdlib.aten.table import rule_for

        return rule_for(operator) is not None

    def _program(self, source: Any) -> Program:
        if isinstance(source, Program):
            return source
        if self._read is None or self._read[0] is not source:
            from tensorlang.torch.capture import of_export

            self._read = source, of_export(source, self.serves)
        return self._read[1]


def _is_exported(source: object) -> bool:
    torch = sys.modules.get("torch")
    export = getattr(torch, "export", None)
    return export is not None and isinstance(source, export.ExportedProgram)

"""The importer as `tensorlang` finds it, by the entry-point group `tensorlang.importers`.

The package `onnx` is imported when there is a model to read, and not before: whoever only writes operators need not have it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from codegen.forks import import_whole
from stdlib.onnx.external import external_files
from tensorlang.diagnostics import error
from tensorlang.graph.data_dependent import Known
from tensorlang.graph.nodes import Graph
from tensorlang.graph.taken_apart import TakenApart

if TYPE_CHECKING:
    from onnx import ModelProto

    from stdlib.onnx.model import Array
    from tensorlang.runtime.custom_nodes import Custom
    from tensorlang.runtime.signature import Signature

SUFFIXES = (".onnx", ".onnxtxt", ".onnxtext", ".textproto", ".onnxjson", ".ort")
"""How the names of models end: messages of protobuf, texts, and the format of onnxruntime, which is refused for what it is."""
INSTALL = "pip install 'tensorlang[onnx]'"
"""What brings the package that models are read with."""


def has_onnx() -> bool:
    """Tell whether the package `onnx` is installed."""
    try:
        return find_spec("onnx") is not None
    except ValueError:  # something took its name away
        return False


class Importer:
    """Reads ONNX models, and says what to install where it cannot."""

    def matches(self, source: object) -> bool:
        """Tell whether `source` is something this importer reads: a path of a model, the bytes of one, or a ModelProto."""
        match source:
            case str() | os.PathLike():
                return Path(source).suffix.lower() in SUFFIXES
            case bytes() if has_onnx():
                import_whole("stdlib.onnx.importer")
                from stdlib.onnx.importer import is_onnx_model

                return is_onnx_model(source)
            case _:
                onnx = sys.modules.get("onnx")
                return onnx is not None and isinstance(source, onnx.ModelProto)

    def load(
        self,
        source: str | os.PathLike[str] | bytes | ModelProto,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        fixed: Mapping[str, Array] | None = None,
        operators: Custom | None = None,
        known: Known | None = None,
        fed: Collection[str] = (),
    ) -> Graph:
        """Return the model as a graph. `shapes` gives the shapes of inputs that the model leaves open; `fixed` the elements of inputs that
        are fixed for good, which are inputs no longer (a shape to reshape to, for example); `operators` those for nodes of domains that
        ONNX does not have. Where shapes depend on elements that nothing of this gives, DataDependent is raised; `known` is what was found
        since, of the same model with the same shapes; `fed` names initializers that are inputs, too, and are to be inputs alone. Raises
        CompileError, O0001 where the package `onnx` is not installed."""
        if not has_onnx():
            what = f"`{source}`" if isinstance(source, (str, os.PathLike)) else "the model"
            raise error("O0001", f"{what} cannot be read: the package `onnx` is not installed", help=INSTALL)
        import_whole("stdlib.onnx.importer")
        from stdlib.onnx.importer import imported

        return imported(source, shapes or {}, fixed or {}, operators, known, fed)

    def signature(self, source: str | os.PathLike[str] | bytes | ModelProto) -> Signature:
        """Return what the model takes and returns, with the symbols that it declares. Raises CompileError as `load` does."""
        import_whole("stdlib.onnx.importer")
        from stdlib.onnx.importer import signature_of

        return signature_of(source)

    def apart(self, source: str | os.PathLike[str] | bytes) -> TakenApart | None:
        """Return the model with all that its nodes make as outputs, None where it is too large for that."""
        from stdlib.onnx.apart import taken_apart

        return taken_apart(source)

    def files(self, path: str | os.PathLike[str]) -> tuple[Path, ...] | None:
        """Return the files beside the one at `path` that the model is in as well, None where that cannot be told. Does not need `onnx`.
        Raises OSError and ValueError where the file cannot be read."""
        return external_files(path)

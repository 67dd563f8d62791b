"""How what is compiled ahead of time is saved: for which processors, under which name, and with which limits of open sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from codegen.gpu.names import Identifiers
from tensorlang.diagnostics import CompileError, error
from tensorlang.graph.data_dependent import DataDependent, Known
from tensorlang.graph.nodes import Graph
from tensorlang.graph.sizes import Symbols, UnequalSizes
from tensorlang.runtime.open_sizes import OpenShapes, samples_for
from tensorlang.runtime.signature import Signature
from tensorlang.runtime.structured import is_structured

OPEN_SHAPES = "O011"
"""The code of an importer's complaint that a shape is not known."""


MOST_THREADS = 127
"""How many threads a context of a library may have."""


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """`name`: an identifier of C, with which all names of the library begin; `model`: what people call it. `targets`: levels of
    instructions of one family. `most`: limits of open sizes by their symbols. `inside`: whether weights are part of the code. `threads`:
    how many run it at most, None for as many as this machine compiles for."""

    name: str
    model: str
    targets: tuple[str, ...] = ("host",)
    most: Mapping[str, int] = field(default_factory=dict)
    inside: bool = False
    threads: int | None = None


def save_options(
    model: str,
    library: str | None,
    targets: object,
    most: Mapping[str, int],
    weights: object = "beside",
    threads: object = None,
) -> SaveOptions:
    """Return the options that a user gives. Raises CompileError C0107 for `threads` that are no number of them, C0133 for a name that is no
    identifier, for targets that are none, and for `weights` that are neither "beside" nor "inside"."""
    if library is not None and (not isinstance(library, str) or Identifiers()(library) != library):
        raise error("C0133", f"the name `{library}` is no identifier of C", help="give letters, digits and `_`")
    if weights not in ("beside", "inside"):
        raise error("C0133", f"`weights` is {weights!r}", help='they lie "beside" the code or "inside" it')
    if threads is not None and (not isinstance(threads, Integral) or isinstance(threads, bool) or not 1 <= int(threads) <= MOST_THREADS):
        raise error("C0107", f"`threads` is {threads!r}", help=f"give a whole number from 1 to {MOST_THREADS}")
    found = (targets,) if isinstance(targets, str) else targets
    if not isinstance(found, (tuple, list)) or not found or not all(isinstance(t, str) for t in found):
        raise error("C0133", f"`targets` is {targets!r}", help='name kinds of processors: `targets=("x86-64-v3", "x86-64-v4")`')
    named = library or Identifiers()(model or "model")
    return SaveOptions(
        named, model or "model", tuple(dict.fromkeys(found)), most, weights == "inside", None if threads is None else int(threads)
    )


def only_shapes_are_open(problem: CompileError) -> bool:
    """Tell whether all that an importer complains of is that shapes are not known."""
    return bool(problem.diagnostics) and all(d.code == OPEN_SHAPES for d in problem.diagnostics)


def graphs_of(
    load: Callable[..., Graph],
    signature: Callable[[], Signature | None],
    shapes: Mapping[str, tuple[int, ...]] | None,
    most: Mapping[str, int],
) -> tuple[Callable[[], Graph], Mapping[str, int]]:
    """Return a function that returns a model's graph, with sizes for what is open, and the limits of these by their symbols. Arguments are
    those of a model (`tensorlang.runtime.model.CompiledModel`).

    Raises CompileError: C0123 for limits that are none, C0131 for a model whose sizes cannot be open yet, C0132 for a size without a limit,
    and as `load` does."""
    try:
        loaded = _whole(load, shapes)
        if most:
            raise error("C0123", "this model has no open sizes that could be limited", help="leave `max` out")
        return lambda: loaded, {}
    except DataDependent as problem:
        raise _not_supported(problem) from None
    except CompileError as problem:
        if shapes is not None or not only_shapes_are_open(problem):
            raise
    found = signature()
    open_shapes = OpenShapes(found.inputs if found is not None else ())
    given = open_shapes.given()
    if found is None or is_structured(found) or given is None:
        raise _not_supported()
    limits = open_shapes.limits(most)
    missing = [name for name, symbol in open_shapes.names.items() if symbol not in limits]
    if missing:
        title = f"nothing limits {', '.join(f'`{name}`' for name in missing)}"
        each = " ".join(f"--max {name}=512" for name in missing)
        raise error("C0132", title, help=f"memory is allocated once, for the largest sizes: `{each}`, or `max={{…}}`; or fix the shapes")
    samples = samples_for(limits)

    def graph() -> Graph:
        symbols = Symbols(dict(samples))
        sizes: dict[str, Any] = {name: symbols.symbol(name) for name in samples}
        try:
            return _whole(load, given.at(sizes).shapes)
        except DataDependent as problem:
            raise _not_supported(problem) from None
        except UnequalSizes as need:
            title = f"not supported yet: a library of a model with sizes that have to be equal and have names of their own: {need}"
            raise error("C0131", title, help="fix the shapes of its inputs, or give equal sizes one name in the model") from None

    return graph, limits


def _whole(load: Callable[..., Graph], shapes: Mapping[str, Any] | None) -> Graph:
    """Return the graph of all of a model: what a first stage of it would decide, the graph decides itself. Raises DataDependent where it
    cannot, and as `load` does."""
    try:
        return load(shapes)
    except DataDependent:
        return load(shapes, Known(is_all=True))


def _not_supported(problem: DataDependent | None = None) -> CompileError:
    title = "not supported yet: a library of a model whose shapes depend on data, or that takes sequences, texts or any rank"
    notes = () if problem is None else tuple(d.title for d in problem.diagnostics)
    return error("C0131", title, notes=notes, help="fix the shapes of its inputs, or run it in the process that compiles it")

"""What the arguments of a command name: an operator of a file, a model, and the values that either is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tensorlang.check.foreign import nearest
from tensorlang.diagnostics import CompileError, RunError, error, plain_text
from tensorlang.shell.options import ModelOptions
from tensorlang.targets import HOST

if TYPE_CHECKING:
    from tensorlang.api import Importer
    from tensorlang.runtime.model import CompiledModel
    from tensorlang.runtime.operator import Operator, Operators
    from tensorlang.runtime.specialization import Sizes

Made = TypeVar("Made")


def operator_of(
    file: Path,
    arguments: Sequence[str],
    threads: int | None,
    target: str = HOST,
    symbolic: bool = False,
    externs: Sequence[str] = (),
    options: ModelOptions | None = None,
    operators: Path | None = None,
) -> tuple[Operator, dict[str, Any]]:
    """Return the operator that the arguments name (or the file's only one) and what it is given. Of what may be chosen for models,
    `schedules` names a file of schedules that are asked before those of the operator's file; nothing else is about an operator.

    Raises CompileError C0213, C0211, and C0103 for what is about models alone."""
    from tensorlang.operators import operators_of
    from tensorlang.shell.arguments import kernels_named, parsed
    from tensorlang.syntax import parse as syntax

    chosen = options or ModelOptions()
    check_options_of_operators(chosen)
    if operators is not None:
        raise error("C0103", "`--operators` is about the nodes of a model", help=f"leave it out, or write `use` into `{file}`")
    given = syntax.load(chosen.schedules) if chosen.schedules is not None else None
    sizes: Sizes = "symbolic" if symbolic else "static"
    ops = operators_of(syntax.load(file), target, threads, sizes=sizes, externs=kernels_named(externs), schedules=given)
    rest = list(arguments)
    if rest and "=" not in rest[0] and not rest[0].endswith(".npz"):
        name = rest.pop(0)
        if name not in list(ops):
            raise no_operator(file, name, ops)
    elif len(ops) == 1:
        [name] = ops
    else:
        help_ = f"name one of {_names(ops)}" if len(ops) else "declare one: `op NAME(…) -> (…) { … }`"
        raise error("C0213", f"`{file}` has {len(ops) or 'no'} operators", help=help_)
    operator = ops[name]
    if given is not None and not any(s.operator == name and s.span.source == given for s in operator.module.schedules):
        raise error("C0213", f"`{chosen.schedules}` has no schedule for `{name}`", help=f"write `schedule {name} for cpu {{ … }}`")
    return operator, parsed(rest)


def no_operator(file: Path, name: str, ops: Iterable[str]) -> CompileError:
    """Return C0213 for an operator that a file does not have."""
    near = nearest(name, list(ops))
    help = f"did you mean `{near}`?" if near is not None else None
    return error("C0213", f"`{file}` has no operator `{name}`", notes=(f"it has {_names(ops)}",), help=help)


def custom_operators(file: Path | None, externs: Sequence[str], target: str) -> Operators | None:
    """Return the operators for a model's nodes of other domains, with their kernels. Raises CompileError C0211 for kernels of none."""
    if file is None:
        if externs:
            raise error("C0211", "`--extern` names kernels for operators of no file", help="name it: `--operators my.tl`")
        return None
    from tensorlang.operators import operators_of
    from tensorlang.shell.arguments import kernels_named
    from tensorlang.syntax import parse as syntax

    return operators_of(syntax.load(file), target, None, externs=kernels_named(externs))


def _names(ops: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in ops) or "none"


def model_of(
    file: Path,
    arguments: Sequence[str],
    threads: int | None,
    options: ModelOptions,
    target: str = HOST,
    operators: Operators | None = None,
) -> tuple[CompiledModel, dict[str, Any]]:
    """Return a compiled model and what it is given; arrays tell the shapes that it leaves open. Initializers that are inputs, too, are
    inputs where they are given."""
    from tensorlang.api import compile as compile_model
    from tensorlang.shell.arguments import parsed
    from tensorlang.shell.progress import Bar

    if not any(argument.endswith((".tl", ".onnx")) for argument in arguments):  # of which one is the file, as is told below
        check_file(file)
    values = parsed(arguments)
    with Bar() as bar:
        shapes, more = shapes_of(values), options.chosen()
        made = partial(compile_model, str(file), target, threads=threads, shapes=shapes, progress=bar, operators=operators, **more)
        return with_fed(file, values, made), values


def with_fed(file: Path, values: Mapping[str, Any], made: Callable[..., Made]) -> Made:
    """Return what `made` makes of a model, called with `fed` where initializers that are inputs, too, are among what the model is given."""
    try:
        return made()
    except CompileError as refused:
        fed = _defaults_among(file, values) if any(d.code == "O011" for d in refused.diagnostics) else ()
        if not fed:
            raise
    return made(fed=fed)


def _defaults_among(file: Path, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which initializers that are inputs, too, are among what a model is given."""
    from tensorlang.api import TellsSignatures, importer_of

    importer = importer_of(str(file))
    declared = importer.signature(str(file)).defaults if isinstance(importer, TellsSignatures) else ()
    return tuple(t.name for t in declared if t.name in values)


def shapes_of(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of the arrays among what a model is given, None where there are none."""
    import numpy as np

    return {name: v.shape for name, v in values.items() if isinstance(v, np.ndarray)} or None


def check_file(file: Path) -> None:
    """Raise CompileError C0213 for a file that is not there where something like it is, or an operator of the library. Importers say what
    is wrong with others."""
    from tensorlang.api import is_read
    from tensorlang.syntax import modules
    from tensorlang.syntax.parse import nearest_file

    if file.exists() or is_read(str(file)):
        return
    others = [path.name for path in file.parent.glob("*") if path.suffix in (".tl", ".onnx")] if file.parent.is_dir() else []
    near, home = nearest_file(file.name, others), modules.declaring(str(file))
    help = f"did you mean `{file.with_name(near)}`?" if near is not None else "name a `.tl` file or a model"
    offered = home is not None or modules.find(str(file)) is not None
    if file.suffix and near is None and not offered:
        return
    if offered:
        package, name = (home or str(file)).partition(".")[0], str(file) if home is not None else "…"
        help = f"it is in the library: call it in Python, `tl.{package}.{name}(x)`, or `use {home or file}` in a file"
    raise error("C0213", f"there is no file `{file}`", help=help)


def inputs_of(model: CompiledModel, values: dict[str, Any]) -> dict[str, Any]:
    """Return what a model is given, with random arrays for the inputs that it is not. Raises RunError O011 where shapes are open."""
    from tensorlang.runtime.signature import shape_with_ones
    from tensorlang.shell.arguments import random_inputs

    try:
        return random_inputs(model.made.inputs, values)
    except RunError as refused:
        given = (f"{t.name}={t.dtype or 'f32'}[{','.join(map(str, shape_with_ones(t)))}]" for t in model.inputs)
        found = [replace(d, help=f"give arrays or their types, as `{' '.join(given)}`") for d in refused.diagnostics[:1]]
        raise RunError(*found) from None


def is_model(path: Path) -> bool:
    """Tell whether an installed importer reads a file."""
    from tensorlang.api import is_read

    return path.suffix != ".tl" and is_read(str(path))


def waiting_for_shapes(path: Path) -> str:
    """Import a model, with sizes that stay open where it leaves some open. Return why it has to wait for its shapes, "" where it is sound
    whatever they are. Raises CompileError for what is refused whatever the sizes are."""
    from tensorlang.api import importer_of
    from tensorlang.runtime.saving import only_shapes_are_open

    importer = importer_of(str(path))
    try:
        importer.load(str(path))
    except CompileError as problem:
        if not only_shapes_are_open(problem):
            raise
        why = "; ".join(d.title for d in problem.diagnostics)
        found = _with_open_sizes(importer, path)
        return "" if found is None else f"{why}; while it is open, {found}" if found else why
    return ""


_OF_SIZES = frozenset(("O011", "O012", "O013", "O014"))
"""Codes of what may be refused for some sizes alone."""
_SAMPLE = 512
"""What open sizes are where something has to be decided."""


def _with_open_sizes(importer: Importer, path: Path) -> str | None:
    """Return what is refused or assumed of a model while its sizes are open, None where nothing is, "" where they cannot be. Raises
    CompileError for what no size would cure."""
    from tensorlang.api import TellsSignatures
    from tensorlang.graph.data_dependent import DataDependent
    from tensorlang.graph.sizes import OpenSize, Symbols, UnequalSizes
    from tensorlang.runtime.open_sizes import OpenShapes, samples_for

    if not isinstance(importer, TellsSignatures):
        return ""
    open_shapes = OpenShapes(importer.signature(str(path)).inputs)
    given, symbols = open_shapes.given(), Symbols(samples_for(dict.fromkeys(open_shapes.names.values(), _SAMPLE)))
    if given is None:
        return ""
    try:
        importer.load(str(path), *given.at({name: symbols.symbol(name) for name in symbols.samples}).arguments)
    except (DataDependent, OpenSize, UnequalSizes):
        return ""
    except CompileError as problem:
        surely = [d for d in problem.diagnostics if d.code not in _OF_SIZES]
        if surely:
            raise CompileError(*surely) from problem
        return "; ".join(plain_text(d.title) for d in problem.diagnostics)
    return f"it is sound where {', '.join(map(str, symbols.assumed))}" if symbols.assumed else None


def check_options_of_operators(options: ModelOptions, takes_schedules: bool = True) -> None:
    """Raise CompileError C0103 for a choice about models, which changes nothing of an operator: it says itself what it computes in, and
    one of the library `takes_schedules` not."""
    if options.precision != "f32":
        title = f"not supported yet: precision `{options.precision}` for an operator"
        raise error("C0103", title, help="convert to `bf16` in its equations")
    taken = ("schedules",) if takes_schedules else ()
    changed = [f.name for f in fields(options) if f.name not in taken and getattr(options, f.name) != f.default]
    for name in changed:
        option = name.replace("_", "-") if getattr(options, name) else f"no-{name}"
        help = "write `use` into a file, and the schedules beside it" if name == "schedules" else "leave it out"
        raise error("C0103", f"`--{option}` is not about an operator", help=help)

"""What graph passes ask of a kernel's program, and the few programs they write themselves.

Passes recognise programs by their structure, not by the name of the library operator, so that a user's operator is treated like one of
the library. All questions are answered conservatively: None or False means "not recognised".
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from math import prod

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral.expr import TRUE, Int, Name
from polyhedral.expr import Expr as Affine
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.sizes import to_expr
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import sums_products
from tensorlang.tensor.nodes import Binary, Cast, Definition, Dynamic, Expr, IndexValue, Piece, Program, Read, Reduce, Tensor


def program_key(program: Program) -> str:
    """Return a text that two programs share exactly when they are equal but for their names, signs of zero and NaN told apart."""
    return repr(replace(program, name=""))


def expressions(program: Program) -> Iterator[Expr]:
    """Yield every expression of the program, parents first."""
    for definition in program.definitions:
        for piece in definition.pieces:
            yield from walk.nodes(piece.value)


# ---------------------------------------------------------------- questions


def constant_params(graph: Graph, kernel: Kernel) -> frozenset[str]:
    """Return the parameters of a kernel's program that are constants of the graph."""
    return frozenset(name for name, value in kernel.bound.items() if value in graph.constants)


def samples_in(graph: Graph, program: Program) -> dict[str, int]:
    """Return a sample for each size that the program of a kernel leaves open."""
    return {} if graph.symbols is None else graph.symbols.samples_of(program.sizes)


def at_samples(graph: Graph, program: Program) -> Program:
    """Return the program of a kernel with the samples in place of open sizes: for decisions that change no result."""
    samples = samples_in(graph, program)
    return walk.substitute_sizes(program, {name: Int(n) for name, n in samples.items()}) if samples else program


def result_tensors(program: Program) -> tuple[Tensor, ...]:
    """Return the tensors that the program returns, in the order of its results."""
    table = walk.tensor_table(program)
    return tuple(table[name] for name in program.results)


def is_single(program: Program) -> bool:
    """Tell whether the program is one definition of its one result by one expression."""
    return (
        len(program.definitions) == 1
        and len(program.results) == 1
        and program.definitions[0].tensors[0].name == program.results[0]
        and len(program.definitions[0].tensors) == 1
        and len(program.definitions[0].pieces) == 1
        and program.definitions[0].pieces[0].guard == TRUE
    )


def places_of(value: Expr, axis: str) -> dict[str, int] | None:
    """Return which axis of each tensor is read at `axis`; None where it is read in another way."""
    found: dict[str, int] = {}
    for r in walk.reads(value):
        at = [k for k, slot in enumerate(r.index) if slot == Name(axis)]
        if axis in walk.index_names(replace(r, index=tuple(s for s in r.index if s != Name(axis)))) or len(at) > 1:
            return None
        if at and found.setdefault(r.tensor, at[0]) != at[0]:
            return None
    return found


def single_value(program: Program) -> Expr | None:
    """Return the expression of a program that is one."""
    return program.definitions[0].pieces[0].value if is_single(program) else None


def reduces(program: Program) -> bool:
    return any(isinstance(e, Reduce) for e in expressions(program))


def recurs(program: Program) -> bool:
    """Tell whether some definition depends on itself, directly or through others (a recurrence)."""
    return any(map(walk.is_recurrence, walk.components(program)))


def is_pointwise(program: Program) -> bool:
    """Tell whether every element of the results is a finite expression of elements of the parameters: no reduction, no recurrence."""
    return not reduces(program) and not recurs(program) and all(t.declared_range is None for t in program.params)


def is_contraction(program: Program) -> bool:
    """Tell whether some reduction of the program sums products that read two tensors: matrix products, convolutions."""
    return any(map(sums_products, expressions(program)))


def is_product(program: Program) -> bool:
    """Tell whether the program is one contraction, with what is done to it element by element."""
    return is_single(program) and is_contraction(program) and not recurs(program)


def finishes_rows(program: Program, param: str) -> bool:
    """Tell whether the program reduces rows of a parameter along its last axis, in several steps, and nothing else, and makes as many rows:
    a softmax, a normalisation. What it reads besides has no rows, or the same."""
    source = param_named(program, param)
    rank = len(source.shape)
    if len(program.results) != 1 or len(program.definitions) < 2 or source.grouping or rank < 2:
        return False
    if walk.tensor_table(program)[program.results[0]].shape != source.shape:
        return False
    if recurs(program) or is_contraction(program) or not reduces(program):
        return False
    rows = {param, *walk.definers(program)}
    return all(_is_of_rows(d, rank, rows) for d in program.definitions)


def _is_of_rows(definition: Definition, rank: int, rows: Set[str]) -> bool:
    """Tell whether a definition has rows, or an element for each, and reads what has `rows` at its own, and reduces along one index."""
    if len(definition.pieces) != 1 or len(definition.axes) not in (rank, rank - 1):
        return False
    [piece] = definition.pieces
    leading = here(definition.axes[: rank - 1])
    own = {*definition.axes[: rank - 1]}
    for r in walk.reads(piece.value):
        if r.index[: rank - 1] != leading and (r.tensor in rows or (len(r.index) >= rank - 1 and walk.index_names(r) & own)):
            return False
    return all(len(e.binders) == 1 for e in walk.reduces(piece.value))


def same_box(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.groups == b.groups


def reads_in_place(program: Program, param: str) -> bool:
    """Tell whether each element of the one result reads the element of `param` at the same place and no other, and the boxes agree."""
    if not is_single(program):
        return False
    definition = program.definitions[0]
    axes = here(definition.axes)
    tensor = param_named(program, param)
    found = [e for e in expressions(program) if isinstance(e, Read) and e.tensor == param]
    return bool(found) and same_box(tensor, definition.tensors[0]) and all(e.index == axes for e in found)


def param_named(program: Program, name: str) -> Tensor:
    return next(t for t in program.params if t.name == name)


def permutation(program: Program) -> tuple[int, ...] | None:
    """Return p when the program is `numpy.transpose(x, p)`: axis k of the result is axis p[k] of x. Grouped axes are not recognised."""
    value = single_value(program)
    if not isinstance(value, Read) or len(program.params) != 1:
        return None
    definition, source = program.definitions[0], program.params[0]
    if is_grouped(source) or is_grouped(definition.tensors[0]) or definition.tensors[0].dtype != source.dtype:
        return None
    places = {axis: k for k, axis in enumerate(definition.axes)}
    index = [places.get(slot.name) if isinstance(slot, Name) else None for slot in value.index]
    if len(index) != len(places) or None in index or len(set(index)) != len(index):
        return None
    perm = tuple(index.index(k) for k in range(len(index)))
    shape = tuple(source.shape[k] for k in perm)
    return perm if shape == definition.tensors[0].shape else None


def identity_source(program: Program) -> str | None:
    """Return the parameter whose elements the program returns in the same row-major order, bit for bit, or None.

    A transposition that moves only axes of extent one counts, and so does a change of grouping."""
    value = single_value(program)
    while isinstance(value, Cast) and value.dtype == program.definitions[0].tensors[0].dtype:
        value = value.value
    if not isinstance(value, Read):
        return None
    definition = program.definitions[0]
    source = next((t for t in program.params if t.name == value.tensor), None)
    if source is None or source.dtype != definition.tensors[0].dtype:
        return None
    if any(isinstance(slot, Dynamic) for slot in value.index):
        return None
    box = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    read = [(slot, n) for slot, n in zip(value.index, source.shape, strict=True) if n != Int(1)]
    wanted = [(Name(axis), n) for axis, n in box.items() if n != Int(1)]
    return source.name if read == wanted else None


def is_grouped(tensor: Tensor) -> bool:
    """Tell whether a dimension of a tensor that the caller sees is not one axis: several make it up, or none."""
    return any(n != 1 for n in tensor.grouping)


# ---------------------------------------------------------------- programs


def tensor_of(name: str, value: Value) -> Tensor:
    return Tensor(name, value.dtype, tuple(map(to_expr, value.shape)))


def axes_of(rank: int) -> tuple[str, ...]:
    return tuple(f"i{k}" for k in range(rank))


def copy_program(dtype: DType, shape: tuple[int, ...]) -> Program:
    """Return `y[i0, …] = x[i0, …]`: moves a value to other memory, or to another layout."""
    return transpose_program(dtype, shape, tuple(range(len(shape))))


def transpose_program(dtype: DType, shape: tuple[int, ...], perm: tuple[int, ...]) -> Program:
    """Return `numpy.transpose(x, perm)` of an `x` of `shape`."""
    axes = axes_of(len(shape))
    index: tuple[Affine, ...] = tuple(Name(axes[perm.index(k)]) for k in range(len(shape)))
    result = Tensor("y", dtype, tuple(to_expr(shape[k]) for k in perm))
    source = Tensor("x", dtype, tuple(map(to_expr, shape)))
    return single("transpose" if perm != tuple(range(len(shape))) else "copy", (source,), result, axes, Read("x", index))


def channel_program(op: str, dtype: DType, shape: tuple[int, ...], axis: int) -> Program:
    """Return `y[…] = x[…] op b[i_axis]`: one number per channel."""
    axes = axes_of(len(shape))
    x = Tensor("x", dtype, tuple(map(to_expr, shape)))
    b = Tensor("b", dtype, (to_expr(shape[axis]),))
    value = Binary("+" if op == "+" else "*", Read("x", here(axes)), Read("b", (Name(axes[axis]),)))
    return single(f"channel_{'add' if op == '+' else 'mul'}", (x, b), replace(x, name="y"), axes, value)


def elements(value: Value) -> int:
    return prod(value.shape)


def here(axes: tuple[str, ...]) -> tuple[Affine, ...]:
    """Return the index that reads a tensor at the place being defined."""
    return tuple(Name(axis) for axis in axes)


def with_sizes(program: Program) -> Program:
    """Return the program with the sizes that its shapes mention among its own."""
    names = (affine.name_set(n) for tensor in walk.tensors(program) for n in tensor.shape)
    return replace(program, sizes=tuple(dict.fromkeys((*program.sizes, *(name for found in names for name in sorted(found))))))


def single(name: str, params: tuple[Tensor, ...], result: Tensor, axes: tuple[str, ...], value: Expr) -> Program:
    """Return the program that defines `result` by `value` at every point of its box. Its sizes are those of the shapes."""
    of_shapes = (affine.name_set(n) for tensor in (*params, result) for n in tensor.shape)
    of_value = (affine.name_set(e.index) - set(axes) for e in walk.nodes(value) if isinstance(e, IndexValue))
    sizes = tuple(dict.fromkeys(name for found in (*of_shapes, *of_value) for name in sorted(found)))
    return Program(name, sizes, params, (result.name,), (Definition((result,), axes, (Piece(value),)),))

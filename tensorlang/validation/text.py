"""Whether the text of kernels for graphics processors computes what equations say: the emulator runs it on terms, which are compared.

    program   ──evaluated on terms──►  y[2] = sum(0.0, x[2, 0]*w[0], x[2, 1]*w[1])
    kernels   ──run on terms────────►  y[2] = dot(x[2, 1], w[1], dot(x[2, 0], w[0], 0.0))        the same, but for what may be regrouped

What is run is the text that a device would run, every thread of every block, with its copies, barriers, swizzles and products by warps
(`codegen/gpu/traces.py` says how floats become terms). So this sees all that comes after the loops: which thread has which element, what
lies where in shared memory and in registers, in which order stages are filled and read. What races, is not waited for or lies outside the
emulator finds on the way.

Floats are compared as the loops of processors are, by the same `matching`. Integers are compared as numbers, of a few sets of random
data; what is selected or converted by floats is decided by numbers, too, and may only be what the equation asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from codegen.dtypes import DType
from codegen.gpu import emulator
from codegen.gpu.emulator import EmulatorError, Library
from codegen.gpu.program import Program as Kernels
from codegen.gpu.traces import ConcreteTerms, Trace, memory_of
from codegen.loops.terms import Exceeded, Term, Terms
from tensorlang.diagnostics import RunError
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.operation_count import operations
from tensorlang.tensor.walk import caller_shape, tensor_table
from tensorlang.validation.budget import BUDGET
from tensorlang.validation.kernel import (
    SEEDS,
    Layouts,
    Outcome,
    data_for,
    expected_results,
    laid_out,
    leaves,
    mismatch,
    read_back,
    sizes_to_try,
    term_difference,
)
from tensorlang.validation.matching import Matcher

Array = np.ndarray[Any, Any]

_DIFFERENT = {8: 100, 16: 30_000}
"""How many leaves elements of few bits may be: the numbers of terms that such an element can name are few."""


def validate_text(
    program: Program,
    kernels: Kernels,
    params: Iterable[str],
    layouts: Layouts | None = None,
    budget: int = BUDGET,
    library: Library | None = None,
) -> Outcome:
    """Return whether `kernels`, whose params are the tensors `params`, were found to compute what `program` says. `library` is what
    `emulator.build` made of them with `terms`.

    Raises InternalError when they compute something else, or do what no kernel may do, and EmulatorError where there is no g++."""
    small = next((sizes for sizes in sizes_to_try(program) if operations(program, sizes) <= budget), None)
    if small is None:
        return Outcome(reason=f"too large, more than {budget} operations")
    compiled = library or emulator.build(kernels.kernels, terms=True)
    reason, done = "", 0
    for seed in SEEDS:
        try:
            steady = _agrees(program, kernels, tuple(params), layouts or {}, small, seed, budget, compiled)
        except Exceeded:
            return Outcome(reason=f"too large, more than {4 * budget} operations")
        except (RunError, LookupError) as refused:
            reason = f"no data was found that its checks accept ({refused})"
            continue
        done += 1
        if steady or done == 2:
            break
    return Outcome((small,)) if done else Outcome(reason=reason)


def _agrees(
    program: Program,
    kernels: Kernels,
    params: tuple[str, ...],
    layouts: Layouts,
    sizes: Mapping[str, int],
    seed: int,
    budget: int,
    library: Library,
) -> bool:
    """Return whether data has no part in what is computed. Raises InternalError when the kernels compute something else than `program`
    means."""
    terms, table = ConcreteTerms(4 * budget), tensor_table(program)
    inputs = {p.name: _given(terms, p, sizes, numbers, seed) for p, numbers in data_for(program, sizes, seed, wide=True)}
    _, computed = expected_results(program, sizes, inputs, terms)
    asked, terms.asked = terms.asked, {}
    trace = Trace(library, 16 * budget)
    blocks = {
        buffer: _block(table[name], inputs.get(name), layouts, sizes, trace) for buffer, name in zip(kernels.params, params, strict=True)
    }
    _run(program, kernels, params, sizes, blocks, seed, library)
    results = [(buffer, table[name]) for buffer, name in zip(kernels.params, params, strict=True) if name in computed]
    cells: dict[DType, list[Array]] = {}
    for buffer, tensor in results:
        if tensor.dtype.is_float:
            cells.setdefault(tensor.dtype, []).append(blocks[buffer].reshape(-1))
    given = {leaf.serial: leaf for array in inputs.values() for leaf in array.flat}
    found = trace.terms(terms, given, {dtype: np.concatenate(parts) for dtype, parts in cells.items()})
    answered = all(asked[question] == answer for question, answer in terms.asked.items() if question in asked)
    if found.inconsistent or not answered:
        raise LookupError("rounding decides")
    if not asked.keys() >= terms.asked.keys():
        raise mismatch(
            program, kernels.text, sizes, "what is computed is not what the equation says: it is decided by what no equation asks"
        )
    matcher = Matcher(program.mode == "fast")
    for buffer, tensor in results:
        elements = found.of(tensor.dtype, read_back(blocks[buffer], layouts.get(tensor.name), caller_shape(tensor, sizes)), terms)
        differs = term_difference(tensor, elements, computed[tensor.name], matcher, terms, "kernels")
        if differs:
            raise mismatch(program, kernels.text, sizes, differs)
    return not asked and all(p.dtype.is_float for p in program.params)


def _given(terms: Terms, tensor: Tensor, sizes: Mapping[str, int], numbers: Array, seed: int) -> Array:
    """Return a leaf for each element, a constant of what is no float. Elements of few bits may share a leaf."""
    if not tensor.dtype.is_float:
        out = np.empty(caller_shape(tensor, sizes), object)
        for point in np.ndindex(out.shape):
            out[point] = terms.const(numbers[point], tensor.dtype)
        return out
    made = leaves(terms, tensor, sizes, numbers)
    different = _DIFFERENT.get(tensor.dtype.bits, made.size)
    if made.size > different:
        made = made.reshape(-1)[np.random.default_rng(seed).integers(0, different, made.size)].reshape(made.shape)
    return made


def _block(tensor: Tensor, given: Array | None, layouts: Layouts, sizes: Mapping[str, int], trace: Trace) -> Array:
    """Return what a buffer holds before the kernels run."""
    layout, memory = layouts.get(tensor.name), memory_of(tensor.dtype)
    if given is None:
        return np.zeros(caller_shape(tensor, sizes) if layout is None else layout.shape, memory)
    elements: list[Term] = list(given.flat)
    fill = np.iinfo(memory).max if tensor.dtype.is_float else 0
    return np.ascontiguousarray(laid_out(trace.given(tensor.dtype, elements).reshape(given.shape), layout, fill))


def _run(
    program: Program,
    kernels: Kernels,
    params: tuple[str, ...],
    sizes: Mapping[str, int],
    blocks: Mapping[str, Array],
    seed: int,
    library: Library,
) -> None:
    known = dict(zip(kernels.sizes, (sizes[s] for s in program.sizes), strict=True))
    written = [buffer for buffer, name in zip(kernels.params, params, strict=True) if name in program.results]
    try:
        code = emulator.run(kernels, known, dict(blocks), seed=4 * seed, outputs=written, library=library)
    except EmulatorError as fault:
        if fault.problem.startswith("too large"):
            raise Exceeded from None
        raise mismatch(program, kernels.text, sizes, f"the kernels cannot run: {fault}") from None
    if code:
        raise mismatch(program, kernels.text, sizes, f"the kernels refuse data that the equations accept, with {code}")

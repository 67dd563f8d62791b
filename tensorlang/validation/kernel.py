"""Whether the loops of a kernel compute what its equations say: both run on terms, element by element compared.

    program  ──evaluated on terms──►  y[2] = sum(0.0, x[2, 0]*w[0], x[2, 1]*w[1])
    loops    ──run on terms────────►  y[2] = fma(x[2, 1]*w[1] + fma(x[2, 0]*w[0] + 0.0))          the same, but for what may be regrouped

The program is the one that was given, before lifting and scheduling; the loops are the last before code is emitted. Inputs come in the
layouts that callers store them in, laid out as constants are; cells without an element hold nothing, and so do results before the loops
run. So a wrong bound or index, an update that is missing or done twice, a wrong initial value, operands in the wrong order, a rounding
too many or too few and a layout that loses an element show, whatever numbers would come out. What no term shows is in what `Outcome` says.

Sizes that are known are those of the kernel; where they are open, small ones are taken. Nobody runs a kernel of many operations on terms:
it runs on fingerprints then (`fingerprints`), which tell less, or is not validated, and the outcome says so.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from codegen.dtypes import FORMATS, DType, bool_, extreme
from codegen.errors import InternalError as LoopError
from codegen.forks import import_whole
from codegen.loops.domain import Symbols as LoopSymbols
from codegen.loops.fingerprints import Unwritten
from codegen.loops.interp import evaluate_index, run
from codegen.loops.nodes import Function
from codegen.loops.printer import show as show_loops
from codegen.loops.terms import COMPARISONS, Exceeded, Term, Terms, chain, comparison, concrete_value, key, leaves_of, show, terms_below
from polyhedral import affine
from tensorlang.diagnostics import InternalError, RunError
from tensorlang.graph.relayout import restored, to_layout
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.facts import computes_in_any_order, has_free_quotients
from tensorlang.tensor.interp import Evaluator, interpret
from tensorlang.tensor.nodes import Dynamic, Program, Read, Tensor
from tensorlang.tensor.operation_count import operations
from tensorlang.tensor.printer import show as show_program
from tensorlang.tensor.value_domain import Symbols
from tensorlang.tensor.walk import caller_shape, nodes, reads, shape_of, tensor_table
from tensorlang.validation import fingerprints
from tensorlang.validation.budget import BUDGET, on_fingerprints, validation_budget
from tensorlang.validation.matching import Matcher

Array = np.ndarray[Any, Any]
Layouts = Mapping[str, Layout]
SEEDS = range(4)


@dataclass(frozen=True, slots=True)
class Outcome:
    """At which sizes a kernel was validated, or why it was not. `fingerprints`: on these, as it is too large for terms."""

    sizes: tuple[Mapping[str, int], ...] = ()
    reason: str = ""
    fingerprints: bool = False

    def __str__(self) -> str:
        return f"not validated: {self.reason}" if self.reason else "validated on fingerprints" if self.fingerprints else "validated"


def validate(program: Program, function: Function, params: Iterable[str], layouts: Layouts | None = None, budget: int = BUDGET) -> Outcome:
    """Return whether `function`, whose buffers are the tensors `params`, was found to compute what `program` says.

    Raises InternalError when it computes something else."""
    small = [sizes for sizes in sizes_to_try(program) if operations(program, sizes) <= budget]
    if not small:
        return _validated_on_fingerprints(program, function, tuple(params), layouts or {}, budget)
    tried = tuple(small[:2])
    for sizes in tried:
        reason = _validated(program, function, tuple(params), layouts or {}, sizes, budget)
        if reason:
            return Outcome(reason=reason)
    return Outcome(tried)


def validated(
    program: Program, function: Function, params: Iterable[str], layouts: Layouts | None = None, written: Program | None = None
) -> str:
    """Return what came of validating as `TENSORLANG_VALIDATE` says, "" when nobody asked. `written`: what `program` was factorized from, if
    it was, which has to be the same numbers. Raises InternalError as `validate` does."""
    budget = validation_budget()
    if not budget:
        return ""
    import_whole("numpy.random")  # which NumPy imports where it is first used
    outcome = validate(program, function, params, layouts, budget)
    if written is not None and written.definitions != program.definitions and not outcome.fingerprints:
        for sizes in outcome.sizes:
            _check_same_numbers(written, program, sizes)
    return str(outcome)


def _check_same_numbers(written: Program, program: Program, sizes: Mapping[str, int]) -> None:
    """Raise InternalError where a program whose reductions go factor by factor is not what it was made of, of small numbers: integers to
    the bit, floats that are finite in both within 1e-4 of the largest, or four steps of a type that has fewer."""
    arrays = {p.name: numbers for p, numbers in data_for(written, sizes, 0)}
    try:
        expected = interpret(written, sizes, arrays)
    except RunError:
        return
    table = tensor_table(written)
    for name, found in interpret(program, sizes, arrays).items():
        if not _is_close(found, expected[name], table[name].dtype):
            raise mismatch(program, show_program(written), sizes, f"`{name}` is not what it was before it was factorized")


def _is_close(found: Array, expected: Array, dtype: DType) -> bool:
    if not dtype.is_float:
        return bool((found == expected).all())
    pair = np.stack([found, expected]).astype(np.float64)
    pair = pair[:, np.isfinite(pair).all(axis=0)]
    within = max(1e-4, 4 * 2.0 ** -FORMATS[dtype.name].mantissa_bits)
    return bool((np.abs(pair[0] - pair[1]) <= within * np.abs(pair).max(initial=0.0)).all())


def _validated_on_fingerprints(program: Program, function: Function, params: tuple[str, ...], layouts: Layouts, budget: int) -> Outcome:
    """Return what comes of a kernel that is too large for terms."""
    allowed = on_fingerprints(budget)
    if program.sizes or operations(program, {}) > allowed:
        return Outcome(reason=f"too large, more than {max(budget, allowed)} operations")
    reason = fingerprints.unfit(program)
    for seed in SEEDS if not reason else ():
        numbers = {p.name: a for p, a in data_for(program, {}, seed) if not p.dtype.is_float}
        try:
            differs = fingerprints.difference(program, function, params, layouts, numbers, seed)
        except (RunError, LookupError) as refused:
            reason = f"no data was found that its checks accept ({refused})"
            continue
        except Unwritten as why:
            return Outcome(reason=f"too large, more than {budget} operations, and {why}")
        if differs and computes_in_any_order(program):
            return Outcome(reason=f"too large, more than {budget} operations, and a reducer computes with its terms in any order")
        if differs and has_free_quotients(program):
            return Outcome(reason=f"too large, more than {budget} operations, and quotients of a `fast` operator may be regrouped")
        if differs:
            raise mismatch(program, show_loops(function), {}, differs)
        return Outcome(({},), fingerprints=True)
    return Outcome(reason=reason)


def sizes_to_try(program: Program) -> Iterator[dict[str, int]]:
    """Yield sizes that the program allows, large ones first: more than the lanes of a vector, fewer, and one."""
    seen = []
    for base, step in ((17, 3), (9, 4), (9, 1), (5, 2), (3, 1), (2, 1), (2, 0), (4, 0), (8, 0), (1, 0)):
        sizes = {s: base + step * k for k, s in enumerate(program.sizes)}
        if sizes not in seen and affine.holds(program.context, sizes):
            seen.append(sizes)
            yield sizes


def _validated(
    program: Program, function: Function, params: tuple[str, ...], layouts: Layouts, sizes: Mapping[str, int], budget: int
) -> str:
    """Return why the kernel cannot be validated at these sizes, "" where it was."""
    layouts = {name: layout.at(sizes) for name, layout in layouts.items()} if program.sizes else layouts
    reason, decides, done = "", False, False
    for seed in SEEDS:
        try:
            if not decides and not _agrees(program, function, params, layouts, sizes, seed, Terms(4 * budget)):
                decides = True  # the loops run under conditions of the data: so the equations are taken, too, for several such
            if decides:
                _agrees(program, function, params, layouts, sizes, seed, Terms(4 * budget, decides=True))
            done = True
            if not decides:
                break
        except Exceeded:
            return f"too large, more than {4 * budget} operations"
        except (RunError, LookupError) as refused:
            reason = f"no data was found that its checks accept ({refused})"
    return "" if done else reason


def _agrees(
    program: Program, function: Function, params: tuple[str, ...], layouts: Layouts, sizes: Mapping[str, int], seed: int, terms: Terms
) -> bool:
    """Return whether the loops compute what `program` means for one choice of data, or False where that shows only once the data decides
    what is selected: they run under conditions of it, or select twice by one. Raises InternalError when they compute something else."""
    inputs = {p.name: leaves(terms, p, sizes, numbers) for p, numbers in data_for(program, sizes, seed)}
    meaning, expected = expected_results(program, sizes, inputs, terms)
    compared, chosen = set(terms.compared), set(terms.chosen)
    domain = LoopSymbols(terms)
    choices = [*meaning.choices.values()]
    regrouped = [*meaning.regrouped.values()]
    matcher = Matcher(program.mode == "fast", terms.decides, choices)
    differs = _difference(program, function, params, layouts, sizes, inputs, domain, expected, matcher)
    if not terms.decides:
        if domain.decided.keys() <= meaning.decided.keys() and not differs:
            return True
        if terms.chosen or domain.decided or regrouped:
            return False
        raise mismatch(program, show_loops(function), sizes, differs)
    if differs and regrouped:
        matcher = replace(matcher, regrouped=regrouped)
        differs = _difference(program, function, params, layouts, sizes, inputs, domain, expected, matcher)
    divides = has_free_quotients(program)
    for condition in (*domain.decided.values(), *(cond for k, cond in terms.chosen.items() if k not in chosen)):
        if divides and any(t.op in ("*", "/") for t in terms_below(condition)):
            continue  # perhaps of other terms, which are those of the equation but for rounding
        if not _asks(condition, compared, choices) and not any(leaves_of(condition) <= among for among in regrouped):
            raise mismatch(
                program,
                show_loops(function),
                sizes,
                f"what is computed is not what the equation says: the loops ask for `{show(condition)}`, which no equation does",
            )
    if differs:
        raise mismatch(program, show_loops(function), sizes, differs)
    return True


def _asks(condition: Term, compared: Container[tuple[object, ...]], choices: Sequence[Container[int]]) -> bool:
    """Tell whether all that decides a condition is `compared`, or compares what a reducer chooses among: of an `and` that is false, or an
    `or` that is true, one part."""
    asks = partial(_asks, compared=compared, choices=choices)
    if condition.op in COMPARISONS:
        x, y = map(key, condition.args)
        return comparison(condition) in compared or any(x in among and y in among for among in choices)
    if condition.op in ("and", "or") and bool(concrete_value(condition)) == (condition.op == "or"):
        return any(asks(part) for part in chain(condition) if bool(concrete_value(part)) == (condition.op == "or"))
    return condition.op not in ("not", "and", "or", "select") or all(map(asks, condition.args))


def expected_results(
    program: Program, sizes: Mapping[str, int], inputs: Mapping[str, Array], terms: Terms
) -> tuple[Symbols, dict[str, Array]]:
    """Return the results of `program` as terms. Raises RunError for data that it refuses."""
    carried = Symbols(terms, free=program.mode != "strict")
    evaluator = Evaluator(program, sizes, inputs, carried)
    evaluator.run()
    return carried, evaluator.results()


def _difference(
    program: Program,
    function: Function,
    params: tuple[str, ...],
    layouts: Layouts,
    sizes: Mapping[str, int],
    inputs: Mapping[str, Array],
    domain: LoopSymbols,
    expected: Mapping[str, Array],
    matcher: Matcher,
) -> str:
    """Run the loops on `inputs`, and return where they compute something else than `expected`, "" where nowhere. Raises InternalError when
    they cannot run."""
    terms, at = domain.terms, dict(zip(function.sizes, (sizes[s] for s in program.sizes), strict=True))
    blocks: dict[str, Array] = {}
    for buffer, name in zip(function.params, params, strict=True):
        shape = tuple(evaluate_index(e, at) for e in buffer.shape)
        blocks[buffer.name] = (
            laid_out(inputs[name], layouts.get(name), terms.hole).reshape(shape) if name in inputs else _blank(shape, terms)
        )
    try:
        code = run(function, at, blocks, domain)
    except LoopError as fault:
        raise mismatch(program, show_loops(function), sizes, f"the loops cannot run: {fault.detail}") from None
    if code:
        raise mismatch(program, show_loops(function), sizes, f"the loops refuse data that the equations accept, with {code}")
    table = tensor_table(program)
    for buffer, name in zip(function.params, params, strict=True):
        if name in expected:
            got = read_back(blocks[buffer.name], layouts.get(name), caller_shape(table[name], sizes))
            differs = term_difference(table[name], got, expected[name], matcher, terms)
            if differs:
                return differs
    return ""


def term_difference(tensor: Tensor, got: Array, expected: Array, matcher: Matcher, terms: Terms, code: str = "loops") -> str:
    """Return the first element of a result that `code` computes otherwise, with both terms; "" where there is none."""
    for point in np.ndindex(expected.shape):
        found, equation = term_of(got[point], tensor.dtype, terms), term_of(expected[point], tensor.dtype, terms)
        differs = matcher.difference(found, equation)
        if differs is not None:
            place = f"{tensor.name}[{', '.join(map(str, point))}]" if point else tensor.name
            lines = [f"`{place}` is not what the equation says", f"  equation {show(equation, 40)}", f"  {code:8} {show(found, 40)}"]
            if differs != (found, equation):
                lines += ["where they part", f"  equation {show(differs[1], 40)}", f"  {code:8} {show(differs[0], 40)}"]
            return "\n".join(lines)
    return ""


def mismatch(program: Program, code: str, sizes: Mapping[str, int], text: str) -> InternalError:
    """Return the error that `code`, loops or text, is not what `program` says."""
    where = f" at {', '.join(f'{s}={n}' for s, n in sizes.items())}" if sizes else ""
    return InternalError("validate", f"`{program.name}`{where}: {text}\n\n{show_program(program)}\n\n{code}")


def term_of(element: Any, dtype: DType, terms: Terms) -> Term:
    """Return an element of an array, a term or a number, as a term."""
    return element if isinstance(element, Term) else terms.const(element, dtype)


# ---------------------------------------------------------------- data


def leaves(terms: Terms, tensor: Tensor, sizes: Mapping[str, int], numbers: Array) -> Array:
    """Return an array with one leaf per element as the caller sees it; `numbers` are their concrete values."""
    out = np.empty(caller_shape(tensor, sizes), object)
    for point in np.ndindex(out.shape):
        name = f"{tensor.name}[{', '.join(map(str, point))}]" if point else tensor.name
        out[point] = terms.leaf(name, tensor.dtype, numbers[point])
    return out


def data_for(program: Program, sizes: Mapping[str, int], seed: int, *, wide: bool = False) -> Iterator[tuple[Tensor, Array]]:
    """Yield numbers for each parameter: what indexes something lies inside of it as far as one can see. `wide`: other integers are
    many different ones."""
    rng = np.random.default_rng(seed)
    table, limits = tensor_table(program), _limits(program, sizes)
    for name in (p.name for p in program.params):
        tensor = table[name]
        shape = caller_shape(tensor, sizes)
        if tensor.dtype == bool_:
            yield tensor, rng.integers(0, 2, shape).astype(np.bool_)
        elif tensor.dtype.is_float:
            halves = (-3, 4)
            if tensor.declared_range is not None:
                lo, hi = (int(affine.evaluate(e, sizes)) for e in tensor.declared_range)
                halves = (2 * lo, max(2 * lo + 1, 2 * hi))
            yield tensor, np.asarray(rng.integers(*halves, shape) / 2).astype(tensor.dtype.numpy)
        else:
            lo, hi = 0, limits.get(name, 4) if seed < len(SEEDS) - 1 else 1
            if wide and name not in limits and hi > 1:
                lo, hi = (int(np.clip(extreme(tensor.dtype, highest=end), -1000, 1000)) for end in (False, True))
            if tensor.declared_range is not None:
                lo, hi = (int(affine.evaluate(e, sizes)) for e in tensor.declared_range)
            yield tensor, rng.integers(lo, max(lo + 1, hi), shape).astype(tensor.dtype.numpy)


def _limits(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return, for each tensor that indices are read from, the least extent that it indexes."""
    table = tensor_table(program)
    out: dict[str, int] = {}
    for e in (n for d in program.definitions for p in d.pieces for n in nodes(p.value)):
        if not isinstance(e, Read):
            continue
        for slot, extent in zip(e.index, shape_of(table[e.tensor], sizes), strict=True):
            for source in reads(slot.value) if isinstance(slot, Dynamic) else ():
                out[source.tensor] = max(1, min(extent, out.get(source.tensor, extent)))
    return out


# ---------------------------------------------------------------- memory


def laid_out(array: Array, layout: Layout | None, fill: Any) -> Array:
    """Return what a buffer in `layout` holds; `fill` where no element is."""
    return array.copy() if layout is None else to_layout(array, layout, fill)


def read_back(block: Array, layout: Layout | None, shape: tuple[int, ...]) -> Array:
    """Return the elements of a buffer in `layout`."""
    return block.reshape(shape) if layout is None else restored(block.reshape(layout.shape), layout, shape)


def _blank(shape: tuple[int, ...], terms: Terms) -> Array:
    return np.full(shape, terms.hole, object)

"""Instructions as sums of products, and where in a plan one is to go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from codegen.dtypes import DType
from codegen.intrinsics import Intrinsic
from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.schedule import Instruction
from tensorlang.schedule.state import Request
from tensorlang.tensor.contraction import Factor, NoContraction, contraction, multiplied
from tensorlang.tensor.nodes import Binary, Call, Definition, Program, Read, Reduce
from tensorlang.tensor.walk import tensor_table


@dataclass(frozen=True, slots=True)
class Form:
    """An instruction as a sum: `result[axes] = accumulator[axes] + sum(binders) lhs * rhs`."""

    axes: tuple[str, ...]
    binders: tuple[str, ...]
    extents: Mapping[str, int | None]
    """None for an axis of any extent."""
    dtype: DType
    lhs: Read
    rhs: Read
    types: Mapping[str, DType]
    rounded: bool = False
    """Both are rounded to tf32 before they are multiplied."""
    start: Read | None = None
    """What the sum is added to; None where the instruction has no such operand."""

    @property
    def is_tile(self) -> bool:
        """Tell whether the results are rows and columns, rather than lanes."""
        return len(self.axes) > 1


def form_of(instruction: Instruction) -> Form | None:
    """Return what the instruction adds up, or None when it is no such sum."""
    program = instruction.program
    if len(program.definitions) != 1 or len(program.definitions[0].pieces) != 1:
        return None
    definition = program.definitions[0]
    start: Read | None = None
    match definition.pieces[0].value:
        case Binary("+", Read() as start, Reduce() as reduce) | Binary("+", Reduce() as reduce, Read() as start):
            pass
        case Reduce() as reduce if instruction.llvm is not None:
            pass
        case Binary("+", Read() as start, Binary("*", Read() as x, Read() as y)) if instruction.llvm is not None:
            return _single(program, definition, start, (x, y))
        case Binary("+", Binary("*", Read() as x, Read() as y), Read() as start) if instruction.llvm is not None:
            return _single(program, definition, start, (x, y))
        case _:
            return None
    plain = factors_of(reduce)
    factors = plain or rounded_factors_of(reduce)
    own = tuple(affine.to_expr(a) for a in definition.axes)
    guarded = reduce.where != TRUE or reduce.init is not None or definition.pieces[0].guard != TRUE
    if factors is None or (instruction.llvm is not None and guarded) or (start is not None and start.index != own):
        return None
    types = {t.name: t.dtype for t in tensor_table(program).values()}
    extents = {a: affine.constant(s) for a, s in zip(definition.axes, definition.tensors[0].shape, strict=True)}
    extents |= {b.name: affine.difference(b.hi, b.lo) if affine.constant(b.lo) == 0 else None for b in reduce.binders}
    binders = tuple(b.name for b in reduce.binders)
    return Form(definition.axes, binders, extents, definition.tensors[0].dtype, *factors, types, plain is None, start)


def _single(program: Program, definition: Definition, start: Read, factors: tuple[Read, Read]) -> Form | None:
    """Return an instruction that adds one product."""
    if start.index != tuple(affine.to_expr(a) for a in definition.axes) or definition.pieces[0].guard != TRUE:
        return None
    types = {t.name: t.dtype for t in tensor_table(program).values()}
    extents = {a: affine.constant(s) for a, s in zip(definition.axes, definition.tensors[0].shape, strict=True)}
    return Form(definition.axes, (), extents, definition.tensors[0].dtype, *factors, types, start=start)


_NOT_NAMED = (
    "not supported yet: an instruction named for LLVM that is neither `d[l] = [c[l] +] sum(r) a[l, r] * b[l, r]` nor "
    "`d[l] = c[l] + a * b[l]`, of whole operands, in any range"
)


def _is_ranged(program: Program) -> bool:
    return program.context != TRUE or any(p.declared_range is not None for p in program.params)


def _lies_as_read(form: Form, read: Read, shape: Sequence[Affine]) -> bool:
    """Tell whether all of an operand is read, the elements of a lane next to each other, and as many for each."""
    order = [n.name if isinstance(n, AffineName) else "" for n in read.index]
    inner = list(form.binders) if form.start is None or read != form.start else []
    extents = [affine.constant(n) for n in shape]
    return order in ([*form.axes, *inner], inner) and extents == [form.extents[n] for n in order]


def intrinsic_of(instruction: Instruction, form: Form) -> Intrinsic | Refusal:
    """Return what LLVM is to be asked for, by the name in the declaration: lanes, and elements of a lane that are multiplied, are those of
    the equation."""
    reads = {"a": form.lhs, "b": form.rhs} | ({"c": form.start} if form.start is not None else {})
    names = {read.tensor: operand for operand, read in reads.items()}
    program = instruction.program
    if len(names) != len(reads) or len(form.axes) != 1 or len(form.binders) > 1 or _is_ranged(program):
        return Refusal(_NOT_NAMED)
    free = next((n for n in (*form.axes, *form.binders) if form.extents[n] is None), None)
    if free is not None:
        return Refusal(f"LLVM's instruction has a number of lanes, and `{free}` of the declaration has any extent", "write a number")
    table = tensor_table(program)
    if any(not _lies_as_read(form, read, table[read.tensor].shape) for read in reads.values()):
        return Refusal(_NOT_NAMED)
    lanes, count = (form.extents[n] if n else 1 for n in (form.axes[0], next(iter(form.binders), "")))
    assert lanes is not None and count is not None, "seen above"
    if lanes < 2:
        return Refusal("LLVM's instruction works on the lanes of a vector, and the declaration has one", "declare two or more")
    params = tuple(p.name for p in program.params)
    types = form.types[form.lhs.tensor], form.types[form.rhs.tensor]
    assert instruction.llvm is not None
    needs = tuple(need.replace("_", "-") for need in instruction.needs)
    return Intrinsic(instruction.llvm, needs, tuple(names[p] for p in params), *types, form.dtype, lanes, count)


def factors_of(reduce: Reduce) -> tuple[Read, Read] | None:
    """Return the elements whose products a sum adds up, each at least as wide as the sum once widened."""
    return _factors(reduce, lambda f: not f.rounding and not f.saturates)


def rounded_factors_of(reduce: Reduce) -> tuple[Read, Read] | None:
    """Return the elements whose products a sum adds up, where both are f32 and rounded to tf32 before."""
    return _factors(reduce, lambda f: f.rounding == "round_tf32" and not f.casts)


def is_rounded(reduce: Reduce) -> bool:
    """Tell whether both factors of what a sum adds up are rounded to tf32, whatever they are."""
    match multiplied(reduce):
        case (Call("round_tf32", _), Call("round_tf32", _)):
            return True
        case _:
            return False


def _factors(reduce: Reduce, fits: Callable[[Factor], bool]) -> tuple[Read, Read] | None:
    found = contraction(reduce)
    if isinstance(found, NoContraction) or reduce.filter is not None:
        return None
    return found.reads if all(f.select is None and f.zero is None and fits(f) for f in found.factors) else None


@dataclass(frozen=True, slots=True)
class Site:
    """Where an instruction is to go. `originals`: what packed copies are copies of."""

    plan: Plan
    request: Request
    originals: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    why: str
    help: str | None = None
    rank: int = 0
    """How far the comparison went; of several instructions the closest one is told."""


def unequal(site: Site, form: Form, reduce: Reduce) -> Refusal | None:
    """Return why a sum of products is added up in another way than an instruction does, or None when it is not."""
    if reduce.reducer.dtypes[0] != form.dtype:
        return Refusal(f"the sum is one of {reduce.reducer.dtypes[0]}, the instruction's of {form.dtype}", None, 2)
    if site.plan.program.mode == "strict" and form.dtype.is_float:
        return Refusal("the operator is strict, and the instruction adds in an order of its own", None, 2)
    return None


def unmatched(site: Site, form: Form, factors: tuple[Read, Read], mismatch: Callable[[Read, Read], Refusal | None]) -> Refusal | None:
    """Return why the factors of a sum, in either order, are not those of an instruction: the reason that was found last in the comparison;
    None when they are. `mismatch` says of an operand of the instruction and a factor why they are not the same."""
    types = {t.name: t.dtype for t in tensor_table(site.plan.program).values()}
    reasons: list[Refusal] = []
    for lhs, rhs in (factors, factors[::-1]):
        pairs = ((form.lhs, lhs), (form.rhs, rhs))
        if any(form.types[own.tensor] != types[read.tensor] for own, read in pairs):
            given, wanted = ([t[r.tensor] for r in f] for t, f in ((types, factors), (form.types, (form.lhs, form.rhs))))
            reasons.append(Refusal(f"it multiplies {wanted[0]} with {wanted[1]}, the sum {given[0]} with {given[1]}", None, 2))
            continue
        refused = next((r for own, read in pairs if (r := mismatch(own, read)) is not None), None)
        if refused is None:
            return None
        reasons.append(refused)
    return max(reasons, key=lambda r: r.rank)

"""Instructions as sums of products, and where in a plan one is to go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codegen.dtypes import DType
from polyhedral import affine
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.schedule import Instruction
from tensorlang.schedule.state import Request
from tensorlang.tensor.contraction import Factor, NoContraction, contraction, multiplied
from tensorlang.tensor.nodes import Binary, Call, Read, Reduce
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
    match definition.pieces[0].value:
        case Binary("+", Read() as start, Reduce() as reduce) | Binary("+", Reduce() as reduce, Read() as start):
            pass
        case _:
            return None
    plain = factors_of(reduce)
    factors = plain or rounded_factors_of(reduce)
    own = tuple(affine.to_expr(a) for a in definition.axes)
    if factors is None or start.index != own:
        return None
    types = {t.name: t.dtype for t in tensor_table(program).values()}
    extents = {a: affine.constant(s) for a, s in zip(definition.axes, definition.tensors[0].shape, strict=True)}
    extents |= {b.name: affine.difference(b.hi, b.lo) if affine.constant(b.lo) == 0 else None for b in reduce.binders}
    binders = tuple(b.name for b in reduce.binders)
    return Form(definition.axes, binders, extents, definition.tensors[0].dtype, *factors, types, plain is None)


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


def unmatched(site: Site, form: Form, factors: tuple[Read, Read], misfit: Callable[[Read, Read], Refusal | None]) -> Refusal | None:
    """Return why the factors of a sum, in either order, are not those of an instruction: the reason that was found last in the comparison;
    None when they are. `misfit` says of an operand of the instruction and a factor why they are not the same."""
    types = {t.name: t.dtype for t in tensor_table(site.plan.program).values()}
    reasons: list[Refusal] = []
    for lhs, rhs in (factors, factors[::-1]):
        pairs = ((form.lhs, lhs), (form.rhs, rhs))
        if any(form.types[own.tensor] != types[read.tensor] for own, read in pairs):
            given, wanted = ([t[r.tensor] for r in f] for t, f in ((types, factors), (form.types, (form.lhs, form.rhs))))
            reasons.append(Refusal(f"it multiplies {wanted[0]} with {wanted[1]}, the sum {given[0]} with {given[1]}", None, 2))
            continue
        refused = next((r for own, read in pairs if (r := misfit(own, read)) is not None), None)
        if refused is None:
            return None
        reasons.append(refused)
    return max(reasons, key=lambda r: r.rank)

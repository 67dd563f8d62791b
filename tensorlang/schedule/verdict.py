"""Whether a plan computes what its program says: its order, then how its tensors are stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.legality import Violation, check
from polyhedral.record import subject
from polyhedral.storage import Cells, Clobber, injective, validate
from polyhedral.verdict import Proven, Unknown
from tensorlang.schedule.plan import Plan
from tensorlang.tensor.walk import definers, tensor_table

Verdict: TypeAlias = Proven | Violation | Clobber | Unknown

LIMIT = 2_000_000


def verdict_of(plan: Plan, limit: int = LIMIT) -> Verdict:
    """Return whether `plan` computes what its program says: its order first, then where its tensors are stored."""
    verdict = check(plan.placed, storage=plan.depth, limit=limit)
    if isinstance(verdict, Violation) and verdict.kind == "missing" and verdict.dep is None:
        # Something is not computed: that is wrong only where it is a result or somebody reads it.
        results = {d.tensors[0].name for d in plan.program.definitions for t in d.tensors if t.name in plan.program.results}
        verdict = check(plan.placed, storage=plan.depth, outputs=results, limit=limit)
    if isinstance(verdict, Violation):
        return verdict
    # What one proof does not decide another may refute.
    stored = _storage_verdict(plan)
    return stored if isinstance(verdict, Proven) or isinstance(stored, Clobber) else verdict


def _storage_verdict(plan: Plan) -> Proven | Clobber | Unknown:
    """Return whether every fold, and every layout of a tensor that the plan itself stores, keeps what is still needed."""
    undecided: Proven | Unknown = Proven()
    for name, cells, axes in stored_cells(plan):
        verdict = validate(plan.placed, {name: cells}, axes={name: axes}, storage=plan.depth)
        if isinstance(verdict, Clobber):
            return verdict
        undecided = undecided if isinstance(verdict, Proven) else verdict
    return undecided


def stored_cells(plan: Plan) -> Iterator[tuple[str, Cells, tuple[str, ...]]]:
    """Yield the tensors of which several elements may share a cell, with these cells and the axes they are over."""
    table, definitions = tensor_table(plan.program), definers(plan.program)
    caller = {*(p.name for p in plan.program.params), *plan.program.results}
    for name in dict.fromkeys((*plan.folds, *plan.layouts)):
        if name in caller or name not in definitions:
            continue
        definition = definitions[name]
        if name in plan.layouts:
            exprs: tuple[Affine, ...] = plan.layouts[name].dims
            inside = affine.conj(*(affine.within(a, 0, e) for a, e in zip(definition.axes, table[name].shape, strict=True)))
            if isinstance(injective(plan.program.sizes, definition.axes, inside, exprs), Proven):
                subject(name)
                continue
            moduli: tuple[int | None, ...] = (None,) * len(exprs)
        else:
            exprs = tuple(affine.to_expr(a) for a in definition.axes)
            folds = dict(plan.folds[name])
            moduli = tuple(folds.get(k) for k in range(len(exprs)))
        yield definition.tensors[0].name, Cells(exprs, moduli), definition.axes

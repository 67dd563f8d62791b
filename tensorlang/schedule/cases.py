"""Schedules in cases: one kernel for the sizes for which a condition holds, and one for all others.

    specialize N == 64, N % 8 == 0          N == 64                        a number in all that follows
    vectorize ii if N % 8 == 0              N != 64, N % 8 == 0
    …                                       N != 64, N % 8 != 0

Of the conditions of a `specialize` the first that holds says which case it is, or none does: so every size is in one case, whatever the
conditions are. Each case assumes what makes it one; a proof takes that for granted, and a kernel checks it. Conditions of directives
are decided by it. Sizes that are known when compiling leave nothing to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from polyhedral import affine
from polyhedral.expr import FALSE, Cond
from polyhedral.sets import implies
from polyhedral.verdict import Proven
from tensorlang.diagnostics import CompileError
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.operands import bad
from tensorlang.schedule.guards import Fact, evaluate
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show

Choose: TypeAlias = Callable[[Sequence[sx.Compare]], int]
"""Chooses the first of several conditions on run-time sizes that holds: its number, or how many there are where none does."""
MOST_CASES = 64
"""Cases of a schedule."""

_OPPOSITE = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}


def none_holds(undecided: Sequence[sx.Compare]) -> int:
    """Choose the case that none of the conditions is about."""
    return len(undecided)


def has_cases(directive: sx.Directive) -> bool:
    """Tell whether a directive makes cases: `specialize` of conditions, and not of a loop."""
    return directive.name == "specialize" and any(isinstance(o, sx.Compare) for o in directive.operands)


def conditions_of(directive: sx.Directive) -> tuple[sx.Compare, ...]:
    """Return the conditions that make cases. Raises CompileError S0102 for what is none, or compares more than two values."""
    for operand in directive.operands:
        if not isinstance(operand, sx.Compare):
            bad(directive, f"`{show(operand)}` compares no sizes")
        if len(operand.ops) > 1:
            bad(directive, f"`{show(operand)}` is two conditions", "write one comparison for each case: `specialize N <= 16, N <= 64`")
    if directive.phrases or directive.results:
        bad(directive, "it is about conditions alone")
    return tuple(o for o in directive.operands if isinstance(o, sx.Compare))


def undecided_of(directive: sx.Directive, env: Mapping[str, Fact]) -> list[sx.Compare]:
    """Return the conditions that sizes of run time decide, up to the first that is known to hold."""
    out: list[sx.Compare] = []
    for condition in conditions_of(directive):
        held = evaluate(condition, env, "a condition")
        if held:
            break
        if held is None:
            out.append(condition)
    return out


def assumed_in(undecided: Sequence[sx.Compare], chosen: int) -> list[sx.Compare]:
    """Return what holds in the case that is chosen: that no condition before it does, and that it does."""
    before = [sx.Compare(c.items, tuple(_OPPOSITE[op] for op in c.ops), span=c.span) for c in undecided[:chosen]]
    return [*before, *undecided[chosen : chosen + 1]]


def by_sizes(at: Mapping[str, Fact]) -> Choose:
    """Return what chooses the case of these sizes."""

    def choose(undecided: Sequence[sx.Compare]) -> int:
        return next((k for k, c in enumerate(undecided) if evaluate(c, at, "a condition")), len(undecided))

    return choose


def case_of(body: Sequence[sx.Directive | sx.Knobs], at: Mapping[str, Fact]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the case of a schedule that sizes are in: what is assumed in it, and the sizes that are numbers in it."""
    assumed: list[sx.Compare] = []
    for directive in body:
        if isinstance(directive, sx.Directive) and has_cases(directive):
            conditions = conditions_of(directive)
            assumed += assumed_in(conditions, by_sizes(at)(conditions))
    return tuple(map(show, assumed)), frozenset(fixed_in(assumed))


def fixed_in(assumed: Sequence[sx.Compare]) -> dict[str, int]:
    """Return the sizes that are numbers where this is assumed: of `N == 64`, N."""
    out: dict[str, int] = {}
    for condition in assumed:
        match condition:
            case sx.Compare((sx.Id(name), sx.Number(text)), ("==",)) | sx.Compare((sx.Number(text), sx.Id(name)), ("==",)):
                out[name] = int(text)
            case _:
                pass
    return out


class EveryCase:
    """Chooses one case after the other: `more` says whether there are any that were not chosen yet."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self._counts: list[int] = []

    def __call__(self, undecided: Sequence[sx.Compare]) -> int:
        k = len(self._counts)
        self._counts.append(len(undecided) + 1)
        if k == len(self._taken):
            self._taken.append(0)
        return self._taken[k]

    def more(self) -> bool:
        """Go on to the next case, if there is one."""
        while self._counts and self._taken[len(self._counts) - 1] + 1 == self._counts[-1]:
            self._counts.pop()
        self._taken = self._taken[: len(self._counts)]
        if not self._counts:
            return False
        self._taken[-1] += 1
        self._counts = []
        return True


def as_chosen(assumed: Sequence[sx.Compare]) -> Choose:
    """Return what chooses the case in which this is assumed."""
    texts = set(map(show, assumed))
    return lambda undecided: next((k for k, c in enumerate(undecided) if show(c) in texts), len(undecided))


def decided(condition: sx.Expr, assumed: Sequence[sx.Compare], env: Mapping[str, Fact]) -> bool | None:
    """Return whether a comparison of sizes holds wherever `assumed` does, or nowhere; None where that is not known."""
    if not isinstance(condition, sx.Compare) or not assumed:
        return None
    sizes = [name for name, fact in env.items() if fact is None]
    try:
        claim = _condition(condition, sizes, env)
        given = affine.conj(*(_condition(c, sizes, env) for c in assumed), *(affine.compare(">=", size, 0) for size in sizes))
    except CompileError:
        return None
    if isinstance(implies(sizes, (), given, claim), Proven):
        return True
    return False if isinstance(implies(sizes, (), affine.conj(given, claim), FALSE), Proven) else None


def is_empty(assumed: Sequence[sx.Compare], sizes: Sequence[str], context: Cond) -> bool:
    """Tell whether a case is one of no sizes: an earlier condition holds wherever its own does."""
    try:
        given = affine.conj(context, *(_condition(c, sizes, {}) for c in assumed), *(affine.compare(">=", size, 0) for size in sizes))
    except CompileError:
        return False
    return isinstance(implies(sizes, (), given, FALSE), Proven)


def _condition(condition: sx.Compare, sizes: Sequence[str], env: Mapping[str, Fact]) -> Cond:
    numbers = {name: fact for name, fact in env.items() if isinstance(fact, int)}
    return operands.condition(sx.Directive("specialize"), condition, sizes, numbers)

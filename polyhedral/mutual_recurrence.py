"""In which loops tensors that are defined through each other can run, so that nothing is needed before it is computed.

    y[i] = f(z[i + 1])   z[i] = g(y[i + 1])            one loop for both, over -i
    d[i, j] = f(p[i, j], q[i, j], d[i - 1, j - 1])     one loop over i for all; in it p, then one loop over j for q and d
    q[i, j] = g(d[i, j - 1])   p[i, j] = h(d[i - 1, j])

Tensors are put into groups that need each other. A tensor by itself gets its loops one by one: the first of its axes along which no
dependence goes backwards, forwards or else turned round, or, where there is none, a small sum of axes. Tensors of a group get one loop for
all of them in the same way, with offsets; dependences that advance along it are settled, and what is left falls into groups again. A loop
that no dependence goes against can do no harm, so none has to be taken back (Feautrier 1992), and the order of the axes is kept wherever it
is legal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from polyhedral.expr import Cond
from polyhedral.recurrence import MAX_TRIALS, Edge, Form, Pairs, Recurrence, small_forms
from polyhedral.space import OperationLimit, limited

Free: TypeAlias = Mapping[str, frozenset[int]]
"""Tensor → positions of the axes that no loop has taken yet."""


@dataclass(frozen=True, slots=True)
class Separate:
    """The loops of one tensor, outermost first, as sums of its axes; each has a factor of 1 or -1 for the axis it `takes`."""

    tensor: str
    forms: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """One loop of several tensors, each of them at a sum of its axes plus an offset (a constant alone for one without axes left), around
    `inside`, which is computed in this order."""

    forms: Mapping[str, Form]
    offsets: Mapping[str, int]
    inside: tuple[LoopNest, ...]


LoopNest: TypeAlias = Separate | Shared


@lru_cache(maxsize=256)
def loop_nests(
    params: tuple[str, ...],
    context: Cond,
    nodes: tuple[tuple[str, tuple[str, ...], Cond], ...],
    edges: tuple[Edge, ...],
    started: frozenset[str] = frozenset(),
) -> tuple[LoopNest, ...] | None:
    """Return loops for the tensors `nodes` (name, axes, domain), in the order in which they can be computed; None where none were found.
    `started`: tensors whose first elements are computed apart from those that need others."""
    try:
        with limited():
            recurrence = Recurrence(params, context, {name: (axes, domain) for name, axes, domain in nodes})
            pairs = [p for p in map(recurrence.pairs, edges) if not p.relation.is_empty()]
            free = {name: frozenset(range(len(axes))) for name, axes, _ in nodes}
            return _Search(recurrence, started).order([name for name, _, _ in nodes], pairs, free)
    except OperationLimit:
        return None


def takes(form: Form, free: frozenset[int] | None = None) -> int | None:
    """Return the position of the axis whose loop becomes the one over `form`, or None when there is none."""
    return next((k for k, f in enumerate(form) if abs(f) == 1 and (free is None or k in free)), None)


class _Search:
    def __init__(self, recurrence: Recurrence, started: frozenset[str]) -> None:
        self.recurrence, self.started = recurrence, started
        self.falls: dict[tuple[int, Form, Form], tuple[Pairs, int | None]] = {}

    def order(self, names: Sequence[str], pairs: Sequence[Pairs], free: Free) -> tuple[LoopNest, ...] | None:
        found = [self._nest(group, [p for p in pairs if {p.source, p.target} <= set(group)], free) for group in in_order(names, pairs)]
        return tuple(t for t in found if t is not None) if None not in found else None

    def _nest(self, group: Sequence[str], pairs: list[Pairs], free: Free) -> LoopNest | None:
        return self._separate(group[0], pairs, free[group[0]]) if len(group) == 1 else self._shared(group, pairs, free)

    def _separate(self, name: str, pairs: list[Pairs], free: frozenset[int]) -> Separate | None:
        rank = len(self.recurrence.axes[name])
        forms: list[Form] = []
        while free:
            form = next((f for f in _candidates(rank, free) if not any(self._rises(p, f) for p in pairs)), None)
            taken = None if form is None else takes(form, free)
            if form is None or taken is None:
                return None
            forms.append(form)
            free -= {taken}
            pairs = self._level(pairs, {name: form}, {name: 0})
        return None if pairs else Separate(name, tuple(forms))

    def _rises(self, pair: Pairs, form: Form) -> bool:
        fall = self._fall(pair, form, form)
        return fall is None or fall < 0

    def _fall(self, pair: Pairs, target: Form, source: Form) -> int | None:
        key = (id(pair), target, source)
        if key not in self.falls:
            self.falls[key] = pair, self.recurrence.least_fall(pair, target, source)
        return self.falls[key][1]

    def _shared(self, group: Sequence[str], pairs: list[Pairs], free: Free) -> Shared | None:
        """Return the loops of a group: the first choice that leaves some for everything inside."""
        for forms, offsets in self._choices(group, pairs, free):
            left = {name: free[name] - {takes(forms[name], free[name])} for name in group}
            inside = self.order(group, self._level(pairs, forms, offsets), left)
            if inside is not None:
                return Shared(forms, offsets, inside)
        return None

    def _choices(self, group: Sequence[str], pairs: list[Pairs], free: Free) -> Iterator[tuple[dict[str, Form], dict[str, int]]]:
        """Yield forms and offsets along which no pair goes backwards: the same axis for all first, then any."""
        rank = {name: len(self.recurrence.axes[name]) for name in group}
        tried = []
        for form in _candidates(rank[group[0]], free[group[0]]):
            alike = {name: self._alike(group[0], form, name, free[name]) for name in group}
            tried.append(alike)
            offsets = self._offsets(alike, pairs)
            if offsets is not None:
                yield alike, offsets

        def extended(position: int, forms: dict[str, Form]) -> Iterator[tuple[dict[str, Form], dict[str, int]]]:
            offsets = self._offsets(forms, pairs)
            if offsets is None:
                return
            if position == len(group):
                if any(map(any, forms.values())) and forms not in tried:
                    yield forms, offsets
                return
            name = group[position]
            for form in (*_candidates(rank[name], free[name]), (0,) * rank[name]):
                if len(self.falls) <= MAX_TRIALS:
                    yield from extended(position + 1, {**forms, name: form})

        yield from extended(0, {})

    def _alike(self, first: str, form: Form, name: str, free: frozenset[int]) -> Form:
        """Return the form of `name` over axes of the same names, of the same positions where it has none of these, or no axes."""
        axes = self.recurrence.axes[name]
        by_name = dict(zip(self.recurrence.axes[first], form, strict=True))
        for found in (tuple(by_name.get(a, 0) for a in axes), form if len(form) == len(axes) else ()):
            if any(found) and takes(found, free) is not None and all(k in free for k, f in enumerate(found) if f):
                return found
        return (0,) * len(axes)

    def _offsets(self, forms: Mapping[str, Form], pairs: Sequence[Pairs]) -> dict[str, int] | None:
        """Return the least offsets with which no pair between the tensors of `forms` goes backwards (longest paths; Bellman 1958), or None
        when a circle of them asks for the future. To begin with, the first elements that are made of others run in one iteration, so that
        what a step makes of an element follows the element at once."""
        offsets = self._first_needs(forms, pairs)
        known = [p for p in pairs if p.source in forms and p.target in forms]
        falls = [self._fall(p, forms[p.target], forms[p.source]) for p in known]
        for _ in range(len(forms) + 1):
            changed = False
            for pair, fall in zip(known, falls, strict=True):
                if fall is None:
                    return None
                if offsets[pair.target] < offsets[pair.source] - fall:
                    offsets[pair.target], changed = offsets[pair.source] - fall, True
            if not changed:
                return offsets
        return None

    def _first_needs(self, forms: Mapping[str, Form], pairs: Sequence[Pairs]) -> dict[str, int]:
        """Return the offsets with which the first elements that need others run at 0, of tensors that are started apart; 0 for all where
        these depend on sizes, and where some need others at many distances, which no offset brings closer."""
        started = {name: form for name, form in forms.items() if name in self.started}
        if any(not self._is_uniform(p, forms) for p in pairs if p.target in started and p.source in forms):
            return dict.fromkeys(forms, 0)
        firsts = {name: [self.recurrence.least(p, form) for p in pairs if p.target == name] for name, form in started.items()}
        known = {name: min(found) for name, found in firsts.items() if found and None not in found}  # type: ignore[type-var]
        return {name: -(known.get(name) or 0) if len(known) == len(started) else 0 for name in forms}

    def _is_uniform(self, pair: Pairs, forms: Mapping[str, Form]) -> bool:
        """Tell whether all pairs lie at one distance from each other along the forms."""
        target, source = forms[pair.target], forms[pair.source]
        falls, rises = self._fall(pair, target, source), self.recurrence.least_fall(pair, _backwards(target), _backwards(source))
        return falls is not None and rises == -falls

    def _level(self, pairs: Sequence[Pairs], forms: Mapping[str, Form], offsets: Mapping[str, int]) -> list[Pairs]:
        left = [self.recurrence.level(p, forms, offsets) for p in pairs]
        return [p for p in left if not p.relation.is_empty()]


def _backwards(form: Form) -> Form:
    return tuple(-factor for factor in form)


def _candidates(rank: int, free: frozenset[int]) -> Iterator[Form]:
    """Return forms of the axes in `free` in the order in which they are preferred: each axis forwards, then backwards, then small sums."""
    for k in sorted(free):
        for sign in (1, -1):
            yield tuple(sign * (axis == k) for axis in range(rank))
    for form in small_forms(rank):
        if sum(map(bool, form)) > 1 and takes(form, free) is not None and all(k in free for k, f in enumerate(form) if f):
            yield form


def in_order(names: Sequence[str], pairs: Sequence[Pairs]) -> list[list[str]]:
    """Return the names in groups that need each other, every group after those it needs, otherwise as they stand."""
    needs = {n: {n} for n in names}
    for _ in names:
        for p in pairs:
            needs[p.target] |= needs[p.source]
    groups = list({n: [m for m in names if m in needs[n] and n in needs[m]] for n in names}.values())
    left = [g for k, g in enumerate(groups) if g not in groups[:k]]
    out: list[list[str]] = []
    while left:
        ready = next(g for g in left if not any(set(other) & needs[g[0]] for other in left if other is not g))
        left.remove(ready)
        out.append(ready)
    return out

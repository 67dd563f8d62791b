"""A schedule being applied: stages with their loops, then nests, a tree, and where each tensor lives.

A stage is one definition (or several that refer to each other in a cycle and share loops). Its loops are named `tensor.loop`; to begin
with they are the axes of the definition and the binders of its reductions, reductions innermost:

    y[i, j] = b[j] + sum(k) x[i, k] * w[j, k]             stage y, loops y.i y.j y.k

`trees` turns the loops of a stage into a tree. The statements of a stage stand in the order of their phases; a loop that only some of
them have encloses just those:

    order i, j, k                     order k, i, j
    for i: for j:                     for i: for j: init
        init                          for k: for i: for j: update
        for k: update                 for i: for j: define
        define
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeAlias, TypeVar

from codegen.intrinsics import Intrinsic
from codegen.loops.notes import Note
from polyhedral import affine
from polyhedral.expr import Cond, Name
from polyhedral.expr import Expr as Affine
from polyhedral.model import Leaf, Loop, Mark, Tree
from polyhedral.nest import Nest
from polyhedral.schedule import Schedule as Placed
from tensorlang.diagnostics import NOWHERE, Span
from tensorlang.tensor.nodes import Definition, Program
from tensorlang.tensor.scop import Stages, StatementInfo

T = TypeVar("T")
Peels: TypeAlias = tuple[bool, ...]
"""For each cut of a stage: whether a copy runs the first iterations. Shorter than the cuts: the rest of the others."""


@dataclass(frozen=True, slots=True)
class Change:
    """One transformation of a nest and the loops that a nest must have for it to apply. A loop in two parts has two: `apply` for its first
    iterations, `rest` for the others, and `cut` is its number among the stage's cuts."""

    loops: tuple[str, ...]
    apply: Callable[[Nest], Nest]
    rest: Callable[[Nest], Nest] | None = None
    cut: int = -1
    only: frozenset[str] = frozenset()
    """The statements that it is for; none: for all."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a loop in two parts has become in each: loops of both where the parts have the same names, loops of one where they have their
    own. `under`: the parts of earlier cuts, by their numbers, that the loop stood in."""

    first: frozenset[str]
    rest: frozenset[str]
    under: tuple[tuple[int, bool], ...] = ()

    @property
    def loops(self) -> frozenset[str]:
        return self.first | self.rest

    def has(self, loop: str, first: bool) -> bool:
        """Return whether `loop` runs in the first part, or in the other; loops that the cut is not about run in both."""
        return loop in (self.first if first else self.rest) or loop not in self.loops

    def replaced(self, gone: Sequence[str], by: Sequence[str]) -> Cut:
        return replace(self, first=_replaced(self.first, gone, by), rest=_replaced(self.rest, gone, by))


@dataclass(frozen=True, slots=True)
class PartialNest:
    """A nest after the changes `named` and the first `count` of its stage."""

    named: tuple[Change, ...]
    count: int
    nest: Nest


@dataclass(frozen=True, slots=True)
class Stage:
    """The loops of a stage between directives, each of which makes another value of it. `loops` is the order outermost first.

    `forward` says what a loop's variable is in terms of axes and binders; packed layouts are written in loops and stored in axes."""

    name: str
    definitions: tuple[Definition, ...]
    statements: tuple[StatementInfo, ...]
    loops: tuple[str, ...]
    members: Mapping[str, frozenset[str]]
    """Loop → names of the statements that have it."""
    extents: Mapping[str, int | None]
    reductions: frozenset[str]
    forward: Mapping[str, Affine]
    base: Mapping[str, tuple[Change, ...]]
    """Statement → how its identity nest gets the names (and shared loops) of the stage."""
    changes: tuple[Change, ...] = ()
    marks: Mapping[str, Mark] = field(default_factory=dict)
    inside: tuple[str, str] | None = None
    """(consumer stage, loop) at which the stage is computed; None: at the root."""
    distributed: frozenset[str] = frozenset()
    """Loops from which inwards each piece gets loops of its own; "" means all loops."""
    cuts: tuple[Cut, ...] = ()
    """For each loop that was peeled or cut, what its parts have become."""
    synthetic: bool = False
    """Made by a directive (a packed copy): its loops are only named in full."""
    memo: dict[tuple[str, Peels], PartialNest] = field(default_factory=dict, compare=False, repr=False)
    """Statement and peels → its nest when that was last asked for, to begin from there: a stage and what directives make of it share this,
    because changes are only ever added."""
    together: bool = False
    """Several tensors share its outer loops; what is computed in one runs before the first of them that needs it."""

    def local(self, loop: str) -> str:
        """Return a loop's name without the tensor it belongs to."""
        return owned(loop, self._tensors())[1]

    def owner(self, loop: str) -> str | None:
        """Return the tensor that a loop is named after: `p.e` of `p.e.k`, though there may be a `p`."""
        return owned(loop, self._tensors())[0] or None

    def _tensors(self) -> list[str]:
        return [d.tensors[0].name for d in self.definitions]

    def then(self, change: Change, forward: Mapping[str, Affine], extents: Mapping[str, int | None]) -> Stage:
        """Return the stage after one more change, which gives loops, new ones perhaps, other meanings and extents."""
        return replace(self, changes=(*self.changes, change), forward={**self.forward, **forward}, extents={**self.extents, **extents})

    def instead(self, gone: Sequence[str], by: tuple[str, ...]) -> Stage:
        """Return the stage with the loops `by` in the place of those that are `gone`, which have the same statements."""
        first, known = gone[0], {*gone, *by}
        loops = (name for loop in self.loops if loop == first or loop not in gone for name in (by if loop == first else (loop,)))
        return replace(
            self,
            loops=tuple(loops),
            members={**_without(self.members, known), **dict.fromkeys(by, self.members[first])},
            extents={**_without(self.extents, known), **{loop: self.extents[loop] for loop in by}},
            forward={**_without(self.forward, known), **{loop: self.forward[loop] for loop in by}},
            reductions=_replaced(self.reductions, gone, by),
            distributed=_replaced(self.distributed, gone, by[:1]),
            cuts=tuple(cut.replaced(gone, by) for cut in self.cuts),
        )

    def with_loops(self, statements: frozenset[str], names: Mapping[str, str]) -> Stage:
        """Return the stage with loops of their own for some statements: `names` says which in the place of which."""
        shared = {loop: self.members[loop] - statements for loop in names}
        members = {**self.members, **shared, **{name: self.members[loop] & statements for loop, name in names.items()}}
        kept = tuple(loop for loop in self.loops if members[loop])
        loops = (n for loop in self.loops for n in ((*((loop,) if loop in kept else ()), names[loop]) if loop in names else (loop,)))

        def also(known: frozenset[str]) -> frozenset[str]:
            return known | {name for loop, name in names.items() if loop in known}

        renamed = tuple(Change((old,), renaming(old, new), only=statements) for old, new in names.items())
        return replace(
            self,
            loops=tuple(loops),
            members=members,
            extents={**self.extents, **{name: self.extents[loop] for loop, name in names.items()}},
            forward={**self.forward, **{name: self.forward[loop] for loop, name in names.items()}},
            reductions=also(self.reductions),
            distributed=also(self.distributed),
            cuts=tuple(replace(cut, first=also(cut.first), rest=also(cut.rest)) for cut in self.cuts),
            changes=(*self.changes, *renamed),
        )

    def marked(self, loop: str, mark: Mark) -> Stage:
        """Return the stage with a loop that runs in another way."""
        return replace(self, marks={**self.marks, loop: mark})

    def cut_around(self, statement: str) -> list[int]:
        """Return the numbers of the cuts that make two copies of a statement."""
        return [k for k, cut in enumerate(self.cuts) if any(statement in self.members[loop] for loop in cut.loops)]

    def copies(self, statement: str) -> Iterator[Peels]:
        """Yield, for each copy of a statement, in which part of each cut it runs."""
        around = self.cut_around(statement)
        for peels in product(*((True, False) if k in around else (False,) for k in range(len(self.cuts)))):
            if all(peels[j] == part for k, cut in enumerate(self.cuts) if peels[k] for j, part in cut.under):
                yield peels

    def parts(self, loop: str) -> dict[int, bool]:
        """Return the parts of cuts, by their numbers, that `loop` is alone in; it runs in both of all others."""
        return {k: cut.has(loop, True) for k, cut in enumerate(self.cuts) if cut.has(loop, True) != cut.has(loop, False)}

    def overlap(self, *loops: str) -> bool:
        """Return whether `loops` can run around one statement: none is alone in a part that another is not in."""
        return all(len({part[k] for part in map(self.parts, loops) if k in part}) < 2 for k in range(len(self.cuts)))

    def neighbours(self, *loops: str) -> list[str]:
        """Return the loops that run around statements together with `loops`, outermost first."""
        return [loop for loop in self.loops if self.overlap(loop, *loops)]


@dataclass(frozen=True, slots=True)
class Storage:
    """The layout of a tensor as expressions over its axes with the shape of the block, and the modulus per axis where it is folded. `pad`:
    elements after each row, along the last dimension, that nothing is stored in; `swizzle`: bytes of a row whose columns are exchanged."""

    dims: tuple[Affine, ...]
    shape: tuple[Affine, ...]
    pad: int = 0
    swizzle: int = 0


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Ask, in each iteration of `loop`, for what it reads of `tensor` `distance` iterations later: all of it at once, or a share in each
    iteration of the innermost loop of `shared`, once `shares` is known: those loops below `loop`, with first value and count (0: it is
    open, and the first iteration asks)."""

    tensor: str
    loop: str
    distance: int
    shared: tuple[str, ...] = ()
    shares: tuple[tuple[str, int, int], ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def at(self) -> str:
        """The loop that asks."""
        return self.shares[-1][0] if self.shares else self.loop


@dataclass(frozen=True, slots=True)
class Named:
    """An instruction with LLVM's name for it, as an equation and as that; `span` is where loops ask for it."""

    program: Program
    intrinsic: Intrinsic
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a directive, as it is `written`, relies on about sizes."""

    cond: Cond
    written: str


@dataclass(frozen=True, slots=True)
class Trust:
    """What somebody answers for instead of a proof: `reason`, in their words. `unproven`: why the proof did not end; "" where it did."""

    reason: str
    unproven: str = ""

    def __str__(self) -> str:
        """Return what is trusted, as reports and records say it; "" where all is proven."""
        return f"the order and the storage are not proven ({self.unproven}), and trusted: {self.reason}" if self.unproven else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A program with every decision made: which points each statement runs at and in which order, and how tensors are stored.

    `depth[t]`: how many loops around its first access privatise tensor t (0: one buffer for the whole kernel)."""

    program: Program
    stages: Stages
    placed: Placed
    layouts: Mapping[str, Storage]
    folds: Mapping[str, tuple[tuple[int, int], ...]]
    depth: Mapping[str, int]
    prefetches: tuple[Prefetch, ...] = ()
    about_loops: Mapping[str, tuple[Note, ...]] = field(default_factory=dict)
    """Loop → what directives ask of it."""
    about_tensors: Mapping[str, tuple[Note, ...]] = field(default_factory=dict)
    """Tensor, or accumulator → what directives ask of its memory."""
    idle: tuple[str, ...] = ()
    """A sentence for each directive that changes nothing."""
    named: tuple[Named, ...] = ()
    """Instructions that LLVM is asked for by name."""
    requirements: tuple[Requirement, ...] = ()
    """What the plan relies on: `program` has it in its context, and kernels check it first."""
    factorized: Program | None = None
    """The program with reductions that go factor by factor, windows made of shorter ones, or tables, where the schedule says so."""
    trust: Trust | None = None
    """What to take instead of a proof that does not end; None: nothing."""

    @property
    def trusted(self) -> str:
        """What is not proven and trusted, in words; "" where all is proven."""
        return "" if self.trust is None else str(self.trust)

    @property
    def assumed(self) -> Cond:
        """What callers are known to keep: the context of the program without what kernels are still to check."""
        required = [c for r in self.requirements for c in affine.conjuncts(r.cond)]
        return affine.conj(*(c for c in affine.conjuncts(self.program.context) if c not in required))

    def served(self, program: Program) -> Program:
        """Return `program`, which the plan is for, or what `factorize`, `compose` and `tabulate` made of it, for those sizes alone
        that the plan serves: what loops compute the terms of."""
        program = program if self.factorized is None else self.factorized
        return replace(program, context=affine.conj(program.context, *(r.cond for r in self.requirements)))


def _without(known: Mapping[str, T], loops: Set[str]) -> dict[str, T]:
    """Return what is known of other loops than these."""
    return {name: value for name, value in known.items() if name not in loops}


def _replaced(loops: frozenset[str], gone: Sequence[str], by: Sequence[str]) -> frozenset[str]:
    """Return `loops` with all of `by` in the place of those that are gone, if any of them is one."""
    return (loops - {*gone}) | {*by} if loops & {*gone} else loops


def common_extent(nests: Sequence[Nest], loop: str) -> int | None:
    """Return how many values `loop` has over all of `nests`, or None where that is no constant."""
    known = [ends for nest in nests if (ends := nest.ends(loop)) is not None]
    if len(known) < len(nests):
        return None
    return max(last for _, last in known) - min(first for first, _ in known) + 1


def full(stage: str, loop: str) -> str:
    return f"{stage}.{loop}"


def owned(loop: str, tensors: Iterable[str]) -> tuple[str, str]:
    """Return which of some tensors a loop is named after, and its name without that: `p.e` and `d.0` of `p.e.d.0`, though there may be a
    `p`; no tensor and the whole name where there is none."""
    owner = max((t for t in tensors if loop.startswith(f"{t}.")), key=len, default="")
    return owner, loop.removeprefix(f"{owner}.")


def last_part(loop: str) -> str:
    """Return a loop's name without the tensor that it may begin with, as far as the name tells: `i` of `y.i`, `d.0` of `y.d.0`."""
    rest, _, last = loop.rpartition(".")
    return f"{last_part(rest)}.{last}" if rest and last[:1].isdigit() else last


def make_stage(stages: Stages, definition: Definition) -> Stage:
    """Return the stage of one definition before any directive."""
    name = definition.tensors[0].name
    statements = tuple(stages.of(definition))
    loops: list[str] = []
    extents: dict[str, int | None] = {}
    members: dict[str, frozenset[str]] = {}
    reductions: set[str] = set()
    for axis, extent in zip(definition.axes, definition.tensors[0].shape, strict=True):
        loop = full(name, axis)
        loops.append(loop)
        extents[loop] = affine.constant(extent)
        members[loop] = frozenset(s.name for s in statements)
    for s in statements:
        if s.phase == "update" and s.accumulator is not None:
            for binder in s.accumulator.reduce.binders:
                loop = full(name, binder.name)
                loops.append(loop)
                extents[loop] = affine.difference(binder.hi, binder.lo)
                members[loop] = frozenset((s.name,))
                reductions.add(loop)
    base = {s.name: tuple(_rename(i, full(name, i)) for i in s.iters) for s in statements}
    forward: dict[str, Affine] = {loop: Name(loop.removeprefix(name + ".")) for loop in loops}
    return Stage(name, (definition,), statements, tuple(loops), members, extents, frozenset(reductions), forward, base)


def _rename(old: str, new: str) -> Change:
    return Change((old,), renaming(old, new))


def renaming(old: str, new: str) -> Callable[[Nest], Nest]:
    return lambda nest: nest.rename(old, new)


def placement(statement: str, peels: Peels) -> str:
    """Return the name of a copy of a statement."""
    return statement + "".join(f".first{k or ''}" for k, first in enumerate(peels) if first)


def nests_of(stage: Stage, statement: StatementInfo, base: Nest, prefix: int = 0) -> dict[str, Nest]:
    """Return `base` after every change the stage asks for, once for each copy of the statement: the identity nest, or one whose first
    `prefix` loops are another stage's and whose own loops have their names already."""
    out: dict[str, Nest] = {}
    for peels in stage.copies(statement.name):
        name = placement(statement.name, peels)
        out[name] = _nest_of(stage, statement, base, prefix, peels).placed(name)
    return out


def _nest_of(stage: Stage, statement: StatementInfo, base: Nest, prefix: int, peels: Peels) -> Nest:
    nest = changed(stage, statement, base, peels)
    own = [loop for loop in stage.loops if loop in nest.loops[prefix:]]
    return nest.reorder((*base.loops[:prefix], *own))


def changed(stage: Stage, statement: StatementInfo, base: Nest, peels: Peels = ()) -> Nest:
    """Return `base` after every change, its loops in whatever order."""
    return _after(base, (*stage.base[statement.name], *stage.changes), peels)


def current_nest(stage: Stage, statement: StatementInfo, base: Nest, peels: Peels) -> Nest:
    """Return `base`, the identity nest, after every change yet: only what came since this was last asked is applied."""
    named, count = stage.base[statement.name], len(stage.changes)
    known = stage.memo.get((statement.name, peels))
    if known is not None and known.named is named:
        nest = _after(known.nest, stage.changes[known.count :], peels)
    else:
        nest = _after(base, (*named, *stage.changes), peels)
    stage.memo[statement.name, peels] = PartialNest(named, count, nest)
    return nest


def _after(nest: Nest, changes: Sequence[Change], peels: Peels) -> Nest:
    for change in changes:
        if all(loop in nest.loops for loop in change.loops) and (not change.only or nest.statement in change.only):
            first = change.rest is None or (change.cut < len(peels) and peels[change.cut])
            nest = change.apply(nest) if first or change.rest is None else change.rest(nest)
    return nest


def trees(
    stage: Stage,
    statements: list[StatementInfo],
    loops: list[str],
    inside: Callable[[str, list[StatementInfo]], tuple[Tree, ...]],
    peels: Mapping[int, bool] | None = None,
) -> tuple[Tree, ...]:
    """Return the loops of `stage` around `statements`; `inside(loop, statements)` gives what else is computed in a loop, first. `peels`:
    of the cut loops outside, whether these are their first iterations."""
    peels = peels or {}
    out: list[Tree] = []
    while statements:
        # A program may have thousands of loops one after the other: those that nobody here is in are passed over.
        apart = _by_piece(statements) if "" in stage.distributed and loops else []
        start = next(
            (k for k, n in enumerate(loops) if _runs(stage, n, peels) and any(s.name in stage.members[n] for s in statements)), None
        )
        if start is None and len(apart) < 2:
            chosen = tuple(peels.get(k, False) for k in range(len(stage.cuts)))
            return (*out, *(Leaf(placement(s.name, chosen)) for s in statements))
        loops = loops[start or 0 :]
        loop, rest = loops[0], loops[1:]
        if len(apart) > 1:
            return (*out, *(t for part in apart for t in trees(stage, part, loops, inside, peels)))
        having = [k for k, s in enumerate(statements) if s.name in stage.members[loop]] if _runs(stage, loop, peels) else []
        if having:
            first = having[0]
            last = next(k for k in range(first, len(statements)) if k + 1 not in having)
            again = having[-1] > last
            out += trees(stage, statements[:first], rest, inside, peels)
            around = statements[first : last + 1]
            apart = _by_piece(around) if loop in stage.distributed else []
            if len(apart) > 1:
                out += (t for part in apart for t in trees(stage, part, loops, inside, peels))
            else:
                out += _around(stage, around, loops, inside, peels)
            statements = statements[last + 1 :]
            if again:  # what stands between has loops of its own
                continue
        loops = rest
    return tuple(out)


def _runs(stage: Stage, loop: str, peels: Mapping[int, bool]) -> bool:
    """Return whether a loop runs in these parts of the cut loops outside."""
    return all(stage.cuts[k].has(loop, part) for k, part in peels.items())


def _by_piece(statements: Sequence[StatementInfo]) -> list[list[StatementInfo]]:
    """Return the statements of each piece of each tensor, in the order in which the pieces begin."""
    of = {s.name: (s.definition.tensors[0].name, s.piece) for s in statements}
    return [[s for s in statements if of[s.name] == piece] for piece in dict.fromkeys(of.values())]


def _around(
    stage: Stage,
    statements: list[StatementInfo],
    loops: list[str],
    inside: Callable[[str, list[StatementInfo]], tuple[Tree, ...]],
    peels: Mapping[int, bool],
) -> tuple[Tree, ...]:
    """Return the first of `loops` around `statements`, once for each part where it is peeled."""
    loop = loops[0]
    peeled = next((k for k, cut in enumerate(stage.cuts) if loop in cut.loops and k not in peels), None)
    if peeled is not None:
        copies = [trees(stage, statements, loops, inside, {**peels, peeled: first}) for first in (True, False)]
        return tuple(t for copy in copies for t in copy)
    body = trees(stage, statements, loops[1:], inside, peels)
    first_needed = _interleaved(loop, statements, body, inside) if stage.together else (*inside(loop, statements), *body)
    return (Loop(loop, first_needed, stage.marks.get(loop, "serial")),)


def _interleaved(
    loop: str, within: list[StatementInfo], body: tuple[Tree, ...], inside: Callable[[str, list[StatementInfo]], tuple[Tree, ...]]
) -> tuple[Tree, ...]:
    """Return `body` with what is computed inside `loop` before the first part of it that needs it."""
    out: list[Tree] = []
    placed: list[Tree] = []
    seen: set[str] = set()
    for tree in body:
        seen |= set(_leaves(tree))
        more = [t for t in inside(loop, [s for s in within if s.name in seen]) if t not in placed]
        placed += more
        out += [*more, tree]
    return tuple(out)


def _leaves(tree: Tree) -> Iterator[str]:
    match tree:
        case Leaf():
            yield tree.placement
        case Loop(_, body):
            for inner in body:
                yield from _leaves(inner)

"""Which stores at the edges of products may be made by more iterations: the proofs behind `whole`.

    for i in 0 .. min(16, M - 16*io) { acc[i] = fma(a_s[i], b_s[0], acc[i]) }       may i run to 16?

    the new iterations store to acc[i] with M - 16*io <= i < 16: nothing was stored there while acc lived, or zeros are added
    what they read of a_s was stored by a copy that is filled up with zeros, or by a store that is widened, too

All by exact sets, for all sizes; what the sets cannot tell is not done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codegen.loops import nodes as loops
from codegen.loops.indices import coefficients, range_of
from codegen.loops.nodes import Expr
from codegen.loops.verify import is_reduction
from codegen.loops.walk import free_vars, loads, walk
from polyhedral import affine
from polyhedral import expr as sets
from polyhedral.sets import implies, is_empty
from polyhedral.verdict import Proven
from tensorlang.lower.sets import to_cond, to_expr

Path = tuple[int, ...]
"""Where a statement stands in a block: child numbers, outermost first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What may be done at all."""

    sizes: tuple[str, ...]
    strict: bool
    guarded: frozenset[str]


@dataclass(frozen=True, slots=True)
class Local:
    """A buffer that a block allocates: where, and below how many of the loops around."""

    buffer: loops.Buffer
    path: Path
    depth: int
    private: bool
    """Whether it is in a loop over threads."""


@dataclass(frozen=True, slots=True)
class Site:
    """A store in a block, with the loops and conditions around it."""

    store: loops.Store
    path: Path
    loops: tuple[loops.For, ...]
    at: tuple[Path, ...]
    """Where these loops stand."""
    when: tuple[Expr, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(loop.var for loop in self.loops)


def sites_of(
    body: tuple[loops.Stmt, ...],
    path: Path,
    around: tuple[tuple[loops.For, Path], ...],
    when: tuple[Expr, ...],
    locals_: dict[str, Local],
) -> Iterator[Site]:
    """Yield the stores of a block, and note what it allocates."""
    for k, s in enumerate(body):
        here = (*path, k)
        match s:
            case loops.For():
                yield from sites_of(s.body, here, (*around, (s, here)), when, locals_)
            case loops.If(cond, then, orelse):
                yield from sites_of(then, (*here, 0), around, (*when, cond), locals_)
                yield from sites_of(orelse, (*here, 1), around, (*when, loops.Unary("not", cond)), locals_)
            case loops.Alloc(buffer):
                private = any(loop.kind in loops.THREADS for loop, _ in around)
                locals_[buffer.name] = Local(buffer, here, len(around), private)
            case loops.Store():
                yield Site(s, here, tuple(loop for loop, _ in around), tuple(at for _, at in around), when)
            case _:
                pass


Wide = Mapping[Path, frozenset[str]]
"""Path of a store → the variables of the loops around it that run to their ends."""


@dataclass(slots=True)
class Proof:
    """Which stores may be made by more iterations."""

    choice: Choice
    grid: tuple[loops.For, ...]
    device: frozenset[str]
    sites: list[Site]
    locals: Mapping[str, Local]
    ends: dict[Path, int] = field(default_factory=dict)
    """Where a loop stands → how often it runs when it runs to its end."""
    needs: dict[str, list[int]] = field(default_factory=dict)
    """Buffer → how much of each of its axes is touched when loops run to their ends."""

    def widenable(self) -> dict[Path, frozenset[str]]:
        """Return the stores that may be made by more iterations, with the loops that then run to their ends."""
        wanted = self._wanted([s for s in self.sites if self._is_sum(s)])
        homes = [local.path for s in wanted if not (local := self.locals[s.store.buffer]).private]
        inner = {s.path: [(k, at) for k, at in enumerate(s.at) if self._is_free(s.loops[k], at, homes)] for s in wanted}
        for site in wanted:
            for k, at in inner[site.path]:
                loop = site.loops[k]
                if not isinstance(loop.hi, loops.Int) and (most := end(loop)) is not None:
                    self.ends[at] = most
        self._meet_needs(wanted, inner)
        wide = {s.path: frozenset(s.loops[k].var for k, at in inner[s.path] if at in self.ends) for s in wanted}
        while True:
            worse = next(((s, left) for s in self.sites if s.path in wide for left in self._refuted(s, wide)), None)
            if worse is None:
                break
            site, left = worse
            if left is None:
                del wide[site.path]
            else:
                wide[site.path] = left
        needed = {s.path for s in self._wanted([s for s in self.sites if self._is_sum(s) and wide.get(s.path)])}
        return {path: extra for path, extra in wide.items() if path in needed}

    def _is_free(self, loop: loops.For, at: Path, homes: list[Path]) -> bool:
        """Tell whether a loop may run to its end as far as its place goes: no buffer of all threads is allocated in it."""
        return loop.var not in self.choice.guarded and not any(home[: len(at)] == at for home in homes)

    def grown(self, wide: Wide) -> dict[str, tuple[int, ...]]:
        """Return new shapes of buffers that hold too little for the loops that run to their ends: what is free after their rows remains."""
        out: dict[str, tuple[int, ...]] = {}
        for name in {s.store.buffer for s in self.sites if s.path in wide}:
            buffer = self.locals[name].buffer
            shape = [e.value for e in buffer.shape if isinstance(e, loops.Int)]
            need = self.needs.get(name)
            if need is None or len(shape) < len(buffer.shape):
                continue
            stored = [self._reach(s, s.store.index, original=True) for s in self.sites if s.store.buffer == name]
            free = [max(0, e - max((side[k] or e for side in stored), default=e)) for k, e in enumerate(shape)]
            new = [max(e, n + f) if n > e - f else e for e, n, f in zip(shape, need, free, strict=True)]
            if buffer.swizzle:
                row = buffer.swizzle // buffer.dtype.size_bytes
                new = [max(e, n) for e, n in zip(shape, need, strict=True)]
                new[-1] = -(-new[-1] // row) * row
            if new != shape:
                out[name] = tuple(new)
        return out

    def _meet_needs(self, wanted: list[Site], inner: Mapping[Path, list[tuple[int, Path]]]) -> None:
        """Let stores whose loops end too early go on as far as what they store is touched."""
        while True:
            before = dict(self.ends)
            for site in wanted:
                for buffer, index in ((site.store.buffer, site.store.index), *((n.buffer, n.index) for n in loads(site.store.value))):
                    if buffer in self.locals:
                        reach = self._reach(site, index, depth=self.locals[buffer].depth)
                        need = self.needs.setdefault(buffer, [0] * len(index))
                        self.needs[buffer] = [max(n, r or 0) for n, r in zip(need, reach, strict=True)]
            for site in wanted:
                own = {site.loops[k].var: (site.loops[k], at) for k, at in inner[site.path]}
                for e, need_ in zip(site.store.index, self.needs[site.store.buffer], strict=True):
                    if isinstance(e, loops.Var) and e.name in own:
                        loop, at = own[e.name]
                        most = self.ends.get(at, end(loop))
                        if most is not None and most < need_:
                            self.ends[at] = need_
            if self.ends == before:
                return

    def _reach(self, site: Site, index: tuple[loops.Index, ...], *, depth: int = 0, original: bool = False) -> list[int | None]:
        """Return how far subscripts go along each axis, if that is known; `original`: before loops run to their ends."""
        ranges: dict[str, tuple[int | None, int | None]] = {}
        for loop, at in list(zip(site.loops, site.at, strict=True))[depth:]:
            most = end(loop) if original else self.ends.get(at, end(loop))
            if loop.lo == loops.Int(0) and most is not None:
                ranges[loop.var] = (0, most - 1)
        highs = [range_of(e, ranges)[1] for e in index]
        return [None if high is None else high + 1 for high in highs]

    # ------------------------------------------------------------ what is wanted

    def _wanted(self, sums: list[Site]) -> list[Site]:
        """Return the sums, and whatever stores to what they read and add to."""
        found = list(sums)
        pending = [load.buffer for s in found for load in loads(s.store.value)]
        seen: set[str] = set()
        while pending:
            name = pending.pop()
            if name in seen or name not in self.locals:
                continue
            seen.add(name)
            for s in self.sites:
                if s.store.buffer == name and s not in found:
                    found.append(s)
                    pending += [load.buffer for load in loads(s.store.value)]
        return found

    def _is_sum(self, site: Site) -> bool:
        """Tell whether a store in loops over threads adds up what was copied where all threads of the block are together."""
        store, read = site.store, list(loads(site.store.value))
        if not is_reduction(store) or store.buffer not in self.locals or not all(load.buffer in self.locals for load in read):
            return False
        named = _named(store.index)
        own = self.locals[store.buffer].depth
        if any(loop.kind in loops.THREADS and loop.var not in named for loop in site.loops[own:]):
            return False
        if not any(loop.kind in loops.THREADS or loop.kind == "tile" for loop in site.loops):
            return False
        others = {load.buffer for load in read} - {store.buffer}
        return any(all(_is_of_all(s) for s in self.sites if s.store.buffer == n) for n in others)

    # ------------------------------------------------------------ what is proven

    def _refuted(self, site: Site, wide: Wide) -> Iterator[frozenset[str] | None]:
        """Yield the loops that may be left to run to their ends where not all that `wide` has may; None: the store stays as it is."""
        store, extra = site.store, wide[site.path]
        local = self.locals.get(store.buffer)
        conditions = [to_cond(c) for c in site.when]
        if local is None or any(c is None for c in conditions) or any(to_expr(e) is None for e in store.index):
            yield None
            return
        reads_device = any(load.buffer in self.device for load in loads(store.value))
        if _is_opaque(store.value) or (reads_device and not is_copy(store, self.device)) or not self._inside(site, wide):
            yield None
            return
        if not extra:
            return
        met = [c for other in self.sites if other.store.buffer == store.buffer and (c := self._meets(site, extra, other)) is not None]
        if met and not (not self.choice.strict and _neutral(store) and all(self._on_zeros(site, wide, c) for c in met)):
            named = _named(store.index)
            kept = extra & named
            yield kept if kept != extra else None
            return
        if not all(self._stored(site, load, wide) for load in loads(store.value) if load.buffer in self.locals):
            yield None

    def _inside(self, site: Site, wide: Wide) -> bool:
        """Tell whether every iteration stores inside of the buffer, at places that are all of a box."""
        box = self._box(site, wide, always=False)
        shape = self.locals[site.store.buffer].buffer.shape
        room = [max(e.value, n) if isinstance(e, loops.Int) else 0 for e, n in zip(shape, self.needs[site.store.buffer], strict=True)]
        return box is not None and all(high <= e for e, (_, high) in zip(room, box, strict=True))

    def _box(self, site: Site, wide: Wide, *, always: bool) -> tuple[tuple[int, int], ...] | None:
        """Return the box of cells that a widened store covers in one life of its buffer, or None where it covers no box; `always`: however
        often loops run that count no cells."""
        depth = self.locals[site.store.buffer].depth
        named = _named(site.store.index)
        extents: dict[str, int] = {}
        for loop, at in list(zip(site.loops, site.at, strict=True))[depth:]:
            extent = self.ends[at] if loop.var in wide[site.path] else end(loop) if isinstance(loop.hi, loops.Int) else None
            if (extent is None or extent < 1) and (always or loop.var in named):
                return None
            extents[loop.var] = extent or 0
        sides = [_side(e, extents) for e in site.store.index]
        used = [n.name for e in site.store.index for n in walk(e) if isinstance(n, loops.Var)]
        if any(side is None for side in sides) or len(used) > len(set(used)):
            return None
        return tuple(side for side in sides if side is not None)

    def _meets(self, site: Site, extra: frozenset[str], other: Site) -> _Points | None:
        """Return where an iteration that was not there before stores to a cell that `other` stored to before; None: nowhere."""
        depth = self.locals[site.store.buffer].depth
        renamed = {v: sets.Name(f"{v}'") for v in other.variables[depth:]}
        points = self._points(site, extra, added=True).joined(self._points(other, frozenset(), added=False).renamed(renamed))
        points = points.where(*_equal(site.store.index, other.store.index, renamed))
        return None if self._never(points) else points

    def _on_zeros(self, site: Site, wide: Wide, met: _Points) -> bool:
        """Tell whether all that a sum adds at the points `met` are zeros that were filled in."""
        for load in loads(site.store.value):
            if load.buffer == site.store.buffer and load.index == site.store.index:
                continue
            depth = self.locals[load.buffer].depth
            for other in (s for s in self.sites if s.store.buffer == load.buffer):
                filled = other.path in wide and is_copy(other.store, self.device)
                renamed = {v: sets.Name(f"{v}''") for v in other.variables[depth:]}
                points = met.joined(self._points(other, frozenset(), added=False).renamed(renamed))
                points = points.where(*_equal(load.index, other.store.index, renamed))
                if not filled or not self._never(points):
                    return False
        return True

    def _stored(self, site: Site, load: loops.Load, wide: Wide) -> bool:
        """Tell whether every iteration reads what another widened store has stored before it, in the same life of the buffer."""
        index = [to_expr(e) for e in load.index]
        depth = self.locals[load.buffer].depth
        points = self._points(site, wide[site.path], added=False)
        for other in (s for s in self.sites if s.store.buffer == load.buffer and s.path in wide and s is not site):
            box = self._box(other, wide, always=True)
            shared = _shared(site.path, other.path)
            common = [loop.var for loop, a, b in zip(site.loops, site.at, other.at, strict=False) if a == b][depth:]
            same = load.index == other.store.index and set(common) <= _named(load.index)
            if box is None or (common and not same) or other.path[shared] > site.path[shared] or not self._whenever(site, other):
                continue
            within = [
                c
                for e, (low, high) in zip(index, box, strict=True)
                for c in (() if e is None else (sets.Compare(">=", e, sets.Int(low)), sets.Compare("<", e, sets.Int(high))))
            ]
            if None not in index and isinstance(implies(self.choice.sizes, points.names, points.cond, affine.conj(*within)), Proven):
                return True
        return False

    def _whenever(self, site: Site, other: Site) -> bool:
        """Tell whether `other` is run in whatever conditions `site` is: those of it are around both."""
        outside = {loop.var for loop, a, b in zip(site.loops, site.at, other.at, strict=False) if a == b}
        outside |= {loop.var for loop in self.grid} | set(self.choice.sizes)
        return all(cond in site.when and free_vars(cond) <= outside for cond in other.when)

    def _never(self, points: _Points) -> bool:
        nonnegative = [sets.Compare(">=", sets.Name(s), sets.Int(0)) for s in self.choice.sizes]
        return isinstance(is_empty(self.choice.sizes, points.names, affine.conj(*nonnegative), points.cond), Proven)

    def _points(self, site: Site, extra: frozenset[str], *, added: bool) -> _Points:
        """Return when a store is made, the loops `extra` run to their ends; `added`: only when it was not made before."""
        found: list[sets.Cond] = []
        before: list[sets.Cond | None] = []
        for loop, at in (*((loop, None) for loop in self.grid), *zip(site.loops, site.at, strict=True)):
            low, high, name = to_expr(loop.lo), to_expr(loop.hi), sets.Name(loop.var)
            most = None if at is None else self.ends.get(at)
            if low is not None:
                found.append(sets.Compare(">=", name, low))
            if loop.var in extra and most is not None:
                found.append(sets.Compare("<", name, sets.Int(most)))
                before.append(None if high is None else sets.Compare("<", name, high))
            elif high is not None:
                found.append(sets.Compare("<", name, high))
        found += [c for e in site.when if (c := to_cond(e)) is not None]
        known = tuple(c for c in before if c is not None)
        outside = (sets.Not(sets.And(known)),) if added and len(known) == len(before) else ()
        names = tuple(dict.fromkeys((*(loop.var for loop in self.grid), *site.variables)))
        return _Points(names, affine.conj(*found, *outside))


@dataclass(frozen=True, slots=True)
class _Points:
    """Integer points by name."""

    names: tuple[str, ...]
    cond: sets.Cond

    def renamed(self, by: Mapping[str, sets.Name]) -> _Points:
        names = tuple(by[n].name if n in by else n for n in self.names)
        return _Points(names, affine.substitute_cond(self.cond, by))

    def joined(self, other: _Points) -> _Points:
        return _Points(tuple(dict.fromkeys((*self.names, *other.names))), affine.conj(self.cond, other.cond))

    def where(self, *conds: sets.Cond) -> _Points:
        return _Points(self.names, affine.conj(self.cond, *conds))


def end(loop: loops.For) -> int | None:
    """Return how often a loop from 0 runs at most, or None where that is not known."""
    if loop.lo != loops.Int(0):
        return None
    return loop.extent if loop.extent is not None else range_of(loop.hi, {})[1]


def _is_of_all(site: Site) -> bool:
    """Tell whether a store is shared out among all threads: it is in no loop over threads."""
    return not any(loop.kind in loops.THREADS for loop in site.loops)


def _shared(a: Path, b: Path) -> int:
    """Return how many steps from the outside two paths have in common."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)) - 1)


def _equal(a: Sequence[loops.Index], b: Sequence[loops.Index], by: Mapping[str, sets.Name]) -> Iterator[sets.Cond]:
    for one, two in zip(a, b, strict=True):
        left, right = to_expr(one), to_expr(two)
        if left is not None and right is not None:
            yield sets.Compare("==", left, affine.substitute(right, by))


def _named(index: tuple[loops.Index, ...]) -> set[str]:
    return {n.name for e in index for n in walk(e) if isinstance(n, loops.Var)}


def _side(e: loops.Index, extents: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the range of a subscript that takes every value in it once, like a number of its digits; None where it is none such."""
    form = coefficients(e)
    if form is None:
        return None
    reached = 1
    for scale, atom in sorted(((scale, atom) for atom, scale in form[0].items()), key=lambda t: t[0]):
        if not isinstance(atom, loops.Var) or atom.name not in extents or scale != reached:
            return None
        reached *= extents[atom.name]
    return form[1], form[1] + reached


def is_copy(store: loops.Store, device: frozenset[str]) -> bool:
    """Tell whether a store puts down what lies in the memory of the device, so that zeros fill up its tile."""
    found = list(loads(store.value))
    return bool(found) and all(load.buffer in device for load in found)


def _is_opaque(value: Expr) -> bool:
    """Tell whether a value needs more than the loops around it, or reads at places that data choose."""
    return any(isinstance(n, loops.Name | loops.ValueIndex) for n in walk(value))


def _neutral(store: loops.Store) -> bool:
    """Tell whether a sum adds nothing where all that it reads is zero."""
    here = loops.Load(store.buffer, store.index)
    match store.value:
        case loops.Fma(a, b, c) if c == here:
            one, two = _on_zero(a), _on_zero(b)
            return one is not None and two is not None and one * two == 0
        case loops.Binary("+", lhs, rest) | loops.Binary("+", rest, lhs) if lhs == here:
            return _on_zero(rest) == 0
        case loops.Binary("-", lhs, rest) if lhs == here:
            return _on_zero(rest) == 0
        case _:
            return False


def _on_zero(e: Expr) -> float | None:
    """Return the value of `e` where all that it loads is zero, or None where that is not known."""
    match e:
        case loops.Const(value):
            return float(value) if abs(value) < 1 << 24 else None
        case loops.Load():
            return 0.0
        case loops.Cast(_, value, _) | loops.Call("round_tf32", (value,)):
            inner = _on_zero(value)
            return inner if inner == 0 else None
        case loops.Unary("neg", value):
            inner = _on_zero(value)
            return None if inner is None else -inner
        case loops.Binary("*", lhs, rhs):
            one, two = _on_zero(lhs), _on_zero(rhs)
            return None if one is None or two is None else one * two
        case loops.Binary("+", lhs, rhs):
            one, two = _on_zero(lhs), _on_zero(rhs)
            return None if one is None or two is None else one + two
        case _:
            return None

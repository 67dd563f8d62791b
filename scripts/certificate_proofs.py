"""Proves for `check_certificate.py` what holds of loops for all sizes: bounds, 64 bits, order, races, coverage.

Every set is derived from the loops. Where a set can only be said too large (data decide), it is used where that is safe: for what may
be touched. What surely happens, writes that others rely on, counts only where its set is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import islpy as isl
from certificate_loops import BITS, FLOATS, Ast, Buffer, Rejected, any_of, children, limits, mapped, nodes, type_of, update_of

SIZE, MOST = 2**48, 2**63 - 1


@dataclass(frozen=True)
class Access:
    """A read or a write wherever `path` holds; `reduction` is the number of the store that combines the element it stores to, or 0."""

    name: str
    path: Ast
    time: Ast
    buffer: str
    index: Ast
    write: bool
    reduction: int
    checked: dict[str, isl.Set] = field(default_factory=dict, compare=False)

    @property
    def iters(self) -> Ast:
        return tuple(e[1] for e in self.path if e[0] == "range")


class Query:
    """A set of points as isl text: iterators, and a dimension for each integer that is no affine form, with what is known of it. What isl
    cannot say is left out, so the set is never too small; `exact` tells that it is not too large either."""

    def __init__(self, prover: Prover, path: Ast) -> None:
        self.prover, self.exact = prover, True
        self.opaque: dict[Ast, str] = {}
        self.facts, self.iters = [prover.known], [prover.renamed(e[1]) for e in path if e[0] == "range"]
        for e in path:
            if e[0] == "range":
                self.facts.append(f"{self.affine(e[2])} <= {self.affine(('name', e[1]))} < {self.affine(e[3])}")
            else:
                self.facts.append(self.cond(e[1], e[2]))
        self.said = self.exact
        self.exact = self.exact and not self.opaque

    def affine(self, e: Ast) -> str:
        dtype = self.prover.type_of(e)
        match e:
            case ("int", n) | ("const", _, int(n)) if dtype in BITS:
                return str(n)
            case ("name", name) if dtype == "ix":
                return self.prover.renamed(name)
            case ("index" | "value", inner):
                return self.affine(inner)
            case ("bin", "min" | "max" as op, a, b):
                return f"{op}({self.affine(a)}, {self.affine(b)})"
            case ("bin", "*", a, ("int" | "const", *_, int(n))) | ("bin", "*", ("int" | "const", *_, int(n)), a):
                return self.wrapped(e, f"({n} * {self.affine(a)})")
            case ("bin", "+" | "-" as op, a, b):
                return self.wrapped(e, f"({self.affine(a)} {op} ({self.affine(b)}))")
            case ("bin", "//" | "%" as op, a, ("int" | "const", *_, int(n))) if n > 0:
                return f"floor(({self.affine(a)})/{n})" if op == "//" else f"(({self.affine(a)}) mod {n})"
            case ("bin", "%", _, b) if dtype != "ix":
                t, n = self.unknown(e), self.affine(b)
                self.facts.append(f"({n} < 0 or (0 <= {t} and {t} < {n}) or ({n} = 0 and {t} = 0))")
                return t
            case ("cast", _, _, a) if dtype in BITS and self.prover.type_of(a) in BITS:
                return self.wrapped(e, self.affine(a))
            case ("select", c, a, b):
                t, exact = self.unknown(e), self.exact
                self.facts.append(" or ".join(f"({self.cond(c, s)} and {t} = {self.affine(x)})" for s, x in ((True, a), (False, b))))
                self.facts[-1], self.exact = f"({self.facts[-1]})", exact
                return t
        return self.unknown(e)

    def unknown(self, e: Ast) -> str:
        """Return the dimension that stands for the integer `e`."""
        if (dtype := self.prover.type_of(e)) not in BITS or dtype == "ix":
            raise Rejected(f"cannot tell what `{e[0]} {e[1]}` is: no affine form")
        if e not in self.opaque:
            self.opaque[e] = f"t{len(self.opaque)}"
            self.facts.append(f"{limits(dtype)[0]} <= {self.opaque[e]} <= {limits(dtype)[1]}")
        return self.opaque[e]

    def wrapped(self, e: Ast, text: str) -> str:
        """Return `text`, the value of `e` unless it leaves its type; subscripts are proven not to."""
        if (dtype := self.prover.type_of(e)) == "ix" or (e[0] == "cast" and limits(dtype) == limits(self.prover.type_of(e[3]))):
            return text
        t, (low, high) = self.unknown(e), limits(dtype)
        self.facts.append(f"({t} = {text} or {text} < {low} or {text} > {high})")
        return t

    def cond(self, e: Ast, sign: bool) -> str:
        match e:
            case ("bin", "and" | "or" as op, a, b):
                return f"({self.cond(a, sign)} {op if sign else 'or' if op == 'and' else 'and'} {self.cond(b, sign)})"
            case ("not", a):
                return self.cond(a, not sign)
            case ("const", "bool", value):
                return "1 = 1" if bool(value) == sign else "1 = 0"
            case ("cmp", op, a, b) if self.prover.type_of(a) in BITS:
                return f"{'' if sign else 'not '}({self.affine(a)} {'=' if op == '==' else op} {self.affine(b)})"
        self.exact = False
        return "1 = 1"

    def set(self, checked: dict[str, isl.Set] | None = None) -> isl.Set:
        """Return the points; `checked`: what is known of the elements of arguments, if not what is known by now."""
        checked = self.prover.checked if checked is None else checked
        found = isl.Set(self.text("", f" : {' and '.join(self.facts)}"))
        for e, t in self.opaque.items():
            if e[0] == "load" and e[1] in checked:
                cells = isl.Map(self.text(f" -> [{', '.join([*map(self.affine, e[2]), t])}]"))
                found = found.intersect(cells.intersect_range(checked[e[1]]).domain())
        return found

    def text(self, target: str, facts: str = "") -> str:
        return f"{self.prover.params} -> {{ [{', '.join([*self.iters, *self.opaque.values()])}]{target}{facts} }}"


class Prover:
    """Walks the loops once, collects accesses, and proves what has to hold of them."""

    def __init__(self, sizes: tuple[str, ...], params: tuple[Buffer, ...], body: Ast, strict: bool, context: Ast) -> None:
        self.strict, self.sizes, self.epoch = strict, sizes, 0
        self.names: dict[str, str] = {}
        self.params = f"[{', '.join(map(self.renamed, sizes))}]"
        self.known = " and ".join(f"0 <= {self.renamed(s)} <= {SIZE}" for s in sizes) or "1 = 1"
        self.accesses: list[Access] = []
        self.checked: dict[str, isl.Set] = {}
        self.pending: list[tuple[str, isl.Set]] = []
        self.lets: dict[str, Ast] = {}
        self.bound = set(sizes)
        self.buffers: dict[str, Buffer] = {p.name: p for p in params}
        self.scope = {p.name: p.name for p in params}
        self.known = Query(self, (("cond", context, True),)).facts[-1] + f" and {self.known}"
        self.block(body, (), ())
        for name, b in self.buffers.items():
            if not b.given:
                self.written_before_read([a for a in self.accesses if a.buffer == name])
        for p in params:
            if not p.given:
                self.result_written(p)

    def renamed(self, name: str) -> str:
        return self.names.setdefault(name, f"v{len(self.names)}")

    def type_of(self, e: Ast) -> str:
        return type_of(e, {name: b.dtype for name, b in self.buffers.items()}) if e[0] != "load" else self.buffers[e[1]].dtype

    def stamped(self, e: Ast) -> Ast:
        """Return `e` with what `let` names written out, buffers told apart, and loads of memory that changes by when they are made."""
        if e[0] == "name" and e[1] not in self.lets and e[1] not in self.bound:
            raise Rejected(f"`{e[1]}` is not bound")
        if e[0] == "name":
            return self.lets.get(e[1], e)
        e = mapped(self.stamped, e)
        if e[0] != "load":
            return e
        name = self.scope.get(e[1], "")
        if name not in self.buffers or len(e[2]) != len(self.buffers[name].shape):
            raise Rejected(f"`{e[1]}` is no buffer here, or one of another rank")
        return ("load", name, e[2], 0 if self.buffers[name].given else self.epoch)

    def refute(self, path: Ast, fault: Ast, what: str) -> None:
        """Reject unless `fault` holds nowhere on `path`."""
        if not (found := Query(self, (*path, ("cond", fault, True))).set()).is_empty():
            raise Rejected(f"{what}: {found.sample_point()} of {', '.join(n for n in self.names if self.names[n] in str(found))}")

    def subscript(self, e: Ast, path: Ast, stamp: bool = True) -> Ast:
        """Return `e` stamped, proven not to leave 64 bits anywhere on the way."""
        e = self.stamped(e) if stamp else e
        if self.type_of(e) != "ix":
            raise Rejected("a subscript is no index")
        steps = [n for n in nodes(e) if n[0] == "bin" and self.type_of(n) == "ix"]
        if steps:
            beyond = [("cmp", op, n, ("int", limit)) for n in steps for op, limit in (("<", -MOST - 1), (">", MOST))]
            self.refute(path, any_of(beyond), "an index leaves 64 bits")
        return e

    # ------------------------------------------------ the walk

    def block(self, body: Ast, path: Ast, time: Ast) -> None:
        scope, lets = dict(self.scope), dict(self.lets)
        for position, s in enumerate(body):
            path = self.statement(s, path, (*time, position))
        self.scope, self.lets = scope, lets

    def statement(self, s: Ast, path: Ast, time: Ast) -> Ast:
        """Collect what `s` does and return the path of what comes after it."""
        iters = tuple(e[1] for e in path if e[0] == "range")
        match s:
            case ("for", var, lo, hi, kind, extent, inner):
                first, lo, hi = len(self.accesses), self.subscript(lo, path), self.subscript(hi, path)
                self.reads(lo, path, time), self.reads(hi, path, time)
                if var in self.bound or var in self.lets:
                    raise Rejected(f"`{var}` is bound twice")
                if extent is not None:
                    self.refute(path, ("cmp", ">", ("bin", "-", hi, lo), ("int", extent)), f"`{var}` runs more than {extent} times")
                self.epoch += 1
                self.bound.add(var)
                self.block(inner, (*path, ("range", var, lo, hi)), (*time, var))
                self.bound.remove(var)
                self.epoch += 1
                if kind in ("parallel", "vector"):
                    self.races(kind, var, iters, self.accesses[first:])
                if not iters:
                    self.learn()
            case ("store", name, index, value):
                cell, stored = tuple(self.subscript(e, path) for e in index), self.stamped(value)
                target = self.stamped(("load", name, index))[1]
                if self.buffers[target].given or self.type_of(stored) != self.buffers[target].dtype:
                    raise Rejected(f"`{name}` is not to be written, or not with {self.type_of(stored)}")
                update = update_of(s)
                rigid = self.strict and self.buffers[target].dtype in FLOATS and update is not None and update[0] in ("+", "*")
                number = 0 if update is None or rigid else len(self.accesses) + 1
                self.reads(("store", stored, cell), path, time, (target, cell, number))
                self.access(Access(f"S{len(self.accesses)}", path, time, target, cell, True, number, self.checked))
                self.epoch += 1
            case ("let", name, _) | ("alloc", Buffer(name)) if name in self.lets or name in self.scope or name in self.bound:
                raise Rejected(f"`{name}` is bound twice")
            case ("let", name, value):
                self.lets[name] = self.stamped(value)
                self.reads(self.lets[name], path, time)
            case ("if", cond, then, orelse):
                cond = self.stamped(cond)
                self.reads(cond, path, time)
                self.block(then, (*path, ("cond", cond, True)), (*time, 0))
                self.block(orelse, (*path, ("cond", cond, False)), (*time, 1))
            case ("alloc", buffer):
                shape = tuple(self.subscript(e, path) for e in buffer.shape)
                for e in shape:
                    self.refute(path, ("cmp", "<", e, ("int", 0)), f"an extent of `{buffer.name}` is negative")
                self.scope[buffer.name] = own = f"{buffer.name} {len(self.buffers)}"
                self.buffers[own] = replace(buffer, shape=shape, outer=iters)
            case ("require", cond, code):
                cond = self.stamped(cond)
                if code < 1:
                    raise Rejected("a check that fails reports success")
                self.reads(cond, path, time)
                self.require(cond, path)
                if not iters:
                    self.learn()
                return (*path, ("given", cond, True))
        return path

    def reads(self, e: Ast, path: Ast, time: Ast, own: Ast = ("", (), 0)) -> None:
        """Collect the loads of `e`, each where it is made: sides of `select`, `and` and `or` that are not chosen are not evaluated."""
        again = lambda x, *more: self.reads(x, (*path, *more), time, own)  # noqa: E731
        match e:
            case ("select", c, a, b):
                again(c), again(a, ("cond", c, True)), again(b, ("cond", c, False))
            case ("bin", "and" | "or" as op, a, b):
                again(a), again(b, ("cond", a, op == "and"))
            case ("dot", count, a, b, c):
                along = [("load", x[1], (*x[2][:-1], ("bin", "+", x[2][-1], ("int", r))), x[3]) for x in (a, b) for r in range(count[1])]
                again(("all", *along, c))
            case _:
                for child in children(e):
                    again(child)
        if e[0] == "load":
            cell = tuple(self.subscript(i, path, stamp=False) for i in e[2])
            number = own[2] if (e[1], cell) == own[:2] else 0
            self.access(Access(f"S{len(self.accesses)}", path, time, e[1], cell, False, number, self.checked))

    def require(self, cond: Ast, path: Ast) -> None:
        """Note which elements of an argument that nobody writes a check refuses, and `learn` it once all its iterations have run."""
        query = Query(self, (*path, ("cond", cond, False)))
        if Query(self, path).exact and query.said and len(query.opaque) == 1:
            ((e, t),) = query.opaque.items()
            if e[0] == "load" and self.buffers[e[1]].given:
                cells = isl.Map(query.text(f" -> [{', '.join([*map(query.affine, e[2]), t])}]"))
                self.pending.append((e[1], query.set().apply(cells)))

    def learn(self) -> None:
        for name, bad in self.pending:
            self.checked = {**self.checked, name: self.checked.get(name, isl.Set.universe(bad.get_space())).subtract(bad)}
        self.pending = []

    # ------------------------------------------------ the proofs

    def in_range(self, t: dict[str, Any]) -> None:
        """Reject unless every element of an argument is checked to be in the range that is declared."""
        low, high = map(Query(self, ()).affine, t["range"])
        least, most = limits(t["dtype"])
        bad = self.box(t["shape"], ", e", f" and {least} <= e <= {most} and not ({low} <= e < {high})")
        if not bad.intersect(self.checked.get(t["name"], bad)).is_empty():
            raise Rejected(f"an element of `{t['name']}` outside its range is let in")

    def access(self, a: Access) -> None:
        """Collect an access, proven to be in bounds by what is checked before it."""
        extents = zip(a.index, self.buffers[a.buffer].shape, strict=True)
        fault = any_of([c for i, extent in extents for c in (("cmp", "<", i, ("int", 0)), ("cmp", ">=", i, extent))])
        self.accesses.append(a)
        self.refute(a.path, fault, f"`{self.buffers[a.buffer].name}` is {'written' if a.write else 'read'} outside its bounds")

    def map_of(self, a: Access, kept: int, name: str) -> tuple[isl.Map, bool]:
        """Return { name[the first `kept` iterators] -> cells }, and whether all of it surely happens."""
        query = Query(self, tuple(e for e in a.path if e[0] != "given" or not a.write))
        cell = [*map(self.renamed, self.buffers[a.buffer].outer), *map(query.affine, a.index)]
        found = isl.Map(query.text(f" -> [{', '.join(cell)}]")).intersect_domain(query.set(a.checked))
        found = found.project_out(isl.dim_type.in_, kept, len(query.iters) + len(query.opaque) - kept)
        return found.set_tuple_name(isl.dim_type.in_, name), query.exact and not query.opaque

    def races(self, kind: str, var: str, outer: Ast, inside: list[Access]) -> None:
        """Reject iterations of a parallel loop, or lanes but for a reduction, that touch an element that another of them writes."""
        shared = [a for a in inside if var not in self.buffers[a.buffer].outer and any(w.write and w.buffer == a.buffer for w in inside)]
        maps = [(a, self.map_of(a, len(outer) + 1, "P")[0]) for a in shared]
        same = "".join(f"o{k}, " for k in range(len(outer)))
        others = isl.Map(f"{{ P[{same}i] -> P[{same}j] : i != j }}")
        for (w, written), (a, touched) in product([m for m in maps if m[0].write], maps):
            together = kind == "vector" and w.reduction == a.reduction != 0 and ("name", var) not in nodes(("all", *w.index))
            if w.buffer == a.buffer and not together and not written.apply_range(touched.reverse()).intersect(others).is_empty():
                raise Rejected(f"iterations of the {kind} loop `{var}` share an element of `{self.buffers[a.buffer].name}`")

    def written_before_read(self, accesses: list[Access]) -> None:
        depth = max((len(a.time) for a in accesses), default=0)
        read, written, order = isl.UnionMap("{ }"), isl.UnionMap("{ }"), isl.UnionMap("{ }")
        for a in accesses:
            found, sure = self.map_of(a, len(a.iters), a.name)
            read = read if a.write else read.union(found)
            written = written.union(found) if a.write and sure else written
            time = [*(self.renamed(t) if isinstance(t, str) else str(t) for t in a.time), *["0"] * (depth - len(a.time))]
            order = order.union(isl.Map(f"{{ {a.name}[{', '.join(map(self.renamed, a.iters))}] -> [{', '.join(time)}] }}"))
        flow = isl.UnionAccessInfo.from_sink(read).set_must_source(written).set_schedule_map(order).compute_flow()
        if not flow.get_must_no_source().is_empty():
            raise Rejected(f"an element of `{self.buffers[accesses[0].buffer].name}` is read that nobody has written before")

    def box(self, shape: Ast, more: str = "", facts: str = "") -> isl.Set:
        extents = [f"0 <= d{k} < {Query(self, ()).affine(e)}" for k, e in enumerate(shape)]
        point = ", ".join(f"d{k}" for k in range(len(shape))) + more
        return isl.Set(f"{self.params} -> {{ [{point.removeprefix(', ')}] : {' and '.join([self.known, *extents])}{facts} }}")

    def result_written(self, p: Buffer) -> None:
        left = self.box(p.shape)
        for a in self.accesses:
            if a.write and a.buffer == p.name and (found := self.map_of(a, 0, ""))[1]:
                left = left.subtract(found[0].range())
        if not left.is_empty():
            raise Rejected(f"an element of the result `{p.name}` is not written: {left.sample_point()}")

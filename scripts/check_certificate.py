"""Accepts or rejects a certificate of `tensorlang certify`: do its loops compute its equations? docs/certificates.md says what that means.

    python3 scripts/check_certificate.py FILE …

Stands alone: it derives every obligation from the loops. `Prover` shows what holds for all sizes; where data decide, sets that are too
large say what may be touched, and exact ones what surely happens. `Values` runs both on terms.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import namedtuple
from dataclasses import make_dataclass
from functools import cache, reduce
from itertools import product
from typing import Any

import islpy as isl

Ast = tuple[Any, ...]
PRIME, WORK, IN, PARAM, UNLESS_BEYOND = 2**61 - 1, 400_000, isl.dim_type.in_, isl.dim_type.param, "({0} = {1} or {1} < {2} or {1} > {3})"
ZERO, SIZE, LEAST, MOST = (("const", "ix", n) for n in (0, 2**48 + 1, -(2**63), 2**63))
FLOATS = {**dict.fromkeys(("f4e2m1", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"), 0), "f16": 1, "bf16": 1, "f32": 2, "f64": 3}
LIMITS = {s + str(n): (-(2**n // 2), 2**n // 2 - 1) if s == "i" else (0, 2**n - 1) for s in "iu" for n in (2, 4, 8, 16, 32, 64)}
WRAPPED = {dtype: f"(({{}} - {low}) % {high - low + 1} + {low})" for dtype, (low, high) in LIMITS.items()} | {"ix": "{}", "bool": "{}"}
COMPARED, LOGICAL, LIMITS["ix"], PARSED = ("<", "<=", "==", "!=", ">=", ">"), ("and", "or", "not"), LIMITS["i64"], cache(isl.Set)
MEANING = {op: f"({{0}} {op} {{1}})" for op in ("+", "-", "*", "&", "|", "^", "<<", ">>", "and", "or", *COMPARED)} | {
    "//": "({0} // {1} if {1} else 0)", "%": "({0} % {1} if {1} else 0)", "min": "min({0}, {1})", "max": "max({0}, {1})",
    "neg": "(-{0})", "abs": "abs({0})", "bitnot": "(~{0})", "not": "(not {0})", "select": "({1} if {0} else {2})",
}  # fmt: skip


class Rejected(ValueError):
    """Why a certificate is not accepted."""


def children(e: Ast) -> list[Ast]:
    return [y for x in e[2:] if isinstance(x, tuple) for y in ((x,) if x and isinstance(x[0], str) else x)]


def nodes(e: Ast) -> list[Ast]:
    return [e, *(n for c in children(e) for n in nodes(c))]


def within(e: Ast, low: Ast, high: Ast) -> Ast:
    return ("and", "bool", (">=", "bool", e, low), ("<", "bool", e, high))


def update_of(here: Ast, value: Ast, strict: bool) -> Ast | None:
    """Return how `value` combines what is `here` with something else, and with what, if that may be done in any order."""
    found: Ast = ("", value)
    match value:
        case ("+" | "*" | "min" | "max" | "and" | "or" | "&" | "|" | "^" as op, _, a, b) if here in (a, b):
            found = op, b if a == here else a
        case ("-", dtype, a, b) if a == here:
            found = "+", ("neg", dtype, b)
        case ("fma", dtype, a, b, c) if c == here:
            found = "+", ("*", dtype, a, b)
    rigid = strict and value[1] in FLOATS and found[0] in ("+", "*")
    return None if not found[0] or rigid or here in nodes(found[1]) else found


def mark(text: str) -> int:
    return hash((int.from_bytes(text.encode(), "big"),)) % PRIME


START = {op: mark(value.hex()) for op, value in (("+", 0.0), ("*", 1.0), ("max", -float("inf")), ("min", float("inf")))}
NEUTRAL = {"+": mark((-0.0).hex()), "-": START["+"], "*": START["*"], "/": START["*"]}
ROOTS = {op: (power, pow(power, -1, PRIME - 1)) for op, power in (("max", 17), ("min", 19))}


def joined(op: str, a: int, b: int) -> int:
    """Return what stands for `a op b` in a sum, product or extreme that may be regrouped: the order of operands is forgotten, no more."""
    if START[op] in (a, b):
        return b if a == START[op] else a
    power, root = ROOTS.get(op, (1, 1))
    return a * b % PRIME if op == "*" else pow(pow(a, power, PRIME) + pow(b, power, PRIME), root, PRIME)


class Code:
    """Python text of one side. Whoever writes it sees that every operand has the type it should; nothing else of a certificate is run."""

    def __init__(self, side: str, strict: bool) -> None:
        self.side, self.strict, self.decides, self.types = side, strict, False, dict[str, str]()

    def name(self, name: str, dtype: str) -> str:
        if not name.isidentifier() or self.types.setdefault(name, dtype) != dtype:
            raise Rejected(f"`{name}` is no name, or has two types")
        return self.side + name

    def tuple(self, items: Any) -> str:
        return f"({''.join(f'{i}, ' for i in items)})"

    def box(self, shape: Any) -> str:
        return f"product({', '.join(f'range({self.expr(n)})' for n in shape)})"

    def expr(self, e: Ast, wanted: str = "") -> str:
        op, dtype, *args = e
        if op == "let":
            return f"(lambda {self.name(args[0], args[1][1])}: {self.expr(args[2], dtype)})({self.expr(args[1])})"
        kinds, parts = [a[1] for a in children(e)], [self.expr(a) for a in children(e)]
        same, known = {*kinds} == {dtype}, len(parts) == len({*re.findall(r"{\d", MEANING.get(op, ""))}) > 0
        chooses = kinds == ["bool", dtype, dtype] if op == "select" else op in COMPARED and dtype == "bool" and len({*kinds}) == 1
        self.decides |= dtype == "bool" and not {*kinds}.isdisjoint(FLOATS)
        match op:
            case _ if wanted not in ("", dtype):
                raise Rejected(f"{dtype} is not {wanted}")
            case "const":
                return str(mark(str(args[0]))) if dtype in FLOATS else str(bool(args[0])) if dtype == "bool" else f"({int(args[0])})"
            case "name" if self.types.get(args[0]) == dtype:
                return self.side + args[0]
            case "load" if self.types.get(args[0]) == dtype and {*kinds} <= {"ix"}:
                return self.side + args[0] + ("({})" if self.side == "e_" else "[{}]").format(self.tuple(parts))
            case "fold" if args[0]["types"][args[1]] == dtype:
                return f"{self.fold(args[0])}[{int(args[1])}]"
            case "cast" | "sat":
                return self.cast(dtype, op == "sat", parts[0], kinds[0])
            case "isnan" | "isinf" | "bits" | "from_bits" if (kinds[0] in FLOATS) == (dtype not in FLOATS) == (op[0] != "f"):
                return f"(hash(({mark(op)}, {parts[0]})) % {PRIME if op[0] == 'f' else '2 == 1' if dtype == 'bool' else 4})"
            case _ if known and chooses:
                return MEANING[op].format(*parts)
            case "fma" if same and not self.strict:
                return self.expr(("+", dtype, ("*", dtype, *args[:2]), args[2]))
            case "dot" if same and not self.strict and dtype in FLOATS:
                return reduce(lambda a, b: f"joined('+', {a}, {b})", parts)
            case _ if same and dtype in FLOATS:
                n = NEUTRAL.get(op, PRIME)  # as the second operand, it leaves every bit of the first as it is
                operands = f"*sorted({self.tuple(parts)}, key=lambda a: (a == {n}, a))" if op in START else ", ".join(parts)
                return f"(lambda *c: c[0] if c[1:] == ({n},) else hash(({mark(f'{op} {dtype}')}, *c)) % {PRIME})({operands})"
            case _ if same and known and (op not in LOGICAL or dtype == "bool"):
                return WRAPPED[dtype].format(MEANING[op].format(*parts))
        raise Rejected(f"`{op}` is given what it does not take")

    def cast(self, dtype: str, saturate: bool, a: str, source: str) -> str:
        if dtype in FLOATS and source in FLOATS:
            exact = dtype == source or FLOATS[dtype] > FLOATS[source]
            return a if exact else f"rounded('{dtype}', {mark(dtype + '.sat' * saturate)}, {a})"
        if dtype in FLOATS or dtype == "bool":
            return f"mark(float({a}).hex())" if dtype in FLOATS else f"({a} != {START['+'] if source in FLOATS else 0})"
        a = f"({a} % 3)" if source in FLOATS else f"int({a})"
        return f"min(max({a}, {LIMITS[dtype][0]}), {LIMITS[dtype][1]})" if saturate else WRAPPED[dtype].format(a)

    def combined(self, here: Ast, value: Ast) -> str:
        """Return the text of `value`, in which what is `here` may be combined with something else in any order."""
        text, update = self.expr(value, here[1]), update_of(here, value, self.strict)
        if update is None or here[1] not in FLOATS or update[0] not in START:
            return text
        return f"joined('{update[0]}', {self.expr(here)}, {self.expr(update[1])})"

    def fold(self, spec: dict[str, Any]) -> str:
        names = ", ".join(self.name(n, t) for n, t in zip(spec["left"] + spec["right"], spec["types"] * 2, strict=True))
        spans = ((self.name(n, "ix"), self.expr(lo, "ix"), self.expr(hi, "ix")) for n, lo, hi in spec["binders"])
        loops = " ".join(f"for {n} in spend({lo}, {hi})" for n, lo, hi in spans)
        items = f"({self.tuple(map(self.expr, spec['body']))} {loops} if {self.expr(spec['where'], 'bool')})"
        parts = zip(spec["left"], spec["types"], spec["combine"], strict=True)
        combined = self.tuple(self.combined(("name", t, n), value) for n, t, value in parts)
        start = f", {self.tuple(map(self.expr, spec['start']))}" if spec["start"] else ""
        return f"reduce(lambda a, b: (lambda {names}: {combined})(*a, *b), {items}{start})"

    def definition(self, d: dict[str, Any]) -> str:
        name, axes = self.name(d["name"], d["dtype"]), "".join(f"{self.name(a, 'ix')}, " for a in d["axes"])
        inside = " and ".join(f"0 <= {self.side}{a} < {self.expr(n, 'ix')}" for a, n in zip(d["axes"], d["shape"], strict=True))
        pieces = "".join(f"{self.expr(value, d['dtype'])} if {self.expr(guard, 'bool')} else " for guard, value in d["pieces"])
        value = f"({pieces}{{}}[()]) if {inside or True} else {{}}[()]"
        return f"m{name} = {{}}\ndef {name}(c):\n ({axes}) = c\n if c not in m{name}: m{name}[c] = {value}\n return m{name}[c]"


Buffer = make_dataclass("Buffer", ("key", "name", "shape", "outer", "given"), frozen=True)
"""`outer`: the loops around its allocation, each iteration of which has cells of its own. `given`: an argument that nobody writes."""
Place = namedtuple("Place", "names iters facts required time", defaults=((), (), (), ()))
"""Where a statement stands: in loops, where `facts` are true, after checks of `required`. `names`: iterators, buffers, what `let` names."""
Access = namedtuple("Access", "buffer index place write update cells sure")
"""`cells`: { iteration -> cell that it may touch }, exact where `sure`. `update`: the store that combines the cell with more, or 0."""


class Points:
    """The iterations of a place as isl text. What isl cannot say is a dimension, of which facts are known; without these it is exact."""

    def __init__(self, prover: Prover, place: Place) -> None:
        self.prover, self.place, self.opaque, self.facts = prover, place, dict[Ast, str](), list[str]()
        self.facts += [self.text(e) for e in (*prover.context, *place.facts, *place.required)]

    def text(self, e: Ast) -> str:
        match e:
            case ("const", dtype, n) if dtype == "bool" or dtype in LIMITS:
                return str(int(n)) if dtype in LIMITS else "(1 = 1)" if n else "(1 = 0)"
            case ("name", "ix", name):
                return f"v_{name}"
            case ("//" | "%" as op, _, a, ("const", _, n)) if n > 0:
                return f"floor(({self.text(a)})/{n})" if op == "//" else f"({self.text(a)} mod {n})"
            case ("%", _, _, b):
                n = self.text(b)
                return self.unknown(e, f"({n} < 0 or 0 <= {{0}} < {n} or ({n} = 0 and {{0}} = 0))")
            case ("cast", dtype, (_, source, *_) as a) if dtype in LIMITS and source in LIMITS:
                within = LIMITS[dtype][0] <= LIMITS[source][0] and LIMITS[source][1] <= LIMITS[dtype][1]
                return self.text(a) if within else self.unknown(e, UNLESS_BEYOND, self.text(a), *map(str, LIMITS[dtype]))
            case ("select", dtype, *parts) if dtype in LIMITS:
                return self.unknown(e, "(({1} and {0} = {2}) or (not {1} and {0} = {3}))", *map(self.text, parts))
            case ("+" | "-" | "min" | "max", _, a, b) | ("*", _, ("const", *_) as a, b) | ("*", _, a, ("const", *_) as b) if e[1] in LIMITS:
                found = MEANING[e[0]].format(self.text(a), self.text(b))
                return found if e[1] == "ix" else self.unknown(e, UNLESS_BEYOND, found, *map(str, LIMITS[e[1]]))
            case (op, "bool", *parts) if op in ("and", "or", "not") or (op in COMPARED and parts[0][1] in LIMITS):
                return MEANING[op].replace("==", "=").format(*map(self.text, parts))
        return self.unknown(e)

    def unknown(self, e: Ast, fact: str = "1 = 1", *parts: str) -> str:
        if e[1] not in ("bool", *LIMITS) or (e[1] == "ix" and e[0] != "cast"):
            raise Rejected(f"cannot tell what `{e[0]}` is: no affine form")
        if e not in self.opaque:
            (low, high), self.opaque[e] = LIMITS.get(e[1], (0, 1)), f"t{len(self.opaque)}"
            self.facts += [f"{low} <= {self.opaque[e]} <= {high}", fact.format(self.opaque[e], *parts)]
        return self.opaque[e] if e[1] in LIMITS else f"({self.opaque[e]} = 1)"

    def set(self) -> isl.Set:
        """Return the points, but for those at which a completed check would have refused an argument."""
        found = PARSED(self.said("", " and ".join(self.facts)))
        for e, (time, buffer, bad) in product(self.opaque, self.prover.refused):
            if e[0] == "load" and e[2] == buffer and time < self.place.time[: len(time)]:
                found = found.subtract(self.cells("", *e[3], e).intersect_range(bad).domain())
        return found

    def cells(self, key: str, *index: Ast) -> isl.Map:
        return isl.Map(self.said(f" -> {key}[{', '.join(map(self.text, index))}]", "1 = 1"))

    def said(self, target: str, facts: str) -> str:
        dims = ", ".join([*(f"v_{i}" for i in self.place.iters), *self.opaque.values()])
        return f"{self.prover.params} -> {{ [{dims}]{target} : {facts} }}"


class Prover:
    """Walks the loops once, writes them out as Python, collects accesses, and proves what has to hold of them."""

    def __init__(self, certificate: dict[str, Any]) -> None:
        function, given = certificate["loops"], certificate["params"]
        self.strict, self.epoch, self.params = certificate["mode"] == "strict", 0, f"[{', '.join(f'v_{s}' for s in function['sizes'])}]"
        self.accesses, self.refused = list[Access](), list[tuple[tuple[int, ...], Buffer, isl.Set]]()
        start = Place({s: ("name", "ix", s) for s in function["sizes"]})
        self.context = (*(within(s, ZERO, SIZE) for s in start.names.values()), self.resolved(certificate["context"], start))
        self.anywhere = Points(self, start)
        self.defined = {d["name"]: d for d in certificate["definitions"]}
        wanted = [*given, *(self.defined[name] for name in certificate["results"])]
        buffers = [self.allocated(q, start, k < len(given)) for k, q in enumerate(function["params"])]
        for t, q, b in zip(wanted, function["params"], buffers, strict=True):
            one, other = (" * ".join(["1", *map(self.anywhere.text, x.shape)]) for x in (self.allocated(t, start), b))
            same = isl.PwQPolynomial(f"{self.params} -> {{ {one} - {other} }}").is_zero()  # as many elements, row-major
            if t["dtype"] != q["dtype"] or q["out"] == b.given or not same:
                raise Rejected(f"`{q['name']}` is another argument than `{t['name']}`")
        self.code, self.lines = Code("l_", self.strict), list[str]()
        self.code.types |= dict.fromkeys(function["sizes"], "ix") | {q["name"]: q["dtype"] for q in function["params"]}
        self.block(function["body"], start._replace(names=start.names | {b.name: b for b in buffers}))
        for t, b in zip(wanted, buffers, strict=True):
            axes = tuple(("name", "ix", f"e{k}") for k in range(len(b.shape)))
            facts = tuple(within(a, ZERO, n) for a, n in zip(axes, b.shape, strict=True))
            place, element = Place({}, tuple(a[2] for a in axes), facts, time=(len(function["body"]),)), ("load", t["dtype"], b, axes, 0)
            if not b.given:  # somebody reads all of a result
                self.access(element, place, False, 0)
            elif t["range"]:
                self.demand(place, f"`{b.name}` is let in outside its range", within(element, *self.resolved(t["range"], start)))
        self.order()

    def allocated(self, t: dict[str, Any], place: Place, given: bool = False) -> Buffer:
        shape = self.resolved(t["shape"], place)
        for e in shape:
            self.reads(e, place)
            self.demand(place, f"an extent of `{t['name']}` is negative", (">=", "bool", e, ZERO))
        self.epoch += 1
        return Buffer(f"B{self.epoch}", t["name"], shape, place.iters, given)

    def resolved(self, e: Any, place: Place) -> Any:
        """Return `e` with what `let` names written out, buffers for their names, and loads of memory that changes by when they are made."""
        if not e or not isinstance(e[0], str):
            return tuple(self.resolved(x, place) for x in e)
        if e[0] == "name":
            return place.names[e[2]]
        e = (*e[:2], *(self.resolved(x, place) if isinstance(x, tuple) else x for x in e[2:]))
        return (*e[:2], buffer := place.names[e[2]], e[3], 0 if buffer.given else self.epoch) if e[0] == "load" else e

    def demand(self, place: Place, what: str, *conds: Ast) -> None:
        """Reject unless all conditions are true everywhere in `place`."""
        fault = ("not", "bool", reduce(lambda a, b: ("and", "bool", a, b), conds, ("const", "bool", 1)))
        if not (found := Points(self, place._replace(facts=(*place.facts, fault))).set()).is_empty():
            raise Rejected(f"{what}: {found.sample_point()} of {', '.join(place.iters)}")

    def write(self, place: Place, line: str) -> None:
        self.lines.append(" " * len(place.time) + line)

    def block(self, body: Ast, outside: Place) -> None:
        self.write(place := outside, " pass")
        for position, s in enumerate(body):
            place = self.statement(s, place._replace(time=(*outside.time, position)))

    def statement(self, s: Ast, place: Place) -> Place:
        """Collect what `s` does, write it out, and return the place of what comes after it. A `require` that fails returns its code."""
        code = self.code
        read = [self.resolved(e, place) for e in s[1:] if isinstance(e, tuple) and len(e) > 1 and isinstance(e[0], str)]
        for e in read if s[0] != "store" else ():
            self.reads(e, place)
        match s:
            case ("let" | "for", name, *_) | ("alloc", {"name": name}) if name in place.names:
                raise Rejected(f"`{name}` is bound twice")
            case ("for", var, start, end, kind, extent, inner):
                first, it, (lo, hi) = len(self.accesses), ("name", "ix", var), read
                if extent is not None:
                    self.demand(place, f"`{var}` runs too often", ("<=", "bool", ("-", "ix", hi, lo), ("const", "ix", extent)))
                self.epoch += 1
                self.write(place, f"for {code.name(var, 'ix')} in spend({code.expr(start, 'ix')}, {code.expr(end, 'ix')}):")
                facts = (*place.facts, within(it, lo, hi))
                self.block(inner, Place(place.names | {var: it}, (*place.iters, var), facts, place.required, (*place.time, var)))
                self.epoch += 1
                if kind not in ("serial", "unroll", "tensor", "tile"):
                    self.races(kind, var, len(place.iters), self.accesses[first:])
            case ("store", name, index, value):
                here = ("load", value[1], name, index)
                target, update = self.resolved(here, place), len(self.accesses) + 1 if update_of(here, value, self.strict) else 0
                if target[2].given:
                    raise Rejected(f"`{name}` is not to be written")
                for e in (*target[3], *read):
                    self.reads(e, place, target, update)
                self.access(target, place, True, update)
                self.epoch += 1
                self.write(place, f"{code.expr(here)} = {code.combined(here, value)}")
            case ("let", name, value):
                self.write(place, f"{code.name(name, value[1])} = {code.expr(value)}")
                return place._replace(names=place.names | {name: read[0]})
            case ("alloc", tensor):
                self.write(place, f"{code.name(tensor['name'], tensor['dtype'])} = {{}}")
                return place._replace(names=place.names | {tensor["name"]: self.allocated(tensor, place)})
            case ("if", cond, then, orelse):
                for line, body, fact in ((f"if {code.expr(cond, 'bool')}:", then, read[0]), ("else:", orelse, ("not", "bool", read[0]))):
                    self.write(place, line)
                    self.block(body, place._replace(facts=(*place.facts, fact), time=(*place.time, int(line == "else:"))))
            case ("require", cond, int(failed)) if failed > 0:
                self.write(place, f"if not {code.expr(cond, 'bool')}: return {failed}")
                self.refuse(read[0], place._replace(required=()))
                return place._replace(required=(*place.required, read[0]))
            case _:
                raise Rejected(f"`{s[0]}` is no statement, or is given what it does not take")
        return place

    def refuse(self, cond: Ast, place: Place) -> None:
        """Note which elements of an argument that nobody writes a check refuses: none of them is left once all iterations have run."""
        certain, points = not Points(self, place).opaque, Points(self, place._replace(facts=(*place.facts, ("not", "bool", cond))))
        e = next(iter(points.opaque), ("",))
        if certain and len(points.opaque) == 1 and e[0] == "load" and e[2].given:
            time = place.time[: next((k for k, t in enumerate(place.time) if isinstance(t, str)), None)]
            self.refused.append((time, e[2], points.set().apply(points.cells("", *e[3], e))))

    def reads(self, e: Ast, place: Place, target: Ast = (), update: int = 0, outer: str = "") -> None:
        """Collect the loads of `e` where its operands are evaluated; `target`: what store `update` combines. Indices stay in 64 bits."""
        if e[1] == "ix" != outer:
            steps = [n for n in nodes(e) if n[1] == "ix" and n[0] in ("+", "-", "*")]
            self.demand(place, "an index leaves 64 bits", *(within(n, LEAST, MOST) for n in steps))
        parts = children(e)
        for k, part in enumerate(parts):
            side = k + (e[0] == "or") if e[0] in ("select", "and", "or") else 0
            facts = place.facts if k == 0 or side == 0 else (*place.facts, parts[0] if side == 1 else ("not", "bool", parts[0]))
            self.reads(part, place._replace(facts=facts), target, update, e[1])
        if e[0] == "load":
            self.access(e, place, False, update if e == target else 0)

    def access(self, target: Ast, place: Place, write: bool, update: int) -> None:
        """Collect an access, proven to be in bounds. What is written does not depend on whether a check lets it happen: all of them do."""
        _, _, buffer, index, _ = target
        inside = (within(i, ZERO, n) for i, n in zip(index, buffer.shape, strict=True))
        self.demand(place, f"`{buffer.name}` is {'written' if write else 'read'} outside its bounds", *inside)
        points = Points(self, place._replace(required=()) if write else place)
        cells = points.cells(buffer.key, *(("name", "ix", i) for i in buffer.outer), *index).intersect_domain(points.set())
        cells = cells.project_out(IN, len(place.iters), len(points.opaque)).set_tuple_name(IN, f"S{len(self.accesses)}")
        self.accesses.append(Access(buffer, index, place, write, update, cells, not points.opaque))

    def races(self, kind: str, var: str, depth: int, inside: list[Access]) -> None:
        """Reject iterations of a parallel loop, or lanes but for a reduction, that touch an element that another of them writes."""
        same = "".join(f"o{k}, " for k in range(depth))
        others = isl.Map(f"{{ [{same}i] -> [{same}j] : i != j }}")
        shared = [a for a in inside if var not in a.buffer.outer]
        maps = [a.cells.project_out(IN, depth + 1, len(a.place.iters) - depth - 1).reset_tuple_id(IN) for a in shared]
        for w, written in zip(shared, maps, strict=True):
            lanes = kind == "vector" and w.update != 0 and all(("name", "ix", var) not in nodes(i) for i in w.index)
            for a, touched in zip(shared, maps, strict=True) if w.write else ():
                both = w.buffer == a.buffer and not (lanes and w.update == a.update)
                if both and not written.apply_range(touched.reverse()).intersect(others).is_empty():
                    raise Rejected(f"iterations of the {kind} loop `{var}` share an element of `{a.buffer.name}`")

    def order(self) -> None:
        """Reject unless all that is read was surely written before. `left` is what no write has reached; the nearest are asked first."""
        depth, moments = max((len(a.place.time) for a in self.accesses), default=0), list[isl.Map]()
        for k, a in enumerate(self.accesses):
            time = [f"v_{t}" if isinstance(t, str) else str(t) for t in a.place.time] + ["0"] * (depth - len(a.place.time))
            moments.append(isl.Map(f"{{ S{k}[{', '.join(f'v_{i}' for i in a.place.iters)}] -> [{', '.join(time)}] }}"))
        for k, a in ((k, a) for k, a in enumerate(self.accesses) if not (a.write or a.buffer.given)):
            left, sure = a.cells.domain(), [j for j, w in enumerate(self.accesses) if w.write and w.sure and w.buffer == a.buffer]
            while sure and not left.is_empty():
                sure.remove(j := min(sure, key=lambda j: abs(j - k)))
                left = left.subtract((a.cells.apply_range(self.accesses[j].cells.reverse()) & moments[k].lex_gt_map(moments[j])).domain())
            if not left.is_empty():
                raise Rejected(f"an element is read that nobody has written before: {left}")


class Values:
    """Equations and loops as Python functions that return all results, each as its elements in row-major order."""

    def __init__(self, certificate: dict[str, Any], prover: Prover) -> None:
        params, definitions, arguments = certificate["params"], certificate["definitions"], certificate["loops"]["params"]
        meant, made = Code("e_", certificate["mode"] == "strict"), prover.code
        lines = [f"l_{n} = {meant.name(n, 'ix')} = sizes[{k}]" for k, n in enumerate(certificate["loops"]["sizes"])]
        for p, q in zip(params, arguments, strict=False):
            low, high = map(meant.expr, p["within"]) if p["within"] else LIMITS.get(p["dtype"], (0, 2))
            high = high if p["range"] else f"max({high}, {low} + 1)"  # some element is let in, unless its range is declared
            lines.append(f"cells = elements('{p['dtype']}', {mark(p['name'])}, {meant.box(p['shape'])}, {low}, {high})")
            lines += [f"{meant.name(p['name'], p['dtype'])} = cells.__getitem__"]
            lines += [f"{made.name(q['name'], q['dtype'])} = dict(zip({made.box(q['shape'])}, cells.values(), strict=True))"]
        meant.types |= {d["name"]: d["dtype"] for d in definitions}
        lines += map(meant.definition, definitions)
        wanted = [f"[e_{y}(c) for c in {meant.box(prover.defined[y]['shape'])}]" for y in certificate["results"]]
        lines += ["def equations():", f" try: return [{', '.join(wanted)}]", " except KeyError: return None  # the data are to be refused"]
        found = {made.name(q["name"], q["dtype"]): made.box(q["shape"]) for q in arguments[len(params) :]}
        lines += ["def loops():", *(f" {q} = {{}}" for q in found), *prover.lines]
        lines += [f" return [{', '.join(f'[{q}.get(c) for c in {box}]' for q, box in found.items())}]"]
        self.code = compile("\n".join(lines), "certificate", "exec")
        self.decides = meant.decides or made.decides or any(p["dtype"] not in FLOATS for p in params)
        self.constants = [mark(v) for v in re.findall(r"'(-?0x[^']+)'", str(definitions))]

    def compared(self, sizes: list[int], left: int) -> bool:
        """Return whether there was data to compare equations and loops on, and time: `left` is how many iterations may run."""
        self.left, done = left, False
        names: dict[str, Any] = {f.__name__: f for f in (product, reduce, joined, mark, self.elements, self.rounded, self.spend)}
        for seed in range(24 if self.decides else 1):
            self.random, self.seed, self.exact = random.Random(seed), seed, set[tuple[str, int]]()
            try:
                exec(self.code, run := names | {"sizes": sizes})
                wanted, found = run["equations"](), run["loops"]()
            except TimeoutError:
                break
            if not isinstance(found, int) if wanted is None else wanted != found:
                raise Rejected(f"the loops do not compute the equations at sizes {sizes}")
            done |= wanted is not None
        return done

    def elements(self, dtype: str, key: int, box: Any, low: int, high: int) -> dict[tuple[int, ...], int]:
        if dtype not in FLOATS:
            return {c: self.random.choice(range(low, high) or self.spend(0, self.left + 1)) for c in box}
        own = {c: hash((key, self.seed, *c)) % PRIME for c in box}
        some = [*self.constants, *list(own.values())[:3]] if self.seed else []
        own = {c: self.random.choice(some) if some and self.random.random() < 0.3 else v for c, v in own.items()}
        self.exact |= {(dtype, v) for v in own.values()}
        return own

    def rounded(self, dtype: str, key: int, a: int) -> int:
        self.exact.add((dtype, found := a if (dtype, a) in self.exact else hash((key, a)) % PRIME))
        return found

    def spend(self, low: int, high: int) -> range:
        self.left -= max(high - low, 0)
        if self.left < 0:
            raise TimeoutError
        return range(low, high)


def tuples(e: Any) -> Any:
    return tuple(map(tuples, e)) if isinstance(e, list) else {k: tuples(v) for k, v in e.items()} if isinstance(e, dict) else e


def chosen(known: isl.Set, loops: dict[str, Any]) -> list[list[int]]:
    """Return sizes to run at: around what loops count by, as far as what is known of the sizes allows."""
    step = max([int(n) for n in re.findall(r"'\*', 'ix', \('const', 'ix', -?(\d+)\)", str(loops)) if int(n) < 33], default=8)
    values, count, found = (0, 1, 2, 3, step, step + 1, 2 * step + 3), len(loops["sizes"]), []
    for trial in range(12 if count else 1):
        space = known
        for k in range(count):  # all sizes alike, then mixed
            fixed = space.fix_val(PARAM, k, isl.Val(values[(trial + k * (trial // 7 * 3)) % 7]))
            space = space.lexmin() if fixed.is_empty() else fixed
        found.append([int(str(space.sample_point().get_coordinate_val(PARAM, k))) for k in range(count)])
    return found


def check(text: str) -> list[str]:
    """Return what was checked of a certificate. Raises Rejected."""
    try:
        certificate = tuples(json.loads(text))
        values = Values(certificate, prover := Prover(certificate))
        done = [at for at in chosen(prover.anywhere.set(), certificate["loops"]) if values.compared(at, WORK if at else 5 * WORK)]
    except (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError, isl.Error) as problem:
        raise problem if isinstance(problem, Rejected) else Rejected(f"it is not understood: {problem!r}") from problem
    sizes = certificate["loops"]["sizes"]
    shown = dict.fromkeys(", ".join(f"{n} = {v}" for n, v in zip(sizes, at, strict=True)) or "these sizes" for at in done)
    found = f"values at {'; '.join(shown)}" if done else "NOT values: they would take too long, or data were refused"
    return [f"bounds, 64 bits, order, races, coverage for {'all' if sizes else 'these'} sizes", found]


if __name__ == "__main__":
    sys.setrecursionlimit(20_000)
    for path in sys.argv[1:]:
        try:
            with open(path, encoding="utf-8") as file:
                print(f"{path}: accepted: {'; '.join(check(file.read()))}")
        except Rejected as problem:
            sys.exit(f"{path}: rejected: {problem}")

"""Accepts or rejects a certificate of `tensorlang certify`: do its loops compute its equations? docs/certificates.md says what that means.

    python3 scripts/check_certificate.py FILE …

Stands alone: it knows nothing of the compiler, reads the loops' text itself and derives every obligation from it. Bounds, 64 bits, order,
races and coverage are proven with isl for all sizes. Values are compared by running loops and equations on terms, at the kernel's sizes or,
where sizes are open, at several: a float is what was computed, as a fingerprint of 61 bits; integers and booleans are computed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
import sys
import zlib
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import islpy as isl

Ast = tuple[Any, ...]
"""("load", buffer, indices), ("bin", op, a, b), …: one form for equations, values and subscripts, which have the type "ix"."""
FLOATS = {"f8e4m3": 0, "f8e5m2": 0, "f16": 1, "bf16": 1, "f32": 2, "f64": 3}
BITS = {f"{sign}{n}": n for sign in "iu" for n in (4, 8, 16, 32, 64)} | {"ix": 64}
PRIME, SIZE, MOST, WORK = 2**61 - 1, 2**48, 2**63 - 1, 400_000


class Rejected(Exception):
    """Why a certificate is not accepted."""


def limits(dtype: str) -> tuple[int, int]:
    n = BITS[dtype]
    return (0, 2**n - 1) if dtype[0] == "u" else (-(2 ** (n - 1)), 2 ** (n - 1) - 1)


# ---------------------------------------------------------------- reading loops

NAME = r"(`[^`]+`|[A-Za-z_]\w*)"
TOKEN = re.compile(r"(0x[01]\.?[0-9a-f]*p[+-]\d+|\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan)_((?:bf|f|i|u)\d\w*)|" + NAME)
BUFFER = re.compile(rf"(out )?{NAME}: (\w+)\[([^\[\]]*)\](?: (?:heap|stack|registers|tiles))?(?: align \d+)?(?:, |$)")
FOR = re.compile(rf"for {NAME} in (.+) \.\. (.+?)(?: (serial|parallel|unroll|vector|tensor|tile)(?: (\d+))?)?$")
STORE = re.compile(rf"{NAME}\[(.*?)\] = (.+?)(?: stream)?$")
PYTHON = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.And: "and", ast.Or: "or", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Not: "not", ast.Invert: "bitnot", ast.USub: "neg",
}  # fmt: skip


@dataclass(frozen=True)
class Buffer:
    """`outer`: the loops around its `alloc`, each iteration of which has cells of its own. `given`: an argument that nobody writes."""

    name: str
    dtype: str
    shape: Ast
    outer: tuple[str, ...] = ()
    given: bool = False


def expression(text: str) -> Ast:
    """Return a value or a subscript. The notation binds like Python, once names and typed literals are written as Python has them."""
    words = {"and", "or", "not"}
    plain = lambda m: f"K('{m[2]}', '{m[1]}')" if m[1] else m[3] if m[3] in words else "_" + m[3].strip("`").encode().hex()  # noqa: E731
    try:
        return converted(ast.parse(TOKEN.sub(plain, text.strip()).replace("[]", "[()]"), mode="eval").body)
    except (SyntaxError, KeyError, ValueError) as problem:
        raise Rejected(f"`{text}` cannot be read") from problem


def converted(node: Any) -> Ast:
    name = lambda n: bytes.fromhex(n.id[1:]).decode()  # noqa: E731
    match node:
        case ast.Constant(value=int(n)):
            return ("int", n)
        case ast.Name("_" | "K"):
            raise ValueError
        case ast.Name():
            return ("const", "bool", int(name(node) == "true")) if name(node) in ("true", "false") else ("name", name(node))
        case ast.Subscript(value=ast.Name() as buffer, slice=ast.Tuple(elts=index)):
            return ("load", name(buffer), tuple(map(converted, index)))
        case ast.Subscript(value=ast.Name() as buffer, slice=index):
            return ("load", name(buffer), (converted(index),))
        case ast.BinOp(a, op, b):
            return ("bin", PYTHON[type(op)], converted(a), converted(b))
        case ast.BoolOp(op, [first, *rest]):
            found = converted(first)
            for other in rest:
                found = ("bin", PYTHON[type(op)], found, converted(other))
            return found
        case ast.Compare(a, [op], [b]):
            return ("cmp", PYTHON[type(op)], converted(a), converted(b))
        case ast.UnaryOp(op, a):
            return negative(converted(a)) if isinstance(op, ast.USub) else (PYTHON[type(op)], converted(a))
        case ast.Call(ast.Name("K"), [ast.Constant(dtype), ast.Constant(digits)]):
            return ("const", dtype, (float.fromhex if "0x" in digits else float)(digits).hex() if dtype in FLOATS else int(digits))
        case ast.Call(ast.Attribute(ast.Name() as dtype, attr), [a]):
            return ("cast", name(dtype), attr == "_" + b"sat".hex(), converted(a))
        case ast.Call(ast.Name() as called, args):
            fn, given = name(called), tuple(map(converted, args))
            if fn in FLOATS or fn in BITS or fn == "bool":
                return ("cast", fn, False, *given)
            if fn in ("index", "value", "abs", "select", "fma", "dot"):
                return (fn, *given)
            return ("bin", fn, *given) if fn in ("min", "max") else ("call", fn, given)
    raise ValueError


def negative(e: Ast) -> Ast:
    match e:
        case ("int", n):
            return ("int", -n)
        case ("const", dtype, value):
            return ("const", dtype, -value if dtype not in FLOATS else (-float.fromhex(value)).hex())
    return ("neg", e)


def buffers_of(text: str) -> tuple[Buffer, ...]:
    """Return what is declared in `text`; whatever is not marked `out` counts as given."""
    found = list(BUFFER.finditer(text))
    if "".join(m[0] for m in found) != text:
        raise Rejected(f"`{text}` cannot be read")
    return tuple(Buffer(m[2].strip("`"), m[3], indices(m[4]), given=not m[1]) for m in found)


def indices(text: str) -> Ast:
    found: Ast = expression(f"x[{text}]")[2]
    return found


def function(text: str) -> tuple[tuple[str, ...], tuple[Buffer, ...], Ast]:
    """Return sizes, parameters and statements: ("for", var, lo, hi, kind, extent, body), ("store", buffer, indices, value), …"""
    head, *lines = [line.strip() for line in text.splitlines()]
    parts = re.fullmatch(rf"func {NAME}\(([^()]*)\)\((.*)\) \{{", head)
    if parts is None:
        raise Rejected(f"`{head}` cannot be read")
    body, rest = block(lines)
    if rest:
        raise Rejected("there is text after the function")
    return tuple(re.findall(NAME, parts[2])), buffers_of(parts[3]), body


def block(lines: list[str]) -> tuple[Ast, list[str]]:
    found: list[Ast] = []
    while lines:
        line, lines = lines[0], lines[1:]
        if line in ("}", "} else {"):
            return tuple(found), [line, *lines] if line != "}" else lines
        opens = line.endswith("{")
        body, lines = block(lines) if opens else ((), lines)
        line = line.removesuffix("{}" if line.endswith("{}") else "{").strip()
        if line.startswith("if "):
            other, lines = block(lines[1:]) if lines and lines[0] == "} else {" else ((), lines)
            found.append(("if", expression(line[3:]), body, other))
        elif (m := FOR.fullmatch(line)) is not None:
            found.append(("for", m[1].strip("`"), expression(m[2]), expression(m[3]), m[4], m[5] and int(m[5]), body))
        elif opens:
            raise Rejected(f"`{line}` is not for processors")
        elif line.startswith("alloc "):
            found += [("alloc", replace(b, given=False)) for b in buffers_of(line[6:])]
        elif (m := re.fullmatch(rf"let {NAME} = (.+)", line)) is not None:
            found.append(("let", m[1].strip("`"), expression(m[2])))
        elif (m := re.fullmatch(r"require (.+) else (\d+)", line)) is not None:
            found.append(("require", expression(m[1]), int(m[2])))
        elif (m := STORE.fullmatch(line)) is not None:
            found.append(("store", m[1].strip("`"), indices(m[2]), expression(m[3])))
        elif not line.startswith("prefetch "):
            raise Rejected(f"`{line}` is not for processors")
    raise Rejected("a block does not end")


def children(e: Ast) -> list[Ast]:
    return [y for x in e[1:] if isinstance(x, tuple) for y in ((x,) if x and isinstance(x[0], str) else x)]


def mapped(f: Any, e: Ast) -> Ast:
    """Return `e` with `f` applied to each child."""
    return (e[0], *(x if not isinstance(x, tuple) else f(x) if x and isinstance(x[0], str) else tuple(map(f, x)) for x in e[1:]))


def nodes(e: Ast) -> list[Ast]:
    return [e, *(n for c in children(e) for n in nodes(c))]


def update_of(s: Ast) -> tuple[str, Ast] | None:
    """Return how a store combines the element it stores to, and with what."""
    here = ("load", *s[1:3])
    match s[3]:
        case ("bin", "+" | "*" | "min" | "max" | "and" | "or" | "&" | "|" | "^" as op, a, b) if (a == here) != (b == here):
            found = op, b if a == here else a
        case ("bin", "-", a, b) if a == here:
            found = "+", ("neg", b)
        case ("fma", a, b, c) if c == here:
            found = "+", ("bin", "*", a, b)
        case ("dot", n, a, b, c) if c == here:
            found = "+", ("dot", n, a, b, ("const", "f32", (0.0).hex()))
        case _:
            return None
    return None if here in nodes(found[1]) else found


def type_of(e: Ast, types: dict[str, str]) -> str:
    """Return the type of a value, which `types` tells of names and buffers; "ix" is that of a subscript."""
    match e:
        case ("int" | "value", _):
            return "ix"
        case ("name" | "load", name, *_):
            return types.get(name, "ix")
        case ("const" | "cast", dtype, *_):
            return str(dtype)
        case ("index", _):
            return "i64"
        case ("cmp" | "not", *_) | ("call", "isnan" | "isinf", _):
            return "bool"
        case ("call", _, args):
            return type_of(args[0], types)
        case ("fold", spec):
            return str(spec["dtypes"][0])
        case ("item", ("fold", spec), k):
            return str(spec["dtypes"][k])
        case ("item", value, _):
            return type_of(value, types)
        case ("let", name, value, body):
            return type_of(body, {**types, name: type_of(value, types)})
        case ("bin" | "select", _, a, _) | ("dot", *_, a) | ("neg" | "abs" | "bitnot" | "fma", a, *_):
            return type_of(a, types)
    raise Rejected(f"`{e[0]}` has no type")


# ---------------------------------------------------------------- what holds for all sizes


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
        self.spans: dict[str, tuple[int, int]] = dict.fromkeys(sizes, (0, SIZE))
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
        if e[0] == "name" and e[1] not in self.lets and e[1] not in self.spans:
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
        for node in nodes(e):
            if node[0] == "bin" and self.type_of(node) == "ix" and max(map(abs, self.span(node) or (MOST + 1,))) > MOST:
                low, high = ("cmp", "<", node, ("int", -MOST - 1)), ("cmp", ">", node, ("int", MOST))
                self.refute(path, ("bin", "or", low, high), "an index leaves 64 bits")
        return e

    def span(self, e: Ast) -> tuple[int, int] | None:
        match e:
            case ("int", n):
                return n, n
            case ("name", name):
                return self.spans[name]
            case ("bin", op, a, b) if (x := self.span(a)) is not None and (y := self.span(b)) is not None:
                if op in ("//", "%") and y[0] < 1:
                    raise Rejected("an index is divided by what may be less than one")
                f = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "min": min, "max": max}.get(op)
                ends = [f(i, j) for i, j in product(x, y)] if f is not None else [0, y[1] - 1]
                return min(ends), max(ends)
        return None

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
                if var in self.spans:
                    raise Rejected(f"`{var}` is bound twice")
                if extent is not None:
                    self.refute(path, ("cmp", ">", ("bin", "-", hi, lo), ("int", extent)), f"`{var}` runs more than {extent} times")
                ends = self.span(lo) or (-MOST, 0), self.span(hi) or (0, MOST)
                self.spans[var], self.epoch = (ends[0][0], max(ends[0][0], ends[1][1] - 1)), self.epoch + 1
                self.block(inner, (*path, ("range", var, lo, hi)), (*time, var))
                self.epoch, _ = self.epoch + 1, self.spans.pop(var)
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
        dims = [f"d{k}" for k in range(len(t["shape"]))]
        low, high, *shape = map(Query(self, ()).affine, (*t["range"], *t["shape"]))
        box = " and ".join([self.known, *(f"0 <= {d} < {e}" for d, e in zip(dims, shape, strict=True))])
        bad = isl.Set(f"{self.params} -> {{ [{', '.join([*dims, 'e'])}] : {box} and not ({low} <= e < {high}) }}")
        bad = bad.intersect(self.checked.get(t["name"], bad))
        if not bad.intersect(
            isl.Set(f"{{ [{', '.join([*dims, 'e'])}] : {limits(t['dtype'])[0]} <= e <= {limits(t['dtype'])[1]} }}")
        ).is_empty():
            raise Rejected(f"an element of `{t['name']}` outside its range is let in")

    def access(self, a: Access) -> None:
        """Collect an access, proven to be in bounds by what is checked before it."""
        fault: Ast = ("const", "bool", 0)
        for i, extent in zip(a.index, self.buffers[a.buffer].shape, strict=True):
            fault = ("bin", "or", fault, ("bin", "or", ("cmp", "<", i, ("int", 0)), ("cmp", ">=", i, extent)))
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

    def result_written(self, p: Buffer) -> None:
        dims, query = [f"d{k}" for k in range(len(p.shape))], Query(self, ())
        box = " and ".join([self.known, *(f"0 <= {d} < {query.affine(e)}" for d, e in zip(dims, p.shape, strict=True))])
        left = isl.Set(f"{self.params} -> {{ [{', '.join(dims)}] : {box} }}")
        for a in self.accesses:
            if a.write and a.buffer == p.name and (found := self.map_of(a, 0, ""))[1]:
                left = left.subtract(found[0].range())
        if not left.is_empty():
            raise Rejected(f"an element of the result `{p.name}` is not written: {left.sample_point()}")


# ---------------------------------------------------------------- values at given sizes

NEUTRAL = {("+", 0.0), ("*", 1.0), ("max", -float("inf")), ("min", float("inf"))}
ROOTS = {"max": (17, pow(17, -1, PRIME - 1)), "min": (19, pow(19, -1, PRIME - 1))}


def term(*key: Any) -> int:
    return hash(key) & PRIME


def number(value: str) -> int:
    return term(1, zlib.crc32(value.encode()), len(value))


START = {op: number(value.hex()) for op, value in NEUTRAL}


def joined(op: str, a: int, b: int) -> int:
    """Return what stands for `a op b` in a sum, product or extreme that may be regrouped: the order of operands is forgotten, no more."""
    if a == START[op] or b == START[op]:
        return b if a == START[op] else a
    if op in ROOTS:
        power, root = ROOTS[op]
        return pow(pow(a, power, PRIME) + pow(b, power, PRIME), root, PRIME)
    return (a + b) % PRIME if op == "+" else a * b % PRIME


class Run:
    """Equations and loops as Python functions, at given sizes and with given elements of integer arguments."""

    def __init__(self, certificate: dict[str, Any], params: tuple[Buffer, ...], sizes: dict[str, int], seed: int) -> None:
        self.certificate, self.strict, self.sizes = certificate, certificate["mode"] == "strict", sizes
        self.types: dict[str, str] = {}
        self.idents: dict[str, str] = {}
        self.calls: dict[str, str] = {}
        self.exact: dict[str, set[int]] = {}
        self.left, self.random, self.seed, self.decides = WORK, random.Random(seed), seed, False
        self.names: dict[str, Any] = {self.ident(n): v for n, v in sizes.items()}
        self.names |= {
            "term": term,
            "joined": joined,
            "rounded": self.rounded,
            "wrap": wrap,
            "spend": self.spend,
            "fold": fold,
            "Rejected": Rejected,
        }
        self.names |= {"divided": lambda a, b: a // b if b else 0, "rest": lambda a, b: a % b if b else 0}
        self.equal = json.dumps(certificate["definitions"])
        self.given = {t["name"]: self.elements(t) for t in certificate["params"]}
        self.outs = {p.name: p for p in params if not p.given}

    def ident(self, name: str) -> str:
        return self.idents.setdefault(name, f"n{len(self.idents)}")

    def rounded(self, dtype: str, a: int) -> int:
        known = self.exact.setdefault(dtype, set())
        if a not in known:
            known.add(a := term(2, zlib.crc32(dtype.encode()), a))
        return a

    def spend(self, lo: int, hi: int) -> range:
        self.left -= max(hi - lo, 0)
        if self.left < 0:
            raise TooMuch
        return range(lo, hi)

    def number(self, e: Ast) -> int:
        return int(eval(self.code(e), self.names))

    def box(self, shape: Ast) -> Any:
        return product(*(range(self.number(e)) for e in shape))

    def elements(self, t: dict[str, Any]) -> dict[Ast, int]:
        """Return an argument's elements: terms of their own, or integers in their range, or that of what they index."""
        dtype, self.types[t["name"]] = t["dtype"], t["dtype"]
        cells, low, high = self.box(t["shape"]), 0, 1
        if dtype in FLOATS:
            found = {c: term(3, zlib.crc32(t["name"].encode()), self.seed, *c) for c in cells}
            some = [number(v) for v in re.findall(r'"(-?0x[^"]+)"', self.equal)] + list(found.values())[:3] if self.seed else []
            found = {c: self.random.choice(some) if some and self.random.random() < 0.3 else v for c, v in found.items()}
            self.exact.setdefault(dtype, set()).update(found.values())
            return found
        if dtype in BITS:
            low, high, self.decides = *limits(dtype), True
        if t["range"]:
            low, high = self.number(t["range"][0]), self.number(t["range"][1]) - 1
        elif t["indexes"]:
            low, high = 0, min(self.number(e) for e in t["indexes"]) - 1
        return {c: self.random.randint(low, max(low, high)) if dtype != "bool" else self.random.random() < 0.5 for c in cells}

    def type_of(self, e: Ast) -> str:
        return type_of(e, self.types)

    def code(self, e: Ast) -> str:
        """Return Python text for the value of `e`: a term of a float, a number of an integer."""
        dtype, code = self.type_of(e), self.code
        tag = f"{zlib.crc32(f'{e[0]} {e[1] if isinstance(e[1], str) else 0} {dtype}'.encode())}"
        match e:
            case ("int", n):
                return f"({n})"
            case ("const", _, value):
                return str(number(value)) if dtype in FLOATS else f"({value})" if dtype != "bool" else str(bool(value))
            case ("name", name):
                return self.ident(name)
            case ("index" | "value", a):
                return code(a)
            case ("load", name, index):
                at = "".join(f"{code(i)}, " for i in index)
                return f"{self.calls[name].format(at)}" if name in self.calls else f"{self.ident(name)}[({at})]"
            case ("select", c, a, b) if self.type_of(a) == self.type_of(b):
                return f"({code(a)} if {code(c)} else {code(b)})"
            case ("not", a):
                return f"(not {code(a)})"
            case ("cmp", op, a, b) if self.type_of(a) == self.type_of(b):
                self.decides |= self.type_of(a) in FLOATS
                return f"({code(a)} {op} {code(b)})"
            case ("cast", _, saturate, a):
                return self.cast(dtype, saturate, code(a), self.type_of(a))
            case ("let", name, value, body):
                self.types[name] = self.type_of(value)
                return f"(lambda {self.ident(name)}: {code(body)})({code(value)})"
            case ("tuple", items):
                return f"({''.join(f'{code(i)}, ' for i in items)})"
            case ("item", a, k):
                return f"{code(a)}[{k}]"
            case ("fold", spec):
                return self.fold(spec) + ("" if len(spec["dtypes"]) > 1 else "[0]")
            case ("bin", "and" | "or" as op, a, b):
                return f"({code(a)} {op} {code(b)})"
            case ("bin", op, a, b) if self.type_of(a) == self.type_of(b) and dtype not in FLOATS:
                call = {"min": "min", "max": "max", "//": "divided", "%": "rest"}.get(op)
                text = f"{call}({code(a)}, {code(b)})" if call else f"({code(a)} {op} {code(b)})"
                return f"wrap('{dtype}', {text})" if dtype in BITS and dtype != "ix" else text
            case ("bin", "+" | "*" | "min" | "max", a, b) if self.type_of(a) == self.type_of(b):
                return f"term({tag}, *sorted(({code(a)}, {code(b)})))"
            case ("bin", "-" | "/" | "//" | "%", a, b) if self.type_of(a) == self.type_of(b):
                return f"term({tag}, {code(a)}, {code(b)})"
            case ("neg" | "abs" | "bitnot" as op, a) if dtype not in FLOATS:
                return f"wrap('{dtype}', {({'neg': '-', 'abs': 'abs', 'bitnot': '~'})[op]}({code(a)}))"
            case ("neg" | "abs", a):
                return f"term({tag}, {code(a)})"
            case ("fma", a, b, c) if not self.strict:
                return code(("bin", "+", ("bin", "*", a, b), c))
            case ("call", "isnan" | "isinf", args):
                return f"(term({tag}, {code(args[0])}) % 2 == 1)"
            case ("fma", *args) | ("call", _, args) if {*map(self.type_of, args)} == {dtype}:
                return f"term({tag}, {', '.join(map(code, args))})"
            case ("dot", ("int", count), a, b, c) if dtype in BITS:
                for r in range(count):
                    x, y = (("cast", dtype, False, (*z[:2], (*z[2][:-1], ("bin", "+", z[2][-1], ("int", r))))) for z in (a, b))
                    c = ("bin", "+", c, ("bin", "*", x, y))
                return code(c)
        raise Rejected(f"`{e[0]} {e[1]}` is given what it does not take, or is not known")

    def cast(self, dtype: str, saturate: bool, a: str, source: str) -> str:
        if dtype in FLOATS and source in FLOATS:
            return a if dtype == source or FLOATS[dtype] > FLOATS[source] else f"rounded('{dtype}', {a})"
        if dtype in FLOATS:
            return f"term({zlib.crc32(dtype.encode())}, {a} % 2**64)"
        if dtype == "bool":
            return f"({a} != {START['+'] if source in FLOATS else 0})"
        a = f"({a} % 3)" if source in FLOATS else f"int({a})"
        low, high = limits(dtype)
        return f"min(max({a}, {low}), {high})" if saturate else f"wrap('{dtype}', {a})"

    def fold(self, spec: dict[str, Any]) -> str:
        left, right = ([self.ident(n) for n in spec[side]] for side in ("left", "right"))
        for n, dtype in zip((*spec["left"], *spec["right"]), spec["dtypes"] * 2, strict=True):
            self.types[n] = dtype
        loops = " ".join(f"for {self.ident(n)} in spend({self.code(lo)}, {self.code(hi)})" for n, lo, hi in spec["binders"])
        tuple_of = lambda items: f"({''.join(f'{self.code(i)}, ' for i in items)})"  # noqa: E731
        op, combined = spec["op"], tuple_of(spec["combine"])
        if op in START and spec["dtypes"][0] in FLOATS and (op in ROOTS or not self.strict):
            combined = f"(joined('{op}', {left[0]}, {right[0]}), )"
        start = tuple_of(spec["init"]) if spec["init"] else tuple_of(spec["identity"]) if spec["identity"] else None
        wanted = " and ".join(self.code(c) for c in (spec["where"], spec["filter"]) if c)
        return f"fold(lambda {', '.join([*left, *right])}: {combined}, {start}, ({tuple_of(spec['body'])} {loops} if {wanted}))"

    # ------------------------------------------------ the two

    def equations(self) -> dict[str, dict[Ast, int]]:
        """Return the elements of all results."""
        lines: list[str] = []
        definitions = self.certificate["definitions"]
        for k, d in enumerate(definitions):
            for position, t in enumerate(d["tensors"]):
                self.types[t["name"]] = t["dtype"]
                self.calls[t["name"]] = f"f{k}({{}})" + (f"[{position}]" if len(d["tensors"]) > 1 else "")
        self.names |= {self.ident(name): cells for name, cells in self.given.items()}
        for k, d in enumerate(definitions):
            axes = "".join(f"{self.ident(a)}, " for a in d["axes"])
            inside = [
                ("cmp", op, ("name", a), e)
                for a, n in zip(d["axes"], d["tensors"][0]["shape"], strict=True)
                for op, e in ((">=", ("int", 0)), ("<", n))
            ]
            lines += [f"memo{k} = {{}}", f"def f{k}({axes}):", f"    if ({axes}) in memo{k}: return memo{k}[({axes})]"]
            lines += [f"    if not ({' and '.join(map(self.code, inside)) or True}): raise KeyError"]
            for guard, value in d["pieces"]:
                lines += [
                    f"    if {self.code(guard)}:",
                    f"        memo{k}[({axes})] = {self.code(value)}",
                    f"        return memo{k}[({axes})]",
                ]
        exec("\n".join(lines), self.names)
        shapes = {t["name"]: t["shape"] for d in definitions for t in d["tensors"]}
        return {
            n: {c: eval(self.calls[n].format("*c"), self.names, {"c": c}) for c in self.box(shapes[n])} for n in self.certificate["results"]
        }

    def loops(self, body: Ast) -> dict[str, dict[Ast, int]] | int:
        """Return the elements of all results, or which requirement failed."""
        self.calls, found = {}, {name: {} for name in self.outs}
        self.types |= {p.name: p.dtype for p in self.outs.values()}
        self.names |= {self.ident(name): cells for name, cells in (*self.given.items(), *found.items())}
        exec("\n".join(["def run():", "    pass", *self.block(body, "    ")]), self.names)
        return self.names["run"]() or found

    def block(self, body: Ast, indent: str) -> list[str]:
        lines = [f"{indent}pass"]
        for s in body:
            match s:
                case ("for", var, lo, hi, _, _, inner):
                    self.types[var] = "ix"
                    lines += [
                        f"{indent}for {self.ident(var)} in spend({self.code(lo)}, {self.code(hi)}):",
                        *self.block(inner, f"{indent}    "),
                    ]
                case ("if", cond, then, orelse):
                    lines += [f"{indent}if {self.code(cond)}:", *self.block(then, f"{indent}    ")]
                    lines += [f"{indent}else:", *self.block(orelse, f"{indent}    ")]
                case ("let", name, value):
                    self.types[name] = self.type_of(value)
                    lines.append(f"{indent}{self.ident(name)} = {self.code(value)}")
                case ("alloc", buffer):
                    self.types[buffer.name] = buffer.dtype
                    lines.append(f"{indent}{self.ident(buffer.name)} = {{}}")
                case ("require", cond, code):
                    lines.append(f"{indent}if not {self.code(cond)}: return {code}")
                case ("store", name, index, value):
                    here, update, checked = self.code(("load", name, index)), update_of(s), self.code(value)
                    if update is not None and self.types[name] in FLOATS and update[0] in START and (update[0] in ROOTS or not self.strict):
                        checked = f"joined('{update[0]}', {here}, {self.code(update[1])})"
                    lines.append(f"{indent}{here} = {checked}")
        return lines


class TooMuch(Exception):
    """Running would take too long."""


def wrap(dtype: str, n: int) -> int:
    low, high = limits(dtype)
    return n if low <= n <= high else (n - low) % (high - low + 1) + low


def fold(combine: Any, start: Any, items: Any) -> Any:
    for item in items:
        start = item if start is None else combine(*start, *item)
    return start


# ---------------------------------------------------------------- the verdict


def tuples(e: Any) -> Any:
    """Return an equation's expression as the tuples that `expression` makes."""
    return tuple(map(tuples, e)) if isinstance(e, list) else {k: tuples(v) for k, v in e.items()} if isinstance(e, dict) else e


def signed(body: dict[str, Any]) -> str:
    """Return a certificate of these parts, with their digest."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return "{\n" + "".join(f' "{key}": {json.dumps(part)},\n' for key, part in body.items()) + f' "digest": "{digest}"\n}}\n'


def check(text: str) -> list[str]:
    """Return what was checked of a certificate. Raises Rejected."""
    raw = json.loads(text)
    digest = raw.pop("digest")
    if digest != hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest():
        raise Rejected("the digest is of another text")
    certificate = {**tuples(raw), "loops": raw["loops"]}
    sizes, params, body = function(raw["loops"])
    tensors = {t["name"]: t for t in (*certificate["params"], *(t for d in certificate["definitions"] for t in d["tensors"]))}
    wanted = [(t["name"], t["dtype"], t["shape"], t in certificate["params"]) for t in tensors.values()]
    if set(sizes) != set(certificate["sizes"]):
        raise Rejected("the loops take other sizes")
    asked = {*(t["name"] for t in certificate["params"]), *certificate["results"]}
    if {p.name for p in params} != asked or any((p.name, p.dtype, p.shape, p.given) not in wanted for p in params):
        raise Rejected("the loops take other arguments than the equations")
    prover = Prover(sizes, params, body, certificate["mode"] == "strict", certificate["context"])
    for t in certificate["params"]:
        if t["range"]:
            prover.in_range(t)
    done = [where for at in chosen(prover, raw["loops"]) if (where := compared_at(certificate, params, body, at))]
    values = f"values at {'; '.join(dict.fromkeys(done))}" if done else "NOT values: they would take too long, or data were refused"
    return [f"bounds, 64 bits, order, races, coverage for {'all' if sizes else 'these'} sizes", values]


def compared_at(certificate: dict[str, Any], params: tuple[Buffer, ...], body: Ast, at: dict[str, int]) -> str:
    """Return these sizes if values were compared there: once, or with several data where data decide what is computed."""
    where, left = ", ".join(f"{n} = {v}" for n, v in at.items()) or "these sizes", WORK if at else 5 * WORK
    for seed in range(24):
        run = Run(certificate, params, at, seed)
        run.left = left
        try:
            try:
                wanted: Any = run.equations()
            except KeyError:
                wanted = None
            found = run.loops(body)
        except KeyError as problem:
            raise Rejected(f"an element is read that nobody has written, at {where}") from problem
        except TooMuch:
            return where if seed else ""
        if (wanted is None) != isinstance(found, int) or (wanted is not None and wanted != found):
            raise Rejected(f"the loops do not compute the equations at {where}")
        left = run.left
        if not run.decides or wanted is None:
            break
    return "" if wanted is None else where


def chosen(prover: Prover, loops: str) -> list[dict[str, int]]:
    """Return sizes to run at: around what loops count by, as far as what is known of the sizes allows."""
    step = max([int(n) for n in re.findall(r"\b(\d+)\*", loops) if int(n) < 33], default=8)
    pick, found = random.Random(1), []
    values = (0, 1, 2, 3, step, step + 1, 2 * step + 3)
    for trial in [*([v] * 9 for v in values), *([pick.choice(values) for _ in range(9)] for _ in range(4))] if prover.sizes else [[]]:
        space = isl.Set(f"{prover.params} -> {{ : {prover.known} }}")
        for name, value in zip(prover.sizes, trial, strict=False):
            fixed = space.intersect(isl.Set(f"{prover.params} -> {{ : {prover.renamed(name)} = {value} }}"))
            space = space.lexmin() if fixed.is_empty() else fixed
        point = space.sample_point()
        if not space.is_empty():
            found.append({n: int(str(point.get_coordinate_val(isl.dim_type.param, k))) for k, n in enumerate(prover.sizes)})
    return found


def main() -> int:
    for path in sys.argv[1:]:
        try:
            with open(path, encoding="utf-8") as file:
                print(f"{path}: accepted: {'; '.join(check(file.read()))}")
        except Rejected as problem:
            print(f"{path}: rejected: {problem}")
            return 1
    return 0


if __name__ == "__main__":
    sys.setrecursionlimit(20_000)
    sys.exit(main())

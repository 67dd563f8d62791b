"""Reads loops for `check_certificate.py`, from the text that certificates hold; what the checker's parts know of expressions is here, too.

statement   ("for", var, lo, hi, kind, extent, body)  ("store", buffer, indices, value)  ("let", name, value)
            ("if", cond, then, orelse)  ("alloc", Buffer)  ("require", cond, code)
expression  ("int", n)  ("const", dtype, value)  ("name", name)  ("load", buffer, indices)  ("bin", op, a, b)  ("cmp", op, a, b)
            ("select", cond, a, b)  ("cast", dtype, saturate, a)  ("call", name, args)  ("fma", a, b, c)  ("dot", count, a, b, c)
            ("neg" | "not" | "abs" | "bitnot", a)  ("index", a)  ("value", a), and in equations "fold", "item", "tuple", "let"
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import Any

Ast = tuple[Any, ...]
"""("load", buffer, indices), ("bin", op, a, b), …: one form for equations, values and subscripts, which have the type "ix"."""
FLOATS = {"f8e4m3": 0, "f8e5m2": 0, "f16": 1, "bf16": 1, "f32": 2, "f64": 3}
BITS = {f"{sign}{n}": n for sign in "iu" for n in (4, 8, 16, 32, 64)} | {"ix": 64}


class Rejected(Exception):
    """Why a certificate is not accepted."""


def limits(dtype: str) -> tuple[int, int]:
    n = BITS[dtype]
    return (0, 2**n - 1) if dtype[0] == "u" else (-(2 ** (n - 1)), 2 ** (n - 1) - 1)


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
    return tuple(n.strip("`") for n in re.findall(NAME, parts[2])), buffers_of(parts[3]), body


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


def any_of(conds: list[Ast]) -> Ast:
    found: Ast = ("const", "bool", 0)
    for cond in conds:
        found = ("bin", "or", found, cond)
    return found


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
        case ("tuple", items):
            return type_of(items[0], types)
        case ("item", ("fold", spec), k):
            return str(spec["dtypes"][k])
        case ("item", value, _):
            return type_of(value, types)
        case ("let", name, value, body):
            return type_of(body, {**types, name: type_of(value, types)})
        case ("bin" | "select", _, a, _) | ("dot", *_, a) | ("neg" | "abs" | "bitnot" | "fma", a, *_):
            return type_of(a, types)
    raise Rejected(f"`{e[0]}` has no type")

"""`size` parameters, and what must hold of sizes."""

from __future__ import annotations

from collections.abc import Sequence

from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import typed
from tensorlang.check.binder import Binder
from tensorlang.check.problems import NeedsStatic, did_you_mean, error
from tensorlang.check.scalar import value
from tensorlang.check.scope import expand
from tensorlang.check.values import Idx, Num, Packed, Str, Value
from tensorlang.check.walk import descendants
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show


def size_parameters(b: Binder) -> None:
    for param in b.operator.params:
        if param.kind != "size":
            continue
        given = b.given.sizes.get(param.name)
        if not param.pack:
            if given is None:
                b.sizes.setdefault(param.name, px.Name(param.name))
            elif isinstance(given, tuple):
                raise error(
                    "R0207",
                    f"`{b.operator.name}`: size `{param.name}` is one number",
                    param.span,
                    "declared here",
                    help="pass a whole number",
                )
            else:
                b.sizes[param.name] = given
            continue
        length = b.length(param.name)
        if given is not None and not isinstance(given, tuple):
            given = (given,) * length
        for k in range(length):
            b.sizes.setdefault(f"{param.name}.{k}", px.Name(f"{param.name}.{k}") if given is None else given[k])
    for name in b.given.sizes:
        if not any(p.kind == "size" and p.name == name for p in b.operator.params):
            known = [p.name for p in b.operator.params if p.kind == "size"]
            raise error(
                "R0206",
                f"`{b.operator.name}` has no size `{name}`",
                b.operator.name_span,
                "declared here",
                help=did_you_mean(name, known, f"its sizes are {', '.join(known) or 'none'}"),
            )


def name_sizes(b: Binder) -> None:
    """With `named`, sizes stay symbolic; those that must be numbers keep their value. Missing packs of length 0 need nothing."""
    if not b.given.named:
        return
    for key, size in b.sizes.items():
        if key not in b.given.static and (affine.constant(size) is None or not _only_broadcast_one(b, key)):
            b.sizes[key] = px.Name(key)


def _only_broadcast_one(b: Binder, key: str) -> bool:
    return b.sizes[key] == affine.ONE and key not in b.sources


def check_conditions(b: Binder) -> None:
    scope = b.scope()
    for cond in b.operator.where:
        for node, at in expand(scope, (cond,)):
            _condition(b, node, value(b.ctx(), at, node))
    for param in b.operator.params:
        if param.kind == "size" and param.range is not None and not param.pack:
            inside = sx.Compare((param.range.lo, sx.Id(param.name), param.range.hi), ("<=", "<"), span=param.span)
            _condition(b, inside, value(b.ctx(), scope, inside))


def _condition(b: Binder, node: sx.Node, found: Value) -> None:
    match typed.truth(found, node.span):
        case True:
            return
        case False:
            mentioned = list(dict.fromkeys(n.name for n in descendants(node) if isinstance(n, sx.Id)))
            values = {name: text for name in mentioned if (text := _known(b.scope().values.get(name)))}
            given = dict.fromkeys(b.sources[name] for name in mentioned if name in b.sources)
            raise error(
                "R0209",
                f"`{b.operator.name}`: `{show(node)}` does not hold",
                node.span,
                f"here {' and '.join(f'{name} = {text}' for name, text in values.items())}" if values else "required here",
                notes=tuple(f"`{tensor}` has shape [{shape}]" for tensor, shape in given),
                help=f"change {' or '.join(f'`{name}`' for name in _told_by(b, mentioned)) or 'the arguments that it mentions'}",
            )
        case px.Compare() | px.And() | px.Or() | px.Not() as cond:
            b.context = affine.conj(b.context, cond)
        case _ if sizes := {n.name for n in descendants(node) if isinstance(n, sx.Id)} & _open_sizes(b):
            raise NeedsStatic(frozenset(sizes), node.span, "is multiplied or divided in a condition")
        case _:
            raise error(
                "T0147",
                "a condition on parameters depends on data",
                node.span,
                "decided only at run time",
                help="`where` speaks of sizes and attributes",
            )


def _open_sizes(b: Binder) -> set[str]:
    return {key for key, size in b.sizes.items() if affine.constant(size) is None}


def _known(found: Value | None) -> str:
    """Return a value as it is written, or "" where it is none that is known."""
    match found:
        case Num(known):
            return str(known).lower() if isinstance(known, bool) else str(known)
        case Str(text):
            return f'"{text}"'
        case Idx(expr):
            return str(number) if (number := affine.constant(expr)) is not None else ""
        case Packed(items):
            parts = [_known(item) for item in items]
            return f"({', '.join(parts)})" if all(parts) else ""
        case _:
            return ""


def _told_by(b: Binder, names: Sequence[str]) -> list[str]:
    """Return the parameters that say what these names are: an attribute or a size itself, the tensor whose shape has a size."""
    own = {p.name for p in b.operator.params if p.kind == "size"} | set(b.attrs)
    return list(dict.fromkeys(b.sources[name][0] if name in b.sources else name for name in names if name in b.sources or name in own))

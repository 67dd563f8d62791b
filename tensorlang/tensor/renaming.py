"""Programs with other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.idioms import renamed
from tensorlang.tensor.nodes import (
    Definition,
    Expr,
    ExternCall,
    Let,
    Name,
    Piece,
    Program,
    Read,
    Reduce,
    Tensor,
)
from tensorlang.tensor.walk import map_extern, rebuild


def rename(e: Expr, to: Mapping[str, str]) -> Expr:
    """Return `e` with names replaced wherever they occur: tensors, sizes, axes, and binders and lets together with their uses.

    The new names must not occur in `e` unless they are renamed too."""
    names = {old: AffineName(new) for old, new in to.items()}

    def on_expr(e: Expr) -> Expr:
        done = rebuild(e, on_expr, lambda a: affine.substitute(a, names), lambda c: affine.substitute_cond(c, names))
        match done:
            case Name(name):
                return replace(done, name=to.get(name, name))
            case Let(name):
                return replace(done, name=to.get(name, name))
            case Read(name):
                return replace(done, tensor=to.get(name, name))
            case Reduce(_, binders):
                return replace(done, binders=tuple(replace(b, name=to.get(b.name, b.name)) for b in binders))
            case _:
                return done

    return on_expr(e)


def rename_tensor(tensor: Tensor, to: Mapping[str, str]) -> Tensor:
    names = {old: AffineName(new) for old, new in to.items()}
    declared = tensor.declared_range
    return replace(
        tensor,
        name=to.get(tensor.name, tensor.name),
        shape=tuple(affine.substitute(s, names) for s in tensor.shape),
        declared_range=declared and (affine.substitute(declared[0], names), affine.substitute(declared[1], names)),
    )


def rename_program(program: Program, to: Mapping[str, str]) -> Program:
    """Return `program` with names of every kind replaced (tensors, sizes, axes, binders, lets)."""
    names = {old: AffineName(new) for old, new in to.items()}

    def on_piece(piece: Piece) -> Piece:
        return replace(piece, value=rename(piece.value, to), guard=affine.substitute_cond(piece.guard, names))

    def on_definition(definition: Definition) -> Definition:
        return replace(
            definition,
            tensors=tuple(rename_tensor(t, to) for t in definition.tensors),
            axes=tuple(to.get(a, a) for a in definition.axes),
            pieces=tuple(map(on_piece, definition.pieces)),
        )

    def on_extern(call: ExternCall) -> ExternCall:
        made = map_extern(call, lambda t: rename_tensor(t, to), lambda size: affine.substitute(size, names))
        return replace(made, arguments=tuple(a and to.get(a, a) for a in call.arguments))

    return replace(
        program,
        sizes=tuple(to.get(s, s) for s in program.sizes),
        params=tuple(rename_tensor(t, to) for t in program.params),
        results=tuple(to.get(r, r) for r in program.results),
        definitions=tuple(map(on_definition, program.definitions)),
        context=affine.substitute_cond(program.context, names),
        idioms=tuple(renamed(idiom, to) for idiom in program.idioms),
        externs=tuple(map(on_extern, program.externs)),
    )

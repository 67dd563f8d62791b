"""What rewrites made, named: idioms say which definitions of a program play which part, so that nobody has to find them again.

    online attention       product, scores, tops, largest, weights, totals, sums, result        made by `tensorlang.tensor.online`
    minimal filtering      before…, tiles, product, after…, result                              made by `tensorlang.tensor.winograd`
    split product          result, of parts of its operands                                     made by `…graph.passes.precision.split_bf16`

A policy chooses by them, and so they are part of what a program is: of its equality, its hash and its text. They are no part of what it
means: an idiom is never a reason to believe anything, and a schedule that follows one is proven like any other.

`refusal` says what an idiom claims of the form of its definitions, and `tensorlang.tensor.verify` holds every program to it. Whoever takes
definitions away or rewrites them, and cannot tell what becomes of an idiom, makes the new program by `redefined`, which keeps the idioms
that still hold; `renamed` gives the names of one anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, assert_never

from codegen.dtypes import bf16
from polyhedral import affine
from polyhedral.expr import TRUE
from tensorlang.tensor.contraction import Contraction, contraction, contractions
from tensorlang.tensor.nodes import Definition, Idiom, MinimalFiltering, OnlineAttention, Program, SplitProduct
from tensorlang.tensor.walk import definers, definition_reads, reduces, tensor_table

KINDS: tuple[type[Idiom], ...] = (OnlineAttention, MinimalFiltering, SplitProduct)


def redefined(program: Program, definitions: Iterable[Definition]) -> Program:
    """Return `program` with other definitions, and those of its idioms that hold of them."""
    changed = replace(program, definitions=tuple(definitions))
    if not program.idioms:
        return changed
    return replace(changed, idioms=tuple(i for i in program.idioms if not refusal(i, changed)))


def renamed(idiom: Idiom, to: Mapping[str, str]) -> Idiom:
    """Return an idiom of a program whose names are replaced."""

    def on_value(value: Any) -> Any:
        match value:
            case str():
                return to.get(value, value)
            case tuple():
                return tuple(map(on_value, value))
            case _:
                return value

    return replace(idiom, **{f.name: on_value(getattr(idiom, f.name)) for f in fields(idiom)})


def members(idiom: Idiom) -> tuple[str, ...]:
    """Return the definitions that an idiom names, by their first tensors, in the order of data flow."""
    match idiom:
        case OnlineAttention():
            return tuple(getattr(idiom, f.name) for f in fields(idiom))
        case MinimalFiltering(before, tiles, product, after, result):
            return (*before, tiles, product, *after, result)
        case SplitProduct(result):
            return (result,)
        case _:
            assert_never(idiom)


def refusal(idiom: Idiom, program: Program) -> str:
    """Return why the definitions of `program` are not what an idiom says of them, or "" where they are."""
    made = {d.tensors[0].name: d for d in program.definitions}
    names = members(idiom)
    missing = [name for name in names if name not in made]
    if missing:
        return f"there is no definition of {', '.join(missing)}"
    if len(set(names)) != len(names):
        return "one definition plays several parts"
    match idiom:
        case SplitProduct():
            return _of_split_product(idiom, program)
        case OnlineAttention() | MinimalFiltering():
            pass
        case _:
            assert_never(idiom)
    ragged = [name for name in names if len(made[name].pieces) != 1 or made[name].pieces[0].guard != TRUE]
    if ragged:
        return f"{', '.join(ragged)} is defined in pieces"
    problems = _of_attention(idiom, program) if isinstance(idiom, OnlineAttention) else _of_filtering(idiom, program)
    return next(problems, "")


def _of_split_product(idiom: SplitProduct, program: Program) -> str:
    found = [c for d, c in contractions(program) if d.tensors[0].name == idiom.result and c.tensors == idiom.operands]
    if not found:
        return f"{idiom.result} sums no products of {' and '.join(idiom.operands)}"
    wide = [name for name in idiom.operands if tensor_table(program)[name].dtype != bf16]
    return f"{', '.join(wide)} is not bf16" if wide else ""


def _of_attention(idiom: OnlineAttention, program: Program) -> Iterator[str]:
    online = Online.of(idiom, program)
    made = definers(program)
    flow = (
        (online.product, ()),
        (online.scores, (idiom.product,)),
        (online.tops, (idiom.scores,)),
        (online.largest, (idiom.largest, idiom.tops)),
        (online.weights, (idiom.scores, idiom.largest)),
        (online.totals, (idiom.totals, idiom.weights)),
        (online.sums, (idiom.sums, idiom.weights)),
        (online.result, (idiom.sums, idiom.totals)),
    )
    for definition, wanted in flow:
        if not set(wanted) <= definition_reads(definition):
            yield f"{definition.tensors[0].name} does not read all of {', '.join(wanted)}"
    for definition in (online.product, online.tops, online.totals, online.sums):
        if len(set(reduces(definition.pieces[0].value))) != 1:
            yield f"{definition.tensors[0].name} is no single reduction"
    lead = len(online.largest.axes)
    ranks = [len(d.axes) - lead for d in online.members[:-1]]
    if lead < 2 or len(online.largest.tensors) != 2 or ranks != [1, 1, 0, 0, 1, 0, 1]:
        yield "its definitions do not lead with heads, row and block"
    elif set(online.largest.axes[:-1]) | {online.sums.axes[-1]} != set(online.result.axes):
        yield f"{idiom.result} does not have heads, row and columns"
    if any(affine.constant(n) is None for name in members(idiom) for n in made[name].tensors[0].shape):
        yield "its extents are not constant"


def _of_filtering(idiom: MinimalFiltering, program: Program) -> Iterator[str]:
    made, tensors = definers(program), tensor_table(program)
    names = members(idiom)
    for name, source in zip(names[1:], names, strict=False):
        if definition_reads(made[name]) & made.keys() != {source}:
            yield f"{name} does not read {source} alone of what is computed"
    if len(definition_reads(made[names[0]])) != 1 or definition_reads(made[names[0]]) & made.keys():
        yield f"{names[0]} does not read one parameter"
    for name in names:
        if len(made[name].tensors) != 1:
            yield f"{name} is defined together with others"
        found = [contraction(r) for r in reduces(made[name].pieces[0].value)]
        if name != idiom.product and found:
            yield f"{name} reduces"
        if name == idiom.product and not (len(found) == 1 and isinstance(found[0], Contraction) and idiom.tiles in found[0].tensors):
            yield f"{name} is no contraction of {idiom.tiles}"
    if not {*idiom.spatial, idiom.column} <= set(made[idiom.result].axes):
        yield f"{idiom.result} has not all of the axes {', '.join((*idiom.spatial, idiom.column))}"
    if not {*idiom.tile_axes} <= set(made[idiom.product].axes):
        yield f"{idiom.product} has not all of the axes {', '.join(idiom.tile_axes)}"
    if not len(idiom.spatial) == len(idiom.tile_sizes) == len(idiom.tile_axes) or not idiom.spatial:
        yield "it has not one side and one axis of tiles for each axis that tiles cut"
    for name in names:
        axes = made[name].axes
        counted = {idiom.column} if name == idiom.result else {axes[-1], *idiom.point_axes}
        if any(affine.constant(n) is None for a, n in zip(axes, tensors[name].shape, strict=True) if a in counted):
            yield f"{name} has points or channels that are not counted"


# ---------------------------------------------------------------- online attention


@dataclass(frozen=True, slots=True)
class Online:
    """The definitions of attention in one pass. All but the result lead with heads, row and block."""

    product: Definition
    scores: Definition
    tops: Definition
    largest: Definition
    weights: Definition
    totals: Definition
    sums: Definition
    result: Definition

    @staticmethod
    def of(idiom: OnlineAttention, program: Program) -> Online:
        made = definers(program)
        return Online(*(made[name] for name in members(idiom)))

    @property
    def members(self) -> tuple[Definition, ...]:
        return (self.product, self.scores, self.tops, self.largest, self.weights, self.totals, self.sums, self.result)

    @property
    def heads(self) -> tuple[str, ...]:
        return self.largest.axes[:-2]

    @property
    def row(self) -> str:
        return self.largest.axes[-2]

    @property
    def block(self) -> str:
        return self.largest.axes[-1]


def online_of(program: Program) -> Online | None:
    """Return the program as attention in one pass, or None where it is something else, or does something besides."""
    found = next((i for i in program.idioms if isinstance(i, OnlineAttention)), None)
    return Online.of(found, program) if found is not None and is_all(found, program) else None


def is_all(idiom: Idiom, program: Program) -> bool:
    """Tell whether a program does nothing but what an idiom says."""
    return len(program.results) == 1 and len(program.definitions) == len(members(idiom)) and program.results[0] in members(idiom)


# ---------------------------------------------------------------- text


MARK = "# idiom "
"""How a line of text begins that says an idiom of the operator below it: to the language, a comment."""


def show(idiom: Idiom) -> str:
    """Return an idiom as a line of text."""
    return f"{MARK}{type(idiom).__name__} {json.dumps({f.name: getattr(idiom, f.name) for f in fields(idiom)})}"


def parse(line: str) -> Idiom | None:
    """Return the idiom that `show` wrote as `line`, or None for another line."""
    name, _, text = line.removeprefix(MARK).partition(" ")
    kind = next((k for k in KINDS if k.__name__ == name), None)
    try:
        given = json.loads(text)
    except ValueError:
        return None
    if kind is None or not isinstance(given, dict) or given.keys() != {f.name for f in fields(kind)}:
        return None
    named: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    made: Idiom = kind(**named)
    return made if all(isinstance(getattr(made, f.name), tuple) == str(f.type).startswith("tuple") for f in fields(kind)) else None

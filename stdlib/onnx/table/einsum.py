"""Einsum: the equation is already a program of the language, with other commas.

bij,bjk->bik      op einsum[T: num](a: T[B, I, J], b: T[B, J, K]) -> (y: T[B, I, K]) { y[b, i, k] = sum(j) a[b, i, j] * b[b, j, k] }

Of several operands, pairs are contracted first where that takes less work than one sum over everything, and what only one operand is summed
over is summed in it alone: ij,jk,kl->il takes ij,jk->ik and ik,kl->il.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import prod

from stdlib.onnx.items import argument_type
from stdlib.onnx.site import Site
from stdlib.onnx.table.entry import Entry
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import sample_of
from tensorlang.syntax.parse import parse


def einsum(n: Site) -> Value:
    equation = n.text("equation", "").replace(" ", "")
    operands = n.args()
    terms, result = _letters(n, equation, operands)
    extents: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, extent in zip(term, operand.shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise n.unsupported(f"the index {letter} over {extents[letter]} and {extent} elements")
    rest = [*zip(terms, operands, strict=True)]
    for positions, kept in contraction_path(terms, result, {letter: sample_of(extent) for letter, extent in extents.items()}):
        made = _contracted(n, [rest[k] for k in positions], kept)
        rest = [*(each for k, each in enumerate(rest) if k not in positions), (kept, made)]
    return _contracted(n, rest, result)


def _contracted(n: Site, given: Sequence[tuple[str, Value]], result: str) -> Value:
    terms, operands = tuple(term for term, _ in given), tuple(operand for _, operand in given)
    try:
        found = instantiate(_module(terms, result), "einsum", [argument_type(operand) for operand in operands])
    except CompileError as problem:
        raise n.mismatch(operands, problem) from problem
    return n.apply(found, operands, "einsum", (("equation", f"{','.join(terms)}->{result}"),))[0]


MOST_TERMS = 24
"""Terms of which pairs are compared; files may have thousands."""
Step = tuple[tuple[int, ...], str]


def contraction_path(terms: Sequence[str], result: str, extents: Mapping[str, int]) -> tuple[Step, ...]:
    """Return what to contract before the rest becomes `result`: positions among the terms there are then, and the indices that remain, of
    a term that comes last. Greedy: the pair that takes the fewest products goes first. Nothing unless that saves at least half of the
    products of one sum over all indices, and for more than `MOST_TERMS`."""
    if len(terms) > MOST_TERMS:
        return ()
    rest, steps, work = list(terms), list[Step](), 0

    def merged(positions: tuple[int, ...]) -> str:
        needed = {*result, *"".join(term for k, term in enumerate(rest) if k not in positions)}
        return "".join(c for c in dict.fromkeys("".join(rest[k] for k in positions)) if c in needed)

    def products(positions: tuple[int, ...]) -> int:
        return prod(extents[c] for c in {*"".join(rest[k] for k in positions)})

    def take(positions: tuple[int, ...]) -> None:
        nonlocal work
        steps.append((positions, merged(positions)))
        work += products(positions)
        rest[:] = [*(term for k, term in enumerate(rest) if k not in positions), steps[-1][1]]

    whole = products(tuple(range(len(rest))))
    while len(rest) > 1 and (alone := next((k for k, term in enumerate(rest) if len(merged((k,))) < len({*term})), None)) is not None:
        take((alone,))
    while len(rest) > 2:
        take(min(combinations(range(len(rest)), 2), key=lambda pair: (products(pair), prod(extents[c] for c in merged(pair)))))
    work += products(tuple(range(len(rest))))
    return tuple(steps) if 2 * work <= whole else ()


def _letters(n: Site, equation: str, operands: tuple[Value, ...]) -> tuple[tuple[str, ...], str]:
    """Return the indices of every operand and of the result, `...` spelt out in capitals that the equation does not use."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise n.wrong(f"the equation `{equation}` has {len(terms)} terms for {len(operands)} operands")
    plain = equation.replace("...", "").replace("->", "").replace(",", "")
    if plain and not (plain.isascii() and plain.isalpha()):
        raise n.wrong(f"`{equation}` is not an equation")
    spare = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in plain]
    ranks = [len(x.shape) - len(t.replace("...", "")) for t, x in zip(terms, operands, strict=True)]
    if any(r < 0 or ("..." not in t and r) for t, r in zip(terms, ranks, strict=True)) or max(ranks, default=0) > len(spare):
        raise n.wrong(f"the equation `{equation}` does not fit operands of {', '.join(str(len(x.shape)) for x in operands)} dimensions")
    ellipsis = "".join(reversed(spare[: max(ranks, default=0)]))
    spelt = tuple(t.replace("...", ellipsis[len(ellipsis) - r :]) for t, r in zip(terms, ranks, strict=True))
    if not arrow:
        once = sorted(c for c in plain if plain.count(c) == 1)
        return spelt, ellipsis + "".join(once)
    result = right.replace("...", ellipsis)
    if len(set(result)) != len(result) or not set(result) <= set("".join(spelt)):
        raise n.wrong(f"the result of `{equation}` names an index twice, or one that no operand has")
    return spelt, result


@lru_cache(maxsize=256)
def _module(terms: tuple[str, ...], result: str) -> Module:
    return load_module(parse(Source("einsum.tl", program(terms, result))))


def program(terms: tuple[str, ...], result: str) -> str:
    """Return the operator that an equation says, as text."""
    operands = [f"x{k}" for k in range(len(terms))]
    params = ", ".join(f"{x}: T[{', '.join(map(_size, term))}]" for x, term in zip(operands, terms, strict=True))
    reads = " * ".join(f"{x}[{', '.join(map(_index, term))}]" for x, term in zip(operands, terms, strict=True))
    summed = [c for c in dict.fromkeys("".join(terms)) if c not in result]
    binders = ", ".join(f"{_index(c)} in 0..{_size(c)}" for c in summed)
    value = f"sum({binders}) {reads}" if summed else reads
    target = f"y[{', '.join(map(_index, result))}]"
    return f"op einsum[T: num]({params}) -> (y: T[{', '.join(map(_size, result))}]) {{\n    {target} = {value}\n}}\n"


def _size(letter: str) -> str:
    return f"N_{letter}"


def _index(letter: str) -> str:
    return f"i_{letter}"


RULES = (Entry("Einsum", 12, 28, einsum),)

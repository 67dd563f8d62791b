"""What to try where a directive cannot be carried out as it is written: other names, what has to stand before it, another directive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import pairwise

from tensorlang.schedule.apply import Outline
from tensorlang.schedule.cures.refusal import Refusal, Replacement, listed, written
from tensorlang.schedule.plan import full, last_part
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import directive_called, phrases_of
from tensorlang.syntax.foreign_directives import TENSOR, written_here
from tensorlang.syntax.printer import show
from tensorlang.tensor.walk import definition_reads, reduces

WIDTH = 8
"""What a loop is split by, or tensors are kept of, where a number is missing."""
_COUNTS = (1, 2, 4, WIDTH)


def spellings(refusal: Refusal) -> Iterator[Replacement]:
    """Yield what may cure a directive that names what is not there or does not fit: nothing where an order is refuted."""
    if refusal.refuted is not None or refusal.at < 0 or refusal.is_repeated:
        return
    seen = refusal.before()
    if seen is None:
        return
    for edit in refusal.diagnostic.edits:
        span, whole = edit.span, refusal.directive.span
        if whole.start <= span.start and span.end <= whole.end:
            text = whole.source.text
            yield refusal.here(text[whole.start : span.start] + edit.text + text[span.end : whole.end])
    if refusal.diagnostic.code in ("S0101", "S0102"):
        yield from _as_meant(refusal, seen)
    tried = _BY_CODE.get(refusal.diagnostic.code)
    if tried is not None:
        yield from tried(refusal, seen)


def _as_meant(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield what another tool's line says here, of each tensor where it names none."""
    span = refusal.directive.span
    lines = written_here(span.source.text[span.start : span.end]) if span.end else ()
    tensors = _results(seen) if any(TENSOR in line for line in lines) else [TENSOR] if lines else []
    yield from (refusal.here(*(line.replace(TENSOR, written(tensor)) for line in lines)) for tensor in tensors)


def _names(refusal: Refusal) -> list[str]:
    return [o.name for o in refusal.directive.operands if isinstance(o, syntax.Id)]


def _spoken(directive: syntax.Directive) -> list[str]:
    """Return the names that a directive has as operands, those of its phrases among them."""
    operands = (*directive.operands, *(o for p in directive.phrases for o in p.operands))
    return [o.name for o in operands if isinstance(o, syntax.Id)]


def _loops(seen: Outline) -> list[str]:
    return [loop for loops in seen.loops.values() for loop in loops]


def _results(seen: Outline) -> list[str]:
    return [t.name for d in seen.program.definitions for t in d.tensors]


def _fresh(seen: Outline, base: str, taken: frozenset[str] = frozenset()) -> str:
    used = {last_part(loop) for loop in _loops(seen)} | taken
    return next(name for name in (base, *(f"{base}{n}" for n in range(2, 100))) if name not in used)


# ---------------------------------------------------------------- names


def _no_loop(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive after those that make its loops, or about loops that are there, those with a similar name first."""
    loops = _loops(seen)
    called = {*loops, *(last_part(loop) for loop in loops)}
    spoken = _spoken(refusal.directive)
    missing = [name for name in spoken if name not in called and name not in _results(seen)]
    later = [k for k, d in enumerate(refusal.schedule.directives) if k > refusal.at and {*d.results} & {*map(last_part, missing)}]
    if later:
        yield Replacement(refusal.at, (refusal.text,), after=len(refusal.schedule.directives) - 1)
        yield from (Replacement(refusal.at, (refusal.text,), after=k) for k in later)
        texts = [show(d) for d in refusal.schedule.directives]
        between = {k: tuple(range(refusal.at + 1, k)) for k in later}
        yield from (Replacement(refusal.at, tuple(texts[refusal.at : k]), after=k, besides=between[k]) for k in later if between[k])
    for name in missing[:1]:
        yield from _own_loop(refusal, seen, name)
        yield from _made_alike(refusal, name)
        near = get_close_matches(name, loops, 3, 0.5)
        parts = [loop for loop in loops if last_part(loop).startswith(name)]
        for loop in dict.fromkeys((*parts, *near)):
            if loop not in spoken:
                yield refusal.here(refusal.renamed(name, written(loop)))


def _of_several(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive with the full names of loops of one tensor, of that first which has most of the loops that it names."""
    spoken = dict.fromkeys(_spoken(refusal.directive))
    own = {stage: {last_part(loop): loop for loop in loops} for stage, loops in seen.loops.items()}
    unsure = [name for name in spoken if sum(name in loops for loops in own.values()) > 1]
    for loops in sorted(own.values(), key=lambda loops: -sum(name in loops for name in spoken)):
        full_names = {name: written(loops[name]) for name in unsure if name in loops}
        if full_names:
            yield refusal.here(refusal.renamed_all(full_names))


def _made_alike(refusal: Refusal, name: str) -> Iterator[Replacement]:
    """Yield what made a loop of that name of another tensor's, said of this one, and the directive."""
    owner, last = name.removesuffix(f".{last_part(name)}"), last_part(name)
    for d in refusal.schedule.directives[: refusal.at] if owner != name else ():
        if last in d.results and len(d.operands) == 1 and isinstance(d.operands[0], syntax.Id):
            own = syntax.Id(full(owner, last_part(d.operands[0].name)))
            yield refusal.here(show(replace(d, operands=(own,))), refusal.text)


def _own_loop(refusal: Refusal, seen: Outline, name: str) -> Iterator[Replacement]:
    """Yield a loop of its own for a statement, and the directive about that: `vectorize c.acc.j` is about the sum alone."""
    last = last_part(name)
    whose = name.removesuffix(last).removesuffix(".")
    for stage, statements in seen.statements.items():
        rest = whose.removeprefix(f"{stage}.")
        if {whose, f"{stage}.0.{rest}"} & {*statements} and full(stage, last) in seen.loops[stage]:
            own = written(_fresh(seen, f"{last}_{last_part(rest)}" if rest else last))
            yield refusal.here(f"distribute {written(whose)} at {written(full(stage, last))} -> {own}", refusal.renamed(name, own))


def _no_tensor(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive about tensors that are there; what is read is copied, and not computed, in a loop."""
    known = _results(seen)
    reads = [p.name for p in seen.program.params]
    heads = [o.name for o in refusal.directive.operands if isinstance(o, syntax.Apply | syntax.Id)]
    for name in heads[:1]:
        if name in reads and refusal.directive.name == "at":
            yield refusal.here(f"pack{refusal.text.removeprefix('at')}")
        only = known if len(known) == 1 else []
        for other in dict.fromkeys((*get_close_matches(name, [*known, *reads], 3, 0.5), *only)):
            if other != name:
                yield refusal.here(refusal.renamed(name, written(other)))


def _taken(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive with names of loops that nobody has."""
    d = refusal.directive
    own = [_fresh(seen, name, frozenset(d.results[:k])) for k, name in enumerate(d.results)]
    yield refusal.here(show(replace(d, results=tuple(own))))


def _unreadable(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive with as many names and numbers as it needs."""
    d = refusal.directive
    if d.results and "->" not in phrases_of(d.name):
        yield refusal.here(show(replace(d, results=())))
    yield from _completed_names(refusal, seen)
    for p in d.phrases:
        for operand in p.operands if p.preposition in ("by", "to") else ():
            if not isinstance(operand, syntax.TupleOf):
                for count in _COUNTS if d.name == "peel" else reversed(_COUNTS):
                    again = tuple(replace(q, operands=(syntax.Number(str(count)),)) if q is p else q for q in d.phrases)
                    yield refusal.here(show(replace(d, phrases=again)))
    if d.name == "skew":
        own = next((s for s, loops in seen.loops.items() for x in loops if {x, x.removeprefix(f"{s}.")} & {*_names(refusal)}), None)
        for other in seen.loops.get(own or "", ()):
            yield refusal.here(f"skew {listed(_names(refusal))} by {written(other)}")
    if d.name in ("pack", "layout", "cache"):
        yield from _rearranged(refusal, seen)
    if d.name == "together":
        yield refusal.here(f"together {listed(_names(refusal))} -> {', '.join(_shared_names(refusal, seen, 1))}")


def _completed_names(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive with names for all loops that it makes."""
    d = refusal.directive
    match d.name:
        case "split":
            bases = [f"{last_part(name)}{letter}" for name in _names(refusal)[:1] for letter in "oi"]
        case "tile":
            args = [a.name for o in d.operands if isinstance(o, syntax.Apply) for a in o.args if isinstance(a, syntax.Id)]
            bases = [f"{last_part(name)}{letter}" for letter in "oi" for name in args]
        case "together":
            bases = _shared_names(refusal, seen, 9)
        case "fuse":
            bases = ["".join(last_part(name) for name in _names(refusal))]
        case _:
            return
    results: list[str] = []
    for k, base in enumerate(bases):
        given = d.results[k : k + 1]
        fresh = base if d.name == "together" else _fresh(seen, base, frozenset((*results, *d.results)))
        results.append(given[0] if given and given[0] not in results else fresh)
    yield refusal.here(show(replace(d, results=tuple(results))))


def _shared_names(refusal: Refusal, seen: Outline, most: int) -> list[str]:
    """Return names for the loops that the tensors can share: those of the first of them."""
    stages = [seen.loops[name] for name in _names(refusal) if name in seen.loops]
    count = min([most, *map(len, stages)], default=0)
    first = next((name for name in _names(refusal) if name in seen.loops), "")
    return [written(loop.removeprefix(f"{first}.")) for loop in seen.loops.get(first, ())[:count]]


def _rearranged(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield a copy of the tensor as it is, and in the order of the axes that are known of it."""
    d = refusal.directive
    kept = tuple(p for p in d.phrases if p.preposition != "as")
    yield refusal.here(show(replace(d, phrases=kept)))
    if any(p.preposition == "in" for p in d.phrases):
        for place in ("shared", "registers"):
            again = tuple(replace(p, operands=(syntax.Id(place),)) if p.preposition == "in" else p for p in d.phrases)
            yield refusal.here(show(replace(d, phrases=again)))
        yield refusal.here(show(replace(d, phrases=tuple(p for p in d.phrases if p.preposition != "with"))))
        for count in (32, 64, 128):
            swizzled = syntax.Phrase("with", (syntax.Apply("swizzle", (syntax.Number(str(count)),)),))
            yield refusal.here(show(replace(d, phrases=(*(p for p in d.phrases if p.preposition != "with"), swizzled))))


def _unknown_directive(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    meant = directive_called(refusal.directive.name, ("vectorize", "unroll", "parallel", "order", "split", "fuse", "at", "inline", "root"))
    if meant is not None:
        again = replace(refusal.directive, name=meant)
        yield refusal.here(show(again))
        yield from _split_first(replace(refusal, schedule=_with(refusal, again)), seen)


def _with(refusal: Refusal, directive: syntax.Directive) -> Schedule:
    directives = list(refusal.schedule.directives)
    directives[refusal.at] = directive
    return replace(refusal.schedule, directives=tuple(directives))


# ---------------------------------------------------------------- loops


def _split_first(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield a split of the loop, and the directive about the inner part."""
    names = _names(refusal)
    for name in names:
        loop = next((x for x in _loops(seen) if name in (x, last_part(x))), None)
        if loop is None:
            continue
        base = last_part(loop)
        outer, inner = _fresh(seen, f"{base}o"), _fresh(seen, f"{base}i")
        others = tuple(syntax.Id(n) for n in names if n != name)
        about = show(replace(refusal.directive, operands=(*others, syntax.Id(inner))))
        for width in (16, WIDTH, 4):
            yield refusal.here(f"split {written(name)} by {width} -> {written(outer)}, {written(inner)}", about)


def _adjacent_first(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield an order that puts loops inside each other, and the directive; then other pairs of loops."""
    names = _names(refusal)
    if len(names) == 2:
        yield refusal.here(f"order {listed(names)}", refusal.text)
        stage = next((s for s, loops in seen.loops.items() if {names[0], full(s, names[0])} & {*loops}), "")
        between = [x for x in seen.loops.get(stage, ()) if x.removeprefix(f"{stage}.") not in names and x not in names]
        for other in between:
            yield refusal.here(f"order {listed(names)}, {written(other)}", refusal.text)
        free = [x for x in seen.loops.get(stage, ()) if x not in seen.reductions]
        for first, second in pairwise(free):
            fused = _fresh(seen, "".join(x.removeprefix(f"{stage}.") for x in (first, second)))
            yield refusal.here(f"fuse {written(first)}, {written(second)} -> {written(fused)}")
    yield from _not_possible(refusal, seen)


def _not_possible(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield maps and merges of loops that are possible: both loops of a map kept, an inner loop split before it is merged."""
    d = refusal.directive
    match d:
        case syntax.Directive(name="affine", operands=(syntax.Apply(tensor, args),), results=results) if len(results) == len(args) == 1:
            for loop in seen.loops.get(tensor, ()):
                local = loop.removeprefix(f"{tensor}.")
                kept = _fresh(seen, f"{local}s", frozenset(results))
                whole = show(args[0])
                yield refusal.here(f"affine {written(tensor)} ({whole}, {written(local)}) -> {written(results[0])}, {written(kept)}")
        case syntax.Directive(name="fuse", results=(result,)) if len(_names(refusal)) == 2:
            outer, inner = _names(refusal)
            base = last_part(inner)
            o, i = _fresh(seen, f"{base}o"), _fresh(seen, f"{base}i")
            split = f"split {written(inner)} by {WIDTH} -> {o}, {i}"
            yield refusal.here(split, f"order {o}, {written(outer)}", f"fuse {written(outer)}, {i} -> {written(result)}")
        case _:
            pass


def _stages_apart(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield what makes several stages one where a directive takes their loops for those of one; fewer loops, loops of one stage."""
    names = _names(refusal)
    owners = {n: next((s for s, loops in seen.loops.items() if n in loops or full(s, n) in loops), None) for n in names}
    stages = [s for s in dict.fromkeys(owners.values()) if s is not None]
    if refusal.directive.name == "order" and len(stages) == 2:
        local = [last_part(n) for n in names]
        yield from (refusal.here(f"together {listed(pair)} -> {written(local[0])}") for pair in (stages, stages[::-1]))
    if refusal.directive.name == "together":
        shared = _shared_names(refusal, seen, len(refusal.directive.results) - 1)
        if shared:
            yield refusal.here(f"together {listed(names)} -> {', '.join(shared)}")
    if refusal.directive.name == "trim":
        readers = [d.tensors[0].name for d in seen.program.definitions if set(stages) & set(definition_reads(d))]
        yield from (refusal.here(f"trim {written(x)}") for r in readers for x in seen.loops.get(r, ()))


# ---------------------------------------------------------------- places


def _placed(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield places in loops of who reads a tensor, and what has to be computed at the root first."""
    names, d = _names(refusal), refusal.directive
    if d.name == "at" and names:
        over = [o.name for p in d.phrases if p.preposition == "at" for o in p.operands if isinstance(o, syntax.Id)]
        stage = next((s for s, loops in seen.loops.items() if over and (over[0] in loops or full(s, over[0]) in loops)), None)
        for made in (names[0], *(s for s in (stage,) if s is not None and s != names[0])):
            readers = [x.tensors[0].name for x in seen.program.definitions if made in definition_reads(x) and x.tensors[0].name != made]
            yield from (refusal.here(f"at {written(r)} at {written(x)}", refusal.text) for x in over for r in readers if r != stage)
            yield from (refusal.here(f"at {written(made)} at {written(x)}") for r in readers for x in seen.loops.get(r, ()))
    if d.name == "pack":
        yield refusal.here(show(replace(d, phrases=tuple(p for p in d.phrases if p.preposition != "at"))))
    if d.name in ("together", "peel", "cut"):
        yield from (refusal.here(f"root {written(s)}", refusal.text) for s in seen.loops)


def _inlined(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield computing a tensor where it is read, which inlining is not possible for."""
    for name in _names(refusal):
        readers = [x.tensors[0].name for x in seen.program.definitions if name in definition_reads(x)]
        yield from (refusal.here(f"at {written(name)} at {written(x)}") for r in readers for x in reversed(seen.loops.get(r, ())))


def _summed(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive about ranges of sums."""
    for name in _names(refusal)[:1]:
        for binder in dict.fromkeys(
            b.name for d in seen.program.definitions for p in d.pieces for r in reduces(p.value) for b in r.binders
        ):
            yield refusal.here(refusal.renamed(name, written(binder)))


def _folded(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the layout with what is to be folded, folds along other axes, and folds of tensors that no caller sees."""
    yield from _folded_layout(refusal)
    for name in _names(refusal)[:1]:
        inner = [d for d in seen.program.definitions for t in d.tensors if t.name not in seen.program.results]
        for d in sorted(inner, key=lambda d: name not in {t.name for t in d.tensors}):
            tensor = d.tensors[0].name
            yield from (refusal.here(f"fold {written(tensor)} at {written(a)} by {n}") for a in d.axes for n in (*_COUNTS, 3))


def _folded_layout(refusal: Refusal) -> Iterator[Replacement]:
    """Yield the layout that the tensor has, with the axis modulo the count."""
    match refusal.directive.operands, refusal.directive.phrases:
        case (syntax.Id(tensor),), (syntax.Phrase("at", (syntax.Id(axis),)), syntax.Phrase("by", (count,))):
            for k, d in enumerate(refusal.schedule.directives[: refusal.at]):
                if d.name == "layout" and d.operands == (syntax.Id(tensor),):
                    folded = re.sub(rf"(?<=\[| ){re.escape(axis)}(?=,|\])", f"{axis} % {show(count)}", show(d))
                    yield Replacement(refusal.at, (folded,), besides=(k,))
        case _:
            pass


def _copied(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield a copy in the layout that the caller's tensor does not have."""
    if refusal.directive.name == "layout":
        yield refusal.here(f"pack{refusal.text.removeprefix('layout')}")


def _stored(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield places for a tensor that are around all that touches it, the innermost first."""
    for name in _names(refusal)[:1]:
        yield from (refusal.here(f"store_at {written(name)} at {written(x)}") for x in reversed(_loops(seen)))


def _prefetched(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield asking ahead in other loops, and of a tensor that is kept outside of the loop."""
    for name in _names(refusal)[:1]:
        over = [o.name for p in refusal.directive.phrases if p.preposition == "at" for o in p.operands if isinstance(o, syntax.Id)]
        for loop in over:
            yield from (refusal.here(refusal.renamed(loop, written(x))) for x in _loops(seen) if last_part(x) != loop)
        yield refusal.here(f"store_at {written(name)} at root", refusal.text)


def _staged(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield a copy for the loop to run ahead of, and other loops."""
    reads = [p.name for p in seen.program.params]
    for name in _names(refusal)[:1]:
        yield from (refusal.here(f"pack {written(tensor)} at {written(name)}", refusal.text) for tensor in reads)
        yield from (refusal.here(refusal.renamed(name, written(x))) for x in _loops(seen))


def _changed_or_said_again(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    yield from _marked_too_soon(refusal, seen)
    yield from _at_the_end(refusal, seen)


def _marked_too_soon(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive, and behind it what is said before it of how its loop runs, about a loop that it makes: of lanes and of what is
    written out the inner ones first."""
    directives, made = refusal.schedule.directives, refusal.directive.results
    for name in _spoken(refusal.directive) if made else ():
        for k in range(refusal.at):
            if directives[k].name in ("parallel", "vectorize", "unroll") and name in _names(replace(refusal, at=k)):
                for loop in made if directives[k].name == "parallel" else reversed(made):
                    said = replace(refusal, at=k).renamed(name, written(loop))
                    yield Replacement(refusal.at, (refusal.text, said), besides=(k,))


def _at_the_end(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield the directive after those that change its loop, about what the loop has become, together with those that say the same of other
    tensors: how a loop runs is about the outer one of two, what is computed in each of its iterations about the inner one."""
    directives = refusal.schedule.directives
    end = len(directives)
    whole = replace(refusal, at=end).before()
    for name in _spoken(refusal.directive):
        stages = [s for s, loops in seen.loops.items() if any(name in (x, last_part(x)) for x in loops)]
        made = [x for s in stages for x in (whole or seen).loops.get(s, ()) if x not in seen.loops[s]]
        if name not in _names(refusal):
            made.reverse()
        made.sort(key=lambda x: not last_part(x).startswith(last_part(name)))
        alike = [k for k in range(refusal.at + 1, end) if directives[k].name == refusal.directive.name and name in _spoken(directives[k])]
        for loop in (name, *made):
            lines = [replace(refusal, at=k).renamed(name, written(loop)) for k in (refusal.at, *alike)]
            yield Replacement(refusal.at, tuple(lines), after=end - 1, besides=tuple(alike))


def _instructed(refusal: Refusal, seen: Outline) -> Iterator[Replacement]:
    """Yield loops of the lengths that an instruction has, and operands in the order in which it takes them."""
    loops = [next((x for x in _loops(seen) if name in (x, last_part(x))), name) for name in _names(refusal)]
    for widths in ((16, 2), (16, 4), (8, 2), (8, 4), (4, 2), (4, 4)) if len(loops) == 2 else ():
        lines: list[str] = []
        inner: list[str] = []
        for loop, width in zip(loops, widths, strict=True):
            base = last_part(loop)
            if seen.extents.get(loop) == width:
                inner.append(loop)
                continue
            o, i = _fresh(seen, f"{base}o"), _fresh(seen, f"{base}i")
            lines.append(f"split {written(loop)} by {width} -> {written(o)}, {written(i)}")
            inner.append(i)
        about = show(replace(refusal.directive, operands=tuple(map(syntax.Id, inner))))
        stage = loops[0].removesuffix(f".{last_part(loops[0])}")
        outer = [x for x in seen.loops.get(stage, ()) if x not in loops]
        order = [*outer, *(o.split(" -> ")[1].split(",")[0] for o in lines), *inner]
        yield refusal.here(*lines, f"order {listed(order)}", about)


_BY_CODE: dict[str, Callable[[Refusal, Outline], Iterator[Replacement]]] = {
    "S0101": _unknown_directive,
    "S0102": _unreadable,
    "S0103": _no_loop,
    "S0104": _of_several,
    "S0105": _no_tensor,
    "S0106": _taken,
    "S0201": _not_possible,
    "S0202": _inlined,
    "S0204": _summed,
    "S0205": _stages_apart,
    "S0206": _adjacent_first,
    "S0207": _split_first,
    "S0208": _placed,
    "S0209": _folded,
    "S0211": _placed,
    "S0212": _copied,
    "S0213": _changed_or_said_again,
    "S0214": _stored,
    "S0215": _instructed,
    "S0217": _prefetched,
    "S0218": _staged,
}
"""Code of a refusal → what may cure it."""

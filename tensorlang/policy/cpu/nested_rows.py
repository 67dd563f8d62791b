"""Rows in rows: a tensor of which rows are read where rows of another are made is kept for one row, which the first-level cache holds.

    u[i, j] = sum(p) x[i + p, j]                             together m, y -> i, j
    m[i, j] = sum(q) u[i, j + q]                      →      together u, w -> i, j
    w[i, j] = sum(p) x[i + p, j] * x[i + p, j]               at u at m.i
    y[i, j] = m[i, j] * m[i, j] - sum(q) w[i, j + q]

What several tensors need at their own points shares its loops first (`loop_fusion`); rows of what is left are read where they are made, or
by windows over several, in strips (`strips`). A chain of maps and windows is computed so where less of it is stored than otherwise: whole,
or in rows and strips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from polyhedral import affine
from tensorlang.policy.cpu.loop_fusion import fused, gathered, named_after, points_alone
from tensorlang.policy.cpu.strips import Reach, Strip, is_windowed, joined, sized, span_of
from tensorlang.policy.deriver import Deriver, bytes_of
from tensorlang.policy.groups import FusionGroup, agreement
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import readers
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import components, definition_reads


def shared_strips(d: Deriver, groups: Sequence[FusionGroup]) -> list[Strip]:
    """Return the strips of groups with those joined that may share a loop nest, and rows in rows where less is stored so."""
    found = fused(d, groups)
    if d.plain or d.open_extents:
        return found
    for chain in [*_chains(d, found)]:
        nested = _nested(d, chain)
        if _stored(d, nested) < _stored(d, chain):
            found = _in_order(d, [*(s for s in found if not any(s is c for c in chain)), *nested])
    return found


def _in_order(d: Deriver, found: Sequence[Strip]) -> list[Strip]:
    """Return strips in the order in which the last tensors of each are computed."""
    order = {t.name: k for k, x in enumerate(x for group in components(d.program) for x in group) for t in x.tensors}
    return sorted(found, key=lambda s: max(order[m.tensors[0].name] for m in s.group.members))


def _members(strips: Sequence[Strip]) -> list[Definition]:
    return [m for s in strips for g in (*s.inside, s.group) for m in g.members]


def _chains(d: Deriver, found: Sequence[Strip]) -> Iterator[list[Strip]]:
    """Yield the strips that read one another, of maps and windows alone: several tensors that no near cache holds together."""
    plain = [s for s in found if s.row == 0 and all(_has_rows(d, m) for m in _members([s])) and not _has_other_loops(d, s)]
    chains: list[list[Strip]] = []
    for strip in plain:
        names = {t.name for m in _members([strip]) for t in m.tensors}
        read = {n for m in _members([strip]) for n in definition_reads(m)}
        touching = [c for c in chains if any(m.tensors[0].name in read or names & definition_reads(m) for m in _members(c))]
        chains = [*(c for c in chains if c not in touching), [*(s for c in touching for s in c), strip]]
    for chain in chains:
        local = [m.tensors[0].name for m in _members(chain) if m.tensors[0].name not in d.program.results]
        if local and bytes_of(d, local) > d.machine.l2_bytes:
            yield chain


def _has_rows(d: Deriver, definition: Definition) -> bool:
    """Tell whether an equation makes the rows of one tensor, one after the other."""
    return len(definition.tensors) == 1 and len(definition.axes) > 1 and is_windowed(d, definition, 0, 0)


def _has_other_loops(d: Deriver, strip: Strip) -> bool:
    groups = (*strip.inside, strip.group)
    unlike = any(g.transformed is not None or g.online is not None or g.joint or g.asked for g in groups)
    return unlike or any(m.tensors[0].name in d.layouts or m.tensors[0].name in d.separate for m in _members([strip]))


def _nested(d: Deriver, chain: Sequence[Strip]) -> list[Strip]:
    """Return the tensors of some strips in others, of rows in rows."""
    cut = replace(d, cut=0)
    members = {id(m) for m in _members(chain)}
    apart = [Strip(FusionGroup(x, (x,), len(x.axes))) for group in components(d.program) for x in group if id(x) in members]
    groups = _behind_what_they_read([s.group for s in gathered(cut, apart)])
    found: list[Strip] = []
    taken: set[int] = set()
    for k, group in reversed([*enumerate(groups)]):
        if id(group) not in taken:
            strip = _strip(d, group, groups[:k])
            taken |= {id(g) for g in strip.inside}
            found.append(strip)
    return found[::-1]


def _behind_what_they_read(groups: Sequence[FusionGroup]) -> list[FusionGroup]:
    made = {id(g): {t.name for m in g.members for t in m.tensors} for g in groups}
    reads = {id(g): {n for m in g.members for n in definition_reads(m)} for g in groups}
    found: list[FusionGroup] = []
    left = [*groups]
    while left:
        ready = next(g for g in left if not any(reads[id(g)] & made[id(x)] for x in left if x is not g))
        found.append(ready)
        left = [g for g in left if g is not ready]
    return found


def _strip(d: Deriver, group: FusionGroup, before: Sequence[FusionGroup]) -> Strip:
    """Return a strip of a group that has as many of those before it inside as a near cache holds of rows."""
    readers_of = readers(d.program)
    inside: list[FusionGroup] = []
    reach = {m.tensors[0].name: Reach() for m in group.members}
    hosts: dict[int, FusionGroup] = {}
    for made in reversed(before):
        names = {m.tensors[0].name for m in made.members}
        outside = {n: {*readers_of.get(n, ())} - names for n in names}
        if names & {*d.program.results} or not any(outside.values()) or not set().union(*outside.values()) <= reach.keys():
            continue
        if not _has_one_shape(made):
            continue
        whole = joined([span_of(d, n, reach, 0) for n in names if outside[n]])
        if whole is None:
            continue
        host = _host(made, outside, (group, *inside), hosts)
        hosts |= {} if host is None else {id(made): host}
        inside.append(made)
        reach |= {m.tensors[0].name: whole for m in made.members}
    loops = {id(g): full(named_after(g).tensors[0].name, named_after(g).axes[0]) for g in hosts.values()}
    rows_of = {named_after(g).tensors[0].name: loops[id(hosts[id(g)])] for g in inside if id(g) in hosts}
    return _fitting(d, Strip(group, tuple(reversed(inside)), reach=reach, rows_of=rows_of))


def _has_one_shape(group: FusionGroup) -> bool:
    """Tell whether the same rows of all members are needed, as where they are computed inside of other loops."""
    shape = named_after(group).tensors[0].shape
    return all(affine.same(x, y) for m in group.members for x, y in zip(m.tensors[0].shape, shape, strict=False))


def _host(
    made: FusionGroup, outside: Mapping[str, Set[str]], groups: Sequence[FusionGroup], hosts: Mapping[int, FusionGroup]
) -> FusionGroup | None:
    """Return the group in whose rows, of as many, all that read what another makes are computed, each row where they make their own; None
    where there is none. `hosts`: the groups, by their identity, in whose rows others are computed."""
    pairs = [(g, m, x) for g in groups for m in g.members for x in made.members if m.tensors[0].name in outside[x.tensors[0].name]]
    rows = made.head.tensors[0].shape[0]
    members = (*made.members, *(m for g in {id(g): g for g, _, _ in pairs}.values() for m in g.members))
    if any(agreement(m, x) < 1 for _, m, x in pairs) or not all(affine.same(m.tensors[0].shape[0], rows) for m in members):
        return None
    first, *others = [_around(g, hosts) for g in {id(g): g for g, _, _ in pairs}.values()]
    return next((g for g in first if all(any(g is x for x in chain) for chain in others)), None)


def _around(group: FusionGroup, hosts: Mapping[int, FusionGroup]) -> list[FusionGroup]:
    """Return a group and those in whose rows it is computed."""
    found = [group]
    while id(found[-1]) in hosts:
        found.append(hosts[id(found[-1])])
    return found


def _fitting(d: Deriver, strip: Strip) -> Strip:
    """Return a strip without the tensors, from the first on, for whose rows no near cache has room."""
    while strip.inside:
        heads = [named_after(g).tensors[0].name for g in strip.inside]
        if all(name in strip.rows_of for name in heads):
            return strip
        found = sized(d, strip, points_alone(d, (*strip.inside, strip.group)))
        if found.rows:
            return found
        gone, *inside = strip.inside
        names = {m.tensors[0].name for m in gone.members}
        reach = {n: r for n, r in strip.reach.items() if n not in names}
        rows_of = {n: loop for n, loop in strip.rows_of.items() if n not in names}
        strip = replace(strip, inside=tuple(inside), reach=reach, rows_of=rows_of)
    return Strip(strip.group)


def _stored(d: Deriver, strips: Sequence[Strip]) -> tuple[int, int, int]:
    """Return the bytes of tensors that are stored whole, no results, and of those that are stored in rows and strips, and how many loop
    nests there are."""
    whole = near = nests = 0
    for strip in strips:
        groups = (*strip.inside, strip.group)
        alone = points_alone(d, groups)
        for group in groups:
            nests += 1 if group.fused else len(group.members)
            for m in group.members:
                name = m.tensors[0].name
                if name in d.program.results or name in alone:
                    continue
                if group is not strip.group or (group.depth < len(group.head.axes) and m is not group.head and not group.fused):
                    near += bytes_of(d, (name,))
                else:
                    whole += bytes_of(d, (name,))
    return whole, near, nests

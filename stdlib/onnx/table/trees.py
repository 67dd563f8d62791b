"""Ensembles of decision trees: all nodes in a few tables, through which rows go a level of all trees at a time. Domain ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.model import Array
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.classes import ML, label_of_two, labelled, labels_of, transformed, transformed_results
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from tensorlang.graph.nodes import Value

_MODES = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5}
_MEMBER = 6
FILLED = 4
"""Trees are filled up to complete ones where that makes them no larger than so many times."""
DEEPEST = 1 << 12
"""Trees of more levels are refused."""
STAGES = 4
"""Trees of different depths are gone through in at most so many lists, each as many levels down as its deepest tree has."""
LEAST_TREES = 16
"""So many trees make a list of their own."""
MOST_ENDS = 32
"""Of so many places where lists may end, as far apart as each other, the best are chosen."""
MORE_LEVELS = 1.1
"""So many times as many levels as can be had are gone through where that takes fewer lists."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Nodes of all trees by number: which feature is compared with which value, how (`_MODES`; -1 at a leaf), where rows go for which that
    holds and where others, and whether NaN goes with those. `weights[node, target]` is what leaves hold; `roots` are the first nodes.
    Where `low` is given, "not greater" holds only of what is not less than that, either."""

    feature: Array
    value: Array
    how: Array
    yes: Array
    no: Array
    nan: Array
    weights: Array
    roots: Array
    low: Array | None = None


def _list(n: Site, name: str) -> tuple[object, ...]:
    found = n.node.attributes.get(name, ())
    return found if isinstance(found, tuple) else ()


def _numbers(n: Site, name: str, dtype: DType) -> Array:
    """Return a list attribute of floats, or the tensor that may be given in its place."""
    tensor = n.node.attributes.get(f"{name}_as_tensor")
    return tensor if isinstance(tensor, np.ndarray) and tensor.size else np.array(_list(n, name), dtype.numpy)


def _forest_of_lists(n: Site, kind: str, targets: int, dtype: DType, absent: float = 0.0) -> Forest:
    """Return the trees of versions 1 to 4: nodes by the numbers of their tree and their own. `absent` is held for other targets. What a
    leaf holds for a target several times is brought together as leaves are, but of a single target's the first counts, as in
    onnxruntime."""
    trees, ids = (np.array(_list(n, f"nodes_{name}"), np.int64) for name in ("treeids", "nodeids"))
    count = len(trees)
    modes = [str(mode) for mode in _list(n, "nodes_modes")]
    feature = np.array(_list(n, "nodes_featureids"), np.int64)
    children = [np.array(_list(n, f"nodes_{name}"), np.int64) for name in ("truenodeids", "falsenodeids")]
    value = _numbers(n, "nodes_values", dtype)
    missing = np.array(_list(n, "nodes_missing_value_tracks_true") or (0,) * count, np.bool_)
    lengths = [len(ids), len(modes), *(len(one) for one in (feature, *children, value, missing))]
    if not count or any(length != count for length in lengths):
        raise n.wrong(f"lists of {', '.join(map(str, lengths))} elements for {count} nodes")
    if any(mode not in _MODES and mode != "LEAF" for mode in modes):
        raise n.wrong(f"nodes of the mode {next(m for m in modes if m not in _MODES and m != 'LEAF')!r}")
    number = {pair: k for k, pair in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    if len(number) != count:
        raise n.wrong("two nodes of a tree have one number")
    how = np.array([_MODES.get(mode, -1) for mode in modes], np.int64)

    def numbered(of: Sequence[int], nodes: Array, what: str) -> Array:
        found = [number.get((t, k), -1) for t, k in zip(of, nodes.tolist(), strict=True)]
        if min(found, default=0) < 0:
            raise n.wrong(f"{what} are no nodes of their trees")
        return np.array(found, np.int64)

    inner = how >= 0
    yes, no = np.arange(count), np.arange(count)
    for table, given in ((yes, children[0]), (no, children[1])):
        table[inner] = numbered(trees[inner].tolist(), given[inner], "children")
    weights = np.full((count, targets), absent, dtype.numpy)
    held = [np.array(_list(n, f"{kind}_{name}"), np.int64) for name in ("treeids", "nodeids", "ids")]
    amounts = _numbers(n, f"{kind}_weights", dtype)
    if any(len(one) != len(amounts) for one in held):
        raise n.wrong(f"{len(amounts)} weights for {len(held[0])} leaves")
    if len(amounts) and not 0 <= held[2].min() <= held[2].max() < targets:
        raise n.wrong(f"weights for the results {held[2].min()} to {held[2].max()} of {targets}")
    node, target = numbered(held[0].tolist(), held[1], "leaves"), held[2]
    counted = np.unique(node, return_index=True)[1] if targets == 1 else np.arange(len(amounts))
    together = {np.inf: np.minimum, -np.inf: np.maximum}.get(absent, np.add)
    together.at(weights, (node[counted], target[counted]), amounts[counted])
    child = np.zeros(count, np.bool_)
    child[yes[inner]] = child[no[inner]] = True
    return Forest(feature, value, how, yes, no, missing, weights, np.flatnonzero(~child))


def _depths(n: Site, forest: Forest) -> Array:
    """Return for each tree how many nodes that are no leaves a way has at most."""
    level, of, depths = forest.roots, np.arange(len(forest.roots)), np.zeros(len(forest.roots), np.int64)
    while True:
        inner = forest.how[level] >= 0
        level, of = level[inner], of[inner]
        if not level.size:
            return depths
        depths[of] += 1
        if depths.max() > DEEPEST or level.size > 2 * len(forest.how):
            raise n.wrong(f"trees of more than {DEEPEST} levels, or with nodes of several parents")
        level, of = np.concatenate([forest.yes[level], forest.no[level]]), np.concatenate([of, of])


def stages(depths: Array, least: int) -> list[tuple[int, int]]:
    """Return from where to where trees of these depths, the deepest first, are gone through together: in few lists of so many or more, and
    of few levels in all."""
    count = len(depths)
    ends = [k for k in range(least, count - least + 1) if depths[k] < depths[k - 1]]
    ends = ends[:: -(-len(ends) // MOST_ENDS) or 1]

    def cut(at: Sequence[int]) -> list[tuple[int, int]]:
        return list(pairwise((0, *at, count)))

    def levels(at: Sequence[int]) -> int:
        return sum((stop - start) * int(depths[start]) for start, stop in cut(at))

    def suits(at: Sequence[int]) -> bool:
        return all(stop - start >= least for start, stop in cut(at))

    best = [min(filter(suits, combinations(ends, k)), key=levels, default=()) for k in range(STAGES)]
    return cut(next(at for at in best if levels(at) <= MORE_LEVELS * min(map(levels, best))))


def _plain(forest: Forest, features: int) -> Forest | None:
    """Return the trees with nothing but "not greater", which holds of no NaN. Where NaN goes with those for which a condition holds, the
    opposite is asked, of the children in turn. Less than a number is not greater than the one before it, than the least no number is; what
    is asked of x from below is asked of -x, which stands behind x; and equal is neither greater nor less. None where NaN goes with one
    number, or with what is compared with NaN."""
    inner = forest.how >= 0
    if np.any(inner & forest.nan & ((forest.how == 4) | np.isnan(forest.value))):
        return None
    opposite = inner & forest.nan & (forest.how <= 3)
    how, exchanged = np.where(opposite, 3 - forest.how, forest.how), opposite | (forest.how == 5)
    negative, strict, equal = inner & ((how == 2) | (how == 3)), inner & ((how == 1) | (how == 3)), inner & (how >= 4)
    value = np.where(negative, -forest.value, forest.value)
    least = value.dtype.type(-np.inf)
    value = np.where(strict, np.where(value == least, value.dtype.type(np.nan), np.nextafter(value, least)), value)
    return replace(
        forest,
        feature=np.where(negative, forest.feature + features, forest.feature),
        value=value,
        how=np.where(inner, 0, -1),
        yes=np.where(exchanged, forest.no, forest.yes),
        no=np.where(exchanged, forest.yes, forest.no),
        nan=np.zeros_like(forest.nan),
        low=np.where(equal, value, least) if np.any(equal) else None,
    )


def _neighbours(forest: Forest) -> tuple[Forest, Array]:
    """Return the nodes by levels of all trees, the two children of each as neighbours, and for each node the first of its children: of a
    leaf the one before itself, to whose second child it leads. A child of several nodes stands beside each of its siblings."""
    order, firsts, level, start = [forest.roots], [], forest.roots, 0
    while level.size:
        inner, after = forest.how[level] >= 0, start + len(level)
        firsts.append(np.where(inner, after + 2 * np.cumsum(inner) - 2, np.arange(start, after) - 1))
        level, start = np.stack([forest.yes[level[inner]], forest.no[level[inner]]], axis=1).reshape(-1), after
        order.append(level)
    nodes = np.concatenate(order)
    inner = forest.how[nodes] >= 0
    value = np.where(inner, forest.value[nodes], forest.value.dtype.type(np.nan))
    feature, roots = np.where(inner, forest.feature[nodes], 0), np.arange(len(forest.roots))
    how, weights, low = forest.how[nodes], forest.weights[nodes], None if forest.low is None else forest.low[nodes]
    return replace(forest, feature=feature, value=value, how=how, weights=weights, roots=roots, low=low), np.concatenate(firsts)


def _completed(forest: Forest, depth: int) -> Forest:
    """Return the trees with all leaves at one level, and their weights as those of the leaves alone: below a leaf that comes before there
    are nodes to which it makes no difference."""
    level, features, values = forest.roots, [], []
    for _ in range(depth):
        inner = forest.how[level] >= 0
        features.append(np.where(inner, forest.feature[level], 0))
        values.append(np.where(inner, forest.value[level], 0))
        level = np.stack([np.where(inner, forest.yes[level], level), np.where(inner, forest.no[level], level)], axis=1).reshape(-1)
    value = np.concatenate(values).astype(forest.value.dtype)
    return replace(forest, feature=np.concatenate(features), value=value, weights=forest.weights[level])


def leaves(n: Site, x: Value, forest: Forest, groups: int) -> tuple[Value, Forest]:
    """Return the leaf that each row comes to in each tree, those of each of as large `groups` along an axis of their own in any order, and
    the trees with their nodes in the order that these are counted in."""
    inner = forest.how >= 0
    if np.any(inner & ((forest.feature < 0) | (forest.feature >= x.shape[1]))):
        raise n.wrong(f"features beyond the {x.shape[1]} that there are")
    n.small(len(forest.how), "the table of nodes")
    depths, count = _depths(n, forest).reshape(groups, -1), len(forest.roots) // groups
    depth, plain = int(depths.max()), _plain(forest, x.shape[1])
    if plain is None:
        same = np.where(inner, forest.how, 0)
        features, values, nan = _i32(n, np.where(inner, forest.feature, 0)), n.constant(forest.value), n.constant(forest.nan)
        children = [_i32(n, table) for table in (forest.yes, forest.no, forest.roots)]
        found = n.op("leaves_of_any_trees", x, features, values, _i32(n, same), nan, *children, depth=depth)
        return n.view(found, (x.shape[0], groups, count)), forest
    if np.any(plain.feature[inner] >= x.shape[1]):
        x = n.op("concat", (x, n.op("map", x, f="negate")), axis=1)
    if depth and plain.low is None and len(forest.roots) << (depth + 1) <= FILLED * len(forest.how):
        complete = _completed(plain, depth)
        complete_tables = _i32(n, complete.feature), n.constant(complete.value)
        found = n.op("leaves_of_complete_trees", x, *complete_tables, trees=len(forest.roots), depth=depth)
        return n.view(found, (x.shape[0], groups, count)), complete
    deepest_first = np.argsort(-depths, axis=1, kind="stable")
    roots = np.take_along_axis(forest.roots.reshape(groups, count), deepest_first, axis=1)
    ordered, first = _neighbours(replace(plain, roots=roots.reshape(-1)))
    bounds = () if ordered.low is None else (n.constant(ordered.low),)
    tables, roots = (_i32(n, ordered.feature), *bounds, n.constant(ordered.value), _i32(n, first)), ordered.roots.reshape(groups, count)
    op = "leaves_of_trees_between" if bounds else "leaves_of_trees"
    deepest, parts = np.take_along_axis(depths, deepest_first, axis=1).max(axis=0), []
    for start, stop in stages(deepest, max(1, LEAST_TREES // groups)):
        part = n.op(op, x, *tables, _i32(n, roots[:, start:stop].reshape(-1)), depth=int(deepest[start]))
        parts.append(n.view(part, (x.shape[0], groups, stop - start)))
    return (n.op("concat", tuple(parts), axis=2) if len(parts) > 1 else parts[0]), ordered


def _i32(n: Site, table: Array) -> Value:
    return n.constant(table.astype(np.int32))


def sums(n: Site, x: Value, forest: Forest, aggregate: str, base: Array) -> Value:
    """Return what the leaves hold together for each target."""
    targets, trees = forest.weights.shape[1], len(forest.roots)
    grouped = None if aggregate in ("MIN", "MAX") else _by_targets(forest)
    if grouped is not None:
        forest = replace(forest, roots=forest.roots[grouped])
    leaf, ordered = leaves(n, x, forest, targets if grouped is not None else 1)
    if grouped is not None:
        y = n.op("sum_of_leaves", leaf, n.constant(ordered.weights.sum(axis=1)))
    else:
        leaf = n.view(leaf, (x.shape[0], trees))
        y = n.op({"MIN": "least_of_rows", "MAX": "greatest_of_rows"}.get(aggregate, "sum_of_rows"), leaf, n.constant(ordered.weights))
    if aggregate in ("MIN", "MAX"):
        y = n.op("select", n.op("is_inf", y, positive=True, negative=True), n.filled((), y.dtype), y)
    if aggregate == "AVERAGE":
        y = n.op("div", y, n.filled((), y.dtype, trees))
    return n.op("add", y, n.constant(base.astype(y.dtype.numpy))) if base.size and np.any(base) else y


def _by_targets(forest: Forest) -> Array | None:
    """Return the trees in the order of their targets where each is for one, and as many for each; None where that is not so."""
    count, targets = forest.weights.shape
    if targets == 1:
        return np.arange(len(forest.roots))
    tree = np.full(count, -1)
    level, of = forest.roots, np.arange(len(forest.roots))
    while level.size:
        tree[level] = of
        inner = forest.how[level] >= 0
        of = np.concatenate([of[inner], of[inner]])
        level = np.concatenate([forest.yes[level[inner]], forest.no[level[inner]]])
    node, target = np.nonzero(forest.weights)
    node, target = node[tree[node] >= 0], target[tree[node] >= 0]
    least, most = np.full(len(forest.roots), targets), np.full(len(forest.roots), -1)
    np.minimum.at(least, tree[node], target)
    np.maximum.at(most, tree[node], target)
    if np.any(least != most) or np.any(np.bincount(most, minlength=targets) * targets != len(forest.roots)):
        return None
    return np.argsort(most, kind="stable")


def _rows(n: Site) -> tuple[Value, DType]:
    """Return the input as rows of floats."""
    x = n.arg(0)
    if len(x.shape) not in (1, 2):
        raise n.wrong(f"the shape {list(x.shape)} is not that of rows of features")
    rows = x if len(x.shape) == 2 else n.view(x, (1, *x.shape))
    dtype = DTYPES["f64"] if x.dtype == DTYPES["f64"] else DTYPES["f32"]
    return cast(n, rows, dtype), dtype


_AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")
_ABSENT = {"MIN": np.inf, "MAX": -np.inf}
"""What changes neither the least nor the greatest."""


def regressor(n: Site) -> Result:
    x, dtype = _rows(n)
    targets = n.integer("n_targets", 1, low=1)
    aggregate = n.text("aggregate_function", "SUM", _AGGREGATES)
    forest = _forest_of_lists(n, "target", targets, dtype, _ABSENT.get(aggregate, 0.0))
    base = _numbers(n, "base_values", dtype)
    if base.size not in (0, targets):
        raise n.wrong(f"{base.size} base values for {targets} results")
    y = sums(n, x, forest, aggregate, base)
    return cast(n, transformed_results(n, y), DTYPES["f32"])


def classifier(n: Site) -> Result:
    """The class of the greatest sum; of two classes, the second where what speaks for it is more than a limit, as in onnxruntime."""
    x, dtype = _rows(n)
    labels, ids = labels_of(n, "classlabels_int64s", "classlabels_strings"), {int(str(k)) for k in _list(n, "class_ids")}
    classes = len(labels)
    forest = _forest_of_lists(n, "class", max(classes, 1 + max(ids, default=0)), dtype)
    base, transform = _numbers(n, "base_values", dtype), n.text("post_transform", "NONE")
    if classes != forest.weights.shape[1] or base.size not in (0, 1, classes):
        raise n.wrong(f"{base.size} base values and weights for {forest.weights.shape[1]} results for {classes} classes")
    if classes == 2 and ids:
        label, scores = _of_two(n, x, forest, labels, ids, base)
    elif classes == 1 or base.size == 1:
        raise n.unsupported(f"{classes} class labels and {base.size} base values")
    else:
        label, scores = labelled(n, sums(n, x, forest, "SUM", base), labels, transform)
    return label, cast(n, scores, DTYPES["f32"])


def _of_two(n: Site, x: Value, forest: Forest, labels: Array, ids: set[int], base: Array) -> tuple[Value, Value]:
    """Return which of two classes, and the scores of both: leaves for the first alone say what speaks for the second."""
    transform, positive = n.text("post_transform", "NONE"), bool(np.all(_numbers(n, "class_weights", x.dtype) >= 0))
    above = 0.5 if positive and len(ids) == 1 else 0.0
    if base.size == 2 or (base.size and ids == {1}) or (transform == "PROBIT" and ids == {0}):
        raise n.unsupported(f"two classes, leaves for {sorted(ids)}, {base.size} base values and the transform {transform}")
    if ids == {0}:
        score = sums(n, x, replace(forest, weights=forest.weights[:, [0]]), "SUM", base)
        return labelled(n, score, labels, transform, above, share=positive)
    scores = sums(n, x, forest, "SUM", np.append(base, 0) if base.size else base)
    second = n.op("slice", scores, start=(0, 1), step=(1, 1), length=(scores.shape[0], 1))
    return label_of_two(n, second, labels, above), transformed(n, scores, transform)


def _forest_of_tensors(n: Site, dtype: DType, absent: float) -> Forest:
    """Return the trees of version 5: nodes and leaves each in a list, sets of values one after another."""

    def table(name: str) -> Array:
        found = n.node.attributes.get(name)
        return found if isinstance(found, np.ndarray) else np.array(found if isinstance(found, tuple) else (), np.int64)

    feature, modes, splits = (table(f"nodes_{name}") for name in ("featureids", "modes", "splits"))
    yes, no, yes_leaf, no_leaf = (table(f"nodes_{name}") for name in ("truenodeids", "falsenodeids", "trueleafs", "falseleafs"))
    roots, targets, weights = table("tree_roots"), table("leaf_targetids"), table("leaf_weights")
    nodes, count, total = len(modes), len(weights), n.integer("n_targets", 1, low=1)
    missing = table("nodes_missing_value_tracks_true") if n.has("nodes_missing_value_tracks_true") else np.zeros(nodes, np.int64)
    lists = (feature, splits, yes, no, yes_leaf, no_leaf, missing)
    if any(len(one) != nodes for one in lists) or len(targets) != count or not count or not len(roots):
        raise n.wrong(f"lists of {', '.join(str(len(one)) for one in lists)} elements for {nodes} nodes")
    for ids, is_leaf in ((yes, yes_leaf), (no, no_leaf)):
        if np.any((ids < 0) | (ids >= np.where(is_leaf != 0, count, nodes))):
            raise n.wrong("children that are not there")
    if np.any((roots < 0) | (roots >= nodes)) or np.any((targets < 0) | (targets >= total)) or np.any((modes < 0) | (modes > _MEMBER)):
        raise n.wrong("roots, targets or modes that are not there")
    members = iter(table("membership_values").tolist())
    extra = nodes + count
    how, value = modes.astype(np.int64), splits.astype(dtype.numpy)
    yes_all, no_all = (np.where(leaf != 0, nodes + ids, ids) for ids, leaf in ((yes, yes_leaf), (no, no_leaf)))
    links = [list(column) for column in (feature, value, how, yes_all, no_all, missing)]
    more: list[list[object]] = []
    for k in np.flatnonzero(modes == _MEMBER).tolist():
        found: list[float] = []
        for member in members:
            if np.isnan(member):
                break
            found.append(member)
        if not found:
            raise n.wrong("a node asks for a member of no set")
        target, otherwise = links[3][k], links[4][k]
        chain = [k, *range(extra + len(more), extra + len(more) + len(found) - 1)]
        for place, member in enumerate(found):
            after = chain[place + 1] if place + 1 < len(chain) else otherwise
            row: list[object] = [links[0][k], member, _MODES["BRANCH_EQ"], target, after, links[5][k]]
            if place:
                more.append(row)
            else:
                for column, item in zip(links, row, strict=True):
                    column[k] = item
    leaves_ = np.arange(nodes, nodes + count)
    rest = [np.array([row[c] for row in more]) for c in range(6)]
    zero = np.zeros(count)
    columns = [
        np.concatenate([np.array(column, np.float64), middle, np.array(end, np.float64)])
        for column, middle, end in zip(links, (zero, zero, zero - 1, leaves_, leaves_, zero), rest, strict=True)
    ]
    held = np.full((extra + len(more), total), absent, dtype.numpy)
    held[leaves_, targets] = weights
    degenerate = (yes_leaf[roots] != 0) & (no_leaf[roots] != 0) & (yes[roots] == no[roots])
    starts = np.where(degenerate, nodes + yes[roots], roots)
    ints = [column.astype(np.int64) for column in columns]
    return Forest(ints[0], columns[1].astype(dtype.numpy), ints[2], ints[3], ints[4], columns[5] != 0, held, starts)


def ensemble(n: Site) -> Result:
    x, dtype = _rows(n)
    aggregate = _AGGREGATES[(1, 0, 2, 3)[n.integer("aggregate_function", 1, 0, 3)]]
    transform = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[n.integer("post_transform", 0, 0, 4)]
    y = sums(n, x, _forest_of_tensors(n, dtype, _ABSENT.get(aggregate, 0.0)), aggregate, np.zeros(0))
    return transformed(n, y, transform)


RULES = (
    Entry("TreeEnsembleRegressor", 1, 5, regressor, ML),
    Entry("TreeEnsembleClassifier", 1, 5, classifier, ML),
    Entry("TreeEnsemble", 5, 5, ensemble, ML),
)

"""Convolutions and pooling as onnxruntime lays them out for one processor, with channels in blocks. Domain com.microsoft.nchwc.

A value of this layout is computed plain, as [n, c, h, w], and put into blocks for whoever reads its memory; the operators here read the
plain one, also through pointwise kernels and concatenation in between, which compute the same in any order of channels. Copies that nobody
reads are dropped, so what is compiled is the model that was optimised.
"""

from __future__ import annotations

import numpy as np

from codegen.dtypes import DTYPES
from polyhedral.expr import Int
from stdlib.onnx.channel_blocks import NCHWC
from stdlib.onnx.site import Result, Rule, Site
from stdlib.onnx.table.contract import convolution_of
from stdlib.onnx.table.entry import undefined
from stdlib.onnx.table.microsoft import activated
from stdlib.onnx.table.moving import transposed
from stdlib.onnx.table.pooling import average_pool, global_average, global_max, max_pool
from stdlib.onnx.table.resizing import resize
from tensorlang.graph.nodes import Kernel, Value
from tensorlang.graph.programs import expressions, is_pointwise, is_single, reads_in_place
from tensorlang.tensor.nodes import Holds, IndexValue, Tensor

Shape = tuple[int, ...]


def reorder_input(n: Site) -> Value:
    """From plain channels, or from those that are the last axis, to blocks: the last one is filled up with zeros."""
    x = n.arg(0)
    _check(n, x)
    x = transposed(n, x, (0, 3, 1, 2)) if n.flag("channels_last") else x
    more = -x.shape[1] % _block(n)
    if more:
        x = n.op("pad", x, n.filled((), x.dtype), lo=(0,) * 4, hi=(0, more, 0, 0))
    return _in_blocks(n, x)


def reorder_output(n: Site) -> Value:
    """From blocks to plain channels, of which the last block may hold fewer than it has room for."""
    x, channels = _plain(n, 0), n.integer("channels", 0)
    if not 0 <= x.shape[1] - channels < _block(n):
        raise n.wrong(f"{channels} channels in {x.shape[1]}, in blocks of {_block(n)}")
    if channels < x.shape[1]:
        x = n.op("slice", x, start=(0,) * 4, step=(1,) * 4, length=(x.shape[0], channels, *x.shape[2:]))
    return transposed(n, x, (0, 2, 3, 1)) if n.flag("channels_last") else x


def blocked_conv(n: Site) -> Value:
    """A convolution, what is added to it, and an activation. Fewer channels than a block holds are read plain."""
    x, block = n.arg(0), _block(n)
    _check(n, x)
    deep = x.shape[1] >= block
    y = convolution_of(n, _plain(n, 0) if deep else x, _filters(n, deep), n.maybe(2))
    return _in_blocks(n, activated(n, y if n.maybe(3) is None else n.op("add", y, _plain(n, 3))))


def _filters(n: Site, deep: bool) -> Value:
    """Return filters as [o, i, h, w]: o is in blocks, and so is i, where there are as many input channels in a group; i is inside o."""
    w, block = n.arg(1), _block(n)
    _check(n, w)
    o, i, *window = w.shape
    if o % block or (deep and i != 1 and i % block):
        raise n.wrong(f"filters of the shape {list(w.shape)} in blocks of {block}")
    if deep and i % block == 0:
        return _rearranged(n, w, (o // block, i // block, *window, block, block), (0, 5, 1, 4, 2, 3), w.shape)
    return _rearranged(n, w, (o // block, i, *window, block), (0, 4, 1, 2, 3), w.shape)


def blocked(rule: Rule, *unread: str) -> Rule:
    """Return the rule of an operator whose one argument and whose result are in blocks, of `rule` for plain ones. `unread`: attributes that
    change nothing."""

    def of_blocks(n: Site) -> Result:
        n.without_effect(*unread)
        made = rule(n.like(_plain(n, 0)))
        y = made[0] if isinstance(made, tuple) else made
        assert isinstance(y, Value)
        return _in_blocks(n, y)

    return of_blocks


def upsample(n: Site) -> Value:
    """By whole numbers; what is nearest lies before an element."""
    x, scales = _plain(n, 0), n.integers("scales", low=1, count=4)
    places = (
        ("asymmetric", "align_corners", "half_pixel") if n.text("mode", "nearest", ("nearest", "linear")) == "linear" else ("asymmetric",)
    )
    place = n.text("coordinate_transformation_mode", "asymmetric", places)
    more = {"coordinate_transformation_mode": place, "nearest_mode": "floor"}
    return _in_blocks(n, resize(n.like(x, None, n.constant(np.asarray(scales, np.float32)), **more)))


def _block(n: Site) -> int:
    return n.builder.block_length


def _check(n: Site, x: Value) -> None:
    if len(x.shape) != 4 or x.dtype != DTYPES["f32"]:
        raise n.wrong(f"{x.dtype}{list(x.shape)} is not of four dimensions of f32")


def _in_blocks(n: Site, plain: Value) -> Value:
    """Return the value whose memory holds the channels of a plain one in blocks."""
    batch, channels, *window = plain.shape
    block = _block(n)
    raw = _rearranged(n, plain, (batch, channels // block, block, *window), (0, 1, 3, 4, 2), plain.shape)
    n.builder.plain[raw.name] = plain.name
    return raw


def _plain(n: Site, k: int) -> Value:
    """Return the plain value of argument `k`, which is in blocks."""
    x, block = n.arg(k), _block(n)
    _check(n, x)
    if x.shape[1] % block:
        raise n.wrong(f"{x.shape[1]} channels are no blocks of {block}")
    return _known_plain(n, x) or _taken_apart(n, x)


def _taken_apart(n: Site, x: Value) -> Value:
    batch, channels, *window = x.shape
    block = _block(n)
    return _rearranged(n, x, (batch, channels // block, *window, block), (0, 1, 4, 2, 3), x.shape)


def _known_plain(n: Site, x: Value) -> Value | None:
    """Return the plain value of one in blocks, where it is known, or computed of such by what is the same for any order of channels."""
    b = n.builder
    if x.name in b.plain:
        return b.values[b.plain[x.name]]
    maker = b.maker(x.name)
    if not isinstance(maker, Kernel) or not _in_any_order(maker, _block(n)):
        return None
    moving = {p.name for p in maker.program.params if not _is_one(p)}
    arguments = [(p.name in moving, b.values[v]) for p, v in zip(maker.program.params, maker.inputs, strict=True)]
    found = [_known_plain(n, v) if moves else v for moves, v in arguments]
    if not any(v is not None and moves for v, (moves, _) in zip(found, arguments, strict=True)):
        return None
    inputs = [_taken_apart(n, v) if plain is None else plain for plain, (_, v) in zip(found, arguments, strict=True)]
    (made,) = n.apply(maker.program, inputs, maker.operator, maker.attrs)
    b.plain[x.name] = made.name
    return made


def _in_any_order(kernel: Kernel, block: int) -> bool:
    """Tell whether a kernel makes the same of elements wherever they lie: it is pointwise, or puts whole blocks one after the other."""
    program = kernel.program
    if len(program.results) != 1 or not program.params:
        return False
    if kernel.operator == "concat":
        fours = all(len(p.shape) == 4 for p in program.params)
        return fours and dict(kernel.attrs).get("axis") == 1 and all(_whole(p, block) for p in program.params)
    inside = expressions(program)
    return (
        is_single(program)
        and is_pointwise(program)
        and not any(isinstance(e, IndexValue | Holds) for e in inside)
        and all(_is_one(p) or reads_in_place(program, p.name) for p in program.params)
    )


def _whole(tensor: Tensor, block: int) -> bool:
    channels = tensor.shape[1]
    return isinstance(channels, Int) and channels.value % block == 0


def _is_one(tensor: Tensor) -> bool:
    return all(extent == Int(1) for extent in tensor.shape)


def _rearranged(n: Site, x: Value, seen: Shape, order: Shape, shape: Shape) -> Value:
    """Return the elements of a value in the order that axes have when it is seen under another shape, under a shape again."""
    array = n.array(x)
    if array is not None:
        return n.constant(np.ascontiguousarray(array.reshape(seen).transpose(order)).reshape(shape))
    return n.view(transposed(n, n.view(x, seen), order), shape)


RULES = tuple(
    undefined(op, rule, NCHWC)
    for op, rule in (
        ("ReorderInput", reorder_input),
        ("ReorderOutput", reorder_output),
        ("Conv", blocked_conv),
        ("MaxPool", blocked(max_pool, "storage_order")),
        ("AveragePool", blocked(average_pool)),
        ("GlobalMaxPool", blocked(global_max)),
        ("GlobalAveragePool", blocked(global_average)),
        ("Upsample", upsample),
    )
)

"""Boxes of tensors in bulk: of one to five axes, beyond the edges, with every swizzle, there and back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled
from codegen.cuda.prelude import before
from codegen.cuda.sass import count, opcodes
from codegen.dtypes import f32
from codegen.gpu.emulator import SEEDS, EmulatorError, Library, build, run
from codegen.gpu.program import Kernel, Launch, Program, TensorMap
from codegen.loops.nodes import Int

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Box:
    """A box of f32 in a tensor, from `corner` on, loaded and stored; strides leave room after rows."""

    extents: tuple[int, ...]
    box: tuple[int, ...]
    corner: tuple[int, ...]
    swizzle: int

    @property
    def name(self) -> str:
        return f"box_{len(self.box)}d_{self.swizzle}"

    @property
    def strides(self) -> tuple[int, ...]:
        pitches = [4 * (-(-self.extents[-1] // 4) + 1)]
        for n in reversed(self.extents[1:-1]):
            pitches.append(pitches[-1] * n)
        return tuple(reversed(pitches))[-len(self.extents) + 1 :] if len(self.extents) > 1 else ()

    @property
    def pitch(self) -> int:
        return self.strides[-1] if self.strides else self.extents[-1]

    def map(self, name: str, buffer: str) -> TensorMap:
        extents, strides = tuple(map(Int, self.extents)), tuple(map(Int, self.strides))
        return TensorMap(name, buffer, f32, extents, strides, self.box, self.swizzle)

    @property
    def kernel(self) -> Kernel:
        rank, words = len(self.box), int(np.prod(self.box))
        at = ", ".join(str(n) for n in reversed(self.corner))
        barrier = -(-words * 4 // 8) * 8
        text = f"""
TL_KERNEL(32, 0) {self.name}(TL_OUT(tl_u32) s, TL_TENSOR_MAP(x_map), TL_TENSOR_MAP(y_map)) {{
    TL_SHARED(arena, {barrier + 8});
    TL_SHARED_ARRAY(tl_u32, x_s, arena, 0, {words});
    TL_SHARED_ARRAY(tl_u64, full, arena, {barrier}, 1);
    if (tl_thread_x() == 0) {{
        tl_mbarrier_init(full, 1);
        tl_mbarrier_init_fence();
        tl_mbarrier_expect(full, {words * 4});
        tl_tma_load_{rank}d(x_s, x_map, {at}, full);
    }}
    tl_barrier();
    tl_mbarrier_wait(full, 0);
    for (int i = tl_thread_x(); i < {words}; i += 32) s[i] = x_s[i];
    if (tl_thread_x() == 0) {{
        tl_tma_store_{rank}d(y_map, {at}, x_s);
        tl_tma_store_commit();
        TL_TMA_STORE_WAIT_READ(0);
    }}
}}
"""
        return Kernel(self.name, text, ("s",), (), (32, 1, 1), barrier + 8, maps=(self.map("x_map", "x"), self.map("y_map", "y")))

    def tensor(self, fill: float | None = None) -> Array:
        """Return memory whose rows are `pitch` long."""
        shape = (*self.extents[:-1], self.pitch)
        return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1 if fill is None else np.full(shape, fill, np.float32)

    def inside(self) -> Array:
        """Return the elements of the box, and 0 where it lies outside."""
        x = self.tensor()[..., : self.extents[-1]]
        loaded = np.zeros(self.box, np.float32)
        for place in itertools.product(*(range(n) for n in self.box)):
            at = tuple(c + p for c, p in zip(self.corner, place, strict=True))
            if all(0 <= i < n for i, n in zip(at, self.extents, strict=True)):
                loaded[place] = x[at]
        return loaded


BOXES = (
    Box((100,), (64,), (60,), 0),
    Box((21, 30), (8, 32), (16, 4), 128),
    Box((21, 30), (8, 16), (-3, -4), 64),
    Box((5, 9, 20), (3, 4, 8), (3, 7, 16), 32),
    Box((3, 4, 5, 16), (2, 2, 3, 8), (-1, 3, 4, 0), 32),
    Box((2, 3, 4, 5, 8), (1, 2, 2, 2, 4), (1, 2, -1, 4, 4), 0),
)
KERNELS = tuple(b.kernel for b in BOXES)


@pytest.fixture(scope="module")
def library() -> Library:
    return build(KERNELS)


def copied(box: Box, library: Library, seed: int) -> tuple[Array, Array]:
    """Return shared memory after the load, and memory after the store."""
    program = Program("p", ("x", "y", "s"), (), (box.kernel,), (Launch(box.name, (Int(1), Int(1), Int(1))),))
    s, y = np.zeros(box.box, np.float32), box.tensor(-1.0)
    run(program, {}, {"x": box.tensor(), "y": y, "s": s.view(np.uint32)}, seed=seed, library=library)
    return s, y


@pytest.mark.parametrize("box", BOXES, ids=lambda b: b.name)
def test_a_box_is_loaded_with_zeros_outside_and_stored_inside(box: Box, library: Library) -> None:
    words = np.arange(np.prod(box.box))
    exchanged = words ^ (words * 4 // 128 % max(1, box.swizzle // 16)) * 4
    expected = np.empty(words.size, np.float32)
    expected[exchanged] = box.inside().reshape(-1)
    for seed in SEEDS:
        s, y = copied(box, library, seed)
        assert np.array_equal(s.reshape(-1), expected)
        assert (y[..., box.extents[-1] :] == -1).all()
        stored = y[..., : box.extents[-1]]
        assert np.array_equal(stored[stored != -1], box.tensor()[..., : box.extents[-1]][stored != -1])
        assert (stored != -1).sum() == (box.inside() != 0).sum()


def test_a_copy_is_one_instruction_of_the_machine() -> None:
    text = "".join(k.text for k in KERNELS)
    code = opcodes(compiled(before(text) + text, named("cuda:sm_90a")).cubin)
    for box in BOXES:
        assert count(code[box.name], f"UTMALDG.{len(box.box)}D") == 1
        assert count(code[box.name], f"UTMASTG.{len(box.box)}D") == 1


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (Box((8, 64), (8, 64), (0, 0), 128), "rows of 256 bytes with a swizzle of 128"),
        (Box((8, 64), (8, 6), (0, 0), 0), "rows multiples of 16 bytes"),
        (Box((300, 8), (300, 4), (0, 0), 0), "axes are up to 256"),
        (Box((0, 8), (1, 4), (0, 0), 0), "extents of"),
    ],
)
def test_a_map_that_no_device_takes_is_refused(wrong: Box, problem: str, library: Library) -> None:
    with pytest.raises(ValueError, match=problem):
        copied(wrong, build([wrong.kernel]), 0)


def test_a_copy_of_other_axes_than_the_map_has_is_reported() -> None:
    box = BOXES[1]
    flat = TensorMap("x_map", "x", f32, (Int(64),), (), (64,))
    kernel = Kernel(box.name, box.kernel.text, ("s",), (), (32, 1, 1), box.kernel.shared_bytes, maps=(flat, box.map("y_map", "y")))
    program = Program("p", ("x", "y", "s"), (), (kernel,), (Launch(box.name, (Int(1), Int(1), Int(1))),))
    arrays = {"x": box.tensor(), "y": box.tensor(), "s": np.zeros(box.box, np.uint32)}
    with pytest.raises(EmulatorError, match="tl_tma_load_2d of line 10: the tensor map has 1 axes"):
        run(program, {}, arrays)

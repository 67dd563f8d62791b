"""Boxes that a thread beside those of the block asks for (`specialize`), products that go on while the next begin, and what orders them: in
every order of threads what the operator says; a signal too early, too late, missing or with a wrong number is refuted by the proof and
found by the emulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from executors import Executor, Library
from test_matrix import OPERATOR, made, normal

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from codegen.gpu.emulator import EmulatorError
from codegen.gpu.launches import launches
from codegen.gpu.limits import Usage, exceeded_by
from codegen.gpu.render import render
from codegen.loops.nodes import Add, Barrier, Boxes, For, Function, If, Int, Load, Mod, Producer, Reclaim, Release, Stmt, Wait, WaitBoxes
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.walk import free_vars, walk
from tensorlang.backends.cuda.machine import machine_code
from tensorlang.diagnostics import CompileError
from tensorlang.lower.barriers import exposed

Array = np.ndarray[Any, Any]

SCHEDULE = """
schedule matmul for cuda {
    split i by 128 -> io, ib
    split ib by 64 -> iw, mi
    split j by 32 -> jo, ni
    split k by 64 -> ko, kb
    split kb by 16 -> kf, ki
    order io, jo, ko, iw, kf, mi, ni, ki
    cache a in shared at ko as [i, k] with swizzle (128)
    cache b in shared at ko as [j, k] with swizzle (128)
    stages ko by 3 with tma
    specialize ko with registers (40, 232)
    bind io, jo, iw to block.y, block.x, warpgroup
    unroll kf
    tensorize mi, ni, ki with wgmma_bf16
}
"""
ONE = SCHEDULE.replace("split i by 128", "split i by 64").replace("(40, 232)", "(24, 240)")
TURNS = SCHEDULE.replace("    unroll kf", "    persistent jo by 3\n    unroll kf")
WIDE = (
    TURNS.replace("split j by 32", "split j by 256").replace("by 3 with", "by 4 with").replace("persistent jo by 3", "persistent jo by 132")
)
ROWS = "op rows(a: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * w[k, j] }"
PLAIN = """
schedule rows for cuda {
    tile y (i, j) by (16, 32) -> io, jo, ii, ji
    split k by 32 -> ko, ki
    order io, jo, ko, ii, ji, ki
    cache a in shared at ko as [i, k]
    cache w in shared at ko as [k, j]
    stages ko by 2 with tma
    specialize ko
    bind io, jo to block.y, block.x
    bind ii, ji to thread.y, thread.x
}
"""
F32 = np.float32
CASES = {
    "two groups of warps": ("matmul", OPERATOR + SCHEDULE, (normal(256, 512), normal(64, 512))),
    "one group of warps": ("matmul", OPERATOR + ONE, (normal(64, 384), normal(64, 384))),
    "edges": ("matmul", OPERATOR + SCHEDULE, (normal(150, 456), normal(70, 456))),
    "fewer iterations than stages": ("matmul", OPERATOR + SCHEDULE, (normal(128, 128), normal(32, 128))),
    "blocks that take turns": ("matmul", OPERATOR + TURNS, (normal(300, 320), normal(90, 320))),
    "turns with fewer iterations than stages": ("matmul", OPERATOR + TURNS, (normal(256, 128), normal(160, 128))),
    "threads that read boxes": ("rows", ROWS + PLAIN, (normal(40, 100, dtype=F32), normal(100, 72, dtype=F32))),
    "threads with registers of others": (
        "rows",
        ROWS + PLAIN.replace("specialize ko", "specialize ko with registers (24, 56)"),
        (normal(24, 48, dtype=F32), normal(48, 36, dtype=F32)),
    ),
    "turns of threads that ask themselves": (
        "matmul",
        OPERATOR + TURNS.replace("    specialize ko with registers (40, 232)\n", ""),
        (normal(300, 320), normal(90, 320)),
    ),
    "products under way beside copies": (
        "matmul",
        OPERATOR + SCHEDULE.replace(" with tma\n    specialize ko with registers (40, 232)", ""),
        (normal(150, 328), normal(70, 328)),
    ),
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Made]:
    return {name: made(text, f"beside_{k}", *arrays, operator=op) for k, (name, (op, text, arrays)) in enumerate(CASES.items())}


def test_what_a_thread_beside_the_others_brings_is_what_the_operator_reads_in_every_order(cases, executor: Executor):
    compiled_ = library(cases.values(), executor)
    for name, each in cases.items():
        arrays = by_name(each.program, CASES[name][2])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")


def test_nobody_waits_for_the_whole_block_where_a_thread_stands_beside_it(cases):
    for name, each in cases.items():
        nodes = list(walk(*each.lowered.function.body))
        if any(isinstance(n, Producer) for n in nodes):
            assert not any(isinstance(n, Barrier) for n in nodes), name
    for name in ("two groups of warps", "products under way beside copies"):
        assert [n.pending for n in walk(*cases[name].lowered.function.body) if isinstance(n, Wait) and n.of == "products"] == [1, 0]


def test_the_loops_are_what_their_text_says(cases):
    for each in cases.values():
        assert parse(show(each.lowered.function)) == each.lowered.function


# ---------------------------------------------------------------- faults


Rewrite = Callable[[Stmt], tuple[Stmt, ...]]


def rewritten(function: Function, rewrite: Rewrite) -> Function:
    """Return `function` with what `rewrite` makes of each statement, those inside first."""

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(new for s in body for new in rewrite(inside(s)))

    def inside(s: Stmt) -> Stmt:
        match s:
            case For() | Producer():
                return replace(s, body=block(s.body))
            case If():
                return replace(s, then=block(s.then), orelse=block(s.orelse))
            case _:
                return s

    return replace(function, body=block(function.body))


def without(kind: type[Stmt]) -> Rewrite:
    return lambda s: () if isinstance(s, kind) or (isinstance(s, If) and not s.then) else (s,)


def later(kind: type[Stmt], by: int) -> Rewrite:
    """Give signals a number greater by `by`."""
    return lambda s: (replace(s, group=Add(s.group, Int(by))),) if isinstance(s, kind) else (s,)  # type: ignore[call-arg, attr-defined]


def last_not_released(s: Stmt) -> tuple[Stmt, ...]:
    return () if isinstance(s, Release) and "y_ko" not in free_vars(s) else (s,)


def released_at_once(s: Stmt) -> tuple[Stmt, ...]:
    """Release what the products of this iteration read, as soon as they have begun."""
    match s:
        case For(body=(*body, If(then=(Release(barriers, group),)))) if any(isinstance(n, Producer) for n in body):
            return (replace(s, body=(*body, Release(barriers, Add(group, Int(1))))),)
        case _:
            return last_not_released(s)


def released_before_the_wait(s: Stmt) -> tuple[Stmt, ...]:
    match s:
        case For(body=(*body, Wait() as wait, If() as release)) if any(isinstance(n, Producer) for n in body):
            return (replace(s, body=(*body, release, wait)),)
        case _:
            return (s,)


def stored_too_soon(s: Stmt) -> tuple[Stmt, ...]:
    match s:
        case For(body=(*body, Wait(0) as wait, Release() as release, stored)):
            return (replace(s, body=(*body, stored, wait, release)),)
        case _:
            return (s,)


def not_waited_for(s: Stmt) -> tuple[Stmt, ...]:
    return () if s == Wait(0, "products") else (s,)


def one_more_under_way(s: Stmt) -> tuple[Stmt, ...]:
    return (Wait(2, "products"),) if s == Wait(1, "products") else (s,)


def one_place_earlier(s: Stmt) -> tuple[Stmt, ...]:
    """Let boxes land where those before are read."""
    if not isinstance(s, Boxes):
        return (s,)
    boxes = (replace(b, target=Load(b.target.buffer, (Mod(Add(s.group, Int(2)), Int(3)), *b.target.index[1:]))) for b in s.boxes)
    return (replace(s, boxes=tuple(boxes)),)


PLANTED: dict[str, tuple[Rewrite, str]] = {
    "a place released while products read it": (released_at_once, "share `[ab]_pack"),
    "a place released before products are waited for": (released_before_the_wait, "share `[ab]_pack"),
    "products of two iterations under way": (one_more_under_way, "share `[ab]_pack"),
    "a place not reclaimed": (without(Reclaim), "thread 256 touches `full.* while its copy is under way"),
    "a place reclaimed for the boxes before": (later(Reclaim, -1), "thread 256 touches `full.* while its copy is under way"),
    "a place reclaimed that nobody gives back yet": (later(Reclaim, 3), r"`empty\[\d\]` is reclaimed, and not released before"),
    "boxes not waited for": (without(WaitBoxes), r"`full\[0\]` is issued, and nobody waits for it"),
    "boxes waited for too early": (later(WaitBoxes, -1), r"`full\[-1\]` is"),
    "boxes of the next number": (later(Boxes, 1), r"`full\[[01]\]` is"),
    "sums read while products add to them": (stored_too_soon, "touches `y_0_acc.* while its product is under way"),
    "boxes in the place of those before": (one_place_earlier, "(share|touches) `[ab]_pack"),
    "a last place that is not given back": (last_not_released, r"`empty\[4\]` is not one above the one before it"),
}
COUNTED = {
    "fewer arrivals than there are": ("empty + 0, 8", "empty + 0, 4"),
    "more arrivals than there are": ("full + 1, 1", "full + 1, 2"),
}
SMALL = normal(256, 256), normal(24, 256)


@pytest.fixture(scope="module")
def faulty() -> dict[str, Made]:
    sound = made(OPERATOR + TURNS.replace("split j by 32", "split j by 8"), "sound", *SMALL)
    found = {name: planted(sound, rewrite, f"fault_{k}") for k, (name, (rewrite, _)) in enumerate(PLANTED.items())}
    (kernel,), (launch,) = sound.kernels.kernels, sound.kernels.launches
    for k, (name, (old, new)) in enumerate(COUNTED.items()):
        assert old in kernel.text
        wrong = replace(kernel, name=f"counted_{k}", text=kernel.text.replace(old, new).replace(kernel.name, f"counted_{k}"))
        kernels = replace(sound.kernels, kernels=(wrong,), launches=(replace(launch, kernel=wrong.name),))
        found[name] = Made(sound.program, sound.lowered, kernels)
    return found


def planted(sound: Made, rewrite: Rewrite, symbol: str) -> Made:
    function = replace(rewritten(sound.lowered.function, rewrite), name=symbol)
    assert function.body != sound.lowered.function.body
    return Made(sound.program, replace(sound.lowered, function=function), render(launches(function)))


def test_a_planted_fault_is_refuted(faulty):
    for name, (_, why) in PLANTED.items():
        found = exposed(faulty[name].lowered.function)
        assert re.search(why, str(found)), f"{name}: {found}"


def test_products_under_way_are_waited_for_where_threads_copy_themselves(cases):
    for name in ("products under way beside copies", "turns of threads that ask themselves"):
        function = cases[name].lowered.function
        assert "share `" in str(exposed(rewritten(function, one_more_under_way)))
        assert "touches `y_0_acc" in str(exposed(rewritten(function, not_waited_for)))


def test_a_planted_fault_is_found_by_the_emulator(faulty):
    compiled_ = library(faulty.values())
    for name, each in faulty.items():
        arrays = by_name(each.program, SMALL)
        assert any(is_found(each, arrays, compiled_, seed) for seed in range(9)), name


def is_found(each: Made, arrays: Mapping[str, Array], compiled_: Library, seed: int) -> bool:
    try:
        return difference(each, arrays, {}, compiled_, seeds=[seed], close=1e-2) != ""
    except EmulatorError:
        return True


# ---------------------------------------------------------------- machine code


def test_the_machine_code_deals_out_registers_and_spills_nothing():
    each = made(OPERATOR + WIDE, "wide", normal(512, 256), normal(512, 256))
    made_ = compiled(source(each.kernels), named("cuda:sm_90a"))
    (usage,), (found,) = made_.usage.values(), opcodes(made_.cubin).values()
    assert (usage.registers, usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (168, 0, 0, 0)
    assert made_.advice == ()
    assert count(found, "HGMMA.64x256x16.F32.BF16") > 0 and count(found, "UTMALDG.2D") > 0
    assert count(found, "USETMAXREG") == 2 and count(found, "BAR") == 1
    assert (
        count(found, "UTMALDG") == 2 and count(found, "ELECT") == 1
    )  # asked for in a loop, by a thread that the assembler knows to be one
    assert count(found, "SYNCS.PHASECHK") > 0 and count(found, "SYNCS.ARRIVE") > 0
    assert count(found, "LDS") == count(found, "STS") == count(found, "LDGSTS") == 0


@pytest.mark.parametrize(
    ("target", "name", "why"),
    [
        ("cuda:sm_80", "threads that read boxes", "copies boxes of tensors, which `cuda:sm_80` does not"),
        ("cuda:sm_90", "threads with registers of others", "deals out registers anew, which `cuda:sm_90` does not"),
    ],
)
def test_devices_that_cannot_are_told_apart(target, name, why, cases):
    with pytest.raises(CompileError, match=why):
        machine_code([cases[name].kernels], named(target), None, 1)


BOTH = OPERATOR + SCHEDULE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOTH.replace("(40, 232)", "(40, 230)"), "a thread has 24 to 240 registers, a multiple of 8, where they are dealt out"),
        (BOTH.replace("(40, 232)", "(40, 240)"), "128 threads with 40 registers and 256 with 240 need 66560 of them; there are 65536"),
        (BOTH.replace("(40, 232)", "(40)"), "registers are dealt out `with registers"),
        (BOTH.replace(" with tma", ""), "copies no boxes that a thread beside the others could ask for"),
        (ROWS + PLAIN.replace("(16, 32)", "(16, 4)"), "whole warpgroups of 128 threads, and this block has 64"),
    ],
)
def test_a_thread_beside_the_others_that_cannot_be_is_refused(text, why):
    plain = text.startswith(ROWS)
    arrays = CASES["threads that read boxes" if plain else "two groups of warps"][2]
    with pytest.raises(CompileError, match=why):
        made(text, "refused", *arrays, operator="rows" if plain else "matmul")


def test_registers_that_a_block_has_not_got_are_not_dealt_out(cases):
    (kernel,) = cases["two groups of warps"].kernels.kernels
    assert kernel.allocated_registers == 40 * 128 + 232 * 256
    limits = named("cuda:sm_90a").limits
    assert exceeded_by(kernel, Usage(168), limits) == ()
    (excess,) = exceeded_by(kernel, Usage(160), limits)
    assert "registers of a block, set by its roles" in str(excess)

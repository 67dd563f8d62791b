"""Blocks in clusters that share boxes of tensors: in every order of threads and landings what the operator says, with every barrier of the
cluster needed; and what blocks of a cluster cannot share is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from batch import Made, difference, library
from batch import named as by_name
from executors import Executor
from test_boxes import F32, PLAIN, ROWS
from test_matrix import OPERATOR, made, normal
from test_warpgroups import SCHEDULE as PRODUCTS
from test_warpgroups import without_barrier

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from codegen.gpu.emulator import EmulatorError
from codegen.loops.nodes import Barrier, Function, Release, Stmt
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.walk import map_stmt, walk
from tensorlang.backends.cuda.machine import machine_code
from tensorlang.diagnostics import CompileError
from tensorlang.lower.barriers import Exposed, exposed

SHARED = PLAIN.replace("    bind ii", "    cluster jo by 2\n    multicast a at jo\n    bind ii")
BOTH = PRODUCTS.replace("stages ko by 3", "stages ko by 3 with tma\n    cluster io by 2\n    multicast b at io")
BESIDE = BOTH.replace("with tma\n", "with tma\n    specialize ko\n")
TURNS = BESIDE.replace("cluster io by 2\n    multicast b at io", "cluster jo by 2\n    multicast a at jo\n    persistent jo by 4")
CASES = {
    "threads that read boxes": ("rows", ROWS + SHARED, (normal(40, 100, dtype=F32), normal(100, 104, dtype=F32))),
    "four blocks": ("rows", ROWS + SHARED.replace("by 2\n", "by 4\n"), (normal(40, 100, dtype=F32), normal(100, 120, dtype=F32))),
    "products of four warps": ("matmul", OPERATOR + BOTH, (normal(256, 200), normal(198, 200))),
    "a thread beside that asks": ("matmul", OPERATOR + BESIDE, (normal(256, 456), normal(128, 456))),
    "blocks that take turns": ("matmul", OPERATOR + TURNS, (normal(256, 200), normal(500, 200))),
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Made]:
    return {name: made(text, f"clusters_{k}", *arrays, operator=op) for k, (name, (op, text, arrays)) in enumerate(CASES.items())}


def test_shared_boxes_bring_what_the_operator_reads_in_every_order(cases, executor: Executor):
    compiled_ = library(cases.values(), executor)
    for name, each in cases.items():
        arrays = by_name(each.program, CASES[name][2])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")


def barriers_of_clusters(function: Function) -> int:
    return sum(isinstance(n, Barrier) and n.of == "cluster" for n in walk(*function.body))


def with_barriers_of_blocks(function: Function) -> Function:
    """Return a function whose blocks no longer wait for each other, but whose threads do."""

    def stmt(s: Stmt) -> Stmt:
        return Barrier() if isinstance(s, Barrier) else map_stmt(s, lambda i: i, lambda e: e, stmt)

    return replace(function, body=tuple(map(stmt, function.body)))


def told_alone(function: Function) -> Function:
    """Return a function whose blocks give boxes back to nobody but themselves."""

    def stmt(s: Stmt) -> Stmt:
        return replace(s, blocks=1) if isinstance(s, Release) else map_stmt(s, lambda i: i, lambda e: e, stmt)

    return replace(function, body=tuple(map(stmt, function.body)))


def test_blocks_wait_for_each_other_before_what_one_reads_is_overwritten_by_another(cases):
    for name, each in cases.items():
        function = each.lowered.function
        handed = any(isinstance(n, Release) for n in walk(*function.body))
        assert barriers_of_clusters(function) == (0 if handed else 1), name
        told = exposed(told_alone(function) if handed else with_barriers_of_blocks(function))
        assert isinstance(told, Exposed) and told.owner is not None, name
        if not handed:
            assert exposed(without_barrier(function, 0)) is not None


def test_the_two_blocks_and_the_element_that_they_meet_in_are_told(cases):
    told = exposed(with_barriers_of_blocks(cases["threads that read boxes"].lowered.function))
    assert str(told) == "block 0 copies into `a_pack[0, 0, 0]` of block 1, which block 0 may not be done with, with y_io = 0"


READ, ASKED = "threads that read boxes", "a thread beside that asks"
MISTAKES = {
    "barriers that are not there yet": (READ, "    tl_cluster_barrier();\n    if", "    tl_barrier();\n    if"),
    "no barrier of the cluster before boxes land again": (
        READ,
        "        tl_cluster_barrier();\n        if",
        "        tl_barrier();\n        if",
    ),
    "the bytes of its own part alone": (READ, "expect(full + (y_ko + 1) % 2, 6144)", "expect(full + (y_ko + 1) % 2, 5120)"),
    "the other half of the tensor": (READ, "16 * y_io + rank * 8, full + (", "16 * y_io + (1 - rank) * 8, full + ("),
    "the other half of the copy": (READ, "((y_ko + 1) % 2) + rank * 256", "((y_ko + 1) % 2) + (1 - rank) * 256"),
    "halves that lie upon each other": (READ, "a_pack + 0 + rank * 256", "a_pack + 0"),
    "a copy to this block alone": (READ, "rank * 8, full + 0, 3)", "rank * 8, full + 0, 1 << rank)"),
    "a copy to one block alone": (READ, "rank * 8, full + 0, 3)", "rank * 8, full + 0, 1)"),
    "the other block is not told": (ASKED, "                    tl_mbarrier_arrive_at(empty + (y_ko + 2) % 3, 1);\n", ""),
    "this block is told twice": (ASKED, "arrive_at(empty + (y_ko + 2) % 3, 1)", "arrive_at(empty + (y_ko + 2) % 3, rank)"),
    "arrivals of one block alone": (ASKED, "tl_mbarrier_init(empty + 0, 16)", "tl_mbarrier_init(empty + 0, 8)"),
    "a block that leaves while others tell it": (ASKED, "    }\n    tl_cluster_barrier();\n}", "    }\n}"),
    "no wait for places that are given back": (ASKED, "tl_mbarrier_wait(empty + y_ko % 3, (y_ko / 3 + 1) % 2);", ""),
}


def test_mistakes_in_the_text_are_caught_in_every_order(cases):
    mutants = []
    for k, (case, old, new) in enumerate(MISTAKES.values()):
        each = cases[case]
        (kernel,), (launch,) = each.kernels.kernels, each.kernels.launches
        assert kernel.text.count(old) == 1, old
        name = f"{kernel.name}_{k}"
        changed = replace(kernel, name=name, text=kernel.text.replace(old, new).replace(f"{kernel.name}(", f"{name}("))
        mutants.append(replace(each, kernels=replace(each.kernels, kernels=(changed,), launches=(replace(launch, kernel=name),))))
    compiled_ = library(mutants)
    for (label, (case, _, _)), mutant in zip(MISTAKES.items(), mutants, strict=True):
        arrays = by_name(mutant.program, CASES[case][2])
        for seed in (0, 4, 8):
            with suppress(EmulatorError):
                assert difference(mutant, arrays, {}, compiled_, seeds=[seed], close=1e-2), f"{label}, seed {seed}"


def test_one_box_is_asked_for_in_parts_that_land_in_all_blocks(cases):
    for each in cases.values():
        made_ = compiled(source(each.kernels), named("cuda:sm_90a"))
        (usage,), (found,) = made_.usage.values(), opcodes(made_.cubin).values()
        assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
        assert count(found, "UTMALDG.2D") > count(found, "UTMALDG.2D.MULTICAST") > 0
        assert count(found, "UCGABAR_WAIT") >= 2
    (kernel,) = cases["four blocks"].kernels.kernels
    assert kernel.cluster == (4, 1, 1)
    assert kernel.maps[0].box == (4, 32)


def test_the_loops_are_what_their_text_says(cases):
    for each in cases.values():
        assert parse(show(each.lowered.function)) == each.lowered.function


ARRAYS = normal(40, 100, dtype=F32), normal(100, 104, dtype=F32)


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (SHARED.replace("multicast a", "multicast w"), "blocks 0 and 1 along `y_jo` are one cluster, and copy other parts of `w`"),
        (SHARED.replace("cluster jo by 2", "cluster jo by 3"), "the grid has 4 blocks along `y_jo`, which are no whole clusters of 3"),
        (SHARED.replace("cluster jo by 2", "cluster jo by 16"), "a cluster of 16 blocks is too large"),
        (SHARED.replace("cluster jo by 2", "cluster ko by 2"), "`y.ko` is not bound to blocks, so none of them can be a cluster"),
        (SHARED.replace("    cluster jo by 2\n", ""), "blocks along `y.jo` are no cluster, so they cannot share copies"),
        (SHARED.replace(" with tma", ""), "the copy `a.pack` is no box that the device makes"),
        (SHARED.replace("multicast a", "multicast y"), "no block copies `y` into shared memory"),
        (SHARED.replace("(16, 32)", "(3, 32)").replace("thread.y", "thread.y"), "2 blocks cannot share `a_pack`: 3 is no multiple of 2"),
        (SHARED.replace("split k by 32", "split k by 4").replace("(16, 32)", "(4, 32)"), "a part of 32 bytes does not begin at a multiple"),
    ],
)
def test_what_blocks_cannot_share_is_refused(schedule, why):
    with pytest.raises(CompileError, match=why):
        made(ROWS + schedule, "refused", *ARRAYS, operator="rows")


def test_devices_without_clusters_are_told_apart(cases):
    with pytest.raises(CompileError, match="runs in clusters of blocks, which `cuda:sm_86` does not have"):
        machine_code([cases["four blocks"].kernels], named("cuda:sm_86"), None, 1)

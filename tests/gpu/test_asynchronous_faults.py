"""Kernels with one planted mistake each in what goes on beside threads are caught, on every seed, and the report says what is wrong."""

from __future__ import annotations

import pytest
from handwritten import MULTICAST, WARPGROUP_PRODUCTS, Case
from test_emulator_faults import Mistake, survives

from codegen.gpu.emulator import SEEDS, EmulatorError, Library, build

P = WARPGROUP_PRODUCTS

MISTAKES = (
    Mistake(
        "no wait for the tile",
        P,
        "            tl_mbarrier_wait(full + s, k / 3 % 2);\n",
        "",
        "nobody has written|copy into it is under way|race",
    ),
    Mistake(
        "no wait for an empty stage",
        P,
        "tl_mbarrier_wait(empty + s, (k / 3 + 1) % 2);\n",
        "",
        "race: copies into shared|had all 1 arrivals",
    ),
    Mistake("a wait for full stages of the wrong parity", P, "k / 3 % 2", "(k / 3 + 1) % 2", "nobody has written|under way|race|deadlock"),
    Mistake("a wait for empty stages of the wrong parity", P, "(k / 3 + 1) % 2", "k / 3 % 2", "deadlock: .* lacks 2 of 2 arrivals"),
    Mistake("a stage given back while it is read", P, "(k - 1) % 3", "k % 3", "race: copies into shared|arrives at|deadlock"),
    Mistake("a stage given back before products are done", P, "TL_WGMMA_WAIT(1)", "TL_WGMMA_WAIT(2)", "race: copies into shared"),
    Mistake(
        "too few arrivals",
        P,
        "tl_mbarrier_init(empty + s, 2)",
        "tl_mbarrier_init(empty + s, 1)",
        "which has had all 1 arrivals|race|completes phase 1 of shared empty.0. while thread 256 still waits",
    ),
    Mistake(
        "too many arrivals", P, "tl_mbarrier_init(empty + s, 2)", "tl_mbarrier_init(empty + s, 3)", "deadlock: .* lacks 1 of 3 arrivals"
    ),
    Mistake(
        "every thread arrives",
        P,
        "k > 0 && t % 128 == 0",
        "k > 0",
        "which has had all 2 arrivals|completes phase 1 of shared empty.0. while thread 256 still waits",
    ),
    Mistake("more bytes than come", P, "24576);\n", "24592);\n", r"deadlock: .*full\[0\] of line .* and 16 bytes"),
    Mistake("fewer bytes than come", P, "24576);\n", "24560);\n", "deadlock|under way|race|nobody has written"),
    Mistake(
        "no bytes expected",
        P,
        "tl_mbarrier_expect(full + s, 24576)",
        "tl_mbarrier_arrive(full + s)",
        "deadlock|under way|race|nobody has written",
    ),
    Mistake("a copy that counts at another barrier", P, "i0, full + s)", "i0, empty + s)", "deadlock|race|under way|nobody has written"),
    Mistake("a step along rows too long", P, "a + kk * 2", "a + kk * 4", ""),
    Mistake("a step that leaves the pattern", P, "a + kk * 2", "a + kk * 8", "not in the first row of a pattern of 1024 bytes"),
    Mistake("groups of eight rows too close", P, "4096), 16, 1024, 128)", "4096), 16, 512, 128)", ""),
    Mistake("a product without the swizzle of the copy", P, "s * 4096, 16, 1024, 128)", "s * 4096, 16, 1024, 64)", "pattern of 512|"),
    Mistake("tiles in the wrong place", P, "w_s + s * 4096, w_map", "w_s + s * 4096 + 256, w_map", "misaligned: tl_tma_load_2d of line"),
    Mistake(
        "a tile beyond shared memory",
        P,
        "(w_s + s * 4096, w_map",
        "(w_s + s * 12288, w_map",
        "out of bounds: tl_tma_load_2d|race|under way",
    ),
    Mistake("sums read while products go on", P, "        TL_WGMMA_WAIT(0);\n", "", "leaves with"),
    Mistake("sums read before products are waited for", P, "TL_WGMMA_WAIT(0);\n        const int row", "const int row", "leaves with"),
    Mistake(
        "sums changed while products go on",
        P,
        "            TL_WGMMA_WAIT(1);\n",
        "            d[t % 32] = 0.0f;\n            TL_WGMMA_WAIT(1);\n",
        "has changed sums",
    ),
    Mistake("sums that start with what was there", P, "k + kk > 0", "true", ""),
    Mistake("no fence before products", P, "            tl_wgmma_fence();\n", "", "no tl_wgmma_fence since"),
    Mistake(
        "a fence less from group to group",
        P,
        "            tl_wgmma_fence();\n",
        "            if (k == 0) tl_wgmma_fence();\n",
        "no tl_wgmma_fence since",
    ),
    Mistake("threads that give different operands", P, "a + kk * 2", "a + (t == 5) * 2 + kk * 2", "different operands"),
    Mistake(
        "a warp that leaves out a product",
        P,
        "tl_wgmma_m64n64k16",
        "if (t / 32 != 1 || kk) tl_wgmma_m64n64k16",
        "tl_wgmma_m64n64k16_bf16|comes to",
    ),
    Mistake(
        "barriers that are not visible to copies", P, "        tl_mbarrier_init_fence();\n", "", "uses shared full.* with no tl_async_fence"
    ),
    Mistake("no barrier after barriers are made", P, "    tl_barrier();\n", "", "is no barrier yet|race"),
    Mistake("barriers that nobody makes", P, "    if (t == 0) {", "    if (t == 384) {", "is no barrier yet"),
    Mistake(
        "a producer that stops early",
        P,
        "for (int k = 0; k < steps; ++k) {\n                const",
        "for (int k = 0; k + 1 < steps; ++k) {\n                const",
        "deadlock|race",
    ),
    Mistake(
        "a producer that goes on for too long",
        P,
        "for (int k = 0; k < steps; ++k) {\n                const",
        "for (int k = 0; k < steps + 1; ++k) {\n                const",
        "deadlock|race|bulk copies .*under way",
    ),
    Mistake(
        "a tile written by threads that no fence shows to products",
        P,
        "            tl_wgmma_fence();\n",
        "            w_s[s * 4096 + t] = tl_bf16_from_f32(1.0f);\n            tl_named_barrier(1, 256);\n            tl_wgmma_fence();\n",
        "with no tl_async_fence|race",
    ),
    Mistake("a copy to the wrong block", MULTICAST, "full, 3)", "full, 1 + rank)", "deadlock|many|under way|race|nobody has written"),
    Mistake("a copy to this block alone", MULTICAST, "full, 3)", "full, 1 << rank)", "deadlock: .* and 512 bytes"),
    Mistake("a copy to a block that does not exist", MULTICAST, "full, 3)", "full, 4)", "blocks of a mask of 4, in a cluster of 2"),
    Mistake("a half of the bytes", MULTICAST, "(full, 1024)", "(full, 512)", "deadlock|under way|race|nobody has written|completes phase"),
    Mistake(
        "the other block is not told", MULTICAST, "            tl_mbarrier_arrive_at(empty, 1);\n", "", "deadlock|race|completes phase"
    ),
    Mistake(
        "this block is told twice",
        MULTICAST,
        "arrive_at(empty, 1)",
        "arrive_at(empty, rank)",
        "had all 4 arrivals|deadlock|race|completes phase",
    ),
    Mistake("a block that is not told of", MULTICAST, "arrive_at(empty, 1)", "arrive_at(empty, 2)", "there is no block 2 in the cluster"),
    Mistake("no barrier of the warp before it tells", MULTICAST, "        tl_warp_barrier();\n", "", "race: copies into shared x_s"),
    Mistake(
        "blocks that begin at once",
        MULTICAST,
        "    tl_cluster_barrier();\n    tl_f32",
        "    tl_barrier();\n    tl_f32",
        "is no barrier yet|uses shared|uses memory|race",
    ),
    Mistake(
        "a block that leaves while others copy into it",
        MULTICAST,
        "    }\n    tl_cluster_barrier();\n}",
        "    }\n}",
        "may reach its shared memory later|have left|deadlock",
    ),
    Mistake("no fence before the store", MULTICAST, "    tl_async_fence();\n", "", "stores shared y_s.* with no tl_async_fence"),
    Mistake(
        "a fence before what it is for",
        MULTICAST,
        "    y_s[t] = sum;\n    tl_async_fence();\n",
        "    tl_async_fence();\n    y_s[t] = sum;\n",
        "stores shared y_s.*with no tl_async_fence",
    ),
    Mistake("no barrier before the store", MULTICAST, "    tl_named_barrier(1, 64);\n", "", "race: stores shared y_s|nobody has written"),
    Mistake(
        "a barrier that a warp does not come to", MULTICAST, "tl_named_barrier(1, 64)", "if (t < 32) tl_named_barrier(1, 64)", "deadlock: "
    ),
    Mistake(
        "a barrier of fewer threads",
        MULTICAST,
        "tl_named_barrier(1, 64)",
        "tl_named_barrier(1, 32)",
        "race: stores shared y_s|nobody has written",
    ),
    Mistake("a store that is not waited for", MULTICAST, "        TL_TMA_STORE_WAIT(0);\n", "", "leaves with 1 bulk stores under way"),
    Mistake("a store that is not committed", MULTICAST, "        tl_tma_store_commit();\n", "", "leaves with 1 bulk stores under way"),
    Mistake(
        "what is stored written again",
        MULTICAST,
        "        TL_TMA_STORE_WAIT(0);\n",
        "        y_s[0] = 0.0f;\n        TL_TMA_STORE_WAIT(0);\n",
        "race: writes shared y_s.0., which a bulk store of thread 0 reads",
    ),
)

MUTANTS = tuple((m, m.case.changed(f"a{n}", m.old, m.new)) for n, m in enumerate(MISTAKES))


@pytest.fixture(scope="module")
def library() -> Library:
    return build([case.kernel() for _, case in MUTANTS])


@pytest.mark.parametrize(("mistake", "case"), MUTANTS, ids=[m.label for m in MISTAKES])
def test_a_planted_mistake_is_caught_on_every_seed(mistake: Mistake, case: Case, library: Library) -> None:
    for seed in SEEDS:
        if not mistake.report:
            assert not survives(case, library, case.sizes[-1], seed), f"seed {seed}"
            continue
        with pytest.raises(EmulatorError, match=mistake.report):
            case.is_right(library, case.sizes[-1], seed)

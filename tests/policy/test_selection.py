"""Which schedule an operator runs under: its own before a role's, the user's before the library's, the first whose guards hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from scheduled_programs import assert_same, declared, written

from codegen.dtypes import f32
from polyhedral import affine
from polyhedral.expr import Name
from stdlib.library import library
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import Chosen, search
from tensorlang.policy.uncalled import check_schedules
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Storage
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show

ROOT = Path(__file__).parents[2]
MATMUL = """
op matmul(a: f32[M, K], b: f32[K, N], attr alpha: int = 1, attr mode: str = "plain") -> (c: f32[M, N]) {
    c[i, j] = alpha * sum(k) a[i, k] * b[k, j]
}
"""
SERIAL = Machine(target="cpu", threads=1)


def module(text: str, library: Module | None = None) -> Module:
    return load_module(parse(Source("mine.tl", text)), None if library is None else [library])


def chosen(text: str, knobs: Mapping[str, int] | None = None, attrs: Mapping[str, object] | None = None, **sizes: int) -> Chosen | None:
    m = module(MATMUL + text)
    types = [ArgType(f32, (sizes["M"], sizes["K"])), ArgType(f32, (sizes["K"], sizes["N"]))]
    return search(m, "matmul", instantiate(m, "matmul", types, attrs or {}), attrs or {}, "cpu", SERIAL, knobs=knobs).chosen


def directives(found: Chosen | None) -> list[str]:
    assert found is not None
    return [show(d) for d in found.schedule.directives]


def refused(text: str, **others: object) -> str:
    with pytest.raises(CompileError) as error:
        chosen(text, M=64, K=64, N=64, **others)  # type: ignore[arg-type]
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code in str(error.value)
    return f"{diagnostic.code} {diagnostic.title}"


# ---------------------------------------------------------------- guards


GUARDED = """
schedule matmul for cpu(M >= 64, N >= 64) { reverse i }
schedule matmul for cpu(M < 8) { reverse j }
schedule matmul for gpu { reverse k }
"""


def test_the_first_schedule_whose_guards_all_hold_is_taken():
    assert directives(chosen(GUARDED, M=64, K=4, N=64)) == ["reverse i"]
    assert directives(chosen(GUARDED, M=4, K=4, N=64)) == ["reverse j"]


def test_nothing_is_chosen_when_no_guard_holds():
    assert chosen(GUARDED, M=32, K=4, N=64) is None


def test_what_was_tried_says_why_not():
    found = chosen(GUARDED, M=4, K=4, N=64)
    assert found is not None
    assert [str(t) for t in found.tried] == ["schedule matmul for cpu(M >= 64, N >= 64) (mine.tl:6): `M >= 64` does not hold (M = 4)"]
    assert found.origin == "schedule matmul for cpu(M < 8) (mine.tl:7)"


@pytest.mark.parametrize(
    ("guard", "holds"),
    [
        ("M == 64", True),
        ("M*N > K + 1", True),
        ("M % 16 == 0 and N // 2 == 32", True),
        ("not M == 64", False),
        ("M < 8 or K == 16", True),
        ("8 < K <= 16", True),
        ("-M < 0", True),
        ("alpha == 3", True),
        ('mode == "fast"', True),
        ('mode != "fast"', False),
    ],
)
def test_guards_are_conditions_over_sizes_and_attributes(guard, holds):
    found = chosen(f"schedule matmul for cpu({guard}) {{ reverse i }}", attrs={"alpha": 3, "mode": "fast"}, M=64, K=16, N=64)
    assert (found is not None) == holds


def test_a_guard_over_a_run_time_size_does_not_hold_unless_the_rest_decides():
    m = module(MATMUL + "schedule matmul for cpu(M >= 64) { reverse i }\nschedule matmul for cpu(M >= 64 or alpha == 1) { reverse j }")
    found = search(m, "matmul", declared(m, "matmul"), {}, "cpu", SERIAL).chosen
    assert directives(found) == ["reverse j"]
    assert found is not None and "`M` is a run-time size" in str(found.tried[0])


def test_a_pack_of_run_time_sizes_has_a_rank_and_perhaps_no_product():
    text = "op twice[T: num](x: T[D..]) -> (y: T[D..]) { y[d..] = 2 * x[d..] }\n"
    guards = ("prod(D..) >= 8", "rank(D) == 3", "rank(D) == 2")
    m = module(text + "\n".join(f"schedule twice for cpu({g}) {{ reverse d.{k % 2} }}" for k, g in enumerate(guards)))
    found = search(m, "twice", instantiate(m, "twice", [ArgType(f32, ("M", "N"))], symbolic=True), {}, "cpu", SERIAL).chosen
    assert directives(found) == ["reverse d.0"]
    assert found is not None and "`D` is a run-time size" in str(found.tried[0])


def test_schedules_of_roles_whose_guards_ask_for_run_time_sizes_do_not_apply():
    m = module("op transpose(x: f32[M, N]) -> (y: f32[N, M]) { y[i, j] = x[j, i] }", library())
    found = search(m, "transpose", declared(m, "transpose"), {}, "cpu", Machine(32, 16, 1, target="cpu")).chosen
    assert found is not None and "squares" not in str(found.schedule)


def test_sizes_of_packs_groups_and_broadcasts_are_matched():
    text = """
op pick[T: num](x: T[D.., (G, C)], w: T[broadcast D..], attr G: int = 2) -> (y: T[D.., (G, C)]) { y[d.., (g, c)] = x[d.., (g, c)] * w[d..] }
"""
    text = text.replace("(G, C)", "C").replace("(g, c)", "c").replace(", attr G: int = 2", "")
    m = module(text + "schedule pick for cpu(rank(D) == 2, prod(D..) == 15, C > 4) { reverse c }\nschedule pick for cpu { order c, d.. }")
    types = [ArgType(f32, (3, 5, 8)), ArgType(f32, (5,))]
    assert directives(search(m, "pick", instantiate(m, "pick", types), {}, "cpu", SERIAL).chosen) == ["reverse c"]
    types = [ArgType(f32, (3, 8)), ArgType(f32, (3,))]
    assert directives(search(m, "pick", instantiate(m, "pick", types), {}, "cpu", SERIAL).chosen) == ["order c, d.0"]


# ---------------------------------------------------------------- knobs and tactics

KNOBS = "schedule matmul for cpu { knobs mr in {4, 8}, nr in {16, 32}\n tile c (i, j) by (mr, 2*nr) -> io, jo, ii, ji }"


def test_a_knob_is_its_first_choice_unless_the_caller_chooses():
    assert directives(chosen(KNOBS, M=64, K=64, N=64)) == ["tile c (i, j) by (4, 32) -> io, jo, ii, ji"]
    found = chosen(KNOBS, knobs={"mr": 8, "nr": 32}, M=64, K=64, N=64)
    assert directives(found) == ["tile c (i, j) by (8, 64) -> io, jo, ii, ji"]
    assert found is not None and found.knobs == {"mr": 8, "nr": 32}


def test_tactics_take_tensors_loops_and_numbers():
    text = """
tactic rows(y, i, count) { split y.i by count -> io, ii
    inner(ii) }
tactic inner(loop) { knobs u in {2}
    unroll loop }
schedule matmul for cpu { rows(c, i, 6) }
"""
    assert directives(chosen(text, M=64, K=64, N=64)) == ["split c.i by 6 -> io, ii", "unroll c.ii"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schedule matmul for cpu { gem(c) }\ntactic gemm(y) { reverse y.i }", "S0502 there is no tactic `gem`"),
        ("schedule matmul for cpu { t(c) }\ntactic t(y, i) { reverse y.i }", "S0503 tactic `t` takes 2 arguments, not 1"),
        (
            "schedule matmul for cpu { a(c) }\ntactic a(y) { b(y) }\ntactic b(y) { a(y) }",
            "S0504 tactic `a` calls itself: `a` calls `b` calls `a`",
        ),
        ("schedule matmul for cpu(Q > 1) { reverse i }", "S0505 a guard cannot ask for `Q`"),
        ("schedule matmul for cpu(max(M, N) > 1) { reverse i }", "S0506 `max(M, N)` is no condition over sizes and attributes"),
        ('schedule matmul for cpu(M > "a") { reverse i }', "S0506 `M > \"a\"` cannot be computed for 64 and 'a'"),
        ("schedule matmul for cpu { knobs mr in {4.5}\n split i by mr -> io, ii }", "S0509 `4.5` is no value of knob `mr`"),
        ("schedule matmul for cpu { knobs mr in {4}, mr in {8}\n split i by mr -> io, ii }", "S0510 knob `mr` is declared twice"),
        ("schedule matmul for cpu { order d.., i }", "S0514 there is no pack `d..` here"),
    ],
)
def test_mistakes_in_a_schedule_are_told(text, message):
    assert refused(text) == message


def test_a_knob_that_is_not_there_or_not_in_its_list_is_told():
    assert refused(KNOBS, knobs={"mr": 5}) == "S0507 5 is not among the values of knob `mr`"
    assert refused(KNOBS, knobs={"kr": 5}) == "S0508 the schedule of `matmul` has no knob `kr`"
    assert refused("", knobs={"kr": 5}) == "S0508 there is no knob `kr`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schedule matmull for cpu { reverse i }", "S0501 there is no operator `matmull`"),
        ("schedule matmul for cdua { reverse i }", "S0513 there is no target `cdua`"),
        ("schedule role contract(y, a, b; i..) for cpu { reverse i }", "S0511 there is no role `contract` for `cpu`"),
        ("schedule role windowed(y; i..) for cpu { reverse i }", "S0511 there is no role `windowed` for `cpu`"),
        ("schedule role contraction(y, a; i..) for cpu { reverse i }", "S0512 role `contraction` has other parameters"),
        ("schedule matmul for cpu(L >= 2) { reverse i }", "S0505 a guard cannot ask for `L`"),
        (
            "schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu(rank(batch) < 3, a.size > 2) { reverse i }",
            "S0505 a guard cannot ask for `a.size`",
        ),
        ("schedule matmul for cpu { gem(c) }", "S0502 there is no tactic `gem`"),
        ("schedule matmul for cpu { gem(c) if M < 2 }", "S0502 there is no tactic `gem`"),
        ("schedule matmul for cpu { reverse i if L >= 2 }", "S0505 a condition cannot ask for `L`"),
        ("schedule matmul for cpu { reverse i if exp(M) > 2 }", "S0506 `exp(M)` is no condition over sizes and attributes"),
        ("schedule matmul for cpu { reverse i if n > 2\n knobs n in {4} }", "S0505 a condition cannot ask for `n`"),
        ("schedule matmul for cpu { t(i) }\ntactic t(l) { reverse l if l > 2 }", "S0505 a condition cannot ask for `l`"),
        ("schedule matmul for cpu { t(i, 4) }\ntactic t(l, n) { reverse l if n > 2 and p > 1 }", "S0505 a condition cannot ask for `p`"),
        (
            "schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu { t(b, j..) }\n"
            "tactic t(x, l) { vectorize l.. if x.reuse > 2 and rank(l) == 1 and l.extent > 4 and x.size > 2 }",
            "S0505 a condition cannot ask for `x.size`",
        ),
        ("schedule matmul for cpu { t() }\ntactic t() { t() }", "S0504 tactic `t` calls itself: `t` calls `t`"),
    ],
)
def test_a_file_is_checked_without_a_call(text, message):
    (diagnostic,) = check_schedules(module(MATMUL + text))
    assert f"{diagnostic.code} {diagnostic.title}" == message
    assert diagnostic.labels


def test_a_role_that_is_not_there_is_one_of_the_target_misspelled():
    (diagnostic,) = check_schedules(module("schedule role long_row_reductio(y; i..) for cuda { reverse i }"))
    assert (diagnostic.title, diagnostic.help) == ("there is no role `long_row_reductio` for `cuda`", "did you mean `long_row_reduction`?")


def test_the_library_has_no_such_mistakes():
    assert check_schedules(library()) == []


# ---------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("M >= 64", True),
        ("M > 64", False),
        ("alpha == 3 and not N < 8", True),
        ('mode == "fast" or mr > 4', False),
        ("mr == 4", True),
        ("nothing == 1", None),
    ],
)
def test_a_directive_is_left_out_where_its_condition_does_not_hold(condition, holds):
    text = f"schedule matmul for cpu {{ knobs mr in {{4, 8}}\n reverse i if {condition}\n reverse j }}"
    if holds is None:
        assert refused(text, attrs={"alpha": 3}) == "S0505 a condition cannot ask for `nothing`"
        return
    found = chosen(text, attrs={"alpha": 3}, M=64, K=16, N=64)
    assert directives(found) == (["reverse i", "reverse j"] if holds else ["reverse j"])
    assert found is not None and len(found.left_out) == (not holds)


def test_what_is_left_out_is_told_with_its_reason():
    found = chosen("schedule matmul for cpu { knobs mr in {4, 8}\n split i by mr -> io, ii if M > 64 }", M=64, K=16, N=64)
    assert found is not None
    assert found.left_out == ("`split i by mr -> io, ii` is left out: `M > 64` does not hold (M = 64)",)


def test_conditions_in_tactics_ask_for_numbers_of_the_caller_and_its_sizes():
    text = """
tactic rows(i, count) { split i by count -> io, ii
    inner(ii, 2*count) if count > 4 }
tactic inner(loop, count) { unroll loop if count == 16 and M == 64
    vectorize loop if count != 16 }
schedule matmul for cpu { rows(i, 8)
    rows(j, 4) if N == 64 }
"""
    assert directives(chosen(text, M=64, K=64, N=64)) == ["split i by 8 -> io, ii", "unroll ii", "split j by 4 -> io1, ii1"]


def test_a_tactic_that_is_called_again_makes_other_loops():
    text = """
tactic tiles(y, i, j, p, q) { tile y (i, j) by (p, q) -> io, jo, ii, ji }
tactic nested(y, i, j) { tiles(y, i, j, 32, 16)
    tiles(y, ii, ji, 4, 8)
    vectorize ji }
schedule matmul for cpu { nested(c, i, j)
    tiles(c, io, jo, 2, 2) }
"""
    assert directives(chosen(text, M=64, K=64, N=64)) == [
        "tile c (i, j) by (32, 16) -> io, jo, ii, ji",
        "tile c (c.ii, c.ji) by (4, 8) -> io1, jo1, ii1, ji1",
        "vectorize c.ji1",
        "tile c (io, jo) by (2, 2) -> io2, jo2, ii2, ji2",
    ]


@pytest.mark.parametrize(
    ("directive", "taken"),
    [
        ("cut i at M // 2 -> a, b", "cut i at 64 // 2 -> a, b"),
        ("cut i at alpha, N - alpha -> a, b, c", "cut i at 3, 16 - 3 -> a, b, c"),
        ("affine c (M - 1 - i) -> a", "affine c (64 - 1 - i) -> a"),
        ("halves(i, K * alpha)", "cut i at 24 -> a, b"),
    ],
)
def test_sizes_and_attributes_that_are_known_are_numbers_where_loops_are_cut_and_mapped(directive, taken):
    text = f"tactic halves(i, point) {{ cut i at point -> a, b }}\nschedule matmul for cpu {{ {directive} }}"
    assert directives(chosen(text, attrs={"alpha": 3}, M=64, K=8, N=16)) == [taken]


@pytest.mark.parametrize(
    ("directive", "taken"),
    [("cut i at M + alpha -> a, b", "cut i at 64 + -3 -> a, b"), ("affine c (alpha * i, j) -> a, b", "affine c (-3 * i, j) -> a, b")],
)
def test_attributes_that_are_less_than_zero_are_numbers_there_too(directive: str, taken: str) -> None:
    assert directives(chosen(f"schedule matmul for cpu {{ {directive} }}", attrs={"alpha": -3}, M=64, K=8, N=16)) == [taken]


def test_a_loop_that_is_called_as_a_size_is_the_loop():
    found = directives(chosen("schedule matmul for cpu { split i by 8 -> M, ii\n affine c (M, ii + K) -> a, b }", M=64, K=8, N=16))
    assert found == ["split i by 8 -> M, ii", "affine c (M, ii + 8) -> a, b"]


def test_conditions_decide_for_all_sizes_that_a_kernel_serves():
    m = module(MATMUL + "schedule matmul for cpu(M >= 8) { reverse i if K >= 8 }")
    at = {"M": 8, "K": 8, "N": 8}
    with pytest.raises(CompileError) as error:
        search(m, "matmul", declared(m, "matmul"), {}, "cpu", SERIAL, at=at)
    (diagnostic,) = error.value.diagnostics
    assert (diagnostic.code, diagnostic.title) == ("S0515", "`K >= 8` is not known when compiling: `K` is a run-time size")


CONDITIONAL = """
tactic twice(i, l) { split i by 2 -> io, ii if rank(i) == 1 and prod(i..) > 2
    split i by 4 -> io, ii if prod(i..) <= 2
    vectorize l.. if l.extent >= 8 }
tactic never(k) { split k by 2 -> ko, ki }
schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu {
    never(k) if b.reuse == 0
    twice(i, j)
    split j by 8 -> jo, ji if b.reuse == 0
    order batch.., jo, io, ko, ki, ii, ji
}
"""


@pytest.mark.parametrize(("rows", "split"), [(6, "split y.i by 2 -> io, ii"), (2, "split y.i by 4 -> io, ii")])
def test_loops_that_no_directive_of_a_role_makes_are_not_there(rows, split):
    m = module(CONDITIONAL, library())
    program = instantiate(m, "matmul", [ArgType(f32, (rows, 4)), ArgType(f32, (4, 8))], {})
    found = search(m, "matmul", program, {}, "cpu", SERIAL).chosen
    assert directives(found) == [split, "vectorize y.j", "order y.io, y.ii"]


@pytest.mark.parametrize("condition", ["prod(i..) > 8", "not prod(i..) > 8"])
def test_a_condition_of_a_role_on_a_run_time_size_does_not_hold(condition):
    m = module(ROLE.replace("i.., j.. }", f"i.., j.. if {condition}\n vectorize j }}"), library())
    program = instantiate(m, "matmul", [ArgType(f32, ("M", 4)), ArgType(f32, (4, 8))], {})
    found = search(m, "matmul", program, {}, "cpu", SERIAL).chosen
    assert directives(found) == ["vectorize y.j"]
    assert found is not None and f"`{condition}` is not known when compiling" in found.left_out[0]


# ---------------------------------------------------------------- roles


@pytest.mark.parametrize(
    ("guard", "holds"), [("rank(batch) == 1", True), ("prod(i..) > 8", False), ("k.extent == 4 and b.reuse == 8", True)]
)
def test_the_guards_of_a_role_ask_for_its_loops_and_tensors(guard, holds):
    m = module(ROLE.replace("for cpu", f"for cpu({guard})"), library())
    program = instantiate(m, "matmul", [ArgType(f32, (3, 8, 4)), ArgType(f32, (3, 4, 8))], {})
    found = search(m, "matmul", program, {}, "cpu", SERIAL).chosen
    assert found is not None and ("mine.tl" in found.origin) == holds


ROLE = "schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu { order batch.., k.., i.., j.. }"


@pytest.mark.parametrize(
    ("guard", "holds"), [("w.reuse == 8 and d.block == 0", True), ("w.reuse == 1", False), ("d.block > 0", False), ("x.group == 1", True)]
)
def test_facts_are_of_a_parameter_whatever_the_schedule_calls_it(guard, holds):
    role = f"schedule role contraction(z, x, w; g.., m.., n.., d..) for cpu({guard}) {{ reverse n if {guard} }}"
    m = module(role, library())
    program = instantiate(m, "matmul", [ArgType(f32, (3, 8, 4)), ArgType(f32, (3, 4, 8))], {})
    found = search(m, "matmul", program, {}, "cpu", SERIAL).chosen
    assert found is not None and ("mine.tl" in found.origin) == holds


def test_an_operators_schedule_wins_over_a_role_and_the_users_over_the_librarys():
    theirs = module(MATMUL + "schedule matmul for cpu { reverse i }\n" + ROLE)
    program = declared(theirs, "matmul", M=8, K=8, N=8)

    def origin(text: str) -> str:
        found = search(module(text, theirs), "matmul", program, {}, "cpu", SERIAL).chosen
        assert found is not None
        return found.origin

    assert origin("") == "schedule matmul for cpu (mine.tl:5)"
    assert origin(ROLE) == "schedule role contraction for cpu (mine.tl:1)"
    assert origin(ROLE + "\nschedule matmul for cpu { reverse j }") == "schedule matmul for cpu (mine.tl:2)"


@pytest.mark.parametrize(
    ("operator", "shapes", "attrs", "order"),
    [
        ("matmul", [(8, 8), (8, 8)], {}, "order y.k, y.i, y.j"),
        ("matmul", [(3, 8, 8), (3, 8, 8)], {}, "order y.d.0, y.k, y.i, y.j"),
        ("matmul", [(3, 8, 8), (8, 8)], {}, "order y.k, y.d.0_i, y.j"),
        ("gemm_nt", [(8, 8), (8, 8), (8,)], {}, "order y.k, y.i, y.j"),
    ],
)
def test_one_role_serves_products_of_every_kind(operator, shapes, attrs, order):
    m = module(ROLE, library())
    program = instantiate(m, operator, [ArgType(f32, s) for s in shapes], attrs)
    found = search(m, operator, program, attrs, "cpu", SERIAL).chosen
    assert order in directives(found)


def test_a_convolution_whose_channels_are_contiguous_is_a_contraction_too():
    m = module(ROLE, library())
    program = instantiate(m, "conv", [ArgType(f32, s) for s in ((2, 4, 6, 6), (8, 4, 3, 3), (8,))], {})
    axes, extents = ("n", "p.0", "p.1", "f"), (2, 4, 4, 8)
    last = Storage(tuple(Name(a) for a in axes), tuple(affine.to_expr(e) for e in extents))
    found = search(m, "conv", program, {}, "cpu", SERIAL, layouts={"y": last}).chosen
    assert "order y.g, y.c, y.r.0, y.r.1, y.n, y.p.0, y.p.1, y.f" in directives(found)


@pytest.mark.parametrize(
    ("near", "window", "outer"),
    [
        pytest.param(4096, 3, ("y.g", "y.jo", "y.n", "y.p.0"), id="all that columns read again stays near"),
        pytest.param(1400, 3, ("y.g", "y.n", "y.jo", "y.p.0"), id="one image stays near"),
        pytest.param(1000, 3, ("y.g", "y.n", "y.p.0", "y.jo"), id="a row of it does"),
        pytest.param(1400, 1, ("y.g", "y.n", "y.p.0", "y.io", "y.jo"), id="so do the weights, and no results"),
    ],
)
def test_rows_are_outside_the_columns_that_would_read_them_again_from_far(near, window, outer):
    weights, last = (8, 4, window, window), [Name(a) for a in ("n", "p.0", "p.1", "f")]
    program = instantiate(library(), "conv", [ArgType(f32, s) for s in ((2, 4, 6, 6), weights, (8,))], {})
    side = 7 - window
    layouts = {"y": Storage(tuple(last), tuple(affine.to_expr(e) for e in (2, side, side, 8)))}
    found = search(library(), "conv", program, {}, "cpu", Machine(target="cpu", l2_bytes=near), layouts=layouts).chosen
    assert any(d.startswith(f"order {', '.join(outer)}, ") for d in directives(found))
    proven(program, found.schedule, layouts)


@pytest.mark.parametrize(("rows", "width", "together"), [(64, 128, 4), (64, 1024, 2), (64, 2048, None), (3, 128, None)])
def test_short_rows_go_through_a_softmax_several_at_a_time(rows, width, together):
    m = library()
    program = instantiate(m, "softmax", [ArgType(f32, (rows, width))], {"axis": 1})
    found = search(m, "softmax", program, {"axis": 1}, "cpu", SERIAL).chosen
    expected = [] if together is None else [f"split y.a.0 by {together} -> io, ii"]
    assert [d for d in directives(found) if d.startswith("split y.a.0")] == expected
    proven(program, found.schedule)


@pytest.mark.parametrize(("dtype", "lanes"), [("u8", 64), ("i16", 32), ("f32", 16), ("f64", 8)])
def test_vectors_of_rows_hold_as_many_elements_as_fit_their_type(dtype: str, lanes: int) -> None:
    text = f"""
op extent(x: {dtype}[40, 300]) -> (y: {dtype}[40, 298]) {{
    u[i, j] = max(max(x[i, j], x[i, j + 1]), x[i, j + 2])   for i in 0..40, j in 0..298
    v[i, j] = min(min(x[i, j], x[i, j + 1]), x[i, j + 2])   for i in 0..40, j in 0..298
    y[i, j] = max(max(u[i, j], v[i, (j + 1) % 298]), x[i, j])
}}
"""
    m = module(text, library())
    found = search(m, "extent", declared(m, "extent"), {}, "cpu", SERIAL).chosen
    assert found is not None and "row_reduction" in found.origin
    assert f"split u.j by {lanes} -> jo, jv" in directives(found)


def test_both_products_of_attention_and_its_softmax_are_matched_by_roles():
    text = """
op attention(q: f32[L, E], k: f32[S, E], v: f32[S, E]) -> (y: f32[L, E]) {
    s[i, j] = sum(e) q[i, e] * k[j, e]
    m[i]    = max(j) s[i, j]
    p[i, j] = exp(s[i, j] - m[i])
    y[i, e] = sum(j) p[i, j] * v[j, e]
}
"""
    m = module(text, library())
    program = declared(m, "attention", L=32, S=24, E=16)
    found = search(m, "attention", program, {}, "cpu", SERIAL).chosen
    assert found is not None
    assert "contraction" in found.origin and "row_reduction" in found.origin
    assert {"at p at y.ib", "at s at y.ib", "at m at p.io", "pack k as [s.jo, s.e, s.jt]"} <= set(directives(found))
    plan = proven(program, found.schedule)
    assert all(plan.depth[t] >= 1 for t in ("s", "m", "p"))


def test_keys_are_copied_once_for_all_blocks_of_queries():
    text = """
op attention(q: f32[H, L, E], k: f32[H, S, E], v: f32[H, S, E]) -> (y: f32[H, L, E]) {
    s[h, i, j] = sum(e) q[h, i, e] * k[h, j, e]
    m[h, i]    = max(j) s[h, i, j]
    p[h, i, j] = exp(s[h, i, j] - m[h, i])
    y[h, i, e] = sum(j) p[h, i, j] * v[h, j, e]
}
"""
    m = module(text, library())
    program = declared(m, "attention", H=5, L=140, S=72, E=32)
    found = search(m, "attention", program, {}, "cpu", Machine(target="cpu", threads=2)).chosen
    assert {"pack k at y.h as [s.jo, s.e, s.jt]", "parallel y.h"} <= set(directives(found))
    assert sum(d.startswith("parallel") for d in directives(found)) == 1
    proven(program, found.schedule)


COLUMNS = """
op attention(q: f32[H, E, L], k: f32[H, E, S], v: f32[H, E, S]) -> (y: f32[H, E, L]) {
    s[h, i, j] = sum(e) q[h, e, i] * k[h, e, j]
    m[h, i]    = max(j) s[h, i, j]
    p[h, i, j] = exp(s[h, i, j] - m[h, i])
    y[h, e, i] = sum(j) v[h, e, j] * p[h, i, j]
}
"""


@pytest.mark.parametrize(("heads", "spread"), [(1, "parallel y.jb"), (5, "parallel y.h")])
def test_rows_of_probabilities_that_are_columns_of_a_product_are_computed_for_a_block_of_columns(heads: int, spread: str) -> None:
    m = module(COLUMNS, library())
    program = declared(m, "attention", H=heads, L=140, S=72, E=32)
    found = search(m, "attention", program, {}, "cpu", Machine(target="cpu", threads=2)).chosen
    assert {"at p at y.jb", "at s at y.jb", "pack p in y.i at y.jb as [y.js, y.j, y.jt]", spread} <= set(directives(found))
    plan = proven(program, found.schedule)
    assert all(plan.depth[t] >= 2 for t in ("s", "m", "p"))


def test_few_rows_of_probabilities_that_are_columns_of_a_product_are_read_as_they_lie() -> None:
    m = module(COLUMNS, library())
    found = search(m, "attention", declared(m, "attention", H=2, L=9, S=1000, E=64), {}, "cpu", SERIAL).chosen
    assert "vectorize y.kv" in directives(found)
    assert not any(d.startswith("at") and "y." in d for d in directives(found))


GROUPED = """
op attention(q: f32[G, R, L, E], k: f32[G, S, E], v: f32[G, S, E]) -> (y: f32[L, G, R, E]) {
    s[g, r, i, j] = sum(e) q[g, r, i, e] * k[g, j, e]
    m[g, r, i]    = max(j) s[g, r, i, j]
    p[g, r, i, j] = exp(s[g, r, i, j] - m[g, r, i])
    y[i, g, r, e] = sum(j) p[g, r, i, j] * v[g, j, e]
}
"""


def test_heads_that_share_keys_and_values_are_rows_and_blocks_are_along_the_queries():
    m = module(GROUPED, library())
    program = declared(m, "attention", G=2, R=4, L=140, S=72, E=32)
    found = search(m, "attention", program, {}, "cpu", Machine(target="cpu", threads=1)).chosen
    told = directives(found)
    assert {"at p at y.ib", "at s at y.ib", "pack v at y.g as [y.jo, y.j, y.jt]", "pack k at y.g as [s.jo, s.e, s.jt]"} <= set(told)
    assert any(d.startswith("order y.g, y.r, y.ib,") for d in told)
    plan = proven(program, found.schedule)
    assert all(plan.depth[t] >= 3 for t in ("s", "m", "p"))


def test_the_rows_of_few_queries_and_heads_that_share_keys_are_computed_whole():
    m = module(GROUPED, library())
    found = search(m, "attention", declared(m, "attention", G=2, R=12, L=1, S=72, E=32), {}, "cpu", SERIAL).chosen
    assert not any(d.startswith("at") and "y." in d for d in directives(found))


def test_products_of_few_rows_or_with_an_operand_that_others_read_are_computed_whole():
    text = """
op attention(q: f32[L, E], k: f32[S, E], v: f32[S, E]) -> (y: f32[L, E], p: f32[L, S]) {
    s[i, j] = sum(e) q[i, e] * k[j, e]
    m[i]    = max(j) s[i, j]
    p[i, j] = exp(s[i, j] - m[i])
    y[i, e] = sum(j) p[i, j] * v[j, e]
}
"""
    m = module(text, library())
    found = search(m, "attention", declared(m, "attention", L=32, S=24, E=16), {}, "cpu", SERIAL).chosen
    assert not any(d.startswith("at") and "y." in d for d in directives(found))
    m = module(text.replace(", p: f32[L, S]", ""), library())
    found = search(m, "attention", declared(m, "attention", L=3, S=24, E=16), {}, "cpu", SERIAL).chosen
    assert not any(d.startswith("at") and "y." in d for d in directives(found))


@pytest.mark.parametrize(
    ("operator", "shapes", "attrs", "role"),
    [
        ("matmul", [(10, 7), (7, 35)], {}, "contraction"),
        ("matmul", [(2, 9, 7), (2, 7, 20)], {}, "contraction"),
        ("gemm_nt", [(5, 7), (20, 7), (20,)], {}, "contraction"),
        ("matmul", [(9, 37), (37, 1)], {}, "contraction"),
        ("matmul", [(13, 67), (67, 5)], {}, "contraction"),
        ("matmul", [(2, 6, 33), (2, 33, 3)], {}, "contraction"),
        ("transpose", [(9, 18)], {"perm": (1, 0)}, "pointwise"),
        ("add", [(3, 20), (20,)], {}, "pointwise"),
    ],
)
def test_the_librarys_role_schedules_compute_what_their_operators_say(operator, shapes, attrs, role):
    program = instantiate(library(), operator, [ArgType(f32, s) for s in shapes], attrs)
    found = search(library(), operator, program, attrs, "cpu", Machine(target="cpu", threads=2)).chosen
    assert found is not None and f"role {role}" in found.origin
    assert_same(program, proven(program, found.schedule), {})


def test_tiles_of_a_role_suit_the_extents_unless_the_caller_chooses():
    program = instantiate(library(), "matmul", [ArgType(f32, (6, 64)), ArgType(f32, (64, 64))], {})
    found = search(library(), "matmul", program, {}, "cpu", SERIAL).chosen
    assert found is not None and found.knobs == {"mr": 6, "nv": 2}
    found = search(library(), "matmul", program, {}, "cpu", SERIAL, knobs={"mr": 3}).chosen
    assert found is not None and found.knobs["mr"] == 3


def test_a_refused_role_falls_to_the_next_and_is_listed():
    bad = "schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu { parallel k }\n"
    m = module(bad, library())
    program = instantiate(m, "matmul", [ArgType(f32, (16, 16)), ArgType(f32, (16, 16))], {})
    found = search(m, "matmul", program, {}, "cpu", SERIAL).chosen
    assert found is not None and "roles.tl" in found.origin
    assert any(t.name == "schedule role contraction for cpu (mine.tl:1)" and "at the same time" in t.why for t in found.tried)


def test_what_the_caller_stores_in_a_layout_is_not_packed_again():
    program = instantiate(library(), "matmul", [ArgType(f32, (1024, 640)), ArgType(f32, (640, 640))], {})
    plain = search(library(), "matmul", program, {}, "cpu", SERIAL).chosen
    assert any(line.startswith("pack b") for line in directives(plain))
    j, k = Name("a1"), Name("a0")
    stored = Storage((affine.floor(j, 32), k, affine.mod(j, 32)), (affine.to_expr(20), affine.to_expr(640), affine.to_expr(32)))
    kept = search(library(), "matmul", program, {}, "cpu", SERIAL, layouts={"b": stored}).chosen
    assert not any(line.startswith("pack b") for line in directives(kept))


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "copied"),
    [(1024, 640, 640, True), (1024, 64, 640, False), (128, 640, 4096, False)],
    ids=["often, from beyond the cache", "often, from the cache", "seldom"],
)
def test_rows_that_vectors_can_be_read_from_are_copied_when_it_pays(rows, inner, columns, copied):
    program = instantiate(library(), "matmul", [ArgType(f32, (rows, inner)), ArgType(f32, (inner, columns))], {})
    found = search(library(), "matmul", program, {}, "cpu", SERIAL).chosen
    assert any(line.startswith("pack b") for line in directives(found)) == copied


def test_a_single_row_is_computed_in_wide_tiles():
    program = instantiate(library(), "matmul", [ArgType(f32, (1, 768)), ArgType(f32, (768, 3072))], {})
    assert any(line.startswith("split y.j by 384") for line in directives(search(library(), "matmul", program, {}, "cpu", SERIAL).chosen))


@pytest.mark.parametrize(("steps", "batch", "axis"), [(64, 2, "t"), (4, 64, "n"), (64, 64, "n")])
def test_register_tiles_have_their_rows_along_the_axis_whose_samples_fill_them(steps: int, batch: int, axis: str) -> None:
    m = module("op f(x: f32[T, B, 96], w: f32[96, 64]) -> (y: f32[T, B, 64]) { y[t, n, j] = sum(i) x[t, n, i] * w[i, j] }", library())
    found = search(m, None, declared(m, "f"), {}, "cpu", SERIAL, at={"T": steps, "B": batch}).chosen
    assert any(line.startswith(f"split y.{axis} by ") and line.endswith("-> io, ii") for line in directives(found))


@pytest.mark.parametrize(("length", "vectors"), [(150, 1), (4096, 4)])
def test_sums_along_rows_of_open_length_have_accumulators_for_what_is_left_over_too(length: int, vectors: int) -> None:
    text = "op f(a: f32[B, M, K], x: f32[B, K]) -> (y: f32[B, M]) { y[b, i] = sum(k) a[b, i, k] * x[b, k] }"
    m = module(text, library())
    found = search(m, None, declared(m, "f"), {}, "cpu", SERIAL, at={"B": 30, "M": 120, "K": length}).chosen
    assert f"split y.k by {vectors * SERIAL.lanes(f32)} -> ko, kv" in directives(found)


SUMS = """
op nn(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }
op nt(a: f32[M, K], b: f32[N, K]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[j, k] }
op tn(a: f32[K, M], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[k, i] * b[k, j] }
op biased(a: f32[M, K], b: f32[N, K], c: f32[N]) -> (y: f32[M, N]) { y[i, j] = max(c[j] + sum(k) a[i, k] * b[j, k], 0) }
strict op exact(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }
"""


@pytest.mark.parametrize(
    ("operator", "m", "k", "n", "vector"),
    [
        ("nn", 256, 256, 1, "kv"),
        ("nn", 256, 256, 7, "kv"),
        ("nn", 256, 256, 16, "jv"),
        ("nn", 1, 256, 256, "jv"),
        ("nn", 256, 15, 7, "jv"),
        ("nt", 1, 256, 256, "kv"),
        ("nt", 8, 256, 256, "kv"),
        ("biased", 2, 256, 256, "kv"),
        ("nt", 256, 256, 256, "jv"),
        ("tn", 256, 256, 1, "jv"),
        ("exact", 256, 256, 7, "jv"),
    ],
)
def test_sums_run_in_vectors_where_columns_do_so_slower(operator, m, k, n, vector):
    own = module(SUMS, library())
    found = search(own, operator, declared(own, operator, M=m, K=k, N=n), {}, "cpu", SERIAL).chosen
    assert [line for line in directives(found) if line.startswith("vectorize y.")] == [f"vectorize y.{vector}"]


def test_operands_that_are_said_to_be_row_major_are_summed_in_vectors_as_those_of_which_nothing_is_said():
    own = module(SUMS, library())
    program = declared(own, "nt", M=2, K=256, N=256)
    rows = {n: Storage((Name("a0"), Name("a1")), tuple(map(affine.to_expr, shape))) for n, shape in (("a", (2, 256)), ("b", (256, 256)))}
    said, nothing = (directives(search(own, "nt", program, {}, "cpu", SERIAL, layouts=layouts).chosen) for layouts in (rows, {}))
    assert said == nothing and "vectorize y.kv" in said
    turned = {"b": Storage((Name("a1"), Name("a0")), tuple(map(affine.to_expr, (256, 256))))}
    assert "vectorize y.jv" in directives(search(own, "nt", program, {}, "cpu", SERIAL, layouts=turned).chosen)


def test_what_lies_across_is_copied_for_sums_in_vectors():
    own = module(SUMS, library())
    across = search(own, "nn", declared(own, "nn", M=256, K=256, N=7), {}, "cpu", SERIAL).chosen
    along = search(own, "nt", declared(own, "nt", M=256, K=256, N=7), {}, "cpu", SERIAL).chosen
    assert [any(line.startswith("pack b") for line in directives(found)) for found in (across, along)] == [True, False]


def test_a_vector_lies_along_the_sum_whichever_way_it_is_written():
    own = module(SUMS, library())
    found = search(own, "nn", declared(own, "nn", M=256, K=256, N=1), {}, "cpu", SERIAL).chosen
    assert not any(line.startswith("pack b") for line in directives(found))


@pytest.mark.parametrize(("rows", "together"), [(256, 1), (65536, 4)], ids=["in a cache", "beyond the caches"])
def test_rows_are_multiplied_with_a_vector_one_by_one_where_a_cache_holds_them(rows, together):
    own = module(SUMS, library())
    found = search(own, "nn", declared(own, "nn", M=rows, K=256, N=1), {}, "cpu", SERIAL).chosen
    assert any(line.startswith(f"split y.i by {together} ") for line in directives(found))


def test_a_product_with_one_column_has_vectors_of_rows_where_these_lie_next_to_each_other():
    own = module(SUMS, library())
    found = search(own, "tn", declared(own, "tn", M=256, K=256, N=1), {}, "cpu", SERIAL).chosen
    assert any(line.startswith("split y.i by 256") for line in directives(found))


def test_a_program_that_is_no_operators_gets_roles_alone():
    program = instantiate(library(), "matmul", [ArgType(f32, (8, 8)), ArgType(f32, (8, 8))], {})
    found = search(library(), None, program, {}, "cpu", SERIAL).chosen
    assert found is not None and "role contraction" in found.origin


def test_a_recurrence_has_no_role():
    m = module("op scan(x: f32[N]) -> (y: f32[N]) {\n y[0] = x[0]\n y[i] = y[i - 1] + x[i] for i in 1..N\n}", library())
    assert search(m, "scan", declared(m, "scan", N=8), {}, "cpu", SERIAL).chosen is None


def test_the_hand_written_product_is_legal_and_right():
    text = (ROOT / "stdlib" / "schedules" / "matmul.tl").read_text("utf-8")
    found = written(text)
    program = declared(found.module, "matmul", M=70, K=5, N=66)
    assert_same(program, proven(program, found.schedule), {})

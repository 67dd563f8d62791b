from hypothesis import given, settings
from loops_strategies import functions

from codegen.loops.nodes import Function, Int, Var
from codegen.loops.parser import parse, parse_index
from codegen.loops.printer import show, show_stmt
from codegen.loops.walk import binders, children, free_vars, fresh_for, loads, map_stmt, names, rename, stores, substitute, walk

FUNCTION = parse("""
func f(N)(a: f32[N], k: i32[N], out c: f32[N]) {
    for i in 0 .. N {
        alloc t: f32[2] stack
        let x = a[i + value(k[i])]
        t[0] = x
        if index(i) < index(m) {
            c[i] = t[0] * x
        }
        prefetch a[i + 8] locality 3
    }
}
""")


@settings(max_examples=60, deadline=None)
@given(functions())
def test_rebuilding_without_a_change_returns_the_same_object(function: Function) -> None:
    for s in function.body:
        assert map_stmt(s, lambda e: e, lambda e: e, lambda t: t) is s


@settings(max_examples=60, deadline=None)
@given(functions())
def test_the_walk_meets_every_child(function: Function) -> None:
    met = list(walk(*function.body))
    assert len(met) == len(function.body) + sum(len(children(node)) for node in met)


def test_free_variables_are_those_that_no_loop_inside_binds() -> None:
    assert free_vars(*FUNCTION.body) == {"N", "m"}
    assert free_vars(parse_index("i*j + min(i, N)")) == {"i", "j", "N"}


def test_accesses_and_names_are_found_wherever_they_are() -> None:
    assert [load.buffer for load in loads(*FUNCTION.body)] == ["a", "k", "t"]
    assert [store.buffer for store in stores(*FUNCTION.body)] == ["t", "c"]
    assert names(*FUNCTION.body) == {"x"}
    assert list(binders(*FUNCTION.body)) == ["i", "t", "x"]


def test_renaming_reaches_bindings_and_uses() -> None:
    text = show_stmt(rename(FUNCTION.body, {"i": "i_1", "x": "x_1", "t": "t_1", "a": "b"})[0])
    assert text == show_stmt(FUNCTION.body[0]).replace("let x", "let x_1").replace("= x", "= x_1").replace("* x", "* x_1").replace(
        "t[0]", "t_1[0]"
    ).replace("alloc t", "alloc t_1").replace("a[", "b[").replace("[i", "[i_1").replace("(i)", "(i_1)").replace("for i ", "for i_1 ")


def test_substitution_replaces_sizes_everywhere() -> None:
    assert "0 .. 16" in show(parse(show(FUNCTION).replace("0 .. N", "0 .. 16")))
    assert free_vars(*(substitute(s, {"N": Int(16), "m": Var("n")}) for s in FUNCTION.body)) == {"n"}


def test_fresh_names_differ_from_all_others() -> None:
    fresh = fresh_for(FUNCTION)
    assert [fresh("i"), fresh("i"), fresh("N"), fresh("a"), fresh("t"), fresh("new"), fresh("new")] == [
        "i_1",
        "i_2",
        "N_1",
        "a_1",
        "t_1",
        "new",
        "new_1",
    ]

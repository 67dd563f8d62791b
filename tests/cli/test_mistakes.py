"""What newcomers write first, and what `tensorlang check` says of it: habits of NumPy, einsum, C, TVM, Halide and Triton; names that
nothing uses. Each is told what is wrong, where, why and what to write, and none passes in silence."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from golden_case import GOLDEN, cases, source

import tensorlang as tl
from tensorlang.check.definition import check_module
from tensorlang.check.lint import warnings_in
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source, render
from tensorlang.shell.checking import check_source, fixed
from tensorlang.syntax.format import fmt
from tensorlang.syntax.parse import load, parse

CASES = cases("mistakes")
TYPED = [
    "accumulated_differences",
    "accumulated_elements",
    "accumulated_histogram",
    "accumulated_products",
    "element_that_a_size_is_near_to",
    "element_that_nothing_binds",
    "scatter_in_a_row",
    "scatter_into_a_local",
    "scatter_of_rows",
    "sum_without_its_reduction",
]
"""Whose help is an equation to write in place of the wrong one."""
CURED = [
    "avg_for_mean",
    "cast_by_foreign_name",
    "chained_brackets",
    "comma_missing_between_indices",
    "comma_missing_between_parameters",
    "comment_block_of_c",
    "comment_of_c",
    "dashes_comment",
    "declaration_of_python",
    "dimensions_in_angle_brackets",
    "docstring",
    "elif_of_python",
    "else_for_otherwise",
    "forall",
    "function_of_a_whole_tensor",
    "function_without_parentheses",
    "functions_of_c",
    "generics_of_cpp",
    "if_with_a_colon",
    "import_of_python",
    "index_added_to_a_float",
    "index_as_an_argument",
    "index_forgotten_on_the_right",
    "let_as_a_statement",
    "literal_of_c",
    "max_of_one",
    "maximum_of_numpy",
    "mean_by_index_division",
    "misspelled_declaration",
    "misspelled_for",
    "misspelled_otherwise",
    "misspelled_result",
    "misspelled_words",
    "module_of_numpy",
    "module_of_torch",
    "numpy_addition",
    "op_with_commas_of_shapes",
    "outside_by_another_name",
    "range_call",
    "range_with_a_step",
    "rank_of_an_operand",
    "result_of_a_product_without_a_type",
    "result_without_a_type",
    "result_without_parentheses",
    "round_index",
    "scaled_whole_tensor",
    "schedule_arrow_missing",
    "schedule_fuse_call",
    "schedule_interchange",
    "schedule_order_with_blanks",
    "schedule_parallelize",
    "schedule_reorder_with_blanks",
    "schedule_semicolons",
    "schedule_simd",
    "schedule_split_into",
    "schedule_split_without_by",
    "schedule_tile_without_tensor",
    "schedule_unroll_by",
    "schedule_vectorise",
    "semicolon",
    "shape_before_type",
    "single_equals_in_a_condition",
    "suffix_of_c",
    "sum_of_a_generator",
    "sum_of_a_tensor",
    "swapped_indices",
    "text_in_single_quotes",
    "text_in_typeset_quotes",
    "true_in_capitals",
    "type_double",
    "type_in_capitals",
    "type_int_of_a_function",
    "type_of_a_local",
    "type_of_a_module",
    "type_of_numpy",
    "unequal_of_matlab",
    "unequal_of_pascal",
    "whole_tensor_copied",
]
"""Mistakes of which it is plain what is meant."""


def source_of(path: Path) -> Source:
    return Source(path.name, source(path))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_mistake_is_told_with_its_place_and_what_to_write(path: Path, golden_case: Callable[[Path, str], None]) -> None:
    found = check_source(source_of(path))
    told = [*found.mistakes, *found.warnings]
    assert told
    assert all(d.labels for d in told)
    assert all(d.help or d.notes or len(d.labels) > 1 for d in told)
    golden_case(path, "\n\n".join(render(d) for d in told) + "\n")


@pytest.mark.parametrize("name", CURED)
def test_what_is_surely_meant_is_fixed_and_leaves_nothing_to_say(name: str) -> None:
    after, cured = fixed(source_of(GOLDEN / "mistakes" / f"{name}.tl"))
    assert cured
    assert check_source(after).mistakes == ()


def test_a_file_whose_mistakes_cannot_all_be_read_around_stays_as_it_is() -> None:
    source = Source("a.tl", "op f(x: float32[N]) -> (y: f32[N]) {\n    y[i] = x[i];\n    y[j] = = 2\n}\n")
    after, cured = fixed(source)
    assert (after, cured) == (source, [])


ROOT = Path(__file__).parents[2]
OURS = sorted(path for folder in ("stdlib", "tensorlang", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.tl"))


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(ROOT)))
def test_our_own_files_have_no_warnings(path: Path) -> None:
    assert [render(d) for d in warnings_in(parse(load(path)))] == []


def test_loading_a_text_warns_where_it_is_loaded() -> None:
    text = "op f(x: f32[N], bias: f32[N]) -> (y: f32[N]) {\n    y[i] = x[i]\n}\n"
    with pytest.warns(tl.CompileWarning, match="parameter `bias` is not used") as warned:
        tl.parse(text)
    assert [w.filename for w in warned] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.parse(text.replace("bias", "_bias"))


def test_loading_a_text_warns_of_reductions_that_come_to_what_they_start_from() -> None:
    text = "op f(x: f32[N]) -> (y: i64) {\n    y = REDUCER(i, x[i] > 0, from -1) i\n}\n"
    with pytest.warns(tl.CompileWarning, match="`first` always comes to what it starts from"):
        tl.parse(text.replace("REDUCER", "first"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.parse(text.replace("REDUCER", "last"))


def test_a_component_of_a_reduction_that_defines_others_too_may_be_read_by_nothing() -> None:
    text = """reducer last (m1, a1) (m2, a2) from (-inf, 0) = if m2 >= m1 then (m2, a2) else (m1, a1)

op f(x: f32[K], v: f32[K]) -> (y: f32) {
    m, a = last(k) (x[k], v[k])
    y = READ
}
"""
    one, none = (parse(Source("a.tl", text.replace("READ", read))) for read in ("a", "v[0]"))
    assert warnings_in(one) == []
    assert [d.title for d in warnings_in(none)] == [f"`{name}` is defined and never read" for name in "ma"]


def test_parentheses_that_say_where_a_sum_ends_are_kept() -> None:
    meant = Source("a.tl", "op f(x: f32[K], m: f32) -> (y: f32) {\n    y = (sum(k) x[k]) - m\n}\n")
    assert warnings_in(parse(meant)) == []
    assert fmt(meant) == meant.text


@pytest.mark.parametrize(
    "body",
    [
        "y = sum(i in 0..N - 1) abs(x[i + 1] - x[i])",
        "y = sum(i in 0..N - 1) x[i] * v[i]",
        "y = sum(i in 0..N - 1) x[i] * x[N - 1]",
        "y = sum(_i in 0..N - 1) x[_i]",
        "y = sum(i in 0..N - 1) t[i]\n    t[i] = x[i]",
        "y = sum(i in 0..N - 1, x[i] > 0) x[i]",
        "y = sum(i in 0..N) x[i]",
    ],
)
def test_an_index_that_ends_early_on_purpose_is_no_warning(body: str) -> None:
    text = f"op f(x: f32[N], v: f32[N - 1]) -> (y: f32) where N >= 1 {{\n    {body}\n    z[i] = v[i]\n}}\n"
    assert [d.code for d in warnings_in(parse(Source("a.tl", text))) if d.code == "W0108"] == []


@pytest.mark.parametrize("name", TYPED)
def test_the_equation_that_the_help_names_is_right_in_place_of_the_wrong_one(name: str) -> None:
    path = GOLDEN / "mistakes" / f"{name}.tl"
    text, said = path.read_text("utf-8").split("\n---\n")
    line = int(re.search(r"--> .*:(\d+):", said)[1])
    meant = re.search(r"`([^`]* = [^`]*)`", said[said.index("= help: ") :])[1]
    lines = text.split("\n")
    lines[line - 1] = f"    {meant}"
    assert not check_module(load_module(parse(Source(path.name, "\n".join(lines)))))

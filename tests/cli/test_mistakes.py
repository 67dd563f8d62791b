"""What newcomers write first, and what `tensorlang check` says of it: habits of NumPy, einsum, C, TVM, Halide and Triton; names that
nothing uses. Each is told what is wrong, where, why and what to write, and none passes in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden_case import GOLDEN, cases, source

from tensorlang.diagnostics import Source, render
from tensorlang.shell.checking import check_source, fixed

CASES = cases("mistakes")
CURED = [
    "cast_by_foreign_name",
    "chained_brackets",
    "comment_block_of_c",
    "comment_of_c",
    "dashes_comment",
    "declaration_of_python",
    "docstring",
    "function_of_a_whole_tensor",
    "functions_of_c",
    "index_added_to_a_float",
    "index_forgotten_on_the_right",
    "let_as_a_statement",
    "max_of_one",
    "maximum_of_numpy",
    "mean_by_index_division",
    "module_of_numpy",
    "numpy_addition",
    "op_with_commas_of_shapes",
    "range_call",
    "rank_of_an_operand",
    "result_without_parentheses",
    "round_index",
    "scaled_whole_tensor",
    "schedule_parallelize",
    "schedule_semicolons",
    "schedule_simd",
    "schedule_vectorise",
    "semicolon",
    "shape_before_type",
    "suffix_of_c",
    "sum_of_a_tensor",
    "swapped_indices",
    "true_in_capitals",
    "type_double",
    "type_in_capitals",
    "type_int_of_a_function",
    "type_of_numpy",
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

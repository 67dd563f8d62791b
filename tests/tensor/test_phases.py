"""Sums that a congruence filters, cut into phases: which are, and that no bit of a result changes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from bits import assert_same_bits
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorlang as tl
from codegen.dtypes import f32
from polyhedral import affine
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program, Select
from tensorlang.tensor.phases import by_phases, masked, reading, written_out
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import prove
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import nodes, reduces, tensor_table

Array = np.ndarray[Any, Any]


def program(
    x: int, taps: int, out: int, cond: str, *, order: str = "c, k, i", value: str = "x[c, i] * w[c, k]", mode: Any = "strict"
) -> Program:
    """Return a sum over channels, `taps` and `x` inputs that is filtered by `cond`, with something added to it."""
    ranges = {"c": "c in 0..2", "k": f"k in 0..{taps}", "i": f"i in 0..{x}"}
    binders = ", ".join(ranges[name] for name in order.split(", "))
    text = f"""
op filtered(x: f32[2, {x}], w: f32[2, {taps}], b: f32[{out}]) -> (y: f32[{out}]) {{
    y[p] = b[p] + sum({binders}, {cond}) {value}
}}
"""
    return tl.parse(text, mode=mode).filtered.program(*(np.zeros(s, np.float32) for s in ((2, x), (2, taps), (out,))))


def arrays(of: Program, seed: int = 0) -> dict[str, Array]:
    """Return inputs whose sums depend on their order, some of them not finite."""
    rng = np.random.default_rng(seed)
    out = {}
    for p in of.params:
        array = (rng.standard_normal([int(str(e.value)) for e in p.shape]) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)  # type: ignore[union-attr]
        array.flat[rng.integers(0, max(array.size, 1), array.size // 6)] = rng.choice([np.inf, -0.0, np.nan])
        out[p.name] = array
    return out


def assert_unchanged(before: Program, after: Program, seed: int = 0) -> None:
    """Check that the rewritten program is well-formed and proven, and computes the same bits, operands written out or not."""
    prove(verify(after))
    given_ = arrays(before, seed)
    wanted = interpret(before, {}, given_)["y"]
    assert_same_bits(interpret(after, {}, given_)["y"].reshape(wanted.shape), wanted)
    copies = written_out(after)
    made = {}
    for name, copy in copies.items():
        prove(verify(copy))
        made[name] = interpret(copy, {}, {name: given_[name]})[copy.results[0]]
    last = verify(reading(after, copies))
    prove(last)
    assert_same_bits(interpret(last, {}, {**given_, **made})["y"].reshape(wanted.shape), wanted)


def test_the_terms_of_each_class_are_stepped_through_without_a_test() -> None:
    after = by_phases(program(4, 2, 8, "2*i + k == p"))
    assert "sum(c in 0..2, k_1 in 0..1) x[c, p_1 - k_1] * w[c, 2*k_1 + p.phase]" in show(after).replace("`", "")
    assert "y: f32[(4, 2)]" in show(after)


def test_conditions_are_left_where_inputs_or_taps_end() -> None:
    text = show(by_phases(program(4, 3, 9, "2*i + k == p"))).replace("`", "")
    assert "p_1 - k_1 < 4" in text and "2*k_1 + p.phase < 3" in text


def test_an_axis_that_does_not_come_out_even_is_cut_in_a_tensor_of_its_own() -> None:
    after = by_phases(program(4, 3, 9, "2*i + k == p"))
    table = tensor_table(after)
    assert [str(t.shape) for t in table.values() if t.name.startswith("y.sum")] and len(after.definitions) == 2
    assert_unchanged(program(4, 3, 9, "2*i + k == p"), after)


def test_a_remainder_is_a_filter_like_an_equality() -> None:
    before = program(5, 6, 9, "(p - k) % 3 == 0, k <= p, p - k < 15", order="c, k", value="x[c, (p - k) // 3] * w[c, k]")
    after = by_phases(before)
    assert after != before and "% 3 == 0" not in show(after)
    assert_unchanged(before, after)


def test_with_a_stride_of_one_an_index_is_what_is_left_over() -> None:
    before = program(5, 3, 7, "i + k == p")
    after = by_phases(before)
    assert len(after.definitions) == 1 and "x[c, p - k_1]" in show(after).replace("`", "")
    assert_unchanged(before, after)


@pytest.mark.parametrize("cond", ["i == p", "2*i == p + 1", "3*i == -p + 10", "5 - i == p"])
def test_a_window_of_one_element_leaves_nothing_to_look_for(cond: str) -> None:
    before = program(5, 3, 9, cond, order="c, i", value="x[c, i] * w[c, 0]")
    after = by_phases(before)
    assert not any("i" in {b.name for b in r.binders} for d in after.definitions for r in reduces(d.pieces[0].value))
    assert_unchanged(before, after)


def test_where_all_steps_have_a_divisor_in_common_only_elements_with_terms_are_summed() -> None:
    before = program(4, 3, 12, "4*i + 2*k == p + 1")
    after = by_phases(before)
    [summed] = [t for t in tensor_table(after).values() if t.name.startswith("y.sum")]
    assert "(p + 1) % 2 == 0" in show(after) and prod(affine.constant(n) or 0 for n in summed.shape) <= 8
    assert_unchanged(before, after)


def test_all_classes_of_a_sum_of_its_own_are_at_the_same_places() -> None:
    """Where they begin is in no index of x, and neighbours of a class are neighbours in memory."""
    before = program(9, 4, 18, "2*i + k == p + 1")
    text = show(by_phases(before)).replace("`", "")
    assert "x[c, p_1 - k_1]" in text and "y.sum[p.phase, p_1]" in text and "y.sum[(p + 1) % 2, (p + 1) // 2]" in text
    assert_unchanged(before, by_phases(before))


def test_sums_over_the_same_elements_lie_next_to_each_other_where_they_fill_vectors() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 2, 5), (2, 24, 3)))
    after = by_phases(tl.std.conv_transpose.program(x, w, stride=(2,), lo=(0,), out=(11,)))
    assert any(d.axes[-1] == "f" for d in after.definitions if d.tensors[0].name not in after.results)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_bit_changes_whatever_strides_dilations_and_orders(data: st.DataObject) -> None:
    draw = data.draw
    stride, dilation = draw(st.integers(-4, 4).filter(bool), "stride"), draw(st.integers(-4, 4).filter(bool), "dilation")
    sign = draw(st.sampled_from(["", "-"]), "sign")
    order = draw(st.permutations(["c", "k", "i"]), "order")
    x, taps, out = draw(st.integers(1, 6), "inputs"), draw(st.integers(1, 6), "taps"), draw(st.integers(1, 13), "outputs")
    cond = f"{stride}*i + {dilation}*k == {sign}p + {draw(st.integers(-5, 5), 'offset')}".replace("+ -", "- ")
    before = program(x, taps, out, cond, order=", ".join(order))
    after = by_phases(before)
    assume(after is not before)
    assert_unchanged(before, after, draw(st.integers(0, 99), "seed"))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("stride", "dilation", "lo", "out"), [(2, 1, 1, 8), (3, 2, 0, 12), (2, 2, 1, 9), (4, 1, 0, 16), (1, 1, 1, 5)])
def test_transposed_convolutions_of_the_library_keep_their_bits(group: int, stride: int, dilation: int, lo: int, out: int) -> None:
    rng = np.random.default_rng(stride)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, 4, 5), (4, 3, 3, 4)))
    b = rng.standard_normal(3 * group).astype(np.float32)
    attrs = {"group": group, "stride": (stride,) * 2, "dilation": (dilation, 1), "lo": (lo, 0), "out": (out, out + 1)}
    before = tl.std.conv_transpose.program(x, w, b, **attrs)
    after = by_phases(before)
    prove(verify(after))
    named = {"x": x, "w": w, "b": b}
    wanted = interpret(before, {}, named)["y"]
    assert after is not before
    assert_same_bits(interpret(after, {}, named)["y"].reshape(wanted.shape), wanted)


def test_sums_over_open_sizes_are_rewritten_too() -> None:
    text = "op up(x: f32[N], w: f32[2]) -> (y: f32[2*N]) {\n    y[p] = sum(k, i, 2*i + k == p) x[i] * w[k]\n}\n"
    module = load_module(parse(Source("up.tl", text)))
    symbolic = instantiate(module, "up", [ArgType(f32, ("N",)), ArgType(f32, (2,))], {}, {}, symbolic=True)
    cut = by_phases(symbolic)
    assert cut is not symbolic and cut.sizes == symbolic.sizes
    for n in (1, 5):
        arrays = {"x": np.arange(1, n + 1, dtype=np.float32), "w": np.array([2, 3], np.float32)}
        expected = interpret(symbolic, {"N": n}, arrays)["y"]
        assert interpret(cut, {"N": n}, arrays)["y"].reshape(-1).tolist() == expected.tolist()


def test_a_program_without_such_a_filter_is_returned_itself() -> None:
    before = program(4, 2, 8, "i + 0 >= 0", order="c, k, i")
    assert by_phases(before) is before


def test_a_sum_inside_another_whose_indices_filter_it_is_left_alone() -> None:
    text = """
op nested(x: f32[6], w: f32[3], v: f32[4]) -> (y: f32[8]) {
    y[p] = sum(c in 0..4) v[c] * (sum(k in 0..3, i in 0..6, 2*i + k == p, k < c) x[i] * w[k])
}
"""
    before = tl.parse(text, mode="strict").nested.program(*(np.zeros(n, np.float32) for n in (6, 3, 4)))
    assert by_phases(before) is before


def test_a_maximum_of_no_terms_is_no_value_and_stays_proven() -> None:
    """Where every class has to be shown to have a term, nothing is rewritten."""
    text = "op top(x: f32[4]) -> (y: f32[8]) {\n    y[p] = max(k in 0..2, i in 0..4, 2*i + k == p) x[i]\n}\n"
    before = tl.parse(text, mode="strict").top.program(np.zeros(4, np.float32))
    after = by_phases(before)
    prove(verify(after))
    x = np.float32([3, -1, 2, 5])
    assert_same_bits(interpret(after, {}, {"x": x})["y"].reshape(8), np.repeat(x, 2))


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint64])
@pytest.mark.parametrize(("x", "taps", "out"), [(0, 2, 4), (1, 1, 2), (3, 2, 0), (3, 0, 6)])
def test_no_bit_changes_for_other_types_and_few_elements(dtype: Any, x: int, taps: int, out: int) -> None:
    text = f"""
op filtered[T: num](x: T[{x}], w: T[{taps}]) -> (y: T[{out}]) {{
    y[p] = sum(k in 0..{taps}, i in 0..{x}, 2*i + k == p) x[i] * w[k]
}}
"""
    rng = np.random.default_rng(x)
    given_ = {name: rng.integers(0, 100, n).astype(dtype) for name, n in (("x", x), ("w", taps))}
    before = tl.parse(text, mode="strict").filtered.program(*given_.values())
    after = by_phases(before)
    prove(verify(after))
    wanted = interpret(before, {}, given_)["y"]
    assert_same_bits(interpret(after, {}, given_)["y"].reshape(wanted.shape), wanted)


def has_mask(of: Program) -> bool:
    return any(isinstance(e, Select) for d in of.definitions for p in d.pieces for e in nodes(p.value))


@given(taps=st.integers(1, 6), x=st.integers(1, 6), offset=st.integers(-4, 4), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_terms_are_multiplied_by_zero_without_a_bit_changing_where_weights_are_finite(taps: int, x: int, offset: int, seed: int) -> None:
    before = program(x, taps, 8, f"2*i + k == p + {offset}".replace("+ -", "- "))
    given_ = arrays(before, seed)
    given_["w"] = np.random.default_rng(seed).standard_normal((2, taps)).astype(np.float32)
    after = by_phases(before)
    copies = written_out(after)
    made = {name: interpret(copy, {}, {name: given_[name]})[copy.results[0]] for name, copy in copies.items()}
    last = verify(masked(reading(after, copies), {"w"}))
    prove(last)
    wanted = interpret(before, {}, given_)["y"]
    assert_same_bits(interpret(last, {}, {**given_, **made})["y"].reshape(wanted.shape), wanted)


def test_operands_are_written_out_also_where_the_other_one_knows_no_classes() -> None:
    after = by_phases(program(5, 5, 12, "3*i + k == p"))
    assert "3*k_1 + p.phase" in show(after).replace("`", "") and written_out(after).keys() == {"w"}


def test_masks_are_made_for_finite_weights_alone() -> None:
    after = by_phases(program(4, 4, 8, "2*i + k == p + 1"))
    plain = reading(after, written_out(after))
    assert has_mask(masked(plain, {"w"}))
    assert not has_mask(masked(plain, set()))

"""What `prove_bounds` accepts and refuses, in loops as text: it has nothing to go by but these."""

from __future__ import annotations

from textwrap import indent

import pytest

from codegen.errors import InternalError
from codegen.loops.parser import parse
from polyhedral.expr import TRUE, Compare, Cond, Int, Name
from tensorlang.lower.bounds import prove_bounds


def prove(header: str, body: str, given: Cond = TRUE) -> None:
    prove_bounds(parse(f"func kernel{header} {{\n{indent(body.strip(), '    ')}\n}}\n"), given)


def refusal(header: str, body: str, given: Cond = TRUE) -> str:
    with pytest.raises(InternalError) as caught:
        prove(header, body, given)
    assert caught.value.stage == "bounds"
    return caught.value.detail


ROWS = "(N)(x: f32[N], out y: f32[N])"
GATHER = "(N, Q)(x: f32[N], ids: i64[Q], out y: f32[Q])"

# ---------------------------------------------------------------- subscripts


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0 .. N { y[i] = x[i] }",
        "for i in 1 .. N { y[i] = x[i - 1] }",
        "for i in 0 .. N { y[i] = x[N - 1 - i] }",
        "for o in 0 .. (N + 7) // 8 { for v in 0 .. min(8, N - 8*o) vector 8 { y[8*o + v] = x[8*o + v] } }",
        "for o in 0 .. N // 8 { for v in 0 .. 8 vector 8 { y[8*o + v] = x[8*o + v] } }",
        "for i in 0 .. N { y[i] = select(index(i) >= 1_i64, x[i - 1], 0_f32) }",
        "for i in 0 .. N { if index(i) >= 1_i64 and index(i) < index(N - 1) { y[i] = x[i + 1] } }",
        "for i in 0 .. N { if not index(i) < 1_i64 { y[i] = x[i - 1] } else { y[i] = x[i] } }",
        "for i in 0 .. N { y[(i + 3) % N] = x[i // 2] }",
        "for i in 0 .. N { y[i] = select(index(i - 3) >= 0_i64 and index(i - 3) < 1_i64 and index(i // 3) < 1_i64, x[-1], 0_f32) }",
    ],
)
def test_reads_and_writes_that_loops_and_conditions_keep_inside(body: str) -> None:
    prove(ROWS, body)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("for i in 0 .. N { y[i] = x[i - 1] }", "`i - 1` is not proven not to lie below `x: f32[N]`"),
        ("for i in 0 .. N { y[i] = x[i + 1] }", "beyond `x: f32[N]`"),
        ("for i in 0 .. N + 1 { y[i] = 0_f32 }", "beyond `y: f32[N]`"),
        ("for o in 0 .. (N + 7) // 8 { for v in 0 .. 8 vector 8 { y[8*o + v] = x[0] } }", "beyond `y: f32[N]`"),
        ("for i in 0 .. N { y[i] = select(index(i) >= 1_i64, x[i], x[i - 1]) }", "below `x: f32[N]`"),
        ("for i in 0 .. N { if index(i) >= 1_i64 or index(i) < 3_i64 { y[i] = x[i - 1] } }", "below `x: f32[N]`"),
        (
            "for i in 0 .. N { if index(i) >= 1_i64 and index(i) < 5_i64 { y[i] = x[i] } else { y[i] = x[i - 1] } }",
            "below `x: f32[N]`",
        ),
        ("y[0] = 0_f32", "beyond `y: f32[N]`"),
    ],
)
def test_reads_and_writes_that_can_leave_their_buffer(body: str, what: str) -> None:
    assert what in refusal(ROWS, body)


def test_what_is_known_of_sizes_counts() -> None:
    prove(ROWS, "y[0] = 0_f32", Compare(">=", Name("N"), Int(1)))


def test_the_side_that_is_not_chosen_reads_nothing() -> None:
    prove(ROWS, "for i in 0 .. N { y[i] = select(false, x[i - 1], 0_f32) }")


def test_a_product_of_elements_that_lie_together_reads_them_all() -> None:
    header = "()(a: u8[8], b: i8[8], out y: i32[2])"
    prove(header, "for i in 0 .. 2 { y[i] = dot(4, a[4*i], b[4*i], 0_i32) }")
    assert "beyond `a: u8[8]`" in refusal(header, "for i in 0 .. 2 { y[i] = dot(4, a[4*i + 1], b[4*i], 0_i32) }")


# ---------------------------------------------------------------- subscripts from data


@pytest.mark.parametrize(
    "body",
    [
        "for q in 0 .. Q { require ids[q] >= 0_i64 and ids[q] < index(N) else 1\n y[q] = x[value(ids[q])] }",
        "for q in 0 .. Q { if ids[q] >= 0_i64 and ids[q] < index(N) { y[q] = x[value(ids[q])] } }",
        "for q in 0 .. Q { let at = ids[q]\n if at >= 1_i64 and at <= index(N) { y[q] = x[value(at - 1_i64)] } }",
        "for q in 0 .. Q { let fine = ids[q] >= 0_i64 and ids[q] < index(N)\n y[q] = select(fine, x[value(ids[q])], 0_f32) }",
        "for q in 0 .. Q { require ids[q] >= 0_i64 and ids[q] < index(N) else 1 }\n for q in 0 .. Q { y[q] = x[value(ids[q])] }",
        "for one in 0 .. 1 { for q in 0 .. Q { require ids[q] >= 0_i64 and ids[q] < index(N) else 1 }\n"
        " for q in 0 .. Q { require ids[q] < 9_i64 else 2 } }\n for q in 0 .. Q { y[q] = x[value(ids[q])] }",
        "for q in 0 .. Q { barrier\n require ids[q] >= 0_i64 and ids[q] < index(N) else 1\n barrier }\n"
        " barrier\n for q in 0 .. Q { y[q] = x[value(ids[q])] }",
        "for q in 0 .. Q { require ids[q] >= index(0 - N) and ids[q] < index(N) else 1 }\n"
        " for q in 0 .. Q { y[q] = x[value(select(ids[q] < 0_i64, ids[q] + index(N), ids[q]))] }",
        "for q in 0 .. Q { require ids[q] >= 0_i64 and ids[q] < index(N) else 1 }\n"
        " alloc own: i64[Q + 1] heap\n for q in 0 .. Q { own[q + 1] = ids[q] }\n for q in 0 .. Q { y[q] = x[value(own[q + 1])] }",
    ],
)
def test_indices_from_data_behind_their_checks(body: str) -> None:
    prove(GATHER, body)


@pytest.mark.parametrize(
    "body",
    [
        "for q in 0 .. Q { y[q] = x[value(ids[q])] }",
        "for q in 0 .. Q { require ids[q] >= 0_i64 else 1\n y[q] = x[value(ids[q])] }",
        "for q in 0 .. Q { require ids[q] >= 0_i64 and ids[q] < index(N + 1) else 1\n y[q] = x[value(ids[q])] }",
        "for n in 0 .. N { for q in 0 .. Q { require ids[q] >= 0_i64 and ids[q] < index(N) else 1 } }\n"
        " for q in 0 .. Q { y[q] = x[value(ids[q])] }",
        "for q in 0 .. Q { require ids[0] >= 0_i64 and ids[0] < index(N) else 1\n y[q] = x[value(ids[q])] }",
        "for q in 1 .. Q { require ids[q] >= 0_i64 and ids[q] < index(N) else 1 }\n for q in 0 .. Q { y[q] = x[value(ids[q])] }",
        "for q in 0 .. Q { y[q] = x[value(ids[q])]\n require ids[q] >= 0_i64 and ids[q] < index(N) else 1 }",
        "for q in 0 .. Q { y[q] = x[value(max(min(ids[q], index(N - 1)), 0_i64))] }",
    ],
)
def test_indices_from_data_that_nothing_keeps_inside(body: str) -> None:
    assert "`x: f32[N]`" in refusal(GATHER, body)


@pytest.mark.parametrize("dtype", ["i64", "i32"])
def test_sums_of_data_that_are_checked_before_their_parts_are(dtype: str) -> None:
    numbers = (f"i64(ids[q] + 1_{dtype})", "i64(ids[q])")
    checks = [f"require {n} >= 0_i64 and {n} < index(N) else 1" for n in numbers]
    reads = "y[q] = {}".format(" * ".join(f"x[value({n})]" for n in numbers))
    header = f"(N, Q)(x: f32[N], ids: {dtype}[Q], out y: f32[Q])"
    for order in (checks, checks[::-1]):
        prove(header, f"for q in 0 .. Q {{ {chr(10).join([*order, reads])} }}")
    assert f"x[value(i64(ids[q] + 1_{dtype}))]" in refusal(header, f"for q in 0 .. Q {{ {checks[1]}\n{reads} }}")


def test_a_remainder_of_nothing_is_zero() -> None:
    at = "ids[q] % index(2*N - 2)"
    read = f"for q in 0 .. Q {{ y[q] = x[value(min({at}, index(2*N - 2) - {at}))] }}"
    prove(GATHER, read, Compare(">=", Name("N"), Int(1)))
    assert "below `x: f32[N]`" in refusal(GATHER, read)


BLOCKS = "(N, Q)(x: f32[N], ids: i64[(Q + 3) // 4, 4], out y: f32[Q])"
CHECK = "for q in 0 .. Q { require ids[q // 4, q % 4] >= 0_i64 and ids[q // 4, q % 4] < index(N) else 1 }\n"


def test_indices_from_data_that_is_stored_in_blocks() -> None:
    prove(BLOCKS, CHECK + "for q in 0 .. Q { y[q] = x[value(ids[q // 4, q % 4])] }")
    prove(BLOCKS, CHECK + "for q in 0 .. Q { y[q] = x[value(ids[(Q - 1 - q) // 4, (Q - 1 - q) % 4])] }")


@pytest.mark.parametrize(
    "body",
    [
        CHECK + "for o in 0 .. Q // 4 { y[o] = x[value(ids[(Q - 1) // 4, 3])] }",
        CHECK.replace("q // 4, q % 4", "q // 2, q % 2").replace("q in 0 .. Q", "q in 0 .. 2*((Q + 3) // 4)")
        + "for q in 0 .. Q { y[q] = x[value(ids[q // 4, q % 4])] }",
        CHECK.replace("q in 0", "q in 4") + "for q in 0 .. Q { y[q] = x[value(ids[q // 4, q % 4])] }",
    ],
)
def test_padding_of_blocks_is_not_checked(body: str) -> None:
    assert "`x: f32[N]`" in refusal(BLOCKS, body)


@pytest.mark.parametrize(
    ("check", "inside"),
    [
        ("for q in 0 .. 2 { require ids[0, q] >= 0_i64 and ids[0, q] < index(N) else 1 }", 2),
        ("for r in 0 .. 1 { for q in 0 .. 3 { require ids[r, q] >= 0_i64 and ids[r, q] < index(N) else 1 } }", 3),
        ("require ids[0, 0] >= 0_i64 and ids[0, 0] < index(N) else 1", 1),
        ("for q in 1 .. 2 { require ids[0, q] >= 0_i64 and ids[0, q] < index(N) else 1 }", 0),
        ("require ids[0, 1] >= 0_i64 and ids[0, 1] < index(N) else 1", 0),
    ],
)
def test_of_a_block_that_is_not_full_the_elements_before_the_padding_are_checked(check: str, inside: int) -> None:
    header = "(N)(x: f32[N], ids: i64[1, 4], out y: f32[4])"
    read = "for q in 0 .. {} {{ y[q] = x[value(ids[0, q])] }}"
    prove(header, f"{check}\n{read.format(inside)}")
    assert "`x: f32[N]`" in refusal(header, f"{check}\n{read.format(inside + 1)}")


def test_of_several_rows_as_many_are_checked_as_the_check_goes_over() -> None:
    header = "(N, A, B)(x: f32[N], ids: i64[A + 1, B + 1], out y: f32[1])"
    check = "for a in 0 .. A { for b in 0 .. B { require ids[a, b] >= 0_i64 and ids[a, b] < index(N) else 1 } }\n"
    read = "for a in 0 .. A { for b in 0 .. B { y[0] = y[0] + x[value(ids[a, b])] } }"
    prove(header, check + read)
    assert "`x: f32[N]`" in refusal(header, check + read.replace("0 .. A", "0 .. A + 1"))
    assert "`x: f32[N]`" in refusal(header, check + read.replace("0 .. B", "0 .. B + 1"))


def test_a_check_of_some_elements_leaves_what_is_known_of_all() -> None:
    check = "for q in 0 .. Q { require ids[q] >= 0_i64 and ids[q] < index(N) else 1 }\n"
    read = "for q in 0 .. Q { y[q] = x[value(ids[q])] }"
    prove(GATHER, check + check.replace("0 .. Q", "0 .. Q - 1").replace("index(N)", "5_i64") + read)


COPY = "for q in 0 .. Q { own[q // 4, q % 4] = ids[q // 4, q % 4] }\n"
PADDING = "for o in 0 .. (Q + 3) // 4 { for i in 0 .. 4 { own[o, i] = ids[o, i] } }\n"
READ = "for q in 0 .. Q { y[q] = x[value(own[q // 4, q % 4])] }\n"


@pytest.mark.parametrize(
    ("body", "inside"),
    [
        (CHECK + COPY + READ, True),
        (CHECK + COPY.replace("own[q // 4, q % 4]", "near[q]") + COPY.replace("ids[q // 4, q % 4]", "near[q]") + READ, True),
        (CHECK + f"for t in 0 .. 2 {{ {COPY}{READ} }}", True),
        (CHECK + PADDING + READ, False),
        (CHECK + COPY + READ + PADDING, False),
        (CHECK + READ + PADDING, False),
        (COPY + CHECK + READ, False),
    ],
)
def test_a_copy_holds_what_was_checked_of_blocks_where_it_holds_no_padding(body: str, inside: bool) -> None:
    body = "alloc own: i64[(Q + 3) // 4, 4] heap\nalloc near: i64[Q] heap\n" + body
    if inside:
        prove(BLOCKS, body)
    else:
        assert "`x: f32[N]`" in refusal(BLOCKS, body)


def test_a_copy_of_blocks_that_are_checked_twice_holds_what_was_checked_of_what_it_holds() -> None:
    """The second check is of fewer elements, within narrower bounds."""
    first = CHECK.replace("ids[q // 4, q % 4] < index(N)", "ids[q // 4, q % 4] < index(N + 1)")
    second = CHECK.replace("0 .. Q", "0 .. Q - 1")
    own = "alloc own: i64[(Q + 3) // 4, 4] heap\n"
    assert "`x: f32[N]`" in refusal(BLOCKS, own + first + COPY + second + READ)


@pytest.mark.parametrize("more", ["own[0] = -1_i64", "own[0] = y_ids[0]", "own[0] = own[1] - 1_i64"])
def test_what_else_is_stored_beside_checked_elements_counts(more: str) -> None:
    body = f"""for q in 0 .. Q {{ require ids[q] >= 0_i64 and ids[q] < index(N) else 1 }}
alloc own: i64[Q + 2] heap
for q in 0 .. Q {{ own[q] = ids[q] }}
{more}
for q in 0 .. Q {{ y[q] = x[value(own[q])] }}"""
    assert "`x: f32[N]`" in refusal("(N, Q)(x: f32[N], ids: i64[Q], y_ids: i64[1], out y: f32[Q])", body)


@pytest.mark.parametrize(
    ("last", "inside"),
    [("own[q] = near[q]", True), ("own[q] = near[q]\nown[q] = ids[q]", True), ("own[q] = near[q]\nown[q] = unchecked[q]", False)],
)
def test_a_copy_of_a_copy_holds_what_was_checked(last: str, inside: bool) -> None:
    body = f"""for q in 0 .. Q {{ require ids[q] >= 0_i64 and ids[q] < index(N) else 1 }}
alloc near: i64[Q] heap
alloc own: i64[Q] heap
for q in 0 .. Q {{ near[q] = ids[q] }}
for q in 0 .. Q {{ {last} }}
for q in 0 .. Q {{ y[q] = x[value(own[q])] }}"""
    header = "(N, Q)(x: f32[N], ids: i64[Q], unchecked: i64[Q], out y: f32[Q])"
    if inside:
        prove(header, body)
    else:
        assert "`x: f32[N]`" in refusal(header, body)


def test_a_check_holds_until_something_is_stored_to_what_was_checked() -> None:
    check = "require at[0] >= 0_i64 and at[0] < index(N) else 1"
    prove("(N)(x: f32[N], out at: i64[1], out y: f32[1])", f"{check}\ny[0] = x[value(at[0])]")
    assert "below" in refusal("(N)(x: f32[N], out at: i64[1], out y: f32[1])", f"{check}\nat[0] = -1_i64\ny[0] = x[value(at[0])]")
    assert "below" in refusal(
        "(N)(x: f32[N], out at: i64[1], out y: f32[1])", f"{check}\nfor i in 0 .. 3 {{ y[0] = x[value(at[0])]\nat[0] = index(i + N) }}"
    )
    branch = "if index(N) > 3_i64 { at[0] = -1_i64 }"
    assert "below" in refusal("(N)(x: f32[N], out at: i64[1], out y: f32[1])", f"{check}\n{branch}\ny[0] = x[value(at[0])]")


def test_the_check_of_the_only_element_is_one_of_all() -> None:
    header = "(N)(x: f32[N], near: i64[{count}], at: i64[1], out y: f32[1])"
    check = "require at[0] >= 0_i64 and at[0] < 1_i64 else 1\nrequire near[0] >= 0_i64 and near[0] < index(N) else 2\n"
    prove(header.format(count=1), check + "y[0] = x[value(near[value(at[0])])]")
    assert "`x: f32[N]`" in refusal(header.format(count=2), check + "y[0] = x[value(near[value(at[0]) + 1])]")


@pytest.mark.parametrize(
    "bounds",
    [
        "i8(ids[q]) >= 0_i8 and i8(ids[q]) < 100_i8",
        "i32.sat(ids[q]) >= 0_i32 and i32.sat(ids[q]) < 100_i32",
        "u64(ids[q]) >= 0_u64 and u64(ids[q]) < 9223372036854775900_u64",
    ],
)
def test_a_check_of_what_elements_are_cast_to_says_nothing_of_all_of_them(bounds: str) -> None:
    header, read = "(Q)(x: f32[100], ids: i64[Q], out y: f32[Q])", "y[q] = x[value(ids[q])]"
    body = f"for q in 0 .. Q {{ require {bounds} else 1 }}\nfor q in 0 .. Q {{ if ids[q] < 100_i64 {{ {read} }} }}"
    assert "below `x: f32[100]`" in refusal(header, body)
    wide = "for q in 0 .. Q { require i64(ids[q]) >= 0_i64 and i64(ids[q]) < 100_i64 else 1 }\n"
    prove(header.replace("i64[Q]", "i16[Q]"), f"{wide}for q in 0 .. Q {{ {read} }}")


def test_unsigned_numbers_beyond_all_signed_ones_are_below_them_as_indices() -> None:
    check = "for q in 0 .. Q { require ids[q] >= 5_u64 and ids[q] < 9223372036854775900_u64 else 1 }\n"
    read = "for q in 0 .. Q { if i64(ids[q]) < 100_i64 { y[q] = x[value(ids[q])] } }"
    assert "below `x: f32[100]`" in refusal("(Q)(x: f32[100], ids: u64[Q], out y: f32[Q])", check + read)


def test_a_check_against_a_bound_from_data_holds_where_it_was_made() -> None:
    check = "for q in 0 .. Q { require ids[q] >= 0_i64 and ids[q] < index(value(ends[q])) else 1 }\n"
    read = "for q in 0 .. Q { for p in 0 .. Q { if ends[q] <= index(N) { y[q] = x[value(ids[p])] } } }"
    assert "`x: f32[N]`" in refusal("(N, Q)(x: f32[N], ids: i64[Q], ends: i64[Q], out y: f32[Q])", check + read)


def test_blocks_that_are_checked_up_to_another_place_in_each_row_are_not_all_checked() -> None:
    check = "for r in 0 .. 8 { for p in 0 .. r { require ids[r, p // 4, p % 4] >= 0_i64 and ids[r, p // 4, p % 4] < 9_i64 else 1 } }\n"
    read = "for r in 0 .. 8 { for p in 0 .. r { y[r] = x[value(ids[0, p // 4, p % 4])] } }"
    assert "below `x: f32[9]`" in refusal("()(x: f32[9], ids: i64[8, 2, 4], out y: f32[8])", check + read)


CHECKED = """for q in 0 .. Q {{
    require not {guard} or ids[q] >= 0_i64 and ids[q] < index(N) else 1
    {between}
    y[q] = select({again}, x[value(ids[q])], 0_f32)
}}"""
GUARDED = "(N, Q)(x: f32[N], ids: i64[Q], w: f32[Q], big: u64[Q], keep: bool[Q], out y: f32[Q])"


@pytest.mark.parametrize("guard", ["keep[q]", "w[q] > 0_f32", "big[q] >= 0_u64", "(keep[q] or w[q] > 0_f32)", "(not keep[q])"])
def test_a_condition_of_any_type_that_decides_about_a_check_is_the_same_where_it_stands_again(guard: str) -> None:
    prove(GUARDED, CHECKED.format(guard=guard, again=guard, between=""))
    what = "`value(ids[q])` is not proven not to lie below `x: f32[N]`"
    assert what in refusal(GUARDED, CHECKED.format(guard=guard, again=f"not {guard}", between=""))
    assert what in refusal(GUARDED, CHECKED.format(guard=guard, again="w[q] >= 0_f32", between=""))


def test_a_condition_is_another_once_something_is_stored_to_what_it_reads() -> None:
    header = "(N, Q)(x: f32[N], ids: i64[Q], out w: f32[Q], out y: f32[Q])"
    prove(header, CHECKED.format(guard="w[q] > 0_f32", again="w[q] > 0_f32", between=""))
    changed = CHECKED.format(guard="w[q] > 0_f32", again="w[q] > 0_f32", between="w[q] = 1_f32")
    assert "`value(ids[q])` is not proven" in refusal(header, changed)


def test_small_types_bound_what_they_hold() -> None:
    prove("(Q)(x: f32[256], ids: u8[Q], out y: f32[Q])", "for q in 0 .. Q { y[q] = x[value(ids[q])] }")
    assert "below" in refusal("(Q)(x: f32[256], ids: i8[Q], out y: f32[Q])", "for q in 0 .. Q { y[q] = x[value(ids[q])] }")


@pytest.mark.parametrize(
    ("element", "index", "size"),
    [
        ("i64", "ids[q] % 4_i64 & 15_i64", 4),
        ("u64", "i64((ids[q] >> 3_u64) % 8_u64)", 8),
        ("u64", "i64(min(ids[q] >> 1_u64, 40_u64))", 41),
        ("u64", "i64(ids[q] // 4_u64 & 6_u64)", 7),
        ("u8", "i64(ids[q] >> 4_u8)", 16),
        ("i8", "(i64(ids[q]) + 128_i64) >> 5_i64", 8),
        ("u16", "select(ids[q] < 9_u16, i64(ids[q]) // 2_i64, i64(ids[q]) // 8192_i64)", 8),
    ],
)
def test_the_form_of_an_integer_bounds_it(element: str, index: str, size: int) -> None:
    header, body = f"(Q)(x: f32[SIZE], ids: {element}[Q], out y: f32[Q])", f"for q in 0 .. Q {{ y[q] = x[value({index})] }}"
    prove(header.replace("SIZE", str(size)), body)
    assert "beyond" in refusal(header.replace("SIZE", str(size - 1)), body)


@pytest.mark.parametrize(("element", "asked", "size"), [("u8", "i64(ids[q]) < index(N)", "N"), ("i8", "i64(ids[q]) >= 0_i64", "128")])
def test_a_check_of_one_end_and_the_type_bound_what_is_read_behind_it(element: str, asked: str, size: str) -> None:
    header = f"(N, Q)(x: f32[{size}], n: f32[N], ids: {element}[Q], out y: f32[Q])"
    read = "for q in 0 .. Q { y[q] = x[value(i64(ids[q]))] }"
    prove(header, f"for q in 0 .. Q {{ require {asked} else 1 }}\n{read}")
    assert "is not proven" in refusal(header, read)


def test_what_may_wrap_is_not_the_number_that_it_looks_like() -> None:
    header = "(Q)(x: f32[300], ids: i8[Q], out y: f32[Q])"
    body = "for q in 0 .. Q {{ if ids[q] >= 0_i8 and ids[q] <= {most}_i8 {{ y[q] = x[value(ids[q] + 100_i8)] }} }}"
    prove(header, body.format(most=27))
    assert "below" in refusal(header, body.format(most=28))


@pytest.mark.parametrize(
    "index",
    [
        "abs(u64(index(i - 5)))",
        "i64.sat(u64(index(i - 1))) + 1_i64",
        "i32.sat(u64(index(i - 1))) + 1_i32",
        "i64(u64.sat(index(i - 5))) + 5_i64",
    ],
)
def test_what_unsigned_arithmetic_makes_of_negative_numbers_is_not_what_it_looks_like(index: str) -> None:
    assert "`x: f32[6]`" in refusal("()(x: f32[6], out y: f32[5])", f"for i in 0 .. 5 {{ y[i] = x[value({index})] }}")


@pytest.mark.parametrize("index", ["i64(w[0])", "select(w[0] < 0_f32, -1_i64, 5_i64)", "select(isnan(w[0]), -1_i64, 5_i64)"])
def test_integers_made_of_floats_are_others_once_something_is_stored_to_these(index: str) -> None:
    header = "()(x: f32[6], out w: f32[1], out y: f32[1])"
    body = f"if {index} >= 0_i64 and {index} < 6_i64 {{ BETWEEN\ny[0] = x[value({index})] }}"
    prove(header, body.replace("BETWEEN", ""))
    assert "`x: f32[6]`" in refusal(header, body.replace("BETWEEN", "w[0] = -1_f32"))


# ---------------------------------------------------------------- extents


def test_extents_that_can_be_negative() -> None:
    use = "heap a: f32[{}] align 64"
    prove("(N)()", "alloc a: f32[max(0, 2*N - 1)] heap align 64")
    assert "`2*N - 1`" in refusal("(N)()", "alloc a: f32[2*N - 1] heap align 64"), use
    prove("(N)()", "alloc a: f32[2*N - 1] heap align 64", Compare(">=", Name("N"), Int(1)))


# ---------------------------------------------------------------- 64 bits


@pytest.mark.parametrize("index", ["4611686018427387904*i // 4611686018427387904", "min(4611686018427387904*i, 0)"])
def test_indices_that_leave_64_bits(index: str) -> None:
    assert "64 bits" in refusal("()(x: f32[8], out y: f32[8])", f"for i in 0 .. 8 {{ y[i] = x[{index}] }}")


def test_what_is_clamped_is_added_to_as_a_number_within_its_limits() -> None:
    header = "(N)(ids: i64[8], x: f32[16*((N + 15) // 16) + 7], out y: f32[8])"
    prove(header, "for i in 0 .. 8 { y[i] = x[16*((N + 15) // 16) + value(max(min(ids[i], 6_i64), 0_i64))] }")
    assert "64 bits" in refusal(header, "for i in 0 .. 8 { y[i] = x[16*((N + 15) // 16) + value(max(ids[i], 0_i64))] }")


def test_conditions_that_leave_64_bits() -> None:
    body = "for i in 0 .. 8 { if index(4611686018427387904*i) <= 4611686018427387904_i64 { y[i] = x[i] } }"
    assert "64 bits" in refusal("()(x: f32[8], out y: f32[8])", body)


def test_positions_that_are_values_may_wrap() -> None:
    prove("(N, M)(x: f32[N, M], out y: i64[N, M])", "for i in 0 .. N { for j in 0 .. M { y[i, j] = index(M*i + j) } }")

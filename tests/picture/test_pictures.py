"""Pictures of iteration spaces: what is drawn is what the plan does, and the pictures of the documents are what would be drawn."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import tensorlang as tl
from tensorlang import cli
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.picture.points import Point, Space, space
from tensorlang.picture.svg import draw
from tensorlang.policy.prove import prove_schedules
from tensorlang.schedule.apply import apply
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import pictures  # noqa: E402

TEXT = """op heat(x: f32[T, N]) -> (y: f32[T, N]) where N >= 3 {
    y[t, i] = y[t - 1, i - 1] + y[t - 1, i + 1]   for t in 1..T, i in 1..N - 1
    y[t, i] = x[t, i]   otherwise
}
op product(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) {
    c[i, j] = sum(k) a[i, k] * b[k, j]
}
op one(x: f32[]) -> (y: f32[]) {
    y[] = 2 * x[]
}
"""


@pytest.fixture(scope="module")
def ops() -> Any:
    return tl.parse(TEXT.replace("f32[]", "f32").replace("y[] = 2 * x[]", "y = 2 * x"))


def test_unless_told_a_picture_is_of_the_recurrence_of_most_axes() -> None:
    text = """op steps(a: f32[N]) -> (y: f32[N]) where N >= 3 {
    c[t] = if t == 0 then f32(1) else c[t - 1] / 2   for t in 0..9
    u[0, i] = a[i]
    u[t + 1, i] = c[t] * (u[t, i - 1 | 0] + u[t, i + 1 | 0])   for t in 0..8
    y[i] = u[8, i]
}"""
    assert "<title>iterations of u</title>" in tl.plot(tl.parse(text).steps).svg


def test_the_pictures_of_the_documents_are_what_would_be_drawn() -> None:
    assert pictures.main(["--check"]) == 0


@pytest.mark.parametrize("drawing", pictures.DRAWINGS, ids=lambda drawing: drawing.name)
def test_red_arrows_are_where_the_schedule_is_refused(drawing: pictures.Drawing) -> None:
    lines = "".join(f"    {line}\n" for line in drawing.directives.split("\n"))
    schedule = f"schedule {drawing.program} for {drawing.target} {{\n{lines}}}\n"
    module = load_module(parse(Source("f.tl", pictures.PROGRAMS[drawing.program] + schedule)))
    assert (prove_schedules(module) == []) is drawing.accepted
    picture = (pictures.FOLDER / f"{drawing.name}.svg").read_text("utf-8")
    assert ('class="dep broken"' in picture) is not drawing.accepted
    assert 'class="dep broken"' not in (pictures.FOLDER / f"{drawing.name}-before.svg").read_text("utf-8")


def test_a_picture_has_a_point_for_each_instance_and_an_arrow_for_each_dependence(ops: Any) -> None:
    program = ops.heat.program(__import__("numpy").zeros((3, 5), "f4"))
    found = space(apply(program, Schedule("heat")), {})
    assert len(found.points) == 15
    pairs = {(found.points[a.source].place, found.points[a.target].place) for a in found.arrows}
    assert pairs == {((t - 1, i + d), (t, i)) for t in (1, 2) for i in (1, 2, 3) for d in (-1, 1)}
    assert not any(a.broken for a in found.arrows)


def test_numbers_of_a_witness_stand_where_the_other_instance_is_not() -> None:
    points = tuple(Point((t, i), (), (), ()) for t in (0, 1) for i in (0, 1))
    picture = draw(Space("y", ("t", "i"), points, (), (), {}, witness=((0, 1), (1, 0))))
    assert re.findall(r'text-anchor="(\w+)" style="fill:#c62828[^>]*>(\d)', picture) == [("start", "1"), ("end", "2")]


def test_tiles_are_the_loops_that_step_over_more_than_one(ops: Any) -> None:
    picture = str(tl.plot(ops.product.schedule("tile c (i, j) by (4, 2) -> io, jo, ii, ji"), sizes={"M": 8, "N": 8, "K": 3}))
    assert len(re.findall(r'stroke-width="24"', picture)) == 8


def test_a_reduction_is_drawn_over_the_axes_that_are_asked_for(ops: Any) -> None:
    picture = str(tl.plot(ops.product, axes=("j", "k"), sizes={"M": 2, "N": 4, "K": 3}))
    assert ">drawn at i = 0<" in picture
    assert picture.count("h0") == 12


FACTORS = """op lu(a: f64[N, N]) -> (f: f64[N, N]) {
    f[i, j] = a[i, j] - (sum(k in 0..i) f[i, k] * f[k, j])               for i <= j
    f[i, j] = (a[i, j] - (sum(k in 0..j) f[i, k] * f[k, j])) / f[j, j]   for j < i
}"""


def test_clauses_that_call_their_reductions_alike_are_drawn_at_one_term_of_each() -> None:
    picture = str(tl.plot(tl.parse(FACTORS).lu, sizes={"N": 5}))
    assert picture.count("h0") == 16 and ">drawn at k = 0, k_1 = 0<" in picture


def test_the_order_goes_through_points_that_have_one_place() -> None:
    sums = tl.parse("op f(a: f32[M, N, K]) -> (y: f32[M, N]) {\n y[i, j] = (sum(k) a[i, j, k]) + (max(l, from 0) a[i, j, l])\n}").f
    picture = str(tl.plot(sums, sizes={"M": 2, "N": 3, "K": 4}))
    assert re.findall(r'class="order" d="M([^"]*)"', picture)[0].count("L") == 3


def test_of_many_dependences_the_broken_ones_are_drawn_and_the_picture_says_how_many_there_are(ops: Any) -> None:
    wide = tl.parse(TEXT.partition("op product")[0].replace("y[t - 1, i - 1] +", "y[t - 1, i - 1] + y[t - 1, i] +")).heat
    picture = str(tl.plot(wide.schedule("order y.i, y.t"), sizes={"T": 25, "N": 40}))
    assert picture.count('class="dep broken"') == 24 * 38 and picture.count('class="dep') == 2000
    assert f">2000 of {24 * 38 * 3} arrows are drawn<" in picture


def test_a_picture_is_well_formed_and_always_the_same(ops: Any) -> None:
    first, again = (str(tl.plot(ops.heat, sizes={"T": 4, "N": 6}, title="a < b & c")) for _ in range(2))
    assert first == again
    assert ElementTree.fromstring(first).find("{http://www.w3.org/2000/svg}title").text == "a < b & c"  # type: ignore[union-attr]
    assert tl.plot(ops.heat)._repr_svg_() == str(tl.plot(ops.heat))


def test_a_scalar_is_one_point(ops: Any) -> None:
    assert str(tl.plot(ops.one)).count("h0") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tensor": "z"}, "no loops compute `z`"),
        ({"axes": ("q",)}, "`q` is no axis of `c`"),
        ({"axes": ("i", "i")}, "one axis, or two different ones"),
        ({"sizes": {"Q": 3}}, "`product` has no size `Q`"),
        ({"sizes": {"M": 0}}, "there is nothing to draw"),
        ({"sizes": {"M": 33, "N": 32}}, "too many to draw"),
        ({"sizes": {"M": 10**9, "N": 10**9}}, "too many to draw"),
    ],
)
def test_what_cannot_be_drawn_is_an_error_with_a_code(ops: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(CompileError, match=said) as refused:
        tl.plot(ops.product, **arguments)
    assert [d.code for d in refused.value.diagnostics] == ["C0241"]


def test_sizes_that_the_operator_does_not_allow_are_refused(ops: Any) -> None:
    with pytest.raises(CompileError, match="does not allow T = 8, N = 2"):
        tl.plot(ops.heat, sizes={"N": 2})


def test_whole_attributes_are_given_like_sizes() -> None:
    signature, body = "x: f32[N], attr count: int = 3) -> (y: f32[N]", "s[0, i] = x[i]\n y[i] = s[count, i]"
    text = f"op steps({signature}) {{\n {body}\n s[t + 1, i] = 2 * s[t, i] for t in 0..count\n}}"
    drawn = [str(tl.plot(tl.parse(text).steps, tensor="s", sizes={"N": 2, **given})).count("h0") for given in ({}, {"count": 5})]
    assert drawn == [8, 12]


def test_the_command_line_draws_the_schedule_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "f.tl", tmp_path / "f.svg"
    file.write_text(TEXT.split("op product")[0] + "schedule heat for cpu {\n    split i by 2 -> io, ii\n}\n")
    assert cli._guarded(["plot", str(file), "T=3", "N=4", "-o", str(out)]) == 0
    assert ">loops: t, io, ii<" in out.read_text("utf-8")
    assert cli._guarded(["plot", str(file), "heat", "--plain"]) == 0
    assert ">loops: t, i<" in capsys.readouterr().out
    assert cli._guarded(["plot", str(file), "T=f32[3]"]) == 1
    assert "`T` is no size" in capsys.readouterr().err

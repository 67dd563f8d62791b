"""The statements of a program as text: instances, what each writes, what it reads."""

from __future__ import annotations

from dataclasses import replace

from strategies_tensor import definition, matmul, read, tensor, total

from codegen.dtypes import f32
from polyhedral import affine
from tensorlang.tensor.nodes import Const, Expr, Holds, Program, Select
from tensorlang.tensor.scop import show, to_scop

EXPECTED = """\
y.0.acc.init  { [i, j] : i >= 0 and i < M and j >= 0 and j < N }
    init    y.0.acc[i, j]
y.0.acc  { [i, j, k] : i >= 0 and i < M and j >= 0 and j < N and k >= 0 and k < K }
    update  y.0.acc[i, j]    reads a[i, k], b[k, j]
y.0  { [i, j] : i >= 0 and i < M and j >= 0 and j < N }
    define  y[i, j]    reads y.0.acc[i, j]
"""


def test_a_product_is_three_statements() -> None:
    assert show(to_scop(matmul())) == EXPECTED


def of(value: Expr) -> str:
    """Return the statements of `y[i] = value`."""
    y = definition(tensor("y", f32, "n"), ("i",), value)
    return show(to_scop(Program("p", ("n",), (tensor("x", f32, "n"), tensor("z", f32, "n")), ("y",), (y,))))


def test_either_side_of_a_choice_is_read_where_it_is_chosen() -> None:
    text = of(Select(Holds(affine.compare(">=", "i", 1)), read("x", affine.sub("i", 1)), read("z", "i")))
    assert text.splitlines()[-1] == "    define  y[i]    reads x[i - 1] when i >= 1, z[i] when i < 1"


def test_a_reduction_reads_where_its_filter_holds() -> None:
    text = of(replace(total(read("x", "k"), f32, ("k", 0, "n")), filter=Holds(affine.compare("<", "k", 3))))
    assert "x[k] when k < 3" in text


def test_a_reduction_runs_where_anybody_asks_for_it() -> None:
    row = total(read("x", "k"), f32, ("k", 0, "i"))
    later = Select(Holds(affine.compare("<", "i", 5)), Const(1.0, f32), row)
    text = of(Select(Holds(affine.compare("<", "i", 2)), row, later))
    assert "(i < 2 or (i >= 2 and i >= 5)) and k >= 0 and k < i" in text.splitlines()[2]

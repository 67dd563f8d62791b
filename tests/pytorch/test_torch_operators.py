"""Operators of the language as operators of torch: called, captured, exported, differentiated, and refused where they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tensorlang as tl
from tensorlang.diagnostics import CompileError
from tensorlang.torch import custom_op, onnx_translations

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

OPS = tl.parse("""
op scaled[T: float](x: T[N], w: T[N] = 1, attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * w[i] * by }
op scaled_back[T: float](x: T[N], w: T[N] = 1, d_y: T[N], attr by: float = 2.0) -> (d_x: T[N], d_w: T[N]) {
    d_x[i] = d_y[i] * w[i] * by
    d_w[i] = d_y[i] * x[i] * by
}
op extremes[T](x: T[N]) -> (lo: T[], hi: T[]) where N >= 1 {
    lo = min(i) x[i]
    hi = max(j) x[j]
}
op extremes_back[T: float](x: T[N], lo: T[], hi: T[], d_lo: T[], d_hi: T[]) -> (d_x: T[N]) {
    d_x[i] = (if x[i] == lo then d_lo else 0) + (if x[i] == hi then d_hi else 0)
}
op first(x: f32[N], size k in 0..N) -> (y: f32[k]) { y[i] = x[i]   for i in 0..k }
op softmax(x: f64[N]) -> (y: f64[N], place: i64) where N >= 1 {
    e[i] = exp(x[i] - max(j) x[j])
    y[i] = e[i] / sum(j) e[j]
    place = argmax(i) x[i]
}
op pairs[T](x: T[(N, 2)]) -> (y: T[N, 2]) { y[i, j] = x[(i, j)] }
""")
scaled = custom_op(OPS.scaled, "tests::scaled", backward=OPS.scaled_back)
extremes = custom_op(OPS.extremes, "tests::extremes", backward=OPS.extremes_back)
first = custom_op(OPS.first, "tests::first")
concat = custom_op(tl.std.concat, "tests::concat")


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


def test_tensors_go_in_order_and_what_is_no_tensor_by_name() -> None:
    x = numbers(4)
    assert torch.equal(scaled(x), 2 * x)
    assert torch.equal(scaled(x, x, by=3.0), 3 * x * x)
    assert [t.item() for t in extremes(x)] == [1, 4]
    assert torch.equal(first(x, k=2), x[:2])
    assert torch.equal(concat([x, x], axis=0), torch.cat([x, x]))
    assert torch.ops.tests.scaled(x).tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize(
    "x",
    [numbers(8)[::2], numbers(0), numbers(1), numbers(4, dtype=torch.float64), numbers(4, dtype=torch.float16),
     numbers(4, dtype=torch.bfloat16), torch._neg_view(numbers(4))],
    ids=["apart", "none", "one", "f64", "f16", "bf16", "negated"],
)  # fmt: skip
def test_tensors_are_read_wherever_they_lie_and_of_whatever_type(x: torch.Tensor) -> None:
    assert torch.equal(scaled(x), 2 * x)


@pytest.mark.parametrize(
    ("operator", "args", "named"),
    [
        (scaled, (numbers(3, dtype=torch.float64).requires_grad_(), numbers(3, dtype=torch.float64).requires_grad_()), {"by": 3.0}),
        (extremes, (numbers(3).requires_grad_(),), {}),
        (first, (numbers(5),), {"k": 2}),
    ],
    ids=["one result", "two results", "a size"],
)
def test_torch_finds_nothing_wrong_with_an_operator(operator: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    assert set(torch.library.opcheck(operator, args, named).values()) == {"SUCCESS"}


def test_gradients_are_those_of_the_operator_that_is_given() -> None:
    x, w = (numbers(4, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: scaled(a, b, by=3.0), (x, w))
    assert torch.autograd.gradcheck(lambda a: extremes(a)[1], (x,))


def test_gradients_follow_from_the_equations_for_the_tensors_that_are_given() -> None:
    linear = custom_op(tl.std.gemm, "tests::gemm", autograd=True)
    a, b, c = (numbers(2, 2, dtype=torch.float64).requires_grad_() for _ in range(3))
    assert torch.autograd.gradcheck(linear, (a, b))
    assert torch.autograd.gradcheck(linear, (a.detach(), b, c))


def test_gradients_that_follow_from_equations_have_gradients_of_their_own() -> None:
    softmax = custom_op(OPS.softmax, "tests::softmax", autograd=True)
    assert torch.autograd.gradgradcheck(lambda x: softmax(x)[0], (numbers(3, dtype=torch.float64).div(3).requires_grad_(),))


def test_gradients_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(CompileError, match=r"C0141.*`tests::first` was registered without gradients"):
        first(numbers(4).requires_grad_(), k=2).sum().backward()
    x = numbers(4).requires_grad_()
    (once,) = torch.autograd.grad(scaled(x, x).sum(), x, create_graph=True)
    with pytest.raises(CompileError, match=r"C0141.*`tests::scaled_backward_d_x_d_w` was registered without gradients"):
        once.sum().backward()


def test_graphs_are_captured_whole_for_any_sizes() -> None:
    captured = []

    def keep(graph: Any, inputs: Any) -> Any:
        captured.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x, k: first(scaled(x) + 1, k=k), fullgraph=True, dynamic=True, backend=keep)
    for n in (5, 7, 9):
        x = numbers(n)
        assert torch.equal(compiled(x, n - 2), (2 * x + 1)[: n - 2])
    assert len(captured) == 1


def test_exported_programs_know_shapes_from_the_signature() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return concat([x, scaled(x)], axis=0)

    exported = torch.export.export(Model(), (numbers(4),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    (made,) = (n.meta["val"] for n in exported.graph.nodes if n.target is concat)
    (taken,) = (n.meta["val"] for n in exported.graph.nodes if n.op == "placeholder")
    assert str(made.shape[0]) == f"2*{taken.shape[0]}"
    assert torch.equal(exported.module()(numbers(6)), Model()(numbers(6)))


def test_functions_of_torch_func_ask_for_gradients_of_gradients_and_of_samples() -> None:
    op = custom_op(OPS.scaled, "tests::scaled_in_levels", autograd=True)
    x, w = numbers(2, 3, dtype=torch.float64), numbers(3, dtype=torch.float64)

    def number(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return op(x, w, by=3.0).pow(2).sum()

    def meant(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w * 3.0).pow(2).sum()

    for f, of in ((number, x[0]), (torch.compile(number, backend="aot_eager"), x[0])):
        for found, wanted in zip(torch.func.grad(f, (0, 1))(of, w), torch.func.grad(meant, (0, 1))(of, w), strict=True):
            torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.vmap(torch.func.grad(number), (0, None))(x, w), torch.vmap(torch.func.grad(meant), (0, None))(x, w))
    twice, wanted = (torch.func.jacrev(torch.func.jacrev(f))(x[0], w) for f in (number, meant))
    torch.testing.assert_close(twice, wanted)


def test_graphs_that_torch_has_kept_on_disk_find_gradients_by_their_names() -> None:
    custom_op(OPS.scaled, "tests::scaled_by_name", autograd=True)
    assert all(hasattr(torch.ops.tests, f"scaled_by_name_backward_{names}") for names in ("d_x", "d_w", "d_x_d_w"))


@pytest.mark.parametrize("op", [scaled, first])
def test_forward_mode_is_refused_where_torch_would_take_results_for_constants(op: Any) -> None:
    named = {"k": 2} if op is first else {}
    with pytest.raises(CompileError, match="C0141"):
        torch.func.jvp(lambda x: op(x, **named), (numbers(4),), (numbers(4),))
    assert torch.func.jvp(lambda x: x * op(numbers(4), **named).sum(), (numbers(4),), (numbers(4),))[1].any()


def test_composite_dimensions_are_divided() -> None:
    pairs = custom_op(OPS.pairs, "tests::pairs")
    with torch._subclasses.FakeTensorMode():
        assert pairs(torch.empty(6)).shape == (3, 2)


def test_shapes_that_do_not_fit_are_refused_while_torch_captures() -> None:
    with torch._subclasses.FakeTensorMode(), pytest.raises(CompileError, match="R02"):
        scaled(torch.empty(3, 3))
    with torch._subclasses.FakeTensorMode(), pytest.raises(CompileError, match="R0303"):
        scaled(torch.empty(3, dtype=torch.complex64))


def test_operators_stand_in_models_that_torch_exports_to_onnx() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return concat([x, scaled(x, by=3.0)], axis=0)

    table = onnx_translations(scaled, concat)
    program = torch.onnx.export(Model().eval(), (numbers(4),), dynamo=True, custom_translation_table=table, verbose=False)
    nodes = [(n.domain, n.op_type, [a.name for a in n.attribute]) for n in program.model_proto.graph.node]
    assert nodes == [("tests", "scaled", ["by"]), ("tests", "concat", ["axis"])]
    model = tl.compile(program.model_proto, ops={"tests::scaled": OPS.scaled, "tests::concat": tl.std.concat})
    assert np.array_equal(model(numbers(4).numpy()), Model()(numbers(4)).numpy())


def test_the_same_operator_may_be_registered_again() -> None:
    assert custom_op(OPS.scaled, "tests::scaled", backward=OPS.scaled_back) is scaled


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: custom_op(3), "C0140"),  # type: ignore[arg-type]
        (lambda: custom_op(OPS.scaled, "no name"), "C0140"),
        (lambda: custom_op(OPS.scaled, "tests::lambda"), "C0140"),
        (lambda: custom_op(OPS.first, "tests::scaled"), "C0140"),
        (lambda: custom_op(OPS.scaled, "aten::relu"), "C0140"),
        (lambda: onnx_translations(torch.ops.aten.relu.default), "C0140"),
        (lambda: custom_op(OPS.scaled, "tests::a", backward=OPS.first), "C0141"),
        (lambda: custom_op(OPS.scaled, "tests::b", backward=OPS.scaled_back, autograd=True), "C0141"),
        (lambda: custom_op(OPS.scaled, "tests::c", backward=3), "C0141"),  # type: ignore[arg-type]
        (lambda: custom_op(OPS.scaled, "tests::d", backward=OPS.extremes), "C0141"),
        (lambda: custom_op(tl.std.concat, "tests::e", autograd=True), "C0141"),
        (lambda: custom_op(tl.std.bitwise_not, "tests::f", autograd=True), "C0141"),
    ],
)
def test_what_cannot_be_registered_is_refused(make: Any, code: str) -> None:
    with pytest.raises(CompileError, match=code):
        make()

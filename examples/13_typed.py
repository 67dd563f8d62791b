"""Operators, schedules, kernels and models in a program that a type checker reads: `mypy --strict` has nothing to say about it.

What a call returns depends on the operator, so it is `Any`: a type that is written where it is assigned is what the checker goes by from
there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

import tensorlang as tl

Image = npt.NDArray[np.float32]

TEXT = """
op blur(x: f32[H, W]) -> (y: f32[H - 2, W]) where H >= 3 { y[i, j] = (x[i, j] + x[i + 1, j] + x[i + 2, j]) / 3 }
op ends(x: f32[N]) -> (low: f32, high: f32) where N >= 1 {
    low  = min(i) x[i]
    high = max(j) x[j]
}
extern op twice(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }
"""
TWICE = """
define i32 @twice(ptr %y, ptr %x, i64 %n) {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %xp = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %xp
  %w = fadd float %v, %v
  %yp = getelementptr float, ptr %y, i64 %i
  store float %w, ptr %yp
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
"""


class Filter:
    """An operator that is called many times on the same arrays."""

    def __init__(self, operator: tl.Operator, x: Image, y: Image) -> None:
        self.again: Callable[[], Image] = operator.prepared(x, out=y)

    def __call__(self) -> Image:
        return self.again()


def operators() -> tl.Operators:
    """Return the operators, one of them with a kernel: the dictionary and the list are of whatever kernels there are."""
    externs = {"twice": [tl.llvm_ir(TWICE, "twice"), tl.cuda_source("", "twice")]}
    return tl.parse(TEXT, threads=1, sizes="static", externs=externs)


def scheduled(ops: tl.Operators, x: Image) -> Image:
    """Return what two schedules compute, one as text and one as a value."""
    text = ops.blur.schedule("vectorize j")
    value: tl.Operator = ops["blur"].schedule(tl.Schedule("blur").split("i", 2, into=("o", "p")).vectorize("j"))
    y: Image = text(x)
    assert np.array_equal(y, value(x))
    return y


def network(ops: tl.Operators, x: Image) -> Image:
    """Return what a model computes whose one node is an operator of ours."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in (("x", x.shape), ("y", (6, 5)))]
    graph = helper.make_graph([helper.make_node("Blur", ["x"], ["y"], domain="my.domain")], "net", ports[:1], ports[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 2)], ir_version=8)
    model: tl.CompiledModel = tl.compile(proto, threads=1, ops={"my.domain::Blur": {1: ops.blur}})
    y: Image = model(x)
    named: dict[str, Image] = model.run({"x": x})
    assert np.array_equal(y, named["y"]) and [taken.name for taken in model.inputs] == ["x"]
    return y


def refused(ops: tl.Operators) -> str:
    """Return the code of a call that is refused."""
    try:
        ops.ends(np.zeros((2, 2), np.float32))
    except tl.RunError as problem:
        return problem.diagnostics[0].code
    return ""


def main() -> None:
    ops, x = operators(), np.arange(40, dtype=np.float32).reshape(8, 5)
    expected = (x[:-2] + x[1:-1] + x[2:]) / 3
    y = np.empty((6, 5), np.float32)
    filtered = Filter(ops.blur, x, y)
    assert filtered() is y and np.allclose(scheduled(ops, x), expected) and np.allclose(y, expected)
    print("blurred by both schedules")

    softmax: tl.Operator = tl.use("std").softmax
    softened: Image = tl.std.softmax(x, axis=-1)
    assert np.array_equal(softened, softmax(x)) and np.allclose(softened.sum(axis=1), 1)
    print("softmax is NumPy's")

    trials: int = tl.check_extern(ops.twice, np.ones(3, np.float32), trials=6, against=lambda a: a + a)
    low, high = ops.ends(x[0])
    print(trials, "trials are right,", float(low), "to", float(high))

    assert np.allclose(network(ops, x), expected)
    print("the model is NumPy's")
    print(refused(ops))


if __name__ == "__main__":
    main()

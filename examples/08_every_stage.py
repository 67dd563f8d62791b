"""Every form of one operator on its way to machine code, and of a small ONNX model on its way to kernels.

The same from the command line: `tensorlang show file.tl --stage loops x=f32[100]`, `tensorlang explain file.tl x=f32[100]`.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import tensorlang as tl
from tensorlang.tensor.printer import show

TEXT = """op halves(x: f32[N]) -> (y: f32[N]) {
    m    = max(j) x[j]
    y[i] = exp(x[i] - m) / 2
}
"""
x = np.linspace(-1, 1, 100, dtype=np.float32)
ops = tl.parse(TEXT, threads=1)

print(f"---- the text\n{TEXT}")
print(f"---- tensor: checked, with the sizes of this call\n{show(ops.halves.program(x))}")


def dump(stage: str, text: str) -> None:
    lines = text.rstrip().splitlines()
    more = f"\n… {len(lines) - 40} more lines" if len(lines) > 40 else ""
    print(f"---- {stage}\n" + "\n".join(lines[:40]) + more + "\n")


ops.halves.stages(x, dump=dump)
print(f"---- explained\n{ops.halves.explain(x)}\n")

nodes = [
    helper.make_node("MatMul", ["x", "w"], ["product"], "project"),
    helper.make_node("Add", ["product", "b"], ["sum"], "shift"),
    helper.make_node("Relu", ["sum"], ["y"], "activate"),
]
w, b = np.ones((8, 4), np.float32), np.arange(4, dtype=np.float32)
graph = helper.make_graph(
    nodes,
    "layer",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
    [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.ravel()), helper.make_tensor("b", TensorProto.FLOAT, b.shape, b)],
)
model = tl.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), threads=1)
feeds = {"x": -np.ones((3, 8), np.float32)}
print(f"---- a model of three nodes: y = {model.run(feeds)['y'].tolist()}\n{model.explain(feeds)}")

"""A kernel of one's own in the place of an operator: checked against the operator's body, called inside others and inside a model.

The kernel is LLVM IR, so that no compiler is needed here; `tl.c_symbol("libsort.so", "sort_rows")` is a function of a shared library.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import tensorlang as tl

TEXT = """
# The rows of x, each in order. The body says what that means, and compares every pair.
extern op sort_rows(x: f32[M, N]) -> (y: f32[M, N]) {
    place[i, j] = sum(k, x[i, k] < x[i, j] or (x[i, k] == x[i, j] and k < j)) i64(1)
    y[i, p]     = sum(j, place[i, j] == p) x[i, j]
}
# How far the numbers of a row are from its median.
op from_median(x: f32[M, N]) -> (y: f32[M, N]) where N >= 1 {
    scaled[i, j] = 2 * x[i, j]
    sorted       = sort_rows(scaled)
    y[i, j]      = abs(scaled[i, j] - (sorted[i, N // 2] + sorted[i, (N - 1) // 2]) / 2)
}
"""
SORT = """
define i32 @sort_rows(ptr %y, ptr %x, i64 %rows, i64 %columns) {
entry:
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r1, %sorted ]
  %more = icmp slt i64 %r, %rows
  br i1 %more, label %begin, label %end
begin:
  %start = mul i64 %r, %columns
  %yr = getelementptr float, ptr %y, i64 %start
  %xr = getelementptr float, ptr %x, i64 %start
  br label %item
item:                                     ; the first %i of the row are in order
  %i = phi i64 [ 0, %begin ], [ %i1, %put ]
  %left = icmp slt i64 %i, %columns
  br i1 %left, label %take, label %sorted
take:
  %xp = getelementptr float, ptr %xr, i64 %i
  %v = load float, ptr %xp
  br label %place
place:
  %j = phi i64 [ %i, %take ], [ %before, %move ]
  %first = icmp eq i64 %j, 0
  br i1 %first, label %put, label %compare
compare:
  %before = sub i64 %j, 1
  %bp = getelementptr float, ptr %yr, i64 %before
  %b = load float, ptr %bp
  %larger = fcmp ogt float %b, %v
  br i1 %larger, label %move, label %put
move:
  %mp = getelementptr float, ptr %yr, i64 %j
  store float %b, ptr %mp
  br label %place
put:
  %pp = getelementptr float, ptr %yr, i64 %j
  store float %v, ptr %pp
  %i1 = add i64 %i, 1
  br label %item
sorted:
  %r1 = add i64 %r, 1
  br label %row
end:
  ret i32 0
}
"""

rng = np.random.default_rng(0)
x = rng.standard_normal((4, 101)).astype(np.float32)
expected = np.abs(2 * x - np.median(2 * x, axis=1, keepdims=True))

plain = tl.parse(TEXT)
ops = tl.parse(TEXT, externs={"sort_rows": tl.llvm_ir(SORT, "sort_rows")})
print(ops.sort_rows.c_header)

print(f"on {tl.check_extern(ops.sort_rows)} trials the kernel computes what the body says")
wrong = tl.parse(TEXT, externs={"sort_rows": tl.llvm_ir(SORT.replace("ogt", "olt"), "sort_rows")})
try:
    tl.check_extern(wrong.sort_rows)
except tl.CompileError as error:
    print(error)

for name, operators in (("the body", plain), ("the kernel", ops)):
    np.testing.assert_allclose(operators.from_median(x), expected, rtol=1e-5, atol=1e-6)
    print(f"from_median with {name} is NumPy's")
print(ops.from_median.explain(x).splitlines()[-1])

# A model names operators of the file by a domain of its own.
nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("from_median", ["r"], ["y"], domain="mine")]
ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
model = helper.make_model(helper.make_graph(nodes, "net", ports[:1], ports[1:]), opset_imports=opsets, ir_version=8)
found = tl.compile(model, operators=ops).run({"x": x})["y"]
r = np.maximum(2 * x, 0)
np.testing.assert_allclose(found, np.abs(r - np.median(r, axis=1, keepdims=True)), rtol=1e-5, atol=1e-6)
print("the model is NumPy's")

try:
    tl.parse(TEXT, externs={"sort_rows": tl.llvm_ir(SORT, "sort")}).sort_rows(x)
except tl.CompileError as error:
    print(error)

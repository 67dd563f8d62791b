"""Nodes of a user's domains are operators of a user's file, kernels that are not in the language among them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import extern_kernels as kernels
import numpy as np
import pytest
from guarded import in_child, walled
from onnx import ModelProto, TensorProto, helper
from shared_library import shared_library

import tensorlang as tl

X = np.arange(-4, 8, dtype=np.float32).reshape(3, 4)
TEXT = """
extern op Scale[T: float](x: T[D..], attr by: float = 2) -> (y: T[D..])
extern op Ends(x: f32[D..], z: f32[D..]) -> (low: f32[D..], high: f32[D..])
op Shift(x: f32[D..], attr by: float, attr back: bool = 0) -> (y: f32[D..]) { y[d..] = if back then x[d..] - by else x[d..] + by }
op Twice(x: f32[M, N]) -> (y: f32[M, N]) {
    a[i, j] = x[i, j] + 1
    b = Scale(a)
    y[i, j] = b[i, j] - 2
}
op First(x: f32[M, N], size k in 0..M) -> (y: f32[k, N]) { y[i, j] = x[i, j] for i in 0..k }
"""


def flat(text: str) -> str:
    """Return a kernel of one size as one of a pack: its elements are counted first."""
    head, rest = text.split("entry:", 1)
    counted = """entry:
  br label %count
count:
  %axis = phi i64 [ 0, %entry ], [ %axis1, %counting ]
  %n = phi i64 [ 1, %entry ], [ %product, %counting ]
  %left = icmp slt i64 %axis, %rank
  br i1 %left, label %counting, label %counted
counting:
  %ep = getelementptr i64, ptr %sizes, i64 %axis
  %extent = load i64, ptr %ep
  %product = mul i64 %n, %extent
  %axis1 = add i64 %axis, 1
  br label %count
counted:"""
    return head.replace("i64 %n", "i64 %rank, ptr %sizes") + counted + rest.replace("%entry", "%counted")


GIVEN = {"Scale": tl.llvm_ir(flat(kernels.scale("scale_f32")), "scale_{T}"), "Ends": tl.llvm_ir(flat(kernels.ends()), "ends")}


def operators() -> tl.Operators:
    return tl.parse(TEXT, externs=GIVEN)


def value(name: str, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or (3, 4))


def model(*nodes: Any, outputs: tuple[str, ...] = ("y",), inputs: tuple[Any, ...] = (), domain: str = "mine") -> ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs or (value("x"),)), [helper.make_empty_tensor_value_info(n) for n in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)], ir_version=8)


def mine(op: str, inputs: list[str], results: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, results, domain="mine", **attributes)


node = helper.make_node


# ---------------------------------------------------------------- what nodes compute


def test_a_node_of_another_domain_is_an_operator_of_the_file() -> None:
    made = tl.compile(model(mine("Shift", ["x"], ["y"], by=1.5)), operators=operators())
    np.testing.assert_array_equal(made.run({"x": X})["y"], X + 1.5)
    back = tl.compile(model(mine("Shift", ["x"], ["y"], by=1.5, back=1)), operators=operators())
    np.testing.assert_array_equal(back.run({"x": X})["y"], X - 1.5)


def test_a_kernel_stands_between_other_nodes() -> None:
    made = tl.compile(
        model(node("Relu", ["x"], ["a"]), mine("Scale", ["a"], ["b"], by=3.0), node("Neg", ["b"], ["c"]), node("Add", ["c", "a"], ["y"])),
        operators=operators(),
    )
    np.testing.assert_array_equal(made.run({"x": X})["y"], -2 * np.maximum(X, 0))
    assert "trusted: extern Scale from `scale_{T}` of LLVM IR" in made.explain()
    assert "took" in made.explain({"x": X})
    assert [k.name for k in made.profile({"x": X})].count("extern Scale") == 1


def test_the_times_of_a_profile_are_written_where_there_is_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tl.compile(model(node("Relu", ["x"], ["a"]), mine("Scale", ["a"], ["y"], by=3.0)), operators=operators())
    made.run({"x": X})
    zeros = np.zeros
    monkeypatch.setattr(np, "zeros", lambda *args, **named: walled(zeros(*args, **named)))
    assert in_child(lambda: [k.name for k in made.profile({"x": X})]).count("extern Scale") == 1


def test_a_kernel_reads_the_inputs_of_a_model_and_writes_its_outputs() -> None:
    made = tl.compile(
        model(mine("Ends", ["x", "z"], ["low", "high"]), inputs=(value("x"), value("z")), outputs=("high", "low")), operators=operators()
    )
    found = made.run({"x": X, "z": -X})
    np.testing.assert_array_equal(found["low"], np.minimum(X, -X))
    np.testing.assert_array_equal(found["high"], np.maximum(X, -X))


def test_an_operator_that_calls_kernels_is_several_nodes() -> None:
    made = tl.compile(model(mine("Twice", ["x"], ["a"]), node("Relu", ["a"], ["y"])), operators=operators())
    np.testing.assert_array_equal(made.run({"x": X})["y"], np.maximum(2 * (X + 1) - 2, 0))


def test_what_a_convolution_makes_reaches_a_kernel_row_by_row() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 16, 6, 6)).astype(np.float32), rng.standard_normal((32, 16, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), mine("Scale", ["a"], ["b"], by=0.5),
        node("Conv", ["b", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    v = rng.standard_normal((16, 32, 3, 3)).astype(np.float32)
    proto = model(*nodes, inputs=(value("x", *x.shape),))
    proto.graph.initializer.extend(helper.make_tensor(n, TensorProto.FLOAT, a.shape, a.reshape(-1)) for n, a in (("w", w), ("v", v)))
    plain = ModelProto()
    plain.CopyFrom(proto)
    plain.graph.node[1].CopyFrom(node("Mul", ["a", "half"], ["b"]))
    plain.graph.initializer.append(helper.make_tensor("half", TensorProto.FLOAT, (), [0.5]))
    found, expected = tl.compile(proto, operators=operators()).run({"x": x})["y"], tl.compile(plain).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    narrow = tl.compile(proto, operators=operators(), precision="bf16", force_precision=True).run({"x": x})["y"]
    np.testing.assert_allclose(narrow, expected, atol=3e-2 * np.abs(expected).max())


def test_a_model_is_validated_as_far_as_the_language_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORLANG_VALIDATE", "1")
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    made = tl.compile(model(node("Relu", ["x"], ["a"]), mine("Scale", ["a"], ["b"]), node("Neg", ["b"], ["y"])), operators=operators())
    np.testing.assert_array_equal(made.run({"x": X})["y"], -2 * np.maximum(X, 0))
    assert all(found.validated.startswith("validated") for found in made.made.executable.artifacts)  # type: ignore[attr-defined]


def test_a_size_is_an_attribute_of_the_node() -> None:
    made = tl.compile(model(mine("First", ["x"], ["y"], k=2)), operators=operators())
    np.testing.assert_array_equal(made.run({"x": X})["y"], X[:2])


def test_constants_reach_kernels_and_plain_operators_on_constants_are_folded() -> None:
    proto = model(mine("Shift", ["c"], ["d"], by=1.0), mine("Scale", ["d"], ["e"]), node("Add", ["x", "e"], ["y"]))
    proto.graph.initializer.append(helper.make_tensor("c", TensorProto.FLOAT, (3, 4), X.reshape(-1)))
    np.testing.assert_array_equal(tl.compile(proto, operators=operators()).run({"x": X})["y"], X + 2 * (X + 1))


def test_shapes_may_stay_open() -> None:
    made = tl.compile(model(mine("Scale", ["x"], ["y"]), inputs=(value("x", "n", "m"),)), operators=operators())
    for shape in ((3, 4), (1, 1), (0, 4), (5, 2)):
        x = np.ones(shape, np.float32)
        np.testing.assert_array_equal(made.run({"x": x})["y"], 2 * x)


SCALED_BETWEEN = (
    node("Relu", ["x"], ["a"]),
    mine("Scale", ["a"], ["b"], by=3.0),
    node("Neg", ["b"], ["c"]),
    node("Add", ["c", "a"], ["y"]),
)
OPEN = (value("x", "n", "m"),)


def test_one_compiled_model_tells_a_kernel_the_sizes_of_each_run() -> None:
    made = tl.compile(model(*SCALED_BETWEEN, inputs=OPEN), operators=operators(), sizes="symbolic")
    for shape in ((3, 4), (1, 1), (0, 4), (5, 2)):
        x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
        np.testing.assert_array_equal(made.run({"x": x})["y"], -2 * np.maximum(x, 0))
    assert "extern Scale" in str(made.profile({"x": x})) and "trusted: extern Scale" in made.explain({"x": x})


def test_a_kernel_is_told_sizes_that_are_computed_of_open_ones() -> None:
    text = (
        node("Concat", ["x", "x"], ["a"], axis=0),
        mine("Scale", ["a"], ["b"]),
        node("Flatten", ["b"], ["c"], axis=0),
        mine("Scale", ["c"], ["y"]),
    )
    made = tl.compile(model(*text, inputs=OPEN), operators=operators(), sizes="symbolic")
    for shape in ((3, 4), (1, 1), (5, 2)):
        x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
        np.testing.assert_array_equal(made.run({"x": x})["y"], 4 * np.concatenate([x, x]).reshape(1, -1))


def test_a_status_of_a_kernel_in_a_model_of_open_sizes_names_the_operator() -> None:
    refused = tl.parse("extern op Scale(x: f32[N]) -> (y: f32[N])", externs={"Scale": tl.llvm_ir(kernels.returns(7), "returns")})
    made = tl.compile(model(mine("Scale", ["x"], ["y"]), inputs=(value("x", "n"),)), operators=refused, sizes="symbolic")
    with pytest.raises(tl.RunError, match="extern `Scale` returned the status 7"):
        made.run({"x": np.ones(3, np.float32)})


def test_a_batch_is_computed_around_a_kernel() -> None:
    text = [node("Relu", ["x"], ["a"]), mine("Scale", ["a"], ["b"]), node("Relu", ["b"], ["c"]), node("Add", ["c", "a"], ["y"])]
    x = np.random.default_rng(0).standard_normal((8, 64, 32, 32)).astype(np.float32)
    found = tl.compile(model(*text, inputs=(value("x", *x.shape),)), operators=operators()).run({"x": x})["y"]
    np.testing.assert_array_equal(found, 3 * np.maximum(x, 0))


# ---------------------------------------------------------------- where operators are from


def test_operators_are_given_by_file_and_by_domain(tmp_path: Path) -> None:
    (tmp_path / "ops.tl").write_text("op Shift(x: f32[D..], attr by: float) -> (y: f32[D..]) { y[d..] = x[d..] + by }")
    proto = model(mine("Shift", ["x"], ["y"], by=1.5))
    for given in (
        tmp_path / "ops.tl",
        str(tmp_path / "ops.tl"),
        {"mine": tmp_path / "ops.tl"},
        {"other": operators(), "mine": operators()},
    ):
        np.testing.assert_array_equal(tl.compile(proto, operators=given).run({"x": X})["y"], X + 1.5)


def test_changed_operators_and_kernels_are_another_model() -> None:
    proto = model(mine("Scale", ["x"], ["y"]))
    for factor in (1, 5):
        text = flat(kernels.scale("scale_f32")).replace("fmul float %v, %f", f"fmul float %v, {float(factor)}")
        ops = tl.parse(TEXT, externs={"Scale": tl.llvm_ir(text, "scale_{T}")})
        np.testing.assert_array_equal(tl.compile(proto, operators=ops).run({"x": X})["y"], factor * X)
    for by in ("1.0", "2.0"):
        ops = tl.parse(f"op Scale(x: f32[D..]) -> (y: f32[D..]) {{ y[d..] = x[d..] * {by} }}")
        np.testing.assert_array_equal(tl.compile(proto, operators=ops).run({"x": X})["y"], float(by) * X)


def test_a_model_with_kernels_is_pickled_with_them() -> None:
    made = pickle.loads(pickle.dumps(tl.compile(model(mine("Scale", ["x"], ["y"])), operators=operators())))
    np.testing.assert_array_equal(made.run({"x": X})["y"], 2 * X)


def test_another_process_finds_the_model_and_its_library(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(shared_library(flat(kernels.scale("scale_f32"))))
    (tmp_path / "net.onnx").write_bytes(model(mine("Scale", ["x"], ["y"], by=4.0)).SerializeToString())
    (tmp_path / "ops.tl").write_text(TEXT)
    code = f"""
import numpy as np, tensorlang as tl
ops = tl.load({str(tmp_path / "ops.tl")!r}, externs={{"Scale": tl.c_symbol({str(tmp_path / "lib.so")!r}, "scale_{{T}}")}})
print(tl.compile({str(tmp_path / "net.onnx")!r}, operators=ops).run({{"x": np.ones((3, 4), np.float32)}})["y"].sum())
"""
    environment = {**os.environ, "TENSORLANG_CACHE": str(tmp_path / "objects")}
    found = [subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout.strip() for run in found] == ["48.0", "48.0"]
    assert len(list((tmp_path / "objects" / "models").iterdir())) == 1


# ---------------------------------------------------------------- what is wrong


def refused(proto: ModelProto, **options: Any) -> tuple[str, str]:
    with pytest.raises(tl.CompileError) as found:
        tl.compile(proto, **{"operators": operators(), **options})
    return found.value.diagnostics[0].code, str(found.value)


@pytest.mark.parametrize(
    ("nodes", "code", "said"),
    [
        ([mine("Nothing", ["x"], ["y"])], "O010", "operator `Nothing` of the domain `mine`"),
        ([mine("Shift", ["x"], ["y"])], "O012", "needs attribute `by`"),
        ([mine("Shift", ["x"], ["y"], by=1.0, more=2)], "O005", "attribute `more`"),
        ([mine("Shift", ["x"], ["y"], by="1")], "O012", "by"),
        ([mine("Shift", ["x", "x"], ["y"], by=1.0)], "O012", "it has 2 inputs"),
        ([mine("First", ["x"], ["y"], k=1.5)], "O005", "is no whole number"),
        ([mine("First", ["x"], ["y"], k=4)], "O012", "k"),
        ([mine("Ends", ["x"], ["y", "z"])], "O012", "needs argument `z`"),
        ([mine("Scale", ["x"], ["y", "z"])], "O010", "output 1"),
    ],
)
def test_a_node_that_does_not_fit_its_operator_is_refused(nodes: list[Any], code: str, said: str) -> None:
    found, message = refused(model(*nodes))
    assert found == code and said in message


def test_without_operators_a_node_of_another_domain_is_not_supported() -> None:
    assert refused(model(mine("Shift", ["x"], ["y"], by=1.0)), operators=None)[0] == "O010"


@pytest.mark.parametrize("given", [3, {"": "ops.tl"}, {"ai.onnx": "ops.tl"}, {"mine": None}])
def test_what_is_no_file_of_operators_is_refused(given: Any) -> None:
    assert refused(model(mine("Shift", ["x"], ["y"], by=1.0)), operators=given)[0] == "C0119"


def test_an_importer_that_takes_no_operators_is_told() -> None:
    class Other:
        def matches(self, source: Any) -> bool:
            return True

        def load(self, source: Any, shapes: Any = None) -> Any:
            raise AssertionError

    assert refused(model(mine("Shift", ["x"], ["y"], by=1.0)), importers=[Other()])[0] == "C0119"


def test_a_wrong_operator_is_refused_where_it_is_written() -> None:
    ops = tl.parse("op Shift(x: f32[N, M]) -> (y: f32[N, M]) { y[i, j] = x[i + 1, j] }")
    code, message = refused(model(mine("Shift", ["x"], ["y"])), operators=ops)
    assert code == "T0301" and "y[i, j] = x[i + 1, j]" in message


def test_a_status_is_an_error_of_the_run() -> None:
    ops = tl.parse(
        TEXT, externs={"Scale": tl.llvm_ir(kernels.returns(-3, "scale_f32").replace("i64 %n", "i64 %r, ptr %s, double %b"), "scale_{T}")}
    )
    made = tl.compile(model(node("Relu", ["x"], ["a"]), mine("Scale", ["a"], ["b"]), node("Relu", ["b"], ["y"])), operators=ops)
    with pytest.raises(tl.RunError, match=r"R0316.*extern `Scale` returned the status -3"):
        made.run({"x": X})


def test_a_kernel_has_no_place_on_a_device_yet_and_a_body_has() -> None:
    with pytest.raises(tl.CompileError, match="T0143"):
        tl.compile(model(mine("Scale", ["x"], ["y"])), operators=operators(), target="cuda:sm_80")

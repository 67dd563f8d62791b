"""Functions in CUDA C that stand for extern operators: alone, inside operators and in models, on a stand-in for the driver whose launches
the emulator runs, as on a GPU where there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from emulated_cuda import EmulatedCuda

import tensorlang as tl
from codegen.cuda.device import devices

SCALE = """
extern "C" __global__ void scale(float *y, const float *x, long long n, double by) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * (float)by;
}
"""
TEXT = """
extern op scale(x: f32[N], attr by: float = 2) -> (y: f32[N])
op around(x: f32[N]) -> (y: f32[N]) {
    a[i] = x[i] + 1
    b = scale(a, by=3)
    c = scale(b, by=-1)
    y[i] = b[i] * b[i] + a[i] - c[i]
}
"""
X = np.arange(700, dtype=np.float32) % 13


@pytest.fixture(params=["stand-in", pytest.param("device", marks=pytest.mark.gpu)])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path_factory.getbasetemp() / "foreign-kernels"))
    if request.param == "stand-in":
        EmulatedCuda().install(monkeypatch)
    found = devices()[0].arch
    assert found is not None
    yield found.target


def operators(target: str, text: str = SCALE, **options: Any) -> tl.Operators:
    return tl.parse(TEXT, target=target, externs={"scale": tl.cuda_source(text, "scale", **options)})


def test_a_function_in_cuda_c_computes_what_its_operator_returns(target: str) -> None:
    ops = operators(target)
    for x in (X, X[:1], X[:0], X[:256]):
        np.testing.assert_array_equal(ops.scale(x), 2 * x)
    np.testing.assert_array_equal(ops.scale(X, by=0.5), X / 2)


def test_what_is_done_before_and_after_it_is_computed_around_it(target: str) -> None:
    np.testing.assert_array_equal(operators(target).around(X), 9 * (X + 1) ** 2 + (X + 1) + 3 * (X + 1))


def test_a_grid_may_be_given_for_a_function_that_goes_through_all_elements(target: str) -> None:
    text = SCALE.replace("if (i < n)", "for (; i < n; i += (long long)gridDim.x * blockDim.x)")
    np.testing.assert_array_equal(operators(target, text, threads=64, blocks=3).scale(X), 2 * X)


def test_it_may_be_a_function_of_the_device_and_call_others(target: str) -> None:
    text = "__device__ float times(float a, float b) { return a * b; }\n"
    text += SCALE.replace('extern "C" __global__', "__device__").replace("x[i] * (float)by", "times(x[i], (float)by)")
    np.testing.assert_array_equal(operators(target, text).around(X), 9 * (X + 1) ** 2 + (X + 1) + 3 * (X + 1))


def test_packs_left_out_tensors_and_each_of_several_reach_it(target: str) -> None:
    text = """
extern op gather(each x: f32[each N], z: f32[] = 0, w: i64[D..], attr on: bool = 1) -> (y: i64[8])
op f(a: f32[2], b: f32[3], w: i64[4, 5]) -> (y: i64[8]) { y = gather(a, b, w=w, on=false) }
"""
    kernel = """
__global__ void gather(long long *y, long long count, const float *const *x, const float *z, const long long *w,
                       long long ranks, const long long *n, long long rank, const long long *d, long long on) {
    if (threadIdx.x || blockIdx.x) return;
    y[0] = count; y[1] = (long long)(x[0][1] + x[1][2]); y[2] = z == nullptr; y[3] = w[19];
    y[4] = 10 * n[0] + n[1]; y[5] = ranks; y[6] = 10 * d[0] + d[1] + 100 * rank; y[7] = on;
}
"""
    operator = tl.parse(text, target=target, externs={"gather": tl.cuda_source(kernel, "gather")}).f
    a, b, w = np.arange(2, dtype=np.float32), np.arange(3, dtype=np.float32) + 4, np.arange(20).reshape(4, 5)
    assert operator(a, b, w).tolist() == [2, 7, 1, 19, 23, 2, 245, 0]


def test_it_is_a_node_of_a_model(target: str) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Scale", ["r"], ["s"], domain="mine"),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [7])], [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "net", *ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)], ir_version=8)
    made = tl.compile(model, target=target, ops={"mine::Scale": operators(target).scale})
    x = np.arange(-3, 4, dtype=np.float32)
    np.testing.assert_array_equal(made.run({"x": x})["y"], -2 * np.maximum(x, 0))
    assert "trusted: extern scale from `scale` of CUDA C" in made.explain()


def test_its_launch_is_text_that_calls_it(target: str) -> None:
    operator = operators(target).around
    made = operator.compiled(operator.call(X))
    assert "(float*)TL_RAW(p0), (const float*)TL_RAW(p1), 700ll, 0x1.8000000000000p+1);" in made.loops
    told = operator.explain(X)
    assert (
        "trusted: extern scale from `scale` of CUDA C" in told
        and "part around.0" in told
        and "tl_extern_1_0: 3 blocks of 256 threads" in told
    )


def test_a_written_schedule_is_divided_around_it(target: str) -> None:
    text = "split a.i by 32 -> ao, ai\nbind ao to block.x\nbind ai to thread.x"
    operator = operators(target).around.schedule(text)
    np.testing.assert_array_equal(operator(X), 9 * (X + 1) ** 2 + (X + 1) + 3 * (X + 1))
    with pytest.raises(tl.CompileError, match="S0605"):
        operators(target).around.schedule("fuse a.i, y.i -> k")(X)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SCALE.replace("const float *x", "const double *x"), "does not compile"),
        (SCALE.replace("scale", "other"), "scale"),
        ("__global__ void scale(", "does not compile"),
    ],
)
def test_text_that_the_compiler_of_the_device_refuses_is_refused_with_what_it_says(text: str, said: str, target: str) -> None:
    with pytest.raises(tl.CompileError, match=r"C0116.*the kernel for extern `scale` cannot be called") as refused:
        operators(target, text).scale(X)
    assert said in str(refused.value)


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 2048}, {"threads": True}, {"blocks": 0}, {"blocks": 1.5}])
def test_a_grid_that_no_device_has_is_refused(options: Any) -> None:
    with pytest.raises(tl.CompileError, match="C0113"):
        tl.cuda_source(SCALE, "scale", **options)


def test_kernels_for_other_targets_are_not_taken() -> None:
    for target in ("cpu", "hip"):
        with pytest.raises(tl.CompileError, match="T0143"):
            tl.parse(TEXT, target=target, externs={"scale": tl.cuda_source(SCALE, "scale")}).scale(X)

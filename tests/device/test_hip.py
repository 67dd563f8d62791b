"""HIP is a folder: text for AMD's warps of 64 or 32 threads, run by the emulator and compared with the interpreter."""

from __future__ import annotations

import re
import subprocess
from itertools import cycle
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from device_programs import called, normal
from executors import run_model
from onnx import TensorProto, helper
from usual_device import device_kernel

import tensorlang as tl
from codegen.hip.arch import ARCHITECTURES
from stdlib.library import roles
from stdlib.onnx import Importer
from tensorlang.backends.gpu.build import single
from tensorlang.backends.gpu.tools import device_tools
from tensorlang.backends.hip.vendor import AMD
from tensorlang.check.module import Module, load_module
from tensorlang.cli import main
from tensorlang.diagnostics import Source
from tensorlang.planning import Rules
from tensorlang.syntax.parse import parse
from tensorlang.tensor.interp import interpret

SEEDS = (0, 4, 8)
OWN = """
op total(x: f32[N]) -> (y: f32[]) { y = sum(i) x[i] }
op rows(x: f32[M, N]) -> (y: f32[M]) { y[i] = sum(j) x[i, j] }
op greatest(x: i32[M, N]) -> (y: i32[M]) { y[i] = max(j) x[i, j] }
op any_of(x: bool[M, N]) -> (y: bool[M]) { y[i] = any(j) x[i, j] }
op running(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, 0] = x[i, 0]
    y[i, j] = y[i, j - 1] + x[i, j]   for j in 1..N
}
op last(x: f32[N, H, W, C], w: f32[F, R, S, C]) -> (y: f32[N, H - R + 3, W - S + 3, F]) {
    y[n, h, v, f] = sum(r, s, c) x[n, h + r - 1, v + s - 1, c | 0] * w[f, r, s, c]
}
op product(a: bf16[M, K], b: bf16[N, K]) -> (y: f32[M, N]) { y[i, j] = sum(k) f32(a[i, k]) * f32(b[j, k]) }
"""


def own() -> Module:
    return load_module(parse(Source("own.tl", OWN)))


def whole(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Return small whole numbers: sums of them are the same in every order, to the last bit."""
    return np.random.default_rng(sum(shape)).integers(-8, 9, shape).astype(dtype)


EXACT = {
    "product": ("matmul", (whole(33, 40), whole(40, 70)), {}),
    "product of whole tiles": ("matmul", (whole(128, 64), whole(64, 128)), {}),
    "convolution": ("conv", (whole(2, 6, 11, 9), whole(8, 6, 3, 3)), {"lo": (1, 1), "hi": (1, 1)}),
    "largest of windows": ("max_pool", (whole(2, 5, 12, 12),), {"kernel": (3, 3), "stride": (2, 2)}),
    "means of windows": ("average_pool", (whole(2, 5, 12, 12),), {"kernel": (3, 3), "stride": (2, 2)}),
    "scattered": ("scatter_elements_add", (whole(9, 20), np.arange(40, dtype=np.int64).reshape(5, 8) % 9, whole(5, 8)), {"axis": 0}),
    "gathered": ("gather", (whole(9, 20), np.array([3, -1, 0], np.int64)), {"axis": 0}),
    "moved": ("transpose", (whole(5, 7, 9),), {"perm": (2, 0, 1)}),
}
EXACT_OWN = {
    "sum of everything": ("total", (whole(50_000),)),
    "sums of rows": ("rows", (whole(7, 300),)),
    "sums of short rows": ("rows", (whole(5, 48),)),
    "largest of rows": ("greatest", (whole(6, 1000, dtype=np.int32),)),
    "any of rows": ("any_of", (whole(6, 200) > 7,)),
    "recurrence": ("running", (whole(40, 30),)),
    "convolution of channels that lie next to each other": ("last", (whole(2, 6, 7, 9), whole(20, 3, 3, 9))),
    "product of bf16": ("product", (whole(40, 50, dtype=ml_dtypes.bfloat16), whole(30, 50, dtype=ml_dtypes.bfloat16))),
}


def computed(program, arrays, target: str, seeds=SEEDS):
    """Yield what the interpreter says and what the emulator computes, in several orders of threads."""
    arch = AMD.arch(target)
    made = device_kernel(program, "kernel", rules=Rules(roles(), target="hip"), machine=AMD.machine(arch))
    model = single(program, made)
    assert AMD.machine_code([made.launched], arch, None, 1, lambda count: None)
    feeds = {p.name: np.ascontiguousarray(a) for p, a in zip(program.params, arrays, strict=True)}
    expected = interpret(program, {}, feeds)
    for seed in seeds:
        found = run_model(model, feeds, seed)
        for name in program.results:
            yield np.asarray(expected[name]).reshape(found[name].shape), found[name]


WIDTHS = ("hip:gfx90a", "hip:gfx1100")
ALIKE = ("largest of windows", "means of windows", "recurrence")
"""What threads compute each for itself, by the same text for both."""
TRIED = [(name, target) for name in (*EXACT, *EXACT_OWN) if name not in ALIKE for target in WIDTHS]


@pytest.mark.parametrize(("name", "target"), [*TRIED, *zip(ALIKE, cycle(WIDTHS))])
def test_a_program_gives_the_bits_that_the_interpreter_gives(name: str, target: str) -> None:
    if name in EXACT:
        operator, arrays, attrs = EXACT[name]
        program = called(operator, *arrays, **attrs)
    else:
        operator, arrays = EXACT_OWN[name]
        program = called(operator, *arrays, module=own())
    for expected, found in computed(program, arrays, target):
        assert expected.tobytes() == found.tobytes()


@pytest.mark.parametrize("target", ["hip:gfx942", "hip:gfx1100"])
@pytest.mark.parametrize(
    ("operator", "arrays", "attrs"),
    [
        ("softmax", (normal(6, 300),), {"axis": 1}),
        ("softmax", (normal(3, 40, 7),), {"axis": 1}),
        ("layer_norm", (normal(6, 200), normal(200), normal(200)), {"axis": 1}),
    ],
    ids=["rows", "columns", "normalised"],
)
def test_rows_are_normalised_through_warps_of_either_width(operator, arrays, attrs, target: str) -> None:
    for expected, found in computed(called(operator, *arrays, **attrs), arrays, target):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def stages(text: str, target: str, *arrays: np.ndarray, **attrs: object) -> dict[str, str]:
    (operator,) = (ops := tl.parse(text, target=target))
    found: dict[str, str] = {}
    ops[operator].stages(*arrays, dump=found.__setitem__, requested=("source",), **attrs)
    return found


SOFTMAX = """
op softmax(x: f32[M, N]) -> (y: f32[M, N]) {
    m[i] = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    s[i] = sum(j) e[i, j]
    y[i, j] = e[i, j] / s[i]
}
"""


@pytest.mark.parametrize(("target", "width"), [("hip", 64), ("hip:gfx942", 64), ("hip:gfx1100", 32)])
def test_sums_go_through_warps_as_wide_as_those_of_the_target(target: str, width: int) -> None:
    found = stages(SOFTMAX, target, np.zeros((37, 3000), np.float32))
    exchanges = re.findall(r"tl_shuffle_xor_f32\(\w+, (\d+), (\d+)\)", found["hip"])
    assert {int(among) for _, among in exchanges} == {width}
    assert max(int(mask) for mask, _ in exchanges) == width // 2
    assert f"thread / {width}" in found["hip"] and found["source"].startswith(f"#define TL_WARP {width}\n")


LANES = """
op scan(x: f32[64]) -> (y: f32[]) { y = sum(i) x[i] }

schedule scan for hip {
    bind i to lane
}
"""


def test_a_schedule_binds_as_many_lanes_as_a_warp_of_the_target_has() -> None:
    found = stages(LANES, "hip:gfx90a", np.zeros(64, np.float32))
    assert found["launches"].startswith("scan_0: 1 blocks of 64 threads")
    with pytest.raises(tl.CompileError, match=r"S0220.*lane counts to 32 in this block"):
        stages(LANES, "hip:gfx1100", np.zeros(64, np.float32))
    with pytest.raises(tl.CompileError, match=r"S0207.*`lane` has at most 32"):
        stages(LANES.replace("for hip", "for cuda"), "cuda:sm_80", np.zeros(64, np.float32))


def test_schedules_for_another_maker_do_not_serve() -> None:
    (text,) = {stages(LANES.replace("for hip", f"for {other}"), "hip", np.zeros(64, np.float32))["schedule"] for other in ("cuda", "cpu")}
    assert "schedule scan for hip" in text and "lane" not in text


def test_a_schedule_for_every_graphics_processor_serves_those_of_both_makers() -> None:
    text = LANES.replace("for hip", "for gpu").replace("bind i to lane", "split i by 32 -> io, ii\n    bind ii to lane")
    for target in ("hip", "cuda"):
        found = stages(text, target, np.zeros(64, np.float32))
        assert found["schedule"].startswith(f"schedule scan for {target} {{\n    split i by 32")
    given = tl.parse(LANES.partition("schedule")[0], target="hip:gfx90a").scan.schedule("schedule scan for gpu {\n    bind i to lane\n}")
    assert "schedule scan for hip" in given.explain(np.zeros(64, np.float32))


BUILTINS = Path(__file__).parents[1] / "gpu" / "amd_builtins.h"


@pytest.mark.parametrize("target", ["hip:gfx90a", "hip:gfx1100"])
def test_the_text_is_c_plus_plus_beside_what_clang_knows_of_amd(target: str, tmp_path: Path) -> None:
    text = "op all(x: f16[M, N], at: i64[M]) -> (y: f16[M, N], z: f64[M], s: f32[M]) {\n"
    text += "    s[i] = sum(j) tanh(f32(x[i, j]))\n    z[i] = sqrt(exp(f64(s[i]))) // 3.0\n"
    text += "    y[i, j] = f16(pow(f32(x[at[i], j]), 2.0) + erf(s[i]) + round(s[i]))\n}\n"
    found = stages(text, target, np.zeros((40, 300), np.float16), np.zeros(40, np.int64))
    (tmp_path / "kernel.cpp").write_text(f'#include "{BUILTINS}"\n{found["source"]}', encoding="utf-8")
    done = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-Wno-attributes", "-Werror", str(tmp_path / "kernel.cpp")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_targets_are_the_architectures_by_name() -> None:
    assert device_tools(AMD, "hip").arch is ARCHITECTURES["gfx90a"]
    assert [(a.limits.warp, a.limits.shared_per_block) for a in ARCHITECTURES.values()] == [(64, 65536), (64, 65536), (32, 65536)]
    with pytest.raises(tl.CompileError, match=r"C0101.*unknown target `hip:gfx1`; known are hip, hip:gfx90a, hip:gfx942, hip:gfx1100"):
        device_tools(AMD, "hip:gfx1")


STAGED = """
op matmul(a: f32[128, 256], b: f32[256, 128]) -> (y: f32[128, 128]) { y[i, j] = sum(k) a[i, k] * b[k, j] }

schedule matmul for hip {
    split i by 64 -> io, ii
    split k by 32 -> ko, ki
    order io, ko, ii, j, ki
    cache a in shared at ko as [i, k]
    stages ko by 2 with tma
    bind io to block.x
    bind ii to thread
}
"""


def test_what_the_text_has_no_words_for_is_refused() -> None:
    arrays = np.zeros((128, 256), np.float32), np.zeros((256, 128), np.float32)
    with pytest.raises(tl.CompileError, match=r"C0111.*not supported yet for `hip:gfx90a`: copies of boxes of tensors, which kernel"):
        stages(STAGED, "hip", *arrays)
    assert "tl_copy_async_" in stages(STAGED.replace(" with tma", ""), "hip", *arrays)["hip"]


def test_running_says_what_there_is_instead() -> None:
    softmax = tl.parse(SOFTMAX, target="hip:gfx90a").softmax
    x = np.zeros((37, 300), np.float32)
    with pytest.raises(tl.RunError, match=r"R0323.*not supported yet: running what is compiled for `hip`"):
        softmax(x)
    assert "at best 0.1 us" in softmax.explain(x) and "not measured: not supported yet" in softmax.explain(x)


def network(path: Path) -> str:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (5, 12))]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 7))]
    weights = [helper.make_tensor(n, TensorProto.FLOAT, s, whole(*s).reshape(-1)) for n, s in (("w", (12, 7)), ("b", (7,)))]
    graph = helper.make_graph(nodes, "net", given, out, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def test_a_model_becomes_launches_that_compute_what_it_says(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx")
    model, x = tl.compile(path, target="hip:gfx90a", importers=[Importer()]), whole(5, 12)
    expected = tl.compile(path, threads=1, importers=[Importer()]).run({"x": x})["y"]
    np.testing.assert_array_equal(run_model(model.made.built.model, {"x": x})["y"], expected)
    assert model.explain().startswith("model `net` for hip:gfx90a: 1 kernels") and "TL_KERNEL(" in model.text("hip")
    with pytest.raises(tl.RunError, match="R0323"):
        model.run({"x": x})


def attention(path: Path) -> str:
    """Write a product, the softmax of it and the product of that, by heads."""
    shape = (1, 2, 24, 16)
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"]
    graph = helper.make_graph(nodes, "net", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


@pytest.mark.parametrize("target", ["hip:gfx90a", "hip:gfx1100"])
def test_attention_goes_through_the_keys_once_in_warps_of_either_width(target: str, tmp_path: Path) -> None:
    path = attention(tmp_path / "net.onnx")
    model, feeds = tl.compile(path, target=target, importers=[Importer()]), {name: normal(1, 2, 24, 16) for name in "qkv"}
    assert "1 kernels" in model.explain() and "one pass over" in model.explain()
    expected = tl.compile(path, threads=1, importers=[Importer()]).run(feeds)["y"]
    for seed in SEEDS:
        np.testing.assert_allclose(run_model(model.made.built.model, feeds, seed)["y"], expected, rtol=1e-5, atol=1e-5)


def test_the_command_line_shows_launches_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    path = tmp_path / "ops.tl"
    path.write_text(SOFTMAX)
    shown = {}
    for stage in ("loops", "hip", "source", "launches"):
        monkeypatch.setattr("sys.argv", ["tensorlang", "show", str(path), "x=f32[5,300]", "--target", "hip:gfx90a", "--stage", stage])
        with pytest.raises(SystemExit) as done:
            main()
        assert not done.value.code
        shown[stage] = capsys.readouterr().out
    assert shown["hip"].startswith("TL_KERNEL(") and shown["source"].endswith(shown["hip"].lstrip())
    assert "__builtin_amdgcn_s_barrier" in shown["source"] and "5 blocks of" in shown["launches"]

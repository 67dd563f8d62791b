"""Single operators: a matrix product scheduled in the language against the multiply-add ceiling, operators that memory bounds against the
speed of a copy, convolutions of ResNet; and the same in NumPy, onnxruntime and PyTorch, in turns.

    python benchmarks/operators.py                      everything, 1 and 2 threads
    python benchmarks/operators.py --quick softmax      those whose names begin with softmax

Kernels write into arrays that exist already, ours and theirs; convolutions are models of one node, weights known beforehand.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import (  # isort: skip
    Array,
    Run,
    Timing,
    aligned,
    available_threads,
    ceiling,
    copy_ceiling,
    error_of,
    mark,
    paired,
    pool_imports,
    ratio,
    table,
    urgent,
    with_threads,
    write,
)

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import tensorlang
from codegen.llvm.jit import load
from tensorlang.runtime.operator import Operator, sorted_out

torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
HERE = Path(__file__).parent
BIG = 1 << 24
SEED = 7
FLOAT = onnx.TensorProto.FLOAT


@dataclass(frozen=True, slots=True)
class Case:
    """An operator, the arrays it is called with, and what it must do: operations, or bytes that move."""

    name: str
    operator: str
    shapes: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    flops: float = 0.0
    moved: float = 0.0
    node: tuple[str, dict[str, Any]] | None = None
    numpy: Callable[..., object] | None = None
    torch: Callable[..., object] | None = None
    constants: int = 0
    """So many of the last inputs are weights."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each case")
    parser.add_argument("--quick", action="store_true", help="half a second each")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    arguments = parser.parse_args()
    seconds = 0.5 if arguments.quick else arguments.seconds
    chosen = [c for c in cases() if not arguments.cases or c.name.startswith(tuple(arguments.cases))]
    results = []
    for count in (t for t in arguments.threads if t <= available_threads()):
        if torch is not None:
            torch.set_num_threads(count)
        peak = ceiling(count)
        for case in chosen:
            found = measure(case, count, peak, seconds, arguments.urgent)
            results.append(found)
            print(*_row(found), file=sys.stderr, flush=True)
    write(arguments.out, "Operators", results, _report(results))


def measure(case: Case, count: int, peak: float, seconds: float, first: bool) -> dict[str, Any]:
    """Return the timings of one case, its largest error, and the share of the ceiling it reaches."""
    rng = np.random.default_rng(SEED)
    arrays = [_filled(shape, rng) for shape in case.shapes]
    outputs = {name: _filled(case.result, None) for name in ("tensorlang", "numpy", "onnxruntime", "torch")}
    runs: dict[str, Run] = {"tensorlang": _ours(case, arrays, outputs, count)}
    if case.numpy is not None:
        runs["numpy"] = _call(case.numpy, arrays, outputs["numpy"])
    if case.node is not None:
        runs["onnxruntime"] = _peer(case, arrays, outputs["onnxruntime"], count)
    if case.torch is not None and torch is not None:
        runs["torch"] = _call(case.torch, [torch.from_numpy(a) for a in arrays], torch.from_numpy(outputs["torch"]))
    for run in runs.values():
        run()
    error = max((error_of(outputs["tensorlang"], outputs[name]) for name in runs if name != "tensorlang"), default=0.0)
    if first:
        urgent()
    timings = paired(runs, seconds)
    ours = timings[0]
    bound = peak if case.flops else copy_ceiling(int(case.moved / 2)) * count
    work = case.flops or case.moved
    return {
        "case": case.name,
        "threads": count,
        "error": error,
        "timings": [asdict(t) for t in timings],
        "ratios": {t.name: ratio(ours, t) for t in timings[1:]},
        "rate": work / ours.median,
        "unit": "GFLOP/s" if case.flops else "GB/s",
        "ceiling": bound,
        "share": work / ours.median / bound,
    }


# ---------------------------------------------------------------- the contenders


def _ours(case: Case, arrays: list[Array], outputs: dict[str, Array], count: int) -> Run:
    """Return our run; it writes into `outputs["tensorlang"]`."""
    if case.constants:
        model = tensorlang.compile(_model(case, arrays).SerializeToString(), threads=count)
        feeds = {f"x{k}": a for k, a in enumerate(arrays[: len(arrays) - case.constants])}

        def run() -> None:
            outputs["tensorlang"] = model.run(feeds)["y"]

        return run
    file = "matmul.tl" if case.operator == "matmul" else "operators.tl"
    return with_threads(count, kernel(tensorlang.load(HERE / file, threads=count)[case.operator], arrays, outputs["tensorlang"]))


def kernel(operator: Operator, arrays: list[Array], output: Array) -> Run:
    """Return the operator's native code as a function without arguments that writes into `output`."""
    made = operator.compiled(sorted_out(operator.declaration, tuple(arrays), {}))
    bound = {p.name: a for p, a in zip(made.program.params, arrays, strict=True)} | {made.program.results[0]: output}
    library = load([made.artifact.object], pool_imports())
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(made.artifact.symbol))
    block = (ctypes.c_int64 * len(made.artifact.params))(*(bound[name].ctypes.data for name in made.artifact.params))
    workspace = aligned(made.artifact.workspace_bytes(available_threads()) // 4 + 16)
    keep = (library, arrays, output, workspace, block)

    def run() -> None:
        if entry(ctypes.addressof(keep[4]), workspace.ctypes.data):
            raise RuntimeError(f"`{operator.name}` refused its data")

    return run


def _call(function: Callable[..., object], arrays: list[Any], output: Any) -> Run:
    return lambda: function(*arrays, output)


def _peer(case: Case, arrays: list[Array], output: Array, count: int) -> Run:
    """Return onnxruntime's run of the one node; it writes into `output`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(_model(case, arrays).SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for port in session.get_inputs():
        binding.bind_cpu_input(port.name, arrays[int(port.name[1:])])
    binding.bind_output("y", "cpu", 0, np.float32, list(output.shape), output.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def _model(case: Case, arrays: list[Array]) -> onnx.ModelProto:
    assert case.node is not None
    kind, attributes = case.node
    variable = len(arrays) - case.constants
    inputs = [helper.make_tensor_value_info(f"x{k}", FLOAT, list(a.shape)) for k, a in enumerate(arrays[:variable])]
    weights = [onnx.numpy_helper.from_array(a, f"x{k}") for k, a in enumerate(arrays) if k >= variable]
    node = helper.make_node(kind, [f"x{k}" for k in range(len(arrays))], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", FLOAT, list(case.result))
    graph = helper.make_graph([node], case.name.replace(" ", "_"), inputs, [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _filled(shape: tuple[int, ...], rng: np.random.Generator | None) -> Array:
    """Return an aligned array of random numbers, or of zeros; its pages exist."""
    count = int(np.prod(shape))
    array = aligned(count)
    array[:] = 0.0 if rng is None else rng.standard_normal(count, dtype=np.float32)
    return array.reshape(shape)


# ---------------------------------------------------------------- the cases


def cases() -> Iterator[Case]:
    """Yield every case."""
    for n in (256, 512, 1024):
        yield Case(f"matmul {n}", "matmul", ((n, n), (n, n)), (n, n), flops=2.0 * n**3, **_matmul())
    yield Case("add+relu 16M", "add_relu", ((BIG,), (BIG,)), (BIG,), moved=12.0 * BIG, numpy=_add_relu)
    yield Case("chain of 5 16M", "chain", ((BIG,), (BIG,)), (BIG,), moved=12.0 * BIG, numpy=_chain)
    for m, n in ((1536, 128), (1024, 1024)):
        yield Case(
            f"softmax {m}x{n}",
            "softmax",
            ((m, n),),
            (m, n),
            moved=8.0 * m * n,
            node=("Softmax", {"axis": -1}),
            numpy=_softmax,
            torch=lambda x, y: torch.softmax(x, -1, out=y),
        )
    yield Case(
        "layernorm 128x768",
        "layer_norm",
        ((128, 768), (768,), (768,)),
        (128, 768),
        moved=8.0 * 128 * 768,
        node=("LayerNormalization", {"axis": -1, "epsilon": 1e-5}),
        torch=lambda x, g, b, y: y.copy_(torch.nn.functional.layer_norm(x, (768,), g, b, 1e-5)),
    )
    yield Case(
        "gelu 128x3072",
        "gelu",
        ((128, 3072),),
        (128, 3072),
        moved=8.0 * 128 * 3072,
        node=("Gelu", {}),
        torch=lambda x, y: y.copy_(torch.nn.functional.gelu(x)),
    )
    yield Case("sum 16M", "total", ((BIG,),), (), moved=4.0 * BIG, numpy=lambda x, y: np.sum(x, out=y), torch=_torch_sum)
    yield Case(
        "transpose 4096x4096",
        "transpose",
        ((4096, 4096),),
        (4096, 4096),
        moved=8.0 * BIG,
        node=("Transpose", {"perm": [1, 0]}),
        numpy=lambda x, y: np.copyto(y, x.T),
        torch=lambda x, y: y.copy_(x.t()),
    )
    for c, size, f, window, stride, pad in RESNET:
        out = (size + 2 * pad - window) // stride + 1
        attributes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        yield Case(
            f"conv {window}x{window}s{stride} {c}→{f} @{size}",
            "",
            ((1, c, size, size), (f, c, window, window), (f,)),
            (1, f, out, out),
            flops=2.0 * c * window * window * f * out * out,
            node=("Conv", attributes),
            torch=lambda x, w, b, y, s=stride, p=pad: y.copy_(torch.nn.functional.conv2d(x, w, b, s, p)),
            constants=2,
        )


RESNET = (
    (3, 224, 64, 7, 2, 3),
    (64, 56, 256, 1, 1, 0),
    (64, 56, 64, 3, 1, 1),
    (128, 28, 128, 3, 1, 1),
    (256, 14, 256, 3, 1, 1),
    (512, 7, 512, 3, 1, 1),
    (512, 28, 128, 1, 1, 0),
    (1024, 14, 256, 1, 1, 0),
    (256, 56, 512, 1, 2, 0),
)
"""Channels, size, filters, window, stride, padding."""


def _matmul() -> dict[str, Any]:
    return {
        "node": ("MatMul", {}),
        "numpy": lambda a, b, y: np.matmul(a, b, out=y),
        "torch": lambda a, b, y: torch.matmul(a, b, out=y),
    }


def _add_relu(a: Array, b: Array, y: Array) -> None:
    np.add(a, b, out=y)
    np.maximum(y, 0, out=y)


def _chain(a: Array, b: Array, y: Array) -> None:
    np.add(a, b, out=y)
    np.multiply(y, a, out=y)
    np.subtract(y, b, out=y)
    np.maximum(y, 0, out=y)
    np.multiply(y, np.float32(0.5), out=y)


def _softmax(x: Array, y: Array) -> None:
    np.subtract(x, x.max(axis=1, keepdims=True), out=y)
    np.exp(y, out=y)
    np.divide(y, y.sum(axis=1, keepdims=True), out=y)


def _torch_sum(x: Any, y: Any) -> None:
    y.copy_(x.sum())


# ---------------------------------------------------------------- reporting

_PEERS = ("numpy", "onnxruntime", "torch")


def _row(found: Mapping[str, Any]) -> list[str]:
    ours, *others = (Timing(**t) for t in found["timings"])
    said = {t.name: f"{ratio(ours, t):.2f}{mark(t)}" for t in others}
    ratios = [said.get(p, "–") for p in _PEERS]
    return [
        found["case"],
        str(found["threads"]),
        f"{ours.median * 1e6:.1f}{mark(ours)}",
        f"{found['rate'] / 1e9:.1f} {found['unit']}",
        f"{100 * found['share']:.0f} %",
        *ratios,
        f"{found['error']:.0e}",
    ]


def _report(results: list[dict[str, Any]]) -> str:
    peaks = {r["threads"]: r["ceiling"] for r in results if r["unit"] == "GFLOP/s"}
    said = ", ".join(f"{peak / 1e9:.0f} GFLOP/s on {count} thread{'s' * (count > 1)}" for count, peak in peaks.items())
    head = ("operator", "threads", "median us", "rate", "of ceiling", *_PEERS, "error")
    return (
        f"{table(head, map(_row, results))}\n\n"
        "Columns of peers: their median over ours, above 1 we are faster. ~ more than half of the runs were disturbed by other work.\n"
        f"Ceilings: multiply-adds {said or 'not needed'}; else the best copy of as many bytes on one thread, times the threads."
    )


if __name__ == "__main__":
    main()

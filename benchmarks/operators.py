"""Single operators: matrix products and convolutions against the multiply-add ceiling, operators that memory bounds against the speed
of a copy; and the same in every peer that is installed (onnxruntime, OpenVINO, PyTorch, NumPy), in turns.

    python benchmarks/operators.py                      everything, 1 and 2 threads
    python benchmarks/operators.py --quick softmax      those whose names begin with softmax

Kernels write into arrays that exist already, ours and theirs; where weights are known beforehand both sides get a model of one node.
Nothing is scheduled by hand. benchmarks/cases.py lists what is measured.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
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
from cases import Case, cases  # isort: skip

import numpy as np
import onnx
from onnx import helper

import tensorlang
from codegen.llvm.jit import load
from tensorlang.runtime.operator import Operator, sorted_out
from tensorlang.shell.peers import PEERS, Peer, Task, peers, runs

HERE = Path(__file__).parent
SEED = 7
FLOAT = onnx.TensorProto.FLOAT


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each case")
    parser.add_argument("--quick", action="store_true", help="half a second each")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--peers", nargs="+", help="names (default: all that are installed)")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    arguments = parser.parse_args()
    seconds = 0.5 if arguments.quick else arguments.seconds
    chosen = [c for c in cases() if not arguments.cases or c.name.startswith(tuple(arguments.cases))]
    results = []
    for count in (t for t in arguments.threads if t <= available_threads()):
        peak = ceiling(count)
        for case in chosen:
            found = measure(case, count, peak, seconds, arguments.urgent, peers(arguments.peers))
            results.append(found)
            print(*_row(found), file=sys.stderr, flush=True)
    write(arguments.out, "Operators", results, _report(results))


def measure(case: Case, count: int, peak: float, seconds: float, first: bool, against: Sequence[Peer]) -> dict[str, Any]:
    """Return the timings of one case, its largest error, and the share of the ceiling it reaches."""
    rng = np.random.default_rng(SEED)
    arrays = [_filled(shape, rng) for shape in case.shapes]
    if case.rows is not None:
        arrays.append(rng.integers(0, case.shapes[0][0], case.rows))
    output = {"y": _filled(case.result, None)}
    ours = _ours(case, arrays, output, count)
    contenders: dict[str, Run] = {"tensorlang": ours, **runs(_task(case, arrays), count, against)}
    ours()
    error = max((error_of(output["y"], run()[0]) for name, run in contenders.items() if name in _EXACT), default=0.0)
    if first:
        urgent()
    timings = paired(contenders, seconds)
    own = timings[0]
    bound = peak if case.flops else copy_ceiling(int(case.moved / 2)) * count
    work = case.flops or case.moved
    return {
        "case": case.name,
        "threads": count,
        "error": error,
        "timings": [asdict(t) for t in timings],
        "ratios": {t.name: ratio(own, t) for t in timings[1:]},
        "rate": work / own.median,
        "unit": "GFLOP/s" if case.flops else "GB/s",
        "ceiling": bound,
        "share": work / own.median / bound,
    }


# ---------------------------------------------------------------- the contenders


def _ours(case: Case, arrays: list[Array], output: dict[str, Array], count: int) -> Run:
    """Return our run; it writes into `output["y"]`."""
    if not case.operator:
        model = tensorlang.compile(_model(case, arrays).SerializeToString(), threads=count)
        feeds = {f"x{k}": a for k, a in enumerate(arrays[: len(arrays) - case.constants])}
        return with_threads(count, model.prepared(feeds, output))
    operators = tensorlang.load(HERE / "operators.tl", threads=count)
    return with_threads(count, kernel(operators[case.operator], arrays, output["y"]))


def kernel(operator: Operator, arrays: list[Array], output: Array) -> Run:
    """Return the operator's native code as a function without arguments that writes into `output`."""
    made = operator.compiled(sorted_out(operator.declaration, tuple(arrays), {}))
    bound = {p.name: a for p, a in zip(made.program.params, arrays, strict=True)} | {made.program.results[0]: output}
    library = load([made.artifact.object], pool_imports())
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(made.artifact.symbol))
    block = (ctypes.c_int64 * len(made.artifact.params))(*(bound[name].ctypes.data for name in made.artifact.params))
    workspace = aligned(made.artifact.workspace_bytes(available_threads()) // 4 + 16)
    addresses = (ctypes.addressof(block), workspace.ctypes.data)

    def run(kept: object = (library, arrays, output, workspace, block)) -> None:
        if entry(*addresses):
            raise RuntimeError(f"`{operator.name}` refused its data")

    return run


def _task(case: Case, arrays: list[Array]) -> Task:
    """Return what the peers are to do; those that read models write into an array that exists already."""
    inside = len(arrays) - case.constants
    feeds = {f"x{k}": a for k, a in enumerate(arrays[:inside])}
    calls = {name: call for name, call in (("numpy", case.numpy), ("torch", case.torch)) if call is not None}
    model = _model(case, arrays).SerializeToString() if case.node else None
    return Task(feeds, model, calls, tuple(arrays[inside:]), (_filled(case.result, None),))


def _model(case: Case, arrays: list[Array]) -> onnx.ModelProto:
    assert case.node is not None
    kind, attributes = case.node
    variable = len(arrays) - case.constants
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    inputs = [helper.make_tensor_value_info(f"x{k}", kinds[k], list(a.shape)) for k, a in enumerate(arrays[:variable])]
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


# ---------------------------------------------------------------- reporting

_PEERS = tuple(p.name for p in PEERS)
_EXACT = tuple(p.name for p in PEERS if p.precision == "f32")
"""Results of these are compared with ours, and the best of these is what a ratio is taken to."""


def _row(found: Mapping[str, Any]) -> list[str]:
    ours, *others = (Timing(**t) for t in found["timings"])
    said = {t.name: f"{ratio(ours, t):.2f}{mark(t)}" for t in others}
    best = min((t.median for t in others if t.name in _EXACT), default=None)
    return [
        found["case"],
        str(found["threads"]),
        f"{ours.median * 1e6:.1f}{mark(ours)}",
        f"{found['rate'] / 1e9:.1f} {found['unit']}",
        f"{100 * found['share']:.0f} %",
        *(said.get(p, "–") for p in _PEERS),
        "–" if best is None else f"{best / ours.median:.2f}",
        f"{found['error']:.0e}",
    ]


def _report(results: list[dict[str, Any]]) -> str:
    peaks = {r["threads"]: r["ceiling"] for r in results if r["unit"] == "GFLOP/s"}
    said = ", ".join(f"{peak / 1e9:.0f} GFLOP/s on {count} thread{'s' * (count > 1)}" for count, peak in peaks.items())
    head = ("operator", "threads", "median us", "rate", "of ceiling", *_PEERS, "best f32", "error")
    return (
        f"{table(head, map(_row, results))}\n\n{_means(results)}\n"
        "Columns of peers: their median over ours, above 1 we are faster. ~ more than half of the runs were disturbed by other work.\n"
        f"Ceilings: multiply-adds {said or 'not needed'}; else the best copy of as many bytes on one thread, times the threads."
    )


def _means(results: list[dict[str, Any]]) -> str:
    """Return a line for each number of threads: how many rows reach the best f32 peer, and the geometric mean of the ratios to it."""
    lines = []
    for count in sorted({r["threads"] for r in results}):
        rows = [[v for name, v in r["ratios"].items() if name in _EXACT] for r in results if r["threads"] == count]
        best = np.array([min(row) for row in rows if row])
        if best.size:
            mean, reached = np.exp(np.mean(np.log(best))), np.mean(best >= 1.0)
            lines.append(
                f"{count} thread{'s' * (count > 1)}: geometric mean {mean:.2f} of the best f32 peer, at least 1 on {reached:.0%} of rows."
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

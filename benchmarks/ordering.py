"""Selecting, sorting, searching and counting on one thread: ONNX's TopK, ArgMax and CumSum as models of one node against onnxruntime,
operators of the library against NumPy, in turns.

    python benchmarks/ordering.py                      everything
    python benchmarks/ordering.py --quick TopK sort    those whose names begin so

Where `TENSORLANG_LEVEL` keeps us to a lower level, NumPy does without AVX-512, too; onnxruntime has no such switch.

Inputs are normal numbers of type f32; ids for counting are i32. Results are compared before anything is measured.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

if os.environ.get("TENSORLANG_LEVEL", "x86-64-v4") != "x86-64-v4":  # NumPy is kept to the same, as far as it can be
    os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", "X86_V4 AVX512_ICL AVX512_SPR")

from harness import Array, Run, Timing, mark, paired, ratio, table, urgent, write  # isort: skip

import numpy as np
import onnx
from onnx import helper

import tensorlang
from tensorlang.shell.peers import Task, peers, runs

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
SEED = 7


@dataclass(frozen=True, slots=True)
class Case:
    """`ours` and `theirs` compute the same; `same` tells whether results do agree."""

    name: str
    peer: str
    ours: Run
    theirs: Run
    same: Callable[[Any, Any], bool]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each case")
    parser.add_argument("--quick", action="store_true", help="a fifth of a second each")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    arguments = parser.parse_args()
    if arguments.urgent:
        urgent()
    results = []
    for name, make in (*models(), *operators()):
        if arguments.cases and not name.startswith(tuple(arguments.cases)):
            continue
        results.append(measure(make(), 0.2 if arguments.quick else arguments.seconds))
        print(*_row(results[-1]), file=sys.stderr, flush=True)
    head = ("operator", "peer", "ours us", "theirs us", "ratio")
    note = "Ratio: their median over ours, above 1 we are faster. ~ more than half of the runs were disturbed by other work."
    write(arguments.out, "Ordering", results, f"{table(head, map(_row, results))}\n\n{note}")


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """Return the timings of a case. Raises RuntimeError where the results differ."""
    if not case.same(case.ours(), case.theirs()):
        raise RuntimeError(f"{case.name} is not what {case.peer} says")
    timings = paired({"tensorlang": case.ours, case.peer: case.theirs}, seconds)
    return {"case": case.name, "peer": case.peer, "timings": [asdict(t) for t in timings], "ratio": ratio(*timings)}


def _row(found: Mapping[str, Any]) -> list[str]:
    ours, theirs = (Timing(**t) for t in found["timings"])
    us = [f"{t.median * 1e6:.1f}{mark(t)}" for t in (ours, theirs)]
    return [found["case"], found["peer"], *us, f"{found['ratio']:.2f}"]


# ---------------------------------------------------------------- what is measured


def models() -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield models of one node, by name."""
    shapes = [(1, n) for n in (100, 1000, 8192, 100_000, 1_000_000)] + [(64, 1000), (256, 8192)]
    for rows, n in shapes:
        for count in sorted({1, 5, min(100, n), n // 2, n}):
            yield _node(f"TopK {count} of {rows}x{n}", "TopK", (rows, n), {"axis": 1}, count)
    for shape, axis in (((1000, 1000), 1), ((1000, 1000), 0), ((1, 50257), 1)):
        yield _node(f"ArgMax {shape[0]}x{shape[1]} axis {axis}", "ArgMax", shape, {"axis": axis, "keepdims": 0})
    for shape, axis in (((4096, 256), 0), ((256, 4096), 1), ((1, 100_000), 1)):
        yield _node(f"CumSum {shape[0]}x{shape[1]} axis {axis}", "CumSum", shape, {}, axis)


def _node(name: str, kind: str, shape: tuple[int, int], attributes: Mapping[str, Any], second: int | None = None) -> Any:
    def make() -> Case:
        x = _normal(shape)
        data = _model(kind, shape, attributes, second).SerializeToString()
        ours = tensorlang.compile(data, threads=1).prepared({"x": x})
        theirs = runs(Task({"x": x}, data), 1, peers(["onnxruntime"]))["onnxruntime"]
        return Case(name, "onnxruntime", ours, theirs, lambda a, b: _close(list(a.values()), list(b)))

    return name, make


def _model(kind: str, shape: tuple[int, int], attributes: Mapping[str, Any], second: int | None) -> onnx.ModelProto:
    value = [second] if kind == "TopK" else second
    known = [] if second is None else [onnx.numpy_helper.from_array(np.array(value, np.int64), "s")]
    first = helper.make_tensor_value_info("y", INT64 if kind == "ArgMax" else FLOAT, None)
    results = [first, helper.make_tensor_value_info("at", INT64, None)] if kind == "TopK" else [first]
    node = helper.make_node(kind, ["x", *(k.name for k in known)], [r.name for r in results], **attributes)
    graph = helper.make_graph([node], kind, [helper.make_tensor_value_info("x", FLOAT, shape)], results, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def operators() -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield operators of the library, by name."""
    std = tensorlang.std
    for n in (100, 1000, 8192, 100_000, 1_000_000):
        x, v = _normal((n,)), _normal((n,), SEED + 1)
        up = np.sort(x)
        ids = np.random.default_rng(SEED).integers(0, 256, n, dtype=np.int32)
        yield _numpy(f"sort {n}", lambda x=x: std.sort(x), lambda x=x: np.sort(x))
        yield _numpy(f"argsort {n}", lambda x=x: std.argsort(x), lambda x=x: np.argsort(x), lambda a, b, x=x: _close(x[a], x[b]))
        yield _numpy(f"argsort stable {n}", lambda x=x: std.argsort(x), lambda x=x: np.argsort(x, kind="stable"))
        yield _numpy(f"unique {n}", lambda x=x: std.unique(x), lambda x=x: np.unique(x), lambda a, b: _close(a[0][: a[1]], b))
        yield _numpy(f"searchsorted {n} in {n}", lambda u=up, v=v: std.searchsorted(u, v), lambda u=up, v=v: np.searchsorted(u, v))
        yield _numpy(f"bincount {n}", lambda i=ids: std.bincount(i, bins=256), lambda i=ids: np.bincount(i, minlength=256))
        yield _numpy(
            f"histogram {n}",
            lambda x=x: std.histogram(x, bins=256, low=-4.0, high=4.0),
            lambda x=x: np.histogram(x, 256, (-4, 4))[0],
            lambda a, b, n=n: int(np.abs(a - b).sum()) <= 2 + n // 1000,
        )


def _numpy(name: str, ours: Run, theirs: Run, same: Callable[[Any, Any], bool] | None = None) -> tuple[str, Callable[[], Case]]:
    return name, lambda: Case(name, "numpy", ours, theirs, same or _close)


def _normal(shape: tuple[int, ...], seed: int = SEED) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _close(a: Any, b: Any) -> bool:
    """Tell whether results agree: exactly, but for sums that were added up in another order."""
    if isinstance(a, Sequence):
        return len(a) == len(b) and all(map(_close, a, b))
    return np.asarray(a).shape == np.asarray(b).shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-2))


if __name__ == "__main__":
    main()

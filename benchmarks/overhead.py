"""What a call costs besides the work: a compiled operator on one element, a model of one operator, and starting up.

python benchmarks/overhead.py
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import asdict
from statistics import median
from typing import Any

from harness import ROOT, mark, paired, table, urgent, write  # isort: skip

import numpy as np
import onnx
from onnx import helper

import tensorlang
from tensorlang.shell.peers import Task, peers, runs

LIMIT_US = 10.0
"""A call of an operator on one element shall take no longer."""

TEXT = """
op increment(x: f32[N]) -> (y: f32[N]) {
    y[i] = x[i] + 1
}
"""
STARTS = {
    "import tensorlang": "import tensorlang",
    "import numpy": "import numpy",
    "import onnxruntime": "import onnxruntime",
    "tensorlang --help": "from tensorlang.cli import _guarded; _guarded(['--help'])",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    arguments = parser.parse_args()
    if arguments.urgent:
        urgent()
    results = [*calls(0.5 if arguments.quick else arguments.seconds), *starts(3 if arguments.quick else 7)]
    rows = [(r["what"], f"{r['seconds'] * 1e6:.2f} us" if r["seconds"] < 1e-2 else f"{r['seconds']:.3f} s", r["remark"]) for r in results]
    write(arguments.out, "Overhead", results, table(("what", "median", ""), rows))


def calls(seconds: float) -> list[dict[str, Any]]:
    """Return what calls cost."""
    x = np.ones(1, np.float32)
    results = []
    for count in (1, 2):
        increment = tensorlang.parse(TEXT, threads=count).increment
        data = _model().SerializeToString()
        model = tensorlang.compile(data, threads=count)
        others = runs(Task({"x": x}, data), count, peers())
        results_agree = all((run()[0] == x + 1).all() for run in others.values())
        if not results_agree or not (increment(x) == x + 1).all() or not (model.run({"x": x})["y"] == x + 1).all():
            raise RuntimeError("a call returned something else than x + 1")
        contenders = {
            f"operator of one element, {count} threads": lambda run=increment: run(x),
            f"model of one operator, {count} threads": lambda run=model: run.run({"x": x}),
            **{f"the same in {name}, {count} threads": run for name, run in others.items()},
            "numpy x + 1": lambda: x + 1,
        }
        for found in paired(contenders, seconds):
            told = f"limit {LIMIT_US:.0f} us" if found.name.startswith("operator") else ""
            results.append({"what": found.name, "seconds": found.median, "remark": (told + mark(found)).strip(), "timing": asdict(found)})
    return results


def starts(rounds: int) -> list[dict[str, Any]]:
    """Return how long new processes take, less the interpreter itself."""
    bare = _start("pass", rounds)
    return [{"what": what, "seconds": _start(code, rounds) - bare, "remark": ""} for what, code in STARTS.items()]


def _start(code: str, rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return median(taken)


def _model() -> onnx.ModelProto:
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), "one")
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "increment", ports[:1], ports[1:], [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


if __name__ == "__main__":
    main()

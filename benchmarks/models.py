"""Whole models against onnxruntime, in one process, in turns.

    python benchmarks/models.py                          all 18 models, 1 and 2 threads
    python benchmarks/models.py --quick resnet50 gpt2    two of them, for a first impression
    python benchmarks/models.py --out docs/benchmarks/data/models

Of each model: the largest error relative to the largest value, medians and their ratio, the time from file to first result with nothing
compiled yet and from a filled cache in a new process, and the peak memory of such a process, for both.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import Array, Timing, available_threads, ceiling, error_of, machine, mark, paired, peak_mib, ratio, table, urgent, write  # isort: skip

import numpy as np
import onnx

import tensorlang
from stdlib import models
from tensorlang.shell.measure import onnxruntime_run

SATURATED = 16
"""A softmax with fewer distinct values than this says nothing about what is before it."""


def main() -> None:
    arguments = _arguments()
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child](arguments)))
        return
    counts = [t for t in arguments.threads if t <= available_threads()]
    results: list[dict[str, Any]] = []
    for name in arguments.models or models.names():
        found = _model(name, counts, arguments)
        results.append(found)
        print(_line(found), file=sys.stderr, flush=True)
        if arguments.out:
            write(arguments.out, "Models", results, _report(results))
    write(arguments.out, "Models", results, _report(results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", help="names (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure each pair")
    parser.add_argument("--quick", action="store_true", help="measure for a second, and no start-up")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    parser.add_argument("--child", choices=sorted(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--feeds", help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.quick:
        found.seconds = min(found.seconds, 1.0)
    return found


# ---------------------------------------------------------------- one model, each part in a process of its own


def _model(name: str, counts: list[int], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return everything measured of one model. What fails is part of the result."""
    found: dict[str, Any] = {"model": name}
    with tempfile.TemporaryDirectory() as folder:
        file, feeds = str(Path(folder) / f"{name}.onnx"), str(Path(folder) / "feeds.npz")
        environment = os.environ | {"TENSORLANG_CACHE": str(Path(folder) / "cache")}

        def child(kind: str, count: int) -> dict[str, Any]:
            command = [sys.executable, __file__, "--child", kind, "--file", file, "--feeds", feeds, "--threads", str(count)]
            command += ["--seconds", str(arguments.seconds), *(["--urgent"] if arguments.urgent else []), name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
            return dict(json.loads(done.stdout.splitlines()[-1]))

        made = child("make", 1)
        if "failed" in made:
            return found | made
        if not arguments.quick:
            found |= {"cold": child("start", max(counts)), "warm": child("start", max(counts)), "peer": child("peer", max(counts))}
        found["pairs"] = [{"threads": count, **child("pair", count)} for count in counts]
        found["error"] = child("error", max(counts))
    return found


def make(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the model, and random inputs for it."""
    model = models.load(arguments.models[0], 7)
    onnx.save(model, arguments.file)
    rng = np.random.default_rng(0)
    constants = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in constants]
    np.savez(arguments.feeds, **{i.name: _random(i, rng) for i in inputs})
    return {}


def _random(value: onnx.ValueInfoProto, rng: np.random.Generator) -> Array:
    kind = value.type.tensor_type
    shape = [d.dim_value or 1 for d in kind.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return np.ones(shape, dtype) if "mask" in value.name else rng.integers(0, 1000, shape).astype(dtype)


def start(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds from the file to the first result, and the memory it took; imports are done before."""
    feeds = _feeds(arguments)
    begin = time.perf_counter()
    model = tensorlang.compile(arguments.file, threads=arguments.threads[0])
    compiled = time.perf_counter()
    model.run(feeds)
    return {"compile_s": compiled - begin, "first_result_s": time.perf_counter() - begin, "peak_mib": peak_mib()}


def peer(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the same of onnxruntime."""
    feeds = _feeds(arguments)
    importlib.import_module("onnxruntime")
    begin = time.perf_counter()
    run, _ = onnxruntime_run(arguments.file, feeds, arguments.threads[0])
    run()
    return {"first_result_s": time.perf_counter() - begin, "peak_mib": peak_mib()}


def pair(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the timings of both, taken in turns."""
    count = arguments.threads[0]
    feeds = _feeds(arguments)
    model = tensorlang.compile(arguments.file, threads=count)
    theirs, _ = onnxruntime_run(arguments.file, feeds, count)
    model.run(feeds), theirs()
    first = arguments.urgent and urgent()
    ours, other = paired({"tensorlang": lambda: model.run(feeds), "onnxruntime": theirs}, arguments.seconds)
    return {
        "ours": asdict(ours),
        "theirs": asdict(other),
        "ratio": ratio(ours, other),
        "best_ratio": other.best / ours.best,
        "urgent": first,
        "load": os.getloadavg()[0],
    }


def error(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the largest error over all outputs; where a softmax is saturated, that of its input."""
    feeds = _feeds(arguments)
    theirs, _ = onnxruntime_run(arguments.file, feeds, arguments.threads[0])
    expected = theirs()
    file = arguments.file
    if any(len(np.unique(e)) < SATURATED for e in expected):
        file = f"{file}.logits.onnx"
        onnx.save(_without_softmax(onnx.load(arguments.file)), file)
        expected = onnxruntime_run(file, feeds, arguments.threads[0])[0]()
    results = tensorlang.compile(file, threads=arguments.threads[0]).run(feeds)
    pairs = list(zip(results.values(), expected, strict=True))
    return {
        "error": max(error_of(a, b) for a, b in pairs),
        "distinct": min(len(np.unique(b)) for _, b in pairs),
        "before_softmax": file != arguments.file,
    }


def _without_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the inputs of its last softmaxes as outputs."""
    graph = model.graph
    for output in graph.output:
        maker = next((n for n in graph.node if output.name in n.output), None)
        if maker is not None and maker.op_type == "Softmax":
            name, last = output.name, maker.input[0]
            graph.node.remove(maker)
            for node in graph.node:
                node.output[:] = [name if o == last else o for o in node.output]
                node.input[:] = [name if i == last else i for i in node.input]
    del graph.value_info[:]
    return model


def _feeds(arguments: argparse.Namespace) -> dict[str, Array]:
    with np.load(arguments.feeds) as found:
        return {name: found[name] for name in found.files}


CHILDREN = {"make": make, "start": start, "peer": peer, "pair": pair, "error": error}


# ---------------------------------------------------------------- reporting


def _line(found: dict[str, Any]) -> str:
    return " ".join(str(cell) for cell in _row(found))


def _row(found: dict[str, Any]) -> list[str]:
    if "failed" in found:
        return [found["model"], found["failed"], *[""] * (len(_HEAD) - 2)]
    by_threads = {p["threads"]: p for p in found["pairs"]}
    cells = [found["model"]]
    for count in (1, 2):
        cells += _timed(by_threads.get(count))
    error = found["error"]
    cells.append(f"{error['error']:.1e}{' †' if error['before_softmax'] else ''}" if "error" in error else "failed")
    for kind in ("cold", "warm", "peer"):
        cells.append(f"{found[kind]['first_result_s']:.2f}" if "first_result_s" in found.get(kind, {}) else "–")
    for kind in ("warm", "peer"):
        cells.append(f"{found[kind]['peak_mib']:.0f}" if "peak_mib" in found.get(kind, {}) else "–")
    return cells


def _timed(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["–"] * 3
    if "failed" in found:
        return ["failed"] * 3
    timings = [Timing(**found[k]) for k in ("ours", "theirs")]
    return [*(f"{t.median * 1e3:.2f}{mark(t)}" for t in timings), f"{found['ratio']:.2f}"]


_HEAD = ("model", "ours, 1", "ort, 1", "ratio", "ours, 2", "ort, 2", "ratio", "error", "cold s", "warm s", "ort s", "MiB", "ort MiB")


def _report(results: list[dict[str, Any]]) -> str:
    ratios = {
        count: [p["ratio"] for r in results for p in r.get("pairs", []) if p["threads"] == count and "ratio" in p] for count in (1, 2)
    }
    means = [f"{count} thread{'s' * (count > 1)} {np.exp(np.mean(np.log(r))):.2f}, lowest {min(r):.2f}" for count, r in ratios.items() if r]
    return (
        f"{table(_HEAD, [_row(r) for r in results])}\n\n"
        f"Medians in ms; ratio: theirs over ours, above 1 we are faster. Geometric mean: {'; '.join(means)}.\n"
        "~ more than half of the runs were disturbed by other work. † compared before a softmax that saturates.\n"
        "cold, warm, ort: seconds from file to first result with nothing compiled, in a second process, and of onnxruntime.\n"
        "MiB: peak resident memory of that second process.\n"
        f"Ceiling of multiply-adds on one thread: {ceiling() / 1e9:.0f} GFLOP/s. Load at the end: {machine()['load']:.1f}."
    )


if __name__ == "__main__":
    main()

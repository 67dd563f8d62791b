"""Whole models against every peer that is installed (onnxruntime, OpenVINO), in one process, in turns.

    python benchmarks/models.py                          all models and resnet50 at batch 8, 1 and 2 threads
    python benchmarks/models.py --quick resnet50 gpt2    two of them, for a first impression
    python benchmarks/models.py resnet50@8               at another batch
    python benchmarks/models.py resnet50:int8            quantised
    python benchmarks/models.py --networks               those of torch_networks.py, as torch exports them
    python benchmarks/models.py torch:yolo               one of these
    python benchmarks/models.py --out docs/benchmarks/data/models

Of each model: the largest error relative to the largest value, medians and our ratio to the best f32 peer and to OpenVINO in the precision
it chooses, the time from file to first result with nothing compiled yet and from a filled cache in a new process, and the peak memory of
such a process, for ours and each peer.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import Array, Timing, available_threads, ceiling, error_of, machine, mark, paired, ratio, table, urgent, write  # isort: skip
from inputs import random_inputs, set_batch  # isort: skip

import numpy as np
import onnx

import tensorlang
from stdlib import models
from tensorlang.runtime.model import CompiledModel
from tensorlang.shell.bench import OURS, first_result
from tensorlang.shell.peers import Peer, Task, peers, runs

BATCHED = ("resnet50@8",)
"""Models that are measured at another batch too."""
QUANTISED = ("resnet50:int8", "bert_base:int8")
"""Models that are measured in bytes, too, quantised with u8 activations (`:signed`: i8), where onnxruntime's quantiser is installed."""
EXPORTED = "torch:"
"""What names of networks of torch begin with."""
SATURATED = 16
"""A softmax with fewer distinct values than this says nothing about what is before it."""


def main() -> None:
    arguments = _arguments()
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child](arguments)))
        return
    counts = [t for t in arguments.threads if t <= available_threads()]
    results: list[dict[str, Any]] = []
    for name in arguments.models or (_networks() if arguments.networks else [*models.names(), *BATCHED, *QUANTISED]):
        found = _model(name, counts, arguments)
        results.append(found)
        print(_line(found), file=sys.stderr, flush=True)
        if arguments.out:
            write(arguments.out, "Models", results, _report(results))
    write(arguments.out, "Models", results, _report(results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", help="names (default: all)")
    parser.add_argument("--networks", action="store_true", help="all networks of torch_networks.py; needs torch")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure each pair")
    parser.add_argument("--quick", action="store_true", help="measure for a second, and no start-up")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    parser.add_argument("--peers", nargs="+", help="names (default: all that are installed)")
    parser.add_argument("--precision", default="f32", help="what ours is compiled for (default: f32)")
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
            command = [sys.executable, __file__, name, "--child", kind, "--file", file, "--feeds", feeds, "--threads", str(count)]
            command += ["--seconds", str(arguments.seconds), "--precision", arguments.precision]
            command += [*(["--urgent"] if arguments.urgent else []), *(["--peers", *arguments.peers] if arguments.peers else [])]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
            return dict(json.loads(done.stdout.splitlines()[-1]))

        made = child("make", 1)
        if "failed" in made:
            return found | made
        if not arguments.quick:
            cache = {"TENSORLANG_CACHE": environment["TENSORLANG_CACHE"]}
            found |= {
                kind: first_result(OURS, file, feeds, max(counts), {"precision": arguments.precision}, **cache) for kind in ("cold", "warm")
            }
            found["peers"] = {p.name: first_result(p.name, file, feeds, max(counts), {}) for p in _readers(arguments)}
        found["pairs"] = [{"threads": count, **child("pair", count)} for count in counts]
        found["error"] = child("error", max(counts))
    return found


def make(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the model, and random inputs for it."""
    if arguments.models[0].startswith(EXPORTED):
        return _export(arguments.models[0].removeprefix(EXPORTED), arguments)
    name, _, batch = arguments.models[0].partition("@")
    name, _, form = name.partition(":")
    model = models.load(name, 7)
    if batch:
        set_batch(model, int(batch))
    if form:
        model = importlib.import_module("quantising").quantised(model, signed=form == "signed")
    onnx.save(model, arguments.file)
    np.savez(arguments.feeds, **random_inputs(model))  # type: ignore[arg-type]  # the names of arrays are arguments
    return {}


def _networks() -> list[str]:
    return [f"{EXPORTED}{name}" for name in importlib.import_module("torch_networks").NETWORKS]


def _export(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write a network of torch as torch exports it, and the inputs that come with it."""
    torch = importlib.import_module("torch")
    network, inputs = importlib.import_module("torch_networks").network(name)
    names = [f"input_{k}" for k in range(len(inputs))]
    torch.onnx.export(network, inputs, arguments.file, input_names=names, dynamo=True, external_data=False, verbose=False)
    taken = {i.name for i in onnx.load(arguments.file).graph.input}
    np.savez(arguments.feeds, **{n: t.numpy() for n, t in zip(names, inputs, strict=True) if n in taken})
    return {}


def _readers(arguments: argparse.Namespace) -> list[Peer]:
    """Return the peers that read models."""
    return [p for p in peers(arguments.peers) if p.name not in ("torch", "numpy")]


def _compiled(arguments: argparse.Namespace) -> CompiledModel:
    return tensorlang.compile(arguments.file, precision=arguments.precision, threads=arguments.threads[0])


def pair(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the timings of all, taken in turns."""
    feeds = _feeds(arguments)
    model = _compiled(arguments)
    others = runs(Task(feeds, arguments.file), arguments.threads[0], _readers(arguments))
    first = arguments.urgent and urgent()
    ours, *theirs = paired({"tensorlang": lambda: model.run(feeds), **others}, arguments.seconds)
    exact = [t.median for t in theirs if t.name != "openvino-default"]
    return {
        "timings": [asdict(t) for t in (ours, *theirs)],
        "ratio": min(exact) / ours.median if exact else None,
        "ratios": {t.name: ratio(ours, t) for t in theirs},
        "urgent": first,
        "load": os.getloadavg()[0],
    }


def error(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the largest error over all outputs; where a softmax is saturated, that of its input."""
    feeds = _feeds(arguments)
    expected = _expected(arguments.file, feeds)
    file = arguments.file
    if any(len(np.unique(e)) < SATURATED for e in expected):
        file = f"{file}.logits.onnx"
        onnx.save(_without_softmax(onnx.load(arguments.file)), file)
        expected = _expected(file, feeds)
    results = tensorlang.compile(file, precision=arguments.precision, threads=arguments.threads[0]).run(feeds)
    pairs = list(zip(results.values(), expected, strict=True))
    return {
        "error": max(error_of(a, b) for a, b in pairs),
        "distinct": min(len(np.unique(b)) for _, b in pairs),
        "before_softmax": file != arguments.file,
    }


def _expected(file: str, feeds: dict[str, Array]) -> list[Array]:
    [reference] = peers(["onnxruntime"])
    run = reference.run(Task(feeds, file), 1)
    assert run is not None
    return run()


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


CHILDREN = {"make": make, "pair": pair, "error": error}


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
    return cells


def _timed(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["–"] * (len(_SHOWN) + 2)
    if "failed" in found:
        return ["failed"] * (len(_SHOWN) + 2)
    timings = {t["name"]: Timing(**t) for t in found["timings"]}
    cells = [f"{timings[n].median * 1e3:.2f}{mark(timings[n])}" if n in timings else "–" for n in _SHOWN]
    chosen = found["ratios"].get("openvino-default")
    return [*cells, *("–" if r is None else f"{r:.2f}" for r in (found["ratio"], chosen))]


def _started(found: dict[str, Any]) -> list[str]:
    """Return the row of times to the first result and of memory."""
    parts = [found.get("cold", {}), found.get("warm", {}), *(found.get("peers", {}).get(n, {}) for n in _SHOWN[1:])]
    times = [f"{p['first_result_s']:.2f}" if "first_result_s" in p else "–" for p in parts]
    return [found["model"], *times, *(f"{p['peak_mib']:.0f}" if "peak_mib" in p else "–" for p in parts)]


_SHOWN = ("tensorlang", "onnxruntime", "openvino", "openvino-default")
_SHORT = ("ours", "ort", "ov", "ov-def", "ratio", "def ratio")
_HEAD = ("model", *(f"{name}, {count}" for count in (1, 2) for name in _SHORT), "error")
_STARTS = ("model", *(f"{name} {unit}" for unit in ("s", "MiB") for name in ("cold", "warm", *_SHORT[1:4])))


def _report(results: list[dict[str, Any]]) -> str:
    text = (
        f"{table(_HEAD, [_row(r) for r in results])}\n\n"
        "Medians in ms at 1 and 2 threads. ort: onnxruntime; ov: OpenVINO in f32; ov-def: OpenVINO in the precision it chooses.\n"
        "ratio: the best f32 peer's time over ours, above 1 we are faster; def ratio: that of OpenVINO in the precision it chooses.\n"
        f"{_means(results)}\n"
        "~ more than half of the runs were disturbed by other work. † compared before a softmax that saturates.\n"
        f"Ceiling of multiply-adds on one thread: {ceiling() / 1e9:.0f} GFLOP/s. Load at the end: {machine()['load']:.1f}."
    )
    starts = [_started(r) for r in results if "cold" in r]
    if not starts:
        return text
    return (
        f"{text}\n\n{table(_STARTS, starts)}\n\n"
        "Seconds from file to first result, and peak resident memory of that process: ours with nothing compiled and from a filled\n"
        "cache, then the peers."
    )


def _means(results: list[dict[str, Any]]) -> str:
    lines = []
    for count in (1, 2):
        found = [p["ratio"] for r in results for p in r.get("pairs", []) if p["threads"] == count and p.get("ratio")]
        if found:
            mean = np.exp(np.mean(np.log(found)))
            lines.append(f"{count} thread{'s' * (count > 1)}: geometric mean {mean:.2f} of the best f32 peer, lowest {min(found):.2f}.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

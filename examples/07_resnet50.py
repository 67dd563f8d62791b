"""ResNet-50 from an ONNX file: compiled, checked against two other implementations, measured, and explained kernel by kernel.

    python3 scripts/demo.py [--threads N] [--seconds S]

The model is the one that ships inside the `onnx` package, with weights drawn from a seed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import tensorlang as tl
from codegen.dtypes import f32
from codegen.llvm import pool
from codegen.llvm.probe import fma_flops
from stdlib import models
from tensorlang.runtime.kernel_time import KernelTime
from tensorlang.shell.measure import largest_difference, measured
from tensorlang.shell.peers import Task, peers

MODEL = "light_resnet50"
TOLERANCE = 1e-3
"""Of the largest probability. Each goes through 54 sums of up to 4608 products: some 1e-5 is expected, a wrong kernel gives 1e-1."""


def main(arguments: argparse.Namespace) -> int:
    threads = arguments.threads or pool.available_threads()
    model = models.load(MODEL, seed=0)
    print(f"{MODEL} of onnx {onnx.__version__}: {len(model.graph.node)} nodes, weights from seed 0, {threads} threads")

    start = time.perf_counter()
    compiled = tl.compile(model, threads=threads, progress=progress)
    print(f"compiled in {time.perf_counter() - start:.1f} s (kernels compiled before come from the cache on disk)")

    [image] = compiled.inputs
    feeds = {image.name: np.random.default_rng(0).standard_normal(image.shape).astype(np.float32)}
    ours = list(compiled.run(feeds).values())

    print("\nchecking, against onnx's reference evaluator and what else is installed")
    right = agree("onnx reference", ours, ReferenceEvaluator(model, new_ops=[BatchNormalization]).run(None, feeds))
    runs: dict[str, Any] = {"tensorlang": lambda: compiled.run(feeds)}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, str(path))
        for peer in (p for p in peers() if p.name in ("onnxruntime", "openvino")):
            run = peer.run(Task(feeds, str(path)), threads)
            assert run is not None  # both read models
            right &= agree(f"{peer.name} {peer.version}", ours, run())
            runs[f"{peer.name} {peer.version}"] = run
        print("\nlatency of one image, measured in turns")
        for timing in measured(runs, arguments.seconds):
            best, middle = timing.best_seconds * 1e3, timing.median_seconds * 1e3
            print(f"  {timing.name:20} best {best:8.2f} ms   median {middle:8.2f} ms   {timing.rounds} runs")
    if len(runs) == 1:
        print("  no peer is installed, so there is nothing to compare with")

    report(compiled.profile(feeds), len(model.graph.node))
    print("\nthe output is right" if right else "\nTHE OUTPUT IS WRONG")
    return 0 if right else 1


class BatchNormalization(OpRun):
    """The operator as ONNX defines it for inference. The reference evaluator's own version 9 (onnx 1.23) takes statistics of the batch."""

    op_domain = ""

    def _run(self, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: float, **_: Any) -> tuple[Any]:
        columns = [v.reshape(-1, 1, 1) for v in (scale, bias, mean, variance)]
        return ((columns[0] * (x - columns[2]) / np.sqrt(columns[3] + np.float32(epsilon)) + columns[1]).astype(x.dtype),)


def agree(name: str, ours: Sequence[np.ndarray[Any, Any]], theirs: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Print and return whether our outputs are those of another implementation."""
    difference = largest_difference(ours, theirs)
    same_top = all(np.array_equal(np.argsort(a)[..., -5:], np.argsort(b)[..., -5:]) for a, b in zip(ours, theirs, strict=True))
    fine = difference <= TOLERANCE and same_top
    print(f"  {name:20} largest difference {difference:.1e} of the largest value, top five {'the same' if same_top else 'DIFFER'}")
    return fine


def report(kernels: Sequence[KernelTime], nodes: int) -> None:
    """Print what was fused and where the time goes."""
    print(f"\nfused: {nodes} nodes became {len(kernels)} kernels")
    for name, count in Counter(k.name for k in kernels).most_common():
        print(f"  {count:3} x {name}")
    total = sum(k.seconds for k in kernels)
    peak = fma_flops(f32) * 1e-9
    print(f"\nhottest kernels of {total * 1e3:.2f} ms in all (one thread of this machine multiplies and adds {peak:.0f} GFLOP/s at most)")
    print(f"  {'ms':>8} {'share':>6} {'sum':>6} {'GFLOP/s':>8}  kernel")
    hottest = sorted(kernels, key=lambda k: -k.seconds)[:10]
    for kernel, so_far in zip(hottest, accumulate(k.seconds for k in hottest), strict=True):
        rate = kernel.work.flops / kernel.seconds * 1e-9
        shape = "x".join(map(str, kernel.result.shape))
        print(f"  {kernel.seconds * 1e3:8.3f} {kernel.seconds / total:6.1%} {so_far / total:6.1%} {rate:8.1f}  {kernel.name} {shape}")


def progress(what: str, done: int, total: int) -> None:
    if sys.stdout.isatty():
        print(f"\r{what} {done}/{total}", end="\n" if done == total else "", flush=True)
    elif done == total or done % 8 == 0:
        print(f"{what} {done}/{total}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="compile, check and measure ResNet-50")
    parser.add_argument("--threads", type=int, help="threads to use (default: all)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure")
    sys.exit(main(parser.parse_args()))

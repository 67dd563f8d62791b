"""Networks of torch under `torch.compile`: this back end against eager, inductor and inductor's max-autotune.

    python benchmarks/torch_compile.py [NAME …] [--threads 1] [--seconds 3] [--no-autotune] [--small] [--train] [-o FILE]

All four run one network on one input in turns, in f32 and without gradients; what comes out of each is compared with eager first. With
`--train` a call is both directions, of the mean of the squares of the results, and the derivatives by the parameters are compared. First
calls are timed with empty caches on disk: capture, compilation and one run. inductor needs a compiler of C++.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import geometric_mean
from typing import Any

import harness  # the repository root comes first
import torch
from torch_networks import COMMON, network

from tensorlang.torch.backend import tensorlang

TOLERANCE = 1e-4
"""Of the largest element of eager's result."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", default=[name for name in COMMON if name != "gru"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--no-autotune", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch._dynamo.config.allow_rnn = True
    torch._dynamo.config.cache_size_limit = 64
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TENSORLANG_CACHE"], os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/ours", f"{folder}/inductor"
        results = [measured(name, options.small, options.seconds, not options.no_autotune, options.train) for name in options.names]
    head = ["network", "ours, ms", *(f"{kind} / ours" for kind in kinds(results)), "first call, s", "inductor's", "error"]
    title = f"Networks under torch.compile, {options.threads} thread{'s' * (options.threads > 1)}"
    harness.write(options.output, title, results, harness.table(head, rows(results)))


def kinds(results: list[dict[str, Any]]) -> list[str]:
    return [kind for kind in results[0]["ms"] if kind != "ours"]


def rows(results: list[dict[str, Any]]) -> Iterator[list[object]]:
    for r in results:
        ratios = [f"{r['ms'][kind] / r['ms']['ours']:.2f}" for kind in kinds(results)]
        first = r["first"]
        yield [r["name"], f"{r['ms']['ours']:.3f}", *ratios, f"{first['ours']:.1f}", f"{first['inductor']:.1f}", f"{r['error']:.0e}"]
    means = [f"{geometric_mean(r['ms'][kind] / r['ms']['ours'] for r in results):.2f}" for kind in kinds(results)]
    yield ["geometric mean", "", *means, "", "", ""]


def measured(name: str, small: bool, seconds: float, autotune: bool, train: bool) -> dict[str, Any]:
    """Return the times of a network in milliseconds, those of first calls in seconds, and the error against eager."""
    torch._dynamo.reset()
    model, inputs = network(name, small)
    contenders: dict[str, Callable[..., Any]] = {
        "eager": model,
        "inductor": torch.compile(model, backend="inductor"),
        **({"max-autotune": torch.compile(model, backend="inductor", mode="max-autotune")} if autotune else {}),
        "ours": torch.compile(model, backend=tensorlang),
    }
    if train:
        model.train()
        contenders = {kind: both_directions(model, run) for kind, run in contenders.items()}
    with torch.set_grad_enabled(train):
        wanted = tensors(contenders["eager"](*inputs))
        first, errors = {}, {}
        for kind, run in contenders.items():
            start = time.perf_counter()
            found = tensors(run(*inputs))
            first[kind] = time.perf_counter() - start
            largest = max(float(b.abs().max()) for b in wanted)  # some derivatives are nothing but what rounding leaves
            errors[kind] = max(
                float((a - b).abs().max()) / (largest if train else float(b.abs().max())) for a, b in zip(found, wanted, strict=True)
            )
        if errors["ours"] > TOLERANCE:
            raise SystemExit(f"{name}: our result differs from eager's by {errors['ours']:.1e}")
        timings = harness.paired({kind: lambda run=run: run(*inputs) for kind, run in contenders.items()}, seconds)
    return {"name": name, "ms": {t.name: t.median * 1e3 for t in timings}, "first": first, "error": errors["ours"]}


def both_directions(model: torch.nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes the derivatives by the parameters of a model that `run` calls."""
    parameters = [p for p in model.parameters() if p.requires_grad]

    def step(*inputs: Any) -> tuple[torch.Tensor, ...]:
        loss = sum(t.square().mean() for t in tensors(run(*inputs)) if t.requires_grad)
        return torch.autograd.grad(loss, parameters)

    return step


def tensors(found: Any) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


if __name__ == "__main__":
    main()

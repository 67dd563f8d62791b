"""Derivatives against those of PyTorch's autograd: how far they are apart, and the time of both, measured in turns.

    python benchmarks/gradients.py                 all cases, one thread
    python benchmarks/gradients.py conv softmax    those whose names contain one of these
    python benchmarks/gradients.py --threads 2

PyTorch keeps what its forward pass has computed, and its time is that of the backward pass alone. A gradient here takes the inputs
and the derivatives by results, so its time includes what it computes again of the forward pass. A ratio above 1 says that it is faster
all the same.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tensorlang as tl

LIBRARY = Path(__file__).parents[1] / "stdlib" / "ops"
OWN = """
op attention[T: float](q: T[H, L, E], k: T[H, S, E], v: T[H, S, E]) -> (y: T[H, L, E]) {
    s[h, i, j] = (sum(e) q[h, i, e] * k[h, j, e]) * 0.125
    m[h, i]    = max(j) s[h, i, j]
    w[h, i, j] = exp(s[h, i, j] - m[h, i])
    r[h, i]    = 1 / sum(j) w[h, i, j]
    p[h, i, j] = w[h, i, j] * r[h, i]
    y[h, i, e] = sum(j) p[h, i, j] * v[h, j, e]
}
op log_sum_exp[T: float](x: T[M, N]) -> (y: T[M]) {
    y[i] = logsumexp(j) x[i, j]
}
op cumulative_product[T: float](x: T[M, N]) -> (y: T[M, N]) {
    y[i, j] = prod(k in 0..j+1) x[i, k]
}
op embedding[T: float](x: T[V, E], ids: i64[L] in 0..V) -> (y: T[L, E]) {
    y[l, e] = x[ids[l], e]
}
op gelu[T: float](x: T[D..]) -> (y: T[D..]) {
    y[d..] = 0.5 * x[d..] * (1 + erf(x[d..] * 0.7071067811865476))
}
"""
RNG = np.random.default_rng(0)
SECONDS = 0.5


@dataclass(frozen=True)
class Case:
    """A gradient: the file of the library (or "") and the operator, what it is by, shapes (or arrays), the same in torch, attributes."""

    name: str
    file: str
    operator: str
    by: tuple[str, ...]
    tensors: Sequence[Any]
    torch: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)


def convolution(name: str, x: tuple[int, ...], w: tuple[int, ...], stride: int, pad: int, group: int = 1) -> list[Case]:
    """Return the cases of a convolution, by its input and by its weights."""
    attrs = {"stride": (stride,) * 2, "lo": (pad,) * 2, "hi": (pad,) * 2, "group": group}

    def forward(a: Any, b: Any) -> Any:
        return F.conv2d(a, b, stride=stride, padding=pad, groups=group)

    return [Case(f"{name} by {by}", "conv", "conv", (by,), [x, w], forward, attrs) for by in ("x", "w")]


CASES = [
    Case("matmul 384", "linear", "matmul", ("a", "b"), [(384, 384), (384, 384)], lambda a, b: a @ b),
    Case("softmax", "norm", "softmax", ("x",), [(256, 1000)], lambda x: F.softmax(x, -1)),
    Case("log_softmax", "norm", "log_softmax", ("x",), [(256, 1000)], lambda x: F.log_softmax(x, -1)),
    Case("logsumexp", "", "log_sum_exp", ("x",), [(256, 1000)], lambda x: torch.logsumexp(x, -1)),
    Case(
        "cumprod", "", "cumulative_product", ("x",), [RNG.uniform(0.9, 1.1, (64, 512)).astype(np.float32)], lambda x: torch.cumprod(x, -1)
    ),
    Case("layer_norm", "norm", "layer_norm", ("x", "g", "b"), [(512, 768), (768,), (768,)], lambda x, g, b: F.layer_norm(x, (768,), g, b)),
    Case("rms_norm", "norm", "rms_norm", ("x", "g"), [(512, 768), (768,)], lambda x, g: F.rms_norm(x, (768,), g, 1e-5)),
    Case(
        "batch_norm",
        "norm",
        "batch_norm",
        ("x", "scale", "bias"),
        [(4, 64, 28, 28), (64,), (64,), (64,), np.ones(64, np.float32)],
        lambda x, scale, bias, mean, var: F.batch_norm(x, mean, var, scale, bias),
    ),
    Case("gelu", "", "gelu", ("x",), [(512, 768)], F.gelu),
    Case(
        "attention",
        "",
        "attention",
        ("q", "k", "v"),
        [(12, 128, 64)] * 3,
        lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None])[0],
    ),
    Case(
        "embedding",
        "",
        "embedding",
        ("x",),
        [(5000, 256), RNG.integers(0, 5000, 2048)],
        lambda x, ids: F.embedding(ids, x),
    ),
    Case(
        "max_pool",
        "conv",
        "max_pool",
        ("x",),
        [(1, 64, 56, 56)],
        lambda x: F.max_pool2d(x, 3, 2, 1),
        {"kernel": (3, 3), "stride": (2, 2), "lo": (1, 1), "hi": (1, 1)},
    ),
    Case(
        "average_pool",
        "conv",
        "average_pool",
        ("x",),
        [(1, 64, 56, 56)],
        lambda x: F.avg_pool2d(x, 2),
        {"kernel": (2, 2), "stride": (2, 2)},
    ),
    *convolution("conv 3x3", (1, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    *convolution("conv 3x3, 14x14", (1, 256, 14, 14), (256, 256, 3, 3), 1, 1),
    *convolution("conv 3x3, 8 samples", (8, 32, 28, 28), (64, 32, 3, 3), 1, 1),
    *convolution("conv 3x3, stride 2", (1, 64, 56, 56), (128, 64, 3, 3), 2, 1),
    *convolution("conv 1x1", (1, 64, 56, 56), (256, 64, 1, 1), 1, 0),
    *convolution("conv 1x1, stride 2", (1, 64, 56, 56), (128, 64, 1, 1), 2, 0),
    *convolution("conv 7x7, stride 2", (1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    *convolution("conv depthwise", (1, 64, 56, 56), (64, 1, 3, 3), 1, 1, 64),
]


@dataclass(frozen=True)
class Measured:
    """Times in seconds, medians; `ratio`: the median of PyTorch's by ours, turn by turn; `error`: the greatest, by the greatest element."""

    ours: float
    theirs: float
    ratio: float
    error: float


def measured(case: Case, threads: int) -> Measured:
    """Return how a gradient compares with PyTorch's. Of one thread processor time is measured, which others do not add to."""
    ops = tl.load(LIBRARY / f"{case.file}.tl", threads=threads) if case.file else tl.parse(OWN, threads=threads)
    operator = ops[case.operator]
    arrays = [t if isinstance(t, np.ndarray) else RNG.standard_normal(t).astype(np.float32) for t in case.tensors]
    leaves = [torch.from_numpy(a) for a in arrays]
    names = [p.name for p in operator.declaration.params if p.kind == "tensor"]
    inputs = [leaves[names.index(name)].requires_grad_() for name in case.by]
    result = case.torch(*leaves)
    slope = torch.from_numpy(RNG.standard_normal(tuple(result.shape)).astype(np.float32))
    given = {f"d_{operator.declaration.results[0].name}": slope.numpy()}
    run = operator.gradient(*case.by).prepared(*arrays, **given, **case.attrs)

    def back() -> Any:
        return torch.autograd.grad(result, inputs, slope, retain_graph=True)

    made, expected = run(), back()
    made = made if isinstance(made, tuple) else (made,)
    error = max(float(np.abs(a - b.numpy()).max() / np.abs(b.numpy()).max()) for a, b in zip(made, expected, strict=True))
    clock = time.process_time if threads == 1 else time.perf_counter
    turns = _turns(run, back, clock)
    ratio = statistics.median(theirs / ours for ours, theirs in turns)
    return Measured(statistics.median(t[0] for t in turns), statistics.median(t[1] for t in turns), ratio, error)


def _turns(run: Callable[[], Any], back: Callable[[], Any], clock: Callable[[], float]) -> list[tuple[float, float]]:
    """Return the seconds of a call of each, several calls at a time, in turns."""
    started = time.perf_counter()
    run()
    back()
    calls = max(1, int(0.005 / max(time.perf_counter() - started, 1e-6)))

    def seconds(call: Callable[[], Any]) -> float:
        before = clock()
        for _ in range(calls):
            call()
        return (clock() - before) / calls

    out: list[tuple[float, float]] = []
    end = time.perf_counter() + SECONDS
    while len(out) < 5 or time.perf_counter() < end:
        out.append((seconds(run), seconds(back)))
    return out


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args(args)
    torch.set_num_threads(chosen.threads)
    print(f"{'':28} {'ms':>8} {'torch':>8} {'torch/ours':>10} {'error':>8}")
    for case in CASES:
        if not chosen.names or any(name in case.name for name in chosen.names):
            m = measured(case, chosen.threads)
            print(f"{case.name:28} {1e3 * m.ours:8.3f} {1e3 * m.theirs:8.3f} {m.ratio:10.2f} {m.error:8.1e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

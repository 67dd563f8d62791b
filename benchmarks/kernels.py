"""Where the time of a model goes: its kernels, the slowest first, with their rates, schedules and loops.

python benchmarks/kernels.py bert_base
python benchmarks/kernels.py squeezenet11 --threads 2 --top 5 --schedules
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any

from harness import ceiling, table, write  # isort: skip

import numpy as np

from stdlib import models
from tensorlang.api import importer_of
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.executable import timed
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.runtime.jobs import optimised
from tensorlang.runtime.work import work_of


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", help="a name, or a file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--top", type=int, default=12)
    parser.add_argument("--schedules", action="store_true", help="print their schedules and loops as well")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    arguments = parser.parse_args()
    results, made = profile(arguments.model, arguments.threads)
    total = sum(r["us"] for r in results)
    rows = [_row(r, total) for r in results[: arguments.top]]
    head = ("kernel", "result", "times", "us", "share", "GFLOP/s", "GB/s")
    ended = f"{len(results)} distinct kernels, {total / 1e3:.2f} ms; ceiling {ceiling(arguments.threads) / 1e9:.0f} GFLOP/s"
    write(arguments.out, f"Kernels of {arguments.model}", results, f"{table(head, rows)}\n\n{ended}")
    if arguments.schedules:
        for r in results[: arguments.top]:
            print(f"\n{'-' * 80}\n{r['kernel']} {r['result']} = {r['computes']}\n{made[r['symbol']].schedule}\n{made[r['symbol']].loops}")


def profile(name: str, threads: int) -> tuple[list[dict[str, Any]], dict[str, Artifact]]:
    """Return the distinct kernels, the slowest first, and their artifacts by symbol. The time is that of all uses together."""
    tools = toolchain(threads=threads)
    source = models.load(name, 7) if name in models.names() else name
    graph = optimised(importer_of(source).load(source), tools)
    executable = build(graph, tools)
    rng = np.random.default_rng(0)
    seconds, _ = timed(executable, [_random(graph, name, rng) for name in graph.inputs])
    uses: dict[str, list[tuple[Kernel, float]]] = defaultdict(list)
    for node, artifact, taken in zip(executable.kernels, executable.artifacts, seconds, strict=True):
        uses[artifact.symbol].append((node, taken))
    found = [_described(graph, symbol, nodes) for symbol, nodes in uses.items()]
    return sorted(found, key=lambda r: -r["us"]), {a.symbol: a for a in executable.artifacts}


def _described(graph: Graph, symbol: str, uses: list[tuple[Kernel, float]]) -> dict[str, Any]:
    node = uses[0][0]
    total = sum(taken for _, taken in uses)
    work = work_of(node.program)
    return {
        "symbol": symbol,
        "kernel": node.program.name,
        "result": list(graph.values[node.outputs[0]].shape),
        "computes": " + ".join(members(node)),
        "times": len(uses),
        "us": total * 1e6,
        "gflops": work.flops * len(uses) / total / 1e9,
        "gbytes": work.moved_bytes * len(uses) / total / 1e9,
    }


def _row(r: dict[str, Any], total: float) -> tuple[str, ...]:
    shape = "x".join(map(str, r["result"]))
    share = f"{100 * r['us'] / total:.1f} %"
    return (r["kernel"], shape, str(r["times"]), f"{r['us']:.1f}", share, f"{r['gflops']:.1f}", f"{r['gbytes']:.1f}")


def _random(graph: Graph, name: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    value = graph.values[name]
    if value.dtype.is_float:
        return rng.standard_normal(value.shape).astype(value.dtype.numpy)
    return np.ones(value.shape, value.dtype.numpy)


if __name__ == "__main__":
    main()

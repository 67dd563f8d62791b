"""What a server of a model gives its clients: results a second, and how long they wait, against onnxruntime's.

python benchmarks/serving.py [--clients 64] [--seconds 5] [--workers 2]

Each client is a thread that asks for the next image when it has its answer. Peers are onnxruntime's session called by all clients, with its
own threads, and the same session behind the same server. With `broken off`, one request in eight is cancelled as soon as it is sent; with
`killed`, a worker process is killed twice a second. Nothing may be lost: every request is answered, or was cancelled by its client.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from harness import table, write  # isort: skip

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from tensorlang.saved.serving import Server

SIZE = 64
Run = Callable[[dict[str, Any]], Any]


def network() -> onnx.ModelProto:
    """Return five convolutions with Relu, a mean over pixels and a product: images of 64 x 64 to 100 labels, of an open batch."""
    rng, nodes, weights, name = np.random.default_rng(0), list[Any](), list[Any](), "image"
    for k, (channels, out, stride) in enumerate(((3, 32, 2), (32, 64, 1), (64, 64, 2), (64, 128, 1), (128, 128, 2))):
        weight = (rng.standard_normal((out, channels, 3, 3)) / (3 * channels**0.5)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{k}"))
        nodes.append(helper.make_node("Conv", [name, f"w{k}"], [f"c{k}"], pads=[1, 1, 1, 1], strides=[stride, stride]))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"]))
        name = f"r{k}"
    weights.append(numpy_helper.from_array(rng.standard_normal((128, 100)).astype(np.float32), "w"))
    nodes += [helper.make_node("GlobalAveragePool", [name], ["p"]), helper.make_node("Flatten", ["p"], ["f"])]
    nodes.append(helper.make_node("MatMul", ["f", "w"], ["label"]))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])
    label = helper.make_tensor_value_info("label", TensorProto.FLOAT, ["batch", 100])
    graph = helper.make_graph(nodes, "served", [image], [label], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


class Peer:
    """onnxruntime's session as a model that a server takes."""

    def __init__(self, content: bytes, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        self.inputs, self.outputs = self.session.get_inputs(), self.session.get_outputs()

    def clone(self, threads: int | None = None) -> Peer:
        return self

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip((o.name for o in self.outputs), self.session.run(None, dict(feeds)), strict=True))


def measured(run: Run, clients: int, seconds: float, expected: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    """Return how many results a second there were, and the 50th and 99th of a hundred times that clients waited, in seconds. `run` returns
    None where the client broke off."""
    times: list[float] = []
    sent, broken, wrong = [0] * clients, [0] * clients, [0] * clients
    end = time.perf_counter() + seconds

    def client(k: int) -> None:
        while time.perf_counter() < end:
            start = time.perf_counter()
            sent[k] += 1
            found = run(feeds)
            if found is None:
                broken[k] += 1
                continue
            times.append(time.perf_counter() - start)
            wrong[k] += not np.allclose(found, expected, rtol=1e-3, atol=1e-3)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    lost = sum(sent) - sum(broken) - len(times)
    return {
        "per_second": len(times) / took,
        "p50": float(np.percentile(times, 50)),
        "p99": float(np.percentile(times, 99)),
        "sent": sum(sent),
        "broken_off": sum(broken),
        "lost": lost,
        "wrong": sum(wrong),
    }


def through(server: Server, broken_off: bool = False) -> Run:
    """Return the run of a client of a server."""
    counter = iter(range(1 << 60))

    def run(feeds: dict[str, Any]) -> Any:
        future = server.submit(feeds)
        if broken_off and next(counter) % 8 == 0 and future.cancel():
            return None
        return future.result()["label"]

    return run


def killing(server: Server, done: threading.Event) -> None:
    """Kill workers, one after the other."""
    k = 0
    while not done.wait(0.5):
        pid = server.workers[k % len(server.workers)].pid  # type: ignore[union-attr]
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        k += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="each way is measured so often, in turns; the median counts")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = compared(Path(folder), arguments)
    rows = [
        (
            r["what"],
            f"{r['per_second']:.0f}",
            f"{r['p50'] * 1e3:.1f}",
            f"{r['p99'] * 1e3:.1f}",
            r["sent"],
            r["broken_off"],
            r["lost"],
            r["wrong"],
        )
        for r in results
    ]
    head = ("served by", "results/s", "p50 ms", "p99 ms", "sent", "broken off", "lost", "wrong")
    write(arguments.out, "Serving", results, table(head, rows))


def compared(folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what each way of serving gives."""
    content, workers = network().SerializeToString(), arguments.workers
    tl.build(content, folder / "served", library="served", max={"batch": 8}, threads=workers)
    model = tl.load_model(folder / "served")
    feeds = {"image": np.random.default_rng(1).standard_normal((1, 3, SIZE, SIZE)).astype(np.float32)}
    one, several = Peer(content, 1), Peer(content, workers)
    expected = one.run(feeds)["label"]

    def served(peer: Any, **options: Any) -> Callable[[], AbstractContextManager[Server]]:
        known = {} if isinstance(peer, tl.Saved) else {"assume_independent": "a network of convolutions keeps images apart"}
        return lambda: tl.serve(peer, **known, **{"max_batch": 8, "max_delay": 0.002, "workers": workers, **options})

    ways: dict[str, Callable[[], AbstractContextManager[Server]] | Run] = {
        "tensorlang, batches of 8": served(model),
        "tensorlang, one by one": served(model, max_batch=1),
        "tensorlang, batches of 8, processes": served(model, processes=True),
        "tensorlang, batches of 8, broken off": served(model),
        "tensorlang, processes, killed": served(model, processes=True),
        "onnxruntime, batches of 8, the same server": served(one),
        "onnxruntime, session of one thread": lambda feeds: one.run(feeds)["label"],
        f"onnxruntime, session of {workers} threads": lambda feeds: several.run(feeds)["label"],
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            found[name].append(_round(name, way, arguments, expected, feeds))
    return [{"what": name, **_median(rounds)} for name, rounds in found.items()]


def _round(name: str, way: Any, arguments: argparse.Namespace, expected: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    if "session" in name:
        return measured(way, arguments.clients, arguments.seconds, expected, feeds)
    with way() as server:
        server.run(feeds)
        done = threading.Event()
        if "killed" in name:
            threading.Thread(target=killing, args=(server, done), daemon=True).start()
        result = measured(through(server, "broken off" in name), arguments.clients, arguments.seconds, expected, feeds)
        done.set()
        return {**result, "restarts": server.counts["restarts"]}


def _median(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the round of the median throughput, with what was sent and lost in all of them."""
    middle = sorted(rounds, key=lambda r: r["per_second"])[len(rounds) // 2]
    return {**middle, **{key: sum(r[key] for r in rounds) for key in ("sent", "broken_off", "lost", "wrong")}}


if __name__ == "__main__":
    main()

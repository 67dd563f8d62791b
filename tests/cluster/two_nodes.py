"""A cluster of two nodes on this machine on which schedules are tried and a model is run, while processes are killed. Prints what came of
it as JSON. It is a process of its own: Ray starts threads and handlers of signals that no test wants."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

import tensorlang as tl
from tensorlang.tuning import tune as tuning
from tensorlang.tuning.subjects import OperatorSubject

TEXT = "op f(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = min(k) (a[i, k] + b[k, j]) }"
ROWS = 40


class Mortal(OperatorSubject):
    """An operator over whose second trial its process is killed, once on the whole cluster."""

    __slots__ = ()

    def begin(self) -> Any:
        greeting, answer = super().begin()
        count = iter(range(1_000_000))

        def mortal(trial: Any) -> Any:
            if next(count) == 1 and _first(MARK):
                os.kill(os.getpid(), signal.SIGKILL)
            return answer(trial)

        return greeting, mortal


def _first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


MARK = Path(os.environ.get("MARK", "mark"))


def kill_one(name: bytes) -> None:
    """Kill the first process whose command begins with `name`."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(name):
                    os.kill(int(entry.name), signal.SIGKILL)
                    return
            except OSError:
                continue
        time.sleep(0.02)


def main() -> None:
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    found: dict[str, Any] = {}
    try:
        operator = tl.parse(TEXT, threads=1).f
        a, b = np.ones((16, 8), np.float32), np.ones((8, 32), np.float32)
        tuning.OperatorSubject = Mortal  # type: ignore[misc]
        rounds = iter(range(1_000_000))

        def until_enough(what: str, done: int, total: int) -> None:
            if MARK.exists() and next(rounds) >= 6:
                raise KeyboardInterrupt

        tuned = tl.tune(operator, a, b, seconds=240.0, cluster=cluster.address, progress=until_enough)
        found["died"], found["outcomes"], found["nodes"] = MARK.exists(), dict(tuned.outcomes), len(ray.nodes())
        x = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
        total = tl.parse("op total(x: f32[B, N]) -> (y: f32[B]) { y[i] = sum(j) x[i, j] }").total
        total.save(sys.argv[1], {"x": x[:2]}, symbolic=True, max={"B": 8, "N": 3})
        data = ray.data.from_items([{"x": row, "k": k} for k, row in enumerate(x)], override_num_blocks=10)
        mapped = tl.map_batches(tl.load_model(sys.argv[1]), data, batch_size=4, concurrency=1)
        killer = threading.Thread(target=kill_one, args=(b"ray::MapWorker",), daemon=True)
        killer.start()
        rows = mapped.take_all()
        killer.join(1)
        found["rows"] = sorted((int(row["k"]), float(row["y"])) for row in rows)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()

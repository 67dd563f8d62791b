"""Models over data sets, on the machines of a cluster: `map_batches`.

The model travels as the library that `save` writes, for every level of processor that a machine of the cluster has, so no machine compiles.
Each unpacks it once, and the processes of a machine map the same file of weights. Every process has a model with threads of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from codegen.llvm.target import levels
from tensorlang.cluster.connection import connected
from tensorlang.diagnostics import error
from tensorlang.saved.loading import Saved, load_model
from tensorlang.saved.serving import batch_of, checked_rows

Array = np.ndarray[Any, Any]


def map_batches(
    model: Any,
    dataset: Any,
    *,
    batch_size: int = 64,
    concurrency: int | None = None,
    threads: int = 1,
    cluster: str | None = None,
    assume_independent: str | None = None,
) -> Any:
    """Return a data set of Ray with the columns of `dataset` and one more for each output of a model, computed batch by batch when it is
    read. `model` is what `tensorlang.compile` or `tensorlang.load_model` returns; columns of the names of its inputs, of which each row is
    one, are what it runs on. The inputs and outputs begin with one size: that of the batch, open or fixed.

    `batch_size`: rows of a batch at most, of a model whose batch is open; `concurrency`: how many processes run at most (None: as many as
    the cluster has processors for), each on `threads` threads; `cluster`: the address of the cluster, None for the one that this process
    is connected to or this machine alone; `assume_independent`: why rows do not depend on each other where that is not proven.

    A process that dies is begun again and its batch is run again.

    Raises CompileError C0146 and C0147, and what `CompiledModel.save` raises; SavedError R0416 for rows that depend on each other."""
    for name, value in (("batch_size", batch_size), ("threads", threads), ("concurrency", 1 if concurrency is None else concurrency)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise error("C0147", f"`{name}` is {value!r}", help="give a whole number from 1")
    ray = connected(cluster)
    open_size, shapes = batch_of(model)
    if open_size is None:
        title = f"rows of a data set are no batches of this model: its inputs and outputs do not begin with one size: {shapes}"
        raise error("C0147", title, help="export it with an open batch size")
    checked_rows(model, assume_independent)
    names = tuple(t.name for t in model.inputs)
    _check_columns(dataset, names, tuple(t.name for t in model.outputs))
    rows = batch_size if isinstance(open_size, str) else open_size
    with tempfile.TemporaryDirectory() as folder:
        packed = ray.put(_packed(_saved(ray, model, Path(folder) / "model", open_size, batch_size, threads)))
    processes = concurrency or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
    return dataset.map_batches(
        _Mapped,
        fn_constructor_args=(packed, names, threads, None if isinstance(open_size, str) else open_size),
        batch_size=rows,
        batch_format="numpy",
        zero_copy_batch=True,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=processes),  # who reads the data needs processors, too
        num_cpus=threads,
        udf_modifying_row_count=False,
    )


def _check_columns(dataset: Any, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    if not hasattr(dataset, "map_batches"):
        raise error(
            "C0147", f"`{dataset!r:.60}` is no data set", help="make one: `ray.data.from_numpy(array)`, `ray.data.read_parquet(path)`"
        )
    there = dataset.columns()
    missing = [name for name in inputs if there is not None and name not in there]
    if missing:
        help = f"it has {', '.join(f'`{c}`' for c in there)}: rename them, `dataset.rename_columns({{…}})`"
        raise error("C0147", f"the data set has no column `{missing[0]}`, which is an input of the model", help=help)
    twice = [name for name in outputs if there is not None and name in there]
    if twice:
        help = "drop or rename it: `dataset.drop_columns([…])`"
        raise error("C0147", f"the data set has a column `{twice[0]}` already, which is an output of the model", help=help)


def _saved(ray: Any, model: Any, folder: Path, size: str | int, batch_size: int, threads: int) -> Path:
    """Return the folder of a model as a library, for the processors of the cluster."""
    if isinstance(model, Saved):
        return Path(model.folder)
    there = ray.get(
        [ray.remote(levels).options(num_cpus=0, scheduling_strategy=_on(node)).remote() for node in ray.nodes() if node["Alive"]]
    )
    best = sorted({found[-1] for found in there if found})
    limits = {size: batch_size} if isinstance(size, str) else None
    return Path(model.save(folder, targets=best or None, max=limits, threads=threads))


def _on(node: Mapping[str, Any]) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)


def _packed(folder: Path) -> dict[str, Array]:
    return {path.name: np.fromfile(path, np.uint8) for path in sorted(folder.iterdir()) if path.is_file()}


def _unpacked(files: Mapping[str, Array]) -> Path:
    """Return the folder that the files are in on this machine: the same for all its processes, written by the first."""
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{len(name)} {name} {data.nbytes} ".encode())
        digest.update(data.data)
    home = Path(tempfile.gettempdir()) / f"tensorlang-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid() or home.stat().st_mode & 0o022:
        raise PermissionError(f"{home} is not this user's alone")
    folder = home / digest.hexdigest()
    with open(home / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=home) as made:
                inside = Path(made) / "model"
                inside.mkdir()
                for name, data in files.items():
                    data.tofile(inside / name)
                inside.rename(folder)
    return folder


class _Mapped:
    """A model in a process of the cluster, called with batches."""

    def __init__(self, files: Any, inputs: tuple[str, ...], threads: int, rows: int | None) -> None:
        import ray

        self._model = load_model(_unpacked(ray.get(files)), threads=threads)
        self._inputs, self._rows = inputs, rows

    def __call__(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        feeds = {name: np.ascontiguousarray(batch[name]) for name in self._inputs}
        count = len(next(iter(feeds.values())))
        if self._rows is None or count == self._rows:
            return {**batch, **self._model.run(feeds)}
        # The last batch of a model whose batch is fixed: rows are independent, so that those behind its end may be any.
        whole = {name: np.concatenate([a, np.repeat(a[-1:], self._rows - count, axis=0)]) for name, a in feeds.items()}
        return {**batch, **{name: a[:count] for name, a in self._model.run(whole).items()}}

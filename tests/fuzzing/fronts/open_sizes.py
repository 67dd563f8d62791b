"""Random ONNX graphs whose sizes stay open, compiled once for all and run for several combinations of sizes, zero and one among them,
compared with onnxruntime; what was compiled for one combination alone has to agree, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime

import tensorlang as tl
from fuzzing.front import Outcome
from fuzzing.open_network import COMBINATIONS, OpenDrawing, OpenNet
from tensorlang.runtime.specialization import Sizes

Array = np.ndarray[Any, Any]
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    net: OpenNet
    combinations: tuple[tuple[tuple[str, int], ...], ...]
    sizes: Sizes
    seed: int


class OpenSizes:
    name = "sizes"
    seconds = 60.0
    batch = 1
    share = 1.0

    def prepare(self) -> None:
        onnxruntime.set_default_logger_severity(4)
        self.run(self.draw(0))

    def draw(self, seed: int) -> Case:
        random = Random(f"sizes:{seed}")
        net = OpenDrawing(random).net(random.choice((2, 4, 6, 10)))
        extents = [0, 1, *random.sample(range(2, 40), 4)]
        some = [{"a": random.choice(extents), "b": random.choice(extents)} for _ in range(COMBINATIONS - 2)]
        some += [{"a": random.choice((0, 1)), "b": random.choice(extents)}, {"a": random.choice(extents), "b": random.choice((0, 1))}]
        random.shuffle(some)
        return Case(net, tuple(tuple(sizes.items()) for sizes in some), random.choice(("symbolic", "symbolic", "auto")), seed)

    def run(self, case: Case) -> Outcome:
        if not case.net.outputs:
            return Outcome("ok", "nothing to compute")
        data = case.net.model()
        session = _session(data)
        model = tl.compile(data, threads=1, sizes=case.sizes)
        for k, pairs in enumerate(case.combinations):
            feeds = case.net.feeds(dict(pairs), case.seed + k)
            try:
                wanted = session.run(None, feeds)
            except Exception:
                continue  # no combination that the model takes
            problem = _problem(model.run(feeds), wanted)
            if problem:
                return Outcome("wrong", "another value", f"{dict(pairs)}: {problem}")
        return Outcome("ok")

    def smaller(self, case: Case) -> Iterator[Case]:
        net = case.net
        for k in range(len(case.combinations)):
            if len(case.combinations) > 1:
                yield replace(case, combinations=(*case.combinations[:k], *case.combinations[k + 1 :]))
        for k in range(len(net.outputs)):
            if len(net.outputs) > 1:
                yield replace(case, net=_pruned(replace(net, outputs=(*net.outputs[:k], *net.outputs[k + 1 :]))))
        kinds = {info.name: info.type.tensor_type.elem_type for info in _inferred(net)}
        for node in net.nodes:
            for name in node.output:
                if any(name == output for output, _ in net.outputs):
                    reads = [(n, kinds[n]) for n in node.input if n in kinds and kinds[n] in (1, 7)]
                    others = tuple(o for o in net.outputs if o[0] != name)
                    if reads:
                        yield replace(case, net=_pruned(replace(net, outputs=tuple(dict.fromkeys((*others, *reads))))))

    def show(self, case: Case) -> str:
        return onnx.printer.to_text(onnx.load_from_string(case.net.model())) + f"\n{case.combinations} {case.sizes}"

    def test(self, case: Case) -> str:
        lines = [
            "import numpy as np",
            "import onnxruntime",
            "import tensorlang as tl",
            "",
            f"data = bytes.fromhex({case.net.model().hex()!r})",
            f"model, session = tl.compile(data, threads=1, sizes={case.sizes!r}), onnxruntime.InferenceSession(data)",
        ]
        for k, pairs in enumerate(case.combinations):
            feeds = case.net.feeds(dict(pairs), case.seed + k)
            written = ", ".join(f"{n!r}: np.array({a.tolist()!r}, np.{a.dtype}).reshape({a.shape!r})" for n, a in feeds.items())
            lines += [
                f"feeds = {{{written}}}",
                "for mine, theirs in zip(model.run(feeds).values(), session.run(None, feeds), strict=True):",
                f"    np.testing.assert_allclose(mine, theirs, {TOLERANCE}, {TOLERANCE})",
            ]
        return "\n".join(lines)


def _session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _inferred(net: OpenNet) -> list[onnx.ValueInfoProto]:
    graph = onnx.shape_inference.infer_shapes(onnx.load_from_string(net.model())).graph
    return [*graph.value_info, *graph.input]


def _pruned(net: OpenNet) -> OpenNet:
    """Return the net without what its outputs do not need."""
    needed, kept = {name for name, _ in net.outputs}, []
    for node in reversed(net.nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
    inputs = tuple(i for i in net.inputs if i[0] in needed)
    return replace(net, nodes=tuple(reversed(kept)), inputs=inputs, constants=tuple(c for c in net.constants if c.name in needed))


def _problem(found: dict[str, Any], wanted: list[Array]) -> str:
    """Return where results are not what is wanted, "" where nowhere."""
    for (name, mine), theirs in zip(found.items(), wanted, strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return f"{name} is {mine.dtype}{mine.shape}, not {theirs.dtype}{theirs.shape}"
        largest = max(1.0, float(np.abs(np.where(np.isfinite(theirs), theirs, 0)).max(initial=0.0)))
        if not np.allclose(mine, theirs, TOLERANCE, TOLERANCE * largest, equal_nan=True):
            return f"{name} differs by {np.abs(mine - theirs).max()}"
    return ""

"""Random ONNX graphs of mixed types, compiled and run natively or interpreted as imported, compared value by value with onnx's reference
evaluator; where onnxruntime disagrees with that on an operator, with either."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from guarded import SIDES, walled

import tensorlang as tl
from fuzzing import written
from fuzzing.front import Outcome
from fuzzing.native import Overwritten
from fuzzing.network import EXACT, OPSETS, RULES, Net, NetDrawing, Rule, differently, pruned, reads, type_of
from fuzzing.operators import OPERATORS, SELDOM
from fuzzing.shrink import without_some
from stdlib.library import library, roles
from tensorlang.diagnostics import CompileError

sys.path.append(str(Path(__file__).parent.parent.parent / "onnx"))  # the helpers that tests of models share

from onnx_evaluate import named_results  # the path has to be set first

Array = np.ndarray[Any, Any]

NATIVE = 0.4
"""How many cases are compiled; what the importer makes of the others is interpreted, which takes a tenth of the time."""
UNSUPPORTED = ("O010", "C0103")
"""What a model may be refused with: every drawn one is right."""


@dataclass(frozen=True)
class Case:
    net: Net
    threads: int
    seed: int
    open_: bool = False
    """Whether inputs have extents by name, so that shapes are known when the model runs."""
    native: bool = True
    """Whether it is compiled and run; otherwise its graph is interpreted, as it was imported."""


class Models:
    """Graphs of what most models have."""

    name = "models"
    seconds = 60.0
    batch = 1
    share = 2.0
    opsets: tuple[int, ...] = OPSETS

    def prepare(self) -> None:
        np.seterr(all="ignore")
        library(), roles()
        case = self.draw(0)
        tl.compile(case.net.model().SerializeToString(), threads=1)

    def draw(self, seed: int) -> Case:
        random = Random(f"{self.name}:{seed}")
        usual = random.random() < 0.3
        drawing = NetDrawing(random, opset=21 if usual else random.choice(self.opsets))
        net = drawing.net(random.choice((2, 4, 6, 10)), self.rules(random, usual))
        return Case(net, random.choice((1, 2)), seed, random.random() < 0.4, random.random() < NATIVE)

    def rules(self, random: Random, usual: bool) -> Sequence[Rule]:
        return RULES if usual else OPERATORS if random.random() < 0.5 else (*RULES, *OPERATORS)

    def run(self, case: Case) -> Outcome:
        net = case.net
        if not net.outputs:
            return Outcome("ok", "nothing to compute")
        try:
            found = _native(case) if case.native else _interpreted(case)
        except CompileError as refused:
            code = refused.diagnostics[0].code
            return Outcome("refused" if code in UNSUPPORTED else "unfounded", code, str(refused))
        except Overwritten as name:
            return Outcome("wrong", "an input is overwritten", str(name), 1)
        runs = int(case.native)
        problem = _problem(net, found, net.values)
        if not problem:
            return Outcome("ok", native=runs)
        for operators, values in differently(net, lambda n, a, b: not difference(a, b, _slack(net, n))):
            if not _problem(net, found, values):
                return Outcome("ok", f"as onnxruntime, not as the reference: {', '.join(operators)}", problem, runs)
        return Outcome("wrong", "another value", problem, runs)

    def smaller(self, case: Case) -> Iterator[Case]:
        net = case.net
        if case.threads > 1:
            yield replace(case, threads=1)
        if case.open_:
            yield replace(case, open_=False)
        if case.native:
            yield replace(case, native=False)
        for outputs in without_some(net.outputs):
            if outputs:
                yield replace(case, net=pruned(replace(net, outputs=outputs)))
        for k, node in enumerate(net.nodes):
            read = [n for n in node.input if n in net.values and n not in net.constants and n not in net.feeds]
            for name in node.output:
                if name in net.outputs and read:
                    outputs = tuple(dict.fromkeys([*(o for o in net.outputs if o != name), *read]))
                    yield replace(case, net=pruned(replace(net, outputs=outputs)))
            rest = (*net.nodes[:k], *net.nodes[k + 1 :])
            made = tuple(n for n in node.output if n in net.values and any(n in reads([other]) for other in rest))
            if not set(node.output) & set(net.outputs):
                yield replace(case, net=pruned(replace(net, nodes=rest, feeds=(*net.feeds, *made))))
                yield replace(case, net=pruned(replace(net, nodes=rest, constants=(*net.constants, *made))))
        for k, name in enumerate(net.constants):
            constants = (*net.constants[:k], *net.constants[k + 1 :])
            yield replace(case, net=replace(net, constants=constants, feeds=(*net.feeds, name)))

    def show(self, case: Case) -> str:
        return onnx.printer.to_text(case.net.model(case.open_)) + f"\n{case.threads} threads"

    def test(self, case: Case) -> str:
        net = case.net
        lines = [
            "import ml_dtypes",
            "import numpy as np",
            "from onnx import GraphProto, helper, numpy_helper",
            "import tensorlang as tl",
            "",
        ]
        lines += ["nodes = ["]
        for node in net.nodes:
            attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            if node.op_type == "Constant":
                value = net.values[node.output[0]]
                lines += [
                    f"    helper.make_node('Constant', [], {list(node.output)}, value=numpy_helper.from_array({written.array(value)})),"
                ]
                continue
            options = "".join(f", {k}={_written(v)}" for k, v in attrs.items()) + (f", domain={node.domain!r}" if node.domain else "")
            lines += [f"    helper.make_node({node.op_type!r}, {list(node.input)}, {list(node.output)}{options}),"]
        lines += ["]", "feeds = {"]
        lines += [f"    {n!r}: {written.array(net.values[n])}," for n in net.feeds]
        lines += ["}", "constants = {"]
        lines += [f"    {n!r}: {written.array(net.values[n])}," for n in net.constants]
        lines += ["}", "wanted = {"]
        lines += [f"    {n!r}: {written.array(net.values[n])}," for n in net.outputs]
        shape = "[f'{name}_{k}' for k in range(a.ndim)]" if case.open_ else "a.shape"
        lines += [
            "}",
            "",
            "def info(name, a):",
            f"    shape = {shape}",
            "    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), shape)",
            "",
            "infos = [[info(n, a) for n, a in named.items()] for named in (feeds, wanted)]",
            "initialisers = [numpy_helper.from_array(a, n) for n, a in constants.items()]",
            "graph = helper.make_graph(nodes, 'g', *infos, initialisers)",
            f"opsets = [helper.make_opsetid(*one) for one in {[(o.domain, o.version) for o in net.opsets()]}]",
            "model = helper.make_model(graph, opset_imports=opsets, ir_version=10)",
            f"found = tl.compile(model, threads={case.threads}).run(feeds)",
            "for name, a in wanted.items():",
            f"    np.testing.assert_allclose(found[name].astype(float), a.astype(float), rtol={tolerance(net)}, atol={tolerance(net)})",
        ]
        if not any("ml_dtypes." in line for line in lines):
            lines.remove("import ml_dtypes")
        return "\n".join(lines)


class Seldom(Models):
    """Graphs with the operators that few models have, alone or between others."""

    name = "seldom"
    share = 1.0
    opsets: tuple[int, ...] = (17, 18, 20, 21, 21, 22, 23, 24, 26, 26, 27, 28)

    def rules(self, random: Random, usual: bool) -> Sequence[Rule]:
        return SELDOM if usual else (*RULES, *OPERATORS, *SELDOM, *SELDOM)


def _native(case: Case) -> Mapping[str, Array]:
    """Return the results of the compiled model. Raises CompileError, and Overwritten."""
    net, side = case.net, SIDES[case.seed % 2]
    model = tl.compile(net.model(case.open_).SerializeToString(), threads=case.threads)
    feeds = {n: walled(net.values[n], side) for n in net.feeds}
    results = {n: walled(np.zeros_like(net.values[n]), side) for n in net.outputs}
    found: Mapping[str, Array] = model.prepared(feeds, results)()
    for name in net.feeds:
        if feeds[name].tobytes() != net.values[name].tobytes():
            raise Overwritten(name)
    return found


def _interpreted(case: Case) -> Mapping[str, Array]:
    """Return the results of the model, each kernel interpreted. Raises CompileError."""
    net = case.net
    return named_results(net.model(case.open_), {n: net.values[n] for n in net.feeds})


def _written(attribute: Any) -> str:
    """Return the value of an attribute as Python text."""
    if isinstance(attribute, onnx.TensorProto):
        return f"numpy_helper.from_array({written.array(onnx.numpy_helper.to_array(attribute))})"
    if isinstance(attribute, onnx.GraphProto):
        return f"GraphProto.FromString({attribute.SerializeToString()!r})"
    if isinstance(attribute, bytes):
        return repr(attribute.decode())
    return repr([v.decode() if isinstance(v, bytes) else v for v in attribute] if hasattr(attribute, "__len__") else attribute)


def _problem(net: Net, found: Mapping[str, Array], wanted: Mapping[str, Array]) -> str:
    """Return where the outputs of a net are not what is wanted, "" where nowhere."""
    for name in net.outputs:
        problem = difference(found[name], wanted[name], _slack(net, name))
        if problem:
            return f"{name}: {problem}"
    return ""


def _slack(net: Net, name: str) -> float:
    """Return by how much a value may differ, relative to the largest: bytes by one where roundings before may decide them."""
    if name not in net.rough:
        return 0.0
    a = net.values[name]
    return tolerance(net) if a.dtype.kind not in "iu" else 1.001 / max(1.0, float(np.abs(a.astype(np.float64)).max(initial=0.0)))


def tolerance(net: Net) -> float:
    """Return by how much rough values may differ, relative to the largest: some roundings of the narrowest type on the way."""
    types = {type_of(a) for node in net.nodes for n, a in net.values.items() if n in node.input or n in node.output}
    narrowest = max((float(ml_dtypes.finfo(net_type).eps) for net_type in _float_types(types)), default=0.0)
    return max(16 * narrowest, 1e-5)


def _float_types(types: set[str]) -> list[Any]:
    known = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64, "f8": ml_dtypes.float8_e4m3fn}
    return [known.get(t, ml_dtypes.float8_e5m2) for t in types if t in EXACT]


def difference(have: Array, want: Array, close: float) -> str:
    """Return where two arrays differ by more than `close` times the largest value, "" where nowhere."""
    if have.dtype != want.dtype or have.shape != want.shape:
        return f"{have.dtype}{have.shape}, not {want.dtype}{want.shape}"
    a, b = have.astype(np.float64), want.astype(np.float64)
    largest = max(1.0, float(np.nanmax(np.abs(np.where(np.isfinite(b), b, 0.0)), initial=0.0)))
    same = (a == b) | ((a != a) & (b != b)) | (np.abs(a - b) <= close * largest)
    if have.dtype.kind in "iu" and have.dtype.itemsize == 8:
        same = have == want
    wrong = np.argwhere(~same)
    if not len(wrong):
        return ""
    at = tuple(int(k) for k in wrong[0])
    return f"{list(at)} is {have[at]!r}, not {want[at]!r} ({len(wrong)} differ)"

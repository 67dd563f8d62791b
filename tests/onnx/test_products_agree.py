"""Who asks for sums of products gets one answer: what counts as work, is lowered in precision, tiled, rewritten or told is the same set.

Asked about are the programs of ONNX's own cases for operators that may hold products, of operators of the library, and of a few models
after they were fused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import prod

from onnx import ModelProto
from onnx_evaluate import suite
from operators_at_sizes import EXAMPLES, Example, arguments, f32, sizes_of

from codegen.dtypes import bf16
from polyhedral import affine
from polyhedral.expr import TRUE
from stdlib.onnx import Importer
from tensorlang.check.instantiate import instantiate
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.passes.precision.explain import product_precisions
from tensorlang.graph.passes.precision.narrow_storage import with_narrow
from tensorlang.graph.passes.precision.products import products
from tensorlang.graph.passes.precision.round_to_tf32 import with_rounded
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.precisions import chosen_on
from tensorlang.graph.programs import is_contraction
from tensorlang.runtime.work import narrow_products, work_of
from tensorlang.schedule.shape import is_product
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import Contraction, contraction, contractions, sums_products
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Program, Reduce
from tensorlang.tensor.winograd import convolution

OPERATORS = (
    "attention", "averagepool", "conv", "convinteger", "convtranspose", "deform", "dft", "einsum", "gemm", "gridsample", "gru",
    "layer_normalization", "lstm", "matmul", "matmulinteger", "qlinearconv", "qlinearmatmul", "reduce_sum_square", "resize", "rnn",
    "simple_rnn", "softmax", "reduce_l2", "lrn", "rms_normalization",
)  # fmt: skip


def of_the_suite() -> Iterator[ModelProto]:
    """Yield the cases of operators that hold products."""
    found = (case.model for name, case in suite().items() if name.removeprefix("test_").startswith(OPERATORS))
    yield from (model for model in found if model is not None)


def of_a_model(model: ModelProto) -> Iterator[Program]:
    """Yield the programs of a model, as it is read and as it is fused."""
    try:
        graph = Importer().load(model)
    except CompileError:  # a shape that data decides
        return
    for each in (graph, optimise(graph)):
        yield from (node.program for node in each.nodes if isinstance(node, Kernel))


CONVOLUTIONS = tuple(
    replace(
        EXAMPLES["conv"],
        inputs=lambda n, group=group: (f32(1, 4, n + 2, n + 2), f32(6, 4 // group, 3, 3), f32(6)),
        attrs={"group": group, "stride": (stride, stride), "dilation": (1, 1), "lo": (1, 1), "hi": (1, 1)},
    )
    for group in (1, 2)
    for stride in (1, 2)
)


def of_an_operator(example: Example, n: int) -> Program:
    types, arrays = arguments(example.inputs(n))
    program = instantiate(example.module, example.operator, types, dict(example.attrs), dict(example.sizes(n)))
    return walk.substitute_sizes(program, {k: affine.to_expr(v) for k, v in sizes_of(program, arrays, example.sizes(n)).items()})


@cache
def programs() -> tuple[Program, ...]:
    """Return all of them, each once, with and without reductions of their own tensors."""
    found = [p for model in of_the_suite() for p in of_a_model(model)] + [
        of_an_operator(e, n) for e in (*EXAMPLES.values(), *CONVOLUTIONS) for n in (2, 8)
    ]
    return tuple(dict.fromkeys(each for p in found for each in (p, lift(p))))


@cache
def holding() -> tuple[tuple[Program, tuple[tuple[Definition, Contraction], ...]], ...]:
    """Return the programs with contractions, and these."""
    return tuple((p, tuple(contractions(p))) for p in programs() if any(True for _ in contractions(p)))


def sums_of(program: Program) -> list[Reduce]:
    return [r for d in program.definitions for p in d.pieces for r in walk.reduces(p.value)]


def test_there_is_enough_to_ask_about() -> None:
    assert len(programs()) > 300 and len(holding()) > 100


def test_what_is_recognised_sums_products_and_products_make_contractions() -> None:
    for program in programs():
        for reduce in sums_of(program):
            found = contraction(reduce)
            if isinstance(found, Contraction) and found.factors[0].value != found.factors[1].value:
                assert sums_products(reduce)
        assert is_contraction(program) == any(map(sums_products, sums_of(program)))


def test_a_policy_sees_products_where_there_is_one_contraction_and_nowhere_else() -> None:
    for program in programs():
        found = {d.tensors[0].name for d, c in contractions(program)}
        assert {d.tensors[0].name for d in program.definitions if is_product(d)} <= found


def test_work_counts_a_product_and_a_sum_for_every_point_of_every_contraction_that_no_condition_leaves_out() -> None:
    for program, found in holding():
        least = 0
        for definition, c in dict.fromkeys(found):
            points = prod(walk.shape_of(definition.tensors[0], {}))
            sizes = {n for b in c.reduce.binders for n in affine.names(affine.sub(b.hi, b.lo))}
            if len(definition.pieces) == 1 and not sizes and c.reduce.where == TRUE:
                least = max(least, 2 * points * prod(max(0, b.extent or 0) for b in c.reduce.binders))
        assert work_of(program).flops >= least


def test_what_may_be_lowered_are_the_contractions_of_f32_and_those_that_are_rounded_are_told() -> None:
    tf32 = chosen_on("tf32", None)
    for program, found in holding():
        lowered = [p.contraction.reduce for p in products(program) if not p.refusal]
        assert {p.contraction.reduce for p in products(program)} <= {c.reduce for _, c in found}
        rounded = with_rounded(program)
        after = [c for _, c in contractions(rounded) if {f.rounding for f in c.factors} == {"round_tf32"}]
        assert len({c.reduce for c in after}) == len(set(lowered))
        assert len([line for line in product_precisions(rounded, tf32) if "tf32" in line]) == len(set(lowered))


def test_a_product_is_one_whatever_is_multiplied() -> None:
    for program, found in holding():
        taken = [p for p in products(program) if not p.refusal]
        names = frozenset(name for p in taken for name in p.tensors)
        seen = [is_product(d) for d in program.definitions]
        assert [is_product(d) for d in with_rounded(program).definitions] == seen
        if names <= {p.name for p in program.params} and names:
            narrow = with_narrow(program, names)
            assert [is_product(d) for d in narrow.definitions] == seen
            assert [c.tensors for _, c in contractions(narrow)] == [c.tensors for _, c in found]
            assert narrow_products(narrow) == (bf16, bf16)


def test_what_is_computed_by_filtering_is_a_contraction_that_may_be_lowered_instead() -> None:
    met = 0
    for program, found in holding():
        convolved = convolution(program)
        if convolved is not None:
            met += 1
            assert convolved.reduce in {c.reduce for _, c in found}
            assert convolved.reduce in {p.contraction.reduce for p in products(program)}
    assert met >= 4

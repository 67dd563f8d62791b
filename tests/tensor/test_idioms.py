"""What rewrites say of the programs that they make: it is checked, printed and read back, and goes where the definitions go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codegen.dtypes import f32
from stdlib.library import library
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, InternalError, Source
from tensorlang.graph.compose import composed
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.parser import parse as parse_graph
from tensorlang.graph.passes.precision.split_bf16 import split_bf16
from tensorlang.graph.printer import show as show_graph
from tensorlang.graph.verify import verify as verify_graph
from tensorlang.policy.cpu.winograd import transformed
from tensorlang.schedule.pack import pack
from tensorlang.syntax.parse import parse
from tensorlang.tensor import idioms
from tensorlang.tensor.absorb import absorb
from tensorlang.tensor.dead_code import eliminate_dead
from tensorlang.tensor.idioms import members, online_of
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, MinimalFiltering, OnlineAttention, Program
from tensorlang.tensor.online import online
from tensorlang.tensor.renaming import rename_program
from tensorlang.tensor.simplify import inline
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import caller_shape, definers, program_names, tensor_table
from tensorlang.tensor.winograd import by_filtering, convolution

CONV = """
op conv(x: f32[N, C, H, W], w: f32[F, C, 3, 3]) -> (y: f32[N, F, H, W]) {
    y[n, f, p, q] = max(0, sum(c, r in 0..3, s in 0..3) x[n, c, p + r - 1, q + s - 1 | 0] * w[f, c, r, s])
}
"""
ATTENTION = """
op attention(q: f32[H, L, D], k: f32[H, S, D], v: f32[H, S, E]) -> (y: f32[H, L, E]) {
    s[h, i, j] = sum(c) q[h, i, c] * k[h, j, c]
    p = softmax(s, axis = 2)
    y[h, i, e] = sum(j) p[h, i, j] * v[h, j, e]
}
"""


def program_of(text: str, *shapes: tuple[int, ...]) -> Program:
    module = load_module(parse(Source("idioms.tl", text)), [library()])
    [name] = module.declared
    return instantiate(module, name, [ArgType(f32, shape) for shape in shapes], {}, {})


def filtering() -> Program:
    found = convolution(program_of(CONV, (1, 4, 8, 8), (6, 4, 3, 3)))
    assert found is not None
    return by_filtering(found, (4, 4))


def attention() -> Program:
    made = online(program_of(ATTENTION, (2, 32, 8), (2, 48, 8), (2, 48, 4)), lambda sizes: (16, 16))
    assert made is not None
    return made


def parts() -> Program:
    program = program_of(
        "op product(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * b[k, j] }", (16, 8), (8, 16)
    )
    values = {name: Value(name, f32, shape) for name, shape in (("a", (16, 8)), ("b", (8, 16)), ("y", (16, 16)))}
    graph = Graph("g", ("a", "b"), ("y",), values, {}, (Kernel("k", program, ("a", "b"), ("y",)),))
    [*_, made] = split_bf16(graph, 3).nodes
    assert isinstance(made, Kernel)
    return made.program


MADE = pytest.mark.parametrize("make", [filtering, attention, parts])


@MADE
def test_a_rewrite_names_every_definition_that_it_makes_in_the_order_of_data_flow(make: Any) -> None:
    program = make()
    [idiom] = verify(program).idioms
    assert members(idiom) == tuple(d.tensors[0].name for d in program.definitions)
    assert idioms.is_all(idiom, program)


def test_the_kinds_of_axes_of_minimal_filtering_are_told_apart() -> None:
    program = filtering()
    [idiom] = program.idioms
    assert isinstance(idiom, MinimalFiltering) and (idiom.spatial, idiom.tile_sizes, idiom.column) == (("p", "q"), (4, 4), "f")
    extents = {a: n.value for d in program.definitions for a, n in zip(d.axes, d.tensors[0].shape, strict=True)}  # type: ignore[union-attr]
    assert [extents[a] for a in idiom.tile_axes] == [2, 2]
    assert {extents[a] for a in idiom.point_axes} == {4, 6}


@MADE
def test_a_program_without_its_idiom_is_another_one(make: Any) -> None:
    program = make()
    assert replace(program, idioms=()) != program and repr(replace(program, idioms=())) != repr(program)


@MADE
def test_an_idiom_gets_the_new_names_of_a_program(make: Any) -> None:
    program = make()
    renamed = verify(rename_program(program, {name: f"{name}_" for name in sorted(program_names(program))}))
    [before], [after] = program.idioms, renamed.idioms
    assert members(after) == tuple(f"{name}_" for name in members(before))


@MADE
def test_reductions_are_lifted_without_a_word_about_what_stays(make: Any) -> None:
    assert lift(make()).idioms == make().idioms


@pytest.mark.parametrize("make", [filtering, attention])
def test_an_idiom_goes_with_the_definition_that_it_names(make: Any) -> None:
    program = make()
    name = next(n for n in members(program.idioms[0]) if (n not in program.results and "x" in n) or n == "s")
    definition = definers(program)[name]
    whole = replace(program, results=(name,))
    assert verify(replace(eliminate_dead(whole), mode="reduce")).idioms == ()
    assert definition in eliminate_dead(whole).definitions


def test_an_idiom_does_not_survive_the_inlining_of_a_definition() -> None:
    program = filtering()
    assert verify(inline(program, program.idioms[0].before[0])).idioms == ()  # type: ignore[union-attr]


def test_an_idiom_does_not_survive_when_a_reader_absorbs_a_definition() -> None:
    program = attention()
    assert online_of(program) is not None and verify(absorb(program)).idioms == () and online_of(absorb(program)) is None


def test_an_idiom_does_not_survive_a_copy_between_its_definitions_and_a_parameter() -> None:
    made = pack(filtering(), "x")
    assert not isinstance(made, str) and verify(made[0]).idioms == ()


def test_kernels_that_are_fused_keep_their_idioms_but_are_not_all_of_one() -> None:
    program = filtering()
    [result] = program.results
    shape = caller_shape(tensor_table(program)[result], {})
    softmax = program_of("op rows(a: f32[N.., K]) -> (b: f32[N.., K]) {\n    b[n.., k] = a[n.., k] / sum(j) a[n.., j]\n}", shape)
    first = in_a_graph(program)
    rows = Kernel("rows", softmax, program.results, ("z",))
    graph = replace(first, outputs=("z",), values={**first.values, "z": Value("z", f32, shape)}, nodes=(*first.nodes, rows))
    [made] = [n for n in first.nodes if isinstance(n, Kernel)]
    whole, _ = composed(verify_graph(graph), (made, rows))
    [idiom] = verify(whole).idioms
    assert not idioms.is_all(idiom, whole) and transformed(whole) is None and transformed(program) is not None
    assert members(idiom)[-1] in {d.tensors[0].name for d in whole.definitions} - {*whole.results}


def _wrong() -> list[tuple[str, Program, str]]:
    made, passed, split = filtering(), attention(), parts()
    [of_filtering], [of_attention] = made.idioms, passed.idioms
    assert isinstance(of_filtering, MinimalFiltering) and isinstance(of_attention, OnlineAttention)

    def with_idiom(program: Program, **changes: Any) -> Program:
        return replace(program, idioms=(replace(program.idioms[0], **changes),))

    def without_piece(d: Definition) -> Definition:
        return replace(d, pieces=(*d.pieces, *d.pieces)) if d.tensors[0].name == of_attention.tops else d

    return [
        ("there is no definition of nothing", with_idiom(made, product="nothing"), "missing"),
        ("one definition plays several parts", with_idiom(passed, tops=of_attention.scores), "twice"),
        ("is no contraction", with_idiom(made, tiles=of_filtering.before[0], before=(of_filtering.tiles,)), "swapped"),
        ("has not all of the axes", with_idiom(made, spatial=("p", "k")), "spatial"),
        ("has not all of the axes", with_idiom(made, tile_axes=("p", "q")), "tiles"),
        ("one side and one axis", with_idiom(made, tile_sizes=(4,)), "sides"),
        ("does not read", with_idiom(passed, totals=of_attention.sums, sums=of_attention.totals, tops=of_attention.weights), "attention"),
        ("sums no products", with_idiom(split, operands=("b_parts", "a_parts")), "operands"),
        ("is not bf16", replace(split, params=tuple(replace(p, dtype=f32) for p in split.params)), "types"),
        ("is defined in pieces", replace(passed, definitions=tuple(map(without_piece, passed.definitions))), "pieces"),
    ]


@pytest.mark.parametrize(("why", "program"), [(why, p) for why, p, _ in _wrong()], ids=[name for _, _, name in _wrong()])
def test_an_idiom_that_does_not_fit_its_definitions_is_found(why: str, program: Program) -> None:
    assert any(idioms.refusal(i, program) for i in program.idioms)
    with pytest.raises(InternalError):
        verify(program)


def in_a_graph(program: Program) -> Graph:
    tensors = (*program.params, *(tensor_table(program)[r] for r in program.results))
    values = {t.name: Value(t.name, t.dtype, caller_shape(t, {})) for t in tensors}
    inputs = tuple(p.name for p in program.params)
    return Graph("g", inputs, program.results, values, {}, (Kernel("k", program, inputs, program.results),))


@MADE
def test_a_graph_with_an_idiom_reads_back(make: Any) -> None:
    graph = verify_graph(in_a_graph(make()))
    [read] = parse_graph(show_graph(graph), {}).nodes
    [written] = graph.nodes
    assert isinstance(read, Kernel) and isinstance(written, Kernel) and read.program.idioms == written.program.idioms != ()


def test_a_graph_whose_kernel_has_a_wrong_idiom_is_no_graph() -> None:
    program = filtering()
    graph = in_a_graph(replace(program, idioms=(replace(program.idioms[0], product="nothing"),)))
    with pytest.raises(InternalError, match="is no MinimalFiltering: there is no definition of nothing"):
        verify_graph(graph)


@pytest.mark.parametrize(
    "line",
    [
        '# idiom OnlineAttention {"product": "x"}',
        "# idiom Unheard {}",
        "# idiom MinimalFiltering not json",
        '# idiom OnlineAttention {"product": ["x"], "scores": "s", "tops": "b", "largest": "m", "weights": "p", '
        '"totals": "l", "sums": "o", "result": "y"}',
    ],
)
def test_text_that_says_no_idiom_is_no_graph(line: str) -> None:
    program = filtering()
    text = show_graph(in_a_graph(program)).replace(idioms.show(program.idioms[0]), line)
    with pytest.raises(CompileError) as caught:
        parse_graph(text, {})
    assert caught.value.diagnostics[0].code == "O0002"

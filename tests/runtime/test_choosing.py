"""Which schedule a call runs under, as the product tells it: the operator's own, a role's, or a derived one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "graph"))

from small_graphs import binary, graph, kernel

import tensorlang as tl
from codegen.dtypes import f32
from codegen.llvm.target import host
from codegen.store import Cache
from stdlib.library import roles
from tensorlang import planning
from tensorlang.backends.cpu import driver
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.runtime.library import installed_roles, with_roles
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.operator import Operators
from tensorlang.syntax.parse import parse

LINEAR = "op linear[T: float](x: T[M, K], w: T[N, K], attr by: float = 1) -> (y: T[M, N]) { y[i, j] = by * sum(k) x[i, k] * w[j, k] }\n"


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operators(text: str, *offered: Module) -> Operators:
    return Operators(Source("mine.tl", text), toolchain(threads=1), roles=lambda: offered)


def module(text: str) -> Module:
    return load_module(parse(Source("theirs.tl", text)))


def chosen(report: str) -> list[str]:
    return [line for line in report.splitlines() if line.startswith(("schedule   ", "           not "))]


def test_installed_packages_offer_schedules_of_roles() -> None:
    assert installed_roles() == (roles(),)
    offered = {s.role.name for s in roles().schedules if s.role is not None}
    both = {"contraction", "convolution", "pointwise", "reduction", "row_reduction", "transformed"}
    products = {"warp_product", "warpgroup_product", "warp_convolution", "warp_unfolded", "warpgroup_unfolded"}
    assert offered == {*both, *products, "unfolded", "windowed", "long_row_reduction"}


def test_schedules_of_every_role_of_the_library_leave_out_no_case() -> None:
    last = {s.role.name: s for s in roles().schedules if s.role is not None}
    assert {name: s.guards for name, s in last.items() if s.guards} == {}


def test_a_role_of_the_library_serves_an_operator_without_a_schedule() -> None:
    x, w = random(70, 40), random(48, 40, seed=1)
    ops = operators(LINEAR, roles())
    np.testing.assert_allclose(ops.linear(x, w), x @ w.T, rtol=1e-4, atol=1e-4)
    first, *rest = chosen(ops.linear.explained(ops.linear.call(x, w), roles=True).text)
    assert first.startswith("schedule   schedule role contraction for cpu(b.pack)") and "roles.tl" in first
    assert any("not schedule role contraction for cpu(a.padded" in line and "does not hold" in line for line in rest)


def test_without_roles_one_is_derived() -> None:
    assert chosen(operators(LINEAR).linear.explain(random(9, 4), random(8, 4))) == ["schedule   derived"]


def test_the_files_own_schedule_comes_first_and_guards_decide() -> None:
    ops = operators(LINEAR + "schedule linear for cpu(M >= 8, by == 1) { vectorize y.j }\n", roles())
    w = random(16, 4, seed=1)
    assert chosen(ops.linear.explain(random(9, 4), w)) == ["schedule   schedule linear for cpu(M >= 8, by == 1) (mine.tl:2)"]
    assert "mine.tl:2): `M >= 8` does not hold (M = 5)" in "\n".join(chosen(ops.linear.explain(random(5, 4), w)))
    assert "`by == 1` does not hold (by = 2.0)" in "\n".join(chosen(ops.linear.explain(random(9, 4), w, by=2.0)))


def test_a_role_that_is_refused_is_told_and_the_next_serves() -> None:
    head = "schedule role pointwise(y, p..; i.., j.., k.., x.., l.., m.., n..) for cpu"
    ops = operators(
        "op twice(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] * 2 }",
        module(f"{head} {{\n rfactor j by 4\n}}\n{head} {{\n split j by 8 -> jo, jv\n vectorize jv\n}}\n"),
    )
    x = random(100)
    np.testing.assert_array_equal(ops.twice(x), x * 2)
    taken, refused = chosen(ops.twice.explain(x))
    assert taken == "schedule   schedule role pointwise for cpu (theirs.tl:4)"
    assert refused.startswith("           not schedule role pointwise for cpu (theirs.tl:1): refused: ")


def test_another_schedule_of_the_same_operator_is_another_kernel(tmp_path: Path) -> None:
    path, x, w = tmp_path / "a.tl", random(9, 4), random(16, 4, seed=1)
    for body in ("vectorize y.j", "reverse y.i", "tune(3)", "tune(5)"):
        tactic = "tactic tune(n) { split y.i by n -> io, ii  }\n"
        path.write_text(LINEAR + f"schedule linear for cpu {{ {body} }}\n" + tactic)
        report = tl.load(path, threads=1).linear.explain(x, w)
        assert {"vectorize y.j": "vectorize y.j", "reverse y.i": "reverse y.i"}.get(body, f"split y.i by {body[5:6]}") in report


def test_a_warm_start_schedules_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    x, w = random(9, 4), random(16, 4, seed=1)
    assert Cache().directory == tmp_path
    cold = operators(LINEAR, roles()).linear(x, w)

    def never(*args: object, **named: object) -> Any:
        raise AssertionError("scheduled again")

    monkeypatch.setattr(driver, "derive", never)
    for name in ("search", "proven"):
        monkeypatch.setattr(planning, name, never)
    np.testing.assert_array_equal(operators(LINEAR, roles()).linear(x, w), cold)


def test_of_what_a_package_offers_only_roles_and_tactics_are_seen() -> None:
    mine = module(LINEAR)
    seen = with_roles(
        mine, (module(LINEAR.replace("linear", "theirs") + "schedule theirs for cpu { vectorize y.j }\ntactic t(a) { reverse a }"),)
    )
    assert seen.operators == mine.operators and seen.schedules == mine.schedules
    assert set(seen.tactics) - set(mine.tactics) == {"t"}


def test_a_role_serves_the_kernels_of_a_model_and_explain_says_so() -> None:
    added = graph({"a": (100,), "b": (100,)}, [kernel(binary("+", 100), "a b", "y")], ["y"])
    model = CompiledModel(lambda shapes: added, toolchain(threads=1, roles=lambda: (roles(),)))
    assert "schedule role pointwise for cpu(rank(k) == 0 or rank(l) >= 1) (stdlib/schedules/roles.tl" in model.explain()
    assert "derived" in CompiledModel(lambda shapes: added, toolchain(threads=1, roles=tuple)).explain()


def test_other_roles_are_other_kernels_of_a_model() -> None:
    head = "schedule role pointwise(y, p..; i.., j.., k.., x.., l.., m.., n..) for cpu"
    added = graph({"a": (100,), "b": (100,)}, [kernel(binary("+", 100), "a b", "y")], ["y"])
    for body in ("reverse j", "split j by 5 -> jo, ji"):
        offered = (module(f"{head} {{\n {body}\n}}\n"),)
        model = CompiledModel(lambda shapes: added, toolchain(threads=1, roles=lambda offered=offered: offered))
        [artifact] = model._known().executable.artifacts
        assert body.split()[0] in artifact.schedule


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_what_follows_a_sum_in_vectors_is_computed_once(rows: int) -> None:
    op = "op f(a: f32[M, K], b: f32[N, K], c: f32[N]) -> (y: f32[M, N]) { y[i, j] = max(3 * c[j] - sum(k) a[i, k] * b[j, k], 0) }\n"
    ops, a, b, c = operators(op, roles()), random(rows, 100), random(37, 100, seed=1), random(37, seed=2)
    assert "vectorize y.kv" in ops.f.explain(a, b, c)
    np.testing.assert_allclose(ops.f(a, b, c), np.maximum(3 * c - a @ b.T, 0), rtol=1e-4, atol=1e-4)


def test_rows_that_are_gathered_are_copied_in_vectors() -> None:
    ops = operators("op gather(x: f32[V, D], at: i64[N]) -> (y: f32[N, D]) { y[n, d] = x[at[n], d] }\n", roles())
    lanes = host().lanes(f32)
    x, at = random(50, 2 * lanes + 5), np.array([49, 0, 7, 7, 12, 3, 1, 1, 30], np.int64)
    np.testing.assert_array_equal(ops.gather(x, at), x[at])
    loops = ops.gather.explain(x, at)
    assert f"y_jv in 0 .. {lanes} vector {lanes}" in loops and "y_xi" not in loops


@pytest.mark.parametrize("width", [64, 100, 768])
def test_wide_rows_that_are_gathered_are_copied_in_several_vectors_at_a_time(width: int) -> None:
    ops = operators("op gather(x: f32[V, D], at: i64[N]) -> (y: f32[N, D]) { y[n, d] = 2 * x[at[n], d] }\n", roles())
    x, at = random(50, width), np.array([49, 0, 7, 7, 12, 3, 1, 1, 30], np.int64)
    np.testing.assert_array_equal(ops.gather(x, at), 2 * x[at])
    assert "unroll y.ju" in ops.gather.explain(x, at)

"""`use`: what other files declare, in their own names and under the names that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tensorlang as tl
from tensorlang.check.definition import check_module
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Diagnostic, Source
from tensorlang.syntax.parse import load, parse

Files = Callable[..., Path]
X = np.linspace(-2, 3, 35, dtype=np.float32).reshape(5, 7)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Write files by name below a folder of their own, which is the current one, and return the first's path."""
    monkeypatch.chdir(tmp_path)

    def write(**texts: str) -> Path:
        for name, text in texts.items():
            path = Path(f"{name.replace('__', '/')}.tl")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return Path(f"{next(iter(texts))}.tl")

    return write


def refused(path: Path) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompileError) as problem:
        load_module(parse(load(path)))
    return problem.value.diagnostics


def marked(diagnostic: Diagnostic) -> list[str]:
    """Return each labelled place as `file:line text`."""
    return [
        f"{s.source.name}:{s.source.location(s.start)[0]} {s.source.text[s.start : s.end]}" for s in (x.span for x in diagnostic.labels)
    ]


NORM = """\
op rms[T: float](x: T[D.., N], attr eps: float = 1e-5) -> (y: T[D.., N]) {
    y[d.., j] = x[d.., j] / root(sum(k) square(x[d.., k]) / T(N) + eps)
}
op scaled(x: f32[D..], attr by: float = 2) -> (y: f32[D..]) {
    y[d..] = x[d..] * by
}
op mapped(x: f32[D..], attr f: fn = square) -> (y: f32[D..]) {
    y[d..] = f(x[d..])
}
fn root(x) = sqrt(x)
fn square(x) = x * x
fn _secret(x) = x
reducer log_sum (m1, s1) (m2, s2) from (-inf, 0) =
    let m = max(m1, m2) in (m, s1 * shrink(m1, m) + s2 * shrink(m2, m))
    lift v = (v, 1)
    yield (m, s) = m + log(s)
"""
RMS = X / np.sqrt((X * X).mean(1, keepdims=True) + 1e-5)
CALL = "op f(x: f32[M, N]) -> (y: f32[M, N]) {{\n    {}\n}}\n"


# ---------------------------------------------------------------- what is brought


@pytest.mark.parametrize(
    ("use", "call"),
    [
        ('use "norm.tl"', "y = rms(x)"),
        ('use "norm.tl" (rms)', "y = rms(x)"),
        ('use "norm.tl" (scaled, rms as normal)', "y = normal(x)"),
        ('use "norm.tl" as n', "y = n.rms(x)"),
        ('use "./norm.tl"', "y = rms(x, eps = 1e-5)"),
        ('use "norm.tl"\nuse "norm.tl" (rms)\nuse "norm.tl" as n', "y = n.rms(x)"),
    ],
)
def test_a_file_is_used_as_a_whole_by_names_or_under_a_name(files: Files, use: str, call: str) -> None:
    main = files(main=f"{use}\n{CALL.format(call)}", norm=NORM)
    np.testing.assert_allclose(tl.load(main).f(X), RMS, rtol=1e-5)


def test_paths_are_relative_to_the_file_they_stand_in_and_may_lead_outside(files: Files) -> None:
    main = files(
        sub__main=f'use "../lib/a.tl"\n{CALL.format("y = a(x)")}',
        lib__a='use "norm.tl"\nop a(x: f32[D..]) -> (y: f32[D..]) {\n    y = rms(x)\n}\n',
    )
    files(lib__norm=NORM)
    np.testing.assert_allclose(tl.load("sub/main.tl").f(X), RMS, rtol=1e-5)
    assert main == Path("sub__main.tl")


def test_functions_and_reducers_are_used_like_operators(files: Files) -> None:
    text = 'use "norm.tl" as n\nop f(x: f32[M, N]) -> (y: f32[M]) {\n    y[i] = n.square(n.log_sum(j) x[i, j])\n}\n'
    found = tl.load(files(main=text, norm=NORM)).f(X)
    np.testing.assert_allclose(found, np.log(np.exp(X).sum(1)) ** 2, rtol=1e-4)


def test_a_function_is_passed_by_the_name_it_has_where_it_is_passed(files: Files) -> None:
    text = 'use "norm.tl" as n\nfn cube(x) = x * x * x\n' + "".join(
        f"op {name}(x: f32[D..]) -> (y: f32[D..]) {{\n    y = n.mapped(x{argument})\n}}\n"
        for name, argument in (("default", ""), ("own", ", f = cube"), ("theirs", ", f = n.root"), ("builtin", ", f = exp"))
    )
    ops, x = tl.load(files(main=text, norm=NORM)), np.abs(X)
    for name, expected in (("default", x * x), ("own", x**3), ("theirs", np.sqrt(x)), ("builtin", np.exp(x))):
        np.testing.assert_allclose(ops[name](x), expected, rtol=1e-5)


def test_what_a_file_declares_speaks_in_the_names_of_that_file(files: Files) -> None:
    hijack = "fn square(x) = x + 100\nfn root(x) = 7\nfn sqrt(x) = x - 1000\nfn shrink(a, m) = 77\nfn exp(x) = 0\n"
    own = "op f(x: f32[M, N]) -> (y: f32[M, N], z: f32[M]) {\n    y = rms(x)\n    z[i] = log_sum(j) x[i, j]\n}\n"
    text = f'use "norm.tl" (rms, log_sum)\n{hijack}{own}'
    y, z = tl.load(files(main=text, norm=NORM)).f(X)
    np.testing.assert_allclose(y, RMS, rtol=1e-5)
    np.testing.assert_allclose(z, np.log(np.exp(X).sum(1)), rtol=1e-5)


def test_a_function_of_ones_own_leaves_what_every_file_knows_as_it_is() -> None:
    ops = tl.parse(
        "fn sigmoid(x) = 7\nfn shrink(a, m) = 5\n"
        "op f(x: f32[N]) -> (y: f32[N], z: f32) {\n    y[i] = silu(x[i])\n    z = logsumexp(i) x[i]\n}\n"
    )
    y, z = ops.f(X[0])
    np.testing.assert_allclose(y, X[0] / (1 + np.exp(-X[0])), rtol=1e-5)
    np.testing.assert_allclose(z, np.log(np.exp(X[0]).sum()), rtol=1e-5)


def test_what_a_used_file_uses_stays_with_it(files: Files) -> None:
    main = files(main=f'use "a.tl"\n{CALL.format("y = rms(x)")}', a='use "norm.tl"\n', norm=NORM)
    (problem,) = refused(main)
    assert (problem.code, marked(problem)) == ("T0101", ["main.tl:3 rms"])


def test_the_modes_of_used_operators_count(files: Files) -> None:
    main = files(
        main=f'use "a.tl" as a\n{CALL.format("y = a.g(x)")}',
        a='use "b.tl"\nop g(x: f32[D..]) -> (y: f32[D..]) {\n    y = h(x)\n}\n',
        b="strict op h(x: f32[D..]) -> (y: f32[D..]) {\n    y[d..] = x[d..]\n}\n",
    )
    assert tl.load(main).f.program(X).mode == "strict"


def test_only_what_a_file_declares_or_schedules_is_called_from_python(files: Files) -> None:
    own = "fn g(x) = x\nop f(x: f32[D..]) -> (y: f32[D..]) {\n    y = rms(x)\n}\n"
    text = f'use "norm.tl" (rms, scaled)\n{own}schedule scaled for cpu {{\n    split d.0 by 4 -> do, di\n}}\n'
    ops = tl.load(files(main=text, norm=NORM))
    assert list(ops) == ["f", "scaled"]
    np.testing.assert_array_equal(ops.scaled(X[0], by=3.0), X[0] * 3)
    assert "split y.d.0 by 4" in ops.scaled.explain(X[0]) or "split d.0 by 4" in ops.scaled.explain(X[0])


# ---------------------------------------------------------------- schedules

PRODUCT = "op product(a: f32[M, K], b: f32[K, N]) -> (y: f32[M, N]) {\n    y[i, j] = sum(k) a[i, k] * b[k, j]\n}\n"
TACTICS = """\
tactic tiles(i, j, n) {
    rows(i, n)
    split j by n -> jo, ji
    order io, jo, k, ii, ji
}
tactic rows(i, n) {
    split i by n -> io, ii
}
"""


@pytest.mark.parametrize(
    ("use", "call"),
    [
        ('use "tactics.tl"', "tiles"),
        ('use "tactics.tl" (tiles)', "tiles"),
        ('use "tactics.tl" as t', "t.tiles"),
        ('use "tactics.tl" (tiles as by)', "by"),
    ],
)
def test_tactics_are_used_with_those_that_they_call(files: Files, use: str, call: str) -> None:
    own = "tactic rows(i, n) {\n    split i by 2 -> never, mind\n}\n" if "(" in use or " as " in use else ""
    main = files(main=f"{use}\n{own}{PRODUCT}schedule product for cpu {{\n    {call}(i, j, 4)\n}}\n", tactics=TACTICS)
    ops, b = tl.load(main), X.T.copy()
    np.testing.assert_allclose(ops.product(X, b), X @ b, rtol=1e-5)
    assert "split i by 4 -> io, ii" in ops.product.explain(X, b)


def test_the_schedules_of_roles_of_a_file_that_is_used_as_a_whole_serve(files: Files) -> None:
    role = "schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu {\n    by(i)\n}\n"
    role += "tactic by(i) {\n    split i by 5 -> io, ii\n}\n"
    for use, served in (('use "mine.tl"', True), ('use "mine.tl" as r', True), ('use "mine.tl" (by)', False)):
        ops = tl.load(files(main=f"{use}\n{PRODUCT}", mine=role))
        assert ("(mine.tl:1" in ops.product.explain(X, X.T.copy())) == served
        np.testing.assert_allclose(ops.product(X, X.T.copy()), X @ X.T, rtol=1e-5)


INSTRUCTIONS = """\
instruction multiply_add(a: f32, b: f32[8], c: f32[8]) -> (d: f32[8]) for fma llvm "llvm.fma.v8f32" {
    d[l] = plus(c[l], a * b[l])
}
fn plus(a, b) = a + b
"""


@pytest.mark.parametrize(
    ("use", "name"),
    [('use "fma.tl"', "multiply_add"), ('use "fma.tl" as f', "f.multiply_add"), ('use "fma.tl" (multiply_add as ma)', "ma")],
)
def test_instructions_are_used(files: Files, use: str, name: str) -> None:
    schedule = f"schedule product for cpu {{\n    split j by 8 -> jo, jv\n    order i, jo, k, jv\n    tensorize jv with {name}\n}}\n"
    own = "" if use == 'use "fma.tl"' else "fn plus(a, b) = 0\n"
    ops = tl.load(files(main=f"{use}\n{own}{PRODUCT}{schedule}", fma=INSTRUCTIONS), threads=1)
    b = np.ones((7, 16), np.float32)
    np.testing.assert_allclose(ops.product(X, b), X @ b, rtol=1e-5)
    texts: dict[str, str] = {}
    ops.product.stages(X, b, dump=texts.__setitem__)
    assert "@llvm.fma.v8f32(" in texts["llvm"]


def test_a_tactic_brings_the_instruction_that_it_needs(files: Files) -> None:
    tactic = 'use "fma.tl"\ntactic lanes() {\n    split j by 8 -> jo, jv\n    order i, jo, k, jv\n    tensorize jv with multiply_add\n}\n'
    main = files(main=f'use "lanes.tl" (lanes)\n{PRODUCT}schedule product for cpu {{\n    lanes()\n}}\n', lanes=tactic, fma=INSTRUCTIONS)
    b = np.ones((7, 16), np.float32)
    np.testing.assert_allclose(tl.load(main, threads=1).product(X, b), X @ b, rtol=1e-5)


# ---------------------------------------------------------------- what changes


@pytest.mark.parametrize("old", ["x[d..] * by", "square(x) = x * x"])
def test_a_used_file_that_changed_is_compiled_again(files: Files, old: str) -> None:
    main = files(main=f'use "norm.tl"\n{CALL.format("t = scaled(x)" + chr(10) + "    y = mapped(t)")}', norm=NORM)
    np.testing.assert_allclose(tl.load(main).f(X), (X * 2) ** 2, rtol=1e-5)
    files(norm=NORM.replace(old, {"x[d..] * by": "x[d..] + by", "square(x) = x * x": "square(x) = x + 1"}[old]))
    np.testing.assert_allclose(tl.load(main).f(X), (X + 2) ** 2 if "by" in old else X * 2 + 1, rtol=1e-5)


def test_a_used_tactic_or_instruction_that_changed_is_compiled_again(files: Files) -> None:
    main = files(main=f'use "tactics.tl" (tiles)\n{PRODUCT}schedule product for cpu {{\n    tiles(i, j, 4)\n}}\n', tactics=TACTICS)
    assert "split i by 4" in tl.load(main).product.explain(X, X.T.copy())
    files(tactics=TACTICS.replace("split i by n", "split i by 3"))
    assert "split i by 3" in tl.load(main).product.explain(X, X.T.copy())


def test_an_instruction_whose_function_changed_is_another_one(files: Files) -> None:
    schedule = "schedule product for cpu {\n    split j by 8 -> jo, jv\n    order i, jo, k, jv\n    tensorize jv with multiply_add\n}\n"
    main = files(main=f'use "fma.tl"\n{PRODUCT}{schedule}', fma=INSTRUCTIONS)
    b = np.ones((7, 16), np.float32)
    np.testing.assert_allclose(tl.load(main, threads=1).product(X, b), X @ b, rtol=1e-5)
    files(fma=INSTRUCTIONS.replace("= a + b", "= a - b"))
    with pytest.raises(CompileError):
        tl.load(main, threads=1).product(X, b)


# ---------------------------------------------------------------- what is refused


def test_names_that_clash_are_told_with_every_place(files: Files) -> None:
    main = files(
        main='use "a.tl"\nuse "b.tl"\nop g(x: f32) -> (y: f32) {\n    y = x\n}\n', a="fn f(x) = x\nfn g(x) = x\n", b="\nfn f(x) = x\n"
    )
    first, second = sorted(refused(main), key=lambda d: d.title)
    assert (first.code, marked(first)) == (
        "T0102",
        ['main.tl:2 use "b.tl"', "b.tl:2 fn f(x) = x", "a.tl:1 fn f(x) = x", 'main.tl:1 use "a.tl"'],
    )
    assert (second.code, marked(second)) == ("T0102", ['main.tl:1 use "a.tl"', "a.tl:2 fn g(x) = x", "main.tl:3 g"])
    assert "use … (f as …)" in (first.help or "")


def test_the_same_thing_by_two_ways_is_no_clash(files: Files) -> None:
    main = files(main=f'use "norm.tl" (rms)\nuse "lib/../norm.tl" (rms, root)\nuse "norm.tl"\n{CALL.format("y = rms(x)")}', norm=NORM)
    assert check_module(load_module(parse(load(main)))) == []


def test_files_that_use_each_other_are_told_with_each_place(files: Files) -> None:
    main = files(main='use "a.tl"\n', a='\nuse "b.tl"\n', b='use "a.tl"\n')
    (problem,) = refused(main)
    assert problem.code == "T0192"
    assert marked(problem) == ['a.tl:2 "b.tl"', 'b.tl:1 "a.tl"', 'main.tl:1 "a.tl"']
    assert problem.notes == ("`a.tl` → `b.tl` → `a.tl`",)


def test_a_file_that_uses_itself_is_refused(files: Files) -> None:
    (problem,) = refused(files(main=f'use "../{Path.cwd().name}/main.tl"\n'))
    assert (problem.code, problem.title) == ("T0192", "`main.tl` uses itself")


def test_a_chain_of_files_that_is_too_long_is_refused(files: Files) -> None:
    for k in range(80):
        files(**{f"f{k}": f'use "f{k + 1}.tl"\n'})
    files(f80="")
    assert [d.code for d in refused(Path("f0.tl"))] == ["P014"]
    load_module(parse(load("f40.tl")))


def test_a_function_that_is_passed_is_one_that_the_caller_knows(files: Files) -> None:
    for name, help in (("sqroot", "did you mean `sqrt`?"), ("celu", "write `use std.elementwise (celu)` at the top of the file")):
        main = files(main=f'use "norm.tl" (mapped)\n{CALL.format(f"y = mapped(x, f = {name})")}', norm=NORM)
        (problem,) = check_module(load_module(parse(load(main))))
        assert (problem.code, problem.title, problem.help) == ("T0101", f"there is no function `{name}`", help)
        assert marked(problem) == [f"main.tl:3 {name}"]


def test_paths_that_the_system_refuses_are_no_files(files: Files) -> None:
    Path("loop.tl").symlink_to("loop.tl")
    for name in ("loop", "n" * 300, "norm.tl/inside"):
        (problem,) = refused(files(main=f'use "{name}.tl"\n', norm=NORM))
        assert problem.code == "T0190"


@pytest.mark.parametrize(
    ("use", "code", "title", "help"),
    [
        ('use "nrom.tl"', "T0190", "there is no file `nrom.tl`", "did you mean `norm.tl`?"),
        ('use "far/norm.tl"', "T0190", "there is no file `far/norm.tl`", "relative to the file"),
        ('use "norm"', "T0190", "not the path of a `.tl` file", 'write `use "norm.tl"`'),
        ('use "/etc/passwd"', "T0190", "not the path of a `.tl` file", "ends in `.tl`"),
        ('use "a\\nb.tl"', "T0190", "not the path of a `.tl` file", "ends in `.tl`"),
        ('use ".tl"', "T0190", "`.tl`", None),
        ('use "folder.tl"', "P021", "is a directory", None),
        ('use "norm.tl" (rsm)', "T0191", "`norm.tl` has no `rsm`", "did you mean `rms`?"),
        ('use "norm.tl" (_secret)', "T0191", "`norm.tl` has no `_secret`", "stays in its file"),
        ("use std.nrom", "T0190", "there is no module `std.nrom`", "did you mean `std.norm`?"),
        ("use sdt.norm", "T0190", "there is no module `sdt.norm`", "did you mean `std.norm`?"),
        ("use norm", "T0190", "there is no module `norm`", 'use "norm.tl"'),
        ("use std.norm (sofmax)", "T0191", "`std.norm` has no `sofmax`", "did you mean `softmax`?"),
        ("use std.norm (conv)", "T0191", "`std.norm` has no `conv`", "write `use std.conv (conv)`"),
        ("use std (sofmax)", "T0191", "`std` has no `sofmax`", "did you mean `softmax`?"),
        ("use std.sofmax", "T0190", "there is no module `std.sofmax`", "did you mean `std.norm.softmax`?"),
        ("use std.gelu", "T0190", "there is no module `std.gelu`", "`gelu` is known in every file"),
        ("use std.norm (relu)", "T0191", "`std.norm` has no `relu`", "`relu` is known in every file"),
        ("use std.softmax (rms_norm)", "T0190", "`std.softmax` is one name, not a module", "write `use std (softmax, …)`"),
        ("use `std/../x`", "T0190", "there is no module `std/../x`", None),
    ],
)
def test_what_is_not_there_is_told_with_what_is_meant(files: Files, use: str, code: str, title: str, help: str | None) -> None:
    main = files(main=f"fn h(x) = x\n{use}\n", norm=NORM)
    Path("folder.tl").mkdir()
    (problem,) = refused(main)
    assert (problem.code, marked(problem)[0].split(" ")[0]) == (code, "main.tl:2")
    assert title in problem.title
    assert help is None or help in (problem.help or "")


def test_a_mistake_in_a_used_file_is_shown_there_and_once(files: Files) -> None:
    main = files(main='use "a.tl"\nuse "b.tl"\n', a='use "b.tl"\n', b="fn g(x) = y + \n\nfn h(x) = frob(x)\n")
    (problem,) = refused(main)
    assert problem.code == "P009"
    assert [place.split(" ")[0] for place in marked(problem)] == ["b.tl:1", "a.tl:1", "main.tl:1"]
    files(b="fn h(x) = frob(x)\n")
    (problem,) = refused(main)
    assert (problem.code, marked(problem)[0]) == ("T0101", "b.tl:1 frob")


def test_a_mistake_that_a_call_brings_out_is_shown_at_the_call_and_in_the_used_file(files: Files) -> None:
    main = files(main=f'use "a.tl" as a\n{CALL.format("y = a.g(x)")}', a="op g(x: i32[D..]) -> (y: i32[D..]) {\n    y[d..] = x[d..]\n}\n")
    (problem,) = check_module(load_module(parse(load(main))))
    assert (problem.code, marked(problem)) == ("T0160", ["main.tl:3 a.g(x)", "a.tl:1 x: i32[D..]"])


def test_a_text_that_lies_nowhere_has_no_files_beside_it(files: Files) -> None:
    files(norm=NORM)
    text = f'use "norm.tl"\n{CALL.format("y = rms(x)")}'
    with pytest.raises(CompileError, match=r'T0193.*\n(.*\n)*.*tl.parse\(text, base="folder"\)'):
        tl.parse(text)
    np.testing.assert_allclose(tl.parse(text, base=".").f(X), RMS, rtol=1e-5)
    absolute = text.replace("norm.tl", str(Path("norm.tl").resolve()))
    np.testing.assert_allclose(tl.parse(absolute).f(X), RMS, rtol=1e-5)


def test_an_unknown_name_that_the_library_has_is_told_with_its_use() -> None:
    for name, line in (("softmax", "use std.norm (softmax)"), ("soft_cap", "use std.elementwise (soft_cap)")):
        with pytest.raises(CompileError) as problem:
            load_module(parse(Source("t.tl", CALL.format(f"y = {name}(x)"))))
        assert problem.value.diagnostics[0].help == f"write `{line}` at the top of the file"


def test_an_unknown_qualified_name_that_the_library_has_is_told_with_its_use() -> None:
    for name in ("std.softmax", "std.norm.softmax"):
        with pytest.raises(CompileError, match=r"write `use std.norm \(softmax\)` at the top of the file, and call `softmax\(…\)`"):
            load_module(parse(Source("t.tl", CALL.format(f"y = {name}(x)"))))


def test_a_mistake_of_a_file_that_two_others_use_is_told_once_and_blamed_on_neither(files: Files) -> None:
    path = files(
        a='use "b.tl"\nuse "c.tl"\n', b='use "d.tl"\nfn f(x) = h(x)\n', c='use "d.tl"\nfn g(x) = h(x)\n', d="fn h(x) = nothing(x)\n"
    )
    [found] = refused(path)
    assert marked(found) == ["d.tl:1 nothing", 'b.tl:1 "d.tl"', 'a.tl:1 "b.tl"']

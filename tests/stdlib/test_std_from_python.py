"""`tl.std`: the standard library's operators as attributes, found by name, read when asked for and compiled when called."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pydoc
import subprocess
import sys
from pathlib import Path

import extern_kernels
import numpy as np
import pytest

import tensorlang as tl
from tensorlang.diagnostics import CompileError
from tensorlang.packages import Package
from tensorlang.syntax import modules

X = np.random.default_rng(0).standard_normal((3, 5), dtype=np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_an_operator_is_an_attribute_of_the_library_and_of_its_module() -> None:
    np.testing.assert_allclose(tl.std.softmax(X), softmax(X), rtol=1e-5)
    np.testing.assert_allclose(tl.std.norm.softmax(X, axis=1), softmax(X), rtol=1e-5)
    np.testing.assert_allclose(tl.use("std.norm").softmax(X), softmax(X), rtol=1e-5)


def test_an_operator_that_is_called_like_its_module_is_called_by_the_modules_name() -> None:
    image, taps = np.ones((1, 1, 5, 5), np.float32), np.ones((1, 1, 3, 3), np.float32)
    assert tl.std.conv(image, taps).tolist() == np.full((1, 1, 3, 3), 9.0).tolist()
    assert tl.std.conv.max_pool(image, kernel=(2, 2)).shape == (1, 1, 4, 4)
    assert tl.std["conv"].signature.startswith("op conv[")
    with pytest.raises(TypeError, match=r"`std\.norm` is a module"):
        tl.std.norm(X)  # type: ignore[operator]


def test_names_are_listed_without_a_parser_and_without_native_code() -> None:
    code = """
import sys, tensorlang as tl
assert "numpy" not in sys.modules
names = dir(tl.std)
assert {"softmax", "norm", "conv", "layer_norm"} <= set(names), names
assert "softmax" in dir(tl.std.norm) and "conv" not in dir(tl.std.norm)
from tensorlang.syntax import parse
assert parse.tables.cache_info().currsize == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_stands_above_an_operator_is_its_documentation() -> None:
    ops = tl.parse(
        "# not this\n\n# Twice x.\n# In two lines.\nop f(x: f32[N], attr by: int = 2) -> (y: f32[N]) {\n    y[i] = x[i] * by\n}\n"
    )
    assert ops.f.__doc__ == "Twice x.\nIn two lines.\n\nop f(x: f32[N], attr by: int = 2) -> (y: f32[N])"
    assert ops.f.schedule(None).__doc__ == ops.f.__doc__
    assert "Twice x." in pydoc.plain(pydoc.render_doc(ops.f))
    assert str(inspect.signature(ops.f)) == "(x, *, by=2, out=None)"


def test_the_library_and_its_modules_tell_what_they_have() -> None:
    told = pydoc.plain(pydoc.render_doc(tl.std))
    assert "op softmax[T: float](x: T[A.., N, B..], attr axis: int = -1)" in told
    assert "exp(x) / sum(exp(x)) along one axis" in told
    assert "std.conv: Convolutions and pooling of any rank." in told
    assert "conv_transpose" not in pydoc.plain(pydoc.render_doc(tl.std.norm))


def test_a_name_that_is_not_there_is_told_with_the_closest() -> None:
    with pytest.raises(AttributeError, match=r"`std` has no operator `sofmax`; did you mean `softmax`\?"):
        tl.std.sofmax  # noqa: B018
    with pytest.raises(CompileError, match=r"did you mean `std\.norm`"):
        tl.use("std.nrom")
    assert not hasattr(tl.std, "__wrapped__")


def test_options_are_those_of_load() -> None:
    assert tl.use("std", mode="strict", threads=1).softmax.program(X).mode == "strict"
    symbolic = tl.use("std.norm", sizes="symbolic").softmax
    np.testing.assert_allclose([symbolic(X).sum(), symbolic(X[:2]).sum()], [3, 2], rtol=1e-5)
    with pytest.raises(CompileError, match="C0105"):
        tl.use("std", sizes="none")  # type: ignore[arg-type]


def test_the_library_is_pickled_by_its_name() -> None:
    again = pickle.loads(pickle.dumps(tl.std))
    assert isinstance(again, Package)
    np.testing.assert_allclose(again.softmax(X), softmax(X), rtol=1e-5)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(tl.std.softmax))(X), softmax(X), rtol=1e-5)


# ---------------------------------------------------------------- packages of others


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with modules, whose code must never run."""
    files = {
        "acme/__init__.py": "raise RuntimeError('code ran')\n",
        "acme/kernels/filters.tl": '# Filters.\n\nuse "taps.tl"\n\n# Every other one.\nop thin(x: f32[N]) -> (y: f32[N // 2]) {\n'
        "    y[i] = weight(x[2*i])\n}\n",
        "acme/kernels/taps.tl": "fn weight(x) = x * 3\n",
        "acme/kernels/deep/more.tl": "fn deeper(x) = x * 5\n",
        "acme-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n",
        "acme-1.0.dist-info/entry_points.txt": "[tensorlang.modules]\nacme = acme.kernels\ngone = nowhere.at_all\n",
    }
    for name, text in files.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def test_an_installed_package_offers_modules_by_an_entry_point(acme: Path) -> None:
    text = (
        "use acme.filters (thin)\nuse acme.deep.more\nop f(x: f32[N]) -> (y: f32[N // 2]) {\n    t = thin(x)\n    y[i] = deeper(t[i])\n}\n"
    )
    np.testing.assert_allclose(tl.parse(text).f(X[0]), X[0][:4:2] * 15, rtol=1e-6)
    np.testing.assert_array_equal(tl.use("acme").thin(X[0]), X[0][:4:2] * 3)
    assert tl.use("acme.filters").thin.__doc__.startswith("Every other one.")
    assert dir(tl.use("acme")) == ["deep", "filters", "taps", "thin"]
    assert "acme" not in sys.modules


def test_mistakes_in_an_installed_module_are_shown_in_it(acme: Path) -> None:
    (acme / "acme" / "kernels" / "taps.tl").write_text("fn weight(x) = frob(x)\n", "utf-8")
    with pytest.raises(CompileError) as problem:
        tl.parse("use acme.filters\n")
    assert [label.span.source.name for label in problem.value.diagnostics[0].labels] == [
        "acme/kernels/taps.tl",
        "acme/kernels/filters.tl",
        "<text>",
    ]


def test_an_unknown_name_that_an_installed_package_has_is_told_with_its_use(acme: Path) -> None:
    with pytest.raises(CompileError, match=r"write `use acme.filters \(thin\)` at the top of the file"):
        tl.parse("op f(x: f32[N]) -> (y: f32[N // 2]) {\n    y = thin(x)\n}\n")


def test_a_module_called_like_its_operator_has_what_that_has() -> None:
    x = np.array([3, 1, 2], np.float32)
    assert tl.std.sort(x).tolist() == [1, 2, 3]
    assert tl.std.sort.signature == tl.std["sort"].signature
    assert "y" in tl.std.sort.explain(x)
    with pytest.raises(AttributeError, match="has no operator `explian`"):
        _ = tl.std.sort.explian


def test_a_package_offers_kernels_for_the_extern_operators_of_its_modules(acme: Path) -> None:
    kernels = acme / "acme" / "kernels"
    (kernels / "scaled.tl").write_text("extern op scale(x: f32[N], attr by: float = 2) -> (y: f32[N]) { y[i] = x[i] * by }\n", "utf-8")
    offered = f"tl.llvm_ir({extern_kernels.scale('scale')!r}, 'scale', needs=NEEDS)"
    for needs, trusted in ((["no_such_feature"], False), ([], True)):
        for name in ("acme", "acme.kernels"):
            sys.modules.pop(name, None)
        (acme / "acme" / "__init__.py").write_text("", "utf-8")
        text = f"import tensorlang as tl\n\ndef kernels():\n    return {{'scaled': {{'scale': {offered.replace('NEEDS', repr(needs))}}}}}\n"
        (kernels / "__init__.py").write_text(text, "utf-8")
        importlib.invalidate_caches()
        modules.kernels.cache_clear()
        twice = tl.parse("use acme.scaled (scale)\nop f(x: f32[N]) -> (y: f32[N]) { y = scale(x) }\n").f
        np.testing.assert_array_equal(twice(X[0]), 2 * X[0])
        assert ("trusted: extern scale" in twice.explain(X[0])) == trusted
    for name in ("acme", "acme.kernels"):
        sys.modules.pop(name, None)
    modules.kernels.cache_clear()


def test_normalisations_of_doubles_are_as_exact_as_doubles() -> None:
    x = X.astype(np.float64)[:, None, :].repeat(2, 1)
    ones, zeros = np.ones(2), np.zeros(2)
    deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    expected = (x - x.mean(-1, keepdims=True)) / deviation
    np.testing.assert_allclose(tl.std.layer_norm(x, np.ones(5), np.zeros(5), axis=-1), expected, rtol=1e-14)
    np.testing.assert_allclose(tl.std.instance_norm(x, ones, zeros), expected, rtol=1e-14)
    np.testing.assert_allclose(tl.std.group_norm(x, ones, zeros, groups=2), expected, rtol=1e-14)
    np.testing.assert_allclose(tl.std.rms_norm(x, np.ones(5)), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5), rtol=1e-14)


def test_a_mean_of_more_halves_than_the_largest_half_is_their_mean() -> None:
    assert tl.std.reduce_mean(np.ones(70_000, np.float16), axis=0, count=1) == 1

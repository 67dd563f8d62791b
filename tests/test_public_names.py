"""`import tensorlang` costs nothing, and offers what it says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tensorlang as tl


def test_every_public_name_is_there() -> None:
    for name in tl.__all__:
        assert getattr(tl, name).__name__ == name
    assert set(tl.__all__) <= set(dir(tl))


def test_the_types_are_those_of_the_same_names() -> None:
    stub = ast.parse((Path(tl.__file__).parent / "__init__.pyi").read_text("utf-8"))
    imported = {a.asname: (n.module, a.name) for n in ast.walk(stub) if isinstance(n, ast.ImportFrom) for a in n.names}
    assert imported == {name: (place, name) for name, place in tl._PLACES.items()}
    assert sorted(imported) == tl.__all__


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compil'"):
        tl.compil  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, tensorlang\nassert not {'numpy', 'llvmlite', 'lark', 'islpy', 'onnx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", [3, None, b"ops.tl"])
def test_a_path_that_is_none_is_an_error_with_a_code(path: object) -> None:
    with pytest.raises(tl.CompileError, match="P020"):
        tl.load(path)  # type: ignore[arg-type]

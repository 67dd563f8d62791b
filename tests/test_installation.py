"""`import tensorlang` says what keeps it from working, and operators work without the packages that only models need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tensorlang
from tensorlang.installation import SETTINGS, SIBLINGS, shadowed, wrong_platform, wrong_settings

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import release  # noqa: E402

WITHOUT_ONNX = "import sys\nsys.modules['onnx'] = None\n"


def python(code: str, folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in `folder`, where modules are looked for there, in `path` and in this tree, in this order."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))), "TENSORLANG_CACHE": str(folder / "objects")}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", SIBLINGS)
@pytest.mark.parametrize("kind", ["file", "package", "folder"])
def test_a_foreign_module_by_the_name_of_a_package_is_named(name: str, kind: str, tmp_path: Path) -> None:
    foreign = tmp_path / (f"{name}.py" if kind == "file" else name)
    if kind == "file":
        foreign.write_text("")
    else:
        foreign.mkdir()
        (foreign / ("__init__.py" if kind == "package" else "data.txt")).write_text("")
    done = python("import tensorlang", tmp_path)
    if kind == "folder":  # no package: a folder without `__init__.py` hides nothing
        assert done.returncode == 0, done.stderr
        return
    expected = f"ImportError: tensorlang needs its own package `{name}`, but `import {name}` finds {foreign}"
    assert expected in done.stderr.splitlines()
    assert done.stderr.rstrip().endswith(str(tmp_path))


def test_a_module_made_by_hand_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = type(sys)("stdlib")
    monkeypatch.setitem(sys.modules, "stdlib", made)
    assert "a module `stdlib` that no file belongs to" in shadowed("stdlib")


def test_a_package_that_is_missing_is_named() -> None:
    assert shadowed("tensorlang_without").startswith("tensorlang is not installed in full: its package `tensorlang_without` is missing\n")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_linux_on_both_processors_is_fine(machine: str) -> None:
    assert wrong_platform("linux", machine, 64) == ""


@pytest.mark.parametrize(
    ("system", "machine", "bits"), [("darwin", "arm64", 64), ("win32", "AMD64", 64), ("linux", "riscv64", 64), ("linux", "x86_64", 32)]
)
def test_another_platform_is_told_which_there_are(system: str, machine: str, bits: int) -> None:
    said = wrong_platform(system, machine, bits)
    assert "Linux on x86-64 and AArch64" in said and system in said and machine in said and "\n" not in said


def test_the_import_itself_refuses_another_platform(tmp_path: Path) -> None:
    done = python("import sys\nsys.platform = 'darwin'\nimport tensorlang", tmp_path)
    assert done.stderr.splitlines()[-1].startswith("ImportError: tensorlang runs on Linux on x86-64 and AArch64")


def test_operators_run_without_onnx(tmp_path: Path) -> None:
    code = """
import numpy as np
import tensorlang as tl
ops = tl.parse("op twice(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }")
print(ops.twice(np.arange(3, dtype=np.float32)))
from tensorlang import cli
for line in ("bench matmul a=f32[2,2] b=f32[2,2] --seconds 0.01 --peers numpy", "bench conv x=f32[1,2,4,4] w=f32[2,2,3,3]"):
    print(cli._guarded(line.split()))
"""
    done = python(WITHOUT_ONNX + code, tmp_path)
    said = done.stdout.splitlines()
    assert said[0] == "[0. 2. 4.]", done.stderr
    assert [line for line in said if line in ("0", "1")] == ["0", "1"], done.stdout + done.stderr
    assert done.stderr.splitlines() == [
        "error[C0221]: onnx is not installed, and the weights of `conv` are measured inside a model",
        " = help: pip install 'tensorlang[onnx]'",
        "",
        "more about this: `tensorlang explain C0221`",
    ]


@pytest.mark.parametrize("call", ["tl.compile('net.onnx').run({})", "tl.compile('net.onnx', shapes={'x': (1, 3)}).explain()"])
def test_a_model_without_onnx_is_told_what_to_install(call: str, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"\x08\x09")
    code = f"import tensorlang as tl\ntry:\n    {call}\nexcept tl.CompileError as problem:\n    print(problem)"
    done = python(WITHOUT_ONNX + code, tmp_path)
    assert done.stdout.splitlines() == [
        "error[O0001]: `net.onnx` cannot be read: the package `onnx` is not installed",
        " = help: pip install 'tensorlang[onnx]'",
    ], done.stderr


def test_no_dependency_is_unused_and_none_is_missing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {d.split(">")[0] for d in project["dependencies"]}
    packages = [p for folder in ("tensorlang", "codegen", "polyhedral", "stdlib") for p in (ROOT / folder).rglob("*.py")]
    texts = "\n".join(p.read_text("utf-8") for p in packages)
    assert [name for name in names if f"import {name}" not in texts and f"from {name}" not in texts] == []


def test_the_files_that_a_release_needs_are_there() -> None:
    for name in ("LICENSE", "NOTICE", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "CHANGELOG.md"):
        assert (ROOT / name).stat().st_size, name
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")


def test_a_release_needs_its_version_and_its_section() -> None:
    assert release.problems("9.9.9") == [
        f'tensorlang/__init__.py says {tensorlang.__version__}: write `__version__ = "9.9.9"`',
        "CHANGELOG.md has no section `## 9.9.9`",
    ]


def test_a_release_is_dated(tmp_path: Path) -> None:
    (tmp_path / "tensorlang").mkdir()
    (tmp_path / "tensorlang" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    for heading, said in (("## 1.2.3, not released yet", 1), ("## 1.2.3, 1 May 2030", 0)):
        (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n")
        assert len(release.problems("1.2.3", tmp_path)) == said


def test_settings_that_nothing_reads_are_told() -> None:
    assert list(wrong_settings({"TENSORLANG_THREADS": "3", "TENSORLANG_VALIDATE": "1", "PATH": "/"})) == []
    [typo] = wrong_settings({"TENSORLANG_THREAD": "1"})
    [value] = wrong_settings({"TENSORLANG_VALIDATE": "yes"})
    assert "did you mean `TENSORLANG_THREADS`?" in typo and "nothing is validated" in value


def test_every_setting_that_is_read_is_known() -> None:
    written = {name for path in (ROOT / "docs").rglob("*.md") for name in re.findall(r"TENSORLANG_([A-Z_]+)", path.read_text("utf-8"))}
    assert written - {*SETTINGS} == set()


def test_an_import_tells_the_log_of_them(tmp_path: Path) -> None:
    found = python("import os; os.environ['TENSORLANG_CACH'] = '/tmp'; import tensorlang", tmp_path)
    assert found.returncode == 0 and "`TENSORLANG_CACH`" in found.stderr

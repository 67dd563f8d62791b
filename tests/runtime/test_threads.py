"""The number of threads that was asked for is the number that runs."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tensorlang as tl
from codegen.llvm import pool
from codegen.llvm.pool import available_threads
from tensorlang.shell.doctor import findings

TEXT = """
op scale(x: f32[M, N]) -> (y: f32[M, N]) {
    y[i, j] = x[i, j] * 2
}

schedule scale for cpu {
    parallel i
}
"""


@pytest.fixture
def regions() -> Iterator[None]:
    before = pool.threads()
    yield
    pool.set_threads(before)


def test_an_operator_for_one_thread_runs_a_parallel_schedule_serially() -> None:
    one, many = (tl.parse(TEXT, threads=count).scale for count in (1, 2))
    x = np.random.default_rng(0).random((64, 8), np.float32)
    np.testing.assert_array_equal(one(x), many(x))
    assert "parallel i" in one.explain(x) and "parallel" not in loops(one.explain(x))
    if available_threads() > 1:
        assert "parallel" in loops(many.explain(x))


def loops(report: str) -> str:
    """Return the loops of a report."""
    return report[report.index("func ") : report.index("proven ")]


def test_a_call_uses_the_threads_its_operator_was_made_for(regions: None) -> None:
    many = tl.parse(TEXT, threads=2).scale
    x = np.zeros((64, 8), np.float32)
    many(x)
    pool.set_threads(1)
    many(x)
    assert pool.threads() == min(2, available_threads())


def test_the_environment_says_how_many_threads_are_used_where_nobody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_THREADS", "1")
    assert tl.parse(TEXT).scale.tools.threads == 1
    assert tl.parse(TEXT, threads=2).scale.tools.threads == min(2, available_threads())
    monkeypatch.setenv("TENSORLANG_THREADS", "none")
    with pytest.raises(tl.CompileError, match=r"(?s)C0109.*`TENSORLANG_THREADS` is `none`.*whole number"):
        tl.parse(TEXT)
    assert tl.parse(TEXT, threads=1).scale.tools.threads == 1


def test_a_setting_that_is_no_number_is_not_looked_at_where_a_number_is_given() -> None:
    script = "import tensorlang as tl; print(tl.parse('op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] * 2 }', threads=1).f([1.0]))"
    environment = {**os.environ, "TENSORLANG_THREADS": "none"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "[2.]\n", done.stderr


def test_a_check_up_tells_where_the_number_of_threads_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    for asked, told, fine in (("1", "1: TENSORLANG_THREADS asks for 1", True), ("x", "is `x`: set it to", False), ("", "processors", True)):
        monkeypatch.setenv("TENSORLANG_THREADS", asked)
        found = next(f for f in findings() if f.what == "threads")
        assert told in found.found and found.fine == fine


def test_a_child_that_is_forked_while_another_thread_compiles_compiles_too() -> None:
    script = """
        import os, signal, tempfile, threading, warnings
        os.environ["TENSORLANG_CACHE"] = tempfile.mkdtemp()
        import numpy as np
        import tensorlang as tl
        warnings.simplefilter("ignore")  # of forks beside threads, which is what this is about
        x = np.ones(8, np.float32)
        shared = tl.parse("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] * 2 }", sizes="static").f
        done = threading.Event()

        def compile_on() -> None:
            size = 0
            while not done.is_set():
                size += 1
                shared(np.ones(size, np.float32))

        thread = threading.Thread(target=compile_on)
        thread.start()
        statuses = []
        for k in range(12):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                assert (shared(np.ones(1000 + k, np.float32)) == 2).all()
                os._exit(0)
            statuses.append(os.waitpid(child, 0)[1])
        done.set()
        thread.join()
        print(statuses)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == str([0] * 12), done.stderr


OPERATORS = """
row = "op row(x: f32[N]) -> (y: f32[N]) { y[i] = exp(x[i]) / sum(j in 0..i + 1) x[j] }"
half = "op half(x: bf16[N, M]) -> (y: bf16[N, M]) { y[i, j] = x[i, j] * 2 }"
known, unknown, halves = tl.parse(row, sizes="static").row, tl.parse(row, threads=2).row, tl.parse(half).half
known(np.ones(8, np.float32))
unknown(np.ones(8, np.float32))
unknown(np.ones(9, np.float32))
halves(np.ones((3, 4), "bfloat16"))
"""
MODELS = """
for file in ("known.onnx", "open.onnx", "known.onnx"):
    tl.compile(file, threads=2).run({"x": np.ones((2, 8), np.float32)})
"""


@pytest.mark.parametrize("first_calls", [OPERATORS, MODELS], ids=["of operators", "of models"])
def test_what_a_first_call_imports_is_imported_while_nobody_forks(first_calls: str, tmp_path: Path) -> None:
    """A child would wait forever for a module that another thread was importing."""
    for name, rows in (("known", 2), ("open", "rows")):
        x, y = (helper.make_tensor_value_info(value, TensorProto.FLOAT, [rows, 8]) for value in "xy")
        graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], name, [x], [y])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / f"{name}.onnx")
    script = """
import os, sys, traceback
os.environ["TENSORLANG_CACHE"] = os.getcwd()
import numpy as np
import tensorlang as tl
from codegen import forks

class Imports:
    def find_spec(self, name, path=None, target=None):
        if not forks._IMPORTS.running and any(frame.name == "_find_and_load" for frame in traceback.extract_stack()):
            print(name)

sys.meta_path.insert(0, Imports())
"""
    command = [sys.executable, "-c", script + first_calls]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_a_fork_inside_of_an_import_waits_for_no_import_that_waits_for_it(tmp_path: Path) -> None:
    """Nor does its child, when that forks in turn."""
    forking = """
import os, threading, time
from codegen import forks

other = threading.Thread(target=forks.import_whole, args=("waiting",))
other.start()
while forks._IMPORTS._count < 2:
    time.sleep(0.001)
child = os.fork()
"""
    (tmp_path / "forking.py").write_text(forking)
    (tmp_path / "waiting.py").write_text("import forking")
    script = """
import os, sys
sys.path.insert(0, os.getcwd())
from codegen.forks import import_whole

import_whole("forking")
from forking import child, other
if not child:
    grandchild = os.fork()
    os._exit(os.waitpid(grandchild, 0)[1] if grandchild else 0)
other.join()
print(os.waitpid(child, 0)[1])
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.stdout.strip() == "0", done.stderr

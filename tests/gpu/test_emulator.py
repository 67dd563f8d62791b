"""The emulator runs correct kernels, on sizes with tails, in every order of threads and with every mode of copies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from handwritten import CASES, ONE, Case, normal, text_of, up

from codegen.gpu.emulator import SEEDS, EmulatorError, Library, build, run
from codegen.gpu.program import Kernel, Launch, Program

GATHER = Kernel("gather", text_of("gather"), ("x", "at", "y"), ("N", "M"), (32, 1, 1), checks=True)
GATHERING = Program("gathering", ("x", "at", "y"), ("N", "M"), (GATHER,), (Launch("gather", (up("M", 32), ONE, ONE)),))


@pytest.fixture(scope="module")
def library() -> Library:
    return build([k for case in CASES for k in case.program.kernels] + [GATHER])


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_correct_kernel_is_right_on_every_seed(case: Case, library: Library) -> None:
    for sizes in case.sizes:
        assert [seed for seed in SEEDS if not case.is_right(library, sizes, seed)] == []


def test_a_launch_over_nothing_runs_nothing(library: Library) -> None:
    empty = np.zeros(0, np.float32)
    assert run(CASES[0].program, {"N": 0}, {"x": empty, "y": empty}, library=library) == 0


@pytest.mark.parametrize(("index", "status"), [(3, 0), (-1, 7), (10, 7)])
def test_a_requirement_that_is_not_met_is_the_status_of_the_run(index: int, status: int, library: Library) -> None:
    x, at, y = normal(10), np.zeros(40, np.int64), np.zeros(40, np.float32)
    at[35] = index
    assert run(GATHERING, {"N": 10, "M": 40}, {"x": x, "at": at, "y": y}, library=library) == status
    assert status or np.array_equal(y, x[at])


def test_text_that_is_not_cpp_is_refused_with_what_gpp_says() -> None:
    with pytest.raises(EmulatorError, match=r"broken:1:.*error"):
        build([Kernel("broken", "TL_KERNEL(32, 0) broken() { tl_i64 i = ; }", (), (), (32, 1, 1))])


def test_a_library_is_compiled_once(tmp_path: Path) -> None:
    first = build([GATHER], tmp_path)
    assert build([GATHER], tmp_path).path == first.path
    assert list(tmp_path.glob("*.so")) == [first.path]


def test_the_emulator_itself_is_compiled_once_for_all_libraries(tmp_path: Path) -> None:
    build([GATHER], tmp_path)
    shared = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.suffix != ".so"}
    another = build([replace(GATHER, name="another", text=GATHER.text.replace("gather", "another"))], tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.suffix != ".so"} == shared
    assert another.cell_bytes


def test_without_gpp_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EmulatorError, match=r"g\+\+ is needed .* install it"):
        build([GATHER])

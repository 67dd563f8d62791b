"""What the tests share: `--update-golden`, the fixtures `golden_case` and `golden`, and this folder on the import path.

Tests marked `gpu` are there where a GPU is; elsewhere they are left out, and `-m gpu`, which would leave nothing, says what is missing.
Code for other processors than this one is made and read, but not run; the lines before the last say of which that is true (`processors`).

Every kernel and model that tests compile is validated on terms (`tensorlang.validation`) where that takes few operations, as
`TENSORLANG_VALIDATE` says; 0 turns it off.

Properties are tried on the same examples in every run, whatever was imported before them: no constants of the sources are drawn, which
Hypothesis would read for seconds. `HYPOTHESIS_PROFILE=explore pytest …` draws new ones, these constants among them; with `first` the first
example that fails is shown as it is, which is all that `scripts/mutate.py` asks for.

Frames of a test's functions lie in one piece. The collector of cycles runs seldom, and after each file, and never looks at what was there
before a file: what a compiler makes has next to no cycles, and in a process that has run thousands of tests looking for them is much of
the time. Nor do models have other processes compile some of their kernels: these run tests.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest
from _pytest import runner
from golden_case import expected, renew
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers
from processors import observed, summary

from codegen.cuda.device import devices
from codegen.cuda.errors import Unavailable
from codegen.llvm import jit
from codegen.llvm.target import LevelError, host
from tensorlang import worker
from tensorlang.frames import contiguous_frames

os.environ.setdefault("TENSORLANG_VALIDATE", "4000")

settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("first", derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
if settings().derandomize:
    providers._get_local_constants = providers.Constants

gc.set_threshold(100_000, 50, 100)
worker.WORTH_A_PROCESS = 1_000_000

OBSERVER = observed()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts; read the diff afterwards")


def pytest_configure(config: pytest.Config) -> None:
    try:
        host()
    except LevelError as problem:
        raise pytest.UsageError(str(problem)) from None
    missing = no_device()
    if missing and config.getoption("-m") == "gpu":
        raise pytest.UsageError(f"tests marked `gpu` cannot run: {missing}")


def pytest_collection_finish() -> None:
    _set_apart()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path != item.path:
        _set_apart()


def _set_apart() -> None:
    """Let go of what is garbage now; what stays is not looked at any more."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    return contiguous_frames(runner.pytest_runtest_protocol)(item, nextitem)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    OBSERVER.forget()
    try:
        return (yield)
    finally:
        item.user_properties.extend(OBSERVER.notes())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    done = [r for outcome in ("passed", "failed") for r in terminalreporter.getreports(outcome) if r.when == "call"]
    lines = list(summary(done))
    if lines:
        terminalreporter.section("processors")
        for line in lines:
            terminalreporter.write_line(line)


LONG = (
    "test_models_against_onnxruntime.py",
    "test_constant_operands.py",
    "test_open_sizes.py",
    "test_models_of_any_sizes.py",
    "test_torch_backend.py",
    "test_examples.py",
    "test_differential.py",
    "test_attention.py",
    "test_ordering.py",
    "test_reads_under_conditions.py",
    "test_device_models.py",
    "test_reads_at_edges.py",
    "test_onnx_boxes.py",
    "test_products.py",
    "test_schedules_document.py",
    "test_polybench.py",
    "test_classical_models.py",
    "test_gpu_document.py",
    "test_onnx_models.py",
    "test_derived.py",
    "test_aten_rules.py",
    "test_library.py",
    "test_device_differential.py",
    "test_cluster.py",
    "test_caches_in_place.py",
    "test_device_types.py",
    "test_matrix.py",
    "test_llvm_values.py",
    "test_refusals.py",
    "test_hip.py",
    "test_every_type.py",
    "test_selecting.py",
    "test_wavefronts.py",
    "test_recurrences_derived.py",
    "test_random_models.py",
    "test_planted_faults.py",
    "test_warp_convolutions.py",
    "test_llvm_runtime.py",
    "test_llvm_math.py",
    "test_llvm_kernels.py",
    "test_blocks_derived.py",
    "test_warpgroup_roles.py",
    "test_clusters.py",
    "test_compiled.py",
    "test_loops_partition.py",
    "test_elementary_functions.py",
    "test_readme.py",
    "test_node_suite.py",
    "test_device_ladder.py",
    "test_random_binds.py",
)
"""Files that take long, whose tests run first, in each of the runs that share them out: processes then end at the same time."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))
    if no_device():
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


@cache
def no_device() -> str:
    """Return why nothing can run on a GPU here, "" where it can."""
    try:
        devices()
    except Unavailable as problem:
        return str(problem.what)
    return ""


@pytest.fixture
def most_mappings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return `most_mappings(n)`: from now on a process may have so many mappings of memory, as far as loading of code looks."""
    limit = tmp_path / "max_map_count"
    monkeypatch.setattr(jit, "_MOST_MAPPINGS", limit)
    monkeypatch.setattr(jit, "_OBJECTS_BETWEEN", 1)

    def allow(count: int) -> None:
        limit.write_text(f"{count}\n")

    return allow


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[Path, str], None]:
    """Return `golden(path, text)`: the text is what the file says; `--update-golden` writes the file instead."""

    def check(path: Path, text: str) -> None:
        if update_golden:
            path.write_text(text, "utf-8")
        assert path.exists(), f"{path} is missing: run once with --update-golden and read what it wrote"
        assert text == path.read_text("utf-8")

    return check


@pytest.fixture
def golden_case(update_golden: bool) -> Callable[[Path, str], None]:
    """Return `golden_case(path, text)`: the text is what comes out in the case; `--update-golden` writes it there instead."""

    def check(path: Path, text: str) -> None:
        if update_golden:
            renew(path, text)
        assert text == expected(path)

    return check

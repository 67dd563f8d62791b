"""Everything around a kernel: targets, guard pages, the pool, forks, the cache, programs, and calls from Python."""

import ctypes
import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections import abc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from guarded import SIDES, Side, walled
from llvm_run import LEVELS, check, native, run_native, values

from codegen.dtypes import f32, f64, i32
from codegen.errors import ArgumentError, InternalError
from codegen.llvm import jit, pool
from codegen.llvm.cache import cache_key
from codegen.llvm.call import Callable, Port
from codegen.llvm.calls import Carried, Repetition, Rows
from codegen.llvm.emit import emit
from codegen.llvm.jit import CompileError, assembly, compile_object, load
from codegen.llvm.probe import copy_bandwidth, fma_flops, fma_kernel, read_bandwidth
from codegen.llvm.program import MOST_STORED, KernelCall, Number, Program, Slot, code_bits, emit_program, failed_call, sections
from codegen.llvm.state import EmitError
from codegen.llvm.target import Lacking, LevelError, Target, TargetError, at_level, host, lacking, named
from codegen.loops import interp
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.store import Cache

SCALE = """func scale(N)(x: f32[N], out y: f32[N]) {
    for io in 0 .. (N + 15) // 16 { for i in 16*io .. min(16*io + 16, N) vector 16 { y[i] = x[i] * 2.0_f32 } } }"""
ROWS = """func rows(N)(x: f32[N, 64], out y: f32[N]) {
    for i in 0 .. N parallel {
        alloc s: f32[1] registers
        s[0] = 0.0_f32
        for j in 0 .. 64 { s[0] = s[0] + x[i, j] }
        y[i] = s[0]
    }
}"""

# ---------------------------------------------------------------- targets


@pytest.mark.parametrize("name", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "host"])
def test_every_target_gets_an_object(name: str) -> None:
    data = compile_object(emit(parse(SCALE), named(name)), named(name))
    machine = int.from_bytes(data[18:20], "little")
    assert data[:4] == b"\x7fELF" and machine == (183 if name == "aarch64" else 62)


@pytest.mark.parametrize(("name", "register"), [("x86-64", "xmm"), ("x86-64-v3", "ymm"), ("x86-64-v4", "zmm")])
def test_a_level_uses_its_registers_and_no_others(name: str, register: str) -> None:
    text = assembly(
        emit(
            parse("func f()(x: f32[64], out y: f32[64]) { for i in 0 .. 64 vector 64 { y[i] = x[i] * 2.0_f32 } }"),
            named(name),
        ),
        named(name),
    )
    wider = {"xmm": ("ymm", "zmm"), "ymm": ("zmm",), "zmm": ()}[register]
    assert register in text and not any(r in text for r in wider)


def test_an_unknown_target_is_named_in_the_error() -> None:
    with pytest.raises(TargetError, match="unknown target `riscv`; known are host, x86-64"):
        named("riscv")


def test_code_for_another_processor_is_refused_where_it_would_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {name: compile_object(emit(parse(SCALE), named(name)), named(name)) for name in ("x86-64-v3", "aarch64")}
    monkeypatch.setattr(jit, "host", lambda: named("x86-64-v2"))
    with pytest.raises(Lacking, match=r"code for `x86-64-v3` cannot run on this machine, which lacks avx, avx2, bmi"):
        load([objects["x86-64-v3"]])
    with pytest.raises(Lacking, match="code for `aarch64` cannot run on this machine, which lacks aarch64"):
        load([objects["aarch64"]])
    with pytest.raises(InternalError, match="does not say which processor it needs"):
        load([b"\x7fELF"])


def test_text_for_another_processor_is_refused_before_llvm_sees_it() -> None:
    """LLVM ends the process when it has no instruction for what the text asks."""
    text = emit(parse(SCALE), named("x86-64-v4"))
    for make in (compile_object, assembly):
        with pytest.raises(Lacking, match="text for `x86-64-v4` cannot become code for `x86-64-v3`, which lacks avx512bw"):
            make(text, named("x86-64-v3"))
    assert compile_object(emit(parse(SCALE), named("x86-64-v3")), named("x86-64-v4"))


def test_a_machine_stands_for_those_of_lower_levels() -> None:
    machine = named("x86-64-v3")
    small = at_level(machine, "x86-64-v2")
    assert small == replace(named("x86-64-v2"), name="host") and lacking(machine.needs, small)
    with pytest.raises(LevelError, match="`TENSORLANG_LEVEL` is `x86-64-v4`, and this machine lacks avx512bw, avx512cd"):
        at_level(machine, "x86-64-v4")
    with pytest.raises(LevelError, match="`TENSORLANG_LEVEL` is `aarch64`; levels of `x86_64` are x86-64, "):
        at_level(machine, "aarch64")


def test_what_is_kept_for_one_level_is_not_found_at_another() -> None:
    assert cache_key(["a"], at_level(named("x86-64-v3"), "x86-64-v2")) != cache_key(["a"], replace(named("x86-64-v3"), name="host"))


TILE = """func tile(K)(a: f32[{m}, K], b: f32[K, {n}], out c: f32[{m}, {n}]) {{
    alloc acc: f32[{m}, {n}] registers
    for i in 0 .. {m} unroll {{ for r in 0 .. {v} unroll {{ for j in 0 .. 16 vector 16 {{ acc[i, 16*r + j] = 0.0_f32 }} }} }}
    for k in 0 .. K {{ for i in 0 .. {m} unroll {{ for r in 0 .. {v} unroll {{ for j in 0 .. 16 vector 16 {{
        acc[i, 16*r + j] = fma(a[i, k], b[k, 16*r + j], acc[i, 16*r + j]) }} }} }} }}
    for i in 0 .. {m} unroll {{ for r in 0 .. {v} unroll {{ for j in 0 .. 16 vector 16 {{ c[i, 16*r + j] = acc[i, 16*r + j] }} }} }}
}}"""


@pytest.mark.parametrize("name", ["x86-64-v4", "host"])
@pytest.mark.parametrize(("m", "v"), [(14, 2), (12, 2), (8, 3), (6, 4)])
def test_accumulators_of_a_tile_stay_in_registers(m: int, v: int, name: str) -> None:
    if named(name).vector_bits != 512:
        assert name == "host"
        return
    text = assembly(emit(parse(TILE.format(m=m, v=v, n=16 * v)), named(name)), named(name))
    assert text.count("vfmadd") == m * v
    assert not [line for line in text.splitlines() if "zmm" in line and "(%rsp)" in line]


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("n", [1, 5, 15, 16, 17, 31])
@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i] + 1.0_f32",
        "y[i] = x[N - 1 - i]",
        "y[N - 1 - i] = x[i]",
        "y[i] = x[(i * 3) % N]",
        "y[i] = select(index(i) >= index(2), x[i - 2], 0.0_f32)",
        "y[i] = select(index(i) < index(N) - index(3), x[i + 3], 0.0_f32)",
        "if index(i) < index(N - 2) { y[i + 2] = x[i + 2] }",
        "y[i] = select(index(N) > index(20), x[20], 0.0_f32)",
        "y[i] = select(x[i] > 100.0_f32, x[N + 100], 0.0_f32)",
        "if x[i] < 100.0_f32 { y[i] = select(index(N) > index(5000), x[i // 2 + N + 100], 1.0_f32) }",
        "if x[i] < 100.0_f32 { y[i] = select(index(N) > index(5000), x[i + N + 100], 1.0_f32) }",
        "if x[i] < 100.0_f32 { y[i] = select(index(N) > index(5000), x[N + 100], 1.0_f32) }",
        "y[i] = select(index(N) > index(5000), select(x[i] < 100.0_f32, x[i // 2 + N + 100], 2.0_f32), 1.0_f32)",
        "y[i] = select(index(N) > index(5000), select(x[i] < 100.0_f32, x[N + 100], 2.0_f32), 1.0_f32)",
    ],
)
def test_nothing_outside_the_arrays_is_touched(body: str, n: int, side: Side) -> None:
    lane = re.sub(r"\bi\b", "(16*io + l)", body)
    loops = f"for io in 0 .. (N + 15) // 16 {{ for l in 0 .. min(16, N - 16*io) vector 16 {{ {lane} }} }}"
    function = parse(f"func f(N)(x: f32[N], out y: f32[N]) {{ {loops} }}")
    for target in LEVELS:
        x, y = walled(values("f32", n), side), walled(np.zeros(n, np.float32), side)
        assert run_native(function, {"N": n}, {"x": x, "y": y}, target) == 0


def test_an_empty_vector_loop_reads_nothing_that_its_lanes_share() -> None:
    text = """func f(N)(x: f32[N], out y: f32[64]) { for o in 0 .. 2 unroll 2 {
        for i in 16*o .. min(16*o + 16, N) vector 16 { y[i] = x[16*o] y[63] = y[63] + x[i] } } }"""
    x = walled(np.arange(16, dtype=np.float32))
    check(text, {"N": 16}, x=x, y=np.zeros(64, np.float32))
    assert run_native(parse(text), {"N": 16}, {"x": x, "y": np.zeros(64, np.float32)}, host()) == 0


@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_strided_reads_stay_between_their_first_and_last_element(stride: int) -> None:
    text = f"func f()(x: f32[{15 * stride + 1}], out y: f32[16]) {{ for i in 0 .. 16 vector 16 {{ y[i] = x[{stride}*i] }} }}"
    data = values("f32", 15 * stride + 1)
    for side in SIDES:
        y = np.zeros(16, np.float32)
        for target in LEVELS:
            assert run_native(parse(text), {}, {"x": walled(data, side), "y": y}, target) == 0
            np.testing.assert_array_equal(y, data[::stride])


@pytest.mark.parametrize("stride", [2, 3, 4, 5])
@pytest.mark.parametrize("target", LEVELS)
def test_strided_reads_of_the_first_lanes_end_with_the_last_of_them(stride: int, target: Target) -> None:
    text = f"func f(N)(x: f32[{stride}*N], out y: f32[N]) {{ for i in 0 .. N vector 16 {{ y[i] = x[{stride}*i] }} }}"
    function = parse(text)
    for count in (0, 1, 2, 7, 15, 16):
        data = values("f32", max(0, stride * (count - 1) + 1))
        for side in SIDES:
            y = np.zeros(count, np.float32)
            assert run_native(function, {"N": count}, {"x": walled(data, side), "y": y}, target) == 0
            np.testing.assert_array_equal(y, data[::stride])
    if stride < 5:
        assert "gather" not in emit(function, host())


@pytest.mark.parametrize(("stride", "window"), [(2, 1), (2, 2), (2, 3), (2, 5), (3, 3), (3, 4), (4, 3)])
def test_copies_that_read_beside_each_other_read_nothing_beyond_what_they_need(stride: int, window: int) -> None:
    loops = f"for r in 0 .. {window} unroll {window} {{ for i in 0 .. N vector 16 {{ y[i] = y[i] + x[{stride}*i + r] }} }}"
    function = parse(f"func f(N)(x: f32[{stride}*N + {window}], out y: f32[N]) {{ {loops} }}")
    for target in (LEVELS[0], host()):
        for count in (0, 1, 7, 16):
            data = values("f32", count and stride * (count - 1) + window)
            for side in SIDES:
                x, y = walled(data, side), walled(np.zeros(count, np.float32), side)
                assert run_native(function, {"N": count}, {"x": x, "y": y}, target) == 0
                np.testing.assert_allclose(y, [data[stride * i :][:window].sum() for i in range(count)], rtol=1e-5)


@pytest.mark.parametrize("other", ["if index(r) < index(N) { for i in 0 .. 16 LANES }", "for i in 0 .. min(16 * N - r, 16) LANES"])
def test_copies_read_nothing_beside_each_other_that_they_read_only_in_another_loop(other: str) -> None:
    read = "vector 16 { y[OTHER, r, i] = x[2*i + r] }"
    loops = f"for i in 0 .. 8 {read.replace('OTHER', '0')} {other.replace('LANES', read.replace('OTHER', '1'))}"
    function = parse(f"func f(N)(x: f32[31], out y: f32[2, 2, 16]) {{ for r in 0 .. 2 unroll 2 {{ {loops} }} }}")
    x = walled(values("f32", 31), "high")
    for target in (LEVELS[0], host()):
        y, expected = np.zeros((2, 2, 16), np.float32), np.zeros((2, 2, 16), np.float32)
        assert run_native(function, {"N": 1}, {"x": x, "y": y}, target) == interp.run(function, {"N": 1}, {"x": x, "y": expected}) == 0
        np.testing.assert_array_equal(y, expected)


def test_copies_of_a_window_load_what_lies_between_each_other_once() -> None:
    window = "for r in 0 .. 2 unroll 2 { for i in 0 .. 16 vector 16 { y[r, i] = x[2*i + r + 1] } }"
    text = emit(parse(f"func f()(x: f32[40], out y: f32[2, 16]) {{ {window} }}"), host())
    assert len(re.findall(r"= load <\d+ x float>", text)) == 2


def test_registers_addressed_from_a_lane_of_its_own_length_are_unrolled() -> None:
    text = """func f()(x: f32[5], out y: f32[3]) {
        for i in 0 .. 3 vector 3 {
            alloc t: f32[3] registers
            t[0] = 0.0_f32 t[1] = 0.0_f32 t[2] = 0.0_f32
            for j in max(0, 1 - i) .. min(3, 4 - i) unroll 3 { t[j] = x[i + j] }
            y[i] = t[0] + 2.0_f32 * t[1] + 4.0_f32 * t[2]
        } }"""
    check(text, {}, x=np.arange(5, dtype=np.float32), y=np.zeros(3, np.float32))


def test_errors_name_what_is_not_supported() -> None:
    with pytest.raises(EmitError, match="`t` is in registers, so its index must be a constant once unrolled"):
        emit(parse("func f()(x: f32[4], out y: f32[4]) { alloc t: f32[4] registers for i in 0 .. 4 { t[i] = x[i] } }"), host())
    with pytest.raises(CompileError):
        compile_object("define nonsense", host())


# ---------------------------------------------------------------- threads


@pytest.fixture
def all_threads():
    before = pool.threads()
    yield
    pool.set_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_the_result_does_not_depend_on_the_number_of_threads(threads: int, all_threads: None) -> None:
    used = pool.set_threads(threads)
    assert 1 <= used <= pool.available_threads() and pool.threads() == used
    x = np.arange(100 * 64, dtype=np.float32).reshape(100, 64) % 7
    y = np.zeros(100, np.float32)
    for _ in range(50):
        y[:] = 0
        assert run_native(parse(ROWS), {"N": 100}, {"x": x, "y": y}, host(), used) == 0
        np.testing.assert_array_equal(y, x.sum(1))


def test_python_threads_may_run_kernels_at_once() -> None:
    native(parse(ROWS), host())
    wrong = []

    def work(seed: int) -> None:
        x = (values("f32", 64 * 33, seed) > 0).astype(np.float32).reshape(33, 64)
        for _ in range(100):
            y = np.zeros(33, np.float32)
            run_native(parse(ROWS), {"N": 33}, {"x": x, "y": y}, host())
            if not np.array_equal(y, x.sum(1)):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_forked_child_runs_parallel_loops_and_so_does_its_parent() -> None:
    x, y = np.ones((40, 64), np.float32), np.zeros(40, np.float32)
    run_native(parse(ROWS), {"N": 40}, {"x": x, "y": y}, host())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        y[:] = 0
        run_native(parse(ROWS), {"N": 40}, {"x": x, "y": y}, host())
        os.write(writer, b"1" if (y == 64).all() else b"0")
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    assert os.waitpid(child, 0)[1] == 0
    y[:] = 0
    run_native(parse(ROWS), {"N": 40}, {"x": x, "y": y}, host())
    assert (y == 64).all()


def test_the_interpreter_exits_cleanly_with_workers_running() -> None:
    script = f"""
        import sys; sys.path[:0] = {[str(Path(__file__).parents[k]) for k in range(3)]!r}
        import numpy as np
        from llvm_run import run_native
        from codegen.llvm.target import host
        from codegen.loops.parser import parse
        y = np.zeros(40, np.float32)
        run_native(parse({ROWS!r}), {{"N": 40}}, {{"x": np.ones((40, 64), np.float32), "y": y}}, host())
        print(y.sum())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "2560.0"), done.stderr


# ---------------------------------------------------------------- programs and calls


def test_a_program_runs_its_calls_in_order_over_one_arena() -> None:
    add = parse("func add()(x: f32[8], y: f32[8], out z: f32[8]) { for i in 0 .. 8 vector 8 { z[i] = x[i] + y[i] } }")
    calls = (
        KernelCall("scale", (Slot(1), Slot(2, 64)), (8,)),
        KernelCall("add", (Slot(1), Slot(2, 64), Slot(2, 128))),
        KernelCall("scale", (Slot(2, 128), Slot(0)), (8,)),
    )
    program = Program(calls)
    texts = [emit(parse(SCALE), host()), emit(add, host()), emit_program(program, host()), emit_program(program, host(), timed=True)]
    library = load([compile_object(text, host()) for text in texts])
    x, z, arena, times = np.arange(8, dtype=np.float32), np.zeros(8, np.float32), np.zeros(64, np.float32), np.zeros((3, 2), np.int64)
    bases = (ctypes.c_void_p * 3)(z.ctypes.data, x.ctypes.data, arena.ctypes.data)
    assert ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address("run"))(ctypes.addressof(bases)) == 0
    np.testing.assert_array_equal(z, 6 * x)
    z[:] = 0
    timed = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address("run_timed"))
    assert timed(ctypes.addressof(bases), times.ctypes.data) == 0
    np.testing.assert_array_equal(z, 6 * x)
    assert (np.diff(times.reshape(-1)) >= 0).all() and times[0, 0] > 0 and times[2, 1] - times[0, 0] < 10**9


def test_what_one_call_alone_counts_from_is_loaded_where_it_is_made() -> None:
    """The bases of a thousand calls would not fit into registers while one after the other runs."""
    program = Program((KernelCall("scale", (Slot(1), Slot(2, 64)), (8,)), KernelCall("scale", (Slot(2, 64), Slot(0)), (8,))))
    written = emit_program(program, host())
    made = written.index("%c0.r = call")
    assert [written.index(f"%b{base} = load") < made for base in (2, 1, 0)] == [True, True, False]


@pytest.mark.parametrize(("outer", "inner"), [(0, 3), (1, 1), (2, 3), (5, 0)])
def test_calls_run_again_and_again(outer: int, inner: int) -> None:
    """A repetition doubles what it carries `inner` times, one around it does that `outer` times; both count their turns."""
    double = parse("func double()(x: f32[1], out y: f32[1]) { y[0] = x[0] + x[0] }")
    kept, work, other, turns = Slot(0), Slot(0, 4), Slot(0, 8), Slot(1)
    within = Repetition(
        (KernelCall("double", (Slot(4), Slot(5))),),
        4,
        Slot(1, 16),
        Slot(1, 24),
        Slot(1, 40),
        carried=(Carried(Slot(2), Slot(3), other, 4),),
    )
    around = Repetition((within,), 2, Slot(1, 8), turns, Slot(1, 32), carried=(Carried(Slot(0, 12), kept, work, 4),))
    program = Program((around,))
    assert program.kernel_calls == within.calls
    texts = [emit(double, host()), emit_program(program, host()), emit_program(program, host(), timed=True)]
    library = load([compile_object(text, host()) for text in texts])
    values, counts, times = np.float32([0, 0, 0, 1]), np.asarray([0, 0, 0, 0, outer, inner]), np.zeros((1, 2), np.int64)
    bases = (ctypes.c_void_p * 2)(values.ctypes.data, counts.ctypes.data)
    assert ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address("run"))(ctypes.addressof(bases)) == 0
    assert (values[0], counts[0]) == (2 ** (outer * inner), outer)
    timed = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address("run_timed"))
    assert timed(ctypes.addressof(bases), times.ctypes.data) == 0
    assert 0 < times[0, 0] <= times[0, 1]


def test_repetitions_that_repeat_no_calls_only_count() -> None:
    """Two of them before a call, whose number none of them takes."""
    double = parse("func double()(x: f32[1], out y: f32[1]) { y[0] = x[0] + x[0] }")
    counting = [Repetition((), 2, Slot(1), Slot(1, 8 * k), most=k) for k in (1, 2)]
    program = Program((*counting, KernelCall("double", (Slot(0), Slot(0, 4)))))
    texts = [emit(double, host()), emit_program(program, host()), emit_program(program, host(), timed=True)]
    library = load([compile_object(text, host()) for text in texts])
    values, counts, times = np.float32([3, 0]), np.zeros(3, np.int64), np.zeros((1, 2), np.int64)
    bases = (ctypes.c_void_p * 2)(values.ctypes.data, counts.ctypes.data)
    timed = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address("run_timed"))
    assert timed(ctypes.addressof(bases), times.ctypes.data) == 0
    assert (values[1], counts[1], counts[2]) == (6, 1, 2) and 0 < times[0, 0] <= times[0, 1]


def test_a_call_that_fails_in_a_turn_ends_the_program() -> None:
    checked = parse("func checked()(x: f32[1], out y: f32[1]) { require x[0] > 0.0_f32 else 5 y[0] = x[0] }")
    row = KernelCall("checked", (Slot(2), Slot(0)))
    again = Repetition((row,), 2, Slot(1), Slot(1, 8), most=4, rows=(Rows(Slot(0, 16), 4),))
    program = Program((KernelCall("checked", (Slot(0, 16), Slot(0))), again))
    library = load([compile_object(emit(checked, host()), host()), compile_object(emit_program(program, host()), host())])
    values, counts = np.float32([0, 0, 0, 0, 1, 2, -3, 4]), np.zeros(2, np.int64)
    bases = (ctypes.c_void_p * 2)(values.ctypes.data, counts.ctypes.data)
    result = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address("run"))(ctypes.addressof(bases))
    assert failed_call(result, 2) == (1, 5) and counts[0] == 2 and values[0] == 2


def test_a_size_may_stand_among_the_bases() -> None:
    program = Program((KernelCall("scale", (Slot(0), Slot(1)), (Number(2),)),))
    library = load([compile_object(emit(parse(SCALE), host()), host()), compile_object(emit_program(program, host()), host())])
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address("run"))
    x = np.arange(8, dtype=np.float32)
    for n in (0, 3, 8):
        y = np.full(8, -1, np.float32)
        bases = (ctypes.c_void_p * 3)(x.ctypes.data, y.ctypes.data, n)
        assert run(ctypes.addressof(bases)) == 0
        assert (y[n:] == -1).all() and (y[1:n] > 0).all()


def test_a_program_says_which_call_failed() -> None:
    checked = parse("func checked()(x: f32[1], out y: f32[1]) { require x[0] > 0.0_f32 else 5 y[0] = x[0] }")
    program = Program((KernelCall("checked", (Slot(0), Slot(1))), KernelCall("checked", (Slot(2), Slot(1)))))
    library = load([compile_object(emit(checked, host()), host()), compile_object(emit_program(program, host()), host())])
    good, bad, out = np.ones(1, np.float32), -np.ones(1, np.float32), np.zeros(1, np.float32)
    bases = (ctypes.c_void_p * 3)(good.ctypes.data, out.ctypes.data, bad.ctypes.data)
    result = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address("run"))(ctypes.addressof(bases))
    assert failed_call(result) == (1, 5)


CHECKED = "func checked()(x: f32[1], out y: f32[1]) { require x[0] > 0.0_f32 else 5 y[0] = x[0] + 1.0_f32 }"


@pytest.mark.parametrize("bad", [None, 0, 400, 599])
def test_a_long_program_runs_its_sections_in_order_and_says_which_call_failed(bad: int | None) -> None:
    """Call k adds one to what call k - 1 has made; call `bad` reads a number that it refuses."""
    calls = tuple(KernelCall("checked", (Slot(0, 4 * k), Slot(0, 4 * k + 4))) for k in range(600))
    if bad is not None:
        calls = (*calls[:bad], KernelCall("checked", (Slot(1), Slot(0, 4 * bad + 4))), *calls[bad + 1 :])
    program = Program(calls)
    cuts = sections(program.calls)
    assert len(cuts) > 2 and [k for cut in cuts for k in cut] == list(range(600))
    texts = [emit(parse(CHECKED), host()), emit_program(program, host()), emit_program(program, host(), timed=True)]
    library = load([compile_object(text, host()) for text in texts])
    values, refused, times = np.ones(601, np.float32), -np.ones(1, np.float32), np.zeros((600, 2), np.int64)
    bases = (ctypes.c_void_p * 2)(values.ctypes.data, refused.ctypes.data)
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address("run"))
    timed = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address("run_timed"))
    for result in (run(ctypes.addressof(bases)), timed(ctypes.addressof(bases), times.ctypes.data)):
        assert (result == 0) if bad is None else failed_call(result, len(calls)) == (bad, 5)
        done = 600 if bad is None else bad
        np.testing.assert_array_equal(values[: done + 1], np.arange(1, done + 2))
    assert (times[:done, 1] >= times[:done, 0]).all() and (times[:done] > 0).all() and not times[done + 1 :].any()


@pytest.mark.parametrize(("calls", "arguments"), [(1000, 2), (10_000, 2), (100, 500), (3, 5000)])
def test_no_function_of_an_entry_point_grows_with_the_program(calls: int, arguments: int) -> None:
    program = Program(tuple(KernelCall("f", tuple(Slot(i) for i in range(arguments))) for _ in range(calls)))
    lengths = [text.count("\n") for text in emit_program(program, host()).split("define ")]
    assert max(lengths) <= 10 * (MOST_STORED + arguments)
    assert sum(lengths) <= 10 * calls * (arguments + 2)


@pytest.mark.parametrize("calls", [1, 32_767, 32_768, 1_000_000])
def test_the_number_of_the_last_call_and_its_code_fit_a_result(calls: int) -> None:
    code = (1 << code_bits(calls)) - 1
    result = (calls - 1) << code_bits(calls) | code
    assert failed_call(result, calls) == (calls - 1, code) and result < 1 << 31


def test_two_libraries_may_define_the_same_symbol() -> None:
    first, second = (load([compile_object(emit(parse(f"func f()(out y: i32[1]) {{ y[0] = {n}_i32 }}"), host()), host())]) for n in (1, 2))
    assert first.address("f") != second.address("f")
    with pytest.raises(KeyError, match="no `g` in the loaded objects"):
        first.address("g")


@pytest.fixture(scope="module")
def adder() -> Callable:
    function = parse(
        "func add()(x: f32[2, 3], y: f32[2, 3], out z: f32[2, 3]) { for i in 0 .. 2 { for j in 0 .. 3 { z[i, j] = x[i, j] + y[i, j] } } }"
    )
    program = Program((KernelCall("add", (Slot(1), Slot(2), Slot(0))),))
    library = load([compile_object(emit(function, host()), host()), compile_object(emit_program(program, host()), host())])
    callable_ = Callable(library.address("run"), [Port("x", f32, (2, 3)), Port("y", f32, (2, 3))], [Port("z", f32, (2, 3))])
    callable_.keep = library
    return callable_


def test_a_callable_takes_and_returns_arrays(adder: Callable) -> None:
    x, y = values("f32", 6).reshape(2, 3), values("f32", 6, 1).reshape(2, 3)
    first, second = adder(x, y), adder(y, y)
    np.testing.assert_array_equal(first, x + y)
    np.testing.assert_array_equal(second, y + y)


def test_a_callable_accepts_arrays_that_are_not_dense(adder: Callable) -> None:
    x = values("f32", 24).reshape(4, 6)[::2, ::2]
    np.testing.assert_array_equal(adder(x, x.T.copy().T), x + x)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.zeros((2, 3), np.float32),), "2 arrays are expected, 1 given"),
        ((np.zeros((2, 3), np.float32), np.zeros((2, 3))), "`y` must have element type float32, not float64"),
        ((np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32)), r"`x` must have shape \(2, 3\), not \(2, 4\)"),
        (([1.0], np.zeros((2, 3), np.float32)), "`x` must be a NumPy array, not list"),
    ],
)
def test_a_callable_says_which_argument_does_not_fit(adder: Callable, arrays: tuple, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        adder(*arrays)


def test_the_failure_of_a_kernel_becomes_the_exception_asked_for() -> None:
    function = parse("func f()(x: i32[1], out y: i32[1]) { require x[0] > 0_i32 else 4 y[0] = x[0] }")
    program = Program((KernelCall("f", (Slot(1), Slot(0))),))
    library = load([compile_object(emit(function, host()), host()), compile_object(emit_program(program, host()), host())])
    positive = Callable(
        library.address("run"), [Port("x", i32, (1,))], [Port("y", i32, (1,))], failure=lambda code: ValueError(f"code {code}")
    )
    assert positive(np.ones(1, np.int32)) == 1
    with pytest.raises(ValueError, match="code 4"):
        positive(np.zeros(1, np.int32))


# ---------------------------------------------------------------- cache


def test_the_cache_returns_what_was_stored(tmp_path: Path) -> None:
    store = Cache(tmp_path)
    key = cache_key(["a", b"b"], host())
    assert store.get(key) is None
    assert store.put(key, b"object") is None
    assert Cache(tmp_path).get(key) == b"object"


def test_keys_differ_by_parts_order_and_target() -> None:
    keys = {
        cache_key(["ab", "c"], host()),
        cache_key(["a", "bc"], host()),
        cache_key(["c", "ab"], host()),
        cache_key(["ab", "c"], named("aarch64")),
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d[:10], lambda d: b"", lambda d: d[:-1] + bytes([d[-1] ^ 1]), lambda d: b"x" + d[1:]]
)
def test_a_damaged_entry_is_a_miss_and_can_be_replaced(tmp_path: Path, damage) -> None:
    store = Cache(tmp_path)
    store.put("k" * 64, b"object")
    (path,) = tmp_path.glob("*/*.o")
    path.write_bytes(damage(path.read_bytes()))
    assert store.get("k" * 64) is None
    store.put("k" * 64, b"object")
    assert store.get("k" * 64) == b"object"


def test_an_entry_under_the_name_of_another_is_a_miss(tmp_path: Path) -> None:
    store = Cache(tmp_path)
    store.put("k" * 64, b"object")
    store.put("l" * 64, b"another")
    (tmp_path / "kk" / f"{'k' * 64}.o").replace(tmp_path / "ll" / f"{'l' * 64}.o")
    assert store.get("l" * 64) is None


def test_a_directory_that_cannot_be_written_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Cache(tmp_path / "file")
    with pytest.warns(UserWarning, match=r"compiled code is not kept: cannot write to the cache in .*/file: \w+"):
        assert "cannot write to the cache in" in (store.put("k" * 64, b"1") or "")
    assert store.put("k" * 64, b"1") is None
    assert store.get("k" * 64) is None


def test_what_others_may_have_written_is_not_read(tmp_path: Path) -> None:
    store = Cache(tmp_path)
    store.put("k" * 64, b"object")
    (path,) = tmp_path.glob("*/*.o")
    path.chmod(0o666)
    assert store.get("k" * 64) is None
    path.chmod(0o600)
    assert store.get("k" * 64) == b"object"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.get("k" * 64) is None


def test_a_pipe_in_the_place_of_an_entry_is_a_miss_and_nobody_waits_for_it(tmp_path: Path) -> None:
    store = Cache(tmp_path)
    store.put("k" * 64, b"object")
    (path,) = tmp_path.glob("*/*.o")
    path.unlink()
    os.mkfifo(path)
    assert store.get("k" * 64) is None


def test_nobody_else_can_write_to_the_directories_of_a_cache(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Cache(tmp_path / "new" / "cache").put("k" * 64, b"object")
    finally:
        os.umask(before)
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {p.name for p in made} == {"new", "cache", ".size", "kk", "k" * 64 + ".o"}
    assert not any(p.stat().st_mode & 0o022 for p in made)


def test_a_directory_that_others_can_write_to_is_not_used_and_warned_of_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    store = Cache(tmp_path)
    with pytest.warns(UserWarning, match="can be written by others: `chmod go-w` it"):
        assert "cannot write to the cache" in (store.put("k" * 64, b"1") or "")
    assert store.put("k" * 64, b"1") is None
    assert list(tmp_path.iterdir()) == []


def test_the_environment_chooses_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "here"))
    assert Cache().directory == tmp_path / "here"


def _hammer(directory: Path, seed: int) -> None:
    store = Cache(directory)
    for i in range(150):
        store.put("k" * 64, bytes([i % 251]) * 5000)
        found = store.get("k" * 64)
        if found is None or found != bytes([found[0]]) * 5000:
            raise SystemExit(1)


def test_processes_that_race_for_an_entry_see_whole_ones(tmp_path: Path) -> None:
    workers = [multiprocessing.get_context("spawn").Process(target=_hammer, args=(tmp_path, seed)) for seed in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert not list(tmp_path.glob("*/.new-*"))


# ---------------------------------------------------------------- probes


def test_probes_measure_something() -> None:
    assert fma_flops(f32, seconds=0.001) > 0
    assert fma_flops(f64, threads=2, seconds=0.001) > 0
    assert read_bandwidth(1 << 14, seconds=0.001) > 0
    assert copy_bandwidth(1 << 14, stream=True, seconds=0.001) > 0
    assert read_bandwidth(1 << 14, threads=2, seconds=0.001) > 0
    assert copy_bandwidth(1 << 14, threads=2, seconds=0.001) > 0


def test_a_machine_that_fuses_nothing_is_measured_by_what_its_kernels_do() -> None:
    """Rounding once without the instruction takes many others: kernels multiply and add."""
    assert {n: "fma(" in show(fma_kernel(f32, named(n), 12, 1)) for n in ("x86-64", "x86-64-v3")} == {"x86-64": False, "x86-64-v3": True}


def test_code_for_which_no_mapping_of_memory_is_left_is_refused_before_it_is_loaded(most_mappings: abc.Callable[[int], None]) -> None:
    code = compile_object("define i32 @f() { ret i32 3 }", host())
    most_mappings(8200)
    with pytest.raises(MemoryError, match=r"loaded code takes \d+ mappings of memory, of 8200 that vm.max_map_count allows a process"):
        load([code])
    most_mappings(4000000)
    assert load([code]).address("f")

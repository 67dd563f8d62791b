"""Built-in functions over native code: what fits is run at once, what does not is handed back untouched, and nothing is leaked."""

import gc
import sys
import threading

import numpy as np
import pytest

from codegen.dtypes import DTYPES, f32, i32
from codegen.llvm.call import Callable, Port
from codegen.llvm.emit import emit
from codegen.llvm.jit import compile_object, load
from codegen.llvm.program import KernelCall, Program, Slot, emit_program
from codegen.llvm.scratch import ALIGN, Scratch
from codegen.llvm.stub import taken
from codegen.llvm.target import host
from codegen.loops.parser import parse

_LIBRARIES: list[object] = []


def callable_of(text: str, inputs: list[Port], outputs: list[Port], scratch_bytes: int = 0, scratch: Scratch | None = None) -> Callable:
    """Return the function whose parameters are `inputs` and then `outputs`."""
    function = parse(text)
    n = len(outputs)
    slots = (*(Slot(n + k) for k in range(len(inputs))), *map(Slot, range(n)))
    workspace = Slot(n + len(inputs)) if scratch_bytes else None
    program = Program((KernelCall(function.name, slots, (), workspace),))
    library = load([compile_object(text, host()) for text in (emit(function, host()), emit_program(program, host()))])
    _LIBRARIES.append(library)
    return Callable(library.address("run"), inputs, outputs, scratch_bytes=scratch_bytes, scratch=scratch)


@pytest.fixture(scope="module")
def both() -> Callable:
    text = """func both()(x: f32[2, 3], n: i32[2], out s: f32[2, 3], out m: i32[2]) {
        for i in 0 .. 2 { m[i] = n[i] + 1_i32 for j in 0 .. 3 { s[i, j] = x[i, j] * 2.0_f32 } } }"""
    return callable_of(text, [Port("x", f32, (2, 3)), Port("n", i32, (2,))], [Port("s", f32, (2, 3)), Port("m", i32, (2,))])


X, N = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([3, 4], np.int32)


def test_results_come_in_a_tuple_or_by_name(both: Callable) -> None:
    s, m = both.quick(X, N)
    named = both.by_name({"n": N, "x": X})
    assert list(named) == ["s", "m"] and s.flags.owndata and m.dtype == np.int32
    for found in (s, named["s"]):
        np.testing.assert_array_equal(found, X * 2)
    for found in (m, named["m"]):
        np.testing.assert_array_equal(found, N + 1)


def test_a_number_is_an_array_without_axes() -> None:
    one = callable_of("func one()(x: f32[], out y: f32[]) { y[] = x[] + 1.0_f32 }", [Port("x", f32, ())], [Port("y", f32, ())])
    found = one.quick(np.array(2, np.float32))
    assert found == 3 and found.shape == () and type(found) is np.ndarray


NUMBERS = {
    "f32": [
        (np.float32(1.5), 1.5),
        (1.5, 1.5),
        (np.float64(0.1), np.float32(0.1)),
        (3, 3),
        (2**60 + 1, 2**60),
        (1e39, None),
        (-np.inf, -np.inf),
    ],
    "f64": [(np.float64(0.1), 0.1), (0.1, 0.1), (-7, -7), (2**63, None), (np.float32(1), None), (np.nan, np.nan), (True, None)],
    "i8": [(np.int8(-3), -3), (-128, -128), (127, 127), (128, None), (-129, None), (2**70, None), (1.0, None), (np.int16(1), None)],
    "u16": [(np.uint16(7), 7), (65535, 65535), (65536, None), (-1, None)],
    "i64": [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1), (2**63, None)],
    "u64": [(2**63 - 1, 2**63 - 1), (-1, None), (np.uint64(2**64 - 1), 2**64 - 1)],
    "bool": [(np.True_, True), (True, None), (1, None)],
    "f16": [(np.float16(0.5), 0.5), (0.5, None)],
}


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_are_taken_as_their_type_holds_them(dtype: str) -> None:
    type_, text = DTYPES[dtype], f"func one()(x: {dtype}[], out y: {dtype}[]) {{ y[] = x[] }}"
    one = callable_of(text, [Port("x", type_, ())], [Port("y", type_, ())])
    quick = one.quick_for_numbers([True])
    for given, expected in NUMBERS[dtype]:
        found = quick(given)
        if expected is None:
            assert found is NotImplemented, given
        else:
            np.testing.assert_array_equal(found, np.array(expected, type_.numpy))
        assert one.quick(given) is NotImplemented
    assert quick(np.array(1, type_.numpy)) == 1 and quick(np.ones(1, type_.numpy)) is NotImplemented and quick("1") is NotImplemented


def test_numbers_of_a_type_that_is_given_are_those_of_numpy() -> None:
    text = "func one()(x: {0}[], out y: {0}[]) {{ y[] = x[] }}"
    single, double = (
        callable_of(text.format(t), [Port("x", DTYPES[t], ())], [Port("y", DTYPES[t], ())]).quick_for_numbers([False])
        for t in ("f32", "f64")
    )
    assert single(np.float32(2)) == 2 and single(2.0) is NotImplemented and single(2) is NotImplemented
    assert double(np.float64(2)) is NotImplemented  # it is a float of Python, too, and these are f32 there


class Mine(np.ndarray):
    pass


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (X,),
        (X, N, N),
        (X.tolist(), N),
        (None, N),
        (X.astype(np.float64), N),
        (X[:, ::-1], N),
        (X.T.copy().T, N),
        (X[:1], N),
        (X.reshape(3, 2), N),
        (X.reshape(6), N),
        (X[None], N),
        (X.view(Mine), N),
        (X.astype(">f4"), N),
        (np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3), N),
        (X, 3),
    ],
)
def test_what_is_not_just_as_expected_is_handed_back(both: Callable, arguments: tuple) -> None:
    assert both.quick(*arguments) is NotImplemented
    assert both.by_name(dict(zip(("x", "n", "k"), arguments, strict=False))) is NotImplemented


class Feeds(dict):
    pass


@pytest.mark.parametrize("feeds", [None, [X, N], {}, {"x": X}, {"x": X, "m": N}, {"x": X, "n": N, "k": N}, Feeds(x=X, n=N), {1: X, 2: N}])
def test_feeds_that_are_not_just_as_expected_are_handed_back(both: Callable, feeds: object) -> None:
    assert both.by_name(feeds) is NotImplemented


def test_references_are_given_back(both: Callable) -> None:
    feeds = {"x": X, "n": N}
    watched = (X, N, X.dtype, N.dtype, NotImplemented, *feeds)

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(o) for o in watched]

    both.quick(X, N), both.by_name(feeds), both.quick(X), both.by_name({"x": X, "n": X})
    before = counts()
    for _ in range(100):
        both.quick(X, N), both.by_name(feeds), both.quick(X), both.by_name({"x": X, "n": X}), both.by_name({"x": X})
    assert counts() == before


def test_results_belong_to_the_caller_alone(both: Callable) -> None:
    found = both.by_name({"x": X, "n": N})
    assert [sys.getrefcount(found[name]) for name in found] == [2, 2]


@pytest.mark.parametrize("name", sorted(n for n, d in DTYPES.items() if d.numpy is not None))
def test_every_element_type_goes_through(name: str) -> None:
    dtype = DTYPES[name]
    copy = callable_of(
        f"func copy()(x: {name}[5], out y: {name}[5]) {{ for i in 0 .. 5 {{ y[i] = x[i] }} }}",
        [Port("x", dtype, (5,))],
        [Port("y", dtype, (5,))],
    )
    x = np.array([0, 1, 1, 0, 1]).astype(dtype.numpy)
    found = copy(x)
    assert found.dtype == dtype.numpy
    np.testing.assert_array_equal(found, x)


def slow(n: int, scratch: Scratch | None = None) -> Callable:
    """Return a function of `n` numbers that adds 2000 to each, in scratch memory, one by one."""
    text = f"""func slow()(x: i32[{n}], out y: i32[{n}]) {{
        alloc t: i32[{n}] heap align 64
        for i in 0 .. {n} {{ t[i] = x[i] }}
        for k in 0 .. 2000 {{ for i in 0 .. {n} {{ t[i] = t[i] + 1_i32 }} }}
        for i in 0 .. {n} {{ y[i] = t[i] }} }}"""
    return callable_of(text, [Port("x", i32, (n,))], [Port("y", i32, (n,))], 4 * n, scratch)


def test_scratch_memory_that_functions_share_grows_to_the_largest() -> None:
    scratch = Scratch()
    small, large = slow(64, scratch), slow(256, scratch)
    for function, n in ((small, 64), (large, 256), (small, 64)):
        np.testing.assert_array_equal(function(np.zeros(n, np.int32)), 2000)
        assert scratch.place[1] >= 4 * n and scratch.place[0] % ALIGN == 0
    assert scratch.place[1] == 4 * 256
    assert small.quick(np.zeros(64, np.int32)) is not NotImplemented


def test_scratch_memory_that_a_call_has_stays_as_it_is() -> None:
    scratch = Scratch()
    small, large = slow(64, scratch), slow(256, scratch)
    small(np.zeros(64, np.int32))
    address = taken(scratch.place)
    np.testing.assert_array_equal(large(np.zeros(256, np.int32)), 2000)  # in memory of its thread's own
    assert list(scratch.place) == [0, 4 * 64]
    scratch.place[0] = address
    large(np.zeros(256, np.int32))
    assert scratch.place[1] == 4 * 256


def test_threads_that_want_the_same_scratch_memory_get_their_own() -> None:
    scratch, wrong = Scratch(), list[int]()
    functions = {n: slow(n, scratch) for n in (64, 128)}

    def work(start: int) -> None:
        for turn in range(50):
            n = 64 << (turn + start) % 2
            if not (functions[n](np.full(n, start, np.int32)) == start + 2000).all():
                wrong.append(start)

    workers = [threading.Thread(target=work, args=(10_001 * k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_memory_goes_with_the_last_function_that_needs_it(both: Callable) -> None:
    one = callable_of(
        "func one()(x: f32[2], out y: f32[2]) { for i in 0 .. 2 { y[i] = x[i] } }", [Port("x", f32, (2,))], [Port("y", f32, (2,))]
    )
    quick = one.quick
    del one
    gc.collect()
    np.testing.assert_array_equal(quick(np.ones(2, np.float32)), 1)


def both_results() -> tuple[np.ndarray, np.ndarray]:
    return np.full((2, 3), -1, np.float32), np.full(2, -1, np.int32)


def test_results_are_written_into_arrays_that_are_given(both: Callable) -> None:
    s, m = both_results()
    found = both.into((s, m), (X, N))
    assert found[0] is s and found[1] is m
    np.testing.assert_array_equal(s, X * 2)
    np.testing.assert_array_equal(m, N + 1)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


S, M = both_results()
ROOM = np.zeros(12, np.int32)


@pytest.mark.parametrize(
    "arguments",
    [
        (S, M, X),
        (S, M, X, N, N),
        (read_only(S.copy()), M, X, N),
        (S, read_only(M.copy()), X, N),
        (X.copy().T, M, X, N),
        (S, M.astype(np.int64), X, N),
        (S.tolist(), M, X, N),
        (X, M, X, N),
        (S, N, X, N),
        (ROOM[:6].view(np.float32).reshape(2, 3), ROOM[5:7], X, N),
        (ROOM[:6].view(np.float32).reshape(2, 3), M, X, ROOM[:2]),
        (ROOM[:6].view(np.float32).reshape(2, 3), M, ROOM[5:11].view(np.float32).reshape(2, 3), N),
    ],
)
def test_results_that_do_not_fit_or_share_memory_are_handed_back(both: Callable, arguments: tuple) -> None:
    assert both.writes(*arguments) is NotImplemented


def test_results_may_lie_side_by_side_and_beside_what_is_read(both: Callable) -> None:
    room = np.zeros(16, np.int32)
    s, m, n = room[:6].view(np.float32).reshape(2, 3), room[6:8], room[8:10]
    n[:] = N
    assert both.writes(s, m, X, n)[1] is m
    np.testing.assert_array_equal(m, N + 1)
    np.testing.assert_array_equal(s, X * 2)


def test_references_to_given_results_are_given_back(both: Callable) -> None:
    watched = both_results()

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(o) for o in watched]

    both.into(watched, (X, N)), both.writes(*watched, X)
    before = counts()
    for _ in range(100):
        both.into(watched, (X, N)), both.writes(*watched, X), both.writes(watched[0], N, X, N)
    assert counts() == before

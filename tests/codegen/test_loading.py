"""Code finds a place wherever memory is free: what one object refers to lies at most 2 GiB away, and what others hold may lie anywhere."""

import subprocess
import sys
import textwrap
from pathlib import Path

from codegen.llvm.jit import compile_object
from codegen.llvm.target import host

ROOT = Path(__file__).parents[2]
TABLE = """@table = private unnamed_addr constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]
define float @entry(i64 %i) {
  %p = getelementptr [4 x float], ptr @table, i64 0, i64 %i
  %v = load float, ptr %p
  ret float %v
}
"""
CALLER = """declare i64 @half(i64)
define i64 @rest(i64 %i) {
  %h = call i64 @half(i64 %i)
  %r = sub i64 %i, %h
  ret i64 %r
}
"""
CALLED = "define i64 @half(i64 %i) {\n  %h = lshr i64 %i, 1\n  ret i64 %h\n}\n"
HOLES = """
    import ctypes, mmap, sys
    sys.path.insert(0, {root!r})
    from codegen.llvm.jit import load
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    PAGE, NOTHING, PRIVATE, ANONYMOUS, NORESERVE = mmap.PAGESIZE, 0, 2, 0x20, 0x4000

    def reserved(size):
        address = libc.mmap(None, size, NOTHING, PRIVATE | ANONYMOUS | NORESERVE, -1, 0)
        assert address != ctypes.c_void_p(-1).value
        return address

    def objects(*names):
        return [open(name, "rb").read() for name in names]

    load(objects(sys.argv[1])).address(sys.argv[2])  # what the first library takes for itself
    below = reserved(6 << 30)
    above = []
    while (page := reserved(PAGE)) > below:
        above.append(page)
    pairs = [page for page in above if page + PAGE in set(above)]
"""
"""Free holes of single pages in the child's memory, and everything else 6 GiB further down."""


def run_among_holes(tmp_path: Path, script: str, *texts: str, symbol: str) -> None:
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}.o")
        files[-1].write_bytes(compile_object(text, host()))
    whole = textwrap.dedent(HOLES).format(root=str(ROOT)) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", whole, str(files[0]), symbol, *map(str, files[1:])], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_code_and_its_constants_stay_together(tmp_path: Path) -> None:
    run_among_holes(
        tmp_path,
        """
        kept = []
        for _ in range(8):
            libc.munmap(above.pop(len(above) // 2), PAGE)
            kept.append(load(objects(sys.argv[1])))
            entry = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(kept[-1].address("entry"))
            assert [entry(i) for i in range(4)] == [1, 2, 3, 4]
        print("right")
        """,
        TABLE,
        symbol="entry",
    )


def test_objects_that_call_each_other_may_lie_far_apart(tmp_path: Path) -> None:
    run_among_holes(
        tmp_path,
        """
        libc.munmap(pairs[len(pairs) // 2], 2 * PAGE)
        library = load(objects(*sys.argv[1::2]))
        rest, half = library.address("rest"), library.address("half")
        assert abs(rest - half) > 1 << 31, (rest, half)
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(rest)(9) == 5
        print("right")
        """,
        CALLED,
        CALLER,
        symbol="half",
    )

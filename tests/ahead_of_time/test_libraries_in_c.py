"""C calls what was compiled ahead of time: right calls give the right bits, wrong ones a result and a text, and neither leaves its arrays.

The driver is built with AddressSanitizer and the checks of undefined behaviour. These take gcc and g++, as tests of kernel text do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tensorlang as tl
from codegen.elf.objects import ObjectError, archive, data_object, merged, parse, written
from codegen.llvm.jit import compile_object
from codegen.llvm.target import named

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "ahead_of_time"
LIBRARIES = {"net": "net", "open": "open_net", "pick": "pick", "product": "product"}
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")


def built(compiler: str, *arguments: str | Path) -> None:
    done = subprocess.run([compiler, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def ran(*arguments: str | Path) -> str:
    done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_driver_calls_four_libraries_rightly_and_wrongly(folder: Path, tmp_path: Path) -> None:
    includes = [f"-I{folder / place}" for place in LIBRARIES]
    archives = [folder / place / f"lib{name}.a" for place, name in LIBRARIES.items()]
    checks = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    built("gcc", "-std=c11", *STRICT, *checks, *includes, HERE / "driver.c", *archives, "-lpthread", "-ldl", "-o", tmp_path / "driver")
    given = (folder / "net" / "net.weights", folder / "product" / "libproduct.so")
    found = np.array(ran(tmp_path / "driver", *given).split(), np.float32)
    image = (np.arange(384) % 17 - 8).astype(np.float32).reshape(2, 3, 8, 8)
    np.testing.assert_array_equal(found, tl.load_model(folder / "net")(image).ravel())


@pytest.fixture(scope="module")
def blur(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library of the examples, for processors of every kind."""
    operator = tl.load(EXAMPLES / "blur.tl").blur
    most = {"H": 4096, "W": 4096}
    folder = tmp_path_factory.mktemp("examples") / "blur"
    return operator.save(folder, {"image": np.zeros((64, 64), np.float32)}, symbolic=True, max=most, targets="x86-64", threads=2)


def test_the_example_in_c_runs_linked_either_way(blur: Path, tmp_path: Path) -> None:
    for kind, rest in (("archive", [blur / "libblur.a", "-lpthread"]), ("shared", [f"-L{blur}", "-lblur", f"-Wl,-rpath,{blur}"])):
        built("gcc", "-std=c11", *STRICT, f"-I{blur}", EXAMPLES / "main.c", *rest, "-o", tmp_path / kind)
        assert ran(tmp_path / kind, "20", "30") == "18 x 28, sum 7308, x86-64\n"
        refused = subprocess.run([tmp_path / kind, "-1", "30"], capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stderr) == (1, "sizes: the size `H` is not between 0 and 4096\n")


def test_the_example_in_cpp_runs(blur: Path, tmp_path: Path) -> None:
    built("g++", "-std=c++17", *STRICT, f"-I{blur}", EXAMPLES / "main.cpp", blur / "libblur.a", "-lpthread", "-o", tmp_path / "main")
    assert ran(tmp_path / "main").splitlines() == ["475398", "960498", "1445598", "1930698", "the size `H` is not between 0 and 4096"]


@pytest.mark.parametrize("compiler", ["gcc -std=c89", "g++ -std=c++98 -Wzero-as-null-pointer-constant", "g++ -std=c++20"])
def test_headers_are_of_every_standard(folder: Path, tmp_path: Path, compiler: str) -> None:
    (tmp_path / "all.c").write_text("".join(f'#include "{folder / place / name}.h"\n' for place, name in LIBRARIES.items()))
    language = "c++" if compiler.startswith("g++") else "c"
    built(*compiler.split(), *STRICT, "-Wconversion", "-Wundef", "-fsyntax-only", "-x", language, tmp_path / "all.c")


def test_names_that_are_words_of_c_or_none_at_all_make_a_header_that_compiles(tmp_path: Path) -> None:
    odd = tl.parse(
        "op `a */ b`(restrict: f32[N], class: f32[N], `1 2`: f32[N], `é`: f32[N]) -> (`new`: f32[N]) { `new`[i] = restrict[i] + "
        "class[i] + `1 2`[i] + `é`[i] }"
    )["a */ b"]
    x = np.ones(3, np.float32)
    folder = odd.save(tmp_path / "odd", {"restrict": x, "class": x, "1 2": x, "é": x}, symbolic=True, targets="x86-64")
    [header] = folder.glob("*.h")
    for compiler, language in (("gcc", "c"), ("g++", "c++")):
        built(compiler, *STRICT, "-fsyntax-only", "-x", language, header)
    np.testing.assert_array_equal(tl.load_model(folder)(x, x, x, x), 4 * x)


# ---------------------------------------------------------------- objects


def code(text: str) -> bytes:
    target = named("x86-64")
    return compile_object(f'target triple = "{target.triple}"\n{text}', target)


def test_merged_objects_bind_what_they_need_of_each_other_and_hide_the_rest() -> None:
    caller = parse(code("declare i32 @inner()\ndeclare i32 @far()\ndefine i32 @outer() { %r = call i32 @inner() ret i32 %r }"))
    callee = parse(code("declare i32 @far()\ndefine i32 @inner() { %r = call i32 @far() ret i32 %r }"))
    made = merged([caller, callee], ["outer"])
    assert made.undefined == ("far",)
    assert {s.name: s.binding for s in made.symbols if s.name in ("outer", "inner")} == {"outer": 1, "inner": 0}
    assert parse(written(made)).undefined == ("far",)


def test_objects_that_cannot_be_merged_are_refused() -> None:
    one = parse(code("define i32 @f() { ret i32 1 }"))
    for objects, exported, said in (
        ([one, one], ["f"], "two objects define `f`"),
        ([one], ["g"], "nothing defines g"),
        ([one, data_object(183, "d", b"x", 1)], ["f"], "several machines"),
    ):
        with pytest.raises(ObjectError, match=said):
            merged(objects, exported)


def test_what_is_no_whole_object_is_refused() -> None:
    data = code("@x = constant i32 7\ndefine i32 @f() { %r = load i32, ptr @x ret i32 %r }")
    for spoilt in (b"", data[:20], data[:100], b"\x7fELF\x01" + data[5:]):
        with pytest.raises(ObjectError):
            parse(spoilt)


def test_an_archive_lists_the_symbols_that_linkers_look_for(tmp_path: Path) -> None:
    made = merged([parse(code("define i32 @f() { ret i32 1 }"))], ["f"])
    (tmp_path / "libf.a").write_bytes(archive([("f.o", made), ("data.o", data_object(62, "odd", b"\1", 1))]))
    assert ran("nm", "-s", tmp_path / "libf.a").startswith("\nArchive index:\nf in f.o\nodd in data.o\n")

"""Broken files: whatever bytes the compiler is given end in success or in a coded diagnostic, and in time.

A case is a text of the language, a schedule for one of the families of `strategies_schedule`, the bytes of a model, a model in a folder
that means harm (`hostile`), or a damaged cache. Texts and models are the repository's own with a few mutations.
"""

from __future__ import annotations

import os
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper
from strategies_schedule import FAMILIES, draw_sizes, families, family, family_names, random_schedule, small_arrays

import tensorlang as tl
from codegen.dtypes import f32
from codegen.store import Cache
from fuzzing.corpus import TOKEN, corpus, models
from fuzzing.front import Outcome
from fuzzing.hostile import hostile_model
from fuzzing.messages import broken
from fuzzing.shrink import without_some
from stdlib.library import library
from stdlib.onnx import Importer
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.check.definition import check_module
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.graph.verify import verify
from tensorlang.policy.prove import prove_schedules
from tensorlang.policy.uncalled import check_schedules
from tensorlang.runtime.library import installed_roles, with_roles
from tensorlang.runtime.operator import Operators, sorted_out
from tensorlang.syntax.format import fmt
from tensorlang.syntax.parse import parse


@dataclass(frozen=True)
class Text:
    """A file of the language. `proven`: its operators are checked and its schedules tried as well."""

    text: str
    proven: bool


@dataclass(frozen=True)
class Directed:
    """The text of a schedule for a family, compiled for some sizes."""

    family: str
    sizes: Mapping[str, int]
    text: str
    symbolic: bool


@dataclass(frozen=True)
class Model:
    content: bytes


@dataclass(frozen=True)
class Damage:
    """What happens to an entry of the cache before it is read: `cuts` are (position, bytes taken out, bytes put in)."""

    cuts: tuple[tuple[int, int, bytes], ...]


@dataclass(frozen=True)
class Folder:
    """A model in a folder, with files beside it by name. `compiled`: what can be imported is compiled as well."""

    content: bytes
    beside: Mapping[str, bytes]
    compiled: bool


@dataclass(frozen=True)
class Stored:
    """What happens to one of the files that a compiled model leaves in the cache: `which` counts them, `cuts` as of an entry."""

    which: int
    cuts: tuple[tuple[int, int, bytes], ...]


Case: TypeAlias = Text | Directed | Model | Damage | Folder | Stored


class Files:
    name = "files"
    seconds = 20.0
    batch = 200
    share = 1.0

    def prepare(self) -> None:
        corpus(), models(), library(), entry(), families()
        check_module(load_module(parse(Source("warm.tl", "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }"))))

    def draw(self, seed: int) -> Case:
        random = Random(f"files:{seed}")
        match random.randrange(48):
            case 40 | 41 | 42 | 43 | 44 | 45 | 46:
                return Folder(*hostile_model(random), random.random() < 0.25)
            case 47:
                size = 1 << random.randrange(18)
                cuts = tuple((random.randrange(size), random.choice((0, 1, 3, size)), _some_bytes(random)) for _ in range(2))
                return Stored(random.randrange(8), cuts)
            case 0 | 1 | 2 | 3 | 4 | 5:
                return Model(broken_model(random))
            case 6 | 7:
                return directed(random)
            case 8 | 9:
                size = len(entry()[1])
                cuts = tuple((random.randrange(size + 1), random.choice((0, 1, 3, size)), _some_bytes(random)) for _ in range(2))
                return Damage(cuts)
            case kind:
                return Text(broken_text(random), kind < 17)

    def run(self, case: Case) -> Outcome:
        match case:
            case Text(text, proven):
                read_program(text, proven)
            case Directed():
                compiled(case)
            case Model(content):
                verify(Importer().load(content))
            case Damage(cuts):
                return damaged(cuts)
            case Folder():
                return loaded(case)
            case Stored(which, cuts):
                return rerun(which, cuts)
        return Outcome("ok")

    def smaller(self, case: Case) -> Iterator[Case]:
        match case:
            case Text(text, proven):
                if proven:
                    yield Text(text, False)
                for rest in without_some(text.splitlines(keepends=True)):
                    yield replace(case, text="".join(rest))
                for rest in without_some(TOKEN.findall(text)):
                    yield replace(case, text="".join(rest))
                yield from (replace(case, text=text[:k] + text[k + 1 :]) for k in range(len(text)) if len(text) < 200)
            case Directed():
                for rest in without_some(case.text.splitlines(keepends=True)):
                    yield replace(case, text="".join(rest))
                for rest in without_some(TOKEN.findall(case.text)):
                    yield replace(case, text="".join(rest))
                if case.symbolic:
                    yield replace(case, symbolic=False)
            case Model(content):
                yield from (Model(smaller) for smaller in smaller_models(content))
                if len(content) < 300:
                    yield from (Model(bytes(rest)) for rest in without_some(content))
            case Damage(cuts):
                yield from (Damage(rest) for rest in without_some(cuts))
            case Folder(content, beside):
                if case.compiled:
                    yield replace(case, compiled=False)
                yield from (replace(case, content=smaller) for smaller in smaller_models(content))
                yield from (replace(case, beside={n: beside[n] for n in rest}) for rest in without_some(tuple(beside)))
            case Stored(_, cuts):
                yield from (replace(case, cuts=rest) for rest in without_some(cuts))

    def show(self, case: Case) -> str:
        match case:
            case Text(text):
                return text
            case Directed():
                return f"{case.family} of {dict(case.sizes)}, {'symbolic' if case.symbolic else 'static'}\n{case.text}"
            case Model(content):
                return described(content)
            case Damage(cuts):
                return f"cuts {cuts}"
            case Folder(content, beside):
                return f"{described(content)}\nbeside it {dict(beside)}{', compiled' if case.compiled else ''}"
            case Stored(which, cuts):
                return f"file {which} of the cache, cuts {cuts}"

    def test(self, case: Case) -> str:
        match case:
            case Text(text, proven):
                call = f"read_program({text!r}, proven={proven})"
                return _TEST.format(names="read_program", call=call)
            case Directed():
                return _TEST.format(names="Directed, compiled", call=f"compiled({case!r})")
            case Model(content):
                return _MODEL_TEST.format(content=content)
            case Damage(cuts):
                return f"from fuzzing.fronts.files import damaged\nassert damaged({cuts!r}).kind == 'ok'"
            case Folder():
                return _TEST.format(names="Folder, loaded", call=f"assert loaded({case!r}).kind == 'ok'")
            case Stored(which, cuts):
                return f"from fuzzing.fronts.files import rerun\nassert rerun({which}, {cuts!r}).kind == 'ok'"


_TEST = """
import contextlib
from fuzzing.fronts.files import {names}
from tensorlang.diagnostics import CompileError
with contextlib.suppress(CompileError):
    {call}
"""
_MODEL_TEST = """
import contextlib
from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError
from tensorlang.graph.verify import verify
with contextlib.suppress(CompileError):
    verify(Importer().load({content!r}))
"""


# ---------------------------------------------------------------- what is done with a file


def read_program(text: str, proven: bool) -> None:
    """Do with a text what `tensorlang check` and `fmt` do: read it, lay it out, and, `proven`, check operators, laws and schedules. Raises
    CompileError for what is wrong."""
    source = Source("case.tl", text)
    file = parse(source)
    once = fmt(source)
    assert fmt(Source("case.tl", once)) == once, "a text that is laid out stays as it is"
    module = load_module(file)
    if not proven:
        return
    served = with_roles(module, installed_roles())
    mistakes = [*check_module(module), *check_schedules(served)]
    mistakes = mistakes or [d for d in prove_schedules(served, replaying=False) if d.severity == "error"]
    if mistakes:
        raise CompileError(*mistakes)


def directed(random: Random) -> Directed:
    """Return a random schedule whose text has a few mutations."""
    name = random.choice(family_names())
    program = family(name, f32)
    text = str(random_schedule(program, random, 5, {}))
    for _ in range(random.choice((1, 1, 2, 3))):
        text = random.choice((_number_other, _number_other, _like, _lines, _swapped, _token_gone))(text, random)
    return Directed(name, draw_sizes(program, random), text, random.random() < 0.3)


def compiled(case: Directed) -> None:
    """Compile a family under the schedule of a case. Raises CompileError."""
    program = family(case.family, f32)
    operators = Operators(
        Source("families.tl", FAMILIES), toolchain(threads=1, cache=False), sizes="symbolic" if case.symbolic else "static"
    )
    operator = operators[case.family].schedule(case.text)
    given = {p.name: case.sizes[p.name] for p in operator.declaration.params if p.kind == "size"}
    operator.compiled(sorted_out(operator.declaration, tuple(small_arrays(program, case.sizes, 1).values()), given))


OPERATOR = "op f(x: f32[M, N], w: f32[N]) -> (y: f32[M]) { y[i] = sum(k) x[i, k] * w[k] }"
ARRAYS = (np.arange(15, dtype=np.float32).reshape(3, 5), np.arange(5, dtype=np.float32))


@cache
def entry() -> tuple[str, bytes]:
    """Return the key and the bytes of an entry of the cache, as it lies on disk."""
    with tempfile.TemporaryDirectory() as folder:
        _called(Path(folder))
        (path,) = [p for p in Path(folder).rglob("*.o") if b"y.k" in p.read_bytes() or b"loops" in p.read_bytes()][:1]
        return path.stem, path.read_bytes()


def damaged(cuts: Sequence[tuple[int, int, bytes]]) -> Outcome:
    """Return what becomes of a call whose entry in the cache is damaged."""
    key, content = entry()
    for at, taken, put in cuts:
        content = content[:at] + put + content[at + taken :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / key[:2] / f"{key}.o"
        path.parent.mkdir()
        path.write_bytes(content)
        found = _called(Path(folder))
    right = np.array_equal(found, ARRAYS[0] @ ARRAYS[1])
    return Outcome("ok") if right else Outcome("wrong", "a damaged entry of the cache", str(found))


def _called(folder: Path) -> np.ndarray:
    tools = replace(toolchain(threads=1), store=Cache(folder))
    found: np.ndarray = Operators(Source("case.tl", OPERATOR), tools).f(*ARRAYS)
    return found


def loaded(case: Folder) -> Outcome:
    """Return what becomes of a model that is read from a folder; a refusal has to be text that can be shown. Raises CompileError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "models"
        (folder / "sub").mkdir(parents=True)
        (Path(name) / "w.bin").write_bytes(bytes(48))
        for beside, content in case.beside.items():
            (folder / beside).write_bytes(content)
        (folder / "link").symlink_to(Path(name) / "w.bin")
        os.mkfifo(folder / "pipe")
        path = folder / "model.onnx"
        path.write_bytes(case.content)
        try:
            verify(Importer().load(path))
            if case.compiled:
                tl.compile(path, threads=1).explain()
        except CompileError as refused:
            if any(unicodedata.category(c) == "Cc" for c in str(refused) if c != "\n"):
                return Outcome("unfounded", "control characters in a message", ascii(str(refused)))
            raise
    return Outcome("ok")


MODEL = helper.make_model(
    helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])],
        "stored",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 5])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 2])],
        [numpy_helper.from_array(np.arange(10, dtype=np.float32).reshape(5, 2), "w")],
    ),
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=9,
).SerializeToString()


@cache
def left() -> tuple[tuple[str, bytes], ...]:
    """Return the files that compiling `MODEL` leaves in a cache, by their places in it."""
    with tempfile.TemporaryDirectory() as name:
        _stored_run(Path(name))
        return tuple((str(p.relative_to(name)), p.read_bytes()) for p in sorted(Path(name).rglob("*")) if p.is_file())


def rerun(which: int, cuts: Sequence[tuple[int, int, bytes]]) -> Outcome:
    """Return what becomes of a model that finds its cache damaged."""
    files = left()
    with tempfile.TemporaryDirectory() as name:
        for k, (place, content) in enumerate(files):
            path = Path(name) / place
            path.parent.mkdir(parents=True, exist_ok=True)
            for at, taken, put in cuts if k == which % len(files) else ():
                at = at % (len(content) + 1)
                content = content[:at] + put + content[at + taken :]
            path.write_bytes(content)
        found = _stored_run(Path(name))
    wanted = ARRAYS[0] @ np.arange(10, dtype=np.float32).reshape(5, 2)
    return Outcome("ok") if np.array_equal(found, wanted) else Outcome("wrong", "a model of a damaged cache", str(found))


def _stored_run(folder: Path) -> np.ndarray:
    before = os.environ.get("TENSORLANG_CACHE")
    os.environ["TENSORLANG_CACHE"] = str(folder)
    try:
        found: np.ndarray = tl.compile(MODEL, threads=1).run({"x": ARRAYS[0]})["y"]
    finally:
        if before is None:
            del os.environ["TENSORLANG_CACHE"]
        else:
            os.environ["TENSORLANG_CACHE"] = before
    return found


# ---------------------------------------------------------------- mutations of texts

NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "7",
    "65",
    "2147483648",
    "4611686018427387904",
    "9223372036854775807",
    "1" + "0" * 30,
    "1e400",
    "0.5",
    "1e-5",
)
BYTES = ("\0", "\n", "\t", " ", "\r", "`", '"', "#", "(", ")", "[", "]", "{", "}", "|", "..", "α", "\U0001f600", "\ufeff", "\x7f", "\u2028")
MODES = (
    "clamp",
    "wrap",
    "reflect",
    "skip",
    "0",
    "for",
    "in",
    "otherwise",
    "from",
    "each",
    "broadcast",
    "where",
    "attr",
    "size",
    "let",
    "if",
)


def broken_text(random: Random) -> str:
    """Return some declarations of the corpus with a few mutations."""
    found = corpus()
    k = random.randrange(len(found.files))
    pieces = found.pieces[k]
    if random.random() < 0.07 or not pieces:
        text = found.files[k]
    else:
        start = random.randrange(len(pieces))
        text = "".join(pieces[start : start + random.choice((1, 1, 2, 3))])
    kinds = _TEXT_MUTATIONS if random.random() < 0.4 else _READABLE_MUTATIONS
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        text = random.choice(kinds)(text, random)
    return text[:20000]


def _token_gone(text: str, random: Random) -> str:
    tokens = TOKEN.findall(text)
    if tokens:
        start = random.randrange(len(tokens))
        del tokens[start : start + random.choice((1, 1, 2, 5))]
    return "".join(tokens)


def _token_other(text: str, random: Random) -> str:
    """Put another token of the corpus, of the text itself, a mode or a number in the place of one."""
    tokens = TOKEN.findall(text)
    words = [k for k, t in enumerate(tokens) if not t.isspace()]
    if words:
        k = random.choice(words)
        here = [tokens[w] for w in words]
        tokens[k] = random.choice((random.choice(corpus().tokens), random.choice(here), random.choice(here), random.choice(NUMBERS)))
    return "".join(tokens)


def _like(text: str, random: Random) -> str:
    """Put a name in the place of a name or a number in that of a number: what is left can be read, and is wrong elsewhere."""
    tokens = TOKEN.findall(text)
    words = [k for k, t in enumerate(tokens) if t[0].isalnum() or t[0] == "_"]
    if words:
        k = random.choice(words)
        alike = [tokens[w] for w in words if tokens[w][0].isdigit() == tokens[k][0].isdigit()]
        tokens[k] = random.choice(NUMBERS) if tokens[k][0].isdigit() and random.random() < 0.5 else random.choice(alike)
    return "".join(tokens)


def _number_other(text: str, random: Random) -> str:
    """Put a number that is far too large, too small or none in the place of one."""
    tokens = TOKEN.findall(text)
    numbers = [k for k, t in enumerate(tokens) if t.isdigit()]
    if numbers:
        tokens[random.choice(numbers)] = random.choice((*NUMBERS, "3", "5", "1000000", "9" * 5000))
    return "".join(tokens)


def _token_more(text: str, random: Random) -> str:
    tokens = TOKEN.findall(text)
    new = random.choice((random.choice(corpus().tokens), random.choice(NUMBERS), random.choice(MODES), random.choice(BYTES)))
    tokens.insert(random.randint(0, len(tokens)), f" {new} " if random.random() < 0.7 else new)
    return "".join(tokens)


def _bytes_other(text: str, random: Random) -> str:
    at = random.randint(0, len(text))
    return text[:at] + random.choice(BYTES) * random.choice((0, 1, 1, 3)) + text[at + random.choice((0, 1, 1, 4)) :]


def _lines(text: str, random: Random) -> str:
    """Leave a line out, write it twice or very often, or move it."""
    lines = text.splitlines(keepends=True)
    if lines:
        k = random.randrange(len(lines))
        line = lines[k]
        match random.randrange(4):
            case 0:
                del lines[k]
            case 1:
                lines[k:k] = [line] * random.choice((1, 1, 2, 30))
            case 2:
                lines.insert(random.randint(0, len(lines)), lines.pop(k))
            case _:
                lines.insert(k, random.choice(random.choice(corpus().files).splitlines(keepends=True) or [""]))
    return "".join(lines)


def _swapped(text: str, random: Random) -> str:
    tokens = TOKEN.findall(text)
    words = [k for k, t in enumerate(tokens) if not t.isspace()]
    if len(words) > 1:
        j, k = random.sample(words, 2)
        tokens[j], tokens[k] = tokens[k], tokens[j]
    return "".join(tokens)


def _part_other(text: str, random: Random) -> str:
    """Put the inside of some brackets in the place of that of others."""
    parts = list(_BRACKETS.finditer(text))
    if len(parts) < 2:
        return text
    one, other = random.sample(parts, 2)
    return text[: one.start()] + other.group() + text[one.end() :]


_BRACKETS = re.compile(r"\[[^\[\]\n]*\]|\([^()\n]*\)")


def _deep(text: str, random: Random) -> str:
    """Wrap a word in many brackets, signs or choices."""
    tokens = TOKEN.findall(text)
    words = [k for k, t in enumerate(tokens) if t[0].isalnum()]
    if words:
        k, count = random.choice(words), random.choice((1, 3, 30, 120))
        before, after = random.choice((("(", ")"), ("-", ""), ("f32(", ")"), ("1 + (", ")"), ("(if 1 < 2 then ", " else 0)"), ("x[", "]")))
        tokens[k] = before * count + tokens[k] + after * count
    return "".join(tokens)


_TEXT_MUTATIONS: tuple[Callable[[str, Random], str], ...] = (
    *(_token_gone, _token_other, _token_other, _like, _like, _like, _like),
    *(_number_other, _token_more, _bytes_other, _lines, _lines, _swapped, _deep),
)
_READABLE_MUTATIONS: tuple[Callable[[str, Random], str], ...] = (*[_like] * 8, _lines, _deep, _part_other, _number_other)
"""What most often leaves a text that can be read, and whose meaning is wrong."""


# ---------------------------------------------------------------- mutations of models


def broken_model(random: Random) -> bytes:
    """Return a model with some bytes or some fields changed."""
    content = random.choice(models())
    if random.random() < 0.4:
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randint(0, len(content))
            content = content[:at] + _some_bytes(random) + content[at + random.choice((0, 1, 1, 2, 9)) :]
        return content
    model = onnx.load_model_from_string(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        broken(model, random)
    return model.SerializeToString()


def _some_bytes(random: Random) -> bytes:
    return random.randbytes(random.choice((0, 1, 1, 1, 2, 8)))


def smaller_models(content: bytes) -> Iterator[bytes]:
    """Yield a model that can be read with nodes, values, initialisers and attributes left out."""
    try:
        model = onnx.load_model_from_string(content)
    except Exception:
        return
    places: list[Callable[[onnx.ModelProto], object]] = [
        *(lambda m: m.graph.node, lambda m: m.graph.initializer, lambda m: m.graph.value_info),
        *(lambda m: m.graph.input, lambda m: m.graph.output, lambda m: m.functions, lambda m: m.metadata_props),
        *((lambda m, k=k: m.graph.node[k].attribute) for k in range(len(model.graph.node))),
        *((lambda m, k=k: m.graph.node[k].input) for k in range(len(model.graph.node))),
        *((lambda m, k=k: m.graph.node[k].output) for k in range(len(model.graph.node))),
    ]
    for place in places:
        items = list(place(model))  # type: ignore[call-overload]
        for rest in without_some(range(len(items))):
            other = onnx.ModelProto()
            other.CopyFrom(model)
            kept = place(other)
            for k in reversed(range(len(items))):
                if k not in rest:
                    del kept[k]  # type: ignore[attr-defined]
            smaller = other.SerializeToString()
            if len(smaller) < len(content):
                yield smaller


def described(content: bytes) -> str:
    try:
        return f"{onnx.printer.to_text(onnx.load_model_from_string(content))}\n{content!r}"
    except Exception:
        return repr(content)

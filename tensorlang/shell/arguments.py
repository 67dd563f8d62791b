"""Arguments of operators and models on the command line.

x=image.npy        an array from a file; `x=all.npz` takes the array called x (`x=all.npz:y` the one called y)
x=f32[3,224]       an array of seeded random numbers
stride=2           an attribute: a whole number, a number, true or false, several in parentheses (2,2), any other text
all.npz            every array of the file, by name
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType
from tensorlang.check.foreign import nearest
from tensorlang.check.types import ELSEWHERE
from tensorlang.diagnostics import CompileError, error
from tensorlang.externs import CSymbol, LLVMText, c_symbol, llvm_ir
from tensorlang.graph.nodes import Value
from tensorlang.shell.files import SUFFIXES, read_arrays
from tensorlang.syntax.parse import load as source_of

Array = np.ndarray[Any, Any]
_TYPE = re.compile(r"(\w+)\[(\s*|\s*[0-9]{1,19}\s*(?:,\s*[0-9]{1,19}\s*)*,?\s*)\]")
_NUMBER = re.compile(r"[0-9]+")
_BETWEEN_SIZES = re.compile(r"(?<=[0-9])\s*[x*;]\s*(?=[0-9])|(?<=[0-9])\s+(?=[0-9])|,")
_SHAPED = re.compile(r"([A-Za-z]\w*)\[([^\]]*)\]")
SEED = 7


def parsed(arguments: Iterable[str]) -> dict[str, Any]:
    """Return the arguments by name. Raises CompileError C0211 for one that cannot be read, and those of the files."""
    found: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if equals and not name:
            raise error("C0211", f"`{argument}` names nothing", help="write `name=value`")
        if equals and name in found:
            raise error("C0211", f"`{name}` is given twice")
        if not equals:
            if not argument.endswith(".npz"):
                raise error(
                    "C0211",
                    f"`{argument}` is no argument",
                    help="the file comes first, then the operator"
                    if argument.endswith((".tl", ".onnx"))
                    else "write `name=value`; a value is a file, a type such as `f32[4,5]`, or a number",
                )
            found |= read_arrays(Path(argument))
        else:
            found[name] = _value(name, text)
    return found


def kernels_named(given: Iterable[str]) -> dict[str, CSymbol | LLVMText]:
    """Return the kernels of `NAME=LIBRARY:FUNCTION` by the names of their operators; a file that ends in `.ll` is LLVM IR. Raises
    CompileError C0211 for what says no kernel, C0113 and C0114 for what is none."""
    found: dict[str, CSymbol | LLVMText] = {}
    for text in given:
        name, equals, place = text.partition("=")
        path, colon, symbol = place.rpartition(":")
        if not equals or not colon or not name or not path:
            raise error(
                "C0211", f"`{text}` names no kernel", help="write `NAME=LIBRARY:FUNCTION`, as `--extern topk=./libtopk.so:topk_{T}`"
            )
        if name in found:
            raise error("C0211", f"a kernel for `{name}` is given twice")
        found[name] = llvm_ir(source_of(path).text, symbol) if path.endswith(".ll") else c_symbol(path, symbol)
    return found


def _value(name: str, text: str) -> Any:
    file, _, member = text.partition(":")
    if file.endswith(SUFFIXES):
        return _from_file(Path(file), name, member)
    typed = _TYPE.fullmatch(text)
    if typed is not None and typed[1] in DTYPES:
        return random_array(DTYPES[typed[1]], tuple(int(n) for n in _NUMBER.findall(typed[2])))
    shaped = _SHAPED.fullmatch(text)
    if shaped is not None:
        raise _no_type(name, shaped[1], shaped[2])
    if text.startswith("(") and text.endswith(")"):
        return tuple(_literal(part.strip()) for part in text[1:-1].split(",") if part.strip())
    return _literal(text)


def _no_type(name: str, dtype: str, sizes: str) -> CompileError:
    """Return C0211 for a type that makes no array: of unknown elements, or with sizes that are no numbers."""
    title = f"`{name}={dtype}[{sizes}]` says no array"
    if dtype not in DTYPES:
        called = ELSEWHERE.get(dtype) or nearest(dtype, DTYPES)
        known = ", ".join(f"`{n}`" for n in ("f32", "f64", "f16", "i64", "i32", "u8", "bool"))
        return error("C0211", title, help=f"write `{name}={called}[{sizes}]`" if called else f"element types are {known} and others")
    parts = [part.strip() for part in _BETWEEN_SIZES.split(sizes)]
    given = ",".join(part if re.fullmatch("[0-9]{1,19}", part) else "8" for part in parts)
    return error("C0211", title, help=f"sizes are numbers here, with commas between them: `{name}={dtype}[{given}]`")


def _from_file(path: Path, name: str, member: str) -> Array:
    arrays = read_arrays(path)
    if "" in arrays:
        return arrays[""]
    wanted = member or name
    if wanted not in arrays:
        there = ", ".join(f"`{n}`" for n in arrays) or "no arrays"
        raise error("C0211", f"`{path}` has no array `{wanted}`", notes=(f"it has {there}",))
    return arrays[wanted]


def _literal(text: str) -> int | float | bool | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def random_array(dtype: DType, shape: tuple[int, ...], seed: int = SEED) -> Array:
    """Return seeded numbers: normally distributed floats, small whole numbers, either truth. Raises CompileError C0204 when there is no
    memory for so many."""
    try:
        return _random(np.random.default_rng([seed, *shape]), dtype, shape)
    except (MemoryError, ValueError) as problem:  # ValueError: more elements than an address can count
        raise error(
            "C0204",
            f"there is not enough memory for {dtype}[{', '.join(map(str, shape))}]",
            notes=(str(problem),),
            help="use smaller arrays",
        ) from None


def _random(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(dtype.numpy)
    return rng.integers(0, 3, shape).astype(dtype.numpy)


def random_inputs(values: Sequence[Value], given: dict[str, Any]) -> dict[str, Any]:
    """Return `given` with random arrays for the inputs it lacks; whole numbers are 0 or 1, which fits ids as well as masks."""
    inputs = dict(given)
    for value in values:
        if value.name not in inputs:
            array = random_array(value.dtype, value.shape)
            inputs[value.name] = np.minimum(array, 1) if value.dtype.is_integer else array
    return inputs

"""The arguments of a call of an operator, sorted out: which tensors, attributes and sizes it is given, and of what types.

R0311  too many tensors     R0312  no such parameter, or given twice     R0313  a tensor or a size is missing
R0314  a size that is no whole number, or too large     R0305  not an array
R0303  elements of a type that the language lacks, a number that a type does not hold
R0309  `out` has another number of arrays than there are results
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType, bool_, from_numpy
from tensorlang.check.foreign import nearest
from tensorlang.check.instantiate import ArgType
from tensorlang.check.types import limits
from tensorlang.diagnostics import CompileError, Diagnostic, Label, counted, exception
from tensorlang.runtime.feeds import Place, as_array, kind_of
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.widths import LARGEST

Array = np.ndarray[Any, Any]
_LITERALS = (int, float, list, tuple)
"""What has no element type of its own."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, sorted out: what instantiation needs, and the arrays in the order of the program's parameters."""

    types: tuple[ArgType | tuple[ArgType, ...] | None, ...]
    attrs: dict[str, object]
    sizes: dict[str, Any]
    arrays: tuple[Array, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """Return what is the same for calls that differ in sizes alone."""
        return (*(tuple(map(_kind, t)) if isinstance(t, tuple) else _kind(t) for t in self.types), repr(sorted(self.attrs.items())))

    @property
    def key(self) -> tuple[object, ...]:
        return (self.types, *(repr(sorted(d.items())) for d in (self.attrs, self.sizes)))


def _kind(t: ArgType | None) -> tuple[object, int] | None:
    return None if t is None else (t.dtype, len(t.shape))


def sorted_out(operator: sx.Operator, args: tuple[Any, ...], named: Mapping[str, Any]) -> Call:
    """Return the arguments of a call by what they are. Raises RunError R0311 to R0313 or R0305."""
    params = {p.name: p for p in operator.params}
    tensors = [p for p in operator.params if p.kind == "tensor"]
    if len(args) > len(tensors):
        title = f"`{operator.name}` takes {counted(len(tensors), 'tensor')} and is given {len(args)}"
        others = [p.name for p in operator.params if p.kind != "tensor"]
        help = f"what is no tensor is named: {', '.join(f'`{n}=…`' for n in others)}" if others else _called(operator)
        raise exception(Diagnostic("R0311", title, _declared(operator), help=help))
    given: dict[str, Any] = {p.name: a for p, a in zip(tensors, args, strict=False)}
    for name, value in named.items():
        if name not in params:
            raise no_argument(operator, name, list(params))
        if name in given:
            raise exception(Diagnostic("R0312", f"`{operator.name}` is given `{name}` twice", _declared(operator), help=_called(operator)))
        given[name] = value
    missing = [p.name for p in tensors if given.get(p.name) is None and p.default is None]
    if missing:
        title = f"`{operator.name}` is not given {', '.join(f'`{m}`' for m in missing)}"
        labels = tuple(Label(params[m].span, "declared here" if m not in given else "given as None") for m in missing)
        raise exception(Diagnostic("R0313", title, labels, help=_called(operator)))
    arrays: list[Array] = []
    known = types_known(tensors, given)
    types = tuple(_types(p, given.get(p.name), arrays, known) for p in tensors)
    attrs = {n: v for n, v in given.items() if params[n].kind == "attr"}
    sizes = {n: _size(operator, params[n], v) for n, v in given.items() if params[n].kind == "size"}
    return Call(types, attrs, sizes, tuple(arrays))


def _declared(operator: sx.Operator) -> tuple[Label, ...]:
    return (Label(operator.name_span, "declared here"),) if operator.name_span.end else ()


def _called(operator: sx.Operator) -> str:
    """Return how an operator is called."""
    given = [p.name if p.kind == "tensor" else f"{p.name}=…" for p in operator.params if p.default is None]
    return f"it is called `{operator.name}({', '.join(given)})`"


_SAME = {
    "dim": "axis", "dims": "axes", "axis": "dim", "kernel_size": "kernel", "eps": "epsilon", "epsilon": "eps", "padding": "pads",
    "strides": "stride", "dilations": "dilation", "groups": "group", "bias": "b", "weight": "w", "k": "count", "reverse": "descending",
}  # fmt: skip
"""What PyTorch and others call attributes → what libraries of this language do."""


def no_argument(operator: sx.Operator, name: str, names: Sequence[str]) -> CompileError:
    """Return R0312 for a name that is none of `names`, which an operator has, and may be one of its results."""
    near = nearest(name, names)
    close = [_SAME[name]] if _SAME.get(name) in names else [n for n in names if n.lower() == name.lower()] or ([near] if near else [])
    note = f"it has {', '.join(f'`{p}`' for p in names)}"
    help = f"did you mean `{close[0]}`?" if close else _called(operator)
    if name in [r.name for r in operator.results]:
        help = "results are returned; an array to write them into is `out=`"
    elif name in ("padding", "pad", "pads") and {"lo", "hi"} <= {*names}:
        help = "padding is `lo` before and `hi` after: a number for each spatial axis, as `lo=(1, 1), hi=(1, 1)`"
    elif name in ("dtype", "device"):
        help = "the arrays say it: `x.astype(…)`" if name == "dtype" else "where operators run is said when they are loaded: `target=`"
    return exception(Diagnostic("R0312", f"`{operator.name}` has no `{name}`", _declared(operator), (note,), help))


def check_arrays(operator: sx.Operator, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Raise RunError R0305 for tensors that are given as something without memory that an array could share: numbers, lists."""
    tensors = {p.name: p for p in operator.params if p.kind == "tensor"}
    problems = [
        Diagnostic("R0305", f"`{name}` is {kind_of(item)}", help="pass a NumPy array")
        for name, value in (*zip(tensors, args, strict=False), *named.items())
        if name in tensors and value is not None
        for item in (value if tensors[name].each and isinstance(value, tuple | list) else (value,))
        if not (hasattr(item, "__dlpack__") or hasattr(item, "__cuda_array_interface__"))
    ]
    if problems:
        raise exception(*problems)


def results_given(operator: str, out: object, outputs: Sequence[Place]) -> Mapping[str, object]:
    """Return by name the arrays that `out` gives for an operator's results: one array, a tuple or list of them, or a mapping, whose names
    are not looked at. Raises RunError R0309 for another number of them."""
    if isinstance(out, Mapping):
        return out
    given = tuple(out) if isinstance(out, tuple | list) else (out,)
    if len(given) != len(outputs):
        names = ", ".join(f"`{place.name}`" for place in outputs)
        title = f"`{operator}` has {len(outputs)} result{'s' if len(outputs) > 1 else ''}, {names}, and `out` has {len(given)}"
        places = ", ".join(f"`{p.name} = np.empty({list(p.shape)}, {p.dtype.numpy.name!r})`" for p in outputs)
        raise exception(Diagnostic("R0309", title, help=f"write `out={_example(outputs)}`, with {places}"))
    return {place.name: array for place, array in zip(outputs, given, strict=True)}


def _example(outputs: Sequence[Place]) -> str:
    names = [place.name for place in outputs]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def sizes_given(operator: sx.Operator, call: Call) -> None:
    """Raise RunError R0313 when a size is missing: code can be shown without it, not run."""
    missing = [p.name for p in operator.params if p.kind == "size" and p.name not in call.sizes]
    if missing:
        title = f"`{operator.name}` is not given {', '.join(f'`{m}`' for m in missing)}"
        labels = tuple(Label(p.span, "declared here") for p in operator.params if p.name in missing)
        raise exception(Diagnostic("R0313", title, labels, help=f"a size is a whole number: `{missing[0]}=8`"))


def _size(operator: sx.Operator, param: sx.Param, value: Any) -> int | tuple[int, ...]:
    """Return a size, or those of a pack. Raises RunError R0314 for what is no whole number."""
    if param.pack and isinstance(value, (tuple, list)):
        return tuple(whole_size(operator, param.name, item) for item in value)
    return whole_size(operator, param.name, value)


def whole_size(operator: sx.Operator, name: str, value: Any) -> int:
    """Return a size that is given by name. Raises RunError R0314 for what is no whole number, or too large."""
    span = next((p.span for p in operator.params if p.name == name), operator.name_span)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        title = f"`{operator.name}`: size `{name}` is {value!r}, which is no whole number"
        raise exception(Diagnostic("R0314", title, (Label(span, "declared here"),), help="pass an int"))
    if abs(int(value)) > LARGEST:
        title = f"`{operator.name}`: size `{name}` is too large"
        raise exception(Diagnostic("R0314", title, (Label(span, "declared here"),), help="sizes stay below 2**48"))
    return int(value)


def types_known(tensors: Iterable[sx.Param], given: Mapping[str, Any]) -> Mapping[str, DType]:
    """Return the types that arrays among what is `given` settle, by the names that parameters declare; none where no number asks."""
    named = [(p, given[p.name]) for p in tensors if not p.each and given.get(p.name) is not None]
    if not any(isinstance(value, _LITERALS) and _type_name(p) not in DTYPES for p, value in named):
        return {}
    found: dict[str, DType] = {}
    for param, value in named:
        dtype = None if isinstance(value, _LITERALS) else from_numpy(as_array(value, param.name).dtype.newbyteorder("="))
        if dtype is not None:
            found.setdefault(_type_name(param), dtype)
    return found


def _type_name(param: sx.Param) -> str:
    return param.type.dtype if isinstance(param.type, sx.TensorType) else ""


def _types(param: sx.Param, value: Any, arrays: list[Array], known: Mapping[str, DType]) -> ArgType | tuple[ArgType, ...] | None:
    """Return the type of a tensor argument, appending its arrays to `arrays`."""
    if value is None:
        return None
    if param.each:
        items = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(_type(param, item, arrays, known) for item in items)
    return _type(param, value, arrays, known)


def _type(param: sx.Param, value: Any, arrays: list[Array], known: Mapping[str, DType]) -> ArgType:
    array = as_tensor(value, param, known)
    dtype = from_numpy(array.dtype.newbyteorder("="))
    if dtype is None:
        title = f"`{param.name}` has the element type {array.dtype}, which the language does not have"
        parts = f"give its parts apart: `{param.name}.real` and `{param.name}.imag`"
        help = parts if array.dtype.kind == "c" else f"convert it: `{param.name}.astype(np.float32)`"
        raise exception(Diagnostic("R0303", title, (Label(param.span, "declared here"),), help=help))
    arrays.append(array)
    return ArgType(dtype, tuple(array.shape))


def as_tensor(value: Any, param: sx.Param, known: Mapping[str, DType]) -> Array:
    """Return what is given for a parameter as an array; numbers and nested lists of them in the type that it names, in the one that is
    `known` of that name, or in f32 where any float will do. Raises RunError R0305, and R0303 for a number that the type does not hold."""
    array = as_array(value, param.name)
    if not isinstance(value, _LITERALS):
        return array
    found = DTYPES.get(_type_name(param)) or known.get(_type_name(param))
    if found is None:
        found = DTYPES["f32"] if array.dtype == np.float64 else None
    if found is None or array.dtype == found.numpy:
        return array
    if found.is_integer and array.dtype.kind == "f":
        array = np.asarray(value, object)  # 2**63 and 1 in one list are floats to NumPy
    given = array.ravel().tolist()
    if found.is_integer:
        low, high = limits(found)
        lost = [number for number in given if not (low <= number <= high and number == int(number))]
        made = array if lost else array.astype(found.numpy)
    else:
        with np.errstate(all="ignore"):
            made = array.astype(found.numpy)
        pairs = zip(given, made.ravel().tolist(), strict=True)
        lost = [number for number, held in pairs if number != held and (found == bool_ or isinf(held))]
    if lost:
        title = f"`{param.name}` is {lost[0]}, which no `{found}` is"
        help = "give `True` or `False`" if found == bool_ else f"give what `{found}` holds, or declare `{param.name}` of another type"
        raise exception(Diagnostic("R0303", title, (Label(param.span, "declared here"),), help=help))
    return made

"""Cases written down as tests of the public interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]


def array(a: Array) -> str:
    """Return an expression for an array."""
    values = np.array2string(a.astype(np.float64) if a.dtype.name in _NARROW else a, threshold=10**6, separator=", ", max_line_width=10**6)
    text = " ".join(values.split()).replace("nan", "np.nan").replace("inf", "np.inf")
    made = f"np.array({text})"
    if 0 in a.shape:
        return f"np.zeros({a.shape}, {dtype(a.dtype)})"
    return f"{made}.astype({dtype(a.dtype)})"


def dtype(found: np.dtype[Any]) -> str:
    return f"ml_dtypes.{found.name}" if found.name in _NARROW else f"np.{found.name}"


_NARROW = frozenset(n for n in dir(ml_dtypes) if n.startswith(("bfloat", "float", "int", "uint")))


def call(
    text: str,
    arrays: Sequence[Array],
    expected: Mapping[str, Array] | str,
    *,
    operator: str,
    options: str = "",
    schedule: str = "",
    named: str = "",
) -> str:
    """Return the body of a test that calls an operator. `expected`: its results by name, or the code it is refused with ("": some)."""
    lines = ["import ml_dtypes", "import numpy as np", "import pytest", "import tensorlang as tl", ""]
    used = [a.dtype.name for a in arrays] + ([a.dtype.name for a in expected.values()] if not isinstance(expected, str) else [])
    if not any(name in _NARROW for name in used):
        lines.remove("import ml_dtypes")
    lines += [f"operator = tl.parse({_quoted(text)}{options})[{operator!r}]"]
    if schedule:
        lines += [f"operator = operator.schedule({_quoted(schedule)})"]
    arguments = ", ".join([*(array(a) for a in arrays), *([named] if named else [])])
    if isinstance(expected, str):
        lines += ["with pytest.raises(tl.CompileError) as refused:", f"    operator({arguments})"]
        lines += [f"assert refused.value.diagnostics[0].code == {expected!r}"] if expected else []
        return "\n".join(lines)
    lines.remove("import pytest")
    lines += [f"found = operator({arguments})"]
    names = list(expected)
    for k, name in enumerate(names):
        got = "found" if len(names) == 1 else f"found[{k}]"
        lines += [f"np.testing.assert_array_equal({got}, {array(expected[name])})  # {name}"]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return f'"""{text}"""' if '"' not in text and "\\" not in text else repr(text)

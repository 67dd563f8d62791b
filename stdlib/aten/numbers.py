"""Numbers that programs compute from sizes: integers, and floats such as `height * 1.5` or `1 / rows`.

Integers stay sizes. A float is a ratio where it is known for all sizes what it is rounded to (`tensorlang/graph/ratios.py`), so that it may
become an integer again, and else a tensor without dimensions, which is computed when the model runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call
from tensorlang.graph.nodes import Value
from tensorlang.graph.ratios import Inexact, Ratio
from tensorlang.graph.shape_arithmetic import as_float
from tensorlang.graph.sizes import OpenSize, Size, larger, smaller

Rule: TypeAlias = "Callable[..., Any]"
OfTensors: TypeAlias = "Callable[..., Value]"

F64 = DTYPES["f64"]


def computed(of_numbers: Callable[..., Any], of_tensors: OfTensors | None = None, float_of_integers: bool = False) -> Rule:
    """Return the rule for an operator: `of_numbers` computes with numbers, sizes and ratios; `of_tensors` where no ratio is known; it is
    None where an integer comes out, which has to be known. `float_of_integers`: two integers make a float."""

    def rule(n: Call, *args: Any) -> Any:
        kinds = (Ratio, Value, float, Size) if float_of_integers else (Ratio, Value, float)
        if not any(isinstance(a, kinds) for a in args) or not any(isinstance(a, (Ratio, Value, Size)) for a in args):
            return of_numbers(*args)
        try:
            if not any(isinstance(a, Value) for a in args):
                return of_numbers(*(as_float(a, F64) for a in args))
        except (Inexact, OpenSize):
            pass
        if of_tensors is None:
            raise OpenSize(*(size for a in args for size in _sizes(a)), why="floats of open sizes are rounded") from None
        return of_tensors(n, *(n.value(a, F64) for a in args))

    return rule


def _sizes(a: Any) -> tuple[Size, ...]:
    found = a.numerator if isinstance(a, Ratio) else a
    return (found,) if isinstance(found, Size) else ()


def _rounded(of_ratio: Callable[[Ratio], Ratio], of_number: Callable[[Any], int]) -> Rule:
    return computed(lambda a: of_ratio(a).whole if isinstance(a, Ratio) else a if isinstance(a, Size) else of_number(a))


def _exact(of_integers: Callable[..., Any]) -> Rule:
    def of_numbers(*args: Any) -> Any:
        if any(isinstance(a, Ratio) for a in args):
            raise Inexact
        return of_integers(*args)

    return computed(of_numbers)


def _by(operator: str) -> OfTensors:
    return lambda n, *args: n.op(operator, *args)


ARITHMETIC: Mapping[str, Rule] = {
    "add": computed(operator.add, _by("add")),
    "sub": computed(operator.sub, _by("sub")),
    "mul": computed(operator.mul, _by("mul")),
    "truediv": computed(operator.truediv, _by("div"), float_of_integers=True),
    "neg": computed(operator.neg, lambda n, a: n.op("map", a, f="neg")),
    "sym_float": computed(lambda a: a if isinstance(a, Ratio) else float(a), lambda n, a: a, float_of_integers=True),
    "trunc": _rounded(Ratio.trunc, math.trunc),
    "floor": _rounded(Ratio.floor, math.floor),
    "ceil": _rounded(Ratio.ceil, math.ceil),
    **{op.__name__: computed(op) for op in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)},
    **{op.__name__: _exact(op) for op in (operator.floordiv, operator.mod, operator.pow)},
    "sym_sum": computed(lambda parts: sum(parts)),
    "sym_max": computed(larger),
    "sym_min": computed(smaller),
    "sym_not": computed(operator.not_),
}
"""What programs compute with numbers, by what torch calls it."""

"""Whether rows of a batch depend on each other in a model of open sizes, which is imported once more for that, with all of them open."""

from __future__ import annotations

from collections.abc import Callable

from codegen.polynomials import number
from tensorlang.diagnostics import CompileError
from tensorlang.graph.data_dependent import DataDependent
from tensorlang.graph.independent_rows import rows_of
from tensorlang.graph.nodes import Graph
from tensorlang.graph.sizes import Condition, OpenSize, Symbols, UnequalSizes, holds_between, names_in, range_of, substituted
from tensorlang.runtime.open_sizes import OpenShapes, samples_for
from tensorlang.runtime.signature import Signature
from tensorlang.runtime.structured import is_structured
from tensorlang.saved.package import Rows


def model_rows(load: Callable[..., Graph], signature: Signature | None) -> Rows:
    """Return what is found of the model that `load` imports, whose signature is None where no size is open. A proof that rests on
    conditions of the sizes is none: for others the model is another one."""
    open_shapes = OpenShapes(signature.inputs if signature is not None else ())
    given = None if signature is None or is_structured(signature) else open_shapes.given()
    if given is None:
        return Rows("unknown", "it has no open sizes, or takes sequences, texts or any rank")
    symbols = Symbols(samples_for(dict.fromkeys(open_shapes.names.values(), 2)))
    try:
        found = rows_of(load(*given.at({name: symbols.symbol(name) for name in symbols.samples}).arguments))
    except DataDependent:
        return Rows("unknown", "its shapes depend on data")
    except (OpenSize, UnequalSizes) as need:
        return Rows("unknown", f"its sizes cannot all be open: {need}")
    except CompileError as refused:
        return Rows("unknown", refused.diagnostics[0].title)
    limits = [condition for condition in symbols.assumed if not _always(condition)]
    if found.verdict == "independent" and limits:
        return Rows("unknown", f"that is proven only where {' and '.join(map(str, limits))}, and other sizes run other code")
    return found


def _always(condition: Condition) -> bool:
    """Tell whether a condition holds for all sizes from 1."""
    formula = condition.formula
    for name in names_in(formula):
        formula = substituted(formula, name, Symbols({name: 1}).symbol(name).formula + number(1))
    return holds_between(*range_of(formula), condition.relation)

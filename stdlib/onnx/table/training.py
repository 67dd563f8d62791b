"""Steps of training: what becomes of parameters, and of what is remembered of their gradients. Domain ai.onnx.preview.training."""

from __future__ import annotations

from itertools import chain

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Result, Rule, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from tensorlang.graph.nodes import Attr, Value

TRAINING = "ai.onnx.preview.training"


def _step(operator: str, kept: int, attributes: dict[str, tuple[str, float]]) -> Rule:
    """A rate, the number of the step, and one after another all parameters, their gradients, and `kept` values for each; the results are
    the parameters and what is kept of them."""

    def rule(n: Site) -> Result:
        rate, turn, values = n.arg(0), cast(n, n.view(n.arg(1), ()), DTYPES["i64"]), n.args_from(2)
        if not values or len(values) % (2 + kept):
            raise n.wrong(f"{len(values)} values are no parameters with gradients and {kept} more each")
        count = len(values) // (2 + kept)
        attrs: dict[str, Attr] = {ours: n.real(theirs, default) for ours, (theirs, default) in attributes.items()}
        if operator == "momentum":
            attrs["nesterov"] = int(n.text("mode", "standard", ("standard", "nesterov")) == "nesterov")
        rows: list[tuple[Value, ...]] = []
        for k in range(count):
            of_one = values[k::count]
            rows.append(n.ops(operator, cast(n, n.view(rate, ()), of_one[0].dtype), turn, *of_one, **attrs))
        return tuple(chain.from_iterable(zip(*rows, strict=True)))

    return rule


_ADAGRAD = {"decay": ("decay_factor", 0.0), "eps": ("epsilon", 1e-6), "norm": ("norm_coefficient", 0.0)}
_ADAM = {
    "alpha": ("alpha", 0.9),
    "beta": ("beta", 0.999),
    "eps": ("epsilon", 1e-6),
    "norm": ("norm_coefficient", 0.0),
    "norm_after": ("norm_coefficient_post", 0.0),
}
_MOMENTUM = {"alpha": ("alpha", 0.0), "beta": ("beta", 1.0), "norm": ("norm_coefficient", 0.0)}

RULES = (
    Entry("Adagrad", 1, 1, _step("adagrad", 1, _ADAGRAD), TRAINING),
    Entry("Adam", 1, 1, _step("adam", 2, _ADAM), TRAINING),
    Entry("Momentum", 1, 1, _step("momentum", 1, _MOMENTUM), TRAINING),
)

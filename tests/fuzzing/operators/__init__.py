"""Rules for drawing the nodes of many ONNX operators, with the attributes and in the versions that models have them: windows that dilate
and do not fit, axes from the end, optional inputs left out, quantised arithmetic, recurrent layers, resizing.

Each module has the rules of one kind in `RULES`, a frequent one several times; a seed draws the same as long as `OPERATORS` has them in the
same order. What a rule draws need not be valid in every version of the operators: `NetDrawing.add` drops what the checker does not take.
"""

from __future__ import annotations

from fuzzing.network import Rule
from fuzzing.operators import (
    attention,
    classical,
    control,
    elementwise,
    indices,
    microsoft,
    microsoft_attention,
    moving,
    normalisation,
    products,
    quantised,
    recurrent,
    reductions,
    resizing,
    sampling,
    windows,
)

_KINDS = (elementwise, moving, indices, reductions, products, windows, normalisation, quantised, recurrent, resizing, attention)

OPERATORS: tuple[Rule, ...] = tuple(rule for kind in _KINDS for rule in kind.RULES)

SELDOM: tuple[Rule, ...] = tuple(rule for kind in (control, sampling, microsoft, microsoft_attention, classical) for rule in kind.RULES)
"""Rules for operators that few models have: graphs within graphs, sequences, sampled and data-dependent ones, those of onnxruntime's own
set, and those of classical models."""

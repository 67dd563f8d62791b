"""How exact an operator's arithmetic is (rule R2): `strict`, `reduce` or `fast`.

    strict op norm(…)       reductions fold from left to right, nothing is contracted
    op norm(…)              `reduce` unless whoever loads the file says otherwise
    fast op norm(…)         `a * b + c` rounds once wherever it stands

Each mode allows all that the ones before it allow, so an operator and the operators it calls share one mode: the strictest that any of
them states.
"""

from __future__ import annotations

from tensorlang.check.module import Module
from tensorlang.check.walk import descendants
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.nodes import Mode

__all__ = ["MODES", "Mode", "mode_of"]

MODES: tuple[Mode, ...] = ("strict", "reduce", "fast")
"""The strictest first."""


def mode_of(module: Module, operator: sx.Operator) -> Mode:
    """Return the mode in which `operator` is compiled: the strictest that it or a callee states, or else the module's."""
    stated = {o.mode for o in _reached(module, operator)}
    return next((mode for mode in MODES if mode in stated), module.mode)


def _reached(module: Module, operator: sx.Operator) -> list[sx.Operator]:
    """Return `operator` and the operators it calls, directly or through others."""
    found = [(module, operator)]
    for defining, caller in found:
        names = {n.name for n in descendants(caller) if isinstance(n, sx.Apply) and n.name in defining.operators}
        called = [(defining.defining_module(name), defining.operators[name]) for name in sorted(names)]
        known = [operator for _, operator in found]
        found += [(there, operator) for there, operator in called if operator not in known]
    return [operator for _, operator in found]

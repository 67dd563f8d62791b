"""`derive`: what the lines of a schedule before it leave open is derived, when it is chosen for a program and a machine.

Whoever plans puts directives in its place (`tensorlang.policy.complete`); nothing is left to do for what applies them.
"""

from __future__ import annotations

from tensorlang.schedule.directives.kind import Kind
from tensorlang.syntax.directive_forms import FORMS

DERIVE = Kind("derive", FORMS["derive"], target="cpu", instead="write the rest, or leave out the schedule")

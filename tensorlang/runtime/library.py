"""Schedules of roles that installed packages offer: they serve operators of any file that has no better one.

[project.entry-points."tensorlang.schedules"]
mine = "my_package:roles"          a function without arguments that returns a `Module`
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tensorlang.check.module import Module, load_module
from tensorlang.planning import Rules, stated
from tensorlang.plugins import SCHEDULES, installed
from tensorlang.syntax.nodes import File


@cache
def installed_roles() -> tuple[Module, ...]:
    """Return the modules that installed packages offer, in order of their names."""
    return installed(SCHEDULES)


def with_roles(module: Module, offered: tuple[Module, ...]) -> Module:
    """Return `module` with the schedules of roles, the tactics of `offered` and the instructions of `offered` after its own. Nothing else
    of theirs is seen."""
    roles = tuple(s for m in offered for s in m.schedules if s.role is not None)
    tactics = {name: tactic for m in reversed(offered) for name, tactic in m.tactics.items()}
    instructions = {name: i for m in reversed(offered) for name, i in m.instructions.items()}
    return replace(
        module,
        schedules=(*module.schedules, *roles),
        tactics={**tactics, **module.tactics},
        instructions={**instructions, **module.instructions},
    )


@cache
def empty_module() -> Module:
    """Return a module without a name of its own."""
    return load_module(File(()), ())


def rules_of(offered: tuple[Module, ...]) -> Rules:
    """Return the choice among the schedules of roles of `offered`, for kernels that are no operator's."""
    module = with_roles(empty_module(), offered)
    return Rules(module, text=stated(module, None))

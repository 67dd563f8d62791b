"""What schedules are `for`: the targets by name, and what the language has to know of each. All else a back end's folder says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """`on_device`: a graphics processor, whose loops are blocks and threads; `lanes`: the most threads that a warp of it has."""

    name: str
    on_device: bool = False
    lanes: int = 1


HOST = "cpu"
"""The processor of this machine."""

TARGETS = {
    target.name: target
    for target in (
        Target(HOST),
        Target("cuda", on_device=True, lanes=32),
        Target("hip", on_device=True, lanes=64),
    )
}


GPU = "gpu"
"""What a schedule is for that serves every graphics processor."""
WRITTEN = (*TARGETS, GPU)
"""What schedules may be for."""


def served(name: str) -> tuple[Target, ...]:
    """Return the targets that a schedule for `name` serves, none where there is no such target."""
    return tuple(t for t in TARGETS.values() if t.name == name or (name == GPU and t.on_device))


def serves(name: str, target: str) -> bool:
    """Tell whether a schedule for `name` serves a target."""
    return any(t.name == target for t in served(name))


def target_of(name: str) -> Target:
    """Return the target that a name is about, whatever it says after a colon; a kind of processor is `cpu`."""
    return TARGETS.get(name.partition(":")[0], TARGETS[HOST])


def others(target: Target) -> str:
    """Return the names of the targets of the other kind, for messages."""
    return " and ".join(f"`{t.name}`" for t in TARGETS.values() if t.on_device != target.on_device)

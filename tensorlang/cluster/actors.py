"""Processes on the machines of a cluster that answer questions, one on each machine.

    actors = Actors(begin, "auto", cpus=2, patience=30.0)       `begin()` returns a greeting and what answers questions, over there
    for actor in actors.idle(10.0): actor.begin(question)
    for actor, answer in actors.answers(1.0): ...               None of one that has died

An actor that dies, or does not answer in time, is replaced if its machine is still there; machines that join get one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from tensorlang.cluster.connection import connected
from tensorlang.diagnostics import error

Begin: TypeAlias = Callable[[], tuple[Any, Callable[[Any], Any]]]
_LOOK_SECONDS = 2.0
"""How often machines are looked for."""
_MOST_FAILURES = 3
"""How many actors may die on a machine before they have begun; then it gets no other."""


class _Answering:
    """What runs there."""

    def __init__(self, begin: Begin) -> None:
        self._greeting, self._answer = begin()

    def greeting(self) -> Any:
        return self._greeting

    def answer(self, question: Any) -> Any:
        return self._answer(question)


class Actor:
    """An actor, as it is known here."""

    def __init__(self, handle: Any, node: str, deadline: float, patience: float) -> None:
        self.handle, self.node, self.deadline = handle, node, deadline
        self._patience = patience
        self.greeting: Any = None
        self.under_way: Any = handle.greeting.remote()

    def begin(self, question: Any) -> None:
        """Have it answer a question; nothing else may be under way."""
        self.deadline = time.monotonic() + self._patience
        self.under_way = self.handle.answer.remote(question)


class Actors:
    """Actors of a cluster. Each has `cpus` processors of its machine to itself, as far as Ray is concerned."""

    def __init__(self, begin: Begin, address: str, cpus: int, patience: float) -> None:
        self._ray = connected(address)
        self._class = self._ray.remote(_Answering)
        self._begin, self._cpus, self._patience = self._ray.put(begin), cpus, patience
        self._actors: dict[str, Actor] = {}
        self._failures: dict[str, int] = {}
        self._answered: list[tuple[Actor, Any]] = []
        self._looked = float("-inf")
        self._why = ""

    def idle(self, seconds: float) -> Sequence[Actor]:
        """Return the actors that have nothing to do, waiting at most so long for the first. Raises CompileError C0103 where none of the
        machines has processors enough, or where none could begin."""
        end = time.monotonic() + seconds
        while True:
            self._look()
            self._poll(0.0)
            found = [a for a in self._actors.values() if a.under_way is None]
            if found or time.monotonic() >= end:
                return found
            if not self._actors:
                self._refuse()
            self._poll(min(1.0, max(0.0, end - time.monotonic())))

    def answers(self, seconds: float) -> Iterator[tuple[Actor, Any]]:
        """Yield what was answered, waiting at most so long for the first; None of an actor that has died."""
        self._look()
        if not self._answered:
            self._poll(seconds)
        while self._answered:
            yield self._answered.pop(0)

    def end(self) -> None:
        """End all actors."""
        for actor in self._actors.values():
            self._ray.kill(actor.handle)
        self._actors.clear()

    def _look(self) -> None:
        """Give each machine that has none an actor."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        for node in self._ray.nodes():
            name = node["NodeID"]
            if not node["Alive"] or name in self._actors or node["Resources"].get("CPU", 0) < self._cpus:
                continue
            if self._failures.get(name, 0) < _MOST_FAILURES:
                there = NodeAffinitySchedulingStrategy(node_id=name, soft=False)
                handle = self._class.options(num_cpus=self._cpus, scheduling_strategy=there).remote(self._begin)
                self._actors[name] = Actor(handle, name, time.monotonic() + 4 * self._patience, self._patience)

    def _poll(self, seconds: float) -> None:
        """Note what has been answered, by waiting at most so long for the first."""
        pending = {a.under_way: a for a in self._actors.values() if a.under_way is not None}
        if not pending:
            time.sleep(min(seconds, 0.1))
            return
        ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=seconds)
        more, _ = self._ray.wait(list(pending), num_returns=len(pending), timeout=0)
        for reference in {*ready, *more}:
            self._note(pending[reference])
        for actor in [a for a in self._actors.values() if a.under_way is not None and time.monotonic() > a.deadline]:
            self._drop(actor, "it did not answer in time")

    def _note(self, actor: Actor) -> None:
        begun = actor.greeting is not None
        try:
            found = self._ray.get(actor.under_way)
        except Exception as problem:  # whatever was raised there, or took the process
            self._drop(actor, str(getattr(problem, "cause", None) or problem).strip().split("\n")[0])
            return
        actor.under_way = None
        if begun:
            self._answered.append((actor, found))
        else:
            actor.greeting = found

    def _drop(self, actor: Actor, why: str) -> None:
        self._why = why
        if actor.greeting is None:
            self._failures[actor.node] = self._failures.get(actor.node, 0) + 1
        else:
            self._answered.append((actor, None))
        self._actors.pop(actor.node, None)
        self._ray.kill(actor.handle)
        self._looked = float("-inf")

    def _refuse(self) -> None:
        """Raise CompileError C0103 where no machine will ever have an actor."""
        large = [n["NodeID"] for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= self._cpus]
        if not large:
            title = f"no machine of the cluster has {self._cpus} processors"
            raise error("C0103", title, help="begin with fewer: `threads=` of `tl.load`, `tl.parse` or `tl.compile`")
        if all(self._failures.get(name, 0) >= _MOST_FAILURES for name in large):
            notes = (self._why,) if self._why else ()
            raise error("C0103", "no process could begin on the cluster", notes=notes, help="install the same version on its machines")

"""Branches in LLVM IR: register cells that differ after the two sides are merged."""

from __future__ import annotations

from collections.abc import Callable

from codegen.llvm.builder import Builder
from codegen.llvm.frame import LIKELY, Emitter


def fork(e: Emitter, cond: str, then: Callable[[], None], orelse: Callable[[], None] | None, *, likely: bool = False) -> None:
    """Write a branch; register cells that differ afterwards are merged. `likely`: whether the condition nearly always holds."""
    b, state = e.b, e.state
    yes, end = b.fresh_label("then"), b.fresh_label("end")
    no = b.fresh_label("else") if orelse is not None else end
    before = state.snapshot()
    b.open_placeholder()
    origin = b.label
    b.write(f"br i1 {cond}, label %{yes}, label %{no}{LIKELY if likely else ''}")
    outcomes = [_side(e, yes, end, then)]
    if orelse is None:
        outcomes.append((origin, before))
    else:
        state.cells = {uid: list(cells) for uid, cells in before.items()}
        outcomes.append(_side(e, no, end, orelse))
    b.region.placeholder = None
    b.start(end)
    (label_a, cells_a), (label_b, cells_b) = outcomes
    merged: dict[int, list[str]] = {}
    for uid, cells in before.items():
        kinds = state.register_types[uid]
        merged[uid] = [_phi(b, kinds[i], cells_a[uid][i], label_a, cells_b[uid][i], label_b) for i in range(len(cells))]
    state.cells = merged


def _side(e: Emitter, label: str, end: str, body: Callable[[], None]) -> tuple[str, dict[int, list[str]]]:
    b = e.b
    b.enter()
    b.start(label)
    body()
    last = b.label
    b.write(f"br label %{end}")
    b.leave()
    return last, e.state.cells


def _phi(b: Builder, kind: str, x: str, from_x: str, y: str, from_y: str) -> str:
    x, y = b.resolve(x), b.resolve(y)
    return x if x == y else b.op(f"phi {kind} [ {x}, %{from_x} ], [ {y}, %{from_y} ]")

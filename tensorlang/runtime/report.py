"""What a compiled model does, told to people: its kernels in the order they run, whatever they run on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorlang.diagnostics import counted
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Extern, Graph, Kernel
from tensorlang.graph.precisions import Precision


def report(
    title: str, nodes: Sequence[tuple[Graph, Kernel | Extern]], about: Iterable[Iterable[str]], precision: Precision, totals: Sequence[str]
) -> str:
    """Return the title, what `precision` came to, each kernel with what there is to say `about` it, and what is said of them all."""
    lines = [title]
    if precision.used != precision.requested:
        lines.append(f"      precision {precision.requested}: contractions stay {precision.used}; {precision.reason}")
    for k, ((graph, node), texts) in enumerate(zip(nodes, about, strict=True)):
        result = graph.values[node.outputs[0]]
        lines.append(f"{k:4}  {kernel_name(node)}: {result.dtype}{list(result.shape)}  =  {' + '.join(members(node))}")
        lines += [f"          {text}" for text in texts]
    return "\n".join((*lines, *(f"      {text}" for text in totals)))


def bytes_text(count: int) -> str:
    """Return a number of bytes as people read it, three digits or more of it."""
    if count < 1024:
        return counted(count, "byte")
    power = min(4, (count.bit_length() - 1) // 10)
    value = count / 1024**power
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def kernel_name(node: Kernel | Extern) -> str:
    """Return what a kernel is called; of one that is not in the language, the operator that it stands for."""
    return node.program.name if isinstance(node, Kernel) else f"extern {node.call.operator}"


def us(seconds: float) -> str:
    """Return a time as people read it."""
    return f"{seconds * 1e6:.1f} us"

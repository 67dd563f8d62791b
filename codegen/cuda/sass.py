"""The instructions of a cubin, as NVIDIA's disassembler prints them: what tests of kernels count, and what people read.

LDG.E.128.CONSTANT R4, desc[UR4][R6.64]        an opcode is a name and modifiers
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache

from codegen.cuda.bindings import pathfinder
from codegen.cuda.errors import Unavailable
from codegen.errors import InternalError

_SECTION = re.compile(r"^\.text\.(\S+):$(.*?)(?=^//-----|\Z)", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)


def assembly(cubin: bytes) -> dict[str, str]:
    """Return the assembly of each kernel, by name. Raises Unavailable when there is no disassembler."""
    return {match[1]: match[2].strip("\n") + "\n" for match in _SECTION.finditer(_disassembled(cubin))}


def opcodes(cubin: bytes) -> dict[str, Counter[str]]:
    """Return how often each opcode stands in each kernel, by name. Raises Unavailable when there is no disassembler."""
    return {name: Counter(_INSTRUCTION.findall(text)) for name, text in assembly(cubin).items()}


def count(found: Mapping[str, int], opcode: str) -> int:
    """Return how many instructions have the name and at least the modifiers of `opcode`: `LDG.128` counts `LDG.E.128.CONSTANT`."""
    name, *modifiers = opcode.split(".")
    return sum(n for other, n in found.items() if other.split(".")[0] == name and set(modifiers) <= set(other.split(".")))


def loop(text: str, work: Callable[[str], bool]) -> Counter[str]:
    """Return how often each opcode stands in the loop of a kernel's assembly that does its work: the shortest one with most of the
    instructions that `work` names, the longest one where there are none, all of the kernel where it has no loop. Instructions that are
    never executed, which pad the text, do not count."""
    code: list[str] = []
    places: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for match in _LINE.finditer(text):
        if match["label"]:
            places[match["label"]] = len(code)
        elif match["guard"] != "!PT":
            code.append(match["opcode"])
            begin = places.get(match["target"] or "")
            if match["opcode"].startswith("BRA") and begin is not None and len(code) - begin > 1:
                spans.append((begin, len(code)))
    done = {span: sum(map(work, code[slice(*span)])) for span in spans}
    most = max(done.values(), default=0)
    if not most:
        return Counter(code[slice(*max(spans, key=lambda span: span[1] - span[0], default=(0, len(code))))])
    return Counter(code[slice(*min((s for s in spans if 2 * done[s] > most), key=lambda span: span[1] - span[0]))])


_LINE = re.compile(
    r"^(?P<label>\.L_\w+):|^\s*/\*[0-9a-f]+\*/\s+(?:@(?P<guard>!?U?P\w+)\s+)?(?P<opcode>[A-Z][\w.]*)(?:[^;\n]*`\((?P<target>\.L_\w+)\))?",
    re.MULTILINE,
)


@lru_cache(maxsize=1)  # whoever asks for the opcodes of a cubin next asks for its assembly
def _disassembled(cubin: bytes) -> str:
    tool = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if tool is None:
        raise Unavailable("there is no `nvdisasm`", "install `nvidia-cuda-nvdisasm`")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        # Without an analysis of where jumps through registers go, a quarter of its time: no kernel has any.
        run = subprocess.run([tool, "--print-code", "--no-dataflow", file.name], capture_output=True, text=True, check=False)
    if run.returncode:
        raise InternalError("sass", run.stderr.strip())
    return run.stdout

"""The pages about codes of messages, which are part of the package: `tensorlang explain T0301`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from tensorlang.diagnostics import error

_CODE = re.compile(r"[A-Za-z]?\d{1,5}")
_ENTRY = re.compile(r"^### ([A-Z]\d{3,4}) (.*?)$(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def is_code(text: str) -> bool:
    """Tell whether a word looks like the code of a message, or like its number."""
    return _CODE.fullmatch(text) is not None


@cache
def entries() -> dict[str, str]:
    """Return what the pages say of each code."""
    pages = sorted((p for p in (files("tensorlang") / "pages").iterdir() if p.name.startswith("errors")), key=lambda p: p.name)
    found = (m for page in pages for m in _ENTRY.finditer(page.read_text("utf-8")))
    return {m[1]: f"{m[1]}: {m[2]}\n\n{m[3].strip()}" for m in found}


def page_of(code: str) -> str:
    """Return the page about a code. Raises CompileError C0215 where there is none."""
    known = entries()
    if code.upper() in known:
        return known[code.upper()]
    near = [c for c in known if c[1:] == code] or get_close_matches(code.upper(), known, 3, 0.6)
    help = f"did you mean {' or '.join(f'`{c}`' for c in near)}?" if near else "codes look like `T0301`"
    raise error("C0215", f"there is no code `{code}`", help=help)

"""Writes tensorlang/syntax/grammar.json: the tables of the parser, which grammar.lark says.

python scripts/tables.py            writes it
python scripts/tables.py --check    exits with 1 if it is not what would be written
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tensorlang.syntax.automaton import written  # noqa: E402

FOLDER = ROOT / "tensorlang" / "syntax"


def main(arguments: list[str]) -> int:
    path, text = FOLDER / "grammar.json", written((FOLDER / "grammar.lark").read_text("utf-8"))
    if "--check" not in arguments:
        path.write_text(text, "utf-8")
    elif not path.exists() or path.read_text("utf-8") != text:
        print("tensorlang/syntax/grammar.json is out of date: run `python scripts/tables.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

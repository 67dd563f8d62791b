"""Writes the TextMate grammar of `editors/vscode` from the table of `tensorlang/lsp/words.py`.

python scripts/grammar.py            writes the file
python scripts/grammar.py --check    exits with 1 if the file is not what would be written
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tensorlang.lsp.words import textmate  # noqa: E402

FILE = ROOT / "editors" / "vscode" / "syntaxes" / "tensorlang.tmLanguage.json"


def main(arguments: list[str]) -> int:
    text = json.dumps(textmate(), indent=2) + "\n"
    if "--check" in arguments:
        if FILE.read_text("utf-8") == text:
            return 0
        print(f"{FILE.relative_to(ROOT)} is out of date: run `python scripts/grammar.py`", file=sys.stderr)
        return 1
    FILE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

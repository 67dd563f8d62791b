"""Accepts or rejects a certificate of `tensorlang certify`: do its loops compute its equations? docs/certificates.md says what that means.

    python3 scripts/check_certificate.py FILE …

Stands alone, with `certificate_loops`, `certificate_proofs` and `certificate_values` beside it: knows nothing of the compiler, reads the
loops' text itself and derives every obligation from it. Nothing that a certificate claims is believed.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from typing import Any

import islpy as isl
from certificate_loops import Ast, Buffer, Rejected, function
from certificate_proofs import Prover
from certificate_values import WORK, Run, TooMuch


def tuples(e: Any) -> Any:
    """Return an equation's expression as the tuples that `expression` makes."""
    return tuple(map(tuples, e)) if isinstance(e, list) else {k: tuples(v) for k, v in e.items()} if isinstance(e, dict) else e


def signed(body: dict[str, Any]) -> str:
    """Return a certificate of these parts, with their digest."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return "{\n" + "".join(f' "{key}": {json.dumps(part)},\n' for key, part in body.items()) + f' "digest": "{digest}"\n}}\n'


def check(text: str) -> list[str]:
    """Return what was checked of a certificate. Raises Rejected."""
    raw = json.loads(text)
    digest = raw.pop("digest")
    if digest != hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest():
        raise Rejected("the digest is of another text")
    certificate = {**tuples(raw), "loops": raw["loops"]}
    sizes, params, body = function(raw["loops"])
    tensors = {t["name"]: t for t in (*certificate["params"], *(t for d in certificate["definitions"] for t in d["tensors"]))}
    wanted = [(t["name"], t["dtype"], t["shape"], t in certificate["params"]) for t in tensors.values()]
    if set(sizes) != set(certificate["sizes"]):
        raise Rejected("the loops take other sizes")
    asked = {*(t["name"] for t in certificate["params"]), *certificate["results"]}
    if sorted(p.name for p in params) != sorted(asked) or any((p.name, p.dtype, p.shape, p.given) not in wanted for p in params):
        raise Rejected("the loops take other arguments than the equations")
    prover = Prover(sizes, params, body, certificate["mode"] == "strict", certificate["context"])
    for t in certificate["params"]:
        if t["range"]:
            prover.in_range(t)
    done = [where for at in chosen(prover, raw["loops"]) if (where := compared_at(certificate, params, body, at))]
    values = f"values at {'; '.join(dict.fromkeys(done))}" if done else "NOT values: they would take too long, or data were refused"
    return [f"bounds, 64 bits, order, races, coverage for {'all' if sizes else 'these'} sizes", values]


def compared_at(certificate: dict[str, Any], params: tuple[Buffer, ...], body: Ast, at: dict[str, int]) -> str:
    """Return these sizes if values were compared there: once, or with several data where data decide what is computed."""
    where, left = ", ".join(f"{n} = {v}" for n, v in at.items()) or "these sizes", WORK if at else 5 * WORK
    for seed in range(24):
        run = Run(certificate, params, at, seed)
        run.left = left
        try:
            try:
                wanted: Any = run.equations()
            except KeyError:
                wanted = None
            found = run.loops(body)
        except KeyError as problem:
            raise Rejected(f"an element is read that nobody has written, at {where}") from problem
        except TooMuch:
            return where if seed else ""
        if (wanted is None) != isinstance(found, int) or (wanted is not None and wanted != found):
            raise Rejected(f"the loops do not compute the equations at {where}")
        left = run.left
        if not run.decides or wanted is None:
            break
    return "" if wanted is None else where


def chosen(prover: Prover, loops: str) -> list[dict[str, int]]:
    """Return sizes to run at: around what loops count by, as far as what is known of the sizes allows."""
    step = max([int(n) for n in re.findall(r"\b(\d+)\*", loops) if int(n) < 33], default=8)
    pick, found = random.Random(1), []
    values = (0, 1, 2, 3, step, step + 1, 2 * step + 3)
    for trial in [*([v] * 9 for v in values), *([pick.choice(values) for _ in range(9)] for _ in range(4))] if prover.sizes else [[]]:
        space = isl.Set(f"{prover.params} -> {{ : {prover.known} }}")
        for name, value in zip(prover.sizes, trial, strict=False):
            fixed = space.intersect(isl.Set(f"{prover.params} -> {{ : {prover.renamed(name)} = {value} }}"))
            space = space.lexmin() if fixed.is_empty() else fixed
        point = space.sample_point()
        if not space.is_empty():
            found.append({n: int(str(point.get_coordinate_val(isl.dim_type.param, k))) for k, n in enumerate(prover.sizes)})
    return found


def main() -> int:
    for path in sys.argv[1:]:
        try:
            with open(path, encoding="utf-8") as file:
                print(f"{path}: accepted: {'; '.join(check(file.read()))}")
        except Rejected as problem:
            print(f"{path}: rejected: {problem}")
            return 1
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError, isl.Error) as problem:
            print(f"{path}: rejected: it is not understood: {problem!r}")
            return 1
    return 0


if __name__ == "__main__":
    sys.setrecursionlimit(20_000)
    sys.exit(main())

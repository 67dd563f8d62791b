"""`tensorlang certify`: the certificate of an operator's kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.loading import operator_of
from tensorlang.shell.reporting import say


@click.command(short_help="Write the certificate of a kernel.")
@options.file()
@options.arguments
@options.output("where to write it (default: standard output)")
@click.option("--symbolic", is_flag=True, help="the kernel that serves arguments of any sizes")
@options.threads
@options.as_json
def certify(file: Path, arguments: Sequence[str], output: Path | None, symbolic: bool, threads: int | None, as_json: bool) -> None:
    """Write the certificate of an operator's kernel: its loops and equations, for `scripts/check_certificate.py` to accept or reject."""
    from tensorlang.certificate import certificate
    from tensorlang.shell.files import write_text

    if file.suffix != ".tl":
        raise error("C0103", "not supported yet: a certificate of a model", help="certify an operator of a `.tl` file")
    operator, values = operator_of(file, arguments, threads, symbolic=symbolic)
    texts: dict[str, str] = {}
    operator.stages(dump=texts.__setitem__, **values)
    text = certificate(operator.scheduled_program(**values), texts["loops"])
    if output is not None:
        write_text(output, text)
    data = {"operator": operator.name, "symbolic": symbolic, "output": None if output is None else str(output)}
    say(data | ({"certificate": text} if output is None else {}), "" if output is not None else text.rstrip("\n"), as_json)

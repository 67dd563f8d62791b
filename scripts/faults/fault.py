"""A fault, and the tests that are nearest to several parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """`old`, which stands once in `file`, becomes `new`. `breaks`: what is wrong then; `tests`: those nearest, the quickest first;
    `equivalent`: why nothing that anybody relies on changes, "" where something does."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    equivalent: str = ""


LEGALITY = ("tests/polyhedral/test_polyhedral_legality.py",)
REGION = ("tests/polyhedral/test_polyhedral_region.py", "tests/polyhedral/test_polyhedral_fusion.py")
SETS = ("tests/polyhedral/test_polyhedral_sets.py",)
DATA = ("tests/runtime/test_data_dependent_reads.py",)
PIPELINE = ("tests/graph/test_pipeline.py",)
PROVE = ("tests/tensor/test_prove.py",)

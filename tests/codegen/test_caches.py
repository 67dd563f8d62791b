"""What is read of this machine's caches, and what is taken where its system does not tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.llvm.caches import USUAL, Caches, caches_here
from codegen.llvm.target import at_level, named, this_machine

KIB, MIB = 1 << 10, 1 << 20


def described(folder: Path, *caches: tuple[str, str, str]) -> Path:
    for k, parts in enumerate(caches):
        (folder / f"index{k}").mkdir()
        for name, text in zip(("level", "type", "size"), parts, strict=True):
            (folder / f"index{k}" / name).write_text(text + "\n")
    return folder


def test_data_caches_are_read_from_the_system(tmp_path: Path) -> None:
    folder = described(tmp_path, ("1", "Data", "48K"), ("1", "Instruction", "64K"), ("3", "Unified", "32768K"), ("2", "Unified", "2M"))
    assert caches_here(folder) == Caches(48 * KIB, 2 * MIB, 32 * MIB)
    assert caches_here(folder).levels == (("L1", 48 * KIB), ("L2", 2 * MIB), ("L3", 32 * MIB))


def test_where_cores_share_the_second_cache_it_is_the_last(tmp_path: Path) -> None:
    found = caches_here(described(tmp_path, ("1", "Data", "64K"), ("2", "Unified", "4M")))
    assert found == Caches(64 * KIB, 4 * MIB, 4 * MIB)
    assert found.levels == (("L1", 64 * KIB), ("L2", 4 * MIB))


@pytest.mark.parametrize("caches", [(), (("1", "Data", ""),), (("1", "Data", "many"),), (("2", "Unified", "0K"),)])
def test_where_the_system_says_nothing_usual_caches_are_taken(tmp_path: Path, caches: tuple[tuple[str, str, str], ...]) -> None:
    assert caches_here(described(tmp_path, *caches)) == USUAL


def test_a_level_of_this_machine_keeps_its_caches() -> None:
    assert this_machine().caches == caches_here()
    if this_machine().is_x86:
        assert at_level(this_machine(), "x86-64").caches == caches_here()


def test_code_for_another_machine_is_made_for_usual_caches() -> None:
    assert named("x86-64-v3").caches == USUAL

"""Eigenvectors, singular vectors and exponentials of matrices by rotations and products: what LAPACK finds, to a few units of rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from onnx_evaluate import evaluate
from torch import Tensor, nn

from stdlib.aten import Importer
from stdlib.aten.importer import imported
from tensorlang.torch import spectra
from tensorlang.torch.backend import tensorlang
from tensorlang.torch.capture import of_export

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let loops run as those of Python, and return how often each did."""
    counts: list[int] = []

    def ran(
        goes_on: Callable[..., Tensor], step: Callable[..., Any], state: tuple[Tensor, ...], read: tuple[Tensor, ...] = ()
    ) -> tuple[Tensor, ...]:
        counts.append(0)
        while goes_on(*state, *read):
            state = tuple(step(*state, *read))
            counts[-1] += 1
        return state

    monkeypatch.setattr(spectra, "repeated", ran)
    return counts


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(dtype)


def close(found: Tensor, wanted: Tensor) -> None:
    tolerance = 100 * torch.finfo(found.dtype).eps * max(1.0, float(wanted.abs().max()))
    torch.testing.assert_close(found, wanted.to(found.dtype), rtol=0, atol=tolerance)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_symmetric_matrices_are_made_diagonal(n: int, dtype: torch.dtype, loops: list[int]) -> None:
    x = drawn(2, n, n, dtype=dtype)
    x = x + x.mT
    values, vectors = spectra.eigenvectors(x)
    close(values, torch.linalg.eigvalsh(x.double()))
    close(vectors @ torch.diag_embed(values) @ vectors.mT, x)
    close(vectors.mT @ vectors, torch.eye(n).expand(2, n, n))
    assert loops[0] <= 7 * max(1, n - 1 + n % 2)  # no sweep that finds nothing to rotate but the last


def test_one_triangle_of_a_symmetric_matrix_is_read(loops: list[int]) -> None:
    x = drawn(5, 5)
    for triangle in ("L", "U"):
        close(spectra.eigenvectors(x, triangle)[0], torch.linalg.eigvalsh(x, triangle))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 2), (7, 4), (3, 6), (1, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_matrices_are_products_of_orthogonal_ones_and_singular_values(m: int, n: int, full: bool, loops: list[int]) -> None:
    x = drawn(2, m, n)
    u, s, v = spectra.singular_vectors(x, full)
    wanted = torch.linalg.svd(x, full_matrices=full)
    assert [t.shape for t in (u, s, v)] == [t.shape for t in wanted]
    assert u.mT.is_contiguous() and v.mT.is_contiguous()  # as LAPACK has them
    close(s, wanted[1])
    close(u[..., : s.shape[-1]] @ torch.diag_embed(s) @ v[..., : s.shape[-1], :], x)
    close(u.mT @ u, torch.eye(u.shape[-1]).expand(2, -1, -1))
    close(v @ v.mT, torch.eye(v.shape[-2]).expand(2, -1, -1))


@pytest.mark.parametrize(
    "x",
    [drawn(6, 2) @ drawn(2, 5), torch.zeros(4, 3, dtype=torch.float64), torch.ones(5, 3, dtype=torch.float64), 1e-200 * drawn(4, 4)],
    ids=["rank 2", "zeros", "ones", "tiny"],
)
def test_vectors_are_orthogonal_where_singular_values_are_zero(x: Tensor, loops: list[int]) -> None:
    u, s, v = spectra.singular_vectors(x)
    close(u.mT @ u, torch.eye(u.shape[-1]))
    close(v @ v.mT, torch.eye(v.shape[-1]))
    torch.testing.assert_close(u @ torch.diag(s) @ v, x, rtol=0, atol=1e-14 * float(x.abs().max()))


def test_pseudo_inverses_leave_out_what_is_zero_but_for_rounding(loops: list[int]) -> None:
    for x in (drawn(6, 4), drawn(3, 5), drawn(6, 2) @ drawn(2, 5)):
        close(spectra.pseudo_inverse(x), torch.linalg.pinv(x))
        close(spectra.pseudo_inverse(x, atol=torch.tensor(1.0)), torch.linalg.pinv(x, atol=1.0))
        close(spectra.pseudo_inverse(x, rtol=torch.tensor(0.5)), torch.linalg.pinv(x, rtol=0.5))


def test_of_a_symmetric_matrix_the_lower_triangle_is_inverted_whatever_the_upper_one_is(loops: list[int]) -> None:
    x = drawn(2, 5, 5)
    close(spectra.pseudo_inverse(x, hermitian=True), torch.linalg.pinv(x, hermitian=True))


@pytest.mark.parametrize("size", [0.0, 0.01, 1.0, 30.0])
def test_exponentials_are_squared_as_often_as_a_matrix_was_halved(size: float, loops: list[int]) -> None:
    x = size * drawn(2, 4, 4)
    found = spectra.exponential(x)
    torch.testing.assert_close(found / found.abs().amax(), torch.linalg.matrix_exp(x) / found.abs().amax(), rtol=0, atol=1e-12)
    assert spectra.exponential(-1e300 * torch.eye(2, dtype=torch.float64)).eq(0).all()
    assert spectra.exponential(torch.full((2, 2), float("nan"))).isnan().all()


def test_loops_of_them_are_compiled() -> None:
    torch._dynamo.reset()
    x = drawn(2, 3, 3, dtype=torch.float32)
    with torch.no_grad():
        close(torch.compile(torch.linalg.matrix_exp, backend=tensorlang, fullgraph=True)(x), torch.linalg.matrix_exp(x))


class _Evolved(nn.Module):
    """A parameter and a size that stays open beside loops, and an input that is called as an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Parameter(drawn(2, 2, dtype=torch.float32))

    def forward(self, x: Tensor, mul: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(x) @ (self.mixed * mul)


def test_an_exported_program_has_such_loops_too() -> None:
    model, factor = _Evolved().eval(), torch.tensor(2.0)
    exported = torch.export.export(model, (drawn(2, 2, 2).float(), factor), dynamic_shapes=({0: torch.export.Dim("batch")}, {}))
    first, again = (of_export(exported, Importer().serves) for _ in range(2))
    assert [i.name for i in first.inputs] == ["x", "mul"] and first.digest() == again.digest()
    x = drawn(5, 2, 2, dtype=torch.float32)
    (found,) = evaluate(imported(first, {"x": (5, 2, 2), "mul": ()}), {"x": x.numpy(), "mul": factor.numpy()})
    close(torch.from_numpy(found), model(x, factor).detach())

"""Graphs with complex numbers become graphs of real ones that compute the same: torch runs what they become, and a few are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import tensorlang as tl
from stdlib.aten import Importer
from tensorlang.diagnostics import CompileError
from tensorlang.torch.backend import tensorlang
from tensorlang.torch.capture import decompositions
from tensorlang.torch.complex_numbers import as_real, parts_of

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

Z, W = torch.randn(3, 4, dtype=torch.complex64), torch.randn(3, 4, dtype=torch.complex64)
X = torch.randn(3, 4)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "sums and differences, also with real numbers": (lambda z, w, x: (z + w) - x * 2 + (1 - 2j) - 0.5, (Z, W, X)),
    "products and quotients": (lambda z, w, x: z * w / (w * x + 1j) * (2 - 1j) / 3 + 1 / z, (Z, W, X)),
    "powers, roots, exponentials, logarithms": (lambda z: (z**2 + z**-1.5 + torch.sqrt(z) + torch.exp(z) + torch.log(z)).sum(), (Z,)),
    "size, angle, direction": (lambda z: (z.abs(), z.angle(), torch.sgn(z * (z.real > 0)), z.conj() * z), (Z,)),
    "parts and what is made of them": (lambda z, x: torch.complex(z.imag, x) + torch.polar(x.abs(), z.real), (Z, X)),
    "products of matrices": (lambda z, w, x: torch.addmm(w @ w.mT, z, w.mT) + z @ x.mT.to(z.dtype), (Z, W, X)),
    "parts of two shapes": (lambda z, w: torch.complex(z.real, w.imag[0, :1]) * w, (Z, W)),
    "einsum": (lambda z, w: torch.einsum("bx,cx->cb", z, w.conj()), (Z, W)),
    "what moves elements": (lambda z, w: torch.cat([z, w]).unflatten(0, (2, 3)).flip(0)[:, ::2].permute(2, 0, 1).roll(1, 0), (Z, W)),
    "elements by index": (lambda z: z[:, torch.tensor([2, 0])].gather(1, torch.tensor([[1], [0], [1]])), (Z,)),
    "pieces": (lambda z: torch.stack([a.sum(0) - b.mean(0) for a, b in zip(z.unbind(0), z.split(1), strict=True)]), (Z,)),
    "a choice": (lambda z, x: torch.where(x > 0, z, torch.zeros_like(z)) + torch.ones(3, 4, dtype=torch.complex64), (Z, X)),
    "comparisons": (lambda z, w: (z == z.clone(), z != w), (Z, W)),
    "another precision, and real numbers made complex": (lambda z, x: z.to(torch.complex128) + x.to(torch.complex64), (Z, X)),
    "complex numbers beside real ones": (
        lambda x, n: (1j * x, x - 1j, (1 - 2j) - n, 1j / x, (1 + 1j) ** x, x.double() * 1j, torch.where(x > 0, x, 1j), x == 1j),
        (X, torch.arange(12).reshape(3, 4)),
    ),
    "powers of numbers": (lambda z, w, x: (z**w, z**x, x.abs() ** w, 2**z, 1j**z), (Z, W, X)),
    "functions": (
        lambda z: (z.sin(), z.cos(), z.tan(), z.sinh(), z.cosh(), z.tanh(), (40 * z).tanh(), z.sigmoid(), z.rsqrt(), z.expm1()),
        (Z,),
    ),
    "logarithms": (lambda z: (z.log2(), z.log10(), z.log1p()), (Z,)),
    "spread and norms": (lambda z: (z.var(1), z.std(), torch.linalg.norm(z), torch.linalg.vector_norm(z, 1, dim=0)), (Z,)),
    "what is finite": (lambda z: tuple(f(z / z.real.relu()) for f in (torch.isnan, torch.isinf, torch.isfinite)), (Z,)),
    "factors of sums": (lambda z, w: (torch.addmm(z[:, :3], z, w.mT, alpha=2j, beta=3), z.lerp(w, 0.3), z.addcmul(w, z, value=2)), (Z, W)),
    "values that are written": (
        lambda z, x: (
            nn.functional.pad(z, (1, 2), value=1.5),
            z.masked_fill(x > 0, 3),
            z.scatter(1, torch.tensor([[1], [0], [1]]), 2.5j),
            torch.fill(z, 2) + z.new_full((4,), 1j),
            z.new_zeros(2, 5),
            torch.where(x > 0, z, torch.arange(4)),
            torch.cat([z, torch.arange(4)[None]]),
        ),
        (Z, X),
    ),
    "writing into a part": (
        lambda z, w: torch.zeros(3, 4, dtype=torch.complex64).index_put((torch.tensor([0, 2]),), w[:2] * z[:2]),
        (Z, W),
    ),
}
LENGTHS = (1, 2, 7, 36, 60, 97)


def real(function: Callable[..., Any], inputs: tuple[Tensor, ...], mode: str = "fake") -> Any:
    """Return the graph of a function without complex numbers."""
    return as_real(make_fx(function, decompositions(Importer().serves), mode)(*inputs))


def check(function: Callable[..., Any], inputs: tuple[Tensor, ...], mode: str = "fake") -> None:
    """Compare what a function and its graph of real numbers compute."""
    graph = real(function, inputs, mode)
    assert not any(t.is_complex() for node in graph.graph.nodes for t in [node.meta.get("val")] if isinstance(t, Tensor))
    found, wanted = graph(*map(parts_of, inputs)), function(*inputs)
    for a, b in zip(*((t if isinstance(t, tuple) else (t,)) for t in (found, wanted)), strict=True):
        torch.testing.assert_close(a, parts_of(b), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pairs_of_real_numbers_are_what_complex_numbers_are(name: str) -> None:
    check(*FUNCTIONS[name])


@pytest.mark.parametrize("n", LENGTHS)
def test_transforms_of_lengths_with_factors_and_without(n: int) -> None:
    z, x = torch.randn(2, n, dtype=torch.complex64), torch.randn(2, n)
    check(lambda z, x: (torch.fft.fft(z), torch.fft.ifft(z), torch.fft.rfft(x), torch.fft.fft(x, norm="ortho")), (z, x))
    check(lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]), (x,))


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("n", [6, 64])
def test_sums_of_real_numbers_that_are_real_have_no_imaginary_part(n: int, mode: str) -> None:
    x = torch.randn(5, n)
    found = real(torch.fft.rfft, (x,), mode)(x)
    assert not found[:, [0, n // 2], 1].any()


def test_transforms_along_several_axes_and_cut_or_filled_ones() -> None:
    x = torch.randn(6, 5, 8)
    check(lambda x: torch.fft.irfft2(torch.fft.rfft2(x, dim=(0, 2), norm="ortho"), s=(6, 8), dim=(0, 2), norm="ortho"), (x,))
    check(lambda x: (torch.fft.fftn(x).imag, torch.fft.rfft(x, n=12, dim=1), torch.fft.hfft(x, n=6), torch.fft.fftshift(x)), (x,))


def test_transforms_of_open_lengths() -> None:
    x = torch.randn(3, 10)
    check(lambda x: (torch.fft.fft(x), torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1])), (x,), "symbolic")
    check(lambda x: torch.fft.ifft(torch.fft.fft(x, norm="ortho")), (x,), "symbolic")


def test_a_graph_without_complex_numbers_stays_what_it_is() -> None:
    graph = make_fx(lambda x: x.sin() + 1)(X)
    assert as_real(graph) is graph


def test_an_operator_that_nothing_is_there_for_is_refused_by_its_name() -> None:
    with pytest.raises(CompileError, match=r"operator cumprod\.default of complex numbers"):
        real(lambda z: torch.cumprod(z, 0), (Z,))


class Filter(nn.Module):
    """A filter whose weights and results are complex, and what it makes of a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.fft.rfft(x) * self.weights
        return torch.fft.irfft(y, n=x.shape[-1]), y


def test_models_with_complex_weights_inputs_and_results_are_compiled() -> None:
    torch._dynamo.reset()
    model, x = Filter().eval(), torch.randn(2, 8)
    fast = torch.compile(model, backend=tensorlang, fullgraph=True)
    turned = torch.compile(lambda z: (z * 1j).conj(), backend=tensorlang, fullgraph=True)
    with torch.no_grad():
        for found, wanted in zip(fast(x), model(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        for given in (Z, Z.conj()):
            torch.testing.assert_close(turned(given), (given * 1j).conj().resolve_conj())


def test_an_exported_program_has_complex_numbers_inside_alone() -> None:
    x = torch.randn(2, 8)
    with pytest.raises(CompileError, match="returns complex numbers"):
        tl.compile(torch.export.export(Filter().eval(), (x,)), importers=[Importer()])

    class Smoothed(Filter):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x)[0]

    model = Smoothed().eval()
    found = tl.compile(torch.export.export(model, (x,)), importers=[Importer()])(x.numpy())
    np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)

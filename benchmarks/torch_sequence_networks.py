"""Networks for sounds, texts, series, graphs, points and tables, written here in torch.

Each is made as those of torch_networks.py are: `network(small)` returns a module and inputs for it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_blocks import Attention, Block, Made, RMSNorm

# ---------------------------------------------------------------- speech and sounds


class Separator(nn.Module):
    """A waveform taken apart in masks over a learned basis, by dilated depthwise convolutions (Conv-TasNet)."""

    def __init__(self, basis: int, width: int, depth: int) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, basis, 16, 8, bias=False), nn.ConvTranspose1d(basis, 1, 16, 8, bias=False)
        self.first, self.basis = nn.Sequential(nn.GroupNorm(1, basis), nn.Conv1d(basis, width, 1)), basis
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, 2 * width, 1), nn.PReLU(), nn.GroupNorm(1, 2 * width),
                          nn.Conv1d(2 * width, 2 * width, 3, padding=1 << k, dilation=1 << k, groups=2 * width), nn.PReLU(),
                          nn.GroupNorm(1, 2 * width), nn.Conv1d(2 * width, width, 1))
            for k in range(depth)
        )  # fmt: skip
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(width, 2 * basis, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        coded = F.relu(self.encode(x))
        y = self.first(coded)
        for layer in self.layers:
            y = y + layer(y)
        parts = self.masks(y).view(x.shape[0], 2, self.basis, -1) * coded[:, None]
        return self.decode(parts.flatten(0, 1)).view(x.shape[0], 2, -1)


def separator(small: bool) -> Made:
    return (Separator(8, 4, 2) if small else Separator(256, 128, 8)), (torch.randn(1, 1, 128 if small else 8000),)


class Demucs(nn.Module):
    """A U-Net over a waveform with an LSTM at its coarsest scale."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << k for k in range(depth)]
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 8, 4, 2), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1))
            for a, b in zip([1, *widths], widths, strict=False)
        )
        self.cell, self.mix = nn.LSTM(widths[-1], widths[-1], batch_first=True, bidirectional=True), nn.Linear(2 * widths[-1], widths[-1])
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv1d(b, 2 * b, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4, 2))
            for a, b in zip(reversed([1, *widths[:-1]]), reversed(widths), strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        x = self.mix(self.cell(x.transpose(1, 2))[0]).transpose(1, 2)
        for k, (layer, skip) in enumerate(zip(self.up, reversed(kept), strict=True)):
            x = layer(x + skip)
            x = F.relu(x) if k + 1 < len(self.up) else x
        return x


def demucs(small: bool) -> Made:
    return (Demucs(4, 2) if small else Demucs(48, 3)), (torch.randn(1, 1, 128 if small else 8192),)


class ConformerBlock(nn.Module):
    def __init__(self, dim: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.halves = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim)) for _ in range(2)
        )
        self.norm, self.attention, self.last = nn.LayerNorm(dim), Attention(dim, heads), nn.LayerNorm(dim)
        self.gate = nn.Sequential(nn.Conv1d(dim, 2 * dim, 1), nn.GLU(1))
        self.depthwise = nn.Sequential(nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim), nn.BatchNorm1d(dim), nn.SiLU())
        self.before, self.out = nn.LayerNorm(dim), nn.Conv1d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.halves[0](x)
        x = x + self.attention(self.norm(x))
        x = x + self.out(self.depthwise(self.gate(self.before(x).transpose(1, 2)))).transpose(1, 2)
        return self.last(x + 0.5 * self.halves[1](x))


class Conformer(nn.Module):
    def __init__(self, bands: int, dim: int, heads: int, depth: int) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(1, dim // 4, 3, 2), nn.ReLU(), nn.Conv2d(dim // 4, dim // 4, 3, 2), nn.ReLU())
        self.into = nn.Linear(dim // 4 * (((bands - 1) // 2 - 1) // 2), dim)
        self.blocks, self.head = nn.Sequential(*(ConformerBlock(dim, heads, 15) for _ in range(depth))), nn.Linear(dim, 40)

    def forward(self, x: Tensor) -> Tensor:
        y = self.front(x[:, None])
        return F.log_softmax(self.head(self.blocks(self.into(y.transpose(1, 2).flatten(2)))), -1)


def conformer(small: bool) -> Made:
    return (Conformer(16, 16, 2, 1) if small else Conformer(80, 256, 4, 4)), (torch.randn(1, 30 if small else 300, 16 if small else 80),)


class Vocoder(nn.Module):
    """A waveform of a spectrogram: transposed convolutions, each followed by residual stacks of several dilations (HiFi-GAN)."""

    def __init__(self, bands: int, width: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(bands, width, 7, padding=3), nn.Conv1d(width >> len(rates), 1, 7, padding=3)
        self.up = nn.ModuleList(nn.ConvTranspose1d(width >> k, width >> (k + 1), 2 * r, r, r // 2) for k, r in enumerate(rates))
        self.stacks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width >> (k + 1), width >> (k + 1), 3, padding=d, dilation=d) for d in (1, 3, 5))
            for k in range(len(rates))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for up, stack in zip(self.up, self.stacks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            for layer in stack:
                x = x + layer(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(F.leaky_relu(x)))


def vocoder(small: bool) -> Made:
    return (Vocoder(8, 8, (4, 2)) if small else Vocoder(80, 256, (8, 8, 2))), (torch.randn(1, 8 if small else 80, 6 if small else 50),)


class Listener(nn.Module):
    """Words of a waveform: a spectrogram on the scale of mel by products with a Fourier basis, convolutions and a recurrence."""

    def __init__(self, window: int, bands: int, width: int) -> None:
        super().__init__()
        self.window, self.hop = window, window // 2
        k, n = torch.arange(window // 2 + 1)[:, None], torch.arange(window)
        angle = 2 * torch.pi * k * n / window
        self.register_buffer("basis", (torch.cat([angle.cos(), -angle.sin()]) * torch.hann_window(window))[:, None])
        self.register_buffer("mel", torch.rand(bands, window // 2 + 1))
        self.convs = nn.Sequential(
            nn.Conv2d(1, width, 3, (2, 1), 1), nn.BatchNorm2d(width), nn.Hardtanh(0, 20), nn.Conv2d(width, width, 3, (2, 1), 1), nn.ReLU()
        )
        self.cell, self.head = nn.GRU(width * (bands // 4), 2 * width, batch_first=True, bidirectional=True), nn.Linear(4 * width, 30)

    def forward(self, x: Tensor) -> Tensor:
        re, im = F.conv1d(F.pad(x[:, None], (self.hop, self.hop), mode="reflect"), self.basis, stride=self.hop).chunk(2, 1)
        y = torch.log(self.mel @ (re * re + im * im) + 1e-5)
        y = (y - y.mean((1, 2), keepdim=True)) / (y.std((1, 2), keepdim=True) + 1e-5)
        y = self.convs(y[:, None]).flatten(1, 2).transpose(1, 2)
        return F.log_softmax(self.head(self.cell(y)[0]), -1)


def listener(small: bool) -> Made:
    return (Listener(16, 8, 4) if small else Listener(400, 80, 32)), (torch.randn(1, 128 if small else 16000),)


class Waves(nn.Module):
    """Features of a waveform by strided convolutions, a convolution that tells places, and transformer blocks (wav2vec 2.0)."""

    def __init__(self, width: int, dim: int, heads: int, depth: int) -> None:
        super().__init__()
        layers = [nn.Sequential(nn.Conv1d(1, width, 10, 5), nn.GroupNorm(width, width), nn.GELU())]
        layers += [nn.Sequential(nn.Conv1d(width, width, 3, 2), nn.GELU()) for _ in range(4)]
        self.features, self.norm, self.into = nn.Sequential(*layers), nn.LayerNorm(width), nn.Linear(width, dim)
        self.place = nn.Conv1d(dim, dim, 16, padding=8, groups=4)
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.into(self.norm(self.features(x[:, None]).transpose(1, 2)))
        return self.blocks(y + F.gelu(self.place(y.transpose(1, 2))[..., :-1]).transpose(1, 2))


def waves(small: bool) -> Made:
    return (Waves(8, 16, 2, 1) if small else Waves(256, 384, 6, 4)), (torch.randn(1, 1000 if small else 16000),)


# ---------------------------------------------------------------- texts


class EncoderDecoder(nn.Module):
    """Attention with a bias by buckets of distances, and one text read while another one is written (T5)."""

    def __init__(self, words: int, dim: int, heads: int, depth: int) -> None:
        super().__init__()
        self.words, self.distances, self.heads = nn.Embedding(words, dim), nn.Embedding(32, heads), heads
        own, cross = ("q", "k", "v", "o", "up"), ("q", "k", "v", "o", "cq", "ck", "cv", "co", "up")
        self.encoder, self.decoder = (
            nn.ModuleList(nn.ModuleDict({n: nn.Linear(dim, dim, bias=False) for n in names}) for _ in range(depth))
            for names in (own, cross)
        )
        self.norms = nn.ModuleList(RMSNorm(dim) for _ in range(5))
        self.wide, self.back = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def bias(self, length: int, x: Tensor) -> Tensor:
        place = torch.arange(length, device=x.device)
        far = (place[None] - place[:, None]).abs()
        log = 8 + (torch.log(far.clamp(min=1).to(x.dtype) / 8) / 2.08 * 8).to(torch.int64)
        bucket = torch.where(far < 8, far, log.clamp(max=15)) + 16 * (place[None] > place[:, None])
        return self.distances(bucket).permute(2, 0, 1)[None]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (t.view(t.shape[0], -1, self.heads, t.shape[2] // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3)
        scores = scores if bias is None else scores + bias
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, ids: Tensor, written: Tensor) -> Tensor:
        x, y = self.words(ids), self.words(written)
        bias = self.bias(ids.shape[1], x)
        for layer in self.encoder:
            n = self.norms[0](x)
            x = x + layer["o"](self.attend(layer["q"](n), layer["k"](n), layer["v"](n), bias))
            x = x + self.back(F.relu(self.wide(layer["up"](self.norms[1](x)))))
        length = written.shape[1]
        later = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        bias = self.bias(length, y) + later
        for layer in self.decoder:
            n = self.norms[2](y)
            y = y + layer["o"](self.attend(layer["q"](n), layer["k"](n), layer["v"](n), bias))
            n = self.norms[3](y)
            y = y + layer["co"](self.attend(layer["cq"](n), layer["ck"](x), layer["cv"](x), None))
            y = y + self.back(F.relu(self.wide(layer["up"](self.norms[4](y)))))
        return y @ self.words.weight.t()


def encoder_decoder(small: bool) -> Made:
    words, lengths = (50, (7, 4)) if small else (5000, (64, 24))
    model = EncoderDecoder(words, 16, 2, 1) if small else EncoderDecoder(words, 384, 6, 4)
    return model, tuple(torch.randint(0, words, (1, n)) for n in lengths)


class Experts(nn.Module):
    """A transformer whose perceptrons are experts: each token goes through the two that a router thinks best of."""

    def __init__(self, words: int, dim: int, heads: int, depth: int, experts: int) -> None:
        super().__init__()
        self.words, self.attention = nn.Embedding(words, dim), nn.ModuleList(Attention(dim, heads, causal=True) for _ in range(depth))
        self.norms, self.routers = (
            nn.ModuleList(RMSNorm(dim) for _ in range(2 * depth)),
            nn.ModuleList(nn.Linear(dim, experts) for _ in range(depth)),
        )
        self.up, self.down = (
            nn.ParameterList(nn.Parameter(torch.randn(experts, a, b) * a**-0.5) for _ in range(depth))
            for a, b in ((dim, 2 * dim), (2 * dim, dim))
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for k, attention in enumerate(self.attention):
            x = x + attention(self.norms[2 * k](x))
            n = self.norms[2 * k + 1](x)
            best, which = self.routers[k](n).softmax(-1).topk(2, -1)
            share = torch.zeros_like(self.routers[k](n)).scatter(-1, which, best / best.sum(-1, keepdim=True))
            found = F.silu(n[:, None] @ self.up[k]) @ self.down[k]
            x = x + (found * share.transpose(1, 2)[..., None]).sum(1)
        return x @ self.words.weight.t()


def experts(small: bool) -> Made:
    words, length = (50, 6) if small else (5000, 48)
    return (Experts(words, 16, 2, 1, 3) if small else Experts(words, 256, 4, 3, 6)), (torch.randint(0, words, (1, length)),)


class CappedBlock(nn.Module):
    """Attention that sees a window of what came before, by scores that are capped (Gemma 2)."""

    def __init__(self, dim: int, heads: int, window: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.window = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False), heads, window
        self.norms = nn.ModuleList(RMSNorm(dim) for _ in range(4))
        self.gate, self.up, self.down = (
            nn.Linear(dim, 3 * dim, bias=False),
            nn.Linear(dim, 3 * dim, bias=False),
            nn.Linear(3 * dim, dim, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        place = torch.arange(length, device=x.device)
        far = place[:, None] - place[None]
        scores = 50 * torch.tanh(q @ k.transpose(2, 3) / (50 * (dim // self.heads) ** 0.5))
        scores = scores.masked_fill((far < 0) | (far >= self.window), float("-inf"))
        x = x + self.norms[1](self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        y = self.norms[2](x)
        return x + self.norms[3](self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y)))


def capped(small: bool) -> Made:
    dim, heads, depth, length, window = (16, 2, 1, 7, 3) if small else (384, 6, 4, 96, 32)
    return nn.Sequential(*(CappedBlock(dim, heads, window) for _ in range(depth)), RMSNorm(dim)), (torch.randn(1, length, dim),)


class Latents(nn.Module):
    """Few latent vectors that attend to many inputs, to each other, and are asked by queries (Perceiver IO)."""

    def __init__(self, dim: int, latents: int, queries: int, depth: int) -> None:
        super().__init__()
        self.latents, self.queries = nn.Parameter(torch.randn(1, latents, dim)), nn.Parameter(torch.randn(1, queries, dim))
        self.read, self.write = (nn.MultiheadAttention(dim, 4, batch_first=True) for _ in range(2))
        self.blocks = nn.Sequential(*(Block(dim, 4) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        kept, asked = (t.expand(x.shape[0], -1, -1) for t in (self.latents, self.queries))
        kept = self.blocks(kept + self.read(kept, x, x, need_weights=False)[0])
        return self.write(asked, kept, kept, need_weights=False)[0]


def latents(small: bool) -> Made:
    return (Latents(16, 4, 2, 1) if small else Latents(256, 64, 16, 4)), (torch.randn(1, 9 if small else 1024, 16 if small else 256),)


class SpectralBlock(nn.Module):
    """Mixes places by the real part of a Fourier transform over places and features, as products with matrices (FNet)."""

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        for name, n in (("places", length), ("features", dim)):
            angle = 2 * torch.pi * torch.outer(torch.arange(n), torch.arange(n)) / n
            self.register_buffer(f"{name}_re", angle.cos())
            self.register_buffer(f"{name}_im", angle.sin())

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.places_re @ (x @ self.features_re) - self.places_im @ (x @ self.features_im)
        x = self.first(x + mixed)
        return self.second(x + self.mlp(x))


def spectral(small: bool) -> Made:
    length, dim, depth = (6, 8, 1) if small else (128, 256, 4)
    return nn.Sequential(*(SpectralBlock(length, dim) for _ in range(depth))), (torch.randn(1, length, dim),)


class LinearAttentionBlock(nn.Module):
    """Attention by positive features of queries and keys: sums over keys are taken once, for all queries."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.norm, self.second = (
            nn.Linear(dim, 3 * dim),
            nn.Linear(dim, dim),
            heads,
            nn.LayerNorm(dim),
            nn.LayerNorm(dim),
        )
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        y = (q @ (k.transpose(2, 3) @ v)) / (q @ k.sum(2)[..., None] + 1e-6)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


def linear_attention(small: bool) -> Made:
    dim, heads, depth, length = (16, 2, 1, 6) if small else (256, 4, 4, 512)
    return nn.Sequential(*(LinearAttentionBlock(dim, heads) for _ in range(depth))), (torch.randn(1, length, dim),)


class RetentionBlock(nn.Module):
    """Attention without softmax, by products that fade with distance, each head at a rate of its own (RetNet)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.gate, self.out, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Linear(dim, dim), heads
        self.norm, self.group = nn.LayerNorm(dim), nn.GroupNorm(heads, dim)
        self.register_buffer("fades", torch.log(1 - 2.0 ** (-5 - torch.arange(heads))))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        n = self.norm(x)
        q, k, v = self.qkv(n).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        place = torch.arange(length, device=x.device)
        far = (place[:, None] - place[None]).to(x.dtype)
        fade = torch.where(far >= 0, torch.exp(far.clamp(min=0) * self.fades[:, None, None]), 0.0)
        y = (q @ k.transpose(2, 3) * (dim // self.heads) ** -0.5 * fade) @ v
        y = self.group(y.transpose(1, 2).reshape(batch * length, dim)).view(batch, length, dim)
        return x + self.out(F.silu(self.gate(n)) * y)


def retention(small: bool) -> Made:
    dim, heads, depth, length = (16, 2, 1, 6) if small else (256, 4, 4, 128)
    return nn.Sequential(*(RetentionBlock(dim, heads) for _ in range(depth))), (torch.randn(1, length, dim),)


class StateSpaceBlock(nn.Module):
    """A selective state space: states fade and grow by amounts that the input chooses, all steps at once (Mamba 2)."""

    def __init__(self, dim: int, heads: int, states: int) -> None:
        super().__init__()
        inner = 2 * dim
        self.norm, self.heads, self.states, self.inner = RMSNorm(dim), heads, states, inner
        self.into, self.out = nn.Linear(dim, 2 * inner + 2 * states + heads, bias=False), nn.Linear(inner, dim, bias=False)
        self.near, self.rates = nn.Conv1d(inner, inner, 4, padding=3, groups=inner), nn.Parameter(torch.rand(heads))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        gate, y, b, c, step = self.into(self.norm(x)).split([self.inner, self.inner, self.states, self.states, self.heads], -1)
        y = F.silu(self.near(y.transpose(1, 2))[..., :length]).transpose(1, 2).view(batch, length, self.heads, -1)
        step = F.softplus(step)
        faded = torch.cumsum(-step * self.rates.exp(), 1).transpose(1, 2)
        fade = torch.exp((faded[..., :, None] - faded[..., None, :]).tril()).tril()
        seen = (c @ b.transpose(1, 2))[:, None] * fade
        y = (seen @ (y * step[..., None]).transpose(1, 2)).transpose(1, 2).reshape(batch, length, self.inner)
        return x + self.out(y * F.silu(gate))


def state_space(small: bool) -> Made:
    dim, heads, states, depth, length = (8, 2, 4, 1, 6) if small else (192, 6, 32, 4, 128)
    return nn.Sequential(*(StateSpaceBlock(dim, heads, states) for _ in range(depth))), (torch.randn(1, length, dim),)


# ---------------------------------------------------------------- graphs and points


class Convolved(nn.Module):
    """Convolution over the edges of a graph: sums of neighbours over roots of degrees, scattered to where edges lead (GCN)."""

    def __init__(self, features: int, dim: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList((nn.Linear(features, dim), nn.Linear(dim, dim), nn.Linear(dim, classes)))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        start, end = edges[0], edges[1]
        degree = torch.ones(x.shape[0], device=x.device).scatter_add(0, end, torch.ones(end.shape[0], device=x.device))
        weight = (degree[start] * degree[end]).rsqrt()[:, None]
        for k, layer in enumerate(self.layers):
            y = layer(x)
            x = (y / degree[:, None]).index_add(0, end, y[start] * weight)
            x = F.relu(x) if k + 1 < len(self.layers) else x
        return x.log_softmax(-1)


def graph_convolution(small: bool) -> Made:
    nodes, edges, features = (7, 12, 5) if small else (2000, 10000, 64)
    return Convolved(features, 8 if small else 64, 4), (torch.randn(nodes, features), torch.randint(0, nodes, (2, edges)))


class Attended(nn.Module):
    """Attention over the edges of a graph: a softmax over the edges that lead to a node (GAT)."""

    def __init__(self, features: int, dim: int, heads: int) -> None:
        super().__init__()
        self.into, self.heads = nn.Linear(features, heads * dim, bias=False), heads
        self.start, self.end = (nn.Parameter(torch.randn(heads, dim)) for _ in range(2))
        self.out = nn.Linear(heads * dim, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        nodes = x.shape[0]
        y = self.into(x).view(nodes, self.heads, -1)
        start, end = edges[0], edges[1]
        score = F.leaky_relu((y * self.start).sum(-1)[start] + (y * self.end).sum(-1)[end], 0.2)
        at = end[:, None].expand(-1, self.heads)
        most = torch.full((nodes, self.heads), -1e30, device=x.device).scatter_reduce(0, at, score, "amax")
        share = torch.exp(score - most[end])
        total = torch.zeros(nodes, self.heads, device=x.device).scatter_add(0, at, share)
        found = torch.zeros_like(y).index_add(0, end, y[start] * share[..., None]) / (total[..., None] + 1e-9)
        return self.out(F.elu(found.flatten(1)))


def graph_attention(small: bool) -> Made:
    nodes, edges, features = (7, 12, 5) if small else (1000, 6000, 64)
    return Attended(features, 8 if small else 32, 2), (torch.randn(nodes, features), torch.randint(0, nodes, (2, edges)))


class EdgeConvolution(nn.Module):
    """Points, each with its nearest ones in the space of features, the largest over these of a perceptron of differences (DGCNN)."""

    def __init__(self, near: int, dims: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.near = near
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * a, b, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
            for a, b in zip((3, *dims), dims, strict=False)
        )
        self.head = nn.Linear(2 * sum(dims), classes)

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for layer in self.layers:
            square = (x * x).sum(1)
            far = square[:, :, None] - 2 * x.transpose(1, 2) @ x + square[:, None]
            at = far.topk(self.near, -1, largest=False).indices
            batch, dim, count = x.shape
            rows = x.transpose(1, 2)
            others = torch.gather(rows, 1, at.reshape(batch, -1, 1).expand(-1, -1, dim)).view(batch, count, self.near, dim)
            own = rows[:, :, None].expand(-1, -1, self.near, -1)
            x = layer(torch.cat([others - own, own], -1).permute(0, 3, 1, 2)).amax(-1)
            found.append(x)
        every = torch.cat(found, 1)
        return self.head(torch.cat([every.amax(-1), every.mean(-1)], -1))


def edge_convolution(small: bool) -> Made:
    return (EdgeConvolution(3, (8,), 4) if small else EdgeConvolution(20, (64, 64, 128), 40)), (torch.randn(1, 3, 10 if small else 512),)


def _each(a: int, b: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())


class Points(nn.Module):
    """A perceptron of each point and the largest over all, after a transformation that the points choose (PointNet)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.choose, self.matrix = nn.Sequential(_each(3, width), _each(width, 4 * width)), nn.Linear(4 * width, 9)
        self.body = nn.Sequential(_each(3, width), _each(width, 2 * width), _each(2 * width, 16 * width))
        self.head = nn.Linear(16 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        turn = self.matrix(self.choose(x).amax(-1)).view(-1, 3, 3) + torch.eye(3, device=x.device)
        return self.head(self.body(turn @ x).amax(-1))


def points(small: bool) -> Made:
    return (Points(4, 4) if small else Points(64, 40)), (torch.randn(1, 3, 10 if small else 1024),)


# ---------------------------------------------------------------- tables, series, policies


class FeatureTransformer(nn.Module):
    """Columns of numbers and of categories as tokens of a transformer."""

    def __init__(self, numbers: int, categories: int, values: int, dim: int, depth: int) -> None:
        super().__init__()
        self.weight, self.bias, self.token = (nn.Parameter(torch.randn(n, dim)) for n in (numbers, numbers, 1))
        self.values = nn.Embedding(categories * values, dim)
        self.register_buffer("offsets", torch.arange(categories) * values)
        self.blocks, self.head = nn.Sequential(*(Block(dim, 4) for _ in range(depth))), nn.Linear(dim, 1)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        parts = [
            self.token.expand(numbers.shape[0], 1, -1),
            numbers[..., None] * self.weight + self.bias,
            self.values(categories + self.offsets),
        ]
        return self.head(self.blocks(torch.cat(parts, 1))[:, 0])


def feature_transformer(small: bool) -> Made:
    rows, values, dim, depth = (3, 5, 8, 1) if small else (32, 100, 64, 3)
    return FeatureTransformer(6, 4, values, dim, depth), (torch.randn(rows, 6), torch.randint(0, values, (rows, 4)))


class Recommender(nn.Module):
    """Bags of categories and numbers, products of all pairs of them, and a perceptron (DLRM)."""

    def __init__(self, tables: int, values: int, dim: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(values, dim) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim), nn.ReLU())
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))
        self.top = nn.Sequential(nn.Linear(dim + tables * (tables + 1) // 2, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, 1), nn.Sigmoid())

    def forward(self, numbers: Tensor, bags: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        parts = torch.stack([dense, *(table(bags[:, k]).sum(1) for k, table in enumerate(self.tables))], 1)
        products = parts @ parts.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1))


def recommender(small: bool) -> Made:
    rows, tables, values, dim = (3, 3, 10, 8) if small else (128, 12, 1000, 32)
    return Recommender(tables, values, dim), (torch.randn(rows, 13), torch.randint(0, values, (rows, tables, 4)))


class Patches(nn.Module):
    """Series cut into patches that overlap, normalised by themselves, as tokens of a transformer (PatchTST)."""

    def __init__(self, length: int, patch: int, stride: int, dim: int, depth: int, ahead: int) -> None:
        super().__init__()
        count = (length - patch) // stride + 1
        self.patch, self.stride, self.ahead = patch, stride, ahead
        self.into, self.place = nn.Linear(patch, dim), nn.Parameter(torch.randn(count, dim))
        self.blocks, self.head = nn.Sequential(*(Block(dim, 4) for _ in range(depth))), nn.Linear(count * dim, ahead)

    def forward(self, x: Tensor) -> Tensor:
        mean, deviation = x.mean(1, keepdim=True), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        series = ((x - mean) / deviation).transpose(1, 2).flatten(0, 1)
        y = self.blocks(self.into(series.unfold(-1, self.patch, self.stride)) + self.place)
        return self.head(y.flatten(1)).view(x.shape[0], -1, self.ahead).transpose(1, 2) * deviation + mean


def patches(small: bool) -> Made:
    model = Patches(16, 4, 2, 8, 1, 3) if small else Patches(336, 16, 8, 128, 3, 96)
    return model, (torch.randn(2, 16 if small else 336, 2 if small else 7),)


class Decomposed(nn.Module):
    """A series taken apart into its trend, a moving mean, and what is left, each with a perceptron over time (DLinear, N-HiTS)."""

    def __init__(self, length: int, ahead: int, window: int, width: int) -> None:
        super().__init__()
        self.window, self.trend, self.rest = (
            window,
            nn.Linear(length, ahead),
            nn.Sequential(nn.Linear(length, width), nn.ReLU(), nn.Linear(width, ahead)),
        )
        self.coarse = nn.Sequential(nn.Linear(length // 4, width), nn.ReLU(), nn.Linear(width, ahead // 4))
        self.ahead = ahead

    def forward(self, x: Tensor) -> Tensor:
        y = x.transpose(1, 2)
        half = self.window // 2
        trend = F.avg_pool1d(F.pad(y, (half, half), mode="replicate"), self.window, 1)
        rest = y - trend
        coarse = F.interpolate(self.coarse(F.max_pool1d(rest, 4)), size=self.ahead, mode="linear", align_corners=False)
        return (self.trend(trend) + self.rest(rest) + coarse).transpose(1, 2)


def series(small: bool) -> Made:
    length, ahead, window, width = (16, 8, 5, 8) if small else (336, 96, 25, 512)
    return Decomposed(length, ahead, window, width), (torch.randn(1 if small else 16, length, 3 if small else 21),)


class Policy(nn.Module):
    """One step of an agent: what it sees and its memory, to actions, a value and the memory after."""

    def __init__(self, width: int, dim: int, actions: int) -> None:
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(4, width, 8, 4),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, 2),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3),
            nn.ReLU(),
        )
        self.into, self.cell, self.actor, self.critic = nn.LazyLinear(dim), nn.LSTM(dim, dim), nn.Linear(dim, actions), nn.Linear(dim, 1)

    def forward(self, seen: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        y = F.relu(self.into(self.eyes(seen / 255.0).flatten(1)))
        y, (hidden, cell) = self.cell(y[None], (hidden, cell))
        return self.actor(y[0]).softmax(-1), self.critic(y[0]), hidden, cell


def policy(small: bool) -> Made:
    size, width, dim = (44, 4, 8) if small else (84, 32, 512)
    return Policy(width, dim, 6), (torch.rand(1, 4, size, size) * 255, torch.zeros(1, 1, dim), torch.zeros(1, 1, dim))


SEQUENCES: dict[str, Callable[[bool], Made]] = {
    made.__name__: made
    for made in (
        *(separator, demucs, conformer, vocoder, listener, waves),
        *(encoder_decoder, experts, capped, latents, spectral, linear_attention, retention, state_space),
        *(graph_convolution, graph_attention, edge_convolution, points),
        *(feature_transformer, recommender, patches, series, policy),
    )
}

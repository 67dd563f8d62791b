"""Networks of the kinds that people run, written here in torch: small ones for tests, and of usual sizes for benchmarks.

    network = NETWORKS["resnet"]
    model, inputs = network(small=True)

Weights are random, and nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_blocks import Block, Made, RMSNorm, conv_norm, image
from torch_sequence_networks import SEQUENCES
from torch_vision_networks import VISION

# ---------------------------------------------------------------- convolutions


class Bottleneck(nn.Module):
    def __init__(self, a: int, mid: int, stride: int) -> None:
        super().__init__()
        b = 4 * mid
        self.body = nn.Sequential(conv_norm(a, mid, 1), conv_norm(mid, mid, 3, stride), conv_norm(mid, b, 1, act=None))
        self.short = nn.Identity() if a == b and stride == 1 else conv_norm(a, b, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x))


def resnet(small: bool) -> Made:
    depths, width = ((1, 1), 8) if small else ((3, 4, 6, 3), 64)
    layers: list[nn.Module] = [conv_norm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for k, depth in enumerate(depths):
        for i in range(depth):
            layers.append(Bottleneck(channels, width << k, 2 if k and not i else 1))
            channels = 4 * (width << k)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10 if small else 1000)]
    return nn.Sequential(*layers), (image(small),)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    def __init__(self, a: int, b: int, kernel: int, stride: int) -> None:
        super().__init__()
        mid = 4 * a
        self.body = nn.Sequential(
            conv_norm(a, mid, 1, act=nn.Hardswish),
            conv_norm(mid, mid, kernel, stride, mid, nn.Hardswish),
            SqueezeExcite(mid),
            conv_norm(mid, b, 1, act=None),
        )
        self.keeps = a == b and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.keeps else self.body(x)


def mobilenet(small: bool) -> Made:
    plan = [(8, 2)] if small else [(16, 1), (24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1), (112, 1), (160, 2), (160, 1)]
    layers: list[nn.Module] = [conv_norm(3, plan[0][0], 3, 2, act=nn.Hardswish)]
    channels = plan[0][0]
    for out, stride in plan:
        layers.append(Inverted(channels, out, 5 if out > 24 else 3, stride))
        channels = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10 if small else 1000)]
    return nn.Sequential(*layers), (image(small),)


class Dense(nn.Module):
    def __init__(self, channels: int, growth: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(channels + k * growth), nn.ReLU(), nn.Conv2d(channels + k * growth, growth, 3, padding=1))
            for k in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet(small: bool) -> Made:
    growth, blocks = (4, (2, 2)) if small else (32, (6, 12, 16))
    channels = 2 * growth
    layers: list[nn.Module] = [conv_norm(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for count in blocks:
        layers += [
            Dense(channels, growth, count),
            conv_norm(channels + count * growth, (channels + count * growth) // 2, 1),
            nn.AvgPool2d(2),
        ]
        channels = (channels + count * growth) // 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)), (image(small),)


class ConvNextBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(dim, dim, 7, padding=3, groups=dim), nn.LayerNorm(dim, eps=1e-6)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.scale = nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        return x + (self.down(F.gelu(self.up(self.norm(y)))) * self.scale).permute(0, 3, 1, 2)


def convnext(small: bool) -> Made:
    dims, depths = ((8, 16), (1, 1)) if small else ((96, 192, 384, 768), (3, 3, 9, 3))
    layers: list[nn.Module] = [nn.Conv2d(3, dims[0], 4, 4)]
    for k, (dim, depth) in enumerate(zip(dims, depths, strict=True)):
        layers += [nn.Conv2d(dims[k - 1], dim, 2, 2)] if k else []
        layers += [ConvNextBlock(dim) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(dims[-1], 10)), (image(small),)


class UNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << k for k in range(depth)]
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU()) for a, b in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.mix = nn.ModuleList(nn.Sequential(nn.Conv2d(2 * w, w, 3, padding=1), nn.ReLU()) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for k, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if k else x)
            kept.append(x)
        for up, mix, skip in zip(self.up, self.mix, reversed(kept[:-1]), strict=True):
            x = mix(torch.cat([up(x), skip], 1))
        return F.interpolate(self.head(x), scale_factor=2, mode="bilinear")


def unet(small: bool) -> Made:
    return UNet(4, 2) if small else UNet(32, 4), (image(small, 128),)


# ---------------------------------------------------------------- transformers


class ViT(nn.Module):
    def __init__(self, image: int, patch: int, dim: int, heads: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, dim))
        self.place = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, dim))
        self.blocks, self.norm, self.head = nn.ModuleList(Block(dim, heads) for _ in range(depth)), nn.LayerNorm(dim), nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vit(small: bool) -> Made:
    return (ViT(16, 8, 16, 2, 1) if small else ViT(224, 16, 384, 6, 12)), (image(small),)


class Bert(nn.Module):
    def __init__(self, words: int, dim: int, heads: int, depth: int, most: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, dim), nn.Embedding(most, dim)
        self.blocks, self.norm = nn.ModuleList(Block(dim, heads) for _ in range(depth)), nn.LayerNorm(dim)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        seen = mask[:, None, None, :].to(torch.bool)
        for block in self.blocks:
            x = block(x, seen)
        return torch.tanh(self.norm(x)[:, 0])


def bert(small: bool) -> Made:
    words, length = (50, 8) if small else (30522, 128)
    model = Bert(words, 16, 2, 1, 32) if small else Bert(words, 768, 12, 12, 512)
    return model, (torch.randint(0, words, (1, length)), torch.ones(1, length, dtype=torch.int64))


class GPT(nn.Module):
    """One step of decoding: keys and values of what came before are taken and returned."""

    def __init__(self, words: int, dim: int, heads: int, depth: int) -> None:
        super().__init__()
        self.words, self.norm, self.heads = nn.Embedding(words, dim), nn.LayerNorm(dim), heads
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"n1": nn.LayerNorm(dim), "qkv": nn.Linear(dim, 3 * dim), "out": nn.Linear(dim, dim),
                           "n2": nn.LayerNorm(dim), "up": nn.Linear(dim, 4 * dim), "down": nn.Linear(4 * dim, dim)})
            for _ in range(depth)
        )  # fmt: skip

    def forward(self, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        x, kept = self.words(ids), []
        batch, length, dim = x.shape
        for k, block in enumerate(self.blocks):
            q, key, value = block["qkv"](block["n1"](x)).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
            key, value = torch.cat([past[2 * k], key], 2), torch.cat([past[2 * k + 1], value], 2)
            kept += [key, value]
            y = F.scaled_dot_product_attention(q, key, value)
            x = x + block["out"](y.transpose(1, 2).reshape(batch, length, dim))
            x = x + block["down"](F.gelu(block["up"](block["n2"](x)), approximate="tanh"))
        return (self.norm(x) @ self.words.weight.t(), *kept)


def gpt(small: bool) -> Made:
    words, dim, heads, depth, past = (50, 16, 2, 2, 5) if small else (5000, 512, 8, 6, 128)
    states = tuple(torch.randn(1, heads, past, dim // heads) for _ in range(2 * depth))
    return GPT(words, dim, heads, depth), (torch.randint(0, words, (1, 1)), *states)


class LlamaBlock(nn.Module):
    def __init__(self, dim: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, dim // heads
        self.q, self.k, self.v = (nn.Linear(dim, count * self.size, bias=False) for count in (heads, shared, shared))
        self.out, self.first, self.second = nn.Linear(dim, dim, bias=False), RMSNorm(dim), RMSNorm(dim)
        self.gate, self.up, self.down = (
            nn.Linear(dim, 2 * dim, bias=False),
            nn.Linear(dim, 2 * dim, bias=False),
            nn.Linear(2 * dim, dim, bias=False),
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, dim = x.shape
        y = self.first(x)
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = (w(y).view(batch, length, self.shared, self.size).transpose(1, 2) for w in (self.k, self.v))
        q, k = (t * cos + torch.cat([-t[..., self.size // 2 :], t[..., : self.size // 2]], -1) * sin for t in (q, k))
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, dim)
        x = x + self.out(a)
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, words: int, dim: int, heads: int, shared: int, depth: int) -> None:
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(words, dim), RMSNorm(dim), nn.Linear(dim, words, bias=False)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, shared) for _ in range(depth))
        size = dim // heads
        self.register_buffer("speed", torch.exp(-log(10000) * torch.arange(0, size, 2) / size))

    def forward(self, ids: Tensor) -> Tensor:
        angle = torch.outer(torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32), self.speed)
        angle = torch.cat([angle, angle], -1)
        x, cos, sin = self.words(ids), angle.cos(), angle.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def llama(small: bool) -> Made:
    words, length = (50, 7) if small else (5000, 64)
    return (Llama(words, 16, 4, 2, 1) if small else Llama(words, 512, 8, 2, 6)), (torch.randint(0, words, (1, length)),)


# ---------------------------------------------------------------- sequences, and others


class Tagger(nn.Module):
    def __init__(self, cell: type[nn.Module], words: int, dim: int) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(words, dim), cell(dim, dim, batch_first=True, bidirectional=cell is nn.LSTM), None
        self.head = nn.Linear(2 * dim if cell is nn.LSTM else dim, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return F.log_softmax(self.head(self.cell(self.words(ids))[0]), -1)


def lstm(small: bool) -> Made:
    words, dim, length = (30, 8, 5) if small else (5000, 256, 64)
    return Tagger(nn.LSTM, words, dim), (torch.randint(0, words, (2, length)),)


def gru(small: bool) -> Made:
    words, dim, length = (30, 8, 3) if small else (5000, 256, 16)
    return Tagger(nn.GRU, words, dim), (torch.randint(0, words, (2, length)),)


class Mixer(nn.Module):
    def __init__(self, places: int, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.across, self.along = (nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n)) for n in (places, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.second(x))


def mixer(small: bool) -> Made:
    places, dim, depth = (4, 8, 1) if small else (196, 512, 8)
    blocks = [Mixer(places, dim) for _ in range(depth)]
    return nn.Sequential(*blocks, nn.LayerNorm(dim)), (torch.randn(1, places, dim),)


class Wave(nn.Module):
    """Gated dilated convolutions over time."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, width, 1), nn.Conv1d(width, 1, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=1 << k) for k in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for k, layer in enumerate(self.layers):
            a, b = layer(F.pad(x, (2 << k, 0))).chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return self.last(F.leaky_relu(x, 0.1))


def wave(small: bool) -> Made:
    return Wave(4 if small else 64, 2 if small else 8), (torch.randn(1, 1, 32 if small else 4096),)


COMMON: dict[str, Callable[[bool], Made]] = {
    made.__name__: made for made in (resnet, mobilenet, densenet, convnext, unet, vit, bert, gpt, llama, lstm, gru, mixer, wave)
}
NETWORKS = {**COMMON, **VISION, **SEQUENCES}


def network(name: str, small: bool = False, seed: int = 0) -> Made:
    """Return a network for inference, and inputs for it."""
    torch.manual_seed(seed)
    model, inputs = NETWORKS[name](small)
    with torch.no_grad():
        model.eval()(*inputs)  # shapes of what is lazy
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model, inputs

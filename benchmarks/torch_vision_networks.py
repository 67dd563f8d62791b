"""Networks for images, written here in torch: mobile, detection, segmentation, generative and dense prediction.

Each is made as those of torch_networks.py are: `network(small)` returns a module and inputs for it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_blocks import Block, Made, conv_norm, image

# ---------------------------------------------------------------- classifiers for small devices


class Fused(nn.Module):
    """Inverted residual with one dense convolution, as in the first stages of EfficientNetV2."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_norm(a, 4 * a, 3, stride, act=nn.SiLU), conv_norm(4 * a, b, 1, act=None))
        self.keeps = a == b and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.keeps else self.body(x)


class Gated(nn.Module):
    """Inverted residual with squeeze and excitation by sigmoids."""

    def __init__(self, a: int, b: int, kernel: int, stride: int) -> None:
        super().__init__()
        mid = 4 * a
        self.up, self.depthwise = conv_norm(a, mid, 1, act=nn.SiLU), conv_norm(mid, mid, kernel, stride, mid, nn.SiLU)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(mid, a, 1), nn.SiLU(), nn.Conv2d(a, mid, 1), nn.Sigmoid())
        self.down, self.keeps = conv_norm(mid, b, 1, act=None), a == b and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.up(x))
        y = self.down(y * self.gate(y))
        return x + y if self.keeps else y


def efficientnet(small: bool) -> Made:
    first, plan = (
        (8, [(8, 3, 1), (16, 5, 2)]) if small else (24, [(48, 3, 2), (48, 3, 1), (64, 5, 2), (64, 5, 1), (128, 3, 2), (128, 5, 1)])
    )
    layers: list[nn.Module] = [conv_norm(3, first, 3, 2, act=nn.SiLU), Fused(first, first, 1), Fused(first, first, 2)]
    channels = first
    for out, kernel, stride in plan:
        layers.append(Gated(channels, out, kernel, stride))
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)), (image(small),)


class Shuffle(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(conv_norm(half, half, 1), conv_norm(half, half, 3, groups=half, act=None), conv_norm(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, 1)
        y = torch.cat([kept, self.body(changed)], 1)
        batch, channels, height, width = y.shape
        return y.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)


def shufflenet(small: bool) -> Made:
    width, depth = (8, 1) if small else (48, 3)
    layers: list[nn.Module] = [conv_norm(3, width, 3, 2)]
    for stage in range(2 if small else 3):
        layers += [conv_norm(width << stage, width << (stage + 1), 3, 2), *(Shuffle(width << (stage + 1)) for _ in range(depth))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(10)), (image(small),)


class Ghost(nn.Module):
    """Half of the channels by a dense convolution, the other half by a depthwise one of these."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.dense, self.cheap = conv_norm(a, b // 2, 1), conv_norm(b // 2, b // 2, 3, groups=b // 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dense(x)
        return torch.cat([y, self.cheap(y)], 1)


def ghostnet(small: bool) -> Made:
    width = 8 if small else 32
    layers: list[nn.Module] = [conv_norm(3, width, 3, 2)]
    for stage in range(1 if small else 3):
        a, b = width << stage, width << (stage + 1)
        layers += [Ghost(a, 2 * a), conv_norm(2 * a, 2 * a, 5, 2, 2 * a, None), Ghost(2 * a, b), Ghost(b, b)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(10)), (image(small),)


class PoolBlock(nn.Module):
    """A transformer's block that averages windows instead of attending."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(1, dim), nn.GroupNorm(1, dim)
        self.mlp = nn.Sequential(nn.Conv2d(dim, 4 * dim, 1), nn.GELU(), nn.Conv2d(4 * dim, dim, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        x = x + F.avg_pool2d(y, 3, 1, 1, count_include_pad=False) - y
        return x + self.mlp(self.second(x))


def poolformer(small: bool) -> Made:
    dims, depth = ((8, 16), 1) if small else ((64, 128, 320), 2)
    layers: list[nn.Module] = [nn.Conv2d(3, dims[0], 7, 4, 2)]
    for k, dim in enumerate(dims):
        layers += [nn.Conv2d(dims[k - 1], dim, 3, 2, 1)] if k else []
        layers += [PoolBlock(dim) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(dims[-1], 10)), (image(small),)


class ConvMixerBlock(nn.Module):
    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Sequential(nn.Conv2d(dim, dim, kernel, padding="same", groups=dim), nn.GELU(), nn.BatchNorm2d(dim))
        self.pointwise = nn.Sequential(nn.Conv2d(dim, dim, 1), nn.GELU(), nn.BatchNorm2d(dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(x + self.depthwise(x))


def convmixer(small: bool) -> Made:
    dim, kernel, depth = (8, 5, 2) if small else (256, 9, 6)
    blocks = [ConvMixerBlock(dim, kernel) for _ in range(depth)]
    patches = nn.Sequential(nn.Conv2d(3, dim, 7, 7), nn.GELU(), nn.BatchNorm2d(dim))
    return nn.Sequential(patches, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(dim, 10)), (image(small),)


# ---------------------------------------------------------------- attention in windows, and beside convolutions


class WindowBlock(nn.Module):
    """Attention within windows of an image, which are shifted by half a window in every other block."""

    def __init__(self, dim: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift, self.block = window, shift, Block(dim, heads)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, dim = x.shape
        w, shift = self.window, self.shift
        x = torch.roll(x, (-shift, -shift), (1, 2)) if shift else x
        y = x.view(batch, height // w, w, width // w, w, dim).transpose(2, 3).reshape(-1, w * w, dim)
        y = self.block(y).view(batch, height // w, width // w, w, w, dim).transpose(2, 3).reshape(batch, height, width, dim)
        return torch.roll(y, (shift, shift), (1, 2)) if shift else y


class Merge(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.down(self.norm(x))


class Swin(nn.Module):
    def __init__(self, dim: int, heads: int, window: int, stages: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, 4)
        layers: list[nn.Module] = []
        for k in range(stages):
            layers += [Merge(dim << (k - 1))] if k else []
            layers += [WindowBlock(dim << k, heads << k, window, shift) for shift in (0, window // 2)]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(dim << (stages - 1), 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.patches(x).permute(0, 2, 3, 1)).mean((1, 2)))


def swin(small: bool) -> Made:
    return (Swin(8, 2, 2, 2) if small else Swin(64, 2, 7, 3)), (image(small),)


class MobileViTBlock(nn.Module):
    """Attention between the places that lie alike in patches of two by two."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.near = nn.Sequential(conv_norm(channels, channels, 3, act=nn.SiLU), nn.Conv2d(channels, dim, 1))
        self.far, self.back = Block(dim, 2), conv_norm(dim, channels, 1, act=nn.SiLU)
        self.mix = conv_norm(2 * channels, channels, 3, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        y = self.near(x)
        batch, dim, height, width = y.shape
        rows, columns = height // 2, width // 2
        y = y.reshape(batch * dim * rows, 2, columns, 2).transpose(1, 2).reshape(batch, dim, rows * columns, 4)
        y = self.far(y.transpose(1, 3).reshape(batch * 4, rows * columns, dim))
        y = y.view(batch, 4, rows * columns, dim).transpose(1, 3).reshape(batch * dim * rows, columns, 2, 2).transpose(1, 2)
        return self.mix(torch.cat([x, self.back(y.reshape(batch, dim, height, width))], 1))


def mobilevit(small: bool) -> Made:
    width, dim, stages = (8, 8, 1) if small else (32, 96, 3)
    layers: list[nn.Module] = [conv_norm(3, width, 3, 2, act=nn.SiLU)]
    for k in range(stages):
        layers += [Gated(width << k, width << (k + 1), 3, 2), MobileViTBlock(width << (k + 1), dim)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(10)), (image(small, 256),)


# ---------------------------------------------------------------- detection


class Cross(nn.Module):
    """Cross-stage partial block: half of the channels go through bottlenecks, and all parts are mixed."""

    def __init__(self, a: int, b: int, depth: int) -> None:
        super().__init__()
        self.split = conv_norm(a, b, 1, act=nn.SiLU)
        self.layers = nn.ModuleList(
            nn.Sequential(conv_norm(b // 2, b // 2, 3, act=nn.SiLU), conv_norm(b // 2, b // 2, 3, act=nn.SiLU)) for _ in range(depth)
        )
        self.mix = conv_norm((2 + depth) * b // 2, b, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.split(x).chunk(2, 1))
        for layer in self.layers:
            parts.append(parts[-1] + layer(parts[-1]))
        return self.mix(torch.cat(parts, 1))


class Yolo(nn.Module):
    """Boxes and classes of every place of three scales: distances to edges are means of a distribution."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        w, self.bins = width, 8
        self.stem = nn.Sequential(conv_norm(3, w, 3, 2, act=nn.SiLU), conv_norm(w, 2 * w, 3, 2, act=nn.SiLU), Cross(2 * w, 2 * w, depth))
        self.down = nn.ModuleList(
            nn.Sequential(conv_norm(w << k, w << (k + 1), 3, 2, act=nn.SiLU), Cross(w << (k + 1), w << (k + 1), depth)) for k in (1, 2, 3)
        )
        self.up = nn.ModuleList((Cross(24 * w, 8 * w, depth), Cross(12 * w, 4 * w, depth)))
        self.heads = nn.ModuleList(nn.Conv2d(c * w, 4 * self.bins + classes, 1) for c in (4, 8, 16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        levels = []
        for layer in self.down:
            x = layer(x)
            levels.append(x)
        for k, layer in zip((1, 0), self.up, strict=True):
            x = layer(torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), levels[k]], 1))
            levels[k] = x
        found = [self.boxes(head(level), 8 << k) for k, (head, level) in enumerate(zip(self.heads, levels, strict=True))]
        return torch.cat([box for box, _ in found], 1), torch.cat([score for _, score in found], 1)

    def boxes(self, x: Tensor, stride: int) -> tuple[Tensor, Tensor]:
        batch, _, height, width = x.shape
        x = x.flatten(2).transpose(1, 2)
        y, x0 = torch.meshgrid(torch.arange(height, device=x.device), torch.arange(width, device=x.device), indexing="ij")
        places = torch.stack([x0, y], -1).reshape(1, -1, 2) + 0.5
        edges = x[..., : 4 * self.bins].view(batch, height * width, 4, self.bins).softmax(-1) @ torch.arange(self.bins).to(x)
        return torch.cat([places - edges[..., :2], places + edges[..., 2:]], -1) * stride, x[..., 4 * self.bins :].sigmoid()


def yolo(small: bool) -> Made:
    return (Yolo(4, 1, 3) if small else Yolo(16, 1, 80)), (torch.randn(1, 3, *((32, 32) if small else (320, 320))),)


class Pyramid(nn.Module):
    """Features of several scales, each with what comes from the coarser one, and heads that all scales share."""

    def __init__(self, width: int, out: int, classes: int) -> None:
        super().__init__()
        widths = [width << k for k in range(4)]
        self.down = nn.ModuleList(conv_norm(a, b, 3, 2) for a, b in zip([3, *widths], widths, strict=False))
        self.side = nn.ModuleList(nn.Conv2d(w, out, 1) for w in widths[1:])
        self.smooth = nn.ModuleList(nn.Conv2d(out, out, 3, padding=1) for _ in widths[1:])
        self.classes, self.edges = (
            nn.Sequential(nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(4, out), nn.ReLU(), nn.Conv2d(out, n, 3, padding=1))
            for n in (classes, 4)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        levels = [self.side[-1](kept[-1])]
        for side, level in zip(reversed(self.side[:-1]), reversed(kept[1:-1]), strict=True):
            levels.insert(0, side(level) + F.interpolate(levels[0], size=level.shape[2:], mode="nearest"))
        levels = [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]
        scores = torch.cat([self.classes(level).flatten(2) for level in levels], 2).sigmoid()
        edges = torch.cat([F.relu(self.edges(level)).flatten(2) for level in levels], 2)
        best, place = scores.amax(1).topk(8, 1)
        return best, edges.gather(2, place[:, None].expand(-1, 4, -1)), scores.argmax(1).gather(1, place)


def pyramid(small: bool) -> Made:
    return (Pyramid(4, 8, 3) if small else Pyramid(32, 96, 20)), (torch.randn(1, 3, *((32, 32) if small else (256, 256))),)


class DecoderLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.own, self.cross = (nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor, memory: Tensor, place: Tensor, queries: Tensor) -> Tensor:
        x = self.norms[0](x + self.own(x + queries, x + queries, x, need_weights=False)[0])
        x = self.norms[1](x + self.cross(x + queries, memory + place, memory, need_weights=False)[0])
        return self.norms[2](x + self.mlp(x))


class Detr(nn.Module):
    def __init__(self, dim: int, heads: int, depth: int, queries: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(conv_norm(a, b, 3, 2) for a, b in zip((3, dim // 4, dim // 2, dim // 2), (dim // 4, dim // 2, dim // 2, dim), strict=True))
        )
        self.rows, self.columns = (nn.Parameter(torch.randn(64, dim // 2)) for _ in range(2))
        self.queries = nn.Parameter(torch.randn(queries, dim))
        self.encoder, self.decoder = (
            nn.ModuleList(Block(dim, heads) for _ in range(depth)),
            nn.ModuleList(DecoderLayer(dim, heads) for _ in range(depth)),
        )
        self.classes, self.boxes = nn.Linear(dim, 11), nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        batch, dim, height, width = x.shape
        rows, columns = self.rows[:height, None].expand(-1, width, -1), self.columns[None, :width].expand(height, -1, -1)
        place = torch.cat([columns, rows], -1).reshape(1, height * width, dim)
        memory = x.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            memory = layer(memory + place)
        found, queries = torch.zeros_like(self.queries).expand(batch, -1, -1), self.queries.expand(batch, -1, -1)
        for layer in self.decoder:
            found = layer(found, memory, place, queries)
        return self.classes(found), self.boxes(found).sigmoid()


def detr(small: bool) -> Made:
    return (Detr(16, 2, 1, 4) if small else Detr(192, 6, 3, 50)), (torch.randn(1, 3, *((32, 32) if small else (224, 224))),)


# ---------------------------------------------------------------- dense prediction


class DeepLab(nn.Module):
    """Parallel dilated convolutions and a mean over the image, then the resolution of the input again."""

    def __init__(self, width: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        w = width
        self.body = nn.Sequential(conv_norm(3, w, 3, 2), conv_norm(w, 2 * w, 3, 2), conv_norm(2 * w, 4 * w, 3, 2))
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(4 * w, w, 3, padding=rate, dilation=rate, bias=False), nn.BatchNorm2d(w), nn.ReLU()) for rate in rates
        )
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4 * w, w, 1), nn.ReLU())
        self.head = nn.Sequential(conv_norm((len(rates) + 1) * w, w, 1), conv_norm(w, w, 3), nn.Conv2d(w, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        parts = [branch(y) for branch in self.branches]
        pooled = F.interpolate(self.pooled(y), size=y.shape[2:], mode="bilinear", align_corners=False)
        return F.interpolate(self.head(torch.cat([*parts, pooled], 1)), size=x.shape[2:], mode="bilinear", align_corners=False)


def deeplab(small: bool) -> Made:
    return (DeepLab(4, (1, 2)) if small else DeepLab(64, (1, 6, 12))), (torch.randn(1, 3, *((32, 32) if small else (256, 256))),)


class ReducedBlock(nn.Module):
    """Attention whose keys and values are of a coarser image, and a depthwise convolution between the layers of the perceptron."""

    def __init__(self, dim: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.first, self.second, self.heads = nn.LayerNorm(dim), nn.LayerNorm(dim), heads
        self.q, self.kv, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.reduce = nn.Conv2d(dim, dim, ratio, ratio) if ratio > 1 else nn.Identity()
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.depthwise = nn.Conv2d(4 * dim, 4 * dim, 3, padding=1, groups=4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, dim, height, width = x.shape
        t = x.flatten(2).transpose(1, 2)
        n = self.first(t)
        few = self.reduce(n.transpose(1, 2).view(batch, dim, height, width)).flatten(2).transpose(1, 2)
        q = self.q(n).view(batch, -1, self.heads, dim // self.heads).transpose(1, 2)
        k, v = self.kv(few).view(batch, -1, 2, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        t = t + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, dim))
        y = self.up(self.second(t)).transpose(1, 2).view(batch, 4 * dim, height, width)
        t = t + self.down(F.gelu(self.depthwise(y)).flatten(2).transpose(1, 2))
        return t.transpose(1, 2).view(batch, dim, height, width)


class Segformer(nn.Module):
    def __init__(self, dims: tuple[int, ...], heads: tuple[int, ...], ratios: tuple[int, ...], out: int) -> None:
        super().__init__()
        first = [
            nn.Conv2d(a, b, 7 if a == 3 else 3, 4 if a == 3 else 2, 3 if a == 3 else 1) for a, b in zip((3, *dims), dims, strict=False)
        ]
        self.stages = nn.ModuleList(nn.Sequential(f, ReducedBlock(d, h, r)) for f, d, h, r in zip(first, dims, heads, ratios, strict=True))
        self.side = nn.ModuleList(nn.Conv2d(d, out, 1) for d in dims)
        self.head = nn.Sequential(conv_norm(len(dims) * out, out, 1), nn.Conv2d(out, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        size = levels[0].shape[2:]
        parts = [F.interpolate(side(y), size=size, mode="bilinear", align_corners=False) for side, y in zip(self.side, levels, strict=True)]
        return self.head(torch.cat(parts, 1))


def segformer(small: bool) -> Made:
    model = Segformer((8, 16), (1, 2), (2, 1), 8) if small else Segformer((32, 64, 160, 256), (1, 2, 5, 8), (8, 4, 2, 1), 128)
    return model, (torch.randn(1, 3, *((32, 32) if small else (256, 256))),)


class Flow(nn.Module):
    """Optical flow: products of all pairs of places, looked up around where each seems to have gone, refine the flow again and again."""

    def __init__(self, width: int, radius: int, steps: int) -> None:
        super().__init__()
        w, self.radius, self.steps = width, radius, steps
        self.features = nn.Sequential(
            *(layer for a, b in ((3, w), (w, w), (w, w)) for layer in (nn.Conv2d(a, b, 3, 2, 1), nn.InstanceNorm2d(b), nn.ReLU()))
        )
        looked = (2 * radius + 1) ** 2
        self.mix, self.update, self.gate = (
            nn.Conv2d(looked + 2 + w, w, 3, padding=1),
            nn.Conv2d(w, w, 3, padding=1),
            nn.Conv2d(w, w, 3, padding=1),
        )
        self.flow = nn.Conv2d(w, 2, 3, padding=1)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.features(a), self.features(b)
        batch, dim, height, width = x.shape
        pairs = (x.flatten(2).transpose(1, 2) @ y.flatten(2) / dim**0.5).view(batch * height * width, 1, height, width)
        rows, columns = torch.meshgrid(torch.arange(height, device=x.device), torch.arange(width, device=x.device), indexing="ij")
        start = torch.stack([columns, rows]).to(x.dtype)[None].expand(batch, -1, -1, -1)
        r = torch.arange(-self.radius, self.radius + 1, device=x.device).to(x.dtype)
        near = torch.stack(torch.meshgrid(r, r, indexing="ij"), -1).flip(-1)
        place, hidden, size = start, torch.tanh(x), torch.tensor([width - 1, height - 1]).to(x)
        for _ in range(self.steps):
            at = place.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) + near
            found = F.grid_sample(pairs, 2 * at / size - 1, align_corners=True).view(batch, height, width, -1).permute(0, 3, 1, 2)
            mixed = F.relu(self.mix(torch.cat([found, place - start, hidden], 1)))
            gate = torch.sigmoid(self.gate(mixed))
            hidden = (1 - gate) * hidden + gate * torch.tanh(self.update(mixed))
            place = place + self.flow(hidden)
        return F.interpolate(place - start, scale_factor=8.0, mode="bilinear", align_corners=True) * 8


def flow(small: bool) -> Made:
    size = (24, 32) if small else (128, 160)
    return (Flow(8, 1, 1) if small else Flow(64, 3, 4)), (torch.randn(1, 3, *size), torch.randn(1, 3, *size))


# ---------------------------------------------------------------- images made of others, and of noise


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        layers = [(nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels, affine=True)) for _ in range(2)]
        self.body = nn.Sequential(*layers[0], nn.ReLU(), *layers[1])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def style_transfer(small: bool) -> Made:
    w, depth = (4, 1) if small else (32, 3)

    def layer(a: int, b: int, kernel: int, stride: int) -> list[nn.Module]:
        return [nn.ReflectionPad2d(kernel // 2), nn.Conv2d(a, b, kernel, stride), nn.InstanceNorm2d(b, affine=True), nn.ReLU()]

    down = [*layer(3, w, 9, 1), *layer(w, 2 * w, 3, 2), *layer(2 * w, 4 * w, 3, 2)]
    up = [nn.Upsample(scale_factor=2), *layer(4 * w, 2 * w, 3, 1), nn.Upsample(scale_factor=2), *layer(2 * w, w, 3, 1)]
    last = [nn.ReflectionPad2d(4), nn.Conv2d(w, 3, 9)]
    return nn.Sequential(*down, *(Residual(4 * w) for _ in range(depth)), *up, *last), (image(small),)


def super_resolution(small: bool) -> Made:
    w, depth = (4, 1) if small else (48, 6)
    body = [layer for _ in range(depth) for layer in (nn.Conv2d(w, w, 3, padding=1), nn.PReLU(w))]
    return nn.Sequential(nn.Conv2d(3, w, 3, padding=1), *body, nn.Conv2d(w, 3 * 9, 3, padding=1), nn.PixelShuffle(3)), (image(small, 96),)


def generator(small: bool) -> Made:
    """The generator of an adversarial pair: transposed convolutions from a vector to an image."""
    w, steps = (4, 1) if small else (32, 4)
    first = [nn.ConvTranspose2d(32, w << steps, 4), nn.BatchNorm2d(w << steps), nn.ReLU()]
    up = [
        layer
        for k in reversed(range(steps))
        for layer in (nn.ConvTranspose2d(w << (k + 1), w << k, 4, 2, 1), nn.BatchNorm2d(w << k), nn.ReLU())
    ]
    return nn.Sequential(*first, *up, nn.Conv2d(w, 3, 3, padding=1), nn.Tanh()), (torch.randn(1, 32, 1, 1),)


class TimedResidual(nn.Module):
    def __init__(self, a: int, b: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, 2 * b))
        self.norm, self.second = nn.GroupNorm(4, b), nn.Sequential(nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
        self.short = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
        return self.short(x) + self.second(self.norm(self.first(x)) * (1 + scale) + shift)


class Diffusion(nn.Module):
    """What a step of a diffusion model predicts: a U-Net that knows the time, with attention to a text at the coarsest scale."""

    def __init__(self, width: int, depth: int, heads: int, text: int) -> None:
        super().__init__()
        widths, self.width = [width << k for k in range(depth)], width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.first, self.last = (
            nn.Conv2d(4, width, 3, padding=1),
            nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1)),
        )
        self.down = nn.ModuleList(TimedResidual(a, b, 4 * width) for a, b in zip([width, *widths], widths, strict=False))
        self.pool = nn.ModuleList(nn.Conv2d(w, w, 3, 2, 1) for w in widths[:-1])
        self.norm, self.cross = nn.LayerNorm(widths[-1]), nn.MultiheadAttention(widths[-1], heads, kdim=text, vdim=text, batch_first=True)
        self.up = nn.ModuleList(
            TimedResidual(b + a, a, 4 * width) for a, b in zip(reversed(widths[:-1]), reversed(widths[1:]), strict=True)
        )

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        speed = torch.exp(-9.2 * torch.arange(self.width // 2, device=x.device) / (self.width // 2))
        angle = time[:, None].to(x.dtype) * speed
        t = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        x, kept = self.first(x), []
        for k, layer in enumerate(self.down):
            x = layer(self.pool[k - 1](x) if k else x, t)
            kept.append(x)
        batch, dim, height, width = x.shape
        flat = x.flatten(2).transpose(1, 2)
        flat = flat + self.cross(self.norm(flat), text, text, need_weights=False)[0]
        x = flat.transpose(1, 2).view(batch, dim, height, width)
        for layer, skip in zip(self.up, reversed(kept[:-1]), strict=True):
            x = layer(torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), skip], 1), t)
        return self.last(x)


def diffusion(small: bool) -> Made:
    model, size, text = (Diffusion(8, 2, 2, 8), 16, 8) if small else (Diffusion(64, 3, 4, 128), 32, 128)
    return model, (torch.randn(2, 4, size, size), torch.tensor([10, 500]), torch.randn(2, 5 if small else 32, text))


class VQ(nn.Module):
    """An autoencoder whose middle is looked up in a book of vectors, the nearest of each place."""

    def __init__(self, width: int, codes: int) -> None:
        super().__init__()
        w = width
        self.down = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1), nn.SiLU(), nn.Conv2d(w, 2 * w, 4, 2, 1), nn.SiLU(), nn.Conv2d(2 * w, w, 3, padding=1)
        )
        self.book = nn.Parameter(torch.randn(codes, w))
        self.up = nn.Sequential(
            nn.ConvTranspose2d(w, 2 * w, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(w, 3, 3, padding=1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.down(x).permute(0, 2, 3, 1)
        far = z.pow(2).sum(-1, keepdim=True) - 2 * z @ self.book.t() + self.book.pow(2).sum(-1)
        code = far.argmin(-1)
        return self.up(self.book[code].permute(0, 3, 1, 2)), code


def vq(small: bool) -> Made:
    return (VQ(4, 8) if small else VQ(64, 512)), (image(small, 128),)


VISION: dict[str, Callable[[bool], Made]] = {
    made.__name__: made
    for made in (
        *(efficientnet, shufflenet, ghostnet, poolformer, convmixer, swin, mobilevit),
        *(yolo, pyramid, detr, deeplab, segformer, flow),
        *(style_transfer, super_resolution, generator, diffusion, vq),
    )
}

"""A page that tells which digit is drawn on it: a model compiled for WebAssembly, in one file that works offline.

    python examples/browser/build.py [FOLDER]       writes FOLDER/digits.html (default: the folder of this file)

The network is a small convolutional one. Its filters are drawn from a seed and its last layer is fitted here, in a second, to digits that
are drawn here too: so nothing is downloaded. What runs in the browser is what `tensorlang` makes of the ONNX model: kernels for 128-bit
vectors, and again for relaxed ones, which browsers take where they have them.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl

HERE = Path(__file__).parent
SIDE = 28
EXTENT = 20
"""Pixels of the longer side of what is drawn, which stands in the middle."""
TARGETS = ("wasm32-relaxed", "wasm32")
Array = np.ndarray[Any, Any]


def arc(x: float, y: float, rx: float, ry: float, first: float, last: float, points: int = 14) -> list[tuple[float, float]]:
    """Return points of an ellipse around (x, y), of angles in degrees, clockwise from the right."""
    angles = np.radians(np.linspace(first, last, points))
    return [(x + rx * np.cos(a), y + ry * np.sin(a)) for a in angles]


STROKES: dict[int, list[list[list[tuple[float, float]]]]] = {
    0: [[arc(0.5, 0.5, 0.32, 0.48, -90, 270, 24)]],
    1: [[[(0.5, 0.0), (0.5, 1.0)]], [[(0.3, 0.25), (0.55, 0.0), (0.55, 1.0)]], [[(0.35, 0.2), (0.5, 0), (0.5, 1)], [(0.3, 1), (0.7, 1)]]],
    2: [[[*arc(0.5, 0.28, 0.3, 0.28, 190, 380), (0.2, 1.0), (0.85, 1.0)]]],
    3: [[[*arc(0.48, 0.26, 0.28, 0.26, 200, 450), *arc(0.48, 0.74, 0.32, 0.26, 270, 510)]]],
    4: [
        [[(0.6, 0.0), (0.15, 0.65), (0.9, 0.65)], [(0.65, 0.3), (0.65, 1.0)]],
        [[(0.2, 0.0), (0.2, 0.5), (0.8, 0.5)], [(0.8, 0.0), (0.8, 1.0)]],
    ],
    5: [[[(0.8, 0.0), (0.25, 0.0), (0.22, 0.45), *arc(0.48, 0.68, 0.33, 0.3, 240, 510)]]],
    6: [[[(0.7, 0.0), (0.35, 0.35), *arc(0.5, 0.7, 0.3, 0.29, 180, 540, 22)]]],
    7: [[[(0.15, 0.0), (0.85, 0.0), (0.4, 1.0)]], [[(0.15, 0.0), (0.85, 0.0), (0.4, 1.0)], [(0.35, 0.5), (0.75, 0.5)]]],
    8: [[arc(0.5, 0.26, 0.26, 0.25, 90, 450, 22), arc(0.5, 0.76, 0.32, 0.25, -90, 270, 22)]],
    9: [[[*arc(0.5, 0.3, 0.3, 0.29, 0, 360, 22), (0.78, 0.4), (0.6, 1.0)]], [arc(0.5, 0.3, 0.3, 0.29, 0, 360, 22), [(0.8, 0.2), (0.8, 1)]]],
}
"""For each digit the ways to write it: strokes through points of a unit square, y downwards."""


def drawn(strokes: list[Array], width: float) -> Array:
    """Return the image of strokes, of shape (28, 28): 1 where ink is. Its longer side is `EXTENT` pixels, and it is in the middle."""
    points = np.concatenate(strokes)
    low, high = points.min(0), points.max(0)
    scale = (EXTENT - width) / (high - low).max()
    at = np.stack(np.meshgrid(np.arange(SIDE) + 0.5, np.arange(SIDE) + 0.5), -1)[:, :, None]
    far = np.full((SIDE, SIDE), np.inf)
    for stroke in strokes:
        placed = (stroke - (low + high) / 2) * scale + SIDE / 2
        start, step = placed[:-1], np.diff(placed, axis=0)
        along = np.clip(((at - start) * step).sum(-1) / np.maximum((step**2).sum(-1), 1e-9), 0, 1)
        far = np.minimum(far, np.linalg.norm(at - start - along[..., None] * step, axis=-1).min(-1))
    return np.clip(width / 2 - far + 0.5, 0, 1).astype(np.float32)


def digits(count: int, seed: int) -> tuple[Array, Array]:
    """Return images of digits written by an unsteady hand, of shape (count, 1, 28, 28), and which they are."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    images = []
    for label in labels:
        ways = STROKES[int(label)]
        turn, shear, wide = rng.normal(0, 0.12), rng.normal(0, 0.15), rng.uniform(0.75, 1.25)
        turned = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) @ np.array([[wide, shear], [0, 1]])
        shake = rng.normal(0, 0.035, (3, 2, 2))
        strokes = []
        for stroke in ways[rng.integers(len(ways))]:
            points = np.array(stroke)
            waves = sum(shake[k] @ np.sin((k + 1) * 2.5 * points.T + k) for k in range(3))
            strokes.append((points + waves.T + rng.normal(0, 0.012, points.shape)) @ turned.T)
        images.append(drawn(strokes, rng.uniform(1.6, 3.4)))
    return np.stack(images)[:, None], labels


def network(filters: Mapping[str, Array], last: Array, bias: Array) -> onnx.ModelProto:
    """Return the classifier as an ONNX model: two convolutions with ReLU and pooling, and a product."""
    nodes = [
        helper.make_node("Conv", ["image", "first"], ["a"], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "second"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "last", "bias"], ["h"]),
        helper.make_node("Softmax", ["h"], ["shares"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, SIDE, SIDE])
    shares = helper.make_tensor_value_info("shares", TensorProto.FLOAT, ["n", 10])
    weights = {**filters, "last": last, "bias": bias}
    known = [numpy_helper.from_array(np.ascontiguousarray(a, np.float32), name) for name, a in weights.items()]
    graph = helper.make_graph(nodes, "digits", [image], [shares], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def features(filters: Mapping[str, Array], images: Array) -> Array:
    """Return what the last layer of the network reads, computed by the network itself."""
    model = network(filters, np.zeros((24 * 49, 10)), np.zeros(10))
    model.graph.node.pop()
    model.graph.node.pop()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("g", TensorProto.FLOAT, ["n", 24 * 49]))
    found: Array = tl.compile(model)(images)
    return found


def fitted(images: Array, labels: Array) -> onnx.ModelProto:
    """Return the network whose last layer is the ridge regression of the labels."""
    rng = np.random.default_rng(1)
    first, second = rng.normal(0, 0.25, (12, 1, 5, 5)), rng.normal(0, 0.13, (24, 12, 3, 3))
    filters = {"first": first - first.mean((2, 3), keepdims=True), "second": second}
    read = features(filters, images).astype(np.float64)
    mean = read.mean(0)
    centred = read - mean
    wanted = np.where(labels[:, None] == np.arange(10), 1.0, 0.0)
    solved = np.linalg.solve(centred.T @ centred + 3.0 * np.eye(len(mean)), centred.T @ (wanted - wanted.mean(0)))
    return network(filters, 12 * solved, 12 * (wanted.mean(0) - mean @ solved))


def compiled(model: onnx.ModelProto, folder: Path) -> Path:
    """Return the folder of the model, built for WebAssembly."""
    return tl.build(model, folder, targets=TARGETS, shapes={"image": (1, 1, SIDE, SIDE)}, library="digits")


def page() -> str:
    """Return the page."""
    images, labels = digits(3000, seed=0)
    model = fitted(images, labels)
    tried, wanted = digits(500, seed=1)
    shares = tl.compile(model)(tried)
    print(f"{(shares.argmax(1) == wanted).mean():.1%} of 500 drawn digits are told right")
    with TemporaryDirectory() as name:
        folder = compiled(model, Path(name) / "digits")
        runtime = (folder / "digits.js").read_text("utf-8").replace("export async function", "async function")
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".wasm", ".weights")}
    for file, data in files.items():
        print(f"{len(data):>8,}  {file}")
    known = {"image": tried[0].ravel().round(4).tolist(), "shares": tl.compile(model)(tried[:1].round(4))[0].tolist()}
    strokes = {digit: [[list(map(float, p)) for p in stroke] for stroke in ways[0]] for digit, ways in STROKES.items()}
    text = (HERE / "page.html").read_text("utf-8").replace("/*RUNTIME*/", runtime)
    inside = {file: base64.b64encode(data).decode() for file, data in files.items()}
    for name, value in (("FILES", inside), ("KNOWN", known), ("STROKES", strokes)):
        text = text.replace(f"/*{name}*/ null", json.dumps(value))
    return text


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "digits.html").write_text(page(), "utf-8")
    print(f"{folder / 'digits.html'}: {(folder / 'digits.html').stat().st_size:,} bytes")

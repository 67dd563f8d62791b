"""Models of torch compiled here: by `torch.compile` and from exported programs, for one combination of sizes and for all."""

from __future__ import annotations

import copy
import logging
import threading
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from onnx_evaluate import evaluate
from torch import Tensor, nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch_networks import network

import tensorlang as tl
from stdlib.aten import Importer
from tensorlang.diagnostics import CompileError, RunError
from tensorlang.torch import backend, custom_op
from tensorlang.torch.backend import tensorlang

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.usefixtures("fresh"),
]

aten = torch.ops.aten
OPS = tl.parse("op halved[T: float](x: T[D..]) -> (y: T[D..]) { y[d..] = x[d..] / 2 }")
halved = custom_op(OPS.halved, "tests::halved", autograd=True)


@torch.library.custom_op("tests::largest", mutates_args=())
def largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, places = torch.topk(x, k)
    return values.clone(), places.clone()


@largest.register_fake
def _(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return x.new_empty(*x.shape[:-1], k), x.new_empty(*x.shape[:-1], k, dtype=torch.int64)


@torch.library.custom_op("tests::scale", mutates_args={"x"})
def scale(x: Tensor, by: float) -> None:
    x.mul_(by)


@torch.library.custom_op("tests::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@pytest.fixture
def fresh() -> None:
    torch._dynamo.reset()


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=tensorlang, fullgraph=True, **options)


def close(found: Any, wanted: Any) -> None:
    for a, b in zip(_tensors(found), _tensors(wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def _tensors(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_calls_operators_of_other_libraries_between_pieces_that_are_compiled(dynamic: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(3, 4)

        def forward(self, x: Tensor) -> tuple[Any, ...]:
            values, places = largest(F.relu(self.first(x)), 3)
            again, _ = largest(values * 2 + x.sum(), 2)
            y = self.second(values) + again.sum() + halved(values[0]).sum()
            scale(y, 3.0)  # torch calls it on a copy
            return y, places + 1, positive(y.exp() - 1) * 2, torch.exp(x).t(), x.view(-1), y.shape[0] * 2

    torch.manual_seed(3)
    model = Model().eval()
    with torch.no_grad(), caplog.at_level(logging.INFO, "tensorlang.compile"):
        for rows in (5, 7):
            x = torch.randn(rows, 6)
            close(compiled(model, dynamic=dynamic)(x)[:5], model(x)[:5])
            assert compiled(model, dynamic=dynamic)(x)[5] == rows * 2
    assert "torch calls `tests.largest.default`" in caplog.text


@pytest.mark.parametrize("name", ["mobilenet", "unet", "lstm"])
def test_networks_compute_what_torch_computes(name: str) -> None:
    model, inputs = network(name, small=True)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        close(compiled(model)(*inputs), model(*inputs))


def test_an_exported_program_is_a_model() -> None:
    model, inputs = network("bert", small=True)
    net = tl.compile(torch.export.export(model, inputs), importers=[Importer()])
    with torch.no_grad():
        np.testing.assert_allclose(net(*(t.numpy() for t in inputs)), model(*inputs).numpy(), rtol=1e-4, atol=1e-4)


def test_numbers_that_an_exported_program_is_for_are_no_inputs() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, by: float, how: str) -> Tensor:
            return x * by if how == "times" else x

    graph = Importer().load(torch.export.export(Scaled(), (torch.ones(2), 3.0, "times")))
    assert list(graph.inputs) == ["x"]
    np.testing.assert_array_equal(evaluate(graph, {"x": np.ones(2, np.float32)})[0], [3, 3])


def test_a_cache_grows_without_another_compilation(caplog: pytest.LogCaptureFixture) -> None:
    model, (ids, *past) = network("gpt", small=True)
    fast = compiled(model, dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.INFO, "tensorlang.compile"):
        for _ in range(4):
            wanted = model(ids, *past)
            close(fast(ids, *past), wanted)
            past = wanted[1:]
    made = [r for r in caplog.records if "compiled in" in r.getMessage() or "found in the cache" in r.getMessage()]
    assert len(made) == 1


def test_a_size_that_can_be_one_number_alone_is_that_number(caplog: pytest.LogCaptureFixture) -> None:
    fast = compiled(nn.Linear(4, 3), dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.INFO, "tensorlang.compile"):
        for rows in (2, 5):
            assert fast(torch.ones(rows, 4)).shape == (rows, 3)
    (made,) = (r.getMessage() for r in caplog.records if "compiled in" in r.getMessage() or "found in the cache" in r.getMessage())
    assert ", 4]" in made and "== 4" not in made


def sized(x: Tensor) -> tuple[Any, ...]:
    rows, columns = x.shape
    diagonals = x.as_strided((rows - 1, 2), (columns + 1, 1), 1)
    return (
        diagonals,
        x * (rows / (columns + 1)),
        x.new_full((int(rows * 1.5),), columns),
        torch.arange(2, x.numel(), rows),
        x.roll((1, -2), (0, 1)),
        (x[:, :1, None] * x[:, 0]).diagonal(-1, 0, 2),
        x.unfold(1, 3, 1),
        F.adaptive_avg_pool1d(x, 3),
        F.adaptive_max_pool2d(x[None], (2, 3)),
    )


def test_sizes_that_are_computed_with_stay_open(caplog: pytest.LogCaptureFixture) -> None:
    fast = compiled(sized, dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.INFO, "tensorlang.compile"):
        for shape in ((5, 4), (3, 7)):
            close(fast(made := torch.randn(shape)), sized(made))
    assert len([r for r in caplog.records if "compiled in" in r.getMessage() or "found in the cache" in r.getMessage()]) == 1


def test_sizes_that_cannot_be_open_are_numbers() -> None:
    fast = compiled(lambda x: x[: int(x.shape[0] * 0.7)] + 1, dynamic=True)
    with torch.no_grad():
        for rows in (10, 21):
            close(fast(x := torch.randn(rows)), x[: int(rows * 0.7)] + 1)


def test_images_of_another_size_are_no_elements_that_data_name() -> None:
    x, read = torch.randn(1, 2, 4, 5), []
    for mode in ("nearest", "bicubic"):
        fast = torch.compile(lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), backend=tensorlang, dynamic=True)
        with torch.no_grad(), mock.patch.object(backend, "of_graph", side_effect=backend.of_graph) as captured:
            close(fast(x), F.interpolate(x, scale_factor=2, mode=mode))
        read += [node.op for node in captured.call_args.args[0].graph.nodes if node.op == "call_function" and "index" in str(node.target)]
    assert not read


def test_what_is_read_twice_beside_channels_in_groups_is_computed_once() -> None:
    def mixed(x: Tensor, w: Tensor, a: Tensor) -> Tensor:
        y, b = F.conv2d(x, w, groups=2), a * 3 + 1
        return (y + b) * (y - b)

    given = torch.randn(1, 4, 3, 3), torch.randn(4, 2, 1, 1), torch.randn(1, 4, 3, 3)
    with torch.no_grad():
        close(compiled(mixed)(*given), mixed(*given))


def test_indices_that_are_compared_and_looked_up_are_checked() -> None:
    bag = nn.EmbeddingBag(5, 3, mode="sum", padding_idx=0)
    ids, starts = torch.tensor([1, 0, 4, 2]), torch.tensor([0, 2])
    fast = compiled(bag)
    with torch.no_grad():
        close(fast(ids, starts), bag(ids, starts))
        with pytest.raises(RunError, match=r"(?s)R0306.*ids: I"):
            fast(ids + 1, starts)


def test_matrices_without_an_inverse_are_refused_as_torch_does() -> None:
    inverse = compiled(torch.linalg.inv)
    with torch.no_grad():
        close(inverse(a := torch.tensor([[0.0, 2.0], [4.0, 1.0]])), torch.linalg.inv(a))
        with pytest.raises(torch.linalg.LinAlgError, match="element 2 is zero"):
            inverse(torch.ones(2, 2))


def test_solutions_of_equations_have_derivatives() -> None:
    def solved(a: Tensor, b: Tensor) -> Tensor:
        systems, vector = torch.stack((a, a @ a)), b[:, 0]
        several, right = torch.linalg.solve(systems, b), torch.linalg.solve(a, vector[None], left=False)
        return several.square().sum() + right.square().sum() + torch.linalg.solve(a.mT, vector).sum() + torch.logdet(systems).sum()

    given = (torch.eye(3) * 3 + torch.rand(3, 3)).requires_grad_(), torch.randn(3, 2, requires_grad=True)
    close(*((y, *torch.autograd.grad(y, given)) for y in (solved(*given), compiled(solved)(*given))))


def test_layers_that_torch_has_in_one_operator_are_taken_apart() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    padding = torch.tensor([[False, False, True], [False, False, False]])
    with torch.no_grad():
        close(compiled(layer)(torch.ones(2, 3, 8), src_key_padding_mask=padding), layer(torch.ones(2, 3, 8), src_key_padding_mask=padding))


def test_labels_end_at_the_first_that_is_none() -> None:
    x, labels = torch.randn(3, 3), torch.tensor([[0, -1, -1], [2, 1, -1], [-1, 0, 1]])
    with torch.no_grad():
        close(compiled(F.multilabel_margin_loss)(x, labels), F.multilabel_margin_loss(x, labels))


def test_products_that_optimizers_add_in_place_are_compiled() -> None:
    def step(x: Tensor, a: Tensor) -> Tensor:
        return x.clone().addcmul_(a, a, value=0.5)

    with torch.no_grad():
        close(compiled(step)(torch.ones(3), torch.ones(3)), torch.full((3,), 1.5))


def test_functions_hold_tensors_of_their_own() -> None:
    def placed(x: Tensor) -> Tensor:
        x = x[:, [1, 0]] * torch.tensor([640, 480])
        x[:, 0] = 3
        return x

    with torch.no_grad():
        close(compiled(placed)(torch.ones(2, 2)), placed(torch.ones(2, 2)))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor, k: int = 1) -> tuple[Any, ...]:
        self.count.add_(1)
        return x * self.weight + k, self.count * 2, x.shape[0] + k, None, x


def test_buffers_change_and_what_is_no_tensor_is_returned() -> None:
    model = Counting()
    fast = compiled(model)
    for n in (2, 4, 5):
        x = torch.ones(n, 3)
        with torch.no_grad():
            y, count, size, nothing, same = fast(x, n)
        assert torch.equal(y, x * model.weight + n) and count.item() == 2 * model.count.item()
        assert (size, nothing) == (2 * n, None) and torch.equal(same, x)
    assert model.count.item() == 3


def test_parameters_that_change_are_read_anew() -> None:
    model, x = nn.Linear(3, 2, bias=False), torch.ones(1, 3)
    fast = compiled(model)
    with torch.no_grad():
        for k in range(5):
            model.weight.fill_(k)
            assert fast(x).tolist() == [[3 * k, 3 * k]]
        model.weight.data = torch.full((2, 3), 7.0)
        assert fast(x).tolist() == [[21, 21]]


def test_what_optimizers_change_in_one_kernel_is_read_anew() -> None:
    """Torch counts changes of tensors, but none of those that `fused=True` makes."""
    model, x = nn.Linear(3, 2), torch.ones(1, 3)
    fast, optimizer = compiled(model), torch.optim.AdamW(model.parameters(), 0.1, fused=True)
    for _ in range(5):
        with torch.no_grad():
            close(fast(x), model(x))
        model(x).sum().backward()
        optimizer.step()


def test_layers_that_share_a_graph_keep_their_parameters() -> None:
    layers, x = [nn.Linear(2, 2) for _ in range(3)], torch.ones(1, 2)
    forward = torch.compile(lambda layer, x: layer(x), backend=tensorlang)
    with torch.inference_mode():
        for layer in (*layers, *layers):
            close(forward(layer, x), layer(x))


def test_models_of_inference_mode_and_of_other_types() -> None:
    with torch.inference_mode():
        model = nn.Linear(3, 2).to(torch.bfloat16)
        x = torch.ones(1, 3, dtype=torch.bfloat16)
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-2, atol=1e-2)
        integers = compiled(lambda a: (a.sum(), a.to(torch.uint8) * 2, a > 1))
        x = torch.arange(4)
        assert all(torch.equal(a, b) for a, b in zip(integers(x), (x.sum(), x.to(torch.uint8) * 2, x > 1), strict=True))


@pytest.mark.parametrize("x", [torch.ones(0, 3), torch.ones(1, 3), torch.arange(12.0).view(3, 4).t()[:, :3]], ids=["none", "one", "apart"])
def test_inputs_of_any_size_lie_anywhere(x: Tensor) -> None:
    with torch.no_grad():
        close(compiled(lambda t: F.relu(t) * 2)(x), F.relu(x) * 2)


def test_norms_that_torch_takes_apart_are_whole_here() -> None:
    x, g = torch.randn(3, 4), torch.randn(4)
    with torch.no_grad():
        close(compiled(lambda x, g: F.rms_norm(x, (4,), g, 1e-6))(x, g), F.rms_norm(x, (4,), g, 1e-6))


def test_operators_of_the_language_are_fused_into_graphs() -> None:
    with torch.no_grad():
        fast = compiled(lambda x: halved(x.abs()) + 1)
        close(fast(-torch.ones(4)), torch.full((4,), 1.5))
    exported = torch.export.export(_Halving(), (torch.ones(4),))
    net = tl.compile(exported, importers=[Importer()])
    assert net(np.ones(4, np.float32)).tolist() == [1.5] * 4
    assert "halved" in net.explain()


class _Halving(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return halved(x) + 1


def test_a_graph_runs_in_several_threads() -> None:
    model = nn.Linear(8, 8)
    fast, inputs = compiled(model), [torch.randn(1, 8) for _ in range(4)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
        fast(inputs[0])
    found: dict[int, Tensor] = {}

    def run(k: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                found[k] = fast(inputs[k])

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close(tuple(found[k] for k in range(4)), tuple(wanted))


def test_steps_of_training_change_parameters_and_buffers_as_those_of_torch_do() -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3))
    model[0].bias.requires_grad_(False)
    twin = copy.deepcopy(model)
    fast = compiled(twin)
    for _ in range(2):
        x, wanted = torch.randn(4, 2, 6, 6), torch.arange(4) % 3
        for trained, run in ((model, model), (twin, fast)):
            optimizer = torch.optim.SGD(trained.parameters(), 0.1)
            F.cross_entropy(run(x), wanted).backward()
            optimizer.step()
            optimizer.zero_grad()
    close(tuple(twin.state_dict().values()), tuple(model.state_dict().values()))
    with torch.no_grad():
        close(fast(x), model(x))


def test_derivatives_go_back_through_layers_of_lstm_whole() -> None:
    model, x = nn.LSTM(3, 3, 2), torch.randn(4, 2, 3)  # the second layer has an input with derivatives
    with torch._dynamo.config.patch(allow_rnn=True), mock.patch.object(backend, "of_graph", wraps=backend.of_graph) as read:
        results = [
            (y, hn, *torch.autograd.grad((y * y).sum() + cn.exp().sum(), model.parameters()))
            for y, (hn, cn) in (model(x), compiled(model)(x))
        ]
    close(*results)
    assert {node.target for call in read.call_args_list for node in call.args[0].graph.nodes} >= {aten.mkldnn_rnn_layer_backward.default}


def test_derivatives_go_back_through_other_recurrent_layers_whole() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.rnn = nn.GRU(3, 3), nn.RNN(3, 2, nonlinearity="relu", bidirectional=True)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y, last = self.gru(x)
            return self.rnn(y)[0], last

    model, x = Layers(), torch.randn(4, 2, 3)
    with torch._dynamo.config.patch(allow_rnn=True), mock.patch.object(backend, "of_graph", wraps=backend.of_graph) as read:
        results = [
            (y, last, *torch.autograd.grad((y * y).sum() + last.exp().sum(), model.parameters()))
            for y, last in (model(x), compiled(model)(x))
        ]
    close(*results)
    assert [n.target for n in read.call_args_list[0].args[0].graph.nodes].count(aten.mkldnn_rnn_layer.default) == 3


def test_parameters_that_are_trained_are_read_where_they_lie_now() -> None:
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    fast = compiled(model)
    for change in (lambda: model.weight.data.mul_(2), lambda: setattr(model.weight, "data", torch.ones(3, 3))):
        close(fast(x), model(x))
        change()
        wanted, found = (torch.autograd.grad(run(x).square().sum(), model.parameters()) for run in (model, fast))
        close(found, wanted)


def test_derivatives_have_memory_of_their_own_for_any_sizes() -> None:
    def run(a: Tensor, b: Tensor) -> Tensor:
        return torch.sin(a.expand(b.shape) + b)

    fast = compiled(run, dynamic=True)
    for rows in (3, 5):
        a, b = torch.zeros(1, 4, requires_grad=True), torch.zeros(rows, 4, requires_grad=True)
        for _ in range(2):  # torch adds to what is there in place
            fast(a, b).sum().backward()
        close((a.grad, b.grad), (torch.full((1, 4), 2.0 * rows), torch.full((rows, 4), 2.0)))


def test_what_derivatives_read_of_inputs_is_these_themselves_wherever_they_lie() -> None:
    def run(x: Tensor, w: Tensor) -> Tensor:
        return torch.sin(x[1:] @ w)

    fast = compiled(run)
    w = torch.randn(4, 3, requires_grad=True)
    for start in (0, 2):
        x, saved = torch.randn(6, 4)[start:][:3].requires_grad_(), list[Tensor]()
        wanted = torch.autograd.grad(run(x, w).sum(), (x, w))
        with torch.autograd.graph.saved_tensors_hooks(lambda t, saved=saved: saved.append(t) or t, lambda t: t):
            y = fast(x, w)
        close(torch.autograd.grad(y.sum(), (x, w)), wanted)
        assert {x[1:].data_ptr(), w.data_ptr()} <= {t.data_ptr() for t in saved}


def test_what_is_dropped_has_no_derivative() -> None:
    x = torch.rand(40, 50).add_(1).requires_grad_()
    y = compiled(lambda x: F.dropout(halved(x * x), 0.25))(x)
    y.sum().backward()
    close(x.grad, torch.where(y.detach() == 0, 0.0, x.detach() / 0.75))
    assert 0.7 < (y != 0).float().mean() < 0.8


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: compiled(nn.Linear(2, 2, device="meta"))(torch.ones(1, 2, device="meta")), "C0142"),
        (lambda: compiled(lambda x: x + 1, options={"speed": 3})(torch.ones(1)), "C0143"),
        (lambda: compiled(lambda x: x + 1, mode="max-autotune")(torch.ones(1)), "C0143"),
        (lambda: compiled(torch.special.airy_ai)(torch.ones(2)), "O010"),
    ],
    ids=["device", "options", "mode", "operator"],
)
def test_what_is_not_compiled_is_refused_with_a_code(call: Any, code: str) -> None:
    with pytest.raises(Exception, match=code):
        call()


def test_a_program_that_changes_what_it_is_given_is_refused() -> None:
    exported = torch.export.export(Counting(), (torch.ones(2, 3),))
    with pytest.raises(CompileError, match=r"O010.*changes `count`"):
        tl.compile(exported, importers=[Importer()])


def steered(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Steps as long as something is large, in one of two directions; what is left of rows, from the last on; rows by themselves."""

    def is_large(k: Tensor, z: Tensor) -> Tensor:
        return (k < 9) & (z.abs().max() > 0.1)

    def step(k: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return k + 1, torch.cond(z.sum() > 0, lambda z: z / 2, lambda z: z / 3 - y, (z,))

    k, z = while_loop(is_large, step, (torch.tensor(0), x))
    left, rows = scan(lambda m, row: (m * 0.5 + row, m * row), torch.zeros(x.shape[1]), z, reverse=True)
    return k, left, rows, map_rows(lambda row, w: row.sum() + w, x, y)


def test_branches_and_loops_run_as_the_data_say_for_any_sizes(caplog: pytest.LogCaptureFixture) -> None:
    fast = compiled(steered, dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.INFO, "tensorlang.compile"):
        for shape in ((4, 3), (6, 5)):
            close(fast(x := torch.randn(shape), y := torch.randn(shape[1])), steered(x, y))
    assert len([r for r in caplog.records if "compiled in" in r.getMessage() or "found in the cache" in r.getMessage()]) == 1


class Guarded(nn.Module):
    """A part without gradients, one in another precision, and a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            y = self.layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            z = self.layer(x)
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (y,)), z


def test_an_exported_program_may_hold_graphs_of_its_own() -> None:
    model, x = Guarded(), torch.randn(3, 4)
    graph = Importer().load(torch.export.export(model, (x,)))
    for found, wanted in zip(evaluate(graph, {graph.inputs[0]: x.numpy()}), model(x), strict=True):
        np.testing.assert_allclose(found.astype(np.float32), wanted.detach().float().numpy(), rtol=1e-2, atol=1e-2)


def test_complex_numbers_stand_beside_branches_but_not_in_what_they_take_or_return() -> None:
    fast = compiled(lambda x, z: z * torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 1, (x,)))
    refused = compiled(lambda x, z: torch.cond(x.sum() > 0, lambda z: z * 2, lambda z: z + 1, (z,)))
    x, z = torch.ones(2), torch.ones(2, dtype=torch.complex64)
    with torch.no_grad():
        close(fast(x, z), 2 * z)
        with pytest.raises(Exception, match="operator cond of complex numbers"):
            refused(x, z)


def test_random_numbers_are_others_in_each_call_and_follow_from_the_seed_of_torch() -> None:
    fast, x = compiled(lambda x: (torch.randn_like(x), F.dropout(x, 0.25, training=True))), torch.ones(60, 5)
    with torch.no_grad():
        torch.manual_seed(1)
        first, second = fast(x), fast(x)
        torch.manual_seed(1)
        assert all(map(torch.equal, first, fast(x)))
    assert not any(map(torch.equal, first, second))


def test_weights_of_attention_are_dropped_in_training() -> None:
    class Attending(nn.Module):
        def forward(self, q: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, v, dropout_p=0.25)

    q = torch.zeros(1, 2, 50, 4)
    model = tl.compile(torch.export.export(Attending(), (q, torch.eye(50).expand(1, 2, 50, 50))))
    weights = model.run({"q": q.numpy(), "v": np.eye(50, dtype=np.float32)[None, None].repeat(2, 1), "random draw": np.uint32(5)})[
        "output_0"
    ]
    assert set(np.unique(weights.round(5))) == {np.float32(0), (np.float32(1 / 50) / np.float32(0.75)).round(5)}
    assert abs((weights == 0).mean() - 0.25) < 0.03


def test_an_exported_program_takes_a_number_for_random_ones_only_where_it_draws_some() -> None:
    taken = {}
    for training in (False, True):
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train(training)
        taken[training] = Importer().signature(torch.export.export(model, (torch.ones(2, 4),))).inputs
    assert [i.name for i in taken[False]] == ["input"]
    assert [i.name for i in taken[True]] == ["input", "random draw"]


def views(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape
    x.add_(1)
    return x[:, columns - 2 :], y[1 : rows // 2].t(), y.as_strided((rows - 1, 2), (columns + 1, 1), 1), y[0].expand(rows, -1), y * 2


def test_outputs_that_are_views_by_sizes_lie_where_torch_has_them() -> None:
    fast = compiled(views, dynamic=True)
    with torch.no_grad():
        for x in (torch.randn(6, 4), torch.randn(8, 9)):
            y = torch.randn_like(x)
            found, wanted = fast(x.clone(), y), views(x.clone(), y)
            close(found, wanted)
            assert [(a.stride(), a.storage_offset()) for a in found] == [(a.stride(), a.storage_offset()) for a in wanted]
            assert [a.data_ptr() for a in found[1:4]] == [a.data_ptr() for a in wanted[1:4]]


def test_outputs_that_are_views_of_inputs_are_not_computed() -> None:
    x = torch.randn(3, 4)
    run, made = tl.CompiledModel.run, []
    with torch.no_grad(), mock.patch.object(tl.CompiledModel, "run", lambda self, feeds: made.append(run(self, feeds)) or made[-1]):
        turned, part, doubled = compiled(lambda x: (x.t(), x[1:, ::2], x.t() * 2))(x)
        assert turned.data_ptr() == x.data_ptr() and part.data_ptr() == x[1:].data_ptr()
        close((turned, part, doubled), (x.t(), x[1:, ::2], x.t() * 2))
        assert [len(found) for found in made] == [1]
        assert compiled(lambda x: x.t())(x).data_ptr() == x.data_ptr()


@pytest.mark.parametrize("dynamic", [False, True])
def test_outputs_that_are_views_of_others_share_their_memory(dynamic: bool) -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        y, z, w = x + 1, x.exp(), x * 2
        return y, y[1:], y.t().unbind(1)[0], z.t(), z[0], w.t(), x.sqrt()[None].expand(2, -1, -1), x.sin()[1]

    fast = compiled(f, dynamic=dynamic)
    with torch.no_grad():
        for n in (3, 5):
            x = torch.rand(n, 4)
            found, wanted = fast(x), f(x)
            for given in (found, wanted):
                given[0].add_(1)
                given[3].mul_(2)
            close(found, wanted)
            assert [t.stride() for t in found] == [t.stride() for t in wanted]


def test_axes_keep_the_order_that_they_have_in_memory() -> None:
    def f(x: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        return x * 2, x + x.contiguous(), torch.view_as_complex(image).conj(), image[:, 1:] - 1

    fast = compiled(f, dynamic=True)
    with torch.no_grad():
        for n in (3, 4):
            x, image = torch.arange(4.0 * n).view(n, 4).t(), torch.arange(10.0 * n).view(n, 5, 2).permute(1, 0, 2)
            found, wanted = fast(x, image), f(x, image)
            close(found, wanted)
            assert [t.stride() for t in found] == [t.stride() for t in wanted]


def test_attention_by_functions_of_scores_and_places() -> None:
    slopes, parts = torch.tensor([0.5, 0.25]), torch.tensor([0, 0, 0, 1, 1])
    mask = create_block_mask(lambda b, h, i, j: (parts[i] == parts[j]) & (i > j), None, None, 5, 5, device="cpu")

    class Attended(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return torch.where(j - i < -2, -float("inf"), 2 * torch.tanh(s / 2) + slopes[h] * (j - i))

            y: Any = flex_attention(q.transpose(1, 2), k, v, score_mod=score, block_mask=mask, enable_gqa=True)
            return y.transpose(1, 2).view(*q.shape[:2], -1)

    given, attended = (torch.randn(2, 5, 2, 4), torch.randn(2, 1, 5, 4), torch.randn(2, 1, 5, 4)), Attended()
    with torch.no_grad():
        wanted = attended(*given)
        close(compiled(attended)(*given), wanted)
        exported = tl.compile(torch.export.export(attended, given))
    close(torch.from_numpy(exported(*(x.numpy() for x in given))), wanted)

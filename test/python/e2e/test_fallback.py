"""Custom operators, which PyTorch does in the middle of compiled models, if it may."""

import gc
import threading

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
from disc.frontend import fallback

N = {0: Dim("n", min=0, max=999)}


@torch.library.custom_op("disc_test_fallback::twice", mutates_args=())
def twice(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * 2 * factor


@twice.register_fake
def _(x, factor):
    return torch.empty_like(x)


@torch.library.custom_op("disc_test_fallback::pair", mutates_args=())
def pair(xs: list[torch.Tensor], rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat(list(xs))[:rows], xs[0].sum(-1) > 0


@pair.register_fake
def _(xs, rows):
    return xs[0].new_empty(rows, xs[0].shape[1]), xs[0].new_empty(xs[0].shape[0], dtype=torch.bool)


@torch.library.custom_op("disc_test_fallback::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("disc_test_fallback::add_to", mutates_args=("x",))
def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("disc_test_fallback::at_most", mutates_args=())
def at_most(x: torch.Tensor, rows: int) -> torch.Tensor:
    if x.shape[0] > rows:
        raise KeyError("too many rows")
    return x.clone() if x.shape[0] != 1 else x.new_zeros(2, x.shape[1])


@at_most.register_fake
def _(x, rows):
    return torch.empty_like(x)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(twice(self.linear(x), 1.5)) + 1


class Several(nn.Module):
    def forward(self, x):
        joined, mask = pair([x, x * 2], x.shape[0])
        kept = positive(x * 2)
        return joined.softmax(-1), mask, kept * kept, kept.sum(), torch.cat([kept, positive(x)])


class Changing(nn.Module):
    def forward(self, x):
        y = x * 2
        add_to(y, x)
        add_to(x, y)
        return y * 3


class Failing(nn.Module):
    def forward(self, x):
        return at_most(x * 2, 5) + 1


def compiled(net):
    return disc.compile(net, (torch.randn(3, 4),), dynamic_shapes=(N,), fallback=True)


@pytest.mark.parametrize("net", [Plain(), Several(), Changing()], ids=lambda net: type(net).__name__)
def test_results(net):
    model = compiled(net)
    for n in (3, 1, 7, 64, 0):
        x = torch.randn(n, 4)
        own, other = x.clone(), x.clone()
        torch.testing.assert_close(model(own), net(other), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(own, other)


def test_they_are_listed():
    (used,) = compiled(Plain()).fallbacks
    assert used.op == "disc_test_fallback::twice" and "test_fallback.py:" in used.source


def test_exceptions_pass_through():
    model = compiled(Failing())
    with pytest.raises(KeyError, match="too many rows") as raised:
        model(torch.randn(8, 4))
    assert any("test_fallback.py:" in note for note in getattr(raised.value, "__notes__", ["test_fallback.py:"]))
    with pytest.raises(RuntimeError, match=r"result 0 is torch.float32 of shape \[2, 4\], its fake kernel says"):
        model(torch.randn(1, 4))
    x = torch.randn(4, 4)
    torch.testing.assert_close(model(x), x * 2 + 1)


def test_without_leave_it_is_an_error():
    with pytest.raises(disc.CompileError, match=r"disc_test_fallback.at_most: (?s:no lowering rule.*fallback=True)"):
        disc.compile(Failing(), (torch.randn(3, 4),), dynamic_shapes=(N,))


def test_an_operator_that_changes_its_arguments_is_named():
    with pytest.raises(disc.CompileError, match=r"custom operator disc_test_fallback.add_to.default, which changes"):
        disc.compile(Changing(), (torch.randn(3, 4),), dynamic_shapes=(N,))


def test_threads_and_lifetime():
    net = Plain()
    model, x, results = compiled(net), torch.randn(5, 4), []

    def run(model=model):
        results.extend(model(x) for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        torch.testing.assert_close(result, net(x).detach())
    before = len(fallback._functions)
    del model, run, threads, thread
    gc.collect()
    assert len(fallback._functions) < before and len(results) == 80

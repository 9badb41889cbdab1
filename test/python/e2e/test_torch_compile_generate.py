"""torch.compile(backend="disc") of what text generation consists of: constants, grouped attention, caches."""

import pytest
import torch
import torch._dynamo
from torch import nn

import disc
import disc.dynamo
from disc.dynamo import Explanation


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled_whole(function, *args, dynamic=True):
    """The compiled function's results, after a check that PyTorch runs no operation of it."""
    with disc.dynamo._listening() as reports:
        results = torch.compile(function, backend="disc", dynamic=dynamic)(*args)
    assert reports and Explanation(reports).fallbacks == [], str(Explanation(reports))
    return results


def test_tensors_made_inside():
    def call(x):
        weights = torch.tensor([1.0, 2.0, 3.0])
        weights += x[0]
        number = torch.tensor(0)
        for i in range(3):
            number = number + i
        sizes = torch.tensor([[x.shape[0], x.shape[1], 1]])
        return x[:, [0, 2]], x[[0, 1]] * weights + number, sizes + x, torch.where(x > 2, torch.tensor(1.0), x)

    x = torch.arange(6.0).reshape(2, 3)
    torch.testing.assert_close(compiled_whole(call, x), call(x))


@pytest.mark.parametrize("kind", ["none", "float", "heads", "bool", "row", "causal"])
def test_grouped_attention(kind):
    q, k, v = torch.randn(2, 8, 5, 16), torch.randn(2, 2, 7, 16), torch.randn(2, 2, 7, 16)
    mask = {
        "float": torch.randn(5, 7),
        "heads": torch.randn(2, 8, 5, 7),
        "bool": torch.ones(2, 1, 5, 7).tril(2).bool(),
        "row": torch.randn(2, 1, 1, 7),
    }.get(kind)

    def call(q, k, v, mask):
        return nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal", enable_gqa=True)

    with torch.no_grad():
        torch.testing.assert_close(compiled_whole(call, q, k, v, mask), call(q, k, v, mask))


@pytest.mark.parametrize("shape", [(1, 1, 16), (3, 1, 16), (1, 5, 16)])
def test_gated_unit_of_a_normalized_row(shape):
    """Two products read equal views of one tensor."""
    gate, up, weight = torch.randn(44, 16), torch.randn(44, 16), torch.rand(16)

    def call(x):
        x = weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return nn.functional.silu(nn.functional.linear(x, gate)) * nn.functional.linear(x, up)

    x = torch.randn(shape)
    torch.testing.assert_close(compiled_whole(call, x, dynamic=False), call(x))

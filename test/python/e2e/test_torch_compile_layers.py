"""PyTorch's attention and encoder layers, which call fused operations where no gradient is needed."""

import pytest
import torch
from torch import nn

from closeness import disagreements
from compile_programs import OPTIONS

pytestmark = pytest.mark.share(3)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


SIZES = ((2, 5), (1, 3), (3, 17))


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def padding(b, n):
    # No row is without a key.
    return torch.arange(n) >= 1 + torch.arange(b)[:, None] % n


def check(module, compiled, *args, **kwargs):
    def call(*args):
        return module(*args, **kwargs)

    want = call(*args)
    assert not disagreements(call, args, compiled(*args, **kwargs), want)


@pytest.mark.parametrize("norm_first, activation", [(False, "relu"), (True, "gelu")])
def test_encoder_layer(norm_first, activation):
    layer = nn.TransformerEncoderLayer(16, 4, 24, 0.1, activation, norm_first=norm_first, batch_first=True).eval()
    compiled = torch.compile(layer, backend="disc", dynamic=True, options=OPTIONS)
    with torch.no_grad():
        for b, n in SIZES:
            x = torch.randn(b, n, 16)
            check(layer, compiled, x)
            check(layer, compiled, x, src_mask=causal(n))
            check(layer, compiled, x, src_key_padding_mask=padding(b, n))
            check(layer, compiled, x, src_mask=causal(n), src_key_padding_mask=padding(b, n))


@pytest.mark.parametrize("average", [True, False])
def test_attention(average):
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    compiled = torch.compile(layer, backend="disc", dynamic=True, options=OPTIONS)
    with torch.no_grad():
        for b, n in SIZES:
            x = torch.randn(b, n, 16)
            for weights in (True, False):
                more = {"need_weights": weights, "average_attn_weights": average}
                check(layer, compiled, x, x, x, **more)
                check(layer, compiled, x, x, x, key_padding_mask=padding(b, n), **more)
                check(layer, compiled, x, x, x, attn_mask=causal(n), **more)

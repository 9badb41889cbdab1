"""PyTorch's attention and encoder layers, which call fused operations where no gradient is needed."""

import pytest
import torch
from torch import nn

from closeness import disagreements
from compile_programs import OPTIONS
from disc.torch_compat.versions import MINOR

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


@pytest.mark.skipif(MINOR < 13, reason="Dynamo of PyTorch 2.12 leaves the layer to a kernel of PyTorch")
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


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(self.norm(x)).relu()


def test_kernels_of_a_gpu():
    """Graphs are compiled for the device that their tensors are on; here for one that runs a GPU's kernels."""
    options = {"fallback": "error", "target": "cuda-emulated:fast"}
    block = _Block()
    compiled = torch.compile(block, backend="disc", dynamic=True, options=options)
    with torch.no_grad():
        for b, n in SIZES:
            check(block, compiled, torch.randn(b, n, 16))
    for b, n in SIZES:
        x = torch.randn(b, n, 16, requires_grad=True)
        gradients = []
        for module in (block, compiled):
            module(x).square().sum().backward()
            gradients.append([x.grad, *(p.grad for p in block.parameters())])
            x.grad = None
            block.zero_grad()
        # Sums of up to 51 rows in f32, of values of up to 30.
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)

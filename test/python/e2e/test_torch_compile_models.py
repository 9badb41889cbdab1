"""torch.compile(backend="disc") on models: results and gradients equal eager's at twenty shapes, compiled once."""

import os

import pytest
import torch
import torch._dynamo
from torch import nn

import disc.dynamo  # noqa: F401  (registers the back end)
from zoo import ARCHITECTURES

pytestmark = pytest.mark.share(3)

TRANSFORMERS = """
    bert gpt2 llama mistral gemma3_text t5 vit resnet wav2vec2 mixtral
""".split()
"""Architectures of the zoo, with its configurations and its ranges of extents."""


def conv():
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    ]
    return nn.Sequential(*layers), lambda b, s: {"input": torch.randn(b, 3, s + 6, s + 7)}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.GRU(8, 8, batch_first=True)
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.recurrent(x)[0]) * 2) + x.shape[1]


def recurrent():
    return Recurrent(), lambda b, s: {"x": torch.randn(b, s, 8)}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x.flip(1)).cumsum(1)


def encoder():
    return Encoder(), lambda b, s: {"x": torch.randn(b, s, 16)}


def mlp():
    layers = [nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.0), nn.Linear(16, 4), nn.Softmax(-1)]
    return nn.Sequential(*layers), lambda b, s: {"input": torch.randn(b, s, 8)}


OTHERS = {f.__name__: f for f in (conv, recurrent, encoder, mlp)}
QUICK = {"conv", "encoder"}
"""Those that run with all other tests; the others with DISC_ALL_MODELS=1 in the environment."""
SHAPES = 20


def _first(result):
    """The floating point tensors of a result."""
    leaves = torch.utils._pytree.tree_leaves(result if isinstance(result, torch.Tensor) else tuple(result.values()))
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def _gradients(module, inputs, call):
    module.zero_grad()
    sum(x.square().mean() for x in _first(call(**inputs)) if x.requires_grad).backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def _graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def _model(name):
    """The module, and the inputs of each call."""
    if name in OTHERS:
        torch.manual_seed(0)
        module, inputs = OTHERS[name]()
        # Growing and shrinking. Dynamo specialises the sizes 0 and 1, and sizes that are equal at first.
        return module.eval(), [inputs(2 + i * 7 % 5, 7 + i * 5 % 13) for i in range(SHAPES)]
    architecture = ARCHITECTURES[name]
    points = architecture.distinct(SHAPES)
    return architecture.make(dropout=False), [architecture.arguments(p, i) for i, p in enumerate(points)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                name not in QUICK and "DISC_ALL_MODELS" not in os.environ, reason="DISC_ALL_MODELS is not set"
            ),
        )
        for name in (*TRANSFORMERS, *OTHERS)
    ],
)
def test_model(name):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    module, calls = _model(name)
    compiled = torch.compile(module, backend="disc", dynamic=True)
    graphs = set()
    for inputs in calls:
        with torch.no_grad():
            got, want = _first(compiled(**inputs)), _first(module(**inputs))
        torch.testing.assert_close(got, want)
        graphs.add(_graphs())
    assert len(graphs) == 1, f"compiled again: {graphs}"
    graphs.clear()
    module.train()
    for inputs in calls:
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        expected = _gradients(module, inputs, module)
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
        got = _gradients(module, inputs, compiled)
        # Relative to the largest gradient of each parameter.
        for name, gradient in expected.items():
            assert (got[name] - gradient).abs().max() <= 1e-4 * (1e-3 + gradient.abs().max()), name
        graphs.add(_graphs())
    assert len(graphs) == 1, f"compiled again: {graphs}"

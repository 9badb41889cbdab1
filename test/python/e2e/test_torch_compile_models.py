"""torch.compile(backend="disc") on models of small random configurations: results, gradients, twenty shapes."""

import os

import pytest
import torch
import torch._dynamo
import transformers
from torch import nn

import disc.dynamo  # noqa: F401  (registers the back end)

_SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _ids(b, s):
    return torch.randint(0, 50, (b, s))


def bert():
    return transformers.BertModel(transformers.BertConfig(**_SMALL, **_NO_DROPOUT)), lambda b, s: {
        "input_ids": _ids(b, s),
        "attention_mask": (torch.arange(s) < s - torch.arange(b).unsqueeze(1) % 2).long(),
    }


def gpt2():
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=50, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config), lambda b, s: {"input_ids": _ids(b, s)}


def llama():
    config = transformers.LlamaConfig(**_SMALL, num_key_value_heads=1, use_cache=False)
    return transformers.LlamaForCausalLM(config), lambda b, s: {"input_ids": _ids(b, s)}


def mistral():
    config = transformers.MistralConfig(**_SMALL, num_key_value_heads=1, head_dim=8, use_cache=False)
    return transformers.MistralForCausalLM(config), lambda b, s: {"input_ids": _ids(b, s)}


def t5():
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, vocab_size=50, dropout_rate=0, use_cache=False
    )
    return transformers.T5ForConditionalGeneration(config), lambda b, s: {
        "input_ids": _ids(b, s),
        "decoder_input_ids": _ids(b, s + 1),
    }


def vit():
    small = {key: value for key, value in _SMALL.items() if key != "vocab_size"}
    config = transformers.ViTConfig(**small, **_NO_DROPOUT, image_size=16, patch_size=8)
    return transformers.ViTModel(config), lambda b, s: {"pixel_values": torch.randn(b, 3, 16, 16)}


def mlp():
    layers = [nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.0), nn.Linear(16, 4), nn.Softmax(-1)]
    return nn.Sequential(*layers), lambda b, s: {"input": torch.randn(b, s, 8)}


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


MODELS = [bert, gpt2, llama, mistral, t5, vit, mlp, conv, recurrent, encoder]
QUICK = {"gpt2", "mlp"}
"""Those that run with all other tests; the others with DISC_ALL_MODELS=1 in the environment."""


def _first(result):
    return result if isinstance(result, torch.Tensor) else result[0]


def _gradients(module, inputs, call):
    module.zero_grad()
    result = _first(call(**inputs))
    result.square().mean().backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def _graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            make,
            id=make.__name__,
            marks=pytest.mark.skipif(
                make.__name__ not in QUICK and "DISC_ALL_MODELS" not in os.environ, reason="DISC_ALL_MODELS is not set"
            ),
        )
        for make in MODELS
    ],
)
def test_model(make):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    module, inputs = make()
    compiled = torch.compile(module.eval(), backend="disc", dynamic=True)
    # Twenty shapes, growing and shrinking. Dynamo specialises the sizes 0 and 1, and sizes that are equal at first.
    shapes = [(2 + i * 7 % 5, 5 + i * 5 % 13) for i in range(20)]
    graphs = set()
    for shape in shapes:
        x = inputs(*shape)
        with torch.no_grad():
            torch.testing.assert_close(_first(compiled(**x)), _first(module(**x)), rtol=1e-4, atol=1e-4)
        graphs.add(_graphs())
    assert len(graphs) == 1
    graphs.clear()
    module.train()
    for shape in shapes[:5]:
        x = inputs(*shape)
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        expected = _gradients(module, x, module)
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
        got = _gradients(module, x, compiled)
        # Relative to the largest gradient of each parameter.
        for name, gradient in expected.items():
            assert (got[name] - gradient).abs().max() <= 1e-4 * (1e-3 + gradient.abs().max()), name
        graphs.add(_graphs())
    assert len(graphs) == 1

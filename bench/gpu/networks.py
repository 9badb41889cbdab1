"""Whole networks for the measurements on a GPU, and small variants for machines without one.

Weights have no meaning. Those of networks that are `weights=False` stay out of the library: see `weights.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.workloads import ctr_ranker
from bench.workloads.int8.resnet50 import ResNet
from bench.workloads.llama_block import rotate
from bench.workloads.resnet18 import images, spread

from .models import Coded, MiniLM, Shape, Spec


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes; the defaults are those of TinyLlama 1.1B."""

    vocabulary: int = 32000
    layers: int = 22
    width: int = 2048
    heads: int = 32
    groups: int = 4
    inner: int = 5632
    positions: int = 2048
    bits: int = 0
    """Of the codes of its layers' weights; 0: they are numbers."""

    def linear(self, inner: int, outer: int) -> nn.Module:
        """A layer without a bias."""
        return Coded(inner, outer, self.bits) if self.bits else nn.Linear(inner, outer, bias=False)

    @property
    def size(self) -> int:
        """That of a head."""
        return self.width // self.heads


class LlamaLayer(nn.Module):
    """Grouped-query attention and a gated MLP, each behind a norm."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.size = config.size
        self.norm1, self.norm2 = (nn.RMSNorm(config.width, eps=1e-5) for _ in range(2))
        self.query = config.linear(config.width, config.width)
        self.key, self.value = (config.linear(config.width, config.groups * self.size) for _ in range(2))
        self.project = config.linear(config.width, config.width)
        self.gate, self.up = (config.linear(config.width, config.inner) for _ in range(2))
        self.down = config.linear(config.inner, config.width)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's result for [batch, length, width], and its keys and values with those of the past."""
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for f in (self.query, self.key, self.value))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        # The one query of a step sees every key.
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=True)
        x = x + self.project(seen.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), k, v


class Llama(nn.Module):
    """A decoder: a prompt from nothing, or one token after keys and values of the past."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.size = config.size
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList([LlamaLayer(config) for _ in range(config.layers)])
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.head = config.linear(config.width, config.vocabulary)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Logits [batch, vocabulary] of the last of `ids` [batch, length]; each layer's keys and values.

        The inputs after `ids` are keys and values of the past, each [batch, groups, past, size of a head].
        """
        ids, *past = inputs
        start = past[0].shape[2] if past else 0
        x = self.words(ids)
        # f32, whatever the model's dtype.
        frequencies = 10000.0 ** (-torch.arange(0, self.size, 2, device=ids.device) / self.size)
        angles = torch.arange(start, start + ids.shape[1], device=ids.device)[:, None] * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        caches: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, cos, sin, (past[2 * i], past[2 * i + 1]) if past else None)
            caches += (k, v)
        return self.head(self.norm(x[:, -1])), *caches


def _llama(config: LlamaConfig, shapes: tuple[Shape, ...], decode: bool) -> Spec:
    caches = 2 * config.layers if decode else 0

    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        batch, length = shape
        ids = torch.randint(config.vocabulary, (batch, 1 if decode else length), generator=generator)
        size = (batch, config.groups, length, config.size)
        return ids, *(torch.randn(size, generator=generator).bfloat16() for _ in range(caches))

    length = "past" if decode else "length"
    return Spec(
        make=lambda: Llama(config).bfloat16(),
        inputs=inputs,
        dims={"batch": (1, 16), length: (1 if decode else 2, config.positions - decode)},
        axes=({0: "batch"} if decode else {0: "batch", 1: length}, *({0: "batch", 2: length} for _ in range(caches))),
        shapes=shapes,
        # Two orders of sums differ by this much behind so many layers of bf16.
        tolerance=5e-2,
        leading=0,
        weights=False,
    )


def _text(vocabulary: int, shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    batch, length = shape
    ids = torch.randint(vocabulary, shape, generator=generator)
    lengths = torch.randint(1, length + 1, (batch, 1), generator=generator)
    return ids, (torch.arange(length) < lengths).long()


def _bert(
    dtype: torch.dtype, vocabulary: int, width: int, layers: int, shapes: tuple[Shape, ...], tolerance: float
) -> Spec:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return _text(vocabulary, shape, generator)

    return Spec(
        make=lambda: MiniLM(vocabulary, width, layers).to(dtype),
        inputs=inputs,
        dims={"batch": (1, 64), "length": (2, 512)},
        axes=({0: "batch", 1: "length"},) * 2,
        shapes=shapes,
        tolerance=tolerance,
        weights=False,
    )


def _resnet(make: Callable[[], nn.Module], shapes: tuple[Shape, ...]) -> Spec:
    return Spec(
        make=lambda: spread(make()),
        inputs=images,
        dims={"batch": (1, 32), "height": (96, 320), "width": (96, 320)},
        axes=({0: "batch", 2: "height", 3: "width"},),
        shapes=shapes,
        tolerance=1e-4,
        weights=False,
    )


def _ranker(config: ctr_ranker.Config, shapes: tuple[Shape, ...]) -> Spec:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        ids = (torch.randint(config.rows, (shape[0], bag), generator=generator) for bag in config.bags)
        return torch.randn(shape[0], config.dense, generator=generator), *ids

    return Spec(
        make=lambda: ctr_ranker.Ranker(config),
        inputs=inputs,
        dims={"batch": (1, 2048)},
        axes=({0: "batch"},) * (1 + len(config.bags)),
        shapes=shapes,
        leading=1,
        weights=False,
    )


class Encoder(nn.Module):
    """An encoder that leaves behind the first layer whose answer is clear for all sequences.

    Answers of random weights are equally unclear everywhere; a factor makes those of later layers clearer.
    """

    thresholds: Tensor

    def __init__(self, vocabulary: int, width: int, layers: int, classes: int = 8):
        super().__init__()
        body = MiniLM(vocabulary, width, layers)
        self.words, self.places, self.norm, self.layers = body.words, body.places, body.norm, body.layers
        self.heads = nn.ModuleList([nn.Linear(width, classes) for _ in range(layers)])

    def forward(self, ids: Tensor, mask: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [batch, classes] and how many layers there were; `threshold` is a probability."""
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        used = torch.zeros_like(threshold)
        for i, (layer, head) in enumerate(zip(self.layers, self.heads, strict=True)):
            x = layer(x, hidden)
            logits = head(x[:, 0]) * (i + 1)
            used = used + 1
            if logits.softmax(dim=-1).amax(dim=-1).min() > threshold:
                break
        return logits, used


def _early_exit(vocabulary: int, width: int, layers: int, shapes: tuple[Shape, ...]) -> Spec:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return *_text(vocabulary, shape[:2], generator), torch.tensor(shape[2] / 100)

    return Spec(
        make=lambda: Encoder(vocabulary, width, layers),
        inputs=inputs,
        dims={"batch": (1, 64), "length": (2, 512), "percent": (0, 100)},
        axes=({0: "batch", 1: "length"}, {0: "batch", 1: "length"}, {}),
        shapes=shapes,
        weights=False,
    )


_texts: tuple[Shape, ...] = ((1, 128), (8, 128), (1, 384), (1, 17), (32, 384), (7, 200))
_pictures: tuple[Shape, ...] = ((1, 224, 224), (8, 224, 224), (32, 224, 224), (3, 160, 287))
_small = LlamaConfig(vocabulary=100, layers=2, width=64, heads=8, groups=2, inner=96, positions=256)
SPECS: dict[str, Spec] = {
    "bert_f32": _bert(torch.float32, 30522, 768, 12, _texts, 2e-5),
    "bert_bf16": _bert(torch.bfloat16, 30522, 768, 12, _texts, 5e-2),
    "llama_prefill": _llama(LlamaConfig(), ((1, 128), (1, 512), (1, 2000), (1, 17), (8, 256)), decode=False),
    "llama_decode": _llama(LlamaConfig(), ((1, 512), (8, 512), (1, 17), (1, 2000), (8, 2000)), decode=True),
    "llama_decode_int4": _llama(LlamaConfig(bits=4), ((1, 512), (8, 512), (1, 17), (1, 2000)), decode=True),
    "llama_prefill_int4": _llama(LlamaConfig(bits=4), ((1, 128), (1, 512)), decode=False),
    "resnet50": _resnet(ResNet, _pictures),
    "ranker": _ranker(ctr_ranker.Config(), ((1,), (128,), (2048,), (17,))),
    # The percentage is the threshold: 0 leaves behind the first layer, 100 behind the last.
    "early_exit": _early_exit(30522, 768, 12, ((1, 128, 60), (8, 128, 60), (1, 128, 0), (1, 128, 100), (8, 128, 100))),
    "bert_f32_small": _bert(torch.float32, 100, 48, 2, ((1, 17), (3, 40)), 2e-5),
    "bert_bf16_small": _bert(torch.bfloat16, 100, 48, 2, ((1, 17), (3, 40)), 2e-2),
    "llama_prefill_small": _llama(_small, ((1, 2), (1, 17), (3, 40)), decode=False),
    "llama_decode_small": _llama(_small, ((1, 1), (1, 17), (3, 40)), decode=True),
    "llama_decode_int4_small": _llama(replace(_small, bits=4), ((1, 1), (1, 17), (3, 40)), decode=True),
    "resnet50_small": _resnet(lambda: ResNet(8, 10, (1, 1, 1, 1)), ((1, 96, 96), (2, 97, 131))),
    "ranker_small": _ranker(
        ctr_ranker.Config(bags=(1, 3), rows=100, width=16, bottom=(24,), top=(40, 8)), ((1,), (17,))
    ),
    "early_exit_small": _early_exit(100, 48, 3, ((1, 17, 0), (1, 17, 100), (3, 40, 15))),
}

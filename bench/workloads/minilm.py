"""all-MiniLM-L6-v2, real weights, mean pooling, normalised: the model of examples/minilm.py."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from .base import Shape, Workload

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
from sentence_embedder import MAX_BATCH, MAX_LENGTH, SentenceEmbedder, load_model, random_inputs


def _inputs(shape: Shape, _: torch.Generator) -> tuple[Tensor, ...]:
    return random_inputs(*shape)


def _tiny() -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=2, hidden_size=64, intermediate_size=96, num_attention_heads=4)
    return SentenceEmbedder(BertModel(config))


FULL = Workload(
    title="all-MiniLM-L6-v2",
    dims={"batch": (1, MAX_BATCH), "length": (2, MAX_LENGTH)},
    module=load_model,
    tensors=_inputs,
    axes=({0: "batch", 1: "length"},) * 2,
    shapes=(
        *((1, length) for length in (8, 17, 32, 64, 128, 256, 512)),
        *((4, 23), (8, 64), (8, 128), (32, 32), (16, 200)),
    ),
    quick=((1, 8), (1, 17), (1, 64), (1, 128), (4, 23), (8, 64)),
    tolerance=1e-5,
)
SMALL = replace(FULL, module=_tiny, shapes=((1, 2), (1, 17), (3, 33), (2, 512), (64, 2)), quick=())

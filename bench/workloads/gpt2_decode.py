"""The decoder of gpt2_prefill.py on one more token: past keys and values come in and go out one longer."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Shape, Workload
from .gpt2_prefill import SMALL_CONFIG, Config, Decoder


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    caches = 2 * config.layers

    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        batch, past = shape
        ids = torch.randint(config.vocabulary, (batch, 1), generator=generator)
        size = (batch, config.heads, past, config.width // config.heads)
        return ids, *(torch.randn(size, generator=generator) for _ in range(caches))

    return Workload(
        title="GPT-2 decode",
        dims={"batch": (1, 8), "past": (1, config.positions - 1)},
        module=lambda: Decoder(config),
        tensors=inputs,
        axes=({0: "batch"}, *({0: "batch", 2: "past"} for _ in range(caches))),
        variadic=True,
        shapes=shapes,
        quick=quick,
        tolerance=2e-5,
    )


FULL = _workload(
    Config(),
    (
        *((1, past) for past in (1, 7, 16, 31, 64, 127, 128, 257, 511, 1023)),
        *((2, 67), (4, 128), (7, 23), (8, 256), (8, 1023)),
    ),
    ((1, 7), (1, 128), (1, 1023)),
)
SMALL = _workload(SMALL_CONFIG, ((1, 1), (1, 17), (3, 31), (8, 127), (1, 159)), ())

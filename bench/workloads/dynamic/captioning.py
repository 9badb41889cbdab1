"""Captioning as a `while_loop`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from .network import workloads


class Written(nn.Module):
    """Words are written to a tensor with room for all of them."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The words of the caption, and the mean logarithm of their probabilities."""
        model = self.model
        grid = model.encoder(image)
        h, c = model.start(grid.mean(dim=0, keepdim=True)).tanh().chunk(2, dim=-1)
        places = torch.arange(model.most)

        def unfinished(n: Tensor, word: Tensor, *_: Tensor) -> Tensor:
            return (n < model.most) & ((n == 0) | (word != model.end).all())

        def step(n: Tensor, word: Tensor, words: Tensor, total: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
            weights = torch.softmax(grid @ model.query(h).squeeze(0), dim=0)
            h, c = model.cell(torch.cat((model.words(word), (weights @ grid).unsqueeze(0)), dim=-1), (h, c))
            best, word = model.head(h).log_softmax(dim=-1).max(dim=-1)
            return n + 1, word, torch.where(places == n, word, words), total + best, h, c

        n, word, words = torch.zeros((), dtype=torch.int64), torch.full((1,), model.begin), torch.zeros_like(places)
        h, c = (t.clone(memory_format=torch.contiguous_format) for t in (h, c))
        carried = (n, word, words, torch.zeros(1), h, c)
        n, _, words, total, _, _ = while_loop(unfinished, step, carried)
        length = n.item()
        torch._check(length >= 0)
        torch._check(length <= model.most)
        return words[:length], total / n


FULL, SMALL = workloads("captioning", "Captioning", Written)

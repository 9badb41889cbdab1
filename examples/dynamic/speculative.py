"""Speculative decoding: a small model drafts some tokens, the large one reads them at once and keeps the first good."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

dynamic_shapes = ({1: Dim("length", min=2, max=24)},)


class Block(nn.Module):
    """Pre-norm causal attention and MLP."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[1, length, width] to the same."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    """A decoder that reads all of its tokens each time."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(64, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """The most likely token after each of [1, length] ids."""
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).argmax(dim=-1)


class Speculative(nn.Module):
    """The target model's greedy continuation, with fewer calls of it than tokens."""

    def __init__(self, vocabulary: int = 100, width: int = 64, heads: int = 4, ahead: int = 3, new: int = 8):
        super().__init__()
        self.draft = Language(vocabulary, width, heads, 1)
        self.target = Language(vocabulary, width, heads, 3)
        self.ahead, self.new = ahead, new

    def forward(self, prompt: Tensor) -> tuple[Tensor, int]:
        """The prompt [1, length] with its continuation, and how many of the drafted tokens were accepted."""
        ids = prompt
        total = prompt.shape[1] + self.new
        accepted = 0
        while ids.shape[1] < total:
            known = ids.shape[1]
            guess = ids
            for _ in range(self.ahead):
                guess = torch.cat((guess, self.draft(guess)[:, -1:]), dim=1)
            wanted = self.target(guess)[:, known - 1 :]
            n = 0
            while n < self.ahead and guess[0, known + n] == wanted[0, n]:
                n += 1
            accepted += n
            ids = torch.cat((ids, wanted[:, : n + 1]), dim=1)
        return ids[:, :total], accepted


def make_model(seed: int = 0) -> Speculative:
    """Random weights; the draft is the target's first block with its embeddings, so that they often agree."""
    torch.manual_seed(seed)
    model = Speculative().eval().requires_grad_(False)
    draft, target = model.draft, model.target
    for name in ("tokens", "places", "norm", "head"):
        getattr(draft, name).load_state_dict(getattr(target, name).state_dict())
    draft.blocks[0].load_state_dict(target.blocks[0].state_dict())
    for block in target.blocks[1:]:
        block.project.weight *= 0.7
        block.down.weight *= 0.7
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Prompts of all lengths."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        length = int(torch.randint(2, 25, (), generator=generator))
        yield (torch.randint(0, 100, (1, length), generator=generator),)

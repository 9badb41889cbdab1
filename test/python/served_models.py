"""Small models for tests of serving, and the functions that processes of an engine call to compile them."""

import torch
from torch import nn
from torch.export import Dim

import disc


class Embedder(nn.Module):
    """Two results of token ids and a mask: one for each text, one for each token."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 8)
        self.out = nn.Linear(8, 6)

    def forward(self, input_ids, attention_mask):
        weight = attention_mask.unsqueeze(-1).float()
        tokens = self.out(self.table(input_ids)) * weight
        return {"embedding": tokens.sum(1) / weight.sum(1).clamp(min=1), "tokens": tokens}


def embedder() -> nn.Module:
    torch.manual_seed(0)
    return Embedder().eval()


IDS = torch.randint(100, (2, 8))
EXAMPLE = (IDS, torch.ones_like(IDS))


def shapes():
    dims = {0: Dim("batch", min=0, max=64), 1: Dim("length", min=2, max=512)}
    return {"input_ids": dims, "attention_mask": dims}


def write_embedder(path) -> disc.Library:
    disc.aot_compile(embedder(), EXAMPLE, dynamic_shapes=shapes(), output=path)
    return disc.load(path, threads=1)


def compiled(threads: int = 1) -> disc.Model:
    """The embedder, compiled in this process."""
    options = disc.Options(threads=threads, code_cache=False)
    return disc.compile(embedder(), EXAMPLE, dynamic_shapes=shapes(), options=options)


def compiled_for_two(threads: int) -> disc.Model:
    """The same for a process that has two CPUs."""
    assert threads == 2
    return compiled(threads)


class Wide(nn.Module):
    """64 MiB of weights that each call reads."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4096, 4096, bias=False)

    def forward(self, x):
        return self.out(x).sum(-1)

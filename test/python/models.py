"""Small models written for the tests, each in any dtype."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class MLP(nn.Module):
    """Two hidden layers, with an activation chosen by name."""

    def __init__(self, inputs=24, hidden=40, outputs=10, activation="relu"):
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, hidden, bias=False)
        self.third = nn.Linear(hidden, outputs)
        self.activation = getattr(F, activation) if hasattr(F, activation) else getattr(torch, activation)

    def forward(self, x):
        x = self.activation(self.first(x))
        return self.third(self.activation(self.second(x)))


class Chain(nn.Module):
    """Layer norm, softmax and gelu one after the other, with residuals: row reductions and what fuses with them."""

    def __init__(self, features=48):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, features))

    def forward(self, x):
        y = self.norm(x)
        z = torch.softmax(y * self.scale, dim=-1)
        return F.gelu(z + y) - x.mean(dim=-1, keepdim=True)


class Block(nn.Module):
    """One pre-norm transformer block with causal attention, as in GPT-2."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=-1)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Decoder(nn.Module):
    """A GPT-2-like language model: token and position embeddings, blocks, tied output projection."""

    def __init__(self, vocabulary=101, width=64, heads=4, layers=2, positions=128):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class ExplicitAttention(nn.Module):
    """Attention spelled out with matmul, an additive mask and softmax over the chosen rank."""

    def forward(self, q, k, v, mask):
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        return torch.softmax(scores, dim=-1) @ v


class Reductions(nn.Module):
    """Sum, mean, max, variance and softmax along `dim`, which may be any of the input's."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return {
            "sum": x.sum(self.dim),
            "mean": x.mean(self.dim, keepdim=True),
            "amax": x.amax(self.dim),
            "softmax": torch.softmax(x, self.dim),
        }


class Broadcasts(nn.Module):
    """Operands of different rank and with unit dims."""

    def forward(self, x, row, column):
        return (x * row + column.unsqueeze(-1)).clamp(min=-2.0), torch.where(x > row, x, row - 1)

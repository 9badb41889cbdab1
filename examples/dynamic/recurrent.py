"""Recurrent layers as one writes them by hand: Python's loops over the steps of a sequence of any length."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim

INPUTS, HIDDEN = 300, 512

dynamic_shapes = ({0: Dim("batch", min=1, max=16), 1: Dim("length", min=1, max=512)},)


class LoopedLSTM(nn.Module):
    """A layer of LSTM cells over the steps' numbers."""

    def __init__(self, inputs: int = INPUTS, hidden: int = HIDDEN):
        super().__init__()
        self.cell = nn.LSTMCell(inputs, hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[batch, length, inputs] to [batch, length, hidden], and the last hidden state."""
        h = x.new_zeros(x.shape[0], self.cell.hidden_size)
        c = torch.zeros_like(h)
        outputs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
        return torch.stack(outputs, dim=1), h


class LoopedGRU(nn.Module):
    """A layer of GRU cells over the steps themselves."""

    def __init__(self, inputs: int = INPUTS, hidden: int = HIDDEN):
        super().__init__()
        self.cell = nn.GRUCell(inputs, hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[batch, length, inputs] to [batch, length, hidden], and the last hidden state."""
        h = x.new_zeros(x.shape[0], self.cell.hidden_size)
        outputs = []
        for now in x.unbind(1):
            h = self.cell(now, h)
            outputs.append(h)
        return torch.stack(outputs, dim=1), h


KINDS = {"LSTM": LoopedLSTM, "GRU": LoopedGRU}


def make_model(seed: int = 0, kind: str = "LSTM", inputs: int = INPUTS, hidden: int = HIDDEN) -> nn.Module:
    """Random weights."""
    torch.manual_seed(seed)
    return KINDS[kind](inputs, hidden).eval().requires_grad_(False)


def inputs(n: int, seed: int = 0, features: int = INPUTS, longest: int = 512) -> Iterator[tuple[Tensor]]:
    """Batches of sequences of all lengths."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        batch = int(torch.randint(1, 17, (), generator=generator))
        length = int(torch.randint(1, longest + 1, (), generator=generator))
        yield (torch.randn(batch, length, features, generator=generator),)

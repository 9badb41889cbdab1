"""LSTM cells in a Python loop over a dynamic length, as one writes it by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from .base import Shape, Workload, product

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
from dynamic.recurrent import LoopedGRU, LoopedLSTM


class _Layer(nn.Module):
    """The same by one of PyTorch's layers."""

    def __init__(self, cell: nn.RNNCellBase):
        super().__init__()
        self.layer = (nn.LSTM if isinstance(cell, nn.LSTMCell) else nn.GRU)(
            cell.input_size, cell.hidden_size, batch_first=True
        )
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.layer, f"{name}_l0", nn.Parameter(getattr(cell, name), requires_grad=False))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.layer(x)
        return y, (state[0] if isinstance(state, tuple) else state)[0]


class LSTM(LoopedLSTM):
    """With the other form to compare with."""

    def by_layer(self) -> nn.Module:
        """The same by `nn.LSTM`."""
        return _Layer(self.cell)


class GRU(LoopedGRU):
    """With the other form to compare with."""

    def by_layer(self) -> nn.Module:
        """The same by `nn.GRU`."""
        return _Layer(self.cell)


def workload(title: str, kind: type[LSTM] | type[GRU]) -> dict[bool, Workload]:
    """The full workload under False, the small one under True."""

    def make(inputs: int, hidden: int, longest: int, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
        def tensors(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
            return (torch.randn(*shape, inputs, generator=generator),)

        return Workload(
            title=title,
            dims={"batch": (1, 16), "length": (1, longest)},
            module=lambda: kind(inputs, hidden),
            tensors=tensors,
            axes=({0: "batch", 1: "length"},),
            shapes=shapes,
            quick=quick,
            tolerance=1e-5,
        )

    return {
        False: make(
            300,
            512,
            512,
            (*product((1,), (1, 2, 7, 16, 31, 64, 128, 257, 512)), *product((4, 16), (31, 128))),
            ((1, 1), (1, 31), (1, 128), (4, 31)),
        ),
        True: make(12, 20, 64, product((1, 5), (1, 2, 13, 64)), ()),
    }


_LSTM = workload("LSTM, looped", LSTM)
FULL, SMALL = _LSTM[False], _LSTM[True]

"""An LSTM of one layer, over sequences of any length."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Shape, Workload, product


class Recurrent(nn.Module):
    """The layers of PyTorch from zeros: all outputs, and the last state of each layer."""

    def __init__(self, kind: str, inputs: int, hidden: int, layers: int):
        super().__init__()
        self.layer = getattr(nn, kind)(inputs, hidden, layers)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[length, batch, inputs] to [length, batch, hidden] and [layers, batch, hidden]."""
        y, state = self.layer(x)
        return y, state[0] if isinstance(state, tuple) else state

    def by_cells(self) -> nn.Module:
        """The same as a loop over PyTorch's cells, as one writes it by hand."""
        return _Cells(self.layer)


class _Cells(nn.Module):
    def __init__(self, layer: nn.RNNBase):
        super().__init__()
        self.hidden = layer.hidden_size
        self.cells = nn.ModuleList()
        for i in range(layer.num_layers):
            cell = getattr(nn, f"{layer.mode}Cell")(layer.input_size if i == 0 else self.hidden, self.hidden)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(cell, name, nn.Parameter(getattr(layer, f"{name}_l{i}"), requires_grad=False))
            self.cells.append(cell)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        last = []
        for cell in self.cells:
            zeros = x.new_zeros(x.shape[1], self.hidden)
            state, steps = (zeros, zeros) if isinstance(cell, nn.LSTMCell) else zeros, []
            for now in x:
                state = cell(now, state)
                steps.append(state[0] if isinstance(state, tuple) else state)
            x = torch.stack(steps)
            last.append(steps[-1])
        return x, torch.stack(last)


def workload(title: str, kind: str, layers: int) -> dict[bool, Workload]:
    """The full workload under False, the small one under True."""

    def make(inputs: int, hidden: int, longest: int, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
        def tensors(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
            return (torch.randn(*shape, inputs, generator=generator),)

        return Workload(
            title=title,
            dims={"length": (1, longest), "batch": (1, 16)},
            module=lambda: Recurrent(kind, inputs, hidden, layers),
            tensors=tensors,
            axes=({0: "length", 1: "batch"},),
            shapes=shapes,
            quick=quick,
            tolerance=1e-5,
        )

    return {
        False: make(
            300,
            512,
            128,
            (*product((1, 2, 7, 16, 31, 64, 101, 128), (1,)), *product((7, 31, 128), (4, 16))),
            ((1, 1), (31, 1), (128, 1), (31, 4)),
        ),
        True: make(12, 20, 64, product((1, 2, 13, 64), (1, 5)), ()),
    }


_LSTM = workload("LSTM", "LSTM", 1)
FULL, SMALL = _LSTM[False], _LSTM[True]

"""Fourier transforms: signals filtered in the frequency domain, images' spectra."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Shape, Workload


class Filter(nn.Module):
    """Real rows to their spectra, a low-pass filter, and back; and the power of each row's spectrum."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [batch, length]: filtered rows, and powers [batch, length // 2 + 1]."""
        spectrum = torch.fft.rfft(x)
        places = torch.linspace(0.0, 4.0, spectrum.shape[1])
        smooth = torch.fft.irfft(spectrum * torch.exp(-places * places), n=x.shape[1])
        return smooth, spectrum.real.square() + spectrum.imag.square()


def _workload(shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    return Workload(
        title="Filter in the frequency domain",
        dims={"batch": (1, 64), "length": (2, 65536)},
        module=Filter,
        tensors=lambda shape, generator: (torch.randn(*shape, generator=generator),),
        axes=({0: "batch", 1: "length"},),
        shapes=shapes,
        quick=quick,
        tolerance=1e-5,
    )


FULL = _workload(
    ((1, 64), (1, 1000), (1, 4096), (16, 2), (7, 997), (3, 2187), (64, 128), (64, 1000), (64, 4096), (2, 65536)),
    ((1, 64), (7, 997), (64, 1000), (64, 4096), (2, 65536)),
)
SMALL = _workload(((1, 2), (1, 17), (3, 64), (16, 7), (2, 997)), ())

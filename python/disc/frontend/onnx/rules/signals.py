"""Spectra. ONNX keeps complex numbers as pairs along a last dim of 2, and real ones along one of 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ... import scalar
from ...registry import NotLowerable, lowers
from ...rules.elementwise import convert
from ...scalar import Elem
from ...values import Extent, Tensor, is_one, normalize_dim
from ..builder import OnnxBuilder, known
from ..known import Known, elements, integers
from .padding import pad

_NONE, _WHOLE = 0, 2
_F32 = torch.float32
_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


def _spectrum(b: OnnxBuilder, x: Tensor, dim: int, n: Extent, inverse: bool, onesided: bool) -> Tensor:
    """The transform of length ``n`` along ``dim``, of a tensor that ends in parts."""
    if x.dtype not in _COMPLEX:
        result = _spectrum(b, convert(b, x, torch.float32), dim, n, inverse, onesided)
        return convert(b, result, x.dtype)
    kind = _COMPLEX[x.dtype]
    real = is_one(x.dims[-1])
    size = b.add(b.floordiv(n, 2), 1) if inverse and onesided else n
    if size != x.dims[dim]:
        # Cut, or filled up with zeros.
        before: list[Extent] = [0] * x.rank
        after = list(before)
        after[dim] = b.sub(size, x.dims[dim])
        x = pad(b, x, before, after)
    if real and not inverse:
        signal = b.reshape(x, x.dims[:-1])
        result = b.aten("_fft_r2c", signal, [dim], _NONE, onesided, dtype=kind, rank=signal.rank)
        return b.as_pairs(result)
    if real:
        zeros = b.full(x.dims, 0.0, x.dtype)
        x = b.concat([x, zeros], x.rank - 1)
    signal = b.as_complex(x)
    if inverse and onesided:
        result = b.aten("_fft_c2r", signal, [dim], _WHOLE, n, dtype=x.dtype, rank=signal.rank)
        return b.reshape(result, [*result.dims, 1])
    result = b.aten("_fft_c2c", signal, [dim], _WHOLE if inverse else _NONE, not inverse, dtype=kind, rank=signal.rank)
    result = b.as_pairs(result)
    return b.slice(result, dim, 0, b.add(b.floordiv(n, 2), 1)) if onesided else result


@lowers("onnx.DFT")
@known(1, 2)
def dft(
    b: OnnxBuilder,
    x: Tensor,
    length: Any = None,
    along: Any = None,
    axis: int | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """The discrete Fourier transform along a dim."""
    given = integers(along)
    if given is not None:
        axis = given[0]
    elif axis is None:
        axis = -2 if b.opset >= 20 else 1
    dim = normalize_dim(axis, x.rank)
    size = b.extents(length)[0] if length is not None else x.dims[dim]
    if length is None and inverse and onesided:
        size = b.mul(b.sub(size, 1), 2)
    return _spectrum(b, x, dim, size, bool(inverse), bool(onesided))


@lowers("onnx.STFT")
@known(1, 3)
def stft(
    b: OnnxBuilder, x: Tensor, step: Any, window: Tensor | None = None, length: Any = None, onesided: int = 1
) -> Tensor:
    """The spectra of windows at regular distances: [batch, frames, bins, 2]."""
    batch, samples, parts = x.dims
    hop = b.extents(step)[0]
    size = b.extents(length)[0] if length is not None else window.dims[0] if window is not None else samples
    if window is not None:
        b.require_equal(window.dims[0], size, "STFT: the window's length is not the frames'")
    frames = b.add(b.floordiv(b.sub(samples, size), hop), 1)

    def body() -> Elem:
        item, frame, i, part = (scalar.loop_index(d) for d in range(4))
        element = b.extract(x, [item, frame * scalar.from_extent(hop, torch.int64) + i, part])
        return element if window is None else element * b.extract(window, [i])

    cut = b.generic([], [], [batch, frames, size, parts], x.dtype, body)
    return _spectrum(b, cut, 2, size, False, bool(onesided))


def _register_window(op: str, *factors: float) -> None:
    """A window that is a sum of cosines, of 0, 1, ... periods."""

    @lowers(f"onnx.{op}")
    @known(0)
    def rule(b: OnnxBuilder, size: Any, output_datatype: Any = None, periodic: int = 1) -> Tensor:
        dtype = output_datatype if isinstance(output_datatype, torch.dtype) else _F32
        count = b.extents(size)[0]

        def body() -> Elem:
            period = scalar.from_extent(count if periodic else b.sub(count, 1), torch.int64).to(_F32)
            angle = scalar.loop_index(0).to(_F32) * (2.0 * math.pi) / period
            terms = [scalar.unary("cos", angle * float(k)) * factor for k, factor in enumerate(factors) if k]
            return sum(terms, scalar.constant(factors[0], _F32)).to(dtype)

        return b.generic([], [], [count], dtype, body)


_register_window("HannWindow", 0.5, -0.5)
_register_window("HammingWindow", 25 / 46, -21 / 46)
_register_window("BlackmanWindow", 0.42, -0.5, 0.08)


@lowers("onnx.MelWeightMatrix")
@known(0, 1, 2, 3, 4)
def mel_weight_matrix(
    b: OnnxBuilder, bins: Any, length: Any, rate: Any, low: Any, high: Any, output_datatype: Any = None
) -> Known:
    """Triangles of equal width on the mel scale, over the frequencies of a spectrum."""
    numbers = [(elements(x) or [0])[0] for x in (bins, length, rate, low, high)]
    if not all(isinstance(v, (int, float)) for v in numbers):
        raise NotLowerable("filters that depend on extents")
    count, size, sampled, lowest, highest = numbers
    mels = [2595.0 * math.log10(1.0 + f / 700.0) for f in (lowest, highest)]
    places = np.arange(count + 2) * ((mels[1] - mels[0]) / (count + 2)) + mels[0]
    edges = ((size + 1) * (700.0 * (10.0 ** (places / 2595.0) - 1.0)) // sampled).astype(int)
    weights = np.zeros((size // 2 + 1, count))
    for i in range(count):
        left, centre, right = edges[i : i + 3]
        if centre == left:
            weights[centre, i] = 1.0
        else:
            weights[left : centre + 1, i] = (np.arange(left, centre + 1) - left) / (centre - left)
        if right > centre:
            weights[centre:right, i] = (right - np.arange(centre, right)) / (right - centre)
    dtype = output_datatype if isinstance(output_datatype, torch.dtype) else torch.float32
    return Known.of(weights, dtype)

"""Operators beyond those that layers use: reinterpreted bytes, prims, quantisation, complex numbers, dynamic kernels.

Several programs are compiled as one, and run at other sizes than they were compiled with.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines quantized_decomposed)
from torch.export import Dim

import disc

A, P, Q = torch.ops.aten, torch.ops.prims, torch.ops.quantized_decomposed
R = torch.randn
SIZES = (5, 8, 2, 17)


def W(high, *shape, dtype=torch.int64):
    return torch.randint(0, high, shape).to(dtype)


def C(x):
    return torch.complex(x, x.flip(-1) * 2)


def x4(n):
    return (R(n, 4),)


def kernel(n):
    return (R(2, 4, 3 * n), R(4, 4, n))


F8 = (torch.float8_e4m3fn, torch.float8_e5m2)
F8_SCALE = torch.float8_e8m0fnu

PROGRAMS = {
    "view_dtype": {
        **{f"f32_{d}": (lambda x, d=d: (x + 1).view(d), x4) for d in (torch.int32, torch.int16, torch.uint8)},
        **{f"wide_{d}": (lambda x, d=d: (x + 1).view(d), x4) for d in (torch.float64, torch.complex64, torch.int64)},
        "half": (lambda x: (x + 1).view(torch.bfloat16), x4),
        "of_bool": (lambda x: (x > 0).view(torch.uint8), x4),
        "of_complex": (lambda x: (C(x) * 1j).view(torch.float32), x4),
        "dynamic": (lambda x: (x + 1).view(torch.int64), lambda n: (W(99, 8 * n, dtype=torch.uint8),)),
        "of_fp8": (lambda x: x.to(F8[0]).view(torch.uint8), x4),
        "copy": (lambda x: A.view_copy.dtype(x, torch.int32), x4),
    },
    "fp8": {
        "cast": (lambda x: [x.to(d).to(torch.float32) * 2 for d in F8], x4),
        "input": (lambda x: x.float() * 2, lambda n: ((R(n, 4) * 10).to(F8[0]),)),
        "output": (lambda x: x.to(F8[1]), x4),
        "constant": (lambda x: [x.new_full((x.size(0),), 3.7, dtype=d).float() for d in (*F8, F8_SCALE)], x4),
        "scaled_mm": (
            lambda x, y, s: torch._scaled_mm(x.to(F8[0]), y.to(F8[0]).t(), s, s, out_dtype=torch.bfloat16),
            lambda n: (R(n * 16, 32), R(16, 32), torch.tensor(0.5)),
        ),
        "int_mm": (
            torch._int_mm,
            lambda n: (W(99, n + 17, 16, dtype=torch.int8), W(99, 16, 8, dtype=torch.int8)),
        ),
    },
    "prims": {
        "moves": (lambda x: (P.collapse(x, 0, 1), P.cat([x, x], 0), P.rev(x, [0])), x4),
        "views": (lambda x: (P.split_dim(x, 1, 2), P.transpose(x, [1, 0]), P.view_of(x), P.squeeze(x[:1], [0])), x4),
        "broadcast": (lambda x: P.broadcast_in_dim(x, [3, x.size(0), 4], [1, 2]), x4),
        "iota": (
            lambda x: P.iota(x.size(0), start=2, step=3, dtype=torch.int64, device=x.device, requires_grad=False),
            x4,
        ),
        "folds": (lambda x: (P.sum(x, [0]), P.prod(x, [1]), P.amax(x, [1]), P.var(x, [0], correction=1)), x4),
        "div": (lambda x, i: (P.div(x, x.abs() + 3), P.div(i, i + 2)), lambda n: (R(n, 4), W(20, n))),
        "cbrt": (P.cbrt, x4),
    },
    "quantized": {
        "tensor": (lambda x: Q.quantize_per_tensor.default(x * 9, 0.1, 3, -128, 127, torch.int8), x4),
        "tensors": (
            lambda x, s, z: Q.quantize_per_tensor.tensor(x * 9, s, z, 0, 255, torch.uint8),
            lambda n: (R(n, 4), torch.tensor(0.07), torch.tensor(9)),
        ),
        "back": (
            lambda x: Q.dequantize_per_tensor.default(x, 0.1, 3, -128, 127, torch.int8),
            lambda n: (W(99, n, 4, dtype=torch.int8),),
        ),
        "channels": (
            lambda x, s, z: Q.quantize_per_channel.default(x * 9, s, z, 1, -128, 127, torch.int8),
            lambda n: (R(n, 4), torch.rand(4) + 0.01, W(9, 4)),
        ),
        "channels_back": (
            lambda x, s, z: Q.dequantize_per_channel.default(x, s, z, 1, -128, 127, torch.int8),
            lambda n: (W(99, n, 4, dtype=torch.int8), torch.rand(4) + 0.01, W(9, 4)),
        ),
        "groups": (
            lambda x, s, z: Q.quantize_per_channel_group.default(x * 9, s, z, -128, 127, torch.int8, 6),
            lambda n: (R(n, 18), torch.rand(n, 3) + 0.01, W(9, n, 3)),
        ),
        "groups_back": (
            lambda x, s, z: Q.dequantize_per_channel_group.default(x, s, z, -128, 127, torch.int8, 6, torch.float32),
            lambda n: (W(127, n, 18, dtype=torch.int8), torch.rand(n, 3) + 0.01, -W(99, n, 3, dtype=torch.int8)),
        ),
        "one_group": (
            lambda x, s: Q.dequantize_per_channel_group.default(x, s, None, 0, 255, torch.uint8, 128, torch.float32),
            lambda n: (W(255, n, 18, dtype=torch.uint8), torch.rand(n, 1) + 0.01),
        ),
        "chosen_rows": (lambda x: Q.choose_qparams_per_token_asymmetric.default(x * 3 + 1, torch.int8), x4),
        "chosen_sizes": (lambda x: [v.float() for v in Q.choose_qparams_per_token.default(x.half(), torch.int8)], x4),
        "chosen": (lambda x: Q.choose_qparams.tensor(x * 3 + 1, -128, 127, 1e-8, torch.int8), x4),
        "chosen_half": (lambda x: Q.choose_qparams.tensor(x.half() - 4, 0, 255, 1e-8, torch.uint8), x4),
        "chosen_symmetric": (
            lambda x: [Q.choose_qparams_symmetric.tensor(x, 0, 255, 1e-8, d) for d in (torch.uint8, torch.int8)],
            x4,
        ),
        "fake": (lambda x: torch.fake_quantize_per_tensor_affine(x * 20, 0.1, 3, -128, 127), x4),
        "fake_channels": (
            lambda x, s, z: torch.fake_quantize_per_channel_affine(x * 20, s, z, 1, -128, 127),
            lambda n: (R(n, 4), torch.rand(4) + 0.01, W(9, 4, dtype=torch.int32)),
        ),
        "fake_mask": (lambda x: A.fake_quantize_per_tensor_affine_cachemask(x * 20, 0.1, 3, -128, 127), x4),
    },
    "complex": {
        "cat": (lambda x: (torch.cat([C(x), x], 0), torch.stack([C(x), x * 1j])), x4),
        "norms": (lambda x: (C(x).norm(), torch.linalg.vector_norm(C(x), 1, [0]), C(x).abs().amax()), x4),
        "prod": (lambda x: (C(x[:, :2]).prod(1), C(x / 3).prod(0), C(x / 3).cumprod(0)), x4),
        "logic": (lambda x: (C(x).any(0), C(x * 0).any(), C(x).all(1)), x4),
        "inverse": (
            lambda x: [getattr(C(x), f)() for f in "asin acos atan asinh acosh atanh log1p expm1".split()],
            x4,
        ),
        "fused": (lambda x: (torch.addcmul(C(x), C(x), C(-x), value=0.5), torch.lerp(C(x), C(x * 2), 0.3)), x4),
        "parts": (lambda x: (C(x).tril(), torch.add(C(x), x.size(0), alpha=2)), x4),
        "gather": (
            lambda x, i: (C(x).gather(0, i), C(x).index_add(0, i[:, 0], C(x)[:2])),
            lambda n: (R(n, 4), W(2, 2, 4)),
        ),
    },
    "kernels": {
        "transposed": (lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1), kernel),
        # Of 3 n^2 products each, whose sum is small: the tolerance is one for results of about 1.
        "transposed_2d": (lambda x, w: F.conv_transpose2d(x, w), lambda n: (R(2, 3, n, n + 1), R(3, 2, n, n) / n)),
        "same": (lambda x, w: F.conv1d(x, w, padding="same"), kernel),
        "stride": (lambda x, w: F.conv1d(x, w, stride=w.size(2)), kernel),
        "padding": (lambda x, w: F.conv1d(x, w, padding=w.size(2) // 2), kernel),
        "dilation": (lambda x, w: F.conv1d(x, w, dilation=x.size(0)), lambda n: (R(n, 2, 40), R(3, 2, 2))),
        "groups": (lambda x, w: F.conv1d(x, w[:, :2], groups=2, stride=w.size(2)), kernel),
        "transposed_stride": (lambda x, w: F.conv_transpose1d(x, w, stride=w.size(2)), kernel),
        "tbc": (lambda x, w, c: torch.conv_tbc(x, w, c, 1), lambda n: (R(n, 2, 3), R(2, 3, 4), R(4))),
    },
    "moves": {
        "slice_copy": (
            lambda x: [
                A.slice_copy(x, 0, *bounds) for bounds in ((2, 100), (0, 2**63 - 1, 2), (-3, 100), (5, 3), (-100, 2))
            ],
            x4,
        ),
        "copies": (
            lambda x: (A.select_copy(x, 0, 1), A.detach_copy(x), A.split_copy(x, 2, 1), A.t_copy(x)),
            x4,
        ),
        "index_put": (lambda x, i, v: A._index_put_impl(x, [i], v, True), lambda n: (R(n, 4), W(n, 5), R(5, 4))),
        "repeats": (
            lambda x, r: (torch.repeat_interleave(x, r, dim=0), torch.repeat_interleave(r)),
            lambda n: (R(n, 4), W(4, n, dtype=torch.int32)),
        ),
        "strided_view": (lambda x: x.t().as_strided((x.size(1), 2), (1, x.size(1))), lambda n: (R(4, n),)),
        "strided_slice": (lambda x: (x + 1)[1:, 1:].as_strided((2, 2), (2, 1)), x4),
        "numpy_T": (A.numpy_T, lambda n: (R(n, 2, 3),)),
    },
    "values": {
        "kth": (lambda x, i: (torch.kthvalue(x, 2), torch.kthvalue(i, 9, 0)), lambda n: (R(n, 4), W(3, n + 20))),
        "median": (lambda x: x.float().median(1).values, lambda n: (W(3, 3, n),)),
        "log_softmax": (lambda x: (torch.log_softmax(x * 1e9, 1), torch.log_softmax(x * 1e4, 0)), x4),
        "trilinear": (
            lambda x, w, y: (F.bilinear(x, y, w), A._trilinear(x, w[0], y, [2], [0], [1], [])),
            lambda n: (R(n, 4), R(3, 4, 5), R(n, 5)),
        ),
        "nearest": (
            lambda x: (A.upsample_nearest2d(x, [2 * x.size(2), 10], 1.7, 2.2), A.upsample_nearest1d(x[0], [9], 1.7)),
            lambda n: (R(2, 3, n, 5),),
        ),
        "alpha": (lambda x: (x.add(x.size(0), alpha=3), torch.sub(x, x, alpha=x.size(0))), x4),
        "istft": (
            lambda x: torch.istft(C(x.mT).mT, 64, hop_length=16, window=torch.hann_window(64)),
            lambda n: (R(2, 33, n + 5),),
        ),
        # Without the end of the signal, and with zeros after it.
        "istft of a length": (
            lambda x: [
                torch.istft(C(x.mT).mT, 64, hop_length=16, window=torch.hann_window(64), length=16 * x.size(2) + n)
                for n in (-57, -40, 30)
            ],
            lambda n: (R(2, 33, n + 5),),
        ),
        "mean of complex numbers": (lambda x: (C(x).mean(), C(x).mean(0, keepdim=True)), lambda n: (R(n, 6),)),
    },
}  # fmt: skip


class Programs(torch.nn.Module):
    """Several programs as one model."""

    def __init__(self, programs):
        super().__init__()
        self.functions = [fn for fn, _ in programs]

    def forward(self, *inputs):
        return [fn(*args) for fn, args in zip(self.functions, inputs, strict=True)]


def dynamic(one, other):
    """Every dimension that differs between two examples."""
    if not isinstance(one, torch.Tensor):
        return None
    return {d: Dim.AUTO for d, (m, n) in enumerate(zip(one.shape, other.shape, strict=True)) if m != n}


def assert_same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype in F8:
        got, want = got.float(), want.float()
    # Functions of complex numbers lose a few bits in f32.
    torch.testing.assert_close(got, want, rtol=1e-4 if want.is_complex() else 2e-5, atol=1e-5, equal_nan=True)


@pytest.mark.share(2)
@pytest.mark.parametrize("group", PROGRAMS)
def test_operators(group, subtests):
    torch.manual_seed(0)
    programs = PROGRAMS[group].values()
    model = Programs(programs)
    # The meta kernel of slice_copy asks which of its bounds are inside.
    sizes = [n for n in SIZES if n > 2 or group != "moves"]
    examples = [tuple(tuple(make(n)) for _, make in programs) for n in sizes]
    shapes = pytree.tree_map(dynamic, examples[0], examples[1])
    compiled = disc.compile(model, examples[0], dynamic_shapes=(shapes,))
    for n, inputs in zip(sizes, examples, strict=True):
        results = zip(PROGRAMS[group], compiled(*inputs), model(*inputs), strict=True)
        for name, got, want in results:
            with subtests.test(name, n=n):
                for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
                    assert_same(a, b)

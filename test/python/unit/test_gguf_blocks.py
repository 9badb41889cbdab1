"""The codes in GGUF's blocks against what the ``gguf`` package makes of the same bytes, bit by bit."""

import numpy as np
import pytest
import torch

from disc.coded import CodedEmbedding, CodedLinear, Codes, packed
from disc.errors import ArgumentValueError
from disc.gguf_blocks import FORMATS, codes_of

gguf = pytest.importorskip("gguf")


def random_rows(name, rows, blocks, seed=0):
    """Rows of random bytes without infinite scales, and the format's number."""
    kind = gguf.GGMLQuantizationType[name]
    width, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(seed).integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    # The exponents of all halves of blocks: no byte then makes an infinite or NaN scale.
    for at in range(size):
        data[:, :, at] = np.where(data[:, :, at] & 0x7C == 0x7C, data[:, :, at] & 0x3F, data[:, :, at])
    return data.reshape(rows, -1), kind, width * blocks, size


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rows", [1, 511, 513])
def test_weights_are_those_of_the_package(name, rows):
    data, kind, columns, size = random_rows(name, rows, 2)
    codes = codes_of(data, name, size)
    assert (codes.rows, codes.columns) == (rows, columns)
    expected = torch.from_numpy(gguf.dequantize(data, kind))
    assert torch.equal(CodedLinear(codes).weight, expected)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0", "Q6_K", "Q2_K"])
def test_layers_are_those_of_floats(name):
    data, kind, columns, size = random_rows(name, 33, 1, seed=1)
    codes = codes_of(data, name, size)
    weight = torch.from_numpy(gguf.dequantize(data, kind)).double()
    x, bias = torch.randn(2, 5, columns), torch.randn(33)
    y = CodedLinear(codes, bias)(x)
    size = x.double().abs() @ weight.abs().T + 1
    assert y.dtype == torch.float32
    assert ((y - (x.double() @ weight.T + bias)).abs() <= 1e-6 * size).all()
    ids = torch.tensor([[0, 32, 5]])
    assert torch.equal(CodedEmbedding(codes)(ids), weight[ids].float())


def test_rows_in_another_order():
    data, kind, _, size = random_rows("Q4_1", 40, 1)
    order = torch.randperm(40)
    taken = codes_of(data, "Q4_1", size).take_rows(order)
    assert torch.equal(CodedLinear(taken).weight, torch.from_numpy(gguf.dequantize(data, kind))[order])


def test_two_codes_in_a_byte():
    codes = torch.tensor([[1, 2, 15, 0]])
    assert packed(codes).tolist() == [[0x21, 0x0F]]


@pytest.mark.parametrize(
    "codes, scales, bits, message",
    [
        ((2, 8), (2, 3), 8, "3 groups do not divide 8 columns"),
        ((2, 8), (3, 2), 8, r"expected \[rows, groups\]"),
        ((2, 8), (2, 0), 8, "0 groups"),
        ((2, 8), (2, 1), 2, "expected 4 or 8"),
    ],
)
def test_wrong_shapes(codes, scales, bits, message):
    with pytest.raises(ArgumentValueError, match=message):
        Codes(torch.zeros(codes, dtype=torch.uint8), torch.zeros(scales), bits=bits)

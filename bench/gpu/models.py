"""The models of the measurements on a GPU: pure PyTorch, for both the machine that compiles and the one that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shape = tuple[int, ...]


class Layer(nn.Module):
    """A layer of BERT."""

    def __init__(self, width: int, inner: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.first, self.second = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Attention and two products, each with a residual and a norm."""
        batch, length, width = x.shape
        q, k, v = (
            p(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for p in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.first(x + self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return self.second(x + self.narrow(F.gelu(self.wide(x))))


class MiniLM(nn.Module):
    """all-MiniLM-L6-v2's layers, with a small vocabulary and weights of no meaning: what is to be carried is less."""

    def __init__(self, vocabulary: int = 2000, width: int = 384, layers: int = 6):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList([Layer(width, 4 * width, 12) for _ in range(layers)])

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector of length 1 for each sequence."""
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, hidden)
        weights = mask[:, :, None].to(x.dtype)
        return F.normalize((x * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=1)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, fn: Callable[..., Any]):
        super().__init__()
        self.fn = fn

    def forward(self, *args: Tensor) -> Any:
        """What the function gives."""
        return self.fn(*args)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A model with dynamic dims, and the shapes that it is measured at."""

    make: Callable[[], nn.Module]
    inputs: Callable[[Shape, torch.Generator], tuple[Tensor, ...]]
    dims: dict[str, tuple[int, int]]
    axes: tuple[dict[int, str], ...]
    shapes: tuple[Shape, ...]
    tolerance: float = 2e-5
    """Of the largest difference from eager, over the largest magnitude."""
    memory_bound: bool = False
    """Whether its time is compared with that of moving its inputs and outputs."""
    leading: int | None = None
    """How many inputs come before those of `*args`, if there are such."""
    weights: bool = True
    """Whether the library contains the weights. Otherwise the machine that runs it makes them."""

    def build(self, device: str = "cpu") -> nn.Module:
        """The model, with the same weights each time (on the same kind of device, if they are not in the library)."""
        torch.manual_seed(0)
        if self.weights:
            return self.make().eval().requires_grad_(False).to(device)
        with torch.device(device):
            return self.make().eval().requires_grad_(False)

    def tensors(self, shape: Shape) -> tuple[Tensor, ...]:
        """Inputs, the same each time."""
        seed = sum(extent * 1009**i for i, extent in enumerate(shape))
        return self.inputs(shape, torch.Generator().manual_seed(seed))

    def example(self) -> tuple[Tensor, ...]:
        """Inputs to export with."""
        return self.tensors(tuple(min(high, max(low, 3 + 2 * i)) for i, (low, high) in enumerate(self.dims.values())))

    def dynamic_shapes(self) -> tuple[Any, ...]:
        """As `torch.export` takes them."""
        dims = {name: torch.export.Dim(name, min=low, max=high) for name, (low, high) in self.dims.items()}
        axes = tuple({axis: dims[name] for axis, name in named.items()} or None for named in self.axes)
        return axes if self.leading is None else (*axes[: self.leading], axes[self.leading :])


def _text(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    ids = torch.randint(2000, shape, generator=generator)
    lengths = torch.randint(1, shape[1] + 1, (shape[0], 1), generator=generator)
    return ids, (torch.arange(shape[1]) < lengths).long()


def _chain() -> nn.Module:
    from bench.workloads.memory_bound import Chain

    return Chain(768)


def _chain_inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    batch, length = shape
    x, gate = (torch.randn(batch, length, 768, generator=generator) for _ in range(2))
    lengths = torch.randint(1, length + 1, (batch,), generator=generator)
    return x, gate, (torch.arange(length) < lengths[:, None]).long()


def _bandwidth(fn: Callable[..., Any], *inputs: tuple[str, ...], index: bool = False) -> Spec:
    """A kernel over matrices; of the last shape each is larger than 64 MB."""
    names = {"rows": (1, 65536), "columns": (1, 65536)}

    def make(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        extents = dict(zip(names, shape, strict=True))
        tensors = [torch.randn([extents[d] for d in dims], generator=generator) for dims in inputs]
        if index:
            tensors[-1] = (tensors[-1].abs() * 1000).long() % shape[0]
        return tuple(tensors)

    return Spec(
        make=lambda: Function(fn),
        inputs=make,
        dims=names,
        axes=tuple(dict(enumerate(dims)) for dims in inputs),
        shapes=((1, 1), (31, 257), (1000, 1000), (4096, 4096), (16384, 2048), (2048, 16384)),
        memory_bound=True,
        leading=0,
    )


def _linear(dtype: torch.dtype, inner: int, outer: int, rows: tuple[int, ...]) -> Spec:
    """A product with GELU behind it, for a number of rows that varies."""

    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, inner, generator=generator).to(dtype),)

    return Spec(
        make=lambda: nn.Sequential(nn.Linear(inner, outer), nn.GELU("tanh")).to(dtype),
        inputs=inputs,
        dims={"rows": (1, 65536)},
        axes=({0: "rows"},),
        shapes=tuple((n,) for n in rows),
        tolerance=2e-5 if dtype == torch.float32 else 2e-2,
    )


class Coded(nn.Module):
    """A linear layer without a bias whose weight is codes of 4 or 8 bits; groups of values of k share a scale."""

    scales: Tensor
    codes: Tensor
    zeros: Tensor | None

    def __init__(self, inner: int, outer: int, bits: int, group: int = 128, zeros: bool = False):
        super().__init__()
        self.low, self.high, self.group = -(1 << bits - 1), (1 << bits - 1) - 1, min(group, inner)
        self.register_buffer("codes", torch.randint(self.low, self.high + 1, (outer, inner), dtype=torch.int8))
        # Weights as large as those of nn.Linear: in a deep network, larger ones turn rounding into large differences.
        size = (12 / inner) ** 0.5 / 2**bits
        self.register_buffer("scales", torch.rand(outer, inner // self.group) * size)
        drawn = torch.randint(-3, 4, (outer, inner // self.group), dtype=torch.int32)
        self.register_buffer("zeros", drawn if zeros else None)

    def weight(self, dtype: torch.dtype) -> Tensor:
        """What the codes stand for: [outer, inner]."""
        from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines the operators)

        made: Tensor = torch.ops.quantized_decomposed.dequantize_per_channel_group(
            self.codes, self.scales.float(), self.zeros, self.low, self.high, torch.int8, self.group, torch.float32
        )
        return made.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inner] to [..., outer]."""
        return F.linear(x, self.weight(x.dtype))


def _coded(bits: int, zeros: bool, inner: int, outer: int) -> Spec:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, inner, generator=generator).bfloat16(),)

    return Spec(
        make=lambda: Coded(inner, outer, bits, zeros=zeros),
        inputs=inputs,
        dims={"rows": (1, 65536)},
        axes=({0: "rows"},),
        shapes=tuple((n,) for n in (1, 4, 16, 17, 64, 128, 512)),
        tolerance=2e-2,
        weights=False,
    )


class Attention(nn.Module):
    """Of queries, keys and values [batch, heads, length, 64]."""

    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Without a mask, or with the causal one."""
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def _attention(dtype: torch.dtype, causal: bool) -> Spec:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        batch, length = shape
        return tuple(torch.randn(batch, 12, length, 64, generator=generator).to(dtype) for _ in range(3))

    return Spec(
        make=lambda: Attention(causal),
        inputs=inputs,
        dims={"batch": (1, 64), "length": (2, 8192)},
        axes=({0: "batch", 2: "length"},) * 3,
        shapes=((1, 17), (1, 128), (8, 128), (16, 512), (4, 1000), (4, 2048)),
        tolerance=2e-5 if dtype == torch.float32 else 2e-2,
    )


_matrix = ("rows", "columns")
SPECS: dict[str, Spec] = {
    "minilm": Spec(
        make=MiniLM,
        inputs=_text,
        dims={"batch": (1, 64), "length": (2, 512)},
        axes=({0: "batch", 1: "length"},) * 2,
        shapes=(
            *((1, length) for length in (8, 17, 64, 128, 512)),
            *((4, 23), (8, 64), (8, 128), (32, 32), (16, 200), (64, 512)),
        ),
    ),
    # Two layers of the same in bf16: half the bytes, and less to carry.
    "encoder_bf16": Spec(
        make=lambda: MiniLM(layers=2).bfloat16(),
        inputs=_text,
        dims={"batch": (1, 64), "length": (2, 512)},
        axes=({0: "batch", 1: "length"},) * 2,
        shapes=((1, 8), (1, 17), (1, 128), (1, 512), (8, 64), (8, 128), (16, 200), (64, 512)),
        tolerance=2e-2,
    ),
    "chain": Spec(
        make=_chain,
        inputs=_chain_inputs,
        dims={"batch": (1, 64), "length": (1, 512)},
        axes=({0: "batch", 1: "length"},) * 3,
        shapes=((1, 1), (1, 31), (1, 128), (1, 512), (7, 23), (16, 1), (16, 512), (64, 512)),
    ),
    "linear_f32": _linear(torch.float32, 1024, 1024, (1, 16, 17, 64, 128, 300, 1024, 4096, 16384)),
    "linear_bf16": _linear(torch.bfloat16, 1024, 1024, (1, 16, 17, 64, 128, 300, 1024, 4096, 16384)),
    "coded4": _coded(4, False, 4096, 14336),
    "coded4_zeros": _coded(4, True, 4096, 14336),
    "coded8": _coded(8, False, 4096, 14336),
    "coded4_square": _coded(4, False, 2048, 2048),
    "attention_f32": _attention(torch.float32, causal=False),
    "attention_bf16": _attention(torch.bfloat16, causal=True),
    "broadcast": _bandwidth(lambda x, y: torch.relu(x * 2 + y), _matrix, ("columns",)),
    "softmax": _bandwidth(lambda x: torch.softmax(x, 1), _matrix),
    "row_sum": _bandwidth(lambda x: x.sum(1), _matrix),
    "column_sum": _bandwidth(lambda x: x.sum(0), _matrix),
    "transpose": _bandwidth(lambda x: x.t().contiguous(), _matrix),
    "concat": _bandwidth(lambda x, y: torch.cat([x, y], 1), _matrix, _matrix),
    "cumulative": _bandwidth(lambda x: x.cumsum(1), _matrix),
    "gather": _bandwidth(lambda x, i: x[i], _matrix, ("rows",), index=True),
}

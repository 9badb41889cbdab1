"""Inputs of random programs: sizes, values with specials, and layouts in memory."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch

from .program import DTYPES, Input, Program
from .rewrite import original_name

# 0, 1, primes, and one beside the sizes of tiles and vectors.
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65)
LARGE = (127, 129, 192, 255, 257, 300, 513)
"""Beside what is unrolled, blocked and given to several threads. Where the program's values get too large, smaller."""
LAYOUTS = ("contiguous", "transposed", "step", "offset", "expanded", "overlapping")
ROUNDS = 9
LARGE_ROUNDS = 2
# Not both at once: a product of denormals and infinities is 0, infinite or NaN as its factors are ordered.
_SPECIALS = ((0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0), (0.0, -0.0, 1e-40, -1e-40, 6e-8, 1.0, -1.0))


def assignments(program: Program, seed: int) -> list[dict[str, int]]:
    """Sizes of a program's symbols for each of its runs: growing, then shrinking, then one of them large.

    A program and its rewritten form have the same.
    """
    rng = random.Random(f"{seed} {original_name(program.name)} sizes")
    rising = [1, 2, 3, 3, 7, 9, 17, 33, 65]
    result = []
    for place in range(ROUNDS):
        most = rising[place] if place < 6 else rising[::-1][place - 6]
        large = rng.choice(program.symbols or [""])
        values = {}
        for symbol in program.symbols:
            limit = most if symbol == large else min(most, 9)
            fitting = [n for n in SIZES if program.minimum[symbol] <= n <= max(limit, program.minimum[symbol])]
            # The largest are the most telling, beside those that are special.
            values[symbol] = rng.choice(fitting[-3:] + fitting[:1])
        result.append(values)
    for _ in range(LARGE_ROUNDS):
        large = rng.choice(program.symbols or [""])
        small = {s: rng.choice([n for n in SIZES if program.minimum[s] <= n <= 9]) for s in program.symbols}
        result.append({s: rng.choice(LARGE) if s == large else n for s, n in small.items()})
    return result


def make(program: Program, values: Mapping[str, int], seed: str, plain: bool = False) -> tuple[torch.Tensor, ...]:
    """The same inputs for the same arguments; ``plain``: contiguous, without specials."""
    # Writing to elements that share memory has no defined result.
    layouts = LAYOUTS if all(s.defines for s in program.steps) else LAYOUTS[:-2]
    # Attention in eager PyTorch makes 0 of NaN in short rows, transposed convolutions in DISC NaN of infinities.
    special = not any("scaled_dot_product" in s.text or "conv_transpose" in s.text for s in program.steps)
    return tuple(
        _make(i, shape, f"{seed} {i.name}", plain, layouts, special)
        for i, shape in zip(program.inputs, program.sizes(values), strict=True)
    )


def _make(spec: Input, shape: list[int], seed: str, plain: bool, layouts: Sequence[str], special: bool) -> torch.Tensor:
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(rng.getrandbits(60))
    layout = "contiguous" if plain else rng.choice(("contiguous", *layouts))
    special = special and not plain and rng.random() < 0.25
    dtype = DTYPES[spec.dtype]

    def filled(size: list[int]) -> torch.Tensor:
        return _values(size, dtype, generator, special)

    if layout == "transposed" and shape:
        return filled(shape[::-1]).permute(*reversed(range(len(shape))))
    if layout == "step" and shape:
        return filled([*shape[:-1], 2 * shape[-1]])[..., ::2]
    if layout == "offset" and shape:
        return filled([shape[0] + 1, *shape[1:]])[1:]
    if layout == "expanded" and shape:
        dim = rng.randrange(len(shape))
        if shape[dim]:
            return filled([1 if d == dim else n for d, n in enumerate(shape)]).expand(shape)
    if layout == "overlapping" and len(shape) >= 2 and all(shape):
        # Rows that begin one element after each other.
        base = filled([*shape[:-2], shape[-2] + shape[-1] - 1])
        return base.as_strided(shape, [*base.stride()[:-1], 1, 1])
    return filled(shape)


def _values(shape: list[int], dtype: torch.dtype, generator: torch.Generator, special: bool) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        low = 0 if dtype is torch.uint8 else -5
        result = torch.randint(low, 8, shape, generator=generator).to(dtype)
        if special:
            extreme = torch.rand(shape, generator=generator) < 0.1
            result = torch.where(extreme, torch.tensor(torch.iinfo(dtype).max, dtype=dtype), result)
        return result
    result = torch.randn(shape, generator=generator, dtype=torch.float64)
    if dtype.is_complex:
        return torch.complex(result, torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
    if special:
        specials = _SPECIALS[int(torch.randint(2, (), generator=generator))]
        chosen = torch.tensor(specials, dtype=torch.float64)[torch.randint(len(specials), shape, generator=generator)]
        result = torch.where(torch.rand(shape, generator=generator) < 0.15, chosen, result)
    return result.to(dtype)

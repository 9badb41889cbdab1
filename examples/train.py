#!/usr/bin/env python3
"""Trains a small language model on the documentation: a whole step is one native call, compiled once for all shapes.

Eager PyTorch takes the same steps from the same weights. The loss of both, over the seconds they took, is drawn in
train.svg: the curves have the same shape, and the one of DISC ends earlier.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import disc

ROOT = Path(__file__).resolve().parents[1]
CHARACTERS = 128


class Model(nn.Module):
    """Scores of the next character, [batch, length, 128], for characters [batch, length]."""

    def __init__(self, width: int = 96, layers: int = 2):
        super().__init__()
        self.characters, self.places = nn.Embedding(CHARACTERS, width), nn.Embedding(128, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(layers)])
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, text: Tensor) -> Tensor:
        """The scores; a character sees those before it."""
        length = text.shape[1]
        x = self.characters(text) + self.places(torch.arange(length))
        mask = torch.full((length, length), -torch.inf).triu(1)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def loss(module: nn.Module, text: Tensor) -> Tensor:
    """Cross-entropy of each next character of texts [batch, length]."""
    return F.cross_entropy(module(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def batches(steps: int) -> Iterator[Tensor]:
    """Pieces of the documentation; their number and length change from step to step."""
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
    codes = torch.tensor([min(ord(character), CHARACTERS - 1) for character in text])
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch, length = (int(torch.randint(low, high, (), generator=generator)) for low, high in ((4, 17), (16, 97)))
        starts = torch.randint(len(codes) - length, (batch, 1), generator=generator)
        yield codes[starts + torch.arange(length)]


def run(step: Callable[[Tensor], Tensor], steps: int) -> list[tuple[float, float]]:
    """The seconds since the start, and the loss averaged over the last steps, after each step."""
    curve: list[tuple[float, float]] = []
    seconds, average = 0.0, 0.0
    for i, text in enumerate(batches(steps)):
        start = time.perf_counter()
        value = step(text).item()
        seconds += time.perf_counter() - start
        average = value if i == 0 else 0.9 * average + 0.1 * value
        curve.append((seconds, average))
    return curve


def draw(curves: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """An SVG of the curves, with axes from 0."""
    right, top = (max(point[axis] for curve in curves.values() for point in curve) for axis in (0, 1))
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 400" font-family="sans-serif" font-size="13">']
    parts.append('<rect width="640" height="400" fill="white"/><path d="M50 20V350H620" fill="none" stroke="black"/>')
    for i in range(5):
        x, y = 50 + 570 * i / 4, 350 - 330 * i / 4
        parts.append(f'<text x="{x:.0f}" y="368" text-anchor="middle">{right * i / 4:.1f}</text>')
        parts.append(f'<text x="44" y="{y + 4:.0f}" text-anchor="end">{top * i / 4:.1f}</text>')
    parts.append('<text x="335" y="390" text-anchor="middle">seconds</text><text x="58" y="16">loss</text>')
    for i, (name, curve) in enumerate(curves.items()):
        color = ("#7a8594", "#0b6cf0")[i % 2]
        points = " ".join(f"{50 + 570 * x / right:.1f},{350 - 330 * y / top:.1f}" for x, y in curve)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="610" y="{40 + 20 * i}" text-anchor="end" fill="{color}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")


def main() -> None:
    """Trains with both, and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("train.svg"), help="the picture (default: train.svg)")
    args = parser.parse_args()
    torch.manual_seed(0)
    module = Model()
    eager = copy.deepcopy(module)
    optimizer, other = (torch.optim.AdamW(m.parameters(), lr=2e-3, fused=m is eager) for m in (module, eager))

    def eager_step(text: Tensor) -> Tensor:
        other.zero_grad()
        value = loss(eager, text)
        value.backward()
        other.step()
        return value.detach()

    dims = ({0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", min=3, max=128)},)
    start = time.perf_counter()
    step = disc.compile_training(module, optimizer, (next(batches(1)),), loss=loss, dynamic_shapes=dims)
    print(f"compiled in {time.perf_counter() - start:.1f} s")
    curves = {"eager PyTorch, fused AdamW": run(eager_step, args.steps), "DISC": run(step, args.steps)}
    draw(curves, args.out)
    for name, curve in curves.items():
        print(f"{name:27} {args.steps} steps in {curve[-1][0]:5.1f} s, loss {curve[0][1]:.2f} to {curve[-1][1]:.4f}")
    print(f"{step.compilations} compilation; loss curves: {args.out}")


if __name__ == "__main__":
    main()

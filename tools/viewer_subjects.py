#!/usr/bin/env python3
"""Writes what each viewer opens, of one of three compiled programs.

They are MiniLM, a network with control flow, and a training step. viewer_subjects.py NAME FOLDER writes report.html,
model.json and time.json (Model Explorer), profile.pftrace (Perfetto) and torch.json (torch.profiler). With TORCH_TRACE
set, the trace for tlparse is written, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import disc
from disc.viewers import model_explorer, torch_profiler

ROOT = Path(__file__).resolve().parent.parent
CALLS = 3
SECONDS = 0.05
"""How long torch.profiler watches: it takes milliseconds itself to begin."""


def minilm() -> tuple[disc.Model, tuple[Any, ...], torch.nn.Module]:
    """The sentence embedder of the demo, a batch, and the module that results are compared with."""
    from minilm import compile_model
    from sentence_embedder import load_model, random_inputs

    module = load_model()
    return compile_model(module), random_inputs(8, 64), module


def early_exit() -> tuple[disc.Model, tuple[Any, ...], torch.nn.Module]:
    """A network that a batch leaves at one of three classifiers, and a batch that passes all of them."""
    from dynamic import early_exit as network

    module = network.make_model()
    model = disc.compile(module, next(network.inputs(1)), dynamic_shapes=network.dynamic_shapes)
    last = len(module.stages) - 1
    return model, next(batch for batch in network.inputs(1000) if module(*batch)[1] == last), module


def training() -> tuple[disc.TrainingStep, tuple[Any, ...], torch.nn.Module]:
    """A step of the example examples/train.py, and a batch."""
    import train

    module = train.Model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3)
    text = next(train.batches(1))
    dims = ({0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", min=3, max=128)},)
    return disc.compile_training(module, optimizer, (text,), loss=train.loss, dynamic_shapes=dims), (text,), module


SUBJECTS: dict[str, Callable[[], tuple[Any, tuple[Any, ...], torch.nn.Module]]] = {
    "minilm": minilm,
    "early-exit": early_exit,
    "training": training,
}
TITLES = {
    "minilm": "all-MiniLM-L6-v2",
    "early-exit": "A network with early exits",
    "training": "A training step of a small language model",
}


def write(name: str, folder: Path) -> None:
    """Writes the files of one program into a folder."""
    torch.manual_seed(0)
    model, inputs, _module = SUBJECTS[name]()
    disc.report(model, folder / "report.html", inputs=inputs, title=TITLES[name])
    with model.profile() as measured:
        for _ in range(CALLS):
            model(*inputs)
    measured.save(str(folder / "profile.pftrace"))
    model_explorer.save(model, folder / "model.json", ["memory"])
    model_explorer.save_node_data(measured, folder)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            model(*inputs)
    torch_profiler.export_chrome_trace(profiler, folder / "torch.json")


def main() -> None:
    """Writes the files of the program that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(SUBJECTS))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    write(args.name, args.folder)


if __name__ == "__main__":
    sys.path.append(str(ROOT / "examples"))
    main()

"""Weights that were packed are held once: dropping the module frees them. Weights that calls read stay."""

import gc
from pathlib import Path

import torch
from torch import nn

import disc

ROWS = torch.export.Dim("rows", min=1, max=64)
MIB = 1 << 20


def resident_bytes() -> int:
    fields = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) * 1024


def drop_module(make, example) -> int:
    """Bytes that came free when the compiled module was dropped."""
    module = make().eval()
    with torch.no_grad():
        expected = module(example)
    model = disc.compile(module, (example[:4],), dynamic_shapes=({0: ROWS},))
    gc.collect()
    before = resident_bytes()
    del module
    gc.collect()
    after = resident_bytes()
    torch.testing.assert_close(model(example), expected, rtol=1e-4, atol=1e-4)
    return before - after


def test_packed_weights_are_held_once():
    assert drop_module(lambda: nn.Linear(4096, 4096), torch.randn(20, 4096)) > 60 * MIB


def test_weights_in_use_stay():
    assert drop_module(lambda: nn.Embedding(4096, 4096), torch.arange(20)) < 4 * MIB

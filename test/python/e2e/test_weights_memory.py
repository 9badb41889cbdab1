"""Weights that were packed are held once: with keep_module=False, dropping the module frees them. Weights that calls
read stay."""

import subprocess
import sys

MIB = 1 << 20
# A process of its own: what other tests leave behind would show in the figures.
PROGRAM = """
import gc
from pathlib import Path

import torch
import disc

def resident():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024

module = {module}
module.eval()
example = {example}
with torch.no_grad():
    expected = module(example)
rows = torch.export.Dim("rows", min=1, max=64)
options = disc.Options(keep_module={keep})
model = disc.compile(module, (example[:4],), dynamic_shapes=({{0: rows}},), options=options)
gc.collect()
before = resident()
del module
gc.collect()
after = resident()
torch.testing.assert_close(model(example), expected)
print(before - after)
"""


def freed_bytes(module: str, example: str, keep: bool = False) -> int:
    """Bytes that come free when the compiled module is dropped."""
    program = PROGRAM.format(module=module, example=example, keep=keep)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def test_packed_weights_are_held_once():
    assert freed_bytes("torch.nn.Linear(4096, 4096)", "torch.randn(20, 4096)") > 60 * MIB


def test_weights_in_use_stay():
    assert freed_bytes("torch.nn.Embedding(4096, 4096)", "torch.arange(20)") < 4 * MIB


def test_a_module_is_kept():
    assert freed_bytes("torch.nn.Linear(4096, 4096)", "torch.randn(20, 4096)", keep=True) < 4 * MIB

"""The same inputs give the same bits: whatever the number of threads, and however often."""

import pytest
import torch

import disc
from bench import workloads
from bench.workloads.base import flat

pytestmark = pytest.mark.share(3)

# One of each kind of kernel and of control flow; `make nightly` runs the others.
QUICK = ("minilm", "resnet18", "llama_block", "dynamic_beam_search", "dynamic_early_exit")
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in workloads.names()]


@pytest.mark.parametrize("name", NAMES)
def test_threads_do_not_show(name):
    workload = workloads.load(name, small=True)
    module = workload.build()
    one, several = (
        disc.compile(
            module,
            workload.example(),
            dynamic_shapes=workload.dynamic_shapes(),
            options=disc.Options(threads=threads),
        )
        for threads in (1, 3)
    )
    for shape in workload.shapes:
        inputs = workload.inputs(shape)
        expected = flat(one(*inputs))
        for _ in range(3):
            for got, want in zip(flat(several(*inputs)), expected, strict=True):
                assert torch.equal(got, want), (shape, (got - want).abs().max())

"""Ops that are functions of the runtime, through the whole compiler, against eager."""

import pytest
import torch

import disc
from function_cases import SIZES, FunctionBatch, batches
from op_cases import assert_same

pytestmark = pytest.mark.share(3)


@pytest.mark.parametrize("names", batches(), ids=lambda names: names[0].partition("-")[0])
def test_functions(names, subtests):
    batch = FunctionBatch(names)
    model = disc.compile(batch, batch.inputs(SIZES[0]), dynamic_shapes=batch.dynamic_shapes())
    for sizes in SIZES[1:]:
        inputs = batch.inputs(sizes, seed=1)
        with torch.inference_mode():
            want = batch(*inputs)
        got = model(*inputs)
        for name, xs in zip(names, inputs, strict=True):
            with subtests.test(name, **sizes):
                assert_same(got[name], want[name], xs)

"""Every op through the whole compiler, at several shapes, against eager."""

import pytest
import torch

import disc
from op_cases import EXPORT_SIZES, OTHER_SIZES, Batch, assert_same, batches

pytestmark = pytest.mark.share(2)

# The smallest extents, odd ones, and some around the widths of vectors and tiles.
SIZES = (
    EXPORT_SIZES,
    *OTHER_SIZES,
    {"B": 2, "S": 17, "T": 16, "N": 33},
    {"B": 7, "S": 31, "T": 64, "N": 15},
)


@pytest.mark.parametrize("names", batches(), ids=lambda names: names[0])
def test_ops(names, subtests):
    batch = Batch(names)
    model = disc.compile(batch, batch.inputs(EXPORT_SIZES), dynamic_shapes=batch.dynamic_shapes())
    for sizes in SIZES:
        inputs = batch.inputs(sizes, seed=1)
        with torch.inference_mode():
            want = batch(*inputs)
        got = model(*inputs)
        for name, xs in zip(names, inputs, strict=True):
            with subtests.test(name, **sizes):
                assert_same(got[name], want[name], xs)

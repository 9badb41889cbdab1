"""Every op's lowering rule against eager PyTorch, by interpreting the input IR: no compiler is needed."""

import pytest
import torch

import ir_reference
from disc.frontend import import_program
from disc.frontend.decompositions import decomposition_table
from disc.torch_compat.versions import MINOR
from op_cases import EXPORT_SIZES, OTHER_SIZES, Batch, assert_same, batches

pytestmark = pytest.mark.share(2)


@pytest.mark.parametrize("names", batches(), ids=lambda names: names[0])
def test_ops(names, subtests):
    """As torch.export leaves them: rules for the ops that users write."""
    batch = Batch(names)
    program = import_program(batch, batch.inputs(EXPORT_SIZES), dynamic_shapes=batch.dynamic_shapes())
    check(batch, program, subtests)


@pytest.mark.parametrize("names", batches(size=1000), ids=lambda names: names[0])
def test_decomposed_ops(names, subtests):
    """Decomposed by PyTorch first, as in models where some op needs it."""
    if MINOR < 13:
        # torch.export of 2.12 fixes its sizes; disc.compile does not.
        names = [name for name in names if name != "contraction-matmul_vector_lhs"]
    batch = Batch(names)
    exported = torch.export.export(batch, batch.inputs(EXPORT_SIZES), dynamic_shapes=batch.dynamic_shapes())
    check(batch, import_program(exported.run_decompositions(decomposition_table())), subtests)


def check(batch, program, subtests):
    for sizes in (EXPORT_SIZES, *OTHER_SIZES):
        inputs = batch.inputs(sizes, seed=1)
        flat = program.flatten(inputs)
        want = batch(*inputs)
        results = ir_reference.run(program.text, program.parameters, flat)
        got = program.unflatten(results, flat)
        for name, xs in zip(batch.cases, inputs, strict=True):
            with subtests.test(name, **sizes):
                assert_same(_signed_like(got[name], want[name]), want[name], xs)


def _signed_like(got, want):
    """The IR is signless: only torch knows which bytes were unsigned."""
    leaves, spec = torch.utils._pytree.tree_flatten(got)
    unsigned = [
        g.view(torch.uint8) if isinstance(w, torch.Tensor) and w.dtype == torch.uint8 else g
        for g, w in zip(leaves, torch.utils._pytree.tree_leaves(want), strict=True)
    ]
    return torch.utils._pytree.tree_unflatten(unsigned, spec)

"""Architectures of transformers, each compiled once and compared with eager at five shapes.

`python -m zoo` in test/python runs all of them; these are some of each kind.
"""

import pytest

from zoo import ARCHITECTURES, SELECTED, known_failures
from zoo.runner import check

pytestmark = pytest.mark.share(3)

# `make nightly` runs these too: each is much like one that always runs.
LIKE_OTHERS = {
    "albert",
    "esm",
    "gpt_neox",
    "mistral",
    "phi",
    "opt",
    "mpt",
    "bart",
    "dinov2",
    "resnet",
    "blip",
    "layoutlm",
    "bert",
    "gpt2",
    "gemma3_text",
    "olmoe",
}
NAMES = [pytest.param(name, marks=pytest.mark.nightly if name in LIKE_OTHERS else ()) for name in SELECTED]


@pytest.mark.parametrize("name", NAMES)
def test_architecture(name):
    outcome = check(ARCHITECTURES[name])
    known = known_failures().get(name)
    if known is not None:
        assert not outcome.passed, "it passes: take it off the list in zoo/failures.txt"
        pytest.xfail(known)
    assert outcome.passed, "\n".join(outcome.reasons)
    assert outcome.shapes == 5


def test_known_failures_are_architectures():
    assert set(known_failures()) <= set(ARCHITECTURES)


def test_reasons_come_all_at_once():
    """A model that cannot be compiled says everything that it lacks."""
    import torch

    import disc

    for name in ("first", "second"):

        @torch.library.custom_op(f"zoo_test::{name}", mutates_args=())
        def op(x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        op.register_fake(torch.empty_like)

    class Lacking(torch.nn.Module):
        def forward(self, x):
            return torch.ops.zoo_test.first(x) + torch.ops.zoo_test.second(x.exp())

    with pytest.raises(disc.UnsupportedOpError) as info:
        disc.compile(Lacking(), (torch.rand(3),))
    assert [op.name for op in info.value.ops] == ["torch.zoo_test.first", "torch.zoo_test.second"]

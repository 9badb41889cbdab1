"""How often the import computes what is expensive: counts, whatever a machine's speed."""

import torch
from torch.export import Dim
from torch.utils._sympy.value_ranges import bound_sympy

from disc.frontend import import_program


class Pooled(torch.nn.Module):
    """The same expressions of sizes, block after block."""

    def forward(self, x):
        for _ in range(4):
            y = torch.nn.functional.pad(x, (0, (7 - x.shape[1] % 7) % 7))
            x = x + y.unflatten(1, (-1, 7)).sum(2).mean(1, keepdim=True)
        return x


def test_bounds_of_an_expression_are_computed_once(monkeypatch):
    seen = []

    def counted(expr, ranges):
        seen.append(expr)
        return bound_sympy(expr, ranges)

    monkeypatch.setattr("disc.frontend.extents.bound_sympy", counted)
    import_program(Pooled(), (torch.randn(3, 20),), dynamic_shapes=({1: Dim("n", min=8, max=640)},))
    assert seen
    assert len(seen) == len(set(seen))
